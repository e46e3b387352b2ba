// Where segments of a sequence meet: the state in front of one, known late, and the transition by
// which it adds to what the segment made of zeros. docs/kernels/gdn_prefill.md, "Segments".
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "device_flags.cuh"
#include "named_barrier.cuh"
#include "plan.cuh"
#include "scan_plan.cuh"
#include "warpgroup.cuh"
#include "warpgroup_rows.cuh"
#include "warpgroup_rows_bf16.cuh"

namespace {

// The warpgroup's rows of the identity, as a fragment of sums.
__device__ __forceinline__ void make_identity(int half, float (&state)[64]) {
  const int row = half * VALUES + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
  const int first = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    const int column = i / 4 * 8 + first + i % 2;
    state[i] = column == row + i / 2 % 2 * 8 ? 1.0f : 0.0f;
  }
}

// The warpgroup has written its half of a seam's part.
__device__ __forceinline__ void count_half(int* count) {
  sync_threads_of(1, 128);
  if (threadIdx.x % 128 == 0) count_release(count);
}

__device__ __forceinline__ void hand_begin(const Args& args, const Work& work,
                                           const float (&state)[64]) {
  float4(&to)[DIM / 8][128] = seam_of(args, work.next, work.v_head)->begin[work.first_group];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float* of = state + 4 * i;
    to[i][threadIdx.x % 128] = {of[0], of[1], of[2], of[3]};
  }
  count_half(&seam_counts_of(args, work.next, work.v_head)->begin);
}

// Half of the rows of the state in front of the segment, written by another SM meanwhile: fours of
// a fragment of sums.
__device__ __forceinline__ void load_begin(const Args& args, const Work& work, int group, int half,
                                           float4 (&begin)[8]) {
  const float4(&from)[DIM / 8][128] = seam_of(args, work.later, work.v_head)->begin[group];
#pragma unroll
  for (int i = 0; i < 8; ++i) begin[i] = __ldcg(&from[8 * half + i][threadIdx.x % 128]);
}

// All of it as first operands in two terms.
__device__ __forceinline__ void load_begin_terms(const Args& args, const Work& work, int group,
                                                 uint32_t (&high)[8][4], uint32_t (&low)[8][4]) {
#pragma unroll
  for (int half = 0; half < HALVES; ++half) {
    float4 begin[8];
    load_begin(args, work, group, half, begin);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 of = begin[i];
      const int step = 4 * half + i / 2, pair = i % 2 * 2;
      high[step][pair] = pack_f16(of.x, of.y), high[step][pair + 1] = pack_f16(of.z, of.w);
      const float2 x = widen_f16(high[step][pair]), z = widen_f16(high[step][pair + 1]);
      low[step][pair] = pack_f16(of.x - x.x, of.y - x.y);
      low[step][pair + 1] = pack_f16(of.z - z.x, of.w - z.y);
    }
  }
}

// x and y in bf16, and what is left of them.
__device__ __forceinline__ uint32_t take_term(float& x, float& y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  x -= __bfloat162float(pair.x), y -= __bfloat162float(pair.y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// The warpgroup's rows of the transition as tiles of two terms.
__device__ __forceinline__ void hand_transition(const Args& args, const Work& work,
                                                const float (&state)[64]) {
  const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
  Seam* seam = seam_of(args, work.later, work.v_head);
  uint8_t(&to)[2][2][TILE_BYTES] = seam->transition[work.first_group];
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const uint32_t place = swizzled(row + i % 2 * 8, i / 2 % 8) + 4 * pair;
    float x = state[2 * i], y = state[2 * i + 1];
    *reinterpret_cast<uint32_t*>(to[0][i / 16] + place) = take_term(x, y);
    *reinterpret_cast<uint32_t*>(to[1][i / 16] + place) = take_term(x, y);
  }
  count_half(&seam_counts_of(args, work.later, work.v_head)->transition);
}

// state += 64 rows of begin times theirs of the transition.
__device__ __forceinline__ void merge_half(const uint8_t* high, const uint8_t* low,
                                           const float4 (&begin)[8], float (&state)[64]) {
  uint32_t terms[3][4][4];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float4 of = begin[i];
#pragma unroll
    for (int term = 0; term < 3; ++term) {
      terms[term][i / 2][i % 2 * 2] = take_term(of.x, of.y);
      terms[term][i / 2][i % 2 * 2 + 1] = take_term(of.z, of.w);
    }
  }
  const uint64_t rows = describe_rows(high, TILE_BYTES), low_rows = describe_rows(low, TILE_BYTES);
  begin_products();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int term = 0; term < 3; ++term) {
      multiply_rows_bf16(state, terms[term][step], at_rows(rows, step), true);
    }
    multiply_rows_bf16(state, terms[0][step], at_rows(low_rows, step), true);
  }
  commit_products();
  wait_products<0>(state);
}

// state += begin transition. Three terms of bf16 hold all of an fp32: where the transition is the
// identity, what was in front arrives as it was. Of the products of the transition's low term that
// with the highest one counts.
__device__ __forceinline__ void merge_begin(ScanMemory& shared, const Args& args, const Work& work,
                                            Turn& turn, float (&state)[64]) {
  const Stage& stage = shared.stages[turn.stage];
  wait_cta_phase(&shared.full[turn.stage], turn.parity);
#pragma unroll 1
  for (int half = 0; half < HALVES; ++half) {
    float4 begin[8];
    load_begin(args, work, work.first_group, half, begin);
    merge_half(half == 0 ? stage.operands.keys[0] : stage.solved.writes[0],
               half == 0 ? stage.operands.queries[0] : stage.values[0], begin, state);
  }
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    arrive_once_a_warp(&shared.done[turn.stage]);
    arrive_once_a_warp(&shared.used[turn.stage]);
  }
  turn.advance();
}

}  // namespace
