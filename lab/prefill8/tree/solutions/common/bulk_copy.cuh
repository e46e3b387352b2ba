// Bulk copies between device memory and shared memory: PTX of sm_90 and later. Both addresses and
// the number of bytes are multiples of 16.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

// Into shared memory; the bytes count on a barrier, where arrive_expecting() announced them.
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, uint32_t bytes,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// Into device memory. publish_shared() by who wrote the bytes, and a barrier, come before it.
__device__ __forceinline__ void store_bulk(void* global, const void* shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}

// All of the thread's bulk stores are in device memory. No CTA may end before.
__device__ __forceinline__ void finish_bulk_stores() {
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}
