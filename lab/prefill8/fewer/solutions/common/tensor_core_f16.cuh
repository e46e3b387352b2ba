// mma.sync in fp16 with fp32 sums, PTX of sm_80 and later; matrix stores, of sm_90 and later.
#pragma once

#include <cstdint>

// c [16x8] += a [16x16] b [16x8]; who holds what: multiply_bf16 in tensor_core.cuh.
__device__ __forceinline__ void multiply_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8x8 tiles of 16-bit elements, transposed on the way: the inverse of load_tiles_transposed.
// Lane l names row l % 8 of tile l / 8.
__device__ __forceinline__ void store_tiles_transposed(uint32_t row_address, uint32_t a, uint32_t b,
                                                       uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   row_address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
