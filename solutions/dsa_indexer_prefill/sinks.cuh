// Where scores go: samples, candidates, or, in the repair, memory and a selection from there.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "lane_now.cuh"
#include "plan.cuh"
#include "rank.cuh"

namespace {

// A lane takes the scores of one query of the block.
__device__ __forceinline__ int member_of(uint32_t thread) {
  return thread / 256 * HALF_BLOCK + thread % HALF_BLOCK;
}
__device__ __forceinline__ int own_member() { return member_of(threadIdx.x); }

// The range of the lane's query, as far as it is scored.
struct OwnRange {
  int start;
  uint32_t length;
  __device__ explicit OwnRange(const Job& job)
      : start(job.start[own_member()]), length(job.length[own_member()]) {}
  __device__ bool holds(int key) const { return static_cast<uint32_t>(key - start) < length; }
};

template <Mode MODE, bool HOLDS = false>
struct Sink;

template <>
struct Sink<Mode::SAMPLE> {
  OwnRange range;
  int stretch;
  float* samples;

  __device__ Sink(SharedMemory&, const Args& args, const Job& job)
      : range(job), stretch(args.stretch) {
    const int query = max(job.query[own_member()], 0);
    samples = args.samples + static_cast<int64_t>(query) * args.slots;
  }
  __device__ void take(float score, int tile, int row) {
    const int slot = place_of(tile, row);
    if (range.holds(sampled_key(stretch, slot))) samples[slot] = score;
  }
  __device__ void close(SharedMemory&, const Args&, const Job&, int) {}
};

// Each warp has a segment of a query's candidates to itself: places follow from votes alone. Scores
// at the threshold are ties. A warp that has stored some tells how many candidates it has, and sees
// how many the query has: from 2048 on none of the best is lost where ties are dropped. So no tie
// at the border needs a repair, of however many keys. Where no number is above the threshold,
// scores that are none are the ties, and count alone.
//
// HOLDS: each lane holds a candidate back until one of the warp's finds its place taken. At 128K
// that is after some seven tiles, of which two in three have a candidate.
template <bool HOLDS>
struct Sink<Mode::FILTER, HOLDS> {
  SharedMemory& shared;
  const Args& args;
  const Job& job;
  float threshold;
  uint32_t place;  // in the segment, behind the last one stored
  // Not HOLDS:
  OwnRange range;
  uint32_t end;  // of the segment
  // HOLDS:
  int first_whole;     // the first tile that the ranges of both of the warp's queries hold all of
  uint32_t whole;      // how many such tiles there are
  float held;          // a candidate of the lane's that is not stored yet: its score
  int held_tile = -1;  // and tile; -1: none

  __device__ Sink(SharedMemory& shared, const Args& args, const Job& job)
      : shared(shared),
        args(args),
        job(job),
        threshold(job.threshold[own_member()]),
        place(segment(args, job, threadIdx.x) * CAPACITY),
        range(job),
        end(place + CAPACITY) {
    if (threadIdx.x % 32 < 2) {
      int* known = args.known + max(job.query[own_member()], 0);
      told(shared, threadIdx.x) = {0, place, end, known};
    }
    if (!HOLDS) return;
    __syncwarp();  // all lanes read what is told
    const int first = (range.start + TILE - 1) / TILE;
    const int last = (range.start + static_cast<int>(range.length)) / TILE;
    first_whole = __shfl_sync(FULL, max(first, __shfl_xor_sync(FULL, first, 1)), 0);
    const int end_whole = __shfl_sync(FULL, min(last, __shfl_xor_sync(FULL, last, 1)), 0);
    whole = max(end_whole - first_whole, 0);
  }

  static __device__ int segment(const Args& args, const Job& job, uint32_t thread) {
    const int member = member_of(thread), query = max(job.query[member], 0);
    const int area = area_of(args, query, member, blockIdx.x, job.piece.pieces > 0);
    return area * SEGMENTS + thread / 32 % SEGMENTS;
  }
  static __device__ Told& told(SharedMemory& shared, uint32_t thread) {
    return shared.told[member_of(thread)][thread / 32 % SEGMENTS];
  }

  __device__ void take(float score, int tile, int row) {
    bool passes = !(score < threshold);  // or is no number
    if (!HOLDS) {
      const int key = place_of(tile, row);
      passes &= range.holds(key);
      if (__any_sync(FULL, passes)) store(passes, score, key, end);
      return;
    }
    if (static_cast<uint32_t>(tile - first_whole) >= whole) {
      passes &= OwnRange(job).holds(place_of(tile, row)) && is_open();
    }
    if (__any_sync(FULL, passes && held_tile >= 0)) {
      store_held(row);
      passes &= !(score < threshold) && is_open();  // which may have changed
    }
    if (passes) held = score, held_tile = tile;
  }

