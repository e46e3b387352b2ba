// The state along the chunks of a sequence: 64 columns of V a warpgroup, transposed, in the
// registers of its products. A third warpgroup brings what they read and stores what they leave; of
// half of the columns the second warpgroup, which has none, stores what the first one leaves. Where
// the chain of chunks binds, outputs are units of their own, from what the states' units hand on.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "named_barrier.cuh"
#include "plan.cuh"
#include "scan_plan.cuh"
#include "seams.cuh"
#include "tensor_core.cuh"
#include "tensor_core_f16.cuh"
#include "warpgroup.cuh"
#include "warpgroup_rows.cuh"

namespace {

// Calls use(index into the fragment, offset in the states) for fours of keys, two at the index and
// two behind the row eight on: Operands.
template <typename Use>
__device__ __forceinline__ void for_state(const Work& work, int group, Use use) {
  const int row = group * VALUES + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
  const int64_t first = work.first_value() + row * DIM + threadIdx.x % 4 * 4;
#pragma unroll
  for (int i = 0; i < 16; ++i) use(i / 2 * 8 + i % 2 * 2, first + i % 2 * 8 * DIM + i / 2 * 16);
}

__device__ __forceinline__ void load_state(const Args& args, const Work& work, int group,
                                           float (&state)[64]) {
  for_state(work, group, [&](int i, int64_t offset) {
    float4 keys = {0.0f, 0.0f, 0.0f, 0.0f};
    if (args.state) keys = __ldcs(reinterpret_cast<const float4*>(args.state + offset));
    state[i] = keys.x, state[i + 1] = keys.y, state[i + 4] = keys.z, state[i + 5] = keys.w;
  });
}

__device__ __forceinline__ void store_state(const Args& args, const Work& work, int group,
                                            const float (&state)[64]) {
  for_state(work, group, [&](int i, int64_t offset) {
    const float4 keys = {state[i], state[i + 1], state[i + 4], state[i + 5]};
    __stcs(reinterpret_cast<float4*>(args.new_state + offset), keys);
  });
}

// The same of what send_state() has brought.
__device__ __forceinline__ void take_state(ScanMemory& shared, const Work& work, int group,
                                           Turn& turn, float (&state)[64]) {
  wait_cta_phase(&shared.full[turn.stage], turn.parity);
  Stage& stage = shared.stages[turn.stage];
  for_state(work, group, [&](int i, int64_t offset) {
    const int at = static_cast<int>(offset - work.first_value());
    const float4 keys = *reinterpret_cast<const float4*>(state_row(stage, at / DIM) + at % DIM);
    state[i] = keys.x, state[i + 1] = keys.y, state[i + 4] = keys.z, state[i + 5] = keys.w;
  });
  arrive_once_a_warp(&shared.used[turn.stage]);
  arrive_once_a_warp(&shared.done[turn.stage]);
  turn.advance();
}

// Where a lane's row of four 8 x 8 tiles lies: tokens 8 tile to 8 tile + 15, the warp's values.
__device__ __forceinline__ uint32_t value_place(int tile) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  return swizzled(8 * tile + lane % 8 + lane / 16 * 8, 2 * warp + lane / 8 % 2);
}

// The fragment of sums as first operands of the next products: columns 16 step and on.
template <int N>
__device__ __forceinline__ void round_fragment(const float (&sums)[N], uint32_t (&to)[N / 8][4]) {
#pragma unroll
  for (int i = 0; i < N / 2; ++i) to[i / 4][i % 4] = pack_f16(sums[2 * i], sums[2 * i + 1]);
}

// V^T of the warp's 16 values in the layout of sums, as pairs of tokens.
__device__ __forceinline__ void load_values(const uint8_t* tile, uint32_t (&values)[4][4]) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    load_tiles_transposed(values[step], shared_address(tile + value_place(2 * step)));
  }
}

// Decay up to the tokens of the columns that a thread holds of sums.
__device__ __forceinline__ void load_carry(const float* carry, float2 (&fades)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    fades[i] = *reinterpret_cast<const float2*>(carry + 8 * i + threadIdx.x % 4 * 2);
  }
}

// residual = V^T - sums diag(carry), rounded: what the chunk's tokens are to write.
__device__ __forceinline__ void find_residual(const uint32_t (&values)[4][4],
                                              const float2 (&fades)[8], const float (&sums)[32],
                                              uint32_t (&to)[4][4]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float2 fade = fades[i / 2], wanted = widen_bf16(values[i / 4][i % 4]);
    to[i / 4][i % 4] = pack_f16(fmaf(-fade.x, sums[2 * i], wanted.x),
                                fmaf(-fade.y, sums[2 * i + 1], wanted.y));
  }
}

