#pragma once
#include "async_copy.cuh"
#ifdef EVERY_LANE_ARRIVES
constexpr int ARRIVALS_A_WARP = 32;
#else
constexpr int ARRIVALS_A_WARP = 1;
#endif
inline void arrive_for_warp(uint64_t* b) { if (threadIdx.x % 32 < ARRIVALS_A_WARP) arrive(b); }
