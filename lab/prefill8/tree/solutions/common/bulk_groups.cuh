// Bulk stores in groups: PTX of sm_90 and later.
#pragma once

// The thread's bulk stores up to the one before its last finish_bulk_reads() are in device memory;
// those of the last group may still be on their way.
__device__ __forceinline__ void finish_bulk_stores_before() {
  asm volatile("cp.async.bulk.wait_group 1;" ::: "memory");
}
