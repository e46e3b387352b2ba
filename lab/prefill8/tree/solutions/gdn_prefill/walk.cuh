// The recurrence as it is written, token after token, for few tokens: the state in registers.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "gates.cuh"
#include "plan.cuh"

namespace {

constexpr int WALK_THREADS = Tuning::WALK_WARPS * 32;
constexpr int LANES = 16;                                  // of a row: 8 keys each
constexpr int QUADS = DIM / LANES / 4;                     // of a lane's keys
constexpr int WARP_ROWS = 32 / LANES, WALK_ROWS = Tuning::WALK_WARPS * WARP_ROWS;
static_assert(WALK_ROWS * sizeof(__nv_bfloat16) == 16, "load_gates() loads 16 bytes of V");

// What a token brings besides q and k.
struct alignas(16) Token {
  float decay, strength;  // g, beta
  float overlap;          // k . q
  float near;             // k . (k of the token before)
};

struct WalkMemory {
  alignas(16) float keys[Tuning::TOKENS][DIM], queries[Tuning::TOKENS][DIM];  // widened
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

__device__ __forceinline__ float sum_lanes(float x) {
#pragma unroll
  for (int step = 1; step < LANES; step *= 2) x += __shfl_xor_sync(FULL, x, step);
  return x;
}

// Keys and queries of `count` tokens, widened once for all rows, k . q, and k . k of neighbours:
// 16 lanes a token, which take 8 tokens in a row.
__device__ __forceinline__ void load_vectors(WalkMemory& shared, const Args& args, int first,
                                             int count, int v_head) {
  static_assert(LANES * 8 == DIM, "a lane loads 16 bytes of a token");
  constexpr int AT_ONCE = 8;
  const int place = threadIdx.x % LANES * 8, column = v_head / SERVED * DIM + place;
  const int warp = __shfl_sync(FULL, threadIdx.x / 32, 0);
#pragma unroll 1
  for (int start = 0; start < count; start += WALK_THREADS / LANES * AT_ONCE) {
    const int base = start + threadIdx.x / LANES * AT_ONCE;
    if (start + warp * (WARP_ROWS * AT_ONCE) >= count) break;
    uint4 keys[AT_ONCE + 1], queries[AT_ONCE];  // with the key before
#pragma unroll
    for (int i = 0; i <= AT_ONCE; ++i) {
      const int row = min(max(base + i - 1, 0), count - 1);  // no branch: all loads go out together
      const int64_t offset = int64_t{first + row} * (QK_HEADS * DIM) + column;
      keys[i] = __ldg(reinterpret_cast<const uint4*>(args.k + offset));
      if (i > 0) queries[i - 1] = __ldg(reinterpret_cast<const uint4*>(args.q + offset));
    }
    float overlaps[AT_ONCE], near[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      overlaps[i] = sum_lanes(dot_words(keys[i + 1], queries[i]));
      near[i] = sum_lanes(dot_words(keys[i + 1], keys[i]));
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int row = base + i;
      if (row >= count) break;
      store_widened(shared.keys[row] + place, keys[i + 1]);
      store_widened(shared.queries[row] + place, queries[i]);
      if (place == 0) shared.tokens[row].overlap = overlaps[i], shared.tokens[row].near = near[i];
    }
  }
}

// By the last threads first: the first ones load the keys of the first tokens.
__device__ __forceinline__ void load_gates(WalkMemory& shared, const Args& args, const Head& head,
                                           int first, int count, int v_head) {
  for (int row = WALK_THREADS - 1 - threadIdx.x; row < count; row += WALK_THREADS) {
    const int64_t token = first + row, at = token * V_HEADS + v_head;
    const __nv_bfloat16* values = args.v + at * DIM + blockIdx.z * WALK_ROWS;
    const uint4 words = __ldg(reinterpret_cast<const uint4*>(values));
    const float a = __bfloat162float(args.a[at]), b = __bfloat162float(args.b[at]);
    *reinterpret_cast<uint4*>(shared.values[row]) = words;
    shared.tokens[row].decay = expf(log_decay(head, a));
    shared.tokens[row].strength = write_strength(b);
  }
}

// A lane's keys: four from 4 lane + 64 i on, i < QUADS.
struct Vector {
  float x[4 * QUADS];
};

__device__ __forceinline__ int lane_key(int quad) {
  return 4 * LANES * quad + threadIdx.x % LANES * 4;
}

__device__ __forceinline__ Vector load_vector(const float* row) {
  Vector vector;
#pragma unroll
  for (int quad = 0; quad < QUADS; ++quad) {
    const float4 x = *reinterpret_cast<const float4*>(row + lane_key(quad));
    vector.x[4 * quad] = x.x, vector.x[4 * quad + 1] = x.y;
    vector.x[4 * quad + 2] = x.z, vector.x[4 * quad + 3] = x.w;
  }
  return vector;
}

// Over all lanes of a row. Four chains of dependent additions.
__device__ __forceinline__ float dot(const Vector& x, const Vector& y) {
  float sums[4];
#pragma unroll
  for (int i = 0; i < 4 * QUADS; ++i) {
    sums[i % 4] = i < 4 ? x.x[i] * y.x[i] : fmaf(x.x[i], y.x[i], sums[i % 4]);
  }
  return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// S <- g S + k delta, delta = beta (v - g S^T k); output = scale (g S^T q + (k . q) delta).
// What the next key sees is found from the state in front of this token, whose delta is then added:
// the sums over lanes have a whole token's time.
__device__ __forceinline__ void walk_tokens(const WalkMemory& shared, const Args& args, int first,
                                            int count, int row, Vector& state) {
  const int v_row = threadIdx.x / LANES;
  __nv_bfloat16* output = args.output + int64_t{first} * (V_HEADS * DIM) + row;
  Vector key = load_vector(shared.keys[0]), query = load_vector(shared.queries[0]);
  Token token = shared.tokens[0];
  float seen = dot(state, key);
#pragma unroll 2
  for (int at = 0; at < count; ++at, output += V_HEADS * DIM) {
    const int next = min(at + 1, count - 1);
    const Vector next_key = load_vector(shared.keys[next]);
    const Vector next_query = load_vector(shared.queries[next]);
    const Token next_token = shared.tokens[next];
    const float wanted = __bfloat162float(shared.values[at][v_row]);
    const float ahead = dot(state, next_key), read = dot(state, query);
    const float delta = token.strength * fmaf(-token.decay, seen, wanted);
#pragma unroll
    for (int i = 0; i < 4 * QUADS; ++i) {
      state.x[i] = fmaf(key.x[i], delta, token.decay * state.x[i]);
    }
    const float sum = args.scale * fmaf(token.overlap, delta, token.decay * read);
    if (threadIdx.x % LANES == 0) *output = __float2bfloat16_rn(sum);
    seen = fmaf(next_token.near, delta, token.decay * ahead);
    key = next_key, query = next_query, token = next_token;
  }
}

}  // namespace
