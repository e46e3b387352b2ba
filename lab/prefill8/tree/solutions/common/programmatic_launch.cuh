// Programmatic dependent launch: a kernel is set up while the one before it in the stream runs.
// PTX of sm_90 and later. Both calls are empty in a kernel that was launched without it.
#pragma once

// Waits until all kernels before this one have ended and their writes are visible.
__device__ __forceinline__ void wait_for_launches_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The next kernel may be set up once all CTAs have said so, or have ended. What it may read before
// it waits is what was there when this kernel's own wait was over.
__device__ __forceinline__ void allow_next_launch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
