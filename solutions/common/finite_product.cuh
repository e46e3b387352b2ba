// Products of two numbers that are finite, if the numbers are: PTX of sm_80 and later.
#pragma once

// a * b, no further from zero than fp32's largest number; NaN of NaN.
__device__ __forceinline__ float multiply_finite(float a, float b) {
  float bounded;
  asm("max.NaN.f32 %0, %1, 0fff7fffff;" : "=f"(bounded) : "f"(a * b));
  asm("min.NaN.f32 %0, %1, 0f7f7fffff;" : "=f"(bounded) : "f"(bounded));
  return bounded;
}
