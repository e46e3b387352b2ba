// Thresholds from samples, by a CTA or a warp a query, and ids from candidates, by a CTA a query.
#pragma once

#include <cstdint>

#include "lane_now.cuh"
#include "plan.cuh"
#include "programmatic_launch.cuh"
#include "rank.cuh"

namespace {

constexpr int GUESSING = 256, SELECTING = 256;  // threads
constexpr int CLOSE = 3;  // samples among which a threshold may lie: so near to its rank
constexpr int HELD = 16;  // samples in a lane's registers
constexpr int FEW_SLOTS = 32 * HELD;  // from more of them no warp finds a threshold
constexpr int KEPT = 16;              // candidates in a thread's registers, while it selects
constexpr int KEPT_BY_CTA = KEPT * SELECTING;
static_assert(TOPK <= BINS, "the best lie where bins were");

// The sampled scores of a range, and at which rank of them its threshold is looked for.
struct Samples {
  const float* scores;
  int count, need;
  __device__ Samples(const Args& args, int query, const Range& range) {
    const int end = range.start + range.length;
    int first = range.start / args.stretch, last = (end - 1) / args.stretch;
    first += sampled_key(args.stretch, first) < range.start;
    last -= sampled_key(args.stretch, last) >= end;
    count = last - first + 1;
    need = min(static_cast<int>(static_cast<int64_t>(count) * Tuning::WANTED / range.length) + 1,
               count);
    scores = args.samples + static_cast<int64_t>(query) * args.slots + first;
  }
};

// Orders above infinity's are those of NaN, which is no threshold.
__device__ __forceinline__ float threshold_of(uint32_t order) {
  return score_of(min(order, order_of(INFINITY)));
}

// What a candidate of the query must score. A threshold that is too high or too low costs time, not
// a key: select_kernel counts.
// Grid: (Q,)
__global__ void __launch_bounds__(GUESSING) threshold_kernel(const __grid_constant__ Args args) {
  __shared__ RankMemory memory;
  const int query = blockIdx.x;
  allow_next_launch();
  const Range range = load_range(args, query);
  wait_for_launches_before();
  if (query == 0 && threadIdx.x == 0) args.failed[0] = 0;
  if (threadIdx.x == 0) args.known[query] = 0;
  if (range.length <= Tuning::WHOLE) {
    if (threadIdx.x == 0) args.thresholds[query] = -INFINITY;
    return;
  }
  const Samples samples(args, query, range);
  const auto order_at = [&](int i) { return order_of(samples.scores[i]); };
  const Visit<GUESSING, 12, decltype(order_at)> visit = {samples.count, order_at};
  const Bracket bracket = find_rank<GUESSING, false>(memory, samples.count, samples.need,
                                              order_of(-INFINITY), NAN_ORDER, CLOSE, visit);
  if (threadIdx.x == 0) args.thresholds[query] = threshold_of(bracket.low);
}

// An order that `need` of the samples reach, and one more at most, unless some are equal. It is
// found by halves: the warp holds all of at most FEW_SLOTS samples.
__device__ __forceinline__ uint32_t find_close(const Samples& samples) {
  uint32_t orders[HELD], low = ~0u, high = 0;
#pragma unroll
  for (int j = 0; j < HELD; ++j) {
    const int i = threadIdx.x % 32 + 32 * j;
    const uint32_t order = order_of(samples.scores[min(i, samples.count - 1)]);
    low = min(low, order), high = max(high, order);
    orders[j] = i < samples.count ? order : NO_SCORE;
  }
  low = __reduce_min_sync(FULL, low), high = __reduce_max_sync(FULL, high);
  for (int reach_low = samples.count; low < high && reach_low > samples.need + 1;) {
    const uint32_t middle = high - (high - low) / 2;
    int reach = 0;
#pragma unroll
    for (int j = 0; j < HELD; ++j) reach += orders[j] >= middle;
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
  const int query = blockIdx.x * (GUESSING / 32) + threadIdx.x / 32;
  allow_next_launch();
  const Range range = query < args.num_queries ? load_range(args, query) : Range{0, 0};
  wait_for_launches_before();
  if (query == 0 && threadIdx.x == 0) args.failed[0] = 0;
  if (query >= args.num_queries) return;
  const bool is_whole = range.length <= Tuning::WHOLE;
  const float threshold =
      is_whole ? -INFINITY : threshold_of(find_close(Samples(args, query, range)));
  if (threadIdx.x % 32 == 0) args.thresholds[query] = threshold, args.known[query] = 0;
}

// Of 32 candidates: which but the first begin a segment, and which segment the first is in.
struct Word {
  uint32_t begins;
  uint32_t segment;
};

// In shared memory. Words follow it, then the orders and the ids that no register keeps.
struct Selection {
  RankMemory rank;  // its bins become the ids of the best
  // Of a segment, empty ones left out: the place of its first, less the candidates before it.
  int from[MOST_PIECES * SEGMENTS];
  int is_dropped;  // a candidate was
  __host__ __device__ static int words_of(int most_candidates) {
    return max((most_candidates + KEPT_BY_CTA - 1) / KEPT_BY_CTA, 1) * (KEPT_BY_CTA / 32);
  }
  __host__ __device__ static int more_of(int most_candidates) {
    return max(most_candidates - KEPT_BY_CTA, 0);
  }
  __host__ static int bytes_of(int most_candidates) {
    return sizeof(Selection) + words_of(most_candidates) * sizeof(Word) +
           more_of(most_candidates) * (sizeof(uint32_t) + sizeof(int));
  }
  __device__ Word* words() { return reinterpret_cast<Word*>(this + 1); }
  __device__ uint32_t* orders(const Args& args) {
    return reinterpret_cast<uint32_t*>(words() + words_of(args.most_candidates));
  }
  __device__ int* ids(const Args& args) {
    return reinterpret_cast<int*>(orders(args) + more_of(args.most_candidates));
  }
};

// The ids of a range of at most 2048 keys, then -1.
__device__ __forceinline__ void list_range(const Range& range, int* ids) {
#pragma unroll 1
  for (int at = 4 * threadIdx.x; at < TOPK; at += 4 * SELECTING) {
    const int first = range.start + at, count = range.length - at;
    const int4 four = {count > 0 ? first : -1, count > 1 ? first + 1 : -1,
                       count > 2 ? first + 2 : -1, count > 3 ? first + 3 : -1};
    reinterpret_cast<int4*>(ids)[at / 4] = four;
  }
}

// Finds the query's segments, and which of them each candidate is in: a warp's 32, one after the
// other, are those of a word. Returns how many there are; 0 where the certificate fails.
__device__ __forceinline__ int find_segments(Selection& shared, const Args& args, int query) {
  constexpr int EACH = (MOST_PIECES * SEGMENTS + SELECTING - 1) / SELECTING;
  constexpr int ONE = 1 << 20;  // segment, in a sum with candidates, of which there are fewer
  static_assert(MOST_PIECES * SEGMENTS * CAPACITY < ONE && MOST_PIECES * SEGMENTS < INT32_MAX / ONE,
                "two sums in one");
  const int own = query * SEGMENTS + threadIdx.x;  // of the query's area, which needs no share
  const int own_count = threadIdx.x < SEGMENTS ? args.counts[own] : 0;
  const Share share = args.shares[query / BLOCK];
  const int segments = share.pieces * SEGMENTS;
  int counts[EACH], found[EACH], sum = 0;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int at = i * SELECTING + threadIdx.x, nth = at / SEGMENTS;
    counts[i] = i == 0 ? own_count : 0, found[i] = own;
    if (i * SELECTING >= segments) continue;  // for all threads alike
    if (at >= segments || nth == 0) continue;
    const int area = area_of(args, query, query % BLOCK, share.first + nth * share.step, false);
    found[i] = area * SEGMENTS + at % SEGMENTS;
    counts[i] = args.counts[found[i]];
  }
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    if (counts[i] > CAPACITY) shared.is_dropped = 1;
    sum += counts[i] > 0 ? counts[i] + ONE : 0;
  }
  int total;
  uint32_t before = sum_before<SELECTING, 0>(shared.rank, sum, &total, thread_index_now());
  const int count = total % ONE;
  if (shared.is_dropped || count < TOPK || count > args.most_candidates) return 0;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    if (counts[i] == 0) continue;
    const uint32_t segment = before / ONE, first = before % ONE, end = first + counts[i];
    shared.from[segment] = found[i] * CAPACITY - first;
    if (first % 32 > 0) atomicOr(&shared.words()[first / 32].begins, 1u << first % 32);
#pragma unroll 4
    for (uint32_t word = (first + 31) / 32; word < (end + 31) / 32; ++word) {
      shared.words()[word].segment = segment;
    }
    before += counts[i] + ONE;
  }
  __syncthreads();
  return count;
}