// sums *= scale diag(carry)
__device__ __forceinline__ void fade_output(const float2 (&fades)[8], float scale,
                                            float (&sums)[32]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float x = scale * fades[i].x, y = scale * fades[i].y;
    sums[4 * i] *= x, sums[4 * i + 1] *= y, sums[4 * i + 2] *= x, sums[4 * i + 3] *= y;
  }
}

__device__ __forceinline__ void round_output(const float (&sums)[32], uint32_t (&output)[16]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(sums[2 * i], sums[2 * i + 1]);
    output[i] = *reinterpret_cast<const uint32_t*>(&pair);
  }
}

// O^T of a chunk to the place of the warp's values, which it alone has read; the senders store it.
// Of half of the columns to where no values are: the second warpgroup stores it.
__device__ __forceinline__ void leave_output(ScanMemory& shared, int stage, int group, bool is_half,
                                             const uint32_t (&output)[16]) {
  const uint8_t* tile = shared.stages[stage].values[is_half ? 1 : group];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    store_tiles_transposed(shared_address(tile + value_place(2 * i)), output[4 * i],
                           output[4 * i + 1], output[4 * i + 2], output[4 * i + 3]);
  }
  arrive_once_a_warp(is_half ? &shared.left[stage] : &shared.done[stage]);
}

// sums (+)= S^T times the transposed rows: keys or queries.
__device__ __forceinline__ void multiply_state(const uint32_t (&state)[8][4],
                                               const uint8_t (&rows)[2][TILE_BYTES],
                                               float (&sums)[32], bool adds = false) {
  begin_products();
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    multiply_f16(sums, state[step], at_step(describe_tile(rows[step / 4]), step % 4),
                 adds || step > 0);
  }
  commit_products();
}

// sums += residual^T rows
template <int N>
__device__ __forceinline__ void add_residual(const uint32_t (&residual)[4][4], uint64_t rows,
                                             float (&sums)[N]) {
  begin_products();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    multiply_rows_f16(sums, residual[step], at_rows(rows, step), true);
  }
  commit_products();
}

// One chunk. `rounded` is the state as an operand, `before` the output of the chunk before. What
// needs no product stands between those of the keys and those of the queries: the tensor core is
// busy with the former, and a warp cannot issue all of the latter before these are done. Loads come
// first, for what follows hides them. The state fades while the queries' products run, for which
// those of `writes` would wait anyway. No sum can be read, nor any product left in flight, over the
// end of the loop without the assembler waiting for each. All of this chunk is there; it ends when
// all of the next one is.
__device__ __forceinline__ void step_chunk(ScanMemory& shared, float scale, Turn& turn,
                                           bool is_first, bool is_last, int group, bool is_half,
                                           float (&state)[64], uint32_t (&rounded)[8][4],
                                           uint32_t (&before)[16]) {
  const int at = turn.stage;
  const Stage& stage = shared.stages[at];
  float seen[32], output[32];
  uint32_t values[4][4], residual[4][4];
  float2 fades[8];
  multiply_state(rounded, stage.operands.keys, seen);
  load_values(stage.values[group], values);
  load_carry(stage.solved.carry, fades);
  const float fade = stage.solved.carry[CHUNK - 1];
  if (!is_first) {
    leave_output(shared, at == 0 ? Tuning::STAGES - 1 : at - 1, group, is_half, before);
  }
  multiply_state(rounded, stage.operands.queries, output);
  wait_products<1>(seen);
  find_residual(values, fades, seen, residual);
#pragma unroll
  for (int i = 0; i < 64; ++i) state[i] *= fade;
  add_residual(residual, describe_rows(stage.solved.writes[0], TILE_BYTES), state);
  wait_products<1>(output);
  arrive_once_a_warp(&shared.used[at]);
  fade_output(fades, scale, output);
  add_residual(residual, describe_rows(stage.solved.reads, 0), output);
  turn.advance();
  wait_products<1>(state);
  round_fragment(state, rounded);
  if (!is_last) wait_cta_phase(&shared.full[turn.stage], turn.parity);
  wait_products<0>(output);
  round_output(output, before);
}

// First operands to and from where threads of equal numbers find them, 16 bytes a step.
template <int N>
__device__ __forceinline__ void hand_fragments(const uint32_t (&fragments)[N][4],
                                               uint4 (&to)[N][128]) {
#pragma unroll
  for (int step = 0; step < N; ++step) {
    const uint32_t* of = fragments[step];
    to[step][threadIdx.x % 128] = {of[0], of[1], of[2], of[3]};
  }
}

template <int N>
__device__ __forceinline__ void take_fragments(const uint8_t* from, uint32_t (&fragments)[N][4]) {
#pragma unroll
  for (int step = 0; step < N; ++step) {
    const uint4 of = reinterpret_cast<const uint4*>(from)[step * 128 + threadIdx.x % 128];
    fragments[step][0] = of.x, fragments[step][1] = of.y;
    fragments[step][2] = of.z, fragments[step][3] = of.w;
  }
}

