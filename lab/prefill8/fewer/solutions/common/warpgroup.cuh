// Warpgroup matrix products with the first operand in registers: PTX of sm_90a alone.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

// Byte offset in a tile of rows of 128 bytes whose 16-byte chunks are permuted: chunk c of row r
// lies at place c ^ r % 8. The tile starts at a multiple of 1024 bytes.
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
  return row * 128 + ((chunk ^ (row % 8)) << 4);
}

// Such a tile as an operand.
__device__ __forceinline__ uint64_t describe_tile(const void* tile) {
  const uint32_t start = shared_address(tile) >> 4 & 0x3fff;
  const uint64_t stride = 1024 >> 4;  // between groups of eight rows
  return (start | 1 << 16) | stride << 32 | uint64_t{1} << 62;
}

// The tile's columns from 16 * step on, of 16 bits each. A sum of 32 bits: the upper half stays a
// constant, which costs no register.
__device__ __forceinline__ uint64_t at_step(uint64_t tile, int step) {
  return (static_cast<uint32_t>(tile) + 2 * step) | (tile >> 32 << 32);
}

// Registers and, after publish_shared(), shared memory are read from here on.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// c [64x64] (+)= a [64x16] b [64x16]^T, fp16 operands, fp32 sums. Lane l of warp w in the warpgroup
// holds of c: row 16 w + l / 4, columns 8 j + 2 (l % 4) and one more in c[4 j], c[4 j + 1], then
// the same of eight rows on. Of a, as pairs: row 16 w + l / 4 and eight rows on at columns
// 2 (l % 4), then both at columns eight on.
__device__ __forceinline__ void multiply_f16(float (&c)[32], const uint32_t (&a)[4], uint64_t b,
                                             bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, adds, 1, 1, 0;\n"
      "}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]),
        "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]),
        "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]),
        "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]),
        "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
        "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
        "+f"(c[30]), "+f"(c[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
}

// The sums are there. They are operands, so that no arithmetic on them can move above the wait.
__device__ __forceinline__ void finish_products(float (&c)[32]) {
  asm volatile(
      "wgmma.commit_group.sync.aligned;\n"
      "wgmma.wait_group.sync.aligned 0;\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]),
        "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]),
        "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]),
        "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]),
        "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
        "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
        "+f"(c[30]), "+f"(c[31])
      :
      : "memory");
}
