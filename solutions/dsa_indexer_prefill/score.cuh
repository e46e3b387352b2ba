// The warps that multiply, sum over the heads, and pass on each score.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "feed.cuh"
#include "overlapped_products.cuh"
#include "plan.cuh"
#include "positive_pair.cuh"
#include "programmatic_launch.cuh"
#include "register_shares.cuh"
#include "sinks.cuh"
#include "tensor_core_f16.cuh"
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

// A negative scale turns its key's products; large ones shrink. The lane has the scale of the first
// or second row of its two.
__device__ __forceinline__ void turn_products(float (&x)[64], float scale, bool is_large,
                                              bool is_second) {
  const float own = copysignf(is_large ? SHRUNK : 1.0f, scale);
  const float other = __shfl_xor_sync(FULL, own, 2);
  const float signs[2] = {is_second ? other : own, is_second ? own : other};
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] *= signs[i / 2 % 2];
}

// A score that is as good as computed: the sums with both parts of the weights, and the scale.
struct Score {
  float high, low, scale;
  __device__ float value() const { return (high + low) * scale; }
};

// The weights of a pair of queries as second operands of the tensor cores. unit: what sums of the
// lane's query are to be multiplied by.
struct Weights {
  uint32_t of[2][HEAD_GROUPS][2];  // [query][16 heads][8 of them]
  float unit;
  bool is_large;
};

// Sums over the heads, by the tensor cores as well: positive parts, rounded to fp16, lie in the
// registers in which the products end as a first operand of them. All even columns of the second
// one are the upper parts of the weights, all odd ones the lower parts, so that each lane finds the
// sums of its score, of one query and row, among its own. Queries have sums of their own each: 0
// times what is no number would be none.
__device__ __forceinline__ Score weigh(const float (&x)[64], const Weights& weights, float scale,
                                       bool is_second) {
  float sums[2][4] = {};
#pragma unroll
  for (int group = 0; group < HEAD_GROUPS; ++group) {
#pragma unroll
    for (int query = 0; query < 2; ++query) {
      const float* of = x + (query * HEAD_GROUPS + group) * 8;
      const uint32_t positive[4] = {positive_pair(of[0], of[1]), positive_pair(of[2], of[3]),
                                    positive_pair(of[4], of[5]), positive_pair(of[6], of[7])};
      const auto& weight = weights.of[query][group];
      multiply_f16(sums[query], positive, weight[0], weight[1]);
    }
  }
  const bool is_second_query = threadIdx.x % 2;
  float parts[2];
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const float first = is_second ? sums[0][part + 2] : sums[0][part];
    const float second = is_second ? sums[1][part + 2] : sums[1][part];
    parts[part] = is_second_query ? second : first;
  }
  return {parts[0], parts[1], fabsf(scale) * weights.unit};
}

// The row of a tile whose score this lane has in the end.
__device__ __forceinline__ int row_in_tile() {
  const int lane = threadIdx.x % 32;
  return threadIdx.x / 32 % SEGMENTS * ROWS + lane / 4 + (lane & 2) * 4;
}

// Column l / 4 of the second operand is lane l's.
__device__ __forceinline__ Weights load_weights(const Rows& rows) {
  const auto* own =
      reinterpret_cast<const uint4*>(rows.weights[threadIdx.x / 256][threadIdx.x % 8]);
  Weights weights;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4 four = own[i];
    auto& first = weights.of[i / 2][i % 2 * 2];
    auto& second = weights.of[i / 2][i % 2 * 2 + 1];
    first[0] = four.x, first[1] = four.y, second[0] = four.z, second[1] = four.w;
  }
  const int4 large = *reinterpret_cast<const int4*>(rows.is_large[threadIdx.x / 256]);
  weights.is_large = (large.x | large.y | large.z | large.w) != 0;
  weights.unit = rows.unit[own_query()] * (weights.is_large ? 1.0f / SHRUNK : 1.0f);
  return weights;
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
    float x[64] = {};
    Score score = {};
    const Weights weights = load_weights(rows);
    const uint32_t queries =
        lower_word(shared.queries[buffer.at()] + threadIdx.x / 256 * PAIR_BYTES);
#pragma unroll 1
    for (int tile = first; tile < end; ++tile) {
      wait_cta_phase(&shared.full[stage.at], stage.parity);
      if (MODE == Mode::SAMPLE) publish_shared();  // what others' copies wrote
      start_products(x, tiles + stage.at * (TILE_BYTES >> 4), queries);
      const float scale = shared.scales[stage.at][row];
      if (tile > first) sink.take(score.value(), place_of(tile - 1, row));
      // All lanes have read theirs.
      const bool turns = __any_sync(FULL, scale < 0.0f || weights.is_large);
      await_sums<0>(x);
      if (speaks) arrive(&shared.free[stage.at]);
      stage.advance();
      if (turns) turn_products(x, scale, weights.is_large, row & 8);
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