// As step_chunk() without its outputs, which need what is handed on. Arrives for both warpgroups.
__device__ __forceinline__ void step_state(ScanMemory& shared, Handed& handed, Turn& turn,
                                           bool is_last, float (&state)[64],
                                           uint32_t (&rounded)[8][4]) {
  const int at = turn.stage;
  const Stage& stage = shared.stages[at];
  float seen[32];
  uint32_t values[4][4], residual[4][4];
  float2 fades[8];
  multiply_state(rounded, stage.operands.keys, seen);
  load_values(stage.values[0], values);
  load_carry(stage.solved.carry, fades);
  const float fade = stage.solved.carry[CHUNK - 1];
  hand_fragments(rounded, handed.state);
  wait_products<0>(seen);
  find_residual(values, fades, seen, residual);
#pragma unroll
  for (int i = 0; i < 64; ++i) state[i] *= fade;
  add_residual(residual, describe_rows(stage.solved.writes[0], TILE_BYTES), state);
  arrive_once_a_warp(&shared.used[at]);
  arrive_once_a_warp(&shared.used[at]);
  hand_fragments(residual, handed.residual);
  turn.advance();
  wait_products<0>(state);
  arrive_once_a_warp(&shared.done[at]);
  arrive_once_a_warp(&shared.done[at]);
  round_fragment(state, rounded);
  if (!is_last) wait_cta_phase(&shared.full[turn.stage], turn.parity);
}

// Zeros for the output's rows in front of the first sequence and behind the last one.
__device__ __forceinline__ void clear_ends(const Args& args, const Work& work, int group) {
  const int column = work.column(group), thread = threadIdx.x % 128;
  if (work.seq == 0 && work.later < 0) {
    clear_rows(args, 0, work.range.start, column, VALUES, thread, 128);
  }
  if (work.seq == args.num_seqs - 1 && work.next < 0) {
    clear_rows(args, work.range.stop, args.tokens, column, VALUES, thread, 128);
  }
}

// Half of the columns of a sequence or segment, by the first warpgroup.
__device__ __forceinline__ void scan_states(ScanMemory& shared, const Args& args, const Work& work,
                                            Turn& turn) {
  const int chunks = work.range.chunks();
  float state[64];
  if (work.is_transition) {
    make_identity(work.first_group, state);
  } else if (chunks > 0 && work.later < 0) {
    load_state(args, work, 0, state);
  } else {
#pragma unroll
    for (int i = 0; i < 64; ++i) state[i] = 0.0f;
  }
  uint32_t rounded[8][4];
  round_fragment(state, rounded);
  Handed* handed = work.is_transition
                       ? transition_of(args, work.slot, work.v_head, work.first_group)
                       : handed_of(args, work.slot, work.v_head, work.first_group);
  if (chunks > 0) wait_cta_phase(&shared.full[turn.stage], turn.parity);
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk, handed += 2 * V_HEADS) {
    step_state(shared, *handed, turn, chunk == chunks - 1, state, rounded);
  }
  if (work.is_transition) return hand_transition(args, work, state);
  if (is_merged(work)) merge_begin(shared, args, work, turn, state);
  if (work.next >= 0) {
    hand_begin(args, work, state);
  } else {
    store_state(args, work, 0, state);
  }
  clear_ends(args, work, 0);
}

// A chunk's outputs of a warpgroup's columns, from what was handed on; the last products are on
// their way.
__device__ __forceinline__ void multiply_handed(const Stage& handed, const Stage& of, float scale,
                                                int group, float (&output)[32]) {
  uint32_t state[8][4], residual[4][4];
  float2 fades[8];
  take_fragments(group == 0 ? handed.operands.keys[0] : handed.solved.writes[0], state);
  multiply_state(state, of.operands.queries, output);
  wait_products<0>(output);  // later loads take the state's registers: a chunk's begin has 64 more
  load_carry(of.solved.carry, fades);
  take_fragments(handed.values[group], residual);
  sync_threads_of(1 + group, 128);  // all have read what outputs take the place of
  fade_output(fades, scale, output);
  add_residual(residual, describe_rows(of.solved.reads, 0), output);
}

// The outputs of a chunk of a first segment.
__device__ __forceinline__ void find_output(ScanMemory& shared, float scale, int group,
                                            Turn& turn) {
  const Stage& stage = shared.stages[turn.stage];
  wait_cta_phase(&shared.full[turn.stage], turn.parity);
  float output[32];
  multiply_handed(stage, stage, scale, group, output);
  wait_products<0>(output);
  uint32_t rounded[16];
  round_output(output, rounded);
  leave_output(shared, turn.stage, group, false, rounded);
  turn.advance();
}

