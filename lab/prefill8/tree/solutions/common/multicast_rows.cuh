// Rows that the copy engine brings to several CTAs of a cluster at once: PTX of sm_90 and later.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "async_copy.cuh"

// As copy_box(), to the same place in each CTA whose bit is set; the bytes count on the same
// barrier of each.
__device__ __forceinline__ void copy_box_to(uint16_t ranks, void* shared, const CUtensorMap* map,
                                            uint64_t* barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "h"(ranks)
      : "memory");
}
