// How long the L2 is to keep what bulk copies touch, and what it need not keep: PTX of sm_90 and
// later. For what one kernel leaves to the next one beside inputs and outputs that pass once.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

// As store_bulk(), of what will be read again: others are evicted before it.
__device__ __forceinline__ void store_bulk_kept(void* global, const void* shared, uint32_t bytes) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
          global),
      "r"(shared_address(shared)), "r"(bytes), "l"(policy)
      : "memory");
}

// As copy_bulk(), of what is hardly read again: it is evicted before others.
__device__ __forceinline__ void copy_bulk_last(void* shared, const void* global, uint32_t bytes,
                                               uint64_t* barrier) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

constexpr int LINE_BYTES = 128;

// 128 bytes of device memory hold nothing from here on, and the L2 need not write them to memory.
__device__ __forceinline__ void drop_line(const void* line) {
  asm volatile("discard.global.L2 [%0], 128;" ::"l"(line) : "memory");
}
