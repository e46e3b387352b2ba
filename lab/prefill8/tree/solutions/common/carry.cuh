// Counting comparisons through the carry flag: three instructions for two, where a compiler takes
// two or three for one.
#pragma once

#include <cstdint>

// count += a + b >= 2^32. With b = 2^32 - c, c > 0: count += a >= c.
__device__ __forceinline__ void count_carry(uint32_t& count, uint32_t a, uint32_t b) {
  asm("{\n"
      ".reg .u32 sum;\n"
      "add.cc.u32 sum, %1, %2;\n"
      "addc.u32 %0, %0, 0;\n"
      "}\n"
      : "+r"(count)
      : "r"(a), "r"(b));
}
