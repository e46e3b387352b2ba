#pragma once
#include "async_copy.cuh"
inline uint32_t swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row % 8)) << 4); }
inline uint64_t describe_tile(const void* tile) {
  const uint32_t start = shared_address(tile) >> 4 & 0x3fff; const uint64_t stride = 1024 >> 4;
  return (start | 1 << 16) | stride << 32 | uint64_t{1} << 62;
}
inline uint64_t at_step(uint64_t tile, int step) { return (static_cast<uint32_t>(tile) + 2 * step) | (tile >> 32 << 32); }
inline void begin_products() {}
