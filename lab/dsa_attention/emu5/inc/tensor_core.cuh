#pragma once
#include "async_copy.cuh"
static inline uint16_t half_(uint32_t a, int i) { uint16_t h; memcpy(&h, at_(a) + 2 * i, 2); return h; }
template <bool T> static inline void load4_(uint32_t (&t)[4], uint32_t addr) {
  if (addr % 16) abort();
  uint64_t in[1] = {addr};
  WarpSlot& w = meet(in, 1, [](WarpSlot& w) {
    for (int l = 0; l < 32; ++l) for (int m = 0; m < 4; ++m) {
      uint16_t a, b;
      if (!T) { uint32_t row = w.in[8 * m + l / 4][0]; a = half_(row, l % 4 * 2); b = half_(row, l % 4 * 2 + 1); }
      else { a = half_(w.in[8 * m + l % 4 * 2][0], l / 4); b = half_(w.in[8 * m + l % 4 * 2 + 1][0], l / 4); }
      w.out[l][m] = a | uint32_t(b) << 16;
    } }, "ldmatrix");
  for (int m = 0; m < 4; ++m) t[m] = w.out[LANE][m];
}
static inline void load_tiles(uint32_t (&t)[4], uint32_t a) { load4_<false>(t, a); }
static inline void load_tiles_transposed(uint32_t (&t)[4], uint32_t a) { load4_<true>(t, a); }
static inline void multiply_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  uint64_t in[6] = {a[0], a[1], a[2], a[3], b0, b1};
  WarpSlot& w = meet(in, 6, [](WarpSlot& w) {
    float A[16][16], B[16][8];
    for (int l = 0; l < 32; ++l) for (int h = 0; h < 2; ++h) {
      A[l / 4][l % 4 * 2 + h] = from_bf16(w.in[l][0] >> 16 * h); A[l / 4 + 8][l % 4 * 2 + h] = from_bf16(w.in[l][1] >> 16 * h);
      A[l / 4][l % 4 * 2 + h + 8] = from_bf16(w.in[l][2] >> 16 * h); A[l / 4 + 8][l % 4 * 2 + h + 8] = from_bf16(w.in[l][3] >> 16 * h);
      B[l % 4 * 2 + h][l / 4] = from_bf16(w.in[l][4] >> 16 * h); B[l % 4 * 2 + h + 8][l / 4] = from_bf16(w.in[l][5] >> 16 * h);
    }
    for (int l = 0; l < 32; ++l) for (int i = 0; i < 4; ++i) {
      float s = 0; const int r = l / 4 + 8 * (i / 2), col = l % 4 * 2 + i % 2;
      for (int k = 0; k < 16; ++k) s += A[r][k] * B[k][col];
      w.out[l][i] = fbits(s);
    } }, "mma");
  for (int i = 0; i < 4; ++i) c[i] += bitsf(w.out[LANE][i]);
}
