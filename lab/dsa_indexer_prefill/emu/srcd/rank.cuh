// Scores as integers of their order, sums over a CTA, and the n-th largest of many.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

namespace {

constexpr int BINS_LOG = 11, BINS = 1 << BINS_LOG;

// Keys of order: 0 is below that of every score.
constexpr uint32_t NO_SCORE = 0, LEAST_KEY = 1, NAN_KEY = ~0u - 1;

struct RankMemory {
  alignas(16) int bins[BINS];
  int warp_sums[32];
  int found_bin, found_above;
  int stored[2];  // ids above the threshold, ids at it
  uint32_t least, most;
};

__device__ __forceinline__ uint32_t key_of(float score) {
  const int bits = __float_as_int(score);
  return score != score ? NAN_KEY : bits ^ (bits >> 31 | 1 << 31);
}

__device__ __forceinline__ float score_of(uint32_t key) {
  return __uint_as_float(key ^ (~(static_cast<int>(key) >> 31) | 1 << 31));
}

// The sum over the threads before this one, and in *total over all, where it is asked for. The
// first THREADS threads of the CTA call it: all of them where BARRIER is 0.
template <int THREADS, int BARRIER>
__device__ __forceinline__ int sum_before(RankMemory& memory, int value, int* total = nullptr) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int through = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int before = __shfl_up_sync(~0u, through, distance);
    if (lane >= distance) through += before;
  }
  if (lane == 31) memory.warp_sums[warp] = through;
  BARRIER == 0 ? __syncthreads() : sync_first<THREADS>();
  int of_warp = lane < THREADS / 32 ? memory.warp_sums[lane] : 0;
  const int all = __reduce_add_sync(~0u, of_warp);
  if (lane >= warp) of_warp = 0;
  if (total != nullptr) *total = all;
  return __reduce_add_sync(~0u, of_warp) + through - value;
}

struct Rank {
  uint32_t key;  // the one of that rank
  int above;     // keys that are greater
};

// The need-th largest of `count` keys, all of which that matter are in [low, high]; those below
// `low` are no keys. Each pass counts in 2048 equal bins and goes on in one: three at most. The
// first THREADS threads of the CTA call it, and key_at(i) for i < count, AT_ONCE of a thread.
template <int THREADS, int AT_ONCE, typename Key>
__device__ __forceinline__ Rank find_rank(RankMemory& memory, int count, int need, uint32_t low,
                                          uint32_t high, Key key_at) {
  constexpr int EACH = BINS / THREADS;
  int above = 0;
  while (low < high) {
    const int shift = max(32 - __clz(high - low) - BINS_LOG, 0);
    for (int i = threadIdx.x; i < BINS; i += THREADS) memory.bins[i] = 0;
    sync_first<THREADS>();
#pragma unroll AT_ONCE
    for (int i = threadIdx.x; i < count; i += THREADS) {
      const uint32_t offset = key_at(i) - low;
      if (offset <= high - low) atomicAdd(&memory.bins[offset >> shift], 1);
    }
    sync_first<THREADS>();
    const int top = BINS - 1 - EACH * threadIdx.x;  // the highest of my bins
    int sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) sum += memory.bins[top - i];
    int before = above + sum_before<THREADS, 1>(memory, sum);
    if (before < need && need <= before + sum) {
      int bin = top;
      while (before + memory.bins[bin] < need) before += memory.bins[bin--];
      memory.found_bin = bin, memory.found_above = before;
    }
    sync_first<THREADS>();
    above = memory.found_above;
    low += static_cast<uint32_t>(memory.found_bin) << shift;
    high = min(high, low + (1u << shift) - 1);
  }
  return {low, above};
}

// Stores `need` ids: those of all keys above the rank's, and of those at it as many as are missing.
template <int THREADS, typename Key, typename Id>
__device__ __forceinline__ void store_best(RankMemory& memory, int count, int need,
                                           const Rank& rank, Key key_at, Id id_at, int* ids) {
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 2) memory.stored[threadIdx.x] = threadIdx.x == 0 ? 0 : rank.above;
  sync_first<THREADS>();
  for (int first = threadIdx.x - lane; first < count; first += THREADS) {
    const int i = first + lane;
    const uint32_t key = i < count ? key_at(i) : NO_SCORE;
    const uint32_t is_above = __ballot_sync(~0u, key > rank.key);
    const uint32_t is_equal = __ballot_sync(~0u, key == rank.key);
    if ((is_above | is_equal) == 0) continue;
    int place = 0;
    if (lane < 2) place = atomicAdd(&memory.stored[lane], __popc(lane == 0 ? is_above : is_equal));
    const uint32_t mine = key > rank.key ? is_above : is_equal;
    place = __shfl_sync(~0u, place, key > rank.key ? 0 : 1);
    place += __popc(mine & ((1u << lane) - 1));
    if (key >= rank.key && place < need) ids[place] = id_at(i);
  }
  sync_first<THREADS>();
}

}  // namespace
