// Barriers of some threads of a CTA, by number; 0 is __syncthreads().
#pragma once

// `threads`, a multiple of 32, meet at barrier `number`, 1 to 15.
__device__ __forceinline__ void sync_threads_of(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
