// Scores as integers of the same order, sums over a CTA, and the n-th largest of many.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

namespace {

constexpr int BINS_LOG = 11, BINS = 1 << BINS_LOG;
constexpr int FEW = 64;  // orders that are ranked by comparing each with all others

// An order is an integer that compares as its score does; 0 is below that of every score.
constexpr uint32_t NO_SCORE = 0, LEAST_ORDER = 1, NAN_ORDER = ~0u - 1;

struct RankMemory {
  alignas(16) int bins[BINS + 4];  // and one for what is in none
  uint64_t warp_sums[32];
  int found_bin, found_above;
  int stored[2];  // how many above the bracket, how many in it
  uint32_t few_orders[FEW];
  int few_ids[FEW];
  uint32_t least_less_1, most;
};

__device__ __forceinline__ uint32_t order_of(float score) {
  const int bits = __float_as_int(score);
  return score != score ? NAN_ORDER : bits ^ (bits >> 31 | 1 << 31);
}

__device__ __forceinline__ float score_of(uint32_t order) {
  return __uint_as_float(order ^ (~(static_cast<int>(order) >> 31) | 1 << 31));
}

__device__ __forceinline__ int add_up(int value) { return __reduce_add_sync(~0u, value); }

// Two sums in one, below 2^31 each.
__device__ __forceinline__ uint64_t add_up(uint64_t two) {
  const uint32_t low = two, high = two >> 32;
  return __reduce_add_sync(~0u, low) | static_cast<uint64_t>(__reduce_add_sync(~0u, high)) << 32;
}

// The sum over the lanes up to this one.
template <typename Sum>
__device__ __forceinline__ Sum sum_through(Sum value, int lane) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const Sum before = __shfl_up_sync(~0u, value, distance);
    if (lane >= distance) value += before;
  }
  return value;
}

// The sum over the threads before this one, and in *total over all, where it is asked for. The
// first THREADS threads of the CTA call it: all of them where BARRIER is 0. An int, or two in one.
template <int THREADS, int BARRIER, typename Sum>
__device__ __forceinline__ Sum sum_before(RankMemory& memory, Sum value, Sum* total = nullptr,
                                          uint32_t thread = threadIdx.x) {
  const int lane = thread % 32, warp = thread / 32;
  Sum* warp_sums = reinterpret_cast<Sum*>(memory.warp_sums);
  const Sum through = sum_through(value, lane);
  if (lane == 31) warp_sums[warp] = through;
  BARRIER == 0 ? __syncthreads() : sync_first<THREADS>();
  Sum of_warp = lane < THREADS / 32 ? warp_sums[lane] : 0;
  const Sum all = add_up(of_warp);
  if (lane >= warp) of_warp = 0;
  if (total != nullptr) *total = all;
  return add_up(of_warp) + through - value;
}

// Where the order of some rank lies: in [low, high].
struct Bracket {
  uint32_t low, high;
  int above, inside;  // orders greater than high; orders in the bracket
};

// A thread's next orders, all of them on their way before the first is used: atomics and stores in
// between would keep the compiler from it.
template <int THREADS, int AT_ONCE>
struct Orders {
  uint32_t of[AT_ONCE];
  template <typename OrderAt>
  __device__ Orders(int first, int count, OrderAt order_at) {
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const int i = first + j * THREADS;
      const uint32_t order = order_at(min(i, count - 1));  // no branch, in which it would wait
      of[j] = i < count ? order : NO_SCORE;
    }
  }
};

// Calls take(order) for each of a thread's orders of `count`.
template <int THREADS, int AT_ONCE, typename OrderAt>
struct Visit {
  int count;
  OrderAt order_at;
  template <typename Take>
  __device__ __forceinline__ void operator()(Take take) const {
    for (int first = threadIdx.x; first < count; first += THREADS * AT_ONCE) {
      const Orders<THREADS, AT_ONCE> orders(first, count, order_at);
#pragma unroll
      for (int j = 0; j < AT_ONCE; ++j) take(orders.of[j]);
    }
  }
};

