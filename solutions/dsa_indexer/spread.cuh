// From the keys of a sequence in memory to the ids of its 2048 largest, by a cluster of CTAs.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>

#include "plan.cuh"
#include "select.cuh"

namespace {

// Bins of one round: keys low ... high - 1, 1 << shift of them a bin; a bin a thread.
struct Range {
  uint32_t low, high;
  int shift;
};

// What CTA 0 found in a round. `range`: what is left. If final, `above` keys of the sequence lie
// above the range and `inside` in it, and this CTA's are listed from above_from and inside_from on.
struct Finding {
  Range range;
  int is_final;
  int above, inside, above_from, inside_from;
};

template <int CLUSTER>
struct SpreadMemory {
  SharedMemory base;
  uint32_t bins[THREADS];
  alignas(16) Finding finding;  // read in vectors, which must not hold what others write meanwhile
  int above;                    // this CTA's keys above the range
  int of_warp[WARPS][2 + CLUSTER];
  int threshold[3];     // CTA 0: bin of the 2048th largest key, keys above it, keys inside
  int inside[CLUSTER];  // CTA 0: of these, each CTA's
};

__device__ __forceinline__ Range range_between(uint32_t low, uint32_t high) {
  const uint32_t widest = high - low - 1;
  return {low, high, max(0, 32 - __clz(int(widest)) - __ffs(THREADS) + 1)};
}

constexpr uint32_t ALL_LOW = NO_TOKEN + 1;
constexpr int NO_BIN = -1;

// The CTA's share of a sequence: a run of positions.
struct Slice {
  int first, last;
};

template <int CLUSTER>
__device__ __forceinline__ Slice slice_of(int length, int rank) {
  const int each = (length + CLUSTER - 1) / CLUSTER;
  return {min(length, each * rank), min(length, each * (rank + 1))};
}

// Where to look first: around the quantile that a sample of 2048 scores predicts, which every CTA
// draws alike. Any range would do; this one mostly holds a few thousand keys.
__device__ __forceinline__ Range guess_range(SharedMemory& shared, const uint32_t* keys,
                                             int length) {
  float moments[3] = {};
#pragma unroll
  for (int i = 0; i < TOPK / THREADS; ++i) {
    const int at = i * THREADS + threadIdx.x;
    const int position = at * (length / TOPK) + at * (length % TOPK) / TOPK;
    const float score = score_of(keys[position]), square = score * score;
    moments[0] += score, moments[1] += square, moments[2] += square * score;
  }
  Quantile quantile = predict(length, __fdividef(1.0f, length));
  quantile.spread = Tuning::SAMPLED_SPREAD;
  const float2 guessed = guess(shared, moments, 1.0f / TOPK, quantile);
  const uint32_t low = key_of(guessed.x - guessed.y), high = key_of(guessed.x + guessed.y);
  const bool is_usable = low > NO_TOKEN && low < high && high < NAN_KEY;  // no sum was NaN
  return is_usable ? range_between(low, high) : range_between(ALL_LOW, ABOVE_ALL);
}

// Calls visit(key, position) for the thread's keys of a slice, in order. Requested in batches: what
// visit() writes would hold back the next load.
template <typename Visit>
__device__ __forceinline__ void visit_keys(const uint32_t* keys, const Slice& slice, Visit visit) {
  constexpr int BATCH = Tuning::SPREAD_BATCH;
#pragma unroll 1
  for (int first = slice.first + threadIdx.x; first < slice.last; first += BATCH * THREADS) {
    uint32_t batch[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const int position = first + i * THREADS;
      batch[i] = position < slice.last ? keys[position] : NO_TOKEN;
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) visit(batch[i], first + i * THREADS);
  }
}

// Counts the CTA's keys by bins, and those above all bins.
template <int CLUSTER>
__device__ __forceinline__ void count_keys(SpreadMemory<CLUSTER>& shared, const uint32_t* keys,
                                           const Slice& slice, const Range& range) {
  int above = 0;
  visit_keys(keys, slice, [&](uint32_t key, int) {
    above += key >= range.high;
    if (key >= range.low && key < range.high) {
      atomicAdd(&shared.bins[(key - range.low) >> range.shift], 1u);
    }
  });
  above = __reduce_add_sync(FULL, above);
  if (threadIdx.x % 32 == 0) atomicAdd(&shared.above, above);
}

// Finds the bin of the 2048th largest key: of_bin keys in this thread's, above_all above all bins.
// No bin where that key is outside the range.
template <int CLUSTER>
__device__ __forceinline__ int find_bin(SpreadMemory<CLUSTER>& shared, int of_bin, int above_all) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int through = of_bin;  // with the lanes of higher bins
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int beyond = __shfl_down_sync(FULL, through, distance);
    if (lane + distance < 32) through += beyond;
  }
  if (threadIdx.x == 0) shared.threshold[0] = NO_BIN;
  if (lane == 0) shared.of_warp[warp][0] = through;
  __syncthreads();
  const int of_other = lane > warp && lane < WARPS ? shared.of_warp[lane][0] : 0;
  const int from_here = above_all + __reduce_add_sync(FULL, of_other) + through;
  const int above = from_here - of_bin;
  if (above < TOPK && from_here >= TOPK) {
    shared.threshold[0] = threadIdx.x;
    shared.threshold[1] = above, shared.threshold[2] = of_bin;
  }
  __syncthreads();
  return shared.threshold[0];
}

