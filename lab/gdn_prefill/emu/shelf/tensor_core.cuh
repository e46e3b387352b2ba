#pragma once
#include "async_copy.cuh"
inline uint16_t half_at(uint32_t a) { uint16_t x; memcpy(&x, memory + a, 2); return x; }
inline void load_any(uint32_t (&t)[4], uint32_t row, bool trans) {
  if (row % 16) { printf("ldmatrix address\n"); abort(); }
  emu::collect(row, [&](auto at) {
    const int l = emu::lane();
    for (int i = 0; i < 4; ++i) {
      uint32_t v = 0;
      for (int e = 0; e < 2; ++e) {
        const int r = trans ? 2 * (l % 4) + e : l / 4, c = trans ? l / 4 : 2 * (l % 4) + e;
        v |= uint32_t(half_at(at(8 * i + r) + 2 * c)) << 16 * e;
      }
      t[i] = v;
    }
    return 0;
  });
  __syncwarp();
}
inline void load_tiles(uint32_t (&t)[4], uint32_t row) { load_any(t, row, false); }
inline void load_tiles_transposed(uint32_t (&t)[4], uint32_t row) { load_any(t, row, true); }
