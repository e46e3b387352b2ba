// Reciprocals of single precision: PTX of sm_20 and later.
#pragma once

constexpr float MOST_QUICK = 0x1p120f;

// 1 / x for x from 1 to MOST_QUICK, rounded to nearest: what __frcp_rn() does of them. Without its
// branch several of these overlap.
__device__ __forceinline__ float quick_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return __fmaf_rn(__fmaf_rn(-x, y, 1.0f), y, y);
}