// A thread's candidates, each SELECTING-th: the first KEPT in registers, more in shared memory.
struct Candidates {
  uint32_t kept[KEPT];  // orders
  int kept_ids[KEPT];
  const uint32_t* orders;
  const int* ids;
  int more;  // of the CTA's, in shared memory

  // Finds the least and the most order as well.
  __device__ __forceinline__ Candidates(Selection& shared, const Args& args, int count) {
    uint32_t* more_orders = shared.orders(args);
    int* more_ids = shared.ids(args);
    orders = more_orders, ids = more_ids, more = count - KEPT_BY_CTA;
#pragma unroll 1
    for (int first = (count - 1) / KEPT_BY_CTA * KEPT_BY_CTA; first >= 0; first -= KEPT_BY_CTA) {
      load(shared, args, first + threadIdx.x, count - first - threadIdx.x);
      find_ends(shared.rank);
      if (first == 0) break;
      const int at = first - KEPT_BY_CTA + threadIdx.x;
#pragma unroll
      for (int j = 0; j < KEPT; ++j) {
        if (at + j * SELECTING >= more) break;
        more_orders[at + j * SELECTING] = kept[j], more_ids[at + j * SELECTING] = kept_ids[j];
      }
    }
    __syncthreads();
  }

  // Of the orders in registers.
  __device__ __forceinline__ void find_ends(RankMemory& memory) const {
    uint32_t least_less_1 = ~0u, most = 0;  // NO_SCORE less 1 is ~0u
#pragma unroll
    for (int j = 0; j < KEPT; ++j) {
      least_less_1 = min(least_less_1, kept[j] - 1), most = max(most, kept[j]);
    }
    least_less_1 = __reduce_min_sync(FULL, least_less_1), most = __reduce_max_sync(FULL, most);
    if (threadIdx.x % 32 == 0) {
      atomicMin(&memory.least_less_1, least_less_1);
      atomicMax(&memory.most, most);
    }
  }