// What a round found; above_all: keys above its range.
template <int CLUSTER>
__device__ __forceinline__ Finding conclude(const SpreadMemory<CLUSTER>& shared,
                                            const Range& range, int bin, int above_all) {
  Finding finding = {};
  if (bin == NO_BIN) {
    finding.range = above_all >= TOPK ? range_between(range.high, ABOVE_ALL)
                                      : range_between(ALL_LOW, range.low);
    return finding;
  }
  const uint32_t low = range.low + (uint32_t(bin) << range.shift);
  const uint32_t width = min(1u << range.shift, range.high - low);
  finding.range = range_between(low, low + width);
  finding.above = shared.threshold[1], finding.inside = shared.threshold[2];
  finding.is_final = width == 1 || finding.inside <= CANDIDATES ||
                     finding.above + finding.inside == TOPK;
  return finding;
}

// CTA 0 adds up the bins of all, a thread a bin, and tells each CTA what was found.
template <int CLUSTER>
__device__ __forceinline__ void end_round(SpreadMemory<CLUSTER>& shared,
                                          const cooperative_groups::cluster_group& cluster,
                                          const Range& range) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int counts[CLUSTER], of_bin = 0;
#pragma unroll
  for (int cta = 0; cta < CLUSTER; ++cta) {
    counts[cta] = cluster.map_shared_rank(&shared, cta)->bins[threadIdx.x];
    of_bin += counts[cta];
  }
  int above = lane < CLUSTER ? cluster.map_shared_rank(&shared, lane)->above : 0;  // of CTA `lane`
  const int above_all = __reduce_add_sync(FULL, above);
  const int bin = find_bin(shared, of_bin, above_all);
#pragma unroll
  for (int cta = 0; cta < CLUSTER; ++cta) {
    const int higher_bins = __reduce_add_sync(FULL, int(threadIdx.x) > bin ? counts[cta] : 0);
    if (lane == 0) shared.of_warp[warp][1 + cta] = higher_bins;
    if (int(threadIdx.x) == bin) shared.inside[cta] = counts[cta];
  }
  __syncthreads();
  if (warp > 0) return;
  int inside = 0;
  if (lane < CLUSTER && bin != NO_BIN) {
#pragma unroll
    for (int i = 0; i < WARPS; ++i) above += shared.of_warp[i][1 + lane];
    inside = shared.inside[lane];
  }
  int above_through = above, inside_through = inside;
#pragma unroll
  for (int distance = 1; distance < CLUSTER; distance *= 2) {
    const int above_before = __shfl_up_sync(FULL, above_through, distance);
    const int inside_before = __shfl_up_sync(FULL, inside_through, distance);
    if (lane >= distance) above_through += above_before, inside_through += inside_before;
  }
  Finding finding = conclude(shared, range, bin, above_all);
  finding.above_from = above_through - above, finding.inside_from = inside_through - inside;
  if (lane < CLUSTER) cluster.map_shared_rank(&shared, lane)->finding = finding;
}

