// Who a thread is, read where it stands: where registers are few, the compiler keeps none for it.
// PTX of sm_20 and later.
#pragma once

#include <cstdint>

// threadIdx.x.
__device__ __forceinline__ uint32_t thread_index_now() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

// The lanes of the warp before this one, as a mask.
__device__ __forceinline__ uint32_t lanes_before_now() {
  uint32_t mask;
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
  return mask;
}
