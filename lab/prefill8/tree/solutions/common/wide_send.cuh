// Stores of 16 bytes into another CTA of the cluster: PTX of sm_90 and later.
#pragma once

#include <cstdint>

#include "cluster.cuh"

// Counts its bytes on a barrier there, as send() of fewer bytes; the address is aligned to them.
// What is sent comes out of registers: nothing of this CTA is read later.
__device__ __forceinline__ void send(uint32_t address, const uint32_t (&words)[4],
                                     uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(barrier)
      : "memory");
}
