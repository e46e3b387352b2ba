// One lane for the whole warp: PTX of sm_90 and later.
#pragma once

#include <cstdint>

// Whether this lane is the one that is chosen: the same lane each time. All lanes of the warp call
// it. Behind it the compiler knows a single lane, and issues the copy engine's instructions without
// a loop over lanes.
__device__ __forceinline__ bool is_elected() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred elected;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, elected;\n"
      "}\n"
      : "=r"(elected));
  return elected != 0;
}
