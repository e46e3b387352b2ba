// Scores as integers of their order, sums over a CTA, and the n-th largest of many.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

namespace {

constexpr int BINS_LOG = 11, BINS = 1 << BINS_LOG;
constexpr int FEW = 64;  // keys that are ranked by comparing all pairs

// Keys of order: 0 is below that of every score.
constexpr uint32_t NO_SCORE = 0, LEAST_KEY = 1, NAN_KEY = ~0u - 1;

struct RankMemory {
  alignas(16) int bins[BINS];
  int warp_sums[32];
  int found_bin, found_above;
  int stored[2];  // ids above the bracket, ids in it
  uint32_t few_keys[FEW];
  int few_ids[FEW];
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

// Where the key of some rank lies: in [low, high].
struct Bracket {
  uint32_t low, high;
  int above, inside;  // keys that are greater than high; keys in the bracket
};

// Of the need-th largest of `count` keys, all of which that matter are in [low, high]; those below
// `low` are no keys. Each pass counts in 2048 equal bins and goes on in one: three at most, until
// only `enough` keys are left, or one value. The first THREADS threads of the CTA call it, and
// key_at(i) for i < count, AT_ONCE of a thread.
template <int THREADS, int AT_ONCE, typename Key>
__device__ __forceinline__ Bracket find_rank(RankMemory& memory, int count, int need, uint32_t low,
                                             uint32_t high, int enough, Key key_at) {
  constexpr int EACH = BINS / THREADS;
  int above = 0, inside = count;
  while (low < high && inside > enough) {
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
    above = memory.found_above, inside = memory.bins[memory.found_bin];
    low += static_cast<uint32_t>(memory.found_bin) << shift;
    high = low + min(high - low, (1u << shift) - 1);  // low + 2^shift may wrap
    sync_first<THREADS>();  // the bins have been read
  }
  return {low, high, above, inside};
}

// Stores the ids of the few keys in a bracket that are among the `need` largest. Of equal keys the
// one listed first is larger.
__device__ __forceinline__ void store_few(const RankMemory& memory, int need,
                                          const Bracket& bracket, int* ids) {
  const int mine = threadIdx.x;
  if (mine >= bracket.inside) return;
  const uint32_t key = memory.few_keys[mine];
  int place = bracket.above;
  for (int i = 0; i < bracket.inside; ++i) {
    const uint32_t other = memory.few_keys[i];
    place += other > key || (other == key && i < mine);
  }
  if (place < need) ids[place] = memory.few_ids[mine];
}

// Stores `need` ids: those of all keys above the bracket, and of those in it the largest, of which
// there are at most FEW, unless they are equal.
template <int THREADS, typename Key, typename Id>
__device__ __forceinline__ void store_best(RankMemory& memory, int count, int need,
                                           const Bracket& bracket, Key key_at, Id id_at, int* ids) {
  const int lane = threadIdx.x % 32;
  const bool is_tie = bracket.low == bracket.high;
  if (threadIdx.x < 2) memory.stored[threadIdx.x] = 0;
  sync_first<THREADS>();
  for (int first = threadIdx.x - lane; first < count; first += THREADS) {
    const int i = first + lane;
    const uint32_t key = i < count ? key_at(i) : NO_SCORE;
    const bool is_above = key > bracket.high, is_inside = !is_above && key >= bracket.low;
    const uint32_t above = __ballot_sync(~0u, is_above), inside = __ballot_sync(~0u, is_inside);
    if ((above | inside) == 0) continue;
    int place = 0;
    if (lane < 2) place = atomicAdd(&memory.stored[lane], __popc(lane == 0 ? above : inside));
    place = __shfl_sync(~0u, place, is_above ? 0 : 1);
    place += __popc((is_above ? above : inside) & ((1u << lane) - 1));
    if (is_above) ids[place] = id_at(i);
    if (is_inside && is_tie && bracket.above + place < need) ids[bracket.above + place] = id_at(i);
    if (is_inside && !is_tie) memory.few_keys[place] = key, memory.few_ids[place] = id_at(i);
  }
  sync_first<THREADS>();
  if (!is_tie) store_few(memory, need, bracket, ids);
  sync_first<THREADS>();
}

}  // namespace
