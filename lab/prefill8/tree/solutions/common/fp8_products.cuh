// Warpgroup matrix products of e4m3 codes, both operands in shared memory: PTX of sm_90a alone.
//
// c [64 x N] (+)= a [64 x 32] b [N x 32]^T, fp32 sums of which the tensor cores keep about 14 bits:
// scale and add them elsewhere before they grow long. Operands are tiles as describe_tile() knows
// them, at_step(tile, s) their columns from 32 s on. Lane l of warp w in the warpgroup holds of c:
// row 16 w + l / 4, columns 8 j + 2 (l % 4) and one more in c[4 j], c[4 j + 1], then the same of
// eight rows on.
#pragma once

#include <cstdint>

#include "warpgroup.cuh"

__device__ __forceinline__ void multiply_e4m3(float (&c)[4], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 "
      "{%0, %1, %2, %3}, %4, %5, adds, 1, 1;\n"
      "}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}

__device__ __forceinline__ void multiply_e4m3(float (&c)[8], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 "
      "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, adds, 1, 1;\n"
      "}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]),
        "+f"(c[6]), "+f"(c[7])
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}

// All products that this thread's warpgroup has issued so far are one group.
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits for all groups but the last PENDING; hold_sums() comes next.
template <int PENDING>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// No arithmetic on the sums moves across this.
template <int COUNT>
__device__ __forceinline__ void hold_sums(float (&c)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