  // The first-th and later ones, of which there are `left`. All are requested before one is used.
  __device__ __forceinline__ void load(Selection& shared, const Args& args, int first, int left) {
    constexpr int BATCH = 8;  // segments looked up at once
    const uint32_t up_to_me = (2u << threadIdx.x % 32) - 1;
    const Word* words = shared.words() + first / 32u;
    uint2 found[KEPT];
#pragma unroll
    for (int batch = 0; batch < KEPT; batch += BATCH) {
      int from[BATCH];
#pragma unroll
      for (int j = 0; j < BATCH; ++j) {
        const Word word = words[(batch + j) * (SELECTING / 32)];
        from[j] = shared.from[word.segment + __popc(word.begins & up_to_me)];
      }
      __syncwarp();  // or the compiler would wait for each in turn
#pragma unroll
      for (int j = 0; j < BATCH; ++j) {
        const int at = (batch + j) * SELECTING;
        if (at < left) found[batch + j] = (args.candidates + (from[j] + first))[at];
      }
    }
#pragma unroll
    for (int j = 0; j < KEPT; ++j) {
      const uint32_t order = order_of(__uint_as_float(found[j].x));
      kept[j] = j * SELECTING < left ? order : NO_SCORE, kept_ids[j] = found[j].y;
    }
  }