// A bracket of the need-th largest of `count` orders, none of which is above `high`; those below
// `low`, which is 1 or more, do not count. Each pass counts in 2048 equal bins and goes on in one:
// three at most, until only `enough` orders are left in the bracket, or one value. Called by the
// first THREADS threads of the CTA; visit(take) calls take(order) for each of a thread's orders.
// IN_REGISTERS: where most of these are no branch is needed, which would wait for each; of others
// all are on their way before one is used only as long as a branch is in between.
template <int THREADS, bool IN_REGISTERS, typename Visit>
__device__ __forceinline__ Bracket find_rank(RankMemory& memory, int count, int need, uint32_t low,
                                             uint32_t high, int enough, Visit visit) {
  constexpr int EACH = BINS / THREADS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int* warp_sums = reinterpret_cast<int*>(memory.warp_sums);
  int above = 0, inside = count;
  while (low < high && inside > enough) {
    const uint32_t span = high - low;
    const int shift = max(32 - __clz(span) - BINS_LOG, 0);
#pragma unroll
    for (int i = 0; i < EACH / 4; ++i) {
      reinterpret_cast<int4*>(memory.bins)[i * THREADS + threadIdx.x] = {0, 0, 0, 0};
    }
    sync_first<THREADS>();
    visit([&](uint32_t order) {
      const uint32_t offset = order - low;  // NO_SCORE wraps, as low is more
      if (IN_REGISTERS || offset <= span) {
        atomicAdd(&memory.bins[offset <= span ? offset >> shift : BINS], 1);
      }
    });
    sync_first<THREADS>();
    const int top = BINS - 1 - EACH * threadIdx.x;  // the highest of my bins
    int sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) sum += memory.bins[top - i];
    const int of_warp = add_up(sum);
    if (lane == 0) warp_sums[warp] = of_warp;
    sync_first<THREADS>();
    int before = above + add_up(lane < warp ? warp_sums[lane] : 0);
    if (before < need && need <= before + of_warp) {  // the bin is one of the warp's
      before += sum_through(sum, lane) - sum;
      if (before < need && need <= before + sum) {
        int bin = top;
        while (before + memory.bins[bin] < need) before += memory.bins[bin--];
        memory.found_bin = bin, memory.found_above = before;
      }
    }
    sync_first<THREADS>();
    above = memory.found_above, inside = memory.bins[memory.found_bin];
    low += static_cast<uint32_t>(memory.found_bin) << shift;
    high = low + min(high - low, (1u << shift) - 1);  // low + 2^shift may wrap
    sync_first<THREADS>();  // the bins have been read
  }
  return {low, high, above, inside};
}

// Stores the ids of a bracket's few orders as far as these are among the `need` largest. Of equal
// ones the one listed first is larger.
__device__ __forceinline__ void store_few(const RankMemory& memory, int need,
                                          const Bracket& bracket, int* ids) {
  const int mine = threadIdx.x;
  if (mine >= bracket.inside) return;
  const uint32_t order = memory.few_orders[mine];
  int place = bracket.above;
  for (int i = 0; i < bracket.inside; ++i) {
    const uint32_t other = memory.few_orders[i];
    place += other > order || (other == order && i < mine);
  }
  if (place < need) ids[place] = memory.few_ids[mine];
}

// Stores `need` ids: those of all orders above the bracket and of the largest in it, which holds at
// most FEW, unless they are equal.
template <int THREADS, int AT_ONCE, typename OrderAt, typename IdAt>
__device__ __forceinline__ void store_best(RankMemory& memory, int count, int need,
                                           const Bracket& bracket, OrderAt order_at, IdAt id_at,
                                           int* ids) {
  const int lane = threadIdx.x % 32;
  const uint32_t before = (1u << lane) - 1;
  const bool is_tie = bracket.low == bracket.high;
  if (threadIdx.x < 2) memory.stored[threadIdx.x] = 0;
  sync_first<THREADS>();
  for (int first = 0; first < count; first += THREADS * AT_ONCE) {
    const Orders<THREADS, AT_ONCE> orders(first + threadIdx.x, count, order_at);
    uint32_t above[AT_ONCE], inside[AT_ONCE];
    int sum_above = 0, sum_inside = 0;
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const bool is_above = orders.of[j] > bracket.high;
      above[j] = __ballot_sync(~0u, is_above);
      inside[j] = __ballot_sync(~0u, !is_above && orders.of[j] >= bracket.low);
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
        if (!is_tie) memory.few_orders[at] = orders.of[j], memory.few_ids[at] = id_at(i);
      }
      place_above += __popc(above[j]), place_inside += __popc(inside[j]);
    }
  }
  sync_first<THREADS>();
  if (!is_tie) store_few(memory, need, bracket, ids);
  sync_first<THREADS>();
}

}  // namespace