// What the transition adds to the outputs for each row of the state in front of the segment, a
// warpgroup 64 of these rows: to the place of its residual, [token][row] fp16.
__device__ __forceinline__ void find_additions(ScanMemory& shared, float scale, int group,
                                               Turn& turn) {
  const Stage& stage = shared.stages[turn.stage];
  wait_cta_phase(&shared.full[turn.stage], turn.parity);
  float sums[32];
  multiply_handed(stage, stage, scale, group, sums);
  wait_products<0>(sums);
  uint32_t rounded[4][4];
  round_fragment(sums, rounded);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    store_tiles_transposed(shared_address(stage.values[group] + value_place(2 * i)), rounded[i][0],
                           rounded[i][1], rounded[i][2], rounded[i][3]);
  }
  publish_shared();
  turn.advance();
}

// The outputs of a chunk of a later segment: additions [64 tokens, 128] times the state in front of
// it, in two terms, on top of what its own states give. By both warpgroups.
__device__ __forceinline__ void find_later_output(ScanMemory& shared, const Args& args,
                                                  const Work& work, int group, Turn& turn) {
  const int before = turn.stage;
  find_additions(shared, args.scale, group, turn);
  sync_threads_of(1 + GROUPS + 1, GROUPS * 128);  // additions of all rows are there
  wait_cta_phase(&shared.full[turn.stage], turn.parity);
  uint32_t high[8][4], low[8][4], rounded[16];
  load_begin_terms(args, work, group, high, low);
  float output[32];
  multiply_handed(shared.stages[turn.stage], shared.stages[before], args.scale, group, output);
  multiply_state(high, shared.stages[before].values, output, true);
  multiply_state(low, shared.stages[before].values, output, true);
  wait_products<0>(output);
  arrive_once_a_warp(&shared.done[before]);
  round_output(output, rounded);
  leave_output(shared, turn.stage, group, false, rounded);
  turn.advance();
}

// A warpgroup's part of a sequence.
__device__ __forceinline__ void scan_sequence(ScanMemory& shared, const Args& args,
                                              const Work& work, int group, Turn& turn) {
  const int chunks = work.range.chunks();
  const bool is_half = work.groups < GROUPS;
  float state[64] = {};
  if (is_state_sent(args, work)) {
    take_state(shared, work, group, turn, state);
  } else if (chunks > 0) {
    load_state(args, work, group, state);
  }
  uint32_t rounded[8][4], output[16] = {};
  round_fragment(state, rounded);
  int last = 0;
  if (chunks > 0) wait_cta_phase(&shared.full[turn.stage], turn.parity);
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    last = turn.stage;
    step_chunk(shared, args.scale, turn, chunk == 0, chunk == chunks - 1, group, is_half, state,
               rounded, output);
  }
  if (chunks > 0) leave_output(shared, last, group, is_half, output);
  store_state(args, work, group, state);
  clear_ends(args, work, group);
}

// A warpgroup without columns stores the other's outputs. Its arrivals count, the last for both.
__device__ __forceinline__ void store_chunks(ScanMemory& shared, const Args& args,
                                             const Work& work, Turn& turn, int& parities) {
#pragma unroll 1
  for (int first = work.range.start; first < work.range.stop; first += CHUNK, turn.advance()) {
    wait_cta_phase(&shared.full[turn.stage], turn.parity);
    arrive_once_a_warp(&shared.used[turn.stage]);
    wait_cta_phase(&shared.left[turn.stage], parities >> turn.stage & 1);
    parities ^= 1 << turn.stage;
    uint4 rows[SHARES];
    take_rows(shared.stages[turn.stage].values[1], rows);
    arrive_once_a_warp(&shared.done[turn.stage]);
    arrive_once_a_warp(&shared.done[turn.stage]);
    store_taken(args, rows, first, min(work.range.stop - first, CHUNK), work.column(0));
  }
}

// A warpgroup's part of a CTA's work.
template <bool MAY_CUT>
__device__ __forceinline__ void scan_chunks(ScanMemory& shared, const Args& args, int group) {
  Turn turn(0);
  int parities = 0;  // of `left`, a bit a stage
  for_works<MAY_CUT>(shared, args, [&](const Work& work, int) {
    if (work.seq < 0 && work.later < 0) {
      find_output(shared, args.scale, group, turn);
    } else if (work.seq < 0) {
      find_later_output(shared, args, work, group, turn);
    } else if (MAY_CUT || (work.groups < GROUPS && is_handing(args))) {
      if (group == 0) {
        scan_states(shared, args, work, turn);
      } else {
        turn.advance(work.range.chunks() + is_merged(work));
      }
    } else if (group < work.groups) {
      scan_sequence(shared, args, work, group, turn);
    } else {
      store_chunks(shared, args, work, turn, parities);
    }
  });
}

}  // namespace
