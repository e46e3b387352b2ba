// Bulk copies between device memory and shared memory, and how long the L2 is to keep what they
// touch: PTX of sm_90 and later. Both addresses and the number of bytes are multiples of 16.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

// Into shared memory; the bytes count on a barrier, where arrive_expecting() announced them.
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, uint32_t bytes,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// As copy_bulk(), by whoever reads last: the L2 evicts the bytes before others.
__device__ __forceinline__ void copy_bulk_passing(void* shared, const void* global, uint32_t bytes,
                                                  uint64_t* barrier) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// Into device memory, for others to read: the L2 evicts others before. publish_shared() by who
// wrote the bytes, and a barrier, come before it.
__device__ __forceinline__ void store_bulk_kept(void* global, const void* shared, uint32_t bytes) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
          global),
      "r"(shared_address(shared)), "r"(bytes), "l"(policy)
      : "memory");
}

// All of the thread's bulk stores are in device memory. No CTA may end before.
__device__ __forceinline__ void finish_bulk_stores() {
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}
