// Registers moved between the warpgroups of a CTA: PTX of sm_90a, in kernels whose launch bounds
// name one CTA an SM. Every warp of a warpgroup says it, in one branch of a single if.
#pragma once

// COUNT registers a thread, a multiple of 8, from here on.
template <int COUNT>
__device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ __forceinline__ void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
