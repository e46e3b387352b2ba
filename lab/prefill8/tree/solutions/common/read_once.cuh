// Copies of tensor_map.cuh whose bytes nobody reads again: PTX of sm_90 and later. Their lines in
// the L2 make room for one another, and leave the others, among them those that would have to be
// written to memory first, where they are.
#pragma once

#include <cstdint>

#include "tensor_map.cuh"

__device__ __forceinline__ uint64_t evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// As copy_box().
__device__ __forceinline__ void copy_box_once(void* shared, const CUtensorMap* map,
                                              uint64_t* barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "l"(evict_first())
      : "memory");
}

__device__ __forceinline__ void copy_box_once(void* shared, const CUtensorMap* map,
                                              uint64_t* barrier, int c0, int c1, int c2, int c3,
                                              int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
      "l"(evict_first())
      : "memory");
}
