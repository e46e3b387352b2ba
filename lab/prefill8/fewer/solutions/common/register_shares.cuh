// Warpgroups of one CTA that share its registers unequally: PTX of sm_90a. Works in kernels with
// __launch_bounds__(threads, 1), in which each warpgroup's role is one branch.
#pragma once

// All warps of the warpgroup call it. COUNT: registers a thread from here on, a multiple of 8.
template <int COUNT>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
