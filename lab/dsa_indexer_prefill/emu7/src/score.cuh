// The warps that multiply, sum over the heads, and pass on each score.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "feed.cuh"
#include "overlapped_products.cuh"
#include "plan.cuh"
#include "positive_part.cuh"
#include "programmatic_launch.cuh"
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

// Products of the warpgroup's keys with all heads of its two queries, under way.
__device__ __forceinline__ void start_products(float (&sums)[64], uint32_t keys,
                                               uint32_t queries) {
  begin_products();
#pragma unroll
  for (int step = 0; step < DIM / 32; ++step) {  // 32 bytes are two units of 16
    multiply_codes(sums, descriptor(keys + 2 * step), descriptor(queries + 2 * step), step > 0);
  }
  close_group();
}

// A negative scale turns its key's products. The lane has the scale of the first or second row of
// its two.
__device__ __forceinline__ void turn_products(float (&x)[64], float scale,
                                              bool is_second) {
  const float own = copysignf(1.0f, scale), other = __shfl_xor_sync(FULL, own, 2);
  const float signs[2] = {is_second ? other : own, is_second ? own : other};
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] *= signs[i / 2 % 2];
}

// A score that is as good as computed: the sums over half of the heads each, and the scale.
struct Score {
  float own, other, scale;
  __device__ float value() const { return (own + other) * scale; }
};

// Sums over the heads of the lane's query, in the first or second row of its two. Twice max(x, 0)
// is x + |x|, which the units of the multiply-adds compute; a maximum is the work of others, at
// half their rate. Each takes every other head.
__device__ __forceinline__ Score weigh(const float (&x)[64], const float (&weights)[32],
                                       float scale, bool is_second) {
  float sums[2][2] = {};  // [row][of even or odd heads]
#pragma unroll
  for (int i = 0; i < 32; ++i) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float product = x[i / 2 * 4 + row * 2 + i % 2];
      const float positive = i % 2 ? positive_or_nan(product) : product + fabsf(product);
      sums[row][i % 2] = fmaf(weights[i], positive, sums[row][i % 2]);
    }
  }
  const float first = sums[0][0] + sums[0][1], second = sums[1][0] + sums[1][1];
  const float others = __shfl_xor_sync(FULL, is_second ? first : second, 2);
  return {is_second ? second : first, others, fabsf(scale)};
}

// The row of a tile whose score this lane has in the end.
__device__ __forceinline__ int row_in_tile() {
  const int lane = threadIdx.x % 32;
  return threadIdx.x / 32 % SEGMENTS * ROWS + lane / 4 + (lane & 2) * 4;
}

__device__ __forceinline__ void load_weights(const Rows& rows, float (&weights)[32]) {
  const float* own = rows.weights[threadIdx.x / 256][threadIdx.x % 4];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float4 four = reinterpret_cast<const float4*>(own)[i];
    weights[4 * i] = four.x, weights[4 * i + 1] = four.y;
    weights[4 * i + 2] = four.z, weights[4 * i + 3] = four.w;
  }
}

// Warpgroups: two halves of a tile's keys by two pairs of queries. While one weighs its sums, the
// products of others are under way; while its own are, it passes on the scores of the tile before.
template <Mode MODE>
__device__ __forceinline__ void compute(SharedMemory& shared, const Args& args) {
  wait_for_launches_before();  // what is stored takes the place of what they read
  Turn<STAGES> stage;
  Side buffer;
  // What a shuffle returns is kept in its register, not computed anew for each tile.
  const int row = __shfl_sync(FULL, row_in_tile(), threadIdx.x % 32);
  const bool speaks = row % ROWS == 0;  // SPEAKERS lanes of a warp
  const uint32_t tiles = lower_word(shared.tiles[0] + threadIdx.x / 128 % 2 * HALF_BYTES);
  while (true) {
    wait_cta_phase(&shared.block_full[buffer.at()], buffer.parity());
    const Rows& rows = shared.rows[buffer.at()];
    const int first = __shfl_sync(FULL, rows.piece.first, 0);  // the same in the whole warp
    const int end = first + __shfl_sync(FULL, rows.piece.tiles, 0);
    if (first == end) return;
    Sink<MODE> sink(shared, args, rows);
    float weights[32], x[64] = {};
    Score score = {};
    load_weights(rows, weights);
    const uint32_t queries =
        lower_word(shared.queries[buffer.at()] + threadIdx.x / 256 * PAIR_BYTES);
#pragma unroll 1
    for (int tile = first; tile < end; ++tile) {
      wait_cta_phase(&shared.full[stage.at], stage.parity);
      if (MODE == Mode::SAMPLE) publish_shared();  // what others' copies wrote
      start_products(x, tiles + stage.at * (TILE_BYTES >> 4), queries);
      const float scale = shared.scales[stage.at][row];
      if (tile > first) sink.take(score.value(), place_of(tile - 1, row));
      const bool turns = __any_sync(FULL, scale < 0.0f);  // and all lanes have read theirs
      await_sums<0>(x);
      if (speaks) arrive(&shared.free[stage.at]);
      stage.advance();
      if (turns) turn_products(x, scale, row & 8);
      score = weigh(x, weights, scale, row & 8);
    }
    sink.take(score.value(), place_of(end - 1, row));
    sink.close(shared, args, rows);
    __syncwarp();  // no lane reads rows from here on
    if (speaks) arrive(&shared.block_free[buffer.at()]);
    buffer.advance();
  }
}

}  // namespace
