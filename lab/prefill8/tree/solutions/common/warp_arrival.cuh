// A warp's arrival at a barrier in shared memory, after __syncwarp(): sm_90 and later.
//
// compute-sanitizer's racecheck orders only what a thread has done before an arrival of its own:
// built for it with EVERY_LANE_ARRIVES defined, each lane arrives.
#pragma once

#include "async_copy.cuh"

#ifdef EVERY_LANE_ARRIVES
constexpr int ARRIVALS_A_WARP = 32;  // for which barriers are made
#else
constexpr int ARRIVALS_A_WARP = 1;
#endif

__device__ __forceinline__ void arrive_for_warp(uint64_t* barrier) {
  if (threadIdx.x % 32 < ARRIVALS_A_WARP) arrive(barrier);
}
