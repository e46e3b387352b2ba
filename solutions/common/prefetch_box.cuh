// Tiles of a tensor that tensor_map.cuh describes, on their way to the L2 alone: PTX of sm_90 and
// later.
#pragma once

#include "tensor_map.cuh"

// What copy_box() would copy.
__device__ __forceinline__ void prefetch_box(const CUtensorMap* map, int c0, int c1, int c2, int c3,
                                             int c4) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" ::"l"(
                   map),
               "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}
