#pragma once
#include "async_copy.cuh"
inline void load_tiles(uint32_t (&t)[4], uint32_t a) {
  if (a % 16) { printf("ldmatrix align\n"); abort(); }
  Group& g = warp_group(); meet(g, 32, emu_lane(), a); uint32_t at[32]; for (int i = 0; i < 32; ++i) at[i] = (uint32_t)g.out[i];
  int l = emu_lane(); for (int i = 0; i < 4; ++i) memcpy(&t[i], cta_base() + at[8 * i + l / 4] + 4 * (l % 4), 4);
  meet(g, 32, emu_lane(), 0);
}
