// The two products of a tile of rows and the online softmax between them.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "async_copy.cuh"
#include "fast_math.cuh"
#include "named_barriers.cuh"
#include "plan.cuh"
#include "tensor_core.cuh"

namespace {

// My warp's half of the columns of the queries, as first operands.
struct Query {
  uint32_t steps[PART_STEPS][4];
};

// In q K^T: the block of a tile whose rows my warp takes, and which half of the columns.
__device__ __forceinline__ int my_block() { return threadIdx.x / 32 % TILE_BLOCKS; }
__device__ __forceinline__ int my_half() { return threadIdx.x / 32 / TILE_BLOCKS; }

// The first of the two neighbouring rows of a tile whose logits I weigh: of my block, the eight
// rows of my half.
__device__ __forceinline__ int my_row() {
  return BLOCK * my_block() + 8 * my_half() + threadIdx.x % 4 * 2;
}

__device__ __forceinline__ Query load_query(const uint8_t* query) {
  const int lane = threadIdx.x % 32;
  const uint32_t from =
      shared_address(query) + lane % 16 * ROW + my_half() * PART_BYTES + lane / 16 * 16;
  Query loaded;
#pragma unroll
  for (int step = 0; step < PART_STEPS; ++step) load_tiles(loaded.steps[step], from + 32 * step);
  return loaded;
}

// Logits [head][row], without the scale: heads lane / 4 and eight on, rows my_row() and one on.
struct Logits {
  float low[2], high[2];
};

// Half of the sum over columns is the other half's warp's: each of the two ends with eight rows.
template <typename Shared>
__device__ __forceinline__ Logits exchange_halves(Shared& shared, const float (&sums)[2][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool keeps_second = my_half() == 1;
  float keep[4], give[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    keep[i] = keeps_second ? sums[1][i] : sums[0][i];
    give[i] = keeps_second ? sums[0][i] : sums[1][i];
  }
  shared.halves[warp ^ TILE_BLOCKS][lane] = {give[0], give[1], give[2], give[3]};
  sync_group<64>(2 + my_block());
  const float4 got = shared.halves[warp][lane];
  return {{keep[0] + got.x, keep[1] + got.y}, {keep[2] + got.z, keep[3] + got.w}};
}

// q K^T of my block's rows: two chains of products for each eight rows, keys loaded a batch ahead.
template <typename Shared>
__device__ __forceinline__ Logits score(Shared& shared, const uint8_t* tile, const Query& query) {
  constexpr int BATCH = 3, BATCHES = PART_STEPS / BATCH;
  const int lane = threadIdx.x % 32;
  const uint32_t from = shared_address(tile) +
                        (BLOCK * my_block() + lane % 8 + lane / 16 * 8) * ROW +
                        my_half() * PART_BYTES + lane / 8 % 2 * 16;
  uint32_t keys[2][BATCH][4];
  float chains[2][2][4] = {};  // [step's parity][eight rows]
#pragma unroll
  for (int i = 0; i < BATCH; ++i) load_tiles(keys[0][i], from + 32 * i);
#pragma unroll
  for (int batch = 0; batch < BATCHES; ++batch) {
    if (batch + 1 < BATCHES) {
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        load_tiles(keys[(batch + 1) % 2][i], from + 32 * (BATCH * (batch + 1) + i));
      }
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const int step = BATCH * batch + i;
      const uint32_t(&key)[4] = keys[batch % 2][i];
      multiply_bf16(chains[step % 2][0], query.steps[step], key[0], key[1]);
      multiply_bf16(chains[step % 2][1], query.steps[step], key[2], key[3]);
    }
  }
  float sums[2][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[0][i] = chains[0][0][i] + chains[1][0][i];
    sums[1][i] = chains[0][1][i] + chains[1][1][i];
  }
  return exchange_halves(shared, sums);
}

// The running softmax of the two heads that are mine in logits and sums alike, lane / 4 and eight
// on: maximum of all rows, sum of the rows that I weighed.
struct Softmax {
  float top[2], sum[2];
};

__device__ __forceinline__ float largest_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float largest(const float (&tops)[WARPS]) {
  const float4 a = reinterpret_cast<const float4*>(tops)[0];
  const float4 b = reinterpret_cast<const float4*>(tops)[1];
  return fmaxf(fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)), fmaxf(fmaxf(b.x, b.y), fmaxf(b.z, b.w)));
}

struct Fade {
  float of[2];  // what sums so far still count, by my two heads
};

