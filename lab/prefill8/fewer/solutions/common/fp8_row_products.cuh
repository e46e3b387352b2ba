// Warpgroup products of e4m3 codes whose first operand lies in registers, in which two sets of sums
// take turns: while one is scaled and added, the tensor cores fill the other. PTX of sm_90a alone.
#pragma once

#include <cstdint>

#include "warpgroup.cuh"

// A tile of warpgroup.cuh as an operand, by the lower half of its description: the upper one is the
// same for all. All lanes of a warp name the same tile; so it is theirs in common, as the
// instruction wants it.
__device__ __forceinline__ uint32_t describe_start(const void* tile) {
  return __shfl_sync(0xffffffff, static_cast<uint32_t>(describe_tile(tile)), 0);
}

// c [64x64] (+)= a [64x32] b [64x32]^T, fp32 sums, of which the tensor cores keep 14 bits of the
// largest term. b: a tile by describe_start(), and 2 s more: its codes from 32 s on. Lane l of warp
// w in the warpgroup holds of a, four codes each: row 16 w + l / 4 from code 4 (l % 4) on, the same
// of eight rows on, then both of 16 codes on. Of c: row 16 w + l / 4, columns 8 j + 2 (l % 4) and
// one more in c[4 j], c[4 j + 1], then the same of eight rows on.
__device__ __forceinline__ void multiply_rows(float (&c)[32], const uint32_t (&a)[4], uint32_t b,
                                              bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      ".reg .b64 tile;\n"
      "setp.ne.b32 adds, %37, 0;\n"
      "mov.b64 tile, {%36, 0x40000040};\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, tile, adds, 1, 1;\n"
      "}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]),
        "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]),
        "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]),
        "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
        "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]),
        "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(static_cast<int>(adds)));
}

// Waits for all groups of products but the last PENDING, of which c is none: its sums are there.
// They are operands, so that no arithmetic on them can move above the wait.
template <int PENDING>
__device__ __forceinline__ void await_products(float (&c)[32]) {
  asm volatile(
      "wgmma.wait_group.sync.aligned %32;\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]),
        "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]),
        "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]),
        "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
        "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]),
        "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
      : "n"(PENDING)
      : "memory");
}
