// Bulk copies of what other CTAs have written: PTX of sm_90 and later.
#pragma once

// After an acquiring load: what it made visible is also read by this thread's bulk copies from here
// on.
__device__ __forceinline__ void admit_bulk_reads() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