// Ids of the CTA's keys above the range, and of those inside where all are taken or all are equal;
// otherwise those inside become candidates in CTA 0. Listed thread by thread, so that the result
// repeats.
template <int CLUSTER>
__device__ __forceinline__ void list_keys(SpreadMemory<CLUSTER>& shared, SharedMemory& leader,
                                          const Args& args, int row, const uint32_t* keys,
                                          const Slice& slice) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Finding& finding = shared.finding;
  const Range range = finding.range;
  int counts[2] = {};  // above, inside
  visit_keys(keys, slice, [&](uint32_t key, int) {
    counts[0] += key >= range.high;
    counts[1] += key >= range.low && key < range.high;
  });
  int through[2] = {counts[0], counts[1]};
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int above = __shfl_up_sync(FULL, through[0], distance);
    const int inside = __shfl_up_sync(FULL, through[1], distance);
    if (lane >= distance) through[0] += above, through[1] += inside;
  }
  if (lane == 31) shared.of_warp[warp][0] = through[0], shared.of_warp[warp][1] = through[1];
  __syncthreads();
  int at[2] = {finding.above_from, finding.inside_from};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int of_other = lane < warp ? shared.of_warp[lane][j] : 0;
    at[j] += through[j] - counts[j] + __reduce_add_sync(FULL, of_other);
  }
  const bool is_ranked = finding.inside <= CANDIDATES;
  const int* table = args.table + int64_t{row} * args.columns;
  int* ids = args.ids + int64_t{row} * TOPK;
  visit_keys(keys, slice, [&](uint32_t key, int position) {
    if (key < range.low) return;
    const int id = __ldg(table + position / PAGE) * uint32_t{PAGE} + position % PAGE;
    if (key >= range.high) {
      ids[at[0]++] = id;
    } else if (is_ranked) {
      leader.candidates[at[1]] = key, leader.ids[TOPK + at[1]++] = id;
    } else if (finding.above + at[1] < TOPK) {
      ids[finding.above + at[1]++] = id;
    }
  });
}

// Selects from a sequence of any length. Threads of all CTAs of the cluster come here.
template <int CLUSTER>
__device__ __forceinline__ void select_spread(SpreadMemory<CLUSTER>& shared, const Args& args,
                                              int row, int length) {
  static_assert(CLUSTER <= 32, "a lane a CTA");
  const auto cluster = cooperative_groups::this_cluster();
  const int rank = cluster.block_rank();
  const uint32_t* keys = args.keys + int64_t{row} * args.columns * PAGE;
  const Slice slice = slice_of<CLUSTER>(length, rank);
  shared.bins[threadIdx.x] = 0;
  if (threadIdx.x == 0) shared.above = 0;
  Range range = guess_range(shared.base, keys, length);  // holds a barrier
  for (;;) {
    count_keys(shared, keys, slice, range);
    cluster.sync();
    if (rank == 0) end_round(shared, cluster, range);
    cluster.sync();
    range = shared.finding.range;
    if (shared.finding.is_final) break;
    shared.bins[threadIdx.x] = 0;
    if (threadIdx.x == 0) shared.above = 0;
    __syncthreads();
  }
  SharedMemory& leader = cluster.map_shared_rank(&shared, 0)->base;
  list_keys(shared, leader, args, row, keys, slice);
  const Finding finding = shared.finding;
  cluster.sync();
  if (rank != 0 || finding.inside > CANDIDATES || finding.above == TOPK) return;
  if (threadIdx.x < CANDIDATES && int(threadIdx.x) >= finding.inside) {
    shared.base.candidates[threadIdx.x] = NO_TOKEN;
  }
  __syncthreads();
  const Bracket bracket = {{finding.range.low, finding.above + finding.inside, 0},
                           {finding.range.high, finding.above, 0}};
  rank_candidates(shared.base, bracket);
  __syncthreads();
  for (int at = finding.above + threadIdx.x; at < TOPK; at += THREADS) {
    args.ids[int64_t{row} * TOPK + at] = shared.base.ids[at];
  }
}

}  // namespace
