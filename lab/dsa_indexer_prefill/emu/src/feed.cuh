// The warps that fetch keys and queries into shared memory.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "cta_barrier.cuh"
#include "plan.cuh"
#include "warpgroup.cuh"

namespace {

// A place in a ring of COUNT buffers, and the parity of the phase in which it is filled.
template <int COUNT>
struct Turn {
  int at = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++at < COUNT) return;
    at = 0, parity ^= 1;
  }
};

// A thread takes chunk t % 8 of row t / 8 and of each 16th row on: 512 bytes in a row a warp.
constexpr int ROWS_AT_ONCE = FEEDING / 8;

__device__ __forceinline__ int feeder() { return threadIdx.x - COMPUTING; }

template <Mode MODE>
__device__ __forceinline__ void request_tile(SharedMemory& shared, const Args& args, int stage,
                                             int tile) {
  const int row = feeder() / 8, chunk = feeder() % 8;
  uint8_t* to = shared.tiles[stage] + swizzled(row, chunk);
  const uint8_t* from = args.codes + chunk * 16;
#pragma unroll
  for (int i = 0; i < TILE / ROWS_AT_ONCE; ++i) {
    const int key = key_at<MODE>(place_of(tile, row + i * ROWS_AT_ONCE));
    const bool is_there = key < args.num_keys;
    copy_chunk_or_clear(to + i * ROWS_AT_ONCE * DIM,
                        from + static_cast<int64_t>(is_there ? key : 0) * DIM, is_there);
  }
}

template <Mode MODE>
__device__ __forceinline__ void request_queries(SharedMemory& shared, const Args& args, int buffer,
                                                int block) {
  const int head = feeder() / 8, chunk = feeder() % 8;
  uint8_t* to = shared.queries[buffer] + swizzled(head, chunk);
#pragma unroll 1
  for (int query = 0; query < BLOCK; ++query) {
    const int row = max(row_of<MODE>(args, block, query), 0);
    const uint8_t* from = args.query + static_cast<int64_t>(row) * QUERY_BYTES + feeder() * 16;
#pragma unroll
    for (int i = 0; i < HEADS / ROWS_AT_ONCE; ++i) {
      copy_chunk(to + query * QUERY_BYTES + i * ROWS_AT_ONCE * DIM, from + i * ROWS_AT_ONCE * DIM);
    }
  }
}

// Weights in the order in which the lanes hold the heads' products, halved: what they meet is
// 2 max(x, 0).
template <Mode MODE>
__device__ __forceinline__ void place_rows(SharedMemory& shared, const Args& args, int buffer,
                                           int block) {
  Rows& rows = shared.rows[buffer];
  const int head = feeder() % HEADS, lane = head / 2 % 4, slot = head / 8 * 2 + head % 2;
#pragma unroll
  for (int query = feeder() / HEADS; query < BLOCK; query += FEEDING / HEADS) {
    const int row = max(row_of<MODE>(args, block, query), 0);
    rows.weights[query][lane][slot] = 0.5f * __ldg(args.weights + row * HEADS + head);
  }
  if (feeder() >= BLOCK) return;
  const int row = row_of<MODE>(args, block, feeder());
  const Range range = row < 0 ? Range{0, 0} : load_range(args, row);
  const bool is_scored = range.length > unscored<MODE>();
  rows.row[feeder()] = row;
  rows.start[feeder()] = range.start;
  rows.length[feeder()] = is_scored ? range.length : 0;
  rows.threshold[feeder()] = MODE == Mode::FILTER && is_scored ? args.thresholds[row] : 0.0f;
}

// Tells the warps that compute of tiles once they have landed, LAG behind their request.
struct Announcer {
  Turn<STAGES> next;
  int pending = 0;

  __device__ void announce(SharedMemory& shared) {
    publish_shared();
    arrive(&shared.full[next.at]);
    next.advance();
    --pending;
  }
  __device__ void request_made(SharedMemory& shared) {
    commit_copies();
    if (++pending <= LAG) return;
    wait_copies<LAG>();
    announce(shared);
  }
  __device__ void finish(SharedMemory& shared) {
    wait_copies<0>();
    while (pending > 0) announce(shared);
  }
};

template <Mode MODE>
__device__ __forceinline__ void feed(SharedMemory& shared, const Args& args) {
  Walk<MODE> walk(shared, args);
  Piece piece;
  Turn<STAGES> stage;
  Turn<2> buffer;
  Announcer announcer;
  while (walk.next(piece)) {
    // The block before the last may still wait for tiles that I hold back.
    announcer.finish(shared);
    wait_own_phase(&shared.block_free[buffer.at], buffer.parity ^ 1);  // the first wait is none
    request_queries<MODE>(shared, args, buffer.at, piece.block);
    place_rows<MODE>(shared, args, buffer.at, piece.block);
    for (int tile = piece.first; tile < piece.first + piece.tiles; ++tile) {
      wait_own_phase(&shared.free[stage.at], stage.parity ^ 1);
      request_tile<MODE>(shared, args, stage.at, tile);
      announcer.request_made(shared);
      stage.advance();
    }
    buffer.advance();
  }
  announcer.finish(shared);
}

}  // namespace
