// Where scores go: samples, candidates, or, in the repair, memory and a selection from there.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "lane_now.cuh"
#include "plan.cuh"
#include "rank.cuh"

namespace {

// A lane takes the scores of one query of the block.
__device__ __forceinline__ int own_query() { return threadIdx.x / 256 * 2 + threadIdx.x % 2; }

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
  __device__ void take(float score, int slot) {
    if (range.holds(sampled_key(stretch, slot))) samples[slot] = score;
  }
  __device__ void close(SharedMemory&, const Args&, const Rows&) {}
};

// Each warp has a segment of a query's candidates to itself: places follow from votes alone. Of the
// scores at the threshold it stores a few. Then they are dropped: none of the best is lost where
// 2048 at or above the threshold are stored. So a tie at the border, of however many keys, needs no
// repair.
template <>
struct Sink<Mode::FILTER> {
  OwnRange range;
  uint2* candidates;
  float threshold;
  uint32_t place, limit;  // one vote more than the ties may take; then the end of the segment

  __device__ Sink(SharedMemory& shared, const Args& args, const Rows& rows)
      : range(rows), candidates(args.candidates), threshold(rows.threshold[own_query()]) {
    place = segment(shared, args, rows) * CAPACITY;
    limit = place + ties(rows) + ROWS;
  }

  // Whether the block's first tile is one of the piece.
  static __device__ bool begins(const SharedMemory& shared, const Piece& piece) {
    return piece.first == shared.first_tile[piece.block / PAIR];
  }
  static __device__ int segment(const SharedMemory& shared, const Args& args, const Rows& rows) {
    const int query = own_query(), row = max(rows.row[query], 0);
    const int area = area_of(args, row, query, blockIdx.x, begins(shared, rows.piece));
    return area * SEGMENTS + threadIdx.x / 32 % SEGMENTS;
  }
  // The piece's share of Tuning::TIES, by its share of the query's tiles.
  static __device__ int ties(const Rows& rows) {
    const Piece& piece = rows.piece;
    const Range range = {rows.start[own_query()], rows.length[own_query()]};
    if (range.length == 0) return 1;
    const int first = max(piece.first, range.first_tile()), tiles = range.tiles();
    const int last = min(piece.first + piece.tiles, range.first_tile() + tiles);
    return Tuning::TIES * max(last - first, 0) / tiles + 1;
  }

  __device__ void take(float score, int key) {
    const bool passes = range.holds(key) && !(score < threshold);  // or is no number
    if (!__any_sync(FULL, passes)) return;
    const uint32_t of_query = 0x55555555u << thread_index_now() % 2;  // lanes with the same
    const uint32_t own = __ballot_sync(FULL, passes) & of_query;
    const uint32_t at = place + __popc(own & lanes_before_now());
    if (passes && at < limit) candidates[at] = make_uint2(__float_as_uint(score), key);
    place += __popc(own);
    const bool is_full = place + ROWS > limit;
    if (!__any_sync(FULL, is_full)) return;
    // From here on scores at the threshold no longer pass.
    const uint32_t beyond = limit % CAPACITY;
    if (!is_full || beyond == 0) return;
    limit += CAPACITY - beyond;
    if (threshold < INFINITY) threshold = score_of(key_of(threshold) + 1);
  }

  __device__ void close(SharedMemory& shared, const Args& args, const Rows& rows) {
    const bool is_there = rows.row[0] >= 0;  // the last pair may be half of one
    if (threadIdx.x == 0 && is_there && begins(shared, rows.piece)) {
      const int total = shared.before[count_blocks<Mode::FILTER>(args)];
      const int last = owner_of(shared.before[rows.piece.block / PAIR + 1] - 1, total);
      args.shares[rows.piece.block] = make_int2(blockIdx.x, last - blockIdx.x / PAIR + 1);
    }
    const int at = segment(shared, args, rows);
    if (threadIdx.x % 32 < 2 && rows.row[own_query()] >= 0) {
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
  __device__ void take(float score, int key) {
    if (OwnRange(rows).holds(key)) keys[key] = key_of(score);
  }
  __device__ void close(SharedMemory& shared, const Args& args, const Rows& rows) {
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
