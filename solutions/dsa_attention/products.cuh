// The two products of a tile of rows and the online softmax between them.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "async_copy.cuh"
#include "fast_math.cuh"
#include "plan.cuh"
#include "tensor_core.cuh"

namespace {

// My warp's 72 columns of the queries, as first operands.
struct Query {
  uint32_t wide[PART_STEPS][4], narrow[2];
};

__device__ __forceinline__ Query load_query(const uint8_t* query) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t from = shared_address(query) + lane % 16 * ROW + warp * PART_BYTES;
  Query loaded;
#pragma unroll
  for (int step = 0; step < PART_STEPS; ++step) {
    load_tiles(loaded.wide[step], from + lane / 16 * 16 + 32 * step);
  }
  load_tiles(loaded.narrow, from + 32 * PART_STEPS);
  return loaded;
}

// My warp's part of the logits of GROUPS times 16 rows, whose chains of products run side by side.
template <int GROUPS, typename Shared>
__device__ __forceinline__ void score_rows(Shared& shared, const uint8_t* tile, int first,
                                           const Query& query) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t from = shared_address(tile) + first * ROW + warp * PART_BYTES;
  const uint32_t wide = from + (lane % 8 + lane / 16 * 8) * ROW + lane / 8 % 2 * 16;
  const uint32_t narrow = from + lane % 16 * ROW + 32 * PART_STEPS;
  uint32_t keys[GROUPS][PART_STEPS][4], last[GROUPS][2];
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
#pragma unroll
    for (int step = 0; step < PART_STEPS; ++step) {
      load_tiles(keys[group][step], wide + 16 * group * ROW + 32 * step);
    }
    load_tiles(last[group], narrow + 16 * group * ROW);
  }
  float sums[GROUPS][2][4] = {};  // rows 0 to 7, 8 to 15
#pragma unroll
  for (int step = 0; step < PART_STEPS; ++step) {
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      const uint32_t(&key)[4] = keys[group][step];
      multiply_bf16(sums[group][0], query.wide[step], key[0], key[1]);
      multiply_bf16(sums[group][1], query.wide[step], key[2], key[3]);
    }
  }
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    multiply_bf16(sums[group][0], query.narrow, last[group][0]);
    multiply_bf16(sums[group][1], query.narrow, last[group][1]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float(&sum)[4] = sums[group][half];
      const int row = warp * TILE + first + 16 * group + 8 * half + lane % 4 * 2;
      *reinterpret_cast<float2*>(&shared.logits[lane / 4][row]) = float2{sum[0], sum[1]};
      *reinterpret_cast<float2*>(&shared.logits[lane / 4 + 8][row]) = float2{sum[2], sum[3]};
    }
  }
}

template <typename Shared>
__device__ __forceinline__ void score(Shared& shared, const uint8_t* tile, int count,
                                      const Query& query) {
  int first = 0;
#pragma unroll 1
  for (; count - first > 16; first += 32) score_rows<2>(shared, tile, first, query);
  if (first < count) score_rows<1>(shared, tile, first, query);
}

// Order of the integers as of the floats, so that one instruction finds a warp's largest.
__device__ __forceinline__ int ordered(float x) {
  const int bits = __float_as_int(x);
  return bits ^ (bits >> 31 & 0x7fffffff);
}

__device__ __forceinline__ float largest(float x) {
  const int found = __reduce_max_sync(~0u, ordered(x));
  return __int_as_float(found ^ (found >> 31 & 0x7fffffff));
}

// The running softmax of a warp's two heads: maximum of all rows, sum of this lane's.
struct Softmax {
  float top[2], sum[2];
};

// Online softmax of my warp's two heads: weights of the tile, two rows a lane.
template <typename Shared>
__device__ __forceinline__ void weigh(Shared& shared, float scale, int count, Softmax& softmax) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = 2 * lane;
  float2 logits[2] = {};
#pragma unroll
  for (int part = 0; part < WARPS; ++part) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto* from = &shared.logits[2 * warp + i][part * TILE + row];
      const float2 some = row < count ? *reinterpret_cast<const float2*>(from) : float2{};
      logits[i].x += some.x, logits[i].y += some.y;
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float one = row < count ? logits[i].x * scale : -INFINITY;
    const float other = row + 1 < count ? logits[i].y * scale : -INFINITY;
    const float top = fmaxf(largest(fmaxf(one, other)), softmax.top[i]);
    const float anchor = top == -INFINITY ? 0.0f : top;
    const float fade = exp2_approx(softmax.top[i] - anchor);
    const float2 weights = {exp2_approx(one - anchor), exp2_approx(other - anchor)};
    const int head = 2 * warp + i;
    *reinterpret_cast<__nv_bfloat162*>(&shared.weights[head * WEIGHT_ROW + 2 * row]) =
        __floats2bfloat162_rn(weights.x, weights.y);
    if (lane == 0) shared.fade[head] = fade;
    softmax.top[i] = top;
    softmax.sum[i] = softmax.sum[i] * fade + (weights.x + weights.y);
  }
}

template <typename Shared>
__device__ __forceinline__ void store_stats(Shared& shared, Softmax softmax) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    softmax.sum[0] += __shfl_xor_sync(~0u, softmax.sum[0], mask);
    softmax.sum[1] += __shfl_xor_sync(~0u, softmax.sum[1], mask);
  }
  if (threadIdx.x % 32 != 0) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    shared.stats[threadIdx.x / 32 * 2 + i] = {softmax.top[i], softmax.sum[i]};
  }
}

// acc [16, my warp's 64 columns] = fade acc + weights ckv.
template <typename Shared>
__device__ __forceinline__ void accumulate(Shared& shared, const uint8_t* tile, int count,
                                           bool is_first, float (&acc)[8][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (!is_first) {
    const float fade_low = shared.fade[lane / 4], fade_high = shared.fade[lane / 4 + 8];
#pragma unroll
    for (int group = 0; group < 8; ++group) {
      acc[group][0] *= fade_low, acc[group][1] *= fade_low;
      acc[group][2] *= fade_high, acc[group][3] *= fade_high;
    }
  }
  const uint32_t weights =
      shared_address(shared.weights) + lane % 16 * WEIGHT_ROW + lane / 16 * 16;
  const uint32_t values =
      shared_address(tile) + lane % 16 * ROW + 2 * (warp * WARP_COLUMNS + lane / 16 * 8);
#pragma unroll 2
  for (int first = 0; first < count; first += 16) {
    uint32_t p[4], v[4][4];
    load_tiles(p, weights + 2 * first);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      load_tiles_transposed(v[pair], values + first * ROW + 32 * pair);
    }
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      multiply_bf16(acc[2 * pair], p, v[pair][0], v[pair][1]);
      multiply_bf16(acc[2 * pair + 1], p, v[pair][2], v[pair][3]);
    }
  }
}

}  // namespace
