// The positive parts of two numbers, rounded to fp16 side by side in one instruction: PTX of sm_80
// and later.
#pragma once

#include <cstdint>

// max(x, 0), and NaN of NaN; `first` in the lower half.
__device__ __forceinline__ uint32_t positive_pair(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
