#pragma once
#include "tensor_core_f16.cuh"
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
  return row * 128 + ((chunk ^ (row % 8)) << 4);
}

__device__ __forceinline__ uint64_t describe_tile(const void* tile) {
  const uint32_t start = shared_address(tile) >> 4 & 0x3fff;
  const uint64_t stride = 1024 >> 4;  // between groups of eight rows
  return (start | 1 << 16) | stride << 32 | uint64_t{1} << 62;
}

__device__ __forceinline__ uint64_t at_step(uint64_t tile, int step) {
  return (static_cast<uint32_t>(tile) + 2 * step) | (tile >> 32 << 32);
}

inline void begin_products() {}
struct Frag { uint32_t a[4]; };
inline bool as_bf16 = false;
inline float value_of(uint32_t x, int i) { if (as_bf16) return __uint_as_float(i ? x & 0xffff0000u : x << 16); return f16_of(x, i); }
inline uint32_t smem_at(uint64_t d, int k, int n, bool rows) {
  const uint32_t start = (d & 0x3fff) << 4, lbo = (d >> 16 & 0x3fff) << 4, sbo = (d >> 32 & 0x3fff) << 4;
  if (d >> 62 != 1 || (start & 0x380)) { printf("descriptor\n"); abort(); }
  uint32_t at = rows ? start + n / 64 * lbo + k / 8 * sbo + k % 8 * 128 + n % 64 * 2
                     : start + n / 8 * sbo + n % 8 * 128 + k * 2;
  at ^= (at >> 7 & 7) << 4;
  return at;
}
inline float smem_b(uint64_t d, int k, int n, bool rows) { return value_of(half_at(smem_at(d, k, n, rows)), 0); }
template <int N> inline void wgmma(float (&c)[N], const uint32_t (&a)[4], uint64_t b, bool adds, bool rows) {
  Frag f = {{a[0], a[1], a[2], a[3]}};
  if (rc_async) for (int k = 0; k < 16; ++k) for (int n = emu::lane(); n < 2 * N; n += 32) rc_touch(memory + smem_at(b, k, n, rows), 2, 0, __builtin_return_address(0));
  const auto each = [&](auto at) {
    const int l = emu::lane();
    for (int i = 0; i < N; ++i) {
      const int row = l / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + 2 * (l % 4) + i % 2;
      float s = 0;
      for (int k = 0; k < 16; ++k)
        s += value_of(at(row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2], k % 2) * smem_b(b, k, col, rows);
      c[i] = adds ? c[i] + s : s;
    }
    return 0;
  };
  if (rc_products) emu::collect<true>(f, each); else emu::collect(f, each);
}
inline void multiply_f16(float (&c)[32], const uint32_t (&a)[4], uint64_t b, bool adds) { wgmma(c, a, b, adds, false); }
