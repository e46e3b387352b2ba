// Bulk copies: what is to come, and the end of their reads. PTX of sm_90 and later.
#pragma once

#include <cstdint>

// Bytes of device memory on their way into the L2. Address and number are multiples of 16.
__device__ __forceinline__ void prefetch_bulk(const void* global, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

// The thread's bulk stores so far have read shared memory, which may be written again or given
// back. What they wrote is visible to others once the kernel has ended.
__device__ __forceinline__ void finish_bulk_reads() {
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}
