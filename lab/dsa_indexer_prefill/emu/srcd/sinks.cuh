// Where scores go: samples, candidates, or, in the repair, memory and a selection from there.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "plan.cuh"
#include "rank.cuh"

namespace {

// A lane takes the scores of two queries of the block: lane & 1, and two on.
__device__ __forceinline__ int query_of(int pair) { return 2 * pair + threadIdx.x % 2; }

// Ranges of the lane's queries, as far as they are scored.
struct Ranges {
  int start[2];
  uint32_t length[2];
  __device__ explicit Ranges(const Rows& rows) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      start[pair] = rows.start[query_of(pair)], length[pair] = rows.length[query_of(pair)];
    }
  }
  template <int PAIR>
  __device__ bool holds(int key) const {
    return static_cast<uint32_t>(key - start[PAIR]) < length[PAIR];
  }
};

template <Mode MODE>
struct Sink;

template <>
struct Sink<Mode::SAMPLE> {
  Ranges ranges;
  float* samples[2];

  __device__ Sink(SharedMemory&, const Args& args, const Piece&, const Rows& rows) : ranges(rows) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int row = max(rows.row[query_of(pair)], 0);
      samples[pair] = args.samples + static_cast<int64_t>(row) * args.slots;
    }
  }
  template <int PAIR>
  __device__ void take(float score, int slot) {
    if (ranges.holds<PAIR>(sampled_key(slot))) samples[PAIR][slot] = score;
  }
  __device__ void settle() {}
  __device__ void close(SharedMemory&, const Args&, const Piece&, const Rows&) {}
};

// Each warp has a segment of a query's candidates to itself: places follow from votes alone. Of the
// scores at the threshold it stores a few. Then they are dropped: none of the best is lost where
// 2048 at or above the threshold are stored. So a tie at the border, of however many keys, needs no
// repair.
template <>
struct Sink<Mode::FILTER> {
  Ranges ranges;
  uint2* candidates;
  float* debug[2];
  float threshold[2];
  uint32_t place[2], end[2], tie_end[2];
  uint32_t own, before;  // lanes with the same queries; those in front of this one

  __device__ Sink(SharedMemory& shared, const Args& args, const Piece& piece, const Rows& rows)
      : ranges(rows), candidates(args.candidates) {
    own = 0x55555555u << threadIdx.x % 2, before = own & ((1u << threadIdx.x % 32) - 1);
    const int order = blockIdx.x - first_cta(shared, args, piece.block);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      threshold[pair] = rows.threshold[query_of(pair)];
      debug[pair] = args.debug + static_cast<int64_t>(max(rows.row[query_of(pair)], 0)) * args.num_keys;
      place[pair] = segment(args, rows, pair, order) * CAPACITY;
      end[pair] = place[pair] + CAPACITY;
      tie_end[pair] = place[pair] + ties(rows, pair, piece);
    }
  }

  static __device__ int first_cta(const SharedMemory& shared, const Args& args, int block) {
    const int total = shared.before[(args.num_queries + BLOCK - 1) / BLOCK];
    return owner_of(shared.before[block], total);
  }
  static __device__ int segment(const Args& args, const Rows& rows, int pair, int order) {
    const int query = query_of(pair), row = max(rows.row[query], 0);
    return area_of(args, row, query, blockIdx.x, order) * SEGMENTS + threadIdx.x / 32;
  }
  // The piece's share of Tuning::TIES, by its share of the query's tiles.
  static __device__ int ties(const Rows& rows, int pair, const Piece& piece) {
    const Range range = {rows.start[query_of(pair)], rows.length[query_of(pair)]};
    if (range.length == 0) return 0;
    const int first = max(piece.first, range.first_tile()), tiles = range.tiles();
    const int last = min(piece.first + piece.tiles, range.first_tile() + tiles);
    return Tuning::TIES * max(last - first, 0) / tiles + 1;
  }

  template <int PAIR>
  __device__ void take(float score, int key) {
    if (ranges.holds<PAIR>(key)) debug[PAIR][key] = score;
    const bool passes = ranges.holds<PAIR>(key) && !(score < threshold[PAIR]);  // or is no number
    const uint32_t all = __ballot_sync(FULL, passes);
    if (all == 0) return;
    const uint32_t at = place[PAIR] + __popc(all & before);
    if (passes && at < end[PAIR]) candidates[at] = make_uint2(__float_as_uint(score), key);
    place[PAIR] += __popc(all & own);
  }

  // After each tile: in a segment that is full enough, scores at the threshold no longer pass.
  __device__ void settle() {
    if (!__any_sync(FULL, place[0] >= tie_end[0] || place[1] >= tie_end[1])) return;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      if (place[pair] < tie_end[pair]) continue;
      threshold[pair] = fminf(score_of(key_of(threshold[pair]) + 1), INFINITY);
      tie_end[pair] = ~0u;
    }
  }

  __device__ void close(SharedMemory& shared, const Args& args, const Piece& piece,
                        const Rows& rows) {
    const int first = first_cta(shared, args, piece.block), order = blockIdx.x - first;
    if (threadIdx.x == 0 && order == 0) {
      const int total = shared.before[(args.num_queries + BLOCK - 1) / BLOCK];
      const int last = owner_of(shared.before[piece.block + 1] - 1, total);
      args.shares[piece.block] = make_int2(first, last - first + 1);
    }
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int at = segment(args, rows, pair, order);
      if (threadIdx.x % 32 < 2 && rows.row[query_of(pair)] >= 0) {
        args.counts[at] = place[pair] - at * CAPACITY;
      }
    }
  }
};

template <>
struct Sink<Mode::REPAIR> {
  Ranges ranges;
  uint32_t* keys[2];

  static __device__ uint32_t* keys_of(const Args& args, int query) {
    return args.keys + (static_cast<int64_t>(blockIdx.x) * BLOCK + query) * args.num_keys;
  }
  __device__ Sink(SharedMemory&, const Args& args, const Piece&, const Rows& rows) : ranges(rows) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) keys[pair] = keys_of(args, query_of(pair));
  }
  template <int PAIR>
  __device__ void take(float score, int key) {
    if (ranges.holds<PAIR>(key)) keys[PAIR][key] = key_of(score);
  }
  __device__ void settle() {}
  __device__ void close(SharedMemory& shared, const Args& args, const Piece&, const Rows& rows) {
    sync_first<COMPUTING>();  // all scores are stored
    for (int query = 0; query < BLOCK; ++query) {
      const int row = rows.row[query], start = rows.start[query], length = rows.length[query];
      if (row < 0) break;
      const uint32_t* found = keys_of(args, query) + start;
      const auto at = [&](int i) { return found[i]; };
      const Rank rank =
          find_rank<COMPUTING, 16>(shared.rank, length, TOPK, LEAST_KEY, NAN_KEY, at);
      store_best<COMPUTING>(shared.rank, length, TOPK, rank, at, [&](int i) { return start + i; },
                            args.ids + static_cast<int64_t>(row) * TOPK);
    }
  }
};

}  // namespace
