// Waiting for a barrier that only this CTA arrives at: PTX of sm_90 and later.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

// As wait_phase(), for what threads of this CTA have written: sm_90 does not empty the L1 for it.
__device__ __forceinline__ void wait_cta_phase(uint64_t* barrier, uint32_t parity) {
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
