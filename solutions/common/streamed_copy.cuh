// Copies into shared memory of what nobody reads again: its lines in the L2 make room for one
// another before those that are yet to be read. PTX of sm_80 and later.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

// As copy_chunk_or_clear().
__device__ __forceinline__ void stream_chunk_or_clear(void* shared, const void* global,
                                                      bool valid) {
  asm volatile(
      "{\n"
      ".reg .b64 once;\n"
      "createpolicy.fractional.L2::evict_first.b64 once, 1.0;\n"
      "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, once;\n"
      "}\n" ::"r"(shared_address(shared)),
      "l"(global), "r"(valid ? 16 : 0)
      : "memory");
}