// Weights of the tile from its logits. The barrier in the middle has all warps' maxima, the one at
// the end all weights.
template <typename Shared>
__device__ __forceinline__ Fade weigh(Shared& shared, float scale, uint64_t valid,
                                      const Logits& logits, Softmax& softmax) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = lane / 4;
  const bool counts[2] = {(valid >> my_row() & 1) != 0, (valid >> (my_row() + 1) & 1) != 0};
  float scaled[2][2];  // [head][row]
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    scaled[0][i] = counts[i] ? logits.low[i] * scale : -INFINITY;
    scaled[1][i] = counts[i] ? logits.high[i] * scale : -INFINITY;
  }
  const float tops[2] = {largest_of_quad(fmaxf(scaled[0][0], scaled[0][1])),
                         largest_of_quad(fmaxf(scaled[1][0], scaled[1][1]))};
  if (lane % 4 == 0) shared.tops[head][warp] = tops[0], shared.tops[head + 8][warp] = tops[1];
  sync_first<COMPUTING>();
  Fade fade;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float top = fmaxf(softmax.top[i], largest(shared.tops[head + 8 * i]));
    const float anchor = top == -INFINITY ? 0.0f : top;
    fade.of[i] = exp2_approx(softmax.top[i] - anchor);
    const float2 weights = {exp2_approx(scaled[i][0] - anchor),
                            exp2_approx(scaled[i][1] - anchor)};
    uint8_t* to = &shared.weights[(head + 8 * i) * WEIGHT_ROW + 2 * my_row()];
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(weights.x, weights.y);
    softmax.top[i] = top;
    softmax.sum[i] = softmax.sum[i] * fade.of[i] + (weights.x + weights.y);
  }
  return fade;
}

// Sums of the run, for whoever waits for sums_stored.
template <typename Shared>
__device__ __forceinline__ void store_sums(Shared& shared, Softmax softmax) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = lane / 4;
#pragma unroll
  for (int mask = 1; mask < 4; mask *= 2) {
    softmax.sum[0] += __shfl_xor_sync(~0u, softmax.sum[0], mask);
    softmax.sum[1] += __shfl_xor_sync(~0u, softmax.sum[1], mask);
  }
  if (lane % 4 == 0) {
    shared.sums[head][warp] = softmax.sum[0], shared.sums[head + 8][warp] = softmax.sum[1];
    if (warp == 0) shared.top[head] = softmax.top[0], shared.top[head + 8] = softmax.top[1];
  }
  __syncwarp();
  if (lane == 0) arrive(&shared.sums_stored);
}

// Behind sums_stored.
template <typename Shared>
__device__ __forceinline__ float total_of(const Shared& shared, int head) {
  const float4 a = reinterpret_cast<const float4*>(shared.sums[head])[0];
  const float4 b = reinterpret_cast<const float4*>(shared.sums[head])[1];
  return ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
}

using Sums = float[8][4];  // of my warp's 64 columns, by groups of eight

__device__ __forceinline__ void fade_sums(Sums& acc, const Fade& fade) {
#pragma unroll
  for (int group = 0; group < 8; ++group) {
    acc[group][0] *= fade.of[0], acc[group][1] *= fade.of[0];
    acc[group][2] *= fade.of[1], acc[group][3] *= fade.of[1];
  }
}

// acc += weights ckv, over the blocks with a valid row: 16 rows of 32 columns at a time, the next
// ones loaded while these are multiplied. GROUPS of eight columns from FIRST_GROUP on.
template <int FIRST_GROUP, int GROUPS, typename Shared>
__device__ __forceinline__ void accumulate(const Shared& shared, const uint8_t* tile,
                                           uint64_t valid, Sums& acc) {
  constexpr int PARTS = GROUPS / 4, ALL = TILE_BLOCKS * PARTS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t weights =
      shared_address(shared.weights) + lane % 16 * WEIGHT_ROW + lane / 16 * 16;
  const uint32_t values = shared_address(tile) + lane % 16 * ROW +
                          2 * (warp * WARP_COLUMNS + 8 * FIRST_GROUP + lane / 16 * 8);
  uint32_t p[2][4], v[2][2][4];
#pragma unroll
  for (int next = 0; next <= ALL; ++next) {
    const int block = next / PARTS, part = next % PARTS, now = next - 1;
    if (next < ALL && has_block(valid, block)) {
      if (part == 0) load_tiles(p[block % 2], weights + 2 * BLOCK * block);
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const uint32_t from = values + BLOCK * block * ROW + 64 * part + 32 * pair;
        load_tiles_transposed(v[next % 2][pair], from);
      }
    }
    if (now < 0 || !has_block(valid, now / PARTS)) continue;
    const uint32_t(&weight)[4] = p[now / PARTS % 2];
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint32_t(&value)[4] = v[now % 2][pair];
      const int group = FIRST_GROUP + 4 * (now % PARTS) + 2 * pair;
      multiply_bf16(acc[group], weight, value[0], value[1]);
      multiply_bf16(acc[group + 1], weight, value[2], value[3]);
    }
  }
}

}  // namespace
