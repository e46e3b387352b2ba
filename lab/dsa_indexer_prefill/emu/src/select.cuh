// Thresholds from samples, and ids from candidates: a CTA a query.
#pragma once

#include <cstdint>

#include "plan.cuh"
#include "programmatic_launch.cuh"
#include "rank.cuh"

namespace {

constexpr int GUESSING = 256, SELECTING = 512;  // threads

// What a candidate of the query must score. A threshold that is too high or too low costs time, not
// a key: select_kernel counts.
// Grid: (Q,)
__global__ void __launch_bounds__(GUESSING) threshold_kernel(const __grid_constant__ Args args) {
  __shared__ RankMemory memory;
  const int row = blockIdx.x;
  allow_next_launch();
  const Range range = load_range(args, row);
  wait_for_launches_before();
  if (row == 0 && threadIdx.x == 0) args.failed[0] = 0;
  if (range.length <= Tuning::WHOLE) {
    if (threadIdx.x == 0) args.thresholds[row] = -INFINITY;
    return;
  }
  const int end = range.start + range.length;
  const int first = range.start / STRETCH, last = (end - 1) / STRETCH;
  const int outside = (sampled_key(first) < range.start) + (sampled_key(last) >= end);
  const int count = last - first + 1 - outside;
  const int need = min(static_cast<int>(static_cast<int64_t>(count) * Tuning::WANTED /
                                        range.length) + 1, count);
  const float* samples = args.samples + static_cast<int64_t>(row) * args.slots + first;
  const auto key_of_slot = [&](int i) {
    const bool is_border = i == 0 || i == last - first;
    if (is_border && static_cast<uint32_t>(sampled_key(first + i) - range.start) >=
                         static_cast<uint32_t>(range.length)) {
      return NO_SCORE;
    }
    return key_of(samples[i]);
  };
  const uint32_t key = find_rank<GUESSING, 4>(memory, last - first + 1, need, LEAST_KEY, NAN_KEY, 0,
                                              key_of_slot).low;
  if (threadIdx.x == 0) args.thresholds[row] = key == NAN_KEY ? INFINITY : score_of(key);
}

// In shared memory, in front of the keys of args.most_candidates, and then their ids.
struct Selection {
  int before[MOST_CTAS * SEGMENTS + 1];  // candidates in the segments before
  int from[MOST_CTAS * SEGMENTS];        // place of a segment's first, less those before
  RankMemory rank;
  int is_dropped;  // a candidate was
  __device__ uint32_t* keys() { return reinterpret_cast<uint32_t*>(this + 1); }
  __device__ int* ids(const Args& args) {
    return reinterpret_cast<int*>(this + 1) + args.most_candidates;
  }
};

// The ids of a range of at most 2048 keys, then -1.
__device__ __forceinline__ void list_range(const Range& range, int* ids) {
  const int at = 4 * threadIdx.x, first = range.start + at, count = range.length - at;
  const int4 four = {count > 0 ? first : -1, count > 1 ? first + 1 : -1,
                     count > 2 ? first + 2 : -1, count > 3 ? first + 3 : -1};
  reinterpret_cast<int4*>(ids)[threadIdx.x] = four;
}

// Finds the query's segments. Returns how many candidates they hold; 0 where one was dropped.
__device__ __forceinline__ int find_segments(Selection& shared, const Args& args, int row,
                                             int2 share) {
  constexpr int EACH = (MOST_CTAS * SEGMENTS + SELECTING - 1) / SELECTING;
  const int first = threadIdx.x * EACH, segments = share.y * SEGMENTS;
  int counts[EACH], found[EACH], sum = 0;
  bool is_dropped = false;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    counts[i] = 0, found[i] = 0;
    if (first + i >= segments) continue;
    const int order = (first + i) / SEGMENTS;
    const int area = area_of(args, row, row % BLOCK, share.x + order, order);
    found[i] = area * SEGMENTS + (first + i) % SEGMENTS;
    counts[i] = args.counts[found[i]];
    is_dropped |= counts[i] > CAPACITY;
    sum += counts[i];
  }
  if (is_dropped) shared.is_dropped = 1;
  int total;
  int before = sum_before<SELECTING, 0>(shared.rank, sum, &total);
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    if (first + i >= segments) break;
    shared.before[first + i] = before;
    shared.from[first + i] = found[i] * CAPACITY - before;
    before += counts[i];
  }
  if (threadIdx.x == 0) shared.before[segments] = total;
  __syncthreads();
  return shared.is_dropped ? 0 : total;
}

