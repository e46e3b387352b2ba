#pragma once
#include "warpgroup.cuh"
__device__ __forceinline__ uint64_t describe_rows(const void* tile, uint32_t next) {
  const uint32_t start = shared_address(tile) >> 4 & 0x3fff;
  const uint64_t stride = 1024 >> 4;  // between groups of eight rows
  return (start | next >> 4 << 16) | stride << 32 | uint64_t{1} << 62;
}

__device__ __forceinline__ uint64_t at_rows(uint64_t tile, int step) {
  return (static_cast<uint32_t>(tile) + 128 * step) | (tile >> 32 << 32);
}

inline void commit_products() {}
template <int P, int N> inline void wait_products(float (&c)[N]) {}
template <int N> inline void multiply_rows_f16(float (&c)[N], const uint32_t (&a)[4], uint64_t b, bool adds) { wgmma(c, a, b, adds, true); }

#include "warpgroup_rows_bf16.cuh"
