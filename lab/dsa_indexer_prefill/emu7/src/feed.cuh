// The warps that fetch keys and queries into shared memory.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "multicast.cuh"
#include "multicast_rows.cuh"
#include "plan.cuh"
#include "programmatic_launch.cuh"
#include "small_copy.cuh"
#include "tensor_map.cuh"
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
  __device__ void advance(int count) {
    at += count;
    if (at < COUNT) return;
    at -= COUNT, parity ^= 1;
  }
};

// The same for two buffers.
struct Side {
  uint32_t turn = 0;
  __device__ uint32_t at() const { return turn % 2; }
  __device__ uint32_t parity() const { return turn / 2 % 2; }
  __device__ void advance() { ++turn; }
};

// A thread takes chunk t % 8 of row t / 8 and of each 16th row on: 512 bytes in a row a warp.
constexpr int ROWS_AT_ONCE = FEEDING / 8;
static_assert(ROWS_AT_ONCE == ROWS, "a row of each group");
static_assert(FEEDING == 2 * HEADS && BLOCK == 4, "a thread has a head of one query of each pair");

__device__ __forceinline__ int feeder() { return threadIdx.x - COMPUTING; }

// A tile's rows are its keys (or slots of the sample), moved on as place_of() says: groups of 16
// rows change places, from tile to tile.
__device__ __forceinline__ uint8_t* group_of_rows(SharedMemory& shared, int stage, int tile,
                                                  int group) {
  return shared.tiles[stage] + (group - tile & SEGMENTS - 1) * ROWS * DIM;
}

// Sampled keys lie anywhere. The thread takes a chunk of a row of each group.
__device__ __forceinline__ void gather_tile(SharedMemory& shared, const Args& args, int stage,
                                            int tile) {
  const int row = feeder() / 8, chunk = feeder() % 8;
#pragma unroll 2
  for (int group = 0; group < SEGMENTS; ++group) {
    const int key = sampled_key(args.stretch, tile * TILE + group * ROWS + row);
    const bool is_there = key < args.num_keys;
    copy_chunk_or_clear(group_of_rows(shared, stage, tile, group) + swizzled(row, chunk),
                        args.codes + static_cast<int64_t>(is_there ? key : 0) * DIM + chunk * 16,
                        is_there);
  }
  const int key = sampled_key(args.stretch, place_of(tile, feeder()));
  if (key < args.num_keys) copy_word(&shared.scales[stage][feeder()], args.scales + key);
  arrive_with_copies(&shared.full[stage]);
}

// Four keys' scales a lane: their rows follow one another.
__device__ __forceinline__ void request_scales(SharedMemory& shared, const Args& args, int stage,
                                               int tile) {
  const int at = 4 * (feeder() % 32), key = tile * TILE + at;
  float* to = &shared.scales[stage][at - tile * ROWS & TILE - 1];
  const float* from = args.scales + key;
  if (key + 4 <= args.num_keys) return copy_chunk(to, from);
  for (int i = 0; key + i < args.num_keys; ++i) copy_word(to + i, from + i);
}

// All keys: a warp has a tile to itself, and the copy engine to fetch it, which fills up what lies
// behind the last key with zeros. Of a pair each CTA fetches every other group, for both.
template <Mode MODE>
__device__ __forceinline__ void fetch_tile(SharedMemory& shared, const Args& args, int stage,
                                           int tile) {
  request_scales(shared, args, stage, tile);
  arrive_with_copies(&shared.full[stage]);
  if (feeder() % 32 != 0) return;
  arrive_expecting(&shared.full[stage], TILE_BYTES);
#pragma unroll 1
  for (int group = blockIdx.x % team<MODE>(); group < SEGMENTS; group += team<MODE>()) {
    uint8_t* to = group_of_rows(shared, stage, tile, group);
    const int key = tile * TILE + group * ROWS;
    if (MODE == Mode::FILTER) {
      copy_box_to((1 << PAIR) - 1, to, &args.map, &shared.full[stage], 0, key);
    } else {
      copy_box(to, &args.map, &shared.full[stage], 0, key);
    }
  }
}

// Until nobody reads the stage any more, in either CTA of a pair: two lanes tell both that this one
// is through with it.
template <Mode MODE>
__device__ __forceinline__ void await_free_stage(SharedMemory& shared, const Turn<STAGES>& stage) {
  wait_cta_phase(&shared.free[stage.at], stage.parity ^ 1);
  if (MODE != Mode::FILTER) return;
  if (feeder() % 32 < PAIR) arrive_at(&shared.free_in_both[stage.at], feeder() % 32);
  wait_cta_phase(&shared.free_in_both[stage.at], stage.parity);
}

