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

// A thread's next keys, all of them on their way before the first is used: atomics and stores in
// between would keep the compiler from it.
template <int THREADS, int AT_ONCE>
struct Keys {
  uint32_t of[AT_ONCE];
  template <typename Key>
  __device__ Keys(int first, int count, Key key_at) {
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const int i = first + j * THREADS;
      const uint32_t key = key_at(min(i, count - 1));  // no branch, in which it would wait
      of[j] = i < count ? key : NO_SCORE;
    }
  }
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
#pragma unroll
    for (int i = 0; i < EACH; ++i) memory.bins[i * THREADS + threadIdx.x] = 0;
    sync_first<THREADS>();
    for (int first = threadIdx.x; first < count; first += THREADS * AT_ONCE) {
      const Keys<THREADS, AT_ONCE> keys(first, count, key_at);
#pragma unroll
      for (int j = 0; j < AT_ONCE; ++j) {
        const uint32_t offset = keys.of[j] - low;  // NO_SCORE wraps, as low is more
        if (offset <= high - low) atomicAdd(&memory.bins[offset >> shift], 1);
      }
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
template <int THREADS, int AT_ONCE, typename Key, typename Id>
__device__ __forceinline__ void store_best(RankMemory& memory, int count, int need,
                                           const Bracket& bracket, Key key_at, Id id_at, int* ids) {
  const int lane = threadIdx.x % 32;
  const uint32_t before = (1u << lane) - 1;
  const bool is_tie = bracket.low == bracket.high;
  if (threadIdx.x < 2) memory.stored[threadIdx.x] = 0;
  sync_first<THREADS>();
  for (int first = 0; first < count; first += THREADS * AT_ONCE) {
    const Keys<THREADS, AT_ONCE> keys(first + threadIdx.x, count, key_at);
    uint32_t above[AT_ONCE], inside[AT_ONCE];
    int sum_above = 0, sum_inside = 0;
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const bool is_above = keys.of[j] > bracket.high;
      above[j] = __ballot_sync(~0u, is_above);
      inside[j] = __ballot_sync(~0u, !is_above && keys.of[j] >= bracket.low);
      sum_above += __popc(above[j]), sum_inside += __popc(inside[j]);
    }
    if (sum_above + sum_inside == 0) continue;
    int place = 0;
    if (lane < 2) place = atomicAdd(&memory.stored[lane], lane == 0 ? sum_above : sum_inside);
    int place_above = __shfl_sync(~0u, place, 0);
    int place_inside = __shfl_sync(~0u, place, 1);
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const int i = first + j * THREADS + threadIdx.x;
      if (above[j] >> lane & 1) ids[place_above + __popc(above[j] & before)] = id_at(i);
      if (inside[j] >> lane & 1) {
        const int at = place_inside + __popc(inside[j] & before);
        if (is_tie && bracket.above + at < need) ids[bracket.above + at] = id_at(i);
        if (!is_tie) memory.few_keys[at] = keys.of[j], memory.few_ids[at] = id_at(i);
      }
      place_above += __popc(above[j]), place_inside += __popc(inside[j]);
    }
  }
  sync_first<THREADS>();
  if (!is_tie) store_few(memory, need, bracket, ids);
  sync_first<THREADS>();
}

}  // namespace
