// Thresholds from samples, and ids from candidates: a CTA a query.
#pragma once

#include <cstdint>

#include "plan.cuh"
#include "programmatic_launch.cuh"
#include "rank.cuh"

namespace {

constexpr int GUESSING = 256, SELECTING = 512;  // threads
constexpr int CLOSE = 3;  // of the sample: so near to its rank a threshold may lie
constexpr int HELD = 16;  // samples in a lane's registers
constexpr int FEW_SLOTS = 32 * HELD;

// The sampled scores of a range, and at which rank of them its threshold is looked for.
struct Samples {
  const float* scores;
  int count, need;
  __device__ Samples(const Args& args, int row, const Range& range) {
    const int end = range.start + range.length;
    int first = range.start / args.stretch, last = (end - 1) / args.stretch;
    first += sampled_key(args.stretch, first) < range.start;
    last -= sampled_key(args.stretch, last) >= end;
    count = last - first + 1;
    need = min(static_cast<int>(static_cast<int64_t>(count) * Tuning::WANTED / range.length) + 1,
               count);
    scores = args.samples + static_cast<int64_t>(row) * args.slots + first;
  }
};

// Above infinity are keys of no number.
__device__ __forceinline__ float threshold_of(uint32_t key) {
  return score_of(min(key, key_of(INFINITY)));
}

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
  if (threadIdx.x == 0) args.known[row] = 0;
  if (range.length <= Tuning::WHOLE) {
    if (threadIdx.x == 0) args.thresholds[row] = -INFINITY;
    return;
  }
  const Samples samples(args, row, range);
  const Bracket bracket =
      find_rank<GUESSING, 12>(memory, samples.count, samples.need, key_of(-INFINITY), NAN_KEY,
                              CLOSE, [&](int i) { return key_of(samples.scores[i]); });
  if (threadIdx.x == 0) args.thresholds[row] = threshold_of(bracket.low);
}

