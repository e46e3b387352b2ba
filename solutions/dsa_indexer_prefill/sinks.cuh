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

// Each warp has a part of a query's candidates to itself, of which the piece has a segment: places
// follow from votes alone. A score at the threshold is stored while the segment holds few. From
// then on it is dropped: none of the best is lost where 2048 at or above the threshold are stored.
// So a tie at the border, of however many keys, needs no repair.
template <>
struct Sink<Mode::FILTER> {
  Ranges ranges;
  uint2* candidates;
  float threshold[2];
  uint32_t place[2], end[2], tie_end[2];
  uint32_t own, before;  // lanes with the same queries; those in front of this one

  __device__ Sink(SharedMemory& shared, const Args& args, const Piece& piece, const Rows& rows)
      : ranges(rows), candidates(args.candidates) {
    own = 0x55555555u << threadIdx.x % 2, before = own & ((1u << threadIdx.x % 32) - 1);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      threshold[pair] = rows.threshold[query_of(pair)];
      const Segment segment = find(shared, args, piece, rows, pair, place[pair]);
      end[pair] = place[pair] + segment.size, tie_end[pair] = place[pair] + segment.ties;
    }
  }

  // The segment of a query, and the place of its first candidate among all.
  static __device__ Segment find(const SharedMemory& shared, const Args& args, const Piece& piece,
                                 const Rows& rows, int pair, uint32_t& begin) {
    const int query = query_of(pair), row = max(rows.row[query], 0), warp = threadIdx.x / 32;
    const Range range = {rows.start[query], rows.length[query]};
    const int2 line = order_of(shared, args, piece.block);
    const Segment segment =
        find_segment(range, make_int2(piece.first, piece.tiles), line.x, line.y, args.capacity);
    begin = (row * SEGMENTS + warp) * args.capacity + segment.begin;
    return segment;
  }

  // Which of its pieces a CTA has of a block, and how many there are.
  static __device__ int2 order_of(const SharedMemory& shared, const Args& args, int block) {
    const int total = shared.before[(args.num_queries + BLOCK - 1) / BLOCK];
    const int first = owner_of(shared.before[block], total, shared.ctas);
    const int last = owner_of(shared.before[block + 1] - 1, total, shared.ctas);
    return make_int2(blockIdx.x - first, last - first + 1);
  }

  template <int PAIR>
  __device__ void take(float score, int key) {
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
    const int2 line = order_of(shared, args, piece.block);
    if (threadIdx.x == 0) {
      args.pieces[piece.block * args.most_pieces + line.x] = make_int2(piece.first, piece.tiles);
      if (line.x == 0) args.piece_counts[piece.block] = line.y;
    }
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int row = rows.row[query_of(pair)];
      uint32_t begin;
      find(shared, args, piece, rows, pair, begin);
      if (threadIdx.x % 32 < 2 && row >= 0) {
        const int at = (row * args.most_pieces + line.x) * SEGMENTS + threadIdx.x / 32;
        args.counts[at] = place[pair] - begin;
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
