#pragma once
#include "tensor_core.cuh"
__attribute__((no_sanitize("thread"), noinline)) inline void put_pair(uint32_t a, uint32_t x) { memcpy(emu::mem() + a, &x, 4); }
inline float f16_of(uint32_t pair, int e) { return _cvtsh_ss(uint16_t(pair >> 16 * e)); }
struct Mma { uint32_t a[4], b[2]; };
inline void multiply_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Mma m = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  emu::collect(m, [&](auto at) {
    const int l = emu::lane();
    for (int i = 0; i < 4; ++i) {
      const int row = l / 4 + i / 2 * 8, col = 2 * (l % 4) + i % 2;
      float s = 0;
      for (int k = 0; k < 16; ++k) {
        const float x = f16_of(at(row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2], k % 2);
        const float y = f16_of(at(col * 4 + k % 8 / 2).b[k / 8], k % 2);
        s += x * y;
      }
      c[i] += s;
    }
    return 0;
  });
}
inline void store_tiles_transposed(uint32_t row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t v[4] = {a, b, c, d};
  emu::collect(row, [&](auto at) {
    const int l = emu::lane();
    for (int i = 0; i < 4; ++i) for (int e = 0; e < 2; ++e) {
      const uint16_t x = v[i] >> 16 * e; memcpy(emu::mem() + at(8 * i + 2 * (l % 4) + e) + 2 * (l / 4), &x, 2);
    }
    return 0;
  });
}

// Attributed to the lane that names the row; rc_holder & 1: to the lane that holds the pair.
__attribute__((noinline)) inline void store_tiles(uint32_t row, const uint32_t (&v)[4]) {
  if (row % 16) { printf("stmatrix address\n"); abort(); }
  void* pc = __builtin_return_address(0);
  if (!(rc_holder & 1)) rc_touch(emu::mem() + row, 16, 1, pc);
  emu::collect(row, [&](auto at) {
    const int l = emu::lane();
    if (rc_holder & 1) for (int i = 0; i < 4; ++i) rc_touch(emu::mem() + at(8 * i + l / 4) + 4 * (l % 4), 4, 1, pc);
    for (int i = 0; i < 4; ++i) put_pair(at(8 * i + l / 4) + 4 * (l % 4), v[i]);
    return 0;
  });
  emu::collect(0, [](auto) { return 0; });
}