template <Mode MODE>
__device__ __forceinline__ void request_queries(SharedMemory& shared, const Args& args, int buffer,
                                                int block) {
  const int head = feeder() / 8, chunk = feeder() % 8;
#pragma unroll 1
  for (int query = 0; query < BLOCK; ++query) {
    const int row = max(row_of<MODE>(args, block, query), 0);
    const uint8_t* from = args.query + static_cast<int64_t>(row) * QUERY_BYTES + feeder() * 16;
    uint8_t* to = shared.queries[buffer] + query / 2 * PAIR_BYTES +
                  swizzled(column_of(query % 2, head), chunk);
#pragma unroll 1
    for (int i = 0; i < HEADS / ROWS_AT_ONCE; ++i) {
      copy_chunk(to + i * 2 * ROWS_AT_ONCE * DIM, from + i * ROWS_AT_ONCE * DIM);
    }
  }
}

// Weights where the lanes hold the heads' products; halved where these come as 2 max(x, 0).
template <Mode MODE>
__device__ __forceinline__ void place_rows(SharedMemory& shared, const Args& args, int buffer,
                                           int block) {
  Rows& rows = shared.rows[buffer];
  const int head = feeder() % HEADS, query = feeder() / HEADS;
  float weights[2];
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const int row = max(row_of<MODE>(args, block, 2 * pair + query), 0);
    weights[pair] = __ldg(args.weights + row * HEADS + head);
  }
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    rows.weights[pair][lane_of(query, head)][weight_place(head)] =
        (head % 2 ? 1.0f : 0.5f) * weights[pair];
  }
  if (feeder() >= BLOCK) return;
  const int row = row_of<MODE>(args, block, feeder());
  const float threshold = MODE == Mode::FILTER ? args.thresholds[max(row, 0)] : 0.0f;
  const Range range = row < 0 ? Range{0, 0} : load_range(args, row);
  const bool is_scored = range.length > unscored<MODE>();
  rows.row[feeder()] = row;
  rows.start[feeder()] = range.start;
  rows.length[feeder()] = is_scored ? range.length : 0;
  rows.threshold[feeder()] = threshold;
}

template <Mode MODE>
__device__ __forceinline__ void feed(SharedMemory& shared, const Args& args) {
  constexpr bool IS_SAMPLE = MODE == Mode::SAMPLE;
  constexpr int STEP = IS_SAMPLE ? 1 : FEEDING / 32;
  constexpr int EARLY = IS_SAMPLE ? 3 : 1;  // requests that are on their way while queries land
  if (MODE != Mode::FILTER) wait_for_launches_before();
  Walk<MODE> walk(shared, args);
  Piece piece;
  Turn<STAGES> stage;
  Side buffer;
  int ahead = IS_SAMPLE ? 0 : __shfl_sync(FULL, feeder() / 32, 0);  // tiles before my next one
  stage.advance(ahead);
  for (bool is_last = false; !is_last; buffer.advance()) {
    is_last = !walk.next(piece);
    wait_cta_phase(&shared.block_free[buffer.at()], buffer.parity() ^ 1);  // the first wait is none
    if (feeder() == 0) shared.rows[buffer.at()].piece = piece;
    if (!is_last) request_queries<MODE>(shared, args, buffer.at(), piece.block);
    const int end = piece.first + piece.tiles;
    int tile = piece.first + ahead;
    const auto request = [&] {
      await_free_stage<MODE>(shared, stage);
      if (IS_SAMPLE) {
        gather_tile(shared, args, stage.at, tile);
      } else {
        fetch_tile<MODE>(shared, args, stage.at, tile);
      }
      stage.advance(STEP), tile += STEP;
    };
#pragma unroll 1
    for (int i = 0; i < EARLY && tile < end; ++i) request();
    if (MODE == Mode::FILTER) wait_for_launches_before();  // for thresholds: the rest are inputs
    if (!is_last) place_rows<MODE>(shared, args, buffer.at(), piece.block);
    commit_copies();
    wait_copies<0>();
    publish_shared();
    arrive(&shared.block_full[buffer.at()]);
#pragma unroll 1
    while (tile < end) request();
    ahead = tile - end;
  }
}

}  // namespace
