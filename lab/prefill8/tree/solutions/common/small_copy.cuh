// Asynchronous copies of a word into shared memory: PTX of sm_80 and later.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

// 4 bytes, through the L1: of memory that nobody writes while the kernel runs.
__device__ __forceinline__ void copy_word(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)),
               "l"(global)
               : "memory");
}
