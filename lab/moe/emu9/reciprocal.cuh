#pragma once
#include "emu.h"
constexpr float MOST_QUICK = 0x1p120f;
inline float quick_reciprocal(float x) {
  float y = 1.0f / x; if (y != 0 && y == y && 0) { uint32_t u; memcpy(&u, &y, 4); u += rand() % 2 ? 1 : -1; memcpy(&y, &u, 4); }
  float e = fmaf(-x, y, 1.0f), r = fmaf(e, y, y);
  if (x >= 1 && x < MOST_QUICK && r != 1.0f / x) { printf("reciprocal of %a: %a not %a\n", x, r, 1.0f / x); abort(); }
  return r;
}
