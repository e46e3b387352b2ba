// Lines of the L2.
#pragma once

constexpr int LINE_BYTES = 128;

// The line holds nothing from here on, and the L2 need not write it to memory: PTX of sm_80 and
// later. It starts at a multiple of LINE_BYTES.
__device__ __forceinline__ void drop_line(const void* line) {
  asm volatile("discard.global.L2 [%0], 128;" ::"l"(line) : "memory");
}
