// Where scores go: samples, candidates, or, in the repair, memory and a selection from there.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "lane_now.cuh"
#include "plan.cuh"
#include "rank.cuh"

namespace {

// A lane takes the scores of one query of the block.
__device__ __forceinline__ int query_of(uint32_t thread) { return thread / 256 * 2 + thread % 2; }
__device__ __forceinline__ int own_query() { return query_of(threadIdx.x); }

// The range of the lane's query, as far as it is scored.
struct OwnRange {
  int start;
  uint32_t length;
  __device__ explicit OwnRange(const Rows& rows)
      : start(rows.start[own_query()]), length(rows.length[own_query()]) {}
  __device__ bool holds(int key) const { return static_cast<uint32_t>(key - start) < length; }
};

template <Mode MODE>
struct Sink;

template <>
struct Sink<Mode::SAMPLE> {
  OwnRange range;
  int stretch;
  float* samples;

  __device__ Sink(SharedMemory&, const Args& args, const Rows& rows)
      : range(rows), stretch(args.stretch) {
    const int row = max(rows.row[own_query()], 0);
    samples = args.samples + static_cast<int64_t>(row) * args.slots;
  }
  __device__ void take(float score, int tile, int row) {
    const int slot = place_of(tile, row);
    if (range.holds(sampled_key(stretch, slot))) samples[slot] = score;
  }
  __device__ void close(SharedMemory&, const Args&, const Rows&, int) {}
};

// Each warp has a segment of a query's candidates to itself: places follow from votes alone. Scores
// at the threshold are ties. A warp that stores some tells how many candidates it has, and sees
// how many the query has: from 2048 on none of the best is lost where ties are dropped. So no tie
// at the border needs a repair, of however many keys. Where no number is above the threshold,
// scores that are none are the ties, and count alone.
template <>
struct Sink<Mode::FILTER> {
  SharedMemory& shared;
  const Args& args;
  const Rows& rows;
  float threshold;
  uint32_t place;       // of the segment, behind the last one stored
  int first_whole;      // tiles that the ranges of both of the warp's queries hold all of
  uint32_t whole;       // so many of them
  float held;           // a candidate of the lane's that is not stored yet: its score
  int held_tile = -1;   // and tile; -1: none

  __device__ Sink(SharedMemory& shared, const Args& args, const Rows& rows)
      : shared(shared),
        args(args),
        rows(rows),
        threshold(rows.threshold[own_query()]),
        place(segment(args, rows, threadIdx.x) * CAPACITY) {
    if (threadIdx.x % 32 < 2) {
      int* known = args.known + max(rows.row[own_query()], 0);
      told(shared, threadIdx.x) = {0, place, place + CAPACITY, known};
    }
    __syncwarp();
    const OwnRange range(rows);
    const int first = (range.start + TILE - 1) / TILE;
    const int last = (range.start + static_cast<int>(range.length)) / TILE;
    first_whole = __shfl_sync(FULL, max(first, __shfl_xor_sync(FULL, first, 1)), 0);
    const int end_whole = __shfl_sync(FULL, min(last, __shfl_xor_sync(FULL, last, 1)), 0);
    whole = max(end_whole - first_whole, 0);
  }

  static __device__ int segment(const Args& args, const Rows& rows, uint32_t thread) {
    const int query = query_of(thread), row = max(rows.row[query], 0);
    const int area = area_of(args, row, query, blockIdx.x, rows.piece.pieces > 0);
    return area * SEGMENTS + thread / 32 % SEGMENTS;
  }
  static __device__ Told& told(SharedMemory& shared, uint32_t thread) {
    return shared.told[query_of(thread)][thread / 32 % SEGMENTS];
  }

  // Each lane holds a candidate back until one of the warp's finds its place taken: in long contexts
  // that is after some seven tiles, where two of three have a candidate.
  __device__ void take(float score, int tile, int row) {
    bool passes = !(score < threshold);  // or is no number
    if (static_cast<uint32_t>(tile - first_whole) >= whole) {
      passes &= OwnRange(rows).holds(place_of(tile, row)) && is_open();
    }
    if (__any_sync(FULL, passes && held_tile >= 0)) {
      store_held(row);
      passes &= !(score < threshold);  // which may have risen
    }
    if (passes) held = score, held_tile = tile;
  }

  // Whether anything may still pass: not where 2048 that are no numbers are known.
  __device__ bool is_open() const {
    return threshold < INFINITY || told(shared, thread_index_now()).new_ties >= 0;
  }

  __device__ void store_held(int row) {
    const bool holds = held_tile >= 0;
    const uint32_t of_query = 0x55555555u << thread_index_now() % 2;  // lanes with the same
    const uint32_t own = __ballot_sync(FULL, holds) & of_query;
    const uint32_t at = place + __popc(own & lanes_before_now());
    if (holds && at < told(shared, thread_index_now()).end) {
      args.candidates[at] = make_uint2(__float_as_uint(held), place_of(held_tile, row));
    }
    held_tile = -1;
    place += __popc(own);
    const bool may_tie = holds && !(held > threshold);
    if (__any_sync(FULL, may_tie)) count_ties(may_tie, held != held);
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
        own.new_ties = known < TOPK ? 0 : INT32_MIN / 2;  // from then on no tie is one
      }
    }
    known = __shfl_sync(FULL, known, thread % 2);
    // -0.0 ties with 0.0.
    if (known >= TOPK && is_number) threshold = score_of(key_of(threshold + 0.0f) + 1);
    if (__any_sync(FULL, known >= TOPK && !is_number)) whole = 0;  // is_open() is asked
  }

  __device__ void close(SharedMemory&, const Args&, const Rows&, int row) {
    store_held(row);
    const uint32_t thread = thread_index_now();
    const int at = segment(args, rows, thread);
    if (thread % 32 < 2 && rows.row[query_of(thread)] >= 0) {
      args.counts[at] = place - at * CAPACITY;
    }
  }
};

template <>
struct Sink<Mode::REPAIR> {
  const Rows& rows;  // read for each score: registers are few
  uint32_t* keys;

  static __device__ uint32_t* keys_of(const Args& args, int query) {
    return args.keys + (static_cast<int64_t>(blockIdx.x) * BLOCK + query) * args.num_keys;
  }
  __device__ Sink(SharedMemory&, const Args& args, const Rows& rows)
      : rows(rows), keys(keys_of(args, own_query())) {}
  __device__ void take(float score, int tile, int row) {
    const int key = place_of(tile, row);
    if (OwnRange(rows).holds(key)) keys[key] = key_of(score);
  }
  __device__ void close(SharedMemory& shared, const Args& args, const Rows& rows, int) {
    sync_first<COMPUTING>();  // all scores are stored
    for (int query = 0; query < BLOCK; ++query) {
      const int row = rows.row[query], start = rows.start[query], length = rows.length[query];
      if (row < 0) break;
      const uint32_t* found = keys_of(args, query) + start;
      const auto at = [&](int i) { return found[i]; };
      const Bracket bracket = find_rank<COMPUTING, 2>(shared.rank, length, TOPK, LEAST_KEY,
                                                      NAN_KEY, FEW, at);
      store_best<COMPUTING, 1>(shared.rank, length, TOPK, bracket, at,
                               [&](int i) { return start + i; },
                               args.ids + static_cast<int64_t>(row) * TOPK);
    }
  }
};

}  // namespace
