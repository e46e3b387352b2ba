#pragma once
#include "tensor_core.cuh"
inline float f16_of(uint32_t pair, int e) { __half_raw r; r.x = pair >> 16 * e; return __half2float(__half(r)); }
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
      const uint16_t x = v[i] >> 16 * e; memcpy(memory + at(8 * i + 2 * (l % 4) + e) + 2 * (l / 4), &x, 2);
    }
    return 0;
  });
}
