// The warps that multiply, sum over the heads, and pass on each score.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "cta_barrier.cuh"
#include "feed.cuh"
#include "overlapped_products.cuh"
#include "plan.cuh"
#include "register_shares.cuh"
#include "sinks.cuh"
#include "warpgroup.cuh"

namespace {

// Descriptors of tiles as their lower words: the upper one is the same for all, and a constant. The
// shuffle tells the compiler that they are the same in the whole warp.
__device__ __forceinline__ uint32_t lower_word(const void* tile) {
  return __shfl_sync(FULL, static_cast<uint32_t>(describe_tile(tile)), 0);
}

__device__ __forceinline__ uint64_t descriptor(uint32_t lower) {
  return describe_tile(nullptr) >> 32 << 32 | lower;
}

// Products of the warpgroup's 64 keys with all heads of two queries, under way.
__device__ __forceinline__ void start_products(float (&sums)[64], uint32_t keys,
                                               uint32_t queries) {
  begin_products();
#pragma unroll
  for (int step = 0; step < DIM / 32; ++step) {  // 32 bytes are two units of 16
    multiply_codes(sums, descriptor(keys + 2 * step), descriptor(queries + 2 * step), step > 0);
  }
  close_group();
}

// A negative scale turns its key's products. Lanes with lane & 2 hold the scale of the second row.
__device__ __forceinline__ void turn_products(float (&x)[64], float scale) {
  const int lane = threadIdx.x % 32;
  const float own = copysignf(1.0f, scale), other = __shfl_xor_sync(FULL, own, 2);
  const float signs[2] = {lane & 2 ? other : own, lane & 2 ? own : other};
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] *= signs[i / 2 % 2];
}

// Sum over the heads, without the scale: of query lane & 1 of the two, in the row of the lane's two
// that lane & 2 says. Twice max(x, 0) is x + |x|: two operations at the full rate, where a maximum
// has half of it.
__device__ __forceinline__ float weigh(const float (&x)[64], const float (&weights)[2][16]) {
  float sums[2][2][2] = {};  // [query][row][one of two chains]
#pragma unroll
  for (int i = 0; i < 16; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {  // first of the query, then of the row, then of the column
      const int query = j / 4, row = j / 2 % 2, column = j % 2;
      if (i % 2 != column) continue;
      const float product = x[query * 32 + i / 2 * 4 + row * 2 + column];
      float& sum = sums[query][row][i / 2 % 2];
      sum = fmaf(weights[query][i], product + fabsf(product), sum);
    }
  }
  const int lane = threadIdx.x % 32;
  const bool is_second = lane & 1, is_low = lane & 2;
  float halves[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const float one = sums[0][row][0] + sums[0][row][1];
    const float two = sums[1][row][0] + sums[1][row][1];
    halves[row] = (is_second ? two : one) + __shfl_xor_sync(FULL, is_second ? one : two, 1);
  }
  return (is_low ? halves[1] : halves[0]) +
         __shfl_xor_sync(FULL, is_low ? halves[0] : halves[1], 2);
}

// The row of a tile whose score this lane has in the end.
__device__ __forceinline__ int row_in_tile() {
  const int lane = threadIdx.x % 32;
  return threadIdx.x / 32 * 16 + lane / 4 + (lane & 2) * 4;
}

template <Mode MODE>
__device__ __forceinline__ float load_scale(const Args& args, int place) {
  const int key = key_at<MODE>(place);
  return key < args.num_keys ? __ldg(args.scales + key) : 0.0f;
}

__device__ __forceinline__ void load_weights(const Rows& rows, float (&weights)[BLOCK][16]) {
#pragma unroll
  for (int query = 0; query < BLOCK; ++query) {
    const float4* from = reinterpret_cast<const float4*>(rows.weights[query][threadIdx.x % 4]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 four = from[i];
      weights[query][4 * i] = four.x, weights[query][4 * i + 1] = four.y;
      weights[query][4 * i + 2] = four.z, weights[query][4 * i + 3] = four.w;
    }
  }
}

// What a pair of queries makes of a tile's sums. place: of the lane's key in what is gone through.
template <Mode MODE, int PAIR>
__device__ __forceinline__ void finish_pair(Sink<MODE>& sink, float (&x)[64],
                                            const float (&weights)[BLOCK][16], float scale,
                                            bool turns, int place) {
  if (turns) turn_products(x, scale);
  const float(&of_pair)[2][16] = reinterpret_cast<const float(&)[2][16]>(weights[2 * PAIR]);
  sink.template take<PAIR>(weigh(x, of_pair) * fabsf(scale), place);
}

// Lets the two warpgroups issue their products in turns, so that one weighs while the tensor cores
// work for the other: left alone they may fall into step.
struct Order {
  uint64_t *others, *own;
  uint32_t parity;  // of the other's last issue
  __device__ explicit Order(SharedMemory& shared) {
    const int group = threadIdx.x / 128;
    others = &shared.issued[1 - group], own = &shared.issued[group];
    parity = group == 0;  // the first wait of the first group is none
  }
  __device__ void wait() {
    if (Tuning::ORDERED) wait_own_phase(others, parity);
  }
  __device__ void pass(bool speaks) {
    if (Tuning::ORDERED && speaks) arrive(own);
    parity ^= 1;
  }
};

// While the sums of one pair of queries are weighed, the products of the other are under way, and
// while those are weighed, the products of the other warpgroup.
template <Mode MODE>
__device__ __forceinline__ void compute(SharedMemory& shared, const Args& args) {
  Walk<MODE> walk(shared, args);
  Piece piece;
  Turn<STAGES> stage;
  Turn<2> buffer;
  Order order(shared);
  const bool speaks = threadIdx.x % 32 == 0;
  const uint32_t tiles = lower_word(shared.tiles[0] + threadIdx.x / 128 * GROUP_BYTES);
  while (walk.next(piece)) {
    wait_own_phase(&shared.full[stage.at], stage.parity);  // the queries have landed too
    const Rows& rows = shared.rows[buffer.at];
    Sink<MODE> sink(shared, args, piece, rows);
    float weights[BLOCK][16], first[64] = {}, second[64] = {};
    load_weights(rows, weights);
    const uint32_t queries = lower_word(shared.queries[buffer.at]);
    const int row = row_in_tile();
    int next_place = place_of(piece.first, row);
    float next_scale = load_scale<MODE>(args, next_place);
#pragma unroll 1
    for (int tile = piece.first; tile < piece.first + piece.tiles; ++tile) {
      wait_own_phase(&shared.full[stage.at], stage.parity);
      const uint32_t keys = tiles + stage.at * (TILE_BYTES >> 4);
      order.wait();
      start_products(first, keys, queries);
      start_products(second, keys, queries + (2 * QUERY_BYTES >> 4));
      order.pass(speaks);
      const int place = next_place;
      const float scale = next_scale;
      next_place = place_of(tile + 1, row);
      next_scale = load_scale<MODE>(args, next_place);
      const bool turns = __any_sync(FULL, scale < 0.0f);
      await_sums<1>(first);
      finish_pair<MODE, 0>(sink, first, weights, scale, turns, place);
      await_sums<0>(second);
      if (speaks) arrive(&shared.free[stage.at]);
      stage.advance();
      finish_pair<MODE, 1>(sink, second, weights, scale, turns, place);
      sink.settle();
    }
    sink.close(shared, args, piece, rows);
    if (speaks) arrive(&shared.block_free[buffer.at]);
    buffer.advance();
  }
}

}  // namespace
