#pragma once
#include "warpgroup.cuh"
void tile_product(uint64_t a, uint64_t b, int N, float* D);
float e4m3_value(uint8_t c);
inline void fetch_rows(uint64_t d, int rows, float* out) {  // rows x 32
  uint32_t start = (d & 0x3fff) << 4, sbo = (d >> 32 & 0x3fff) << 4; if (d >> 62 != 1) abort();
  for (int r = 0; r < rows; ++r) for (int k = 0; k < 32; ++k) {
    uint32_t a = start + r / 8 * sbo + r % 8 * 128 + k; a ^= (a >> 7 & 7) << 4;
    out[r * 32 + k] = e4m3_value(((uint8_t*)cta_base())[a]);
  }
}
extern float* wg_result(int cta, int wg);
template <int R> void multiply_e4m3(float (&c)[R], uint64_t a, uint64_t b, bool adds) {
  constexpr int N = R * 2; int t = cur->tid.x % 128, wg = cur->tid.x / 128;
  Group& g = wg_group(); float* D = wg_result(cur->cta, wg);
  meet(g, 128, t, a ^ (b << 1));
  if (t == 0) {
    for (int i = 1; i < 128; ++i) if (g.out[i] != g.out[0]) { printf("descriptors differ in a warpgroup\n"); abort(); }
    tile_product(a, b, N, D);
  }
  meet(g, 128, t, 0);
  int w = t / 32, l = t % 32;
  for (int i = 0; i < R; ++i) { int row = 16 * w + l / 4 + (i % 4 < 2 ? 0 : 8), col = i / 4 * 8 + l % 4 * 2 + i % 2; c[i] = (adds ? c[i] : 0.0f) + D[row * N + col]; }
  meet(g, 128, t, 0);
}
void emu_commit(); void emu_wait(int);
inline void commit_products() { emu_commit(); }
template <int P> void wait_products() { emu_wait(P); }
template <int C> void hold_sums(float (&)[C]) {}
