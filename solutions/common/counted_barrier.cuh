// Barriers by number at which threads vote, or arrive without waiting; as in named_barrier.cuh.
#pragma once

// `threads`, a multiple of 32, meet at barrier `number`; whether any of them says so.
__device__ __forceinline__ int any_of_threads(int number, int threads, bool says) {
  int any;
  asm volatile(
      "{\n"
      ".reg .pred says, any;\n"
      "setp.ne.b32 says, %3, 0;\n"
      "barrier.cta.red.or.pred any, %1, %2, says;\n"
      "selp.b32 %0, 1, 0, any;\n"
      "}\n"
      : "=r"(any)
      : "r"(number), "r"(threads), "r"(static_cast<int>(says))
      : "memory");
  return any;
}

// Counts at barrier `number`, where others wait for what this thread has done.
__device__ __forceinline__ void arrive_for_threads(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
