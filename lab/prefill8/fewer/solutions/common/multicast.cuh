// Tiles that the copy engine brings to several CTAs of a cluster at once, and the barriers by which
// these say that they have read them: PTX of sm_90 and later.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "async_copy.cuh"
#include "cluster.cuh"

// As copy_box(), to the same place in each CTA whose bit is set; the bytes count on the same
// barrier of each.
__device__ __forceinline__ void copy_box_to(uint16_t ranks, void* shared, const CUtensorMap* map,
                                            uint64_t* barrier, int c0, int c1, int c2, int c3,
                                            int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(
          shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
      "h"(ranks)
      : "memory");
}

// An arrival at the barrier in the same place of another CTA, or of this one, after the thread has
// read what the copy engine may now replace. It orders no writes for the other CTA: with the scope
// of the cluster sm_90 would wait until all of the thread's are in the L2, each time.
__device__ __forceinline__ void arrive_at(uint64_t* barrier, uint32_t rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(
                   address_in(shared_address(barrier), rank))
               : "memory");
}

// All threads of the cluster meet; what each has sent to others before has arrived.
__device__ __forceinline__ void meet_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\n" ::
          : "memory");
}
