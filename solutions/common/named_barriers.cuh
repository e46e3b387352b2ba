// Barriers of part of a CTA: PTX of sm_70 and later.
#pragma once

// __syncthreads() for THREADS threads of a CTA, whole warps that alone use barrier `id`, 2 to 15: 0
// is __syncthreads()'s, 1 is sync_first()'s.
template <int THREADS>
__device__ __forceinline__ void sync_group(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}
