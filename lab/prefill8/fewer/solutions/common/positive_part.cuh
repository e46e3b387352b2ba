// The positive part of a number, as one instruction: PTX of sm_80 and later.
#pragma once

// max(x, 0), and NaN of NaN, where fmaxf() says 0.
__device__ __forceinline__ float positive_or_nan(float x) {
  float positive;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(positive) : "f"(x));
  return positive;
}
