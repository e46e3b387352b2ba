// The recurrence as it is written, token after token, for few tokens: the state in registers.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "async_copy.cuh"
#include "gates.cuh"
#include "plan.cuh"

namespace {

constexpr int WALK_THREADS = Tuning::WALK_WARPS * 32;
constexpr int LANES = 8;                                   // of a row: 16 keys each
constexpr int WARP_ROWS = 32 / LANES, WALK_ROWS = Tuning::WALK_WARPS * WARP_ROWS;
static_assert(WALK_ROWS * sizeof(__nv_bfloat16) == 16, "request_tokens() copies 16 bytes of V");

struct WalkMemory {
  alignas(16) __nv_bfloat16 keys[Tuning::TOKENS][DIM], queries[Tuning::TOKENS][DIM];
  alignas(16) __nv_bfloat16 values[Tuning::TOKENS][WALK_ROWS];
  float2 gates[Tuning::TOKENS];  // decay, strength of the write
};

__device__ __forceinline__ void request_tokens(WalkMemory& shared, const Args& args, int first,
                                               int count, int v_head) {
  const int column = v_head / SERVED * DIM;
  for (int at = threadIdx.x; at < count * 16; at += WALK_THREADS) {
    const int row = at / 16, place = at % 16 * 8;
    const int64_t offset = int64_t{first + row} * (QK_HEADS * DIM) + column + place;
    copy_chunk(&shared.keys[row][place], args.k + offset);
    copy_chunk(&shared.queries[row][place], args.q + offset);
  }
  for (int row = threadIdx.x; row < count; row += WALK_THREADS) {
    const int64_t offset = int64_t{first + row} * (V_HEADS * DIM) + v_head * DIM;
    copy_chunk(shared.values[row], args.v + offset + blockIdx.z * WALK_ROWS);
  }
  commit_copies();
}

__device__ __forceinline__ void load_gates(WalkMemory& shared, const Args& args, const Head& head,
                                           int first, int count, int v_head) {
  for (int row = threadIdx.x; row < count; row += WALK_THREADS) {
    const int64_t at = int64_t{first + row} * V_HEADS + v_head;
    const float decay = expf(log_decay(head, __bfloat162float(args.a[at])));
    shared.gates[row] = {decay, write_strength(__bfloat162float(args.b[at]))};
  }
}

// A lane's keys: 8 from 8 lane on, and 8 from 64 more on.
struct Vector {
  float x[16];
};

__device__ __forceinline__ Vector load_vector(const __nv_bfloat16* row) {
  Vector vector;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int place = half * 64 + threadIdx.x % LANES * 8;
    const uint4 words = *reinterpret_cast<const uint4*>(row + place);
    const float2 a = widen_bf16(words.x), b = widen_bf16(words.y);
    const float2 c = widen_bf16(words.z), d = widen_bf16(words.w);
    float* x = vector.x + 8 * half;
    x[0] = a.x, x[1] = a.y, x[2] = b.x, x[3] = b.y;
    x[4] = c.x, x[5] = c.y, x[6] = d.x, x[7] = d.y;
  }
  return vector;
}

// Partial sums in four chains: the last of 16 dependent additions is what the token waits for.
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
  for (int token = 0; token < count; ++token) {
    const Vector key = load_vector(shared.keys[token]);
    const Vector query = load_vector(shared.queries[token]);
    const float2 gate = shared.gates[token];
    const float seen = sum_lanes(dot(state, key));
    const float read = sum_lanes(dot(state, query));
    const float overlap = sum_lanes(dot(key, query));
    const float wanted = __bfloat162float(shared.values[token][v_row]);
    const float delta = gate.y * fmaf(-gate.x, seen, wanted);
#pragma unroll
    for (int i = 0; i < 16; ++i) state.x[i] = fmaf(key.x[i], delta, gate.x * state.x[i]);
    const float sum = args.scale * fmaf(overlap, delta, gate.x * read);
    if (threadIdx.x % LANES == 0) {
      output[int64_t{token} * (V_HEADS * DIM)] = __float2bfloat16_rn(sum);
    }
  }
}

}  // namespace