// Copies candidates, by the order of their scores, and finds the least and the most of these.
struct Loader {
  Selection& shared;
  const Args& args;
  uint32_t least = ~0u, most = 0;

  __device__ void load(int segment, int i) {
    const uint2 candidate = args.candidates[shared.from[segment] + i];
    const uint32_t key = key_of(__uint_as_float(candidate.x));
    shared.keys()[i] = key, shared.ids(args)[i] = candidate.y;
    least = min(least, key), most = max(most, key);
  }
  __device__ void finish() {
    least = __reduce_min_sync(FULL, least), most = __reduce_max_sync(FULL, most);
    if (threadIdx.x % 32 == 0) {
      atomicMin(&shared.rank.least, least);
      atomicMax(&shared.rank.most, most);
    }
    __syncthreads();
  }
};

// Few long segments, two warps each, or many short ones, in which a thread looks for its own.
__device__ __forceinline__ void load_candidates(Selection& shared, const Args& args, int segments,
                                                int count) {
  Loader loader = {shared, args};
  if (segments <= 4 * SEGMENTS) {
    for (int segment = threadIdx.x / 64; segment < segments; segment += SELECTING / 64) {
      const int end = shared.before[segment + 1];
#pragma unroll 4
      for (int i = shared.before[segment] + threadIdx.x % 64; i < end; i += 64) {
        loader.load(segment, i);
      }
    }
    return loader.finish();
  }
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += SELECTING) {
    int low = 0, high = segments;  // the last segment that begins at i or before
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (shared.before[middle] <= i ? low : high) = middle;
    }
    loader.load(low, i);
  }
  loader.finish();
}

// The certificate: at least 2048 candidates, and none above the threshold dropped. Then the best of
// them are the best of the range. Queries without it go to the repair.
// Grid: (Q,)
__global__ void __launch_bounds__(SELECTING, 3) select_kernel(const __grid_constant__ Args args) {
  
  Selection& shared = *reinterpret_cast<Selection*>(memory);
  const int row = blockIdx.x;
  int* ids = args.ids + static_cast<int64_t>(row) * TOPK;
  allow_next_launch();
  const Range range = load_range(args, row);
  if (threadIdx.x == 0) shared.is_dropped = 0, shared.rank.least = ~0u, shared.rank.most = 0;
  __syncthreads();
  wait_for_launches_before();
  if (range.length <= TOPK) return list_range(range, ids);
  const int2 share = args.shares[row / BLOCK];
  const int count = find_segments(shared, args, row, share);
  if (count < TOPK || count > args.most_candidates) {
    if (threadIdx.x == 0) args.failed[1 + atomicAdd(&args.failed[0], 1)] = row;
    return;
  }
  load_candidates(shared, args, share.y * SEGMENTS, count);
  const uint32_t* keys = shared.keys();
  const int* ids_of_keys = shared.ids(args);
  const auto key_at = [&](int i) { return keys[i]; };
  const Bracket bracket = find_rank<SELECTING, 4>(shared.rank, count, TOPK, shared.rank.least,
                                                  shared.rank.most, FEW, key_at);
  store_best<SELECTING>(shared.rank, count, TOPK, bracket, key_at,
                        [&](int i) { return ids_of_keys[i]; }, ids);
}

}  // namespace