  template <typename Take>
  __device__ __forceinline__ void visit(Take take) const {
#pragma unroll
    for (int j = 0; j < KEPT; ++j) take(kept[j], kept_ids[j]);
#pragma unroll 4
    for (int i = threadIdx.x; i < more; i += SELECTING) take(orders[i], ids[i]);
  }
};

// The ids of the 2048 best: those above the bracket, and the largest in it. They gather in shared
// memory and leave it in order of place.
__device__ __forceinline__ void store_ids(RankMemory& memory, const Candidates& candidates,
                                          const Bracket& bracket, int* ids) {
  const bool is_tie = bracket.low == bracket.high;
  int above = 0, reach = 0;
  candidates.visit([&](uint32_t order, int) {
    above += order > bracket.high, reach += order >= bracket.low;
  });
  // Two sums in one: fewer than 2048 are above the bracket.
  const int two = (reach - above) * TOPK + above;
  const uint32_t before = sum_before<SELECTING, 0, int>(memory, two, nullptr, thread_index_now());
  int* best = memory.bins;
  int place = before % TOPK, in_bracket = before / TOPK;
  candidates.visit([&](uint32_t order, int id) {
    if (order > bracket.high) best[place++] = id;
  });
  if (reach > above) {
    int* inside = is_tie ? best + bracket.above : memory.few_ids;
    const int limit = is_tie ? TOPK - bracket.above : FEW;
    candidates.visit([&](uint32_t order, int id) {
      if (order - bracket.low > bracket.high - bracket.low) return;
      if (in_bracket < FEW) memory.few_orders[in_bracket] = order;
      if (in_bracket < limit) inside[in_bracket] = id;
      ++in_bracket;
    });
  }
  __syncthreads();
  if (!is_tie) {
    store_few(memory, TOPK, bracket, best);
    __syncthreads();
  }
#pragma unroll
  for (int at = 0; at < TOPK / 4; at += SELECTING) {
    reinterpret_cast<int4*>(ids)[at + threadIdx.x] =
        reinterpret_cast<const int4*>(best)[at + threadIdx.x];
  }
}

// The certificate: at least 2048 candidates, and none above the threshold dropped. Then the best of
// them are the best of the range. Queries without it go to the repair.
// Grid: (Q,)
__global__ void __launch_bounds__(SELECTING, 4) select_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Selection& shared = *reinterpret_cast<Selection*>(memory);
  const int query = blockIdx.x;
  int* ids = args.ids + static_cast<int64_t>(query) * TOPK;
  allow_next_launch();
  const Range range = load_range(args, query);
  if (threadIdx.x == 0) shared.is_dropped = 0, shared.rank.least_less_1 = ~0u, shared.rank.most = 0;
#pragma unroll 1
  for (int i = threadIdx.x; i < Selection::words_of(args.most_candidates); i += SELECTING) {
    shared.words()[i] = {0, 0};
  }
  __syncthreads();
  wait_for_launches_before();
  if (range.length <= TOPK) return list_range(range, ids);
  const int count = find_segments(shared, args, query);
  if (count == 0) {
    if (threadIdx.x == 0) args.failed[1 + atomicAdd(&args.failed[0], 1)] = query;
    return;
  }
  const Candidates candidates(shared, args, count);
  const auto visit = [&](auto take) {
    candidates.visit([&](uint32_t order, int) { take(order); });
  };
  const Bracket bracket = find_rank<SELECTING, true>(
      shared.rank, count, TOPK, shared.rank.least_less_1 + 1, shared.rank.most, FEW, visit);
  store_ids(shared.rank, candidates, bracket, ids);
}

}  // namespace