// A key of order that `need` keys reach, and one more at most, unless they are equal. By halves:
// the warp holds all of at most FEW_SLOTS samples.
__device__ __forceinline__ uint32_t find_close(const Samples& samples) {
  uint32_t keys[HELD], low = ~0u, high = 0;
#pragma unroll
  for (int j = 0; j < HELD; ++j) {
    const int i = threadIdx.x % 32 + 32 * j;
    const uint32_t key = key_of(samples.scores[min(i, samples.count - 1)]);
    low = min(low, key), high = max(high, key);
    keys[j] = i < samples.count ? key : NO_SCORE;
  }
  low = __reduce_min_sync(FULL, low), high = __reduce_max_sync(FULL, high);
  for (int reach_low = samples.count; low < high && reach_low > samples.need + 1;) {
    const uint32_t middle = high - (high - low) / 2;
    int reach = 0;
#pragma unroll
    for (int j = 0; j < HELD; ++j) reach += keys[j] >= middle;
    reach = __reduce_add_sync(FULL, reach);
    if (reach >= samples.need) {
      low = middle, reach_low = reach;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The same for few samples: a warp a query.
// Grid: (ceil(Q / 8),)
__global__ void __launch_bounds__(GUESSING)
    warp_threshold_kernel(const __grid_constant__ Args args) {
  const int row = blockIdx.x * (GUESSING / 32) + threadIdx.x / 32;
  allow_next_launch();
  const Range range = row < args.num_queries ? load_range(args, row) : Range{0, 0};
  wait_for_launches_before();
  if (row == 0 && threadIdx.x == 0) args.failed[0] = 0;
  if (row >= args.num_queries) return;
  const bool is_whole = range.length <= Tuning::WHOLE;
  const float threshold =
      is_whole ? -INFINITY : threshold_of(find_close(Samples(args, row, range)));
  if (threadIdx.x % 32 == 0) args.thresholds[row] = threshold, args.known[row] = 0;
}

// In shared memory, in front of the keys of args.most_candidates, and then their ids.
struct Selection {
  int before[MOST_PIECES * SEGMENTS + 1];  // candidates in the segments before
  int from[MOST_PIECES * SEGMENTS];        // place of a segment's first, less those before
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
                                             const Share& share) {
  constexpr int EACH = (MOST_PIECES * SEGMENTS + SELECTING - 1) / SELECTING;
  const int first = threadIdx.x * EACH, segments = share.pieces * SEGMENTS;
  int counts[EACH], found[EACH], sum = 0;
  bool is_dropped = false;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {  // of the query's own area: they need not wait for the share
    found[i] = row * SEGMENTS + first + i;
    counts[i] = first + i < SEGMENTS ? args.counts[found[i]] : 0;
  }
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    if (first + i >= segments) continue;
    const int order = (first + i) / SEGMENTS;
    if (order > 0) {
      const int area = area_of(args, row, row % BLOCK, share.first + order * share.step, false);
      found[i] = area * SEGMENTS + (first + i) % SEGMENTS;
      counts[i] = args.counts[found[i]];
    }
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

  // Each STEP-th from `first` on. All of a batch are on their way before the first is stored.
  template <int STEP, typename Find>
  __device__ void load(int first, int end, Find segment_of) {
    constexpr int AT_ONCE = 8;
    for (; first < end; first += AT_ONCE * STEP) {
      uint2 found[AT_ONCE];
#pragma unroll
      for (int j = 0; j < AT_ONCE; ++j) {
        const int i = first + j * STEP;
        if (i < end) found[j] = args.candidates[shared.from[segment_of(i)] + i];
      }
#pragma unroll
      for (int j = 0; j < AT_ONCE; ++j) {
        const int i = first + j * STEP;
        if (i < end) store(i, found[j]);
      }
    }
  }
  __device__ void store(int i, uint2 candidate) {
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
      loader.load<64>(shared.before[segment] + threadIdx.x % 64, shared.before[segment + 1],
                      [&](int) { return segment; });
    }
    return loader.finish();
  }
  loader.load<SELECTING>(threadIdx.x, count, [&](int i) {
    int low = 0, high = segments;  // the last segment that begins at i or before
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (shared.before[middle] <= i ? low : high) = middle;
    }
    return low;
  });
  loader.finish();
}

// The certificate: at least 2048 candidates, and none above the threshold dropped. Then the best of
// them are the best of the range. Queries without it go to the repair.
// Grid: (Q,)
__global__ void __launch_bounds__(SELECTING, 3) select_kernel(const __grid_constant__ Args args) {
  uint8_t* memory=smem_base;
  Selection& shared = *reinterpret_cast<Selection*>(memory);
  const int row = blockIdx.x;
  int* ids = args.ids + static_cast<int64_t>(row) * TOPK;
  allow_next_launch();
  const Range range = load_range(args, row);
  if (threadIdx.x == 0) shared.is_dropped = 0, shared.rank.least = ~0u, shared.rank.most = 0;
  __syncthreads();
  wait_for_launches_before();
  if (range.length <= TOPK) return list_range(range, ids);
  const Share share = args.shares[row / BLOCK];
  const int count = find_segments(shared, args, row, share);
  if (count < TOPK || count > args.most_candidates) {
    if (threadIdx.x == 0) args.failed[1 + atomicAdd(&args.failed[0], 1)] = row;
    return;
  }
  load_candidates(shared, args, share.pieces * SEGMENTS, count);
  const uint32_t* keys = shared.keys();
  const int* ids_of_keys = shared.ids(args);
  const auto key_at = [&](int i) { return keys[i]; };
  const Bracket bracket = find_rank<SELECTING, 8>(shared.rank, count, TOPK, shared.rank.least,
                                                  shared.rank.most, FEW, key_at);
  store_best<SELECTING, 2>(shared.rank, count, TOPK, bracket, key_at,
                        [&](int i) { return ids_of_keys[i]; }, ids);
}

}  // namespace
