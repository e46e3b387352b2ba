#pragma once
#include "emu.h"
static inline uint32_t larger_magnitudes(uint32_t a, uint32_t b) {
  uint32_t r = 0;
  for (int h = 0; h < 2; ++h) { uint32_t x = a >> 16 * h & 0x7fff, y = b >> 16 * h & 0x7fff; if (x > 0x7f80) x = y > 0x7f80 ? 0x7fff : y; else if (y > 0x7f80) y = x;
    r |= (std::max(x, y) | ((a ^ b) >> 16 * h & 0x8000)) << 16 * h; }
  return r;
}
