// Counters in global memory by which CTAs tell each other what they have written.
#pragma once

#include <cstdint>

// After a barrier of the writing threads, by one of them: what they wrote is visible to whoever
// sees the count.
__device__ __forceinline__ void count_release(int* counter) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ __forceinline__ void count_release(uint64_t* counter) {
  asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(counter) : "memory");
}

// What was written before a count that this returns is visible from here on, to the thread and,
// after a barrier, to others of its CTA.
__device__ __forceinline__ int load_acquire(const int* counter) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

__device__ __forceinline__ uint64_t load_acquire(const uint64_t* counter) {
  uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(counter) : "memory");
  return value;
}
