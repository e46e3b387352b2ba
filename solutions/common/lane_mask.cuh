// Masks of a warp's lanes: PTX of sm_20 and later.
#pragma once

#include <cstdint>

// The lanes before this one. Read where it stands: the compiler keeps no register for it.
__device__ __forceinline__ uint32_t lanes_before() {
  uint32_t mask;
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
  return mask;
}