  // Whether anything of the lane's query may pass: not where 2048 that are no numbers are known.
  __device__ bool is_open() const {
    return threshold < INFINITY || told(shared, thread_index_now()).new_ties != CLOSED;
  }

  __device__ void store_held(int row) {
    const uint32_t end = told(shared, thread_index_now()).end;
    store(held_tile >= 0, held, place_of(held_tile, row), end);
    held_tile = -1;
  }

  __device__ void store(bool passes, float score, int key, uint32_t end) {
    const uint32_t of_query = 0x55555555u << thread_index_now() % 2;  // lanes with the same
    const uint32_t own = __ballot_sync(FULL, passes) & of_query;
    const uint32_t at = place + __popc(own & lanes_before_now());
    if (passes && at < end) args.candidates[at] = make_uint2(__float_as_uint(score), key);
    place += __popc(own);
    const bool may_tie = passes && !(score > threshold);
    if (__any_sync(FULL, may_tie)) count_ties(may_tie, score != score);
  }

  __device__ void count_ties(bool may_tie, bool is_nan) {
    const uint32_t thread = thread_index_now();
    const bool is_number = threshold < INFINITY;
    const uint32_t ties = __ballot_sync(FULL, may_tie && is_nan != is_number);
    int known = 0;
    if (thread % 32 < 2) {
      Told& own = told(shared, thread);
      const int new_ties = own.new_ties + __popc(ties & 0x55555555u << thread % 2);
      own.new_ties = new_ties;
      if (new_ties > Tuning::UNTOLD) {
        const int more = is_number ? place - own.place : new_ties;
        own.place = place;
        known = atomicAdd(own.known, more) + more;
        own.new_ties = known < TOPK ? 0 : is_number ? UNCOUNTED : CLOSED;
      }
    }
    __syncwarp();  // all lanes read what is told
    known = __shfl_sync(FULL, known, thread % 2);
    // -0.0 ties with 0.0.
    if (known >= TOPK && is_number) threshold = score_of(order_of(threshold + 0.0f) + 1);
    const bool is_closed = known >= TOPK && !is_number;
    if (!HOLDS && is_closed) range.length = 0;
    if (HOLDS && __any_sync(FULL, is_closed)) whole = 0;  // is_open() is asked
  }

  __device__ void close(SharedMemory&, const Args&, const Job&, int row) {
    if (HOLDS) store_held(row);
    const uint32_t thread = thread_index_now();
    const int at = segment(args, job, thread);
    if (thread % 32 < 2 && job.query[member_of(thread)] >= 0) {
      args.counts[at] = place - at * CAPACITY;
    }
  }
};

template <>
struct Sink<Mode::REPAIR> {
  const Job& job;  // read for each score: registers are few
  uint32_t* orders;

  static __device__ uint32_t* orders_of(const Args& args, int member) {
    return args.orders + (static_cast<int64_t>(blockIdx.x) * BLOCK + member) * args.num_keys;
  }
  __device__ Sink(SharedMemory&, const Args& args, const Job& job)
      : job(job), orders(orders_of(args, own_member())) {}
  __device__ void take(float score, int tile, int row) {
    const int key = place_of(tile, row);
    if (OwnRange(job).holds(key)) orders[key] = order_of(score);
  }
  __device__ void close(SharedMemory& shared, const Args& args, const Job& job, int) {
    sync_first<COMPUTING>();  // all scores are stored
    for (int member = 0; member < BLOCK; ++member) {
      const int query = job.query[member], start = job.start[member], length = job.length[member];
      if (query < 0) break;
      const uint32_t* found = orders_of(args, member) + start;
      const auto at = [&](int i) { return found[i]; };
      const Visit<COMPUTING, 2, decltype(at)> visit = {length, at};
      const Bracket bracket = find_rank<COMPUTING, false>(shared.rank, length, TOPK, LEAST_ORDER,
                                                          NAN_ORDER, FEW, visit);
      store_best<COMPUTING, 1>(shared.rank, length, TOPK, bracket, at,
                               [&](int i) { return start + i; },
                               args.ids + static_cast<int64_t>(query) * TOPK);
    }
  }
};

}  // namespace
