// Asynchronous copies that some threads of a warp leave out, without a branch: PTX of sm_80 and
// later.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

// 16 bytes as copy_chunk(), where `wanted`; elsewhere shared memory keeps what it has and nothing
// is read. A branch would have every copy wait for the one in front of it to be issued.
__device__ __forceinline__ void copy_chunk_where(bool wanted, void* shared, const void* global) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %2, 0;\n"
      "@wanted cp.async.cg.shared.global [%0], [%1], 16;\n"
      "}\n" ::"r"(shared_address(shared)),
      "l"(global), "r"(static_cast<uint32_t>(wanted))
      : "memory");
}
