// Asking a barrier that only this CTA arrives at, without waiting: PTX of sm_90 and later.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

// Whether the phase of this parity is over. If so, what was written before it is visible, as behind
// wait_cta_phase().
__device__ __forceinline__ bool is_cta_phase_over(uint64_t* barrier, uint32_t parity) {
  uint32_t is_over;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(is_over)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return is_over != 0;
}
