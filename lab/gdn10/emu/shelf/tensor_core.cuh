#pragma once
#include "async_copy.cuh"
__attribute__((no_sanitize("thread"), noinline)) inline uint16_t half_at(uint32_t a) { uint16_t x; memcpy(&x, emu::mem() + a, 2); return x; }
__attribute__((noinline)) inline void load_any(uint32_t (&t)[4], uint32_t row, bool trans) {
  if (row % 16) { printf("ldmatrix address\n"); abort(); }
  void* pc = __builtin_return_address(0);
  if (!(rc_holder & 2)) rc_touch(emu::mem() + row, 16, 0, pc);
  emu::collect(row, [&](auto at) {
    const int l = emu::lane();
    if (rc_holder & 2) for (int i = 0; i < 4; ++i) for (int e = 0; e < 2; ++e)
      rc_touch(emu::mem() + at(8 * i + (trans ? 2 * (l % 4) + e : l / 4)) + 2 * (trans ? l / 4 : 2 * (l % 4) + e), 2, 0, pc);
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
  emu::collect(0, [](auto) { return 0; });
}
inline void load_tiles(uint32_t (&t)[4], uint32_t row) { load_any(t, row, false); }
inline void load_tiles_transposed(uint32_t (&t)[4], uint32_t row) { load_any(t, row, true); }
