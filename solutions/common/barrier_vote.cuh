// Barriers of some threads of a CTA that also tell whether something holds for one of them.
#pragma once

// `threads`, a multiple of 32, meet at barrier `number`, 1 to 15. Whether `says` is true in any.
__device__ __forceinline__ bool any_of_threads(int number, int threads, bool says) {
  int any;
  asm volatile(
      "{\n"
      ".reg .pred says, any;\n"
      "setp.ne.s32 says, %1, 0;\n"
      "bar.red.or.pred any, %2, %3, says;\n"
      "selp.s32 %0, 1, 0, any;\n"
      "}\n"
      : "=r"(any)
      : "r"(static_cast<int>(says)), "r"(number), "r"(threads)
      : "memory");
  return any != 0;
}
