// The recurrence as it is written, token after token, for few tokens: the state in registers.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "gates.cuh"
#include "plan.cuh"

namespace {

constexpr int WALK_THREADS = Tuning::WALK_WARPS * 32;
constexpr int LANES = 8;                                   // of a row: 16 keys each
constexpr int WARP_ROWS = 32 / LANES, WALK_ROWS = Tuning::WALK_WARPS * WARP_ROWS;
static_assert(WALK_ROWS * sizeof(__nv_bfloat16) == 16, "load_gates() loads 16 bytes of V");

// What a token brings besides q and k.
struct Token {
  float decay, strength;  // g, beta
  float overlap;          // k . q
};

struct WalkMemory {
  alignas(16) float keys[Tuning::TOKENS][DIM], queries[Tuning::TOKENS][DIM];
  Token tokens[Tuning::TOKENS];
  alignas(16) __nv_bfloat16 values[Tuning::TOKENS][WALK_ROWS];
};

__device__ __forceinline__ void store_widened(float* to, const uint4& words) {
  const float2 a = widen_bf16(words.x), b = widen_bf16(words.y);
  const float2 c = widen_bf16(words.z), d = widen_bf16(words.w);
  *reinterpret_cast<float4*>(to) = {a.x, a.y, b.x, b.y};
  *reinterpret_cast<float4*>(to + 4) = {c.x, c.y, d.x, d.y};
}

__device__ __forceinline__ float dot_words(const uint4& x, const uint4& y) {
  const float2 a = widen_bf16(x.x), b = widen_bf16(x.y), c = widen_bf16(x.z), d = widen_bf16(x.w);
  const float2 e = widen_bf16(y.x), f = widen_bf16(y.y), g = widen_bf16(y.z), h = widen_bf16(y.w);
  return (fmaf(a.x, e.x, a.y * e.y) + fmaf(b.x, f.x, b.y * f.y)) +
         (fmaf(c.x, g.x, c.y * g.y) + fmaf(d.x, h.x, d.y * h.y));
}

// Keys and queries of `count` tokens, widened once for all rows, and k . q: 16 lanes a token.
__device__ __forceinline__ void load_vectors(WalkMemory& shared, const Args& args, int first,
                                             int count, int v_head) {
  constexpr int ROWS = WALK_THREADS / 16, AT_ONCE = 8;
  const int place = threadIdx.x % 16 * 8, column = v_head / SERVED * DIM + place;
#pragma unroll 1
  for (int start = 0; start < count; start += ROWS * AT_ONCE) {
    const int base = start + threadIdx.x / 16;
    uint4 keys[AT_ONCE], queries[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int row = min(base + i * ROWS, count - 1);  // no branch: all loads go out together
      const int64_t offset = int64_t{first + row} * (QK_HEADS * DIM) + column;
      keys[i] = __ldg(reinterpret_cast<const uint4*>(args.k + offset));
      queries[i] = __ldg(reinterpret_cast<const uint4*>(args.q + offset));
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int row = base + i * ROWS;
      float overlap = dot_words(keys[i], queries[i]);
#pragma unroll
      for (int step = 1; step < 16; step *= 2) overlap += __shfl_xor_sync(FULL, overlap, step);
      if (row >= count) continue;
      store_widened(shared.keys[row] + place, keys[i]);
      store_widened(shared.queries[row] + place, queries[i]);
      if (place == 0) shared.tokens[row].overlap = overlap;
    }
  }
}

__device__ __forceinline__ void load_gates(WalkMemory& shared, const Args& args, const Head& head,
                                           int first, int count, int v_head) {
  for (int row = threadIdx.x; row < count; row += WALK_THREADS) {
    const int64_t token = first + row, at = token * V_HEADS + v_head;
    const __nv_bfloat16* values = args.v + at * DIM + blockIdx.z * WALK_ROWS;
    const uint4 words = __ldg(reinterpret_cast<const uint4*>(values));
    const float a = __bfloat162float(args.a[at]), b = __bfloat162float(args.b[at]);
    *reinterpret_cast<uint4*>(shared.values[row]) = words;
    shared.tokens[row].decay = expf(log_decay(head, a));
    shared.tokens[row].strength = write_strength(b);
  }
}

// A lane's keys: four from 4 lane + 32 i on, i < 4.
struct Vector {
  float x[16];
};

__device__ __forceinline__ int lane_key(int quad) { return 32 * quad + threadIdx.x % LANES * 4; }

__device__ __forceinline__ Vector load_vector(const float* row) {
  Vector vector;
#pragma unroll
  for (int quad = 0; quad < 4; ++quad) {
    const float4 x = *reinterpret_cast<const float4*>(row + lane_key(quad));
    vector.x[4 * quad] = x.x, vector.x[4 * quad + 1] = x.y;
    vector.x[4 * quad + 2] = x.z, vector.x[4 * quad + 3] = x.w;
  }
  return vector;
}

// Four chains of four dependent additions.
__device__ __forceinline__ float dot(const Vector& x, const Vector& y) {
  float sums[4];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    sums[i % 4] = i < 4 ? x.x[i] * y.x[i] : fmaf(x.x[i], y.x[i], sums[i % 4]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

__device__ __forceinline__ float sum_lanes(float x) {
#pragma unroll
  for (int step = 1; step < LANES; step *= 2) x += __shfl_xor_sync(FULL, x, step);
  return x;
}

// S <- g S + k delta, delta = beta (v - g S^T k); output = scale (g S^T q + (k . q) delta).
__device__ __forceinline__ void walk_tokens(const WalkMemory& shared, const Args& args, int first,
                                            int count, int row, Vector& state) {
  const int v_row = threadIdx.x / LANES;
  __nv_bfloat16* output = args.output + int64_t{first} * (V_HEADS * DIM) + row;
#pragma unroll 2
  for (int at = 0; at < count; ++at, output += V_HEADS * DIM) {
    const Vector key = load_vector(shared.keys[at]), query = load_vector(shared.queries[at]);
    const Token token = shared.tokens[at];
    const float wanted = __bfloat162float(shared.values[at][v_row]);
    const float seen = sum_lanes(dot(state, key)), read = sum_lanes(dot(state, query));
    const float delta = token.strength * fmaf(-token.decay, seen, wanted);
#pragma unroll
    for (int i = 0; i < 16; ++i) state.x[i] = fmaf(key.x[i], delta, token.decay * state.x[i]);
    const float sum = args.scale * fmaf(token.overlap, delta, token.decay * read);
    if (threadIdx.x % LANES == 0) *output = __float2bfloat16_rn(sum);
  }
}

}  // namespace
