// Magnitudes of packed bf16: PTX of sm_86 and later.
#pragma once

#include <cstdint>

// Of each half the larger magnitude, under a sign that means nothing. A number beats a NaN.
__device__ __forceinline__ uint32_t larger_magnitudes(uint32_t a, uint32_t b) {
  uint32_t larger;
  asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}
