// The special-function unit's own operations, which round to about 2^-22 and flush subnormals.
#pragma once

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
