// Warpgroup products that stay in flight, and whose second operand lies in rows along the summed
// dimension: PTX of sm_90a alone. Fragments and begin_products(): warpgroup.cuh.
#pragma once

#include <cstdint>

#include "warpgroup.cuh"

// A tile as a second operand whose 64 columns are contiguous and whose rows are the summed
// dimension; `next` bytes on lies the tile of the next 64 columns. Else as describe_tile.
__device__ __forceinline__ uint64_t describe_rows(const void* tile, uint32_t next) {
  const uint32_t start = shared_address(tile) >> 4 & 0x3fff;
  const uint64_t stride = 1024 >> 4;  // between groups of eight rows
  return (start | next >> 4 << 16) | stride << 32 | uint64_t{1} << 62;
}

// The tile's rows from 16 * step on.
__device__ __forceinline__ uint64_t at_rows(uint64_t tile, int step) {
  return (static_cast<uint32_t>(tile) + 128 * step) | (tile >> 32 << 32);
}

// The products so far are a group of their own.
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// The sums are there: of all groups but the last PENDING.
template <int PENDING>
__device__ __forceinline__ void wait_products(float (&c)[32]) {
  asm volatile("wgmma.wait_group.sync.aligned %32;"
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

template <int PENDING>
__device__ __forceinline__ void wait_products(float (&c)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned %64;"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]),
                 "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
                 "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]),
                 "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
                 "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]),
                 "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
                 "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]),
                 "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]),
                 "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]),
                 "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]),
                 "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]),
                 "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]),
                 "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]),
                 "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]),
                 "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]),
                 "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
               : "n"(PENDING)
               : "memory");
}

// c [64x64] (+)= a [64x16] b [16x64], fp16 operands, fp32 sums; b by describe_rows.
__device__ __forceinline__ void multiply_rows_f16(float (&c)[32], const uint32_t (&a)[4],
                                                  uint64_t b, bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, adds, 1, 1, 1;\n"
      "}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]),
        "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]),
        "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]),
        "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
        "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]),
        "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
}

// c [64x128] (+)= a [64x16] b [16x128].
__device__ __forceinline__ void multiply_rows_f16(float (&c)[64], const uint32_t (&a)[4],
                                                  uint64_t b, bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, adds, 1, 1, 1;\n"
      "}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]),
        "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]),
        "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]),
        "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
        "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]),
        "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]),
        "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]),
        "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]),
        "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]),
        "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]),
        "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]),
        "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]),
        "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]),
        "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
}
