// Waits on the barriers of async_copy.cuh for what this CTA's own threads and copies have done.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

// wait_phase() also acquires what other CTAs of a cluster wrote, for which it empties the L1.
__device__ __forceinline__ void wait_own_phase(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
