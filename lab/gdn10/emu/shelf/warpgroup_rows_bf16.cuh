#pragma once
#include "warpgroup_rows.cuh"
template <int N> inline void multiply_rows_bf16(float (&c)[N], const uint32_t (&a)[4], uint64_t b, bool adds) {
  Frag f = {{a[0], a[1], a[2], a[3]}};
  emu::collect(f, [&](auto at) {
    as_bf16 = true;
    const int l = emu::lane();
    for (int i = 0; i < N; ++i) {
      const int row = l / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + 2 * (l % 4) + i % 2;
      double s = 0;
      for (int k = 0; k < 16; ++k)
        s += (double)value_of(at(row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2], k % 2) * smem_b(b, k, col, true);
      c[i] = adds ? c[i] + s : s;
    }
    as_bf16 = false;
    return 0;
  });
}
