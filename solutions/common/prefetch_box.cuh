// Boxes of tensor_map.cuh on their way into the L2 alone: PTX of sm_90 and later. As with
// read_once.cuh, their lines leave those of others where they are.
#pragma once

#include <cstdint>

#include "read_once.cuh"

__device__ __forceinline__ void prefetch_box_once(const CUtensorMap* map, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.prefetch.tensor.2d.L2.global.tile.L2::cache_hint [%0, {%1, %2}], %3;" ::"l"(
          map),
      "r"(c0), "r"(c1), "l"(evict_first())
      : "memory");
}
