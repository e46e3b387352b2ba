// Arriving at a barrier by number without waiting; as in named_barrier.cuh.
#pragma once

// Counts at barrier `number`, where others wait for what this thread has done.
__device__ __forceinline__ void arrive_for_threads(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
