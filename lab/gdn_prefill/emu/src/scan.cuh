// The state along the chunks of a sequence: 64 columns of V a warpgroup, transposed, in the
// registers of its products.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "async_copy.cuh"
#include "bulk_copy.cuh"
#include "plan.cuh"
#include "programmatic_launch.cuh"
#include "tensor_core.cuh"
#include "tensor_core_f16.cuh"
#include "warpgroup.cuh"
#include "warpgroup_rows.cuh"

namespace {

constexpr int GROUPS = 2;    // warpgroups, 64 columns of V each
constexpr int SENDERS = 32;  // the warp that requests
// Nine warps would leave 168 registers to each thread: the warp that requests stands in a warpgroup
// of its own, which gives its registers away.
constexpr int SCAN_THREADS = (GROUPS + 1) * 128;

struct Stage {
  alignas(1024) Operands operands;
  Solved solved;
  alignas(128) uint8_t values[GROUPS][TILE_BYTES];  // [token][value] bf16, then the output
};

struct ScanMemory {
  Stage stages[Tuning::STAGES];
  alignas(8) uint64_t full[Tuning::STAGES], free[Tuning::STAGES];
  int chunks[SCAN_THREADS];  // by sequence
  int seq;
};
static_assert(sizeof(ScanMemory) <= 227 * 1024, "what sm_90 gives a CTA");
static_assert(sizeof(Operands) % 1024 == 0 && sizeof(Operands::keys) % 1024 == 0,
              "tiles of 128-byte rows start at multiples of 1024");

// What a CTA works on: a v head of a sequence, all columns of V or half of them.
struct Work {
  Range range;
  int slot, seq, v_head;    // first slot of the sequence
  int first_group, groups;  // of 64 columns
  int column(int group) const { return v_head * DIM + (first_group + group) * VALUES; }
};

// The sequence of so many that are longer. No order among more sequences than threads.
__device__ __forceinline__ int find_sequence(ScanMemory& shared, const Args& args, int rank) {
  if (args.num_seqs > SCAN_THREADS) return rank;
  const int seq = threadIdx.x;
  const int chunks = seq < args.num_seqs ? load_range(args, seq).chunks() : -1;
  shared.chunks[seq] = chunks;
  __syncthreads();
  if (seq < args.num_seqs) {
    int before = 0;
    for (int other = 0; other < args.num_seqs; ++other) {
      const int others = shared.chunks[other];
      before += others > chunks || (others == chunks && other < seq);
    }
    if (before == rank) shared.seq = seq;
  }
  __syncthreads();
  return shared.seq;
}

// Longest sequences first, so that none is begun late. The first most_split of them have two CTAs a
// v head: each takes half of the columns where the sequence is longer than most_whole chunks, and
// elsewhere the second has nothing to do.
__device__ __forceinline__ Work find_work(ScanMemory& shared, const Args& args) {
  const int split = 2 * V_HEADS * args.most_split, unit = blockIdx.x;
  const bool may_split = unit < split;
  const int part = may_split ? unit / 2 : unit - split;
  const int rank = part / V_HEADS + (may_split ? 0 : args.most_split);
  const int seq = find_sequence(shared, args, rank);
  const Range range = load_range(args, seq);
  const bool is_split = may_split && range.chunks() > args.most_whole;
  const int half = may_split ? unit % 2 : 0;
  const int groups = is_split ? 1 : half == 0 ? GROUPS : 0;
  return {range, first_slot(range, seq), seq, part % V_HEADS, is_split ? half : 0, groups};
}

// Says to the compiler that all lanes hold the same: products in flight suffer no other branches.
__device__ __forceinline__ Work share(const Work& work) {
  const auto of = [](int x) { return __shfl_sync(FULL, x, 0); };
  return {{of(work.range.start), of(work.range.stop)}, of(work.slot), of(work.seq),
          of(work.v_head), of(work.first_group), of(work.groups)};
}

__device__ __forceinline__ void init_barriers(ScanMemory& shared, int groups) {
#pragma unroll
  for (int stage = 0; stage < Tuning::STAGES; ++stage) {
    init_barrier(&shared.full[stage], SENDERS + 1);
    init_barrier(&shared.free[stage], groups * 4);
  }
  fence_barrier_init();
}

// Value columns of a chunk, a row of 128 bytes a token and group; zero behind the sequence's end.
__device__ __forceinline__ void request_values(ScanMemory& shared, const Args& args,
                                               const Work& work, int chunk) {
  const int stage = chunk % Tuning::STAGES, first = work.range.start + chunk * CHUNK;
#pragma unroll 8
  for (int at = threadIdx.x % 32; at < work.groups * CHUNK * 8; at += 32) {
    const int row = at / 8 % CHUNK, group = at / (8 * CHUNK);
    const bool is_token = first + row < work.range.stop;
    const int64_t token = is_token ? first + row : first;
    const int column = work.column(group) + at % 8 * 8;
    copy_chunk_or_clear(shared.stages[stage].values[group] + swizzled(row, at % 8),
                        args.v + token * (V_HEADS * DIM) + column, is_token);
  }
  arrive_with_copies(&shared.full[stage]);
}

// The requesting warp's part: values at once, what solve_kernel leaves when it has ended.
__device__ __forceinline__ void request_chunks(ScanMemory& shared, const Args& args,
                                               const Work& work) {
  const int chunks = work.range.chunks();
#pragma unroll 1
  for (int chunk = 0; chunk < min(chunks, Tuning::STAGES); ++chunk) {
    request_values(shared, args, work, chunk);
  }
  wait_for_launches_before();
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int stage = chunk % Tuning::STAGES;
    if (chunk >= Tuning::STAGES) {
      wait_phase(&shared.free[stage], (chunk / Tuning::STAGES - 1) % 2);
      request_values(shared, args, work, chunk);
    }
    if (threadIdx.x % 32 == 0) {
      Stage& to = shared.stages[stage];
      uint64_t* full = &shared.full[stage];
      const Operands* operands = operands_of(args, work.slot + chunk, work.v_head / SERVED);
      const Solved* solved = solved_of(args, work.slot + chunk, work.v_head);
      arrive_expecting(full, sizeof(Operands) + sizeof(Solved));
      copy_bulk(&to.operands, operands, sizeof(Operands), full);
      copy_bulk(&to.solved, solved, sizeof(Solved), full);
    }
  }
  commit_copies();
  wait_copies<0>();  // no copy may land in a CTA that has ended
}

// Calls use(index into the fragment, offset in a [128, 128] state) for pairs of keys.
template <typename Use>
__device__ __forceinline__ void for_state(const Work& work, int group, Use use) {
  const int first = (work.first_group + group) * VALUES, warp = threadIdx.x / 32 % 4;
  const int row = first + 16 * warp + threadIdx.x % 32 / 4;
  const int64_t head = (int64_t{work.seq} * V_HEADS + work.v_head) * (DIM * DIM);
#pragma unroll
  for (int i = 0; i < 64; i += 2) {
    use(i, head + (row + i / 2 % 2 * 8) * DIM + i / 4 * 8 + threadIdx.x % 4 * 2);
  }
}

__device__ __forceinline__ void load_state(const Args& args, const Work& work, int group,
                                           float (&state)[64]) {
  for_state(work, group, [&](int i, int64_t offset) {
    float2 pair = {0.0f, 0.0f};
    if (args.state) pair = __ldg(reinterpret_cast<const float2*>(args.state + offset));
    state[i] = pair.x;
    state[i + 1] = pair.y;
  });
}

__device__ __forceinline__ void store_state(const Args& args, const Work& work, int group,
                                            const float (&state)[64]) {
  for_state(work, group, [&](int i, int64_t offset) {
    *reinterpret_cast<float2*>(args.new_state + offset) = {state[i], state[i + 1]};
  });
}

// A warpgroup's values of a chunk.
__device__ __forceinline__ uint8_t* values_of(ScanMemory& shared, int chunk, int group) {
  return shared.stages[chunk % Tuning::STAGES].values[group];
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

// residual = V^T - sums diag(carry), rounded: what the chunk's tokens are to write.
__device__ __forceinline__ void find_residual(const uint32_t (&values)[4][4], const float* carry,
                                              const float (&sums)[32], uint32_t (&to)[4][4]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int tile = i / 2;  // of eight tokens
    const float2 fade = *reinterpret_cast<const float2*>(carry + 8 * tile + threadIdx.x % 4 * 2);
    const float2 wanted = widen_bf16(values[i / 4][i % 4]);
    to[i / 4][i % 4] = pack_f16(fmaf(-fade.x, sums[2 * i], wanted.x),
                                fmaf(-fade.y, sums[2 * i + 1], wanted.y));
  }
}

// sums *= scale diag(carry)
__device__ __forceinline__ void fade_output(const float* carry, float scale, float (&sums)[32]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float2 fade = *reinterpret_cast<const float2*>(carry + 8 * i + threadIdx.x % 4 * 2);
    const float x = scale * fade.x, y = scale * fade.y;
    sums[4 * i] *= x, sums[4 * i + 1] *= y, sums[4 * i + 2] *= x, sums[4 * i + 3] *= y;
  }
}

// O^T through the place of the warp's values, which it alone has read: 32 bytes a token.
__device__ __forceinline__ void write_output(ScanMemory& shared, const Args& args,
                                             const Work& work, int chunk, int group,
                                             const uint32_t (&output)[16]) {
  uint8_t* tile = values_of(shared, chunk, group);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    store_tiles_transposed(shared_address(tile + value_place(2 * i)), output[4 * i],
                           output[4 * i + 1], output[4 * i + 2], output[4 * i + 3]);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = 16 * i + lane / 2, column = 2 * warp + lane % 2;
    const uint4 values = *reinterpret_cast<const uint4*>(tile + swizzled(row, column));
    const int64_t token = work.range.start + chunk * CHUNK + row;
    if (token >= work.range.stop) continue;
    __nv_bfloat16* to = args.output + token * (V_HEADS * DIM) + work.column(group) + column * 8;
    *reinterpret_cast<uint4*>(to) = values;
  }
}

// S^T times keys^T, then times queries^T, as two groups.
__device__ __forceinline__ void multiply_state(const Operands& operands,
                                               const uint32_t (&state)[8][4], float (&seen)[32],
                                               float (&output)[32]) {
  begin_products();
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    const uint64_t keys = describe_tile(operands.keys[step / 4]);
    multiply_f16(seen, state[step], at_step(keys, step % 4), step > 0);
  }
  commit_products();
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    const uint64_t queries = describe_tile(operands.queries[step / 4]);
    multiply_f16(output, state[step], at_step(queries, step % 4), step > 0);
  }
  commit_products();
}

// One chunk. `rounded` is the state as an operand; `pending` the output of the chunk before,
// written while this one's products run.
__device__ __forceinline__ void step_chunk(ScanMemory& shared, const Args& args,
                                           const Work& work, int chunk, int group,
                                           float (&state)[64],
                                           uint32_t (&rounded)[8][4], uint32_t (&pending)[16]) {
  Stage& stage = shared.stages[chunk % Tuning::STAGES];
  const Solved& solved = stage.solved;
  uint32_t values[4][4], residual[4][4];
  float seen[32], output[32];
  wait_phase(&shared.full[chunk % Tuning::STAGES], chunk / Tuning::STAGES % 2);
  multiply_state(stage.operands, rounded, seen, output);
  if (chunk > 0) {
    const int before = (chunk - 1) % Tuning::STAGES;
    write_output(shared, args, work, chunk - 1, group, pending);
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(&shared.free[before]);
  }
  load_values(values_of(shared, chunk, group), values);
  wait_products<1>(seen);
  find_residual(values, solved.carry, seen, residual);
  const float fade = solved.carry[CHUNK - 1];
#pragma unroll
  for (int i = 0; i < 64; ++i) state[i] *= fade;
  begin_products();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const uint64_t writes = describe_rows(solved.writes[0], TILE_BYTES);
    multiply_rows_f16(state, residual[step], at_rows(writes, step), true);
  }
  commit_products();
  wait_products<1>(output);
  fade_output(solved.carry, args.scale, output);
  begin_products();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const uint64_t reads = describe_rows(solved.reads, 0);
    multiply_rows_f16(output, residual[step], at_rows(reads, step), true);
  }
  commit_products();
  wait_products<1>(state);
  round_fragment(state, rounded);
  wait_products<0>(output);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(output[2 * i], output[2 * i + 1]);
    pending[i] = *reinterpret_cast<const uint32_t*>(&pair);
  }
}

// A warpgroup's part of its sequence.
__device__ __forceinline__ void scan_chunks(ScanMemory& shared, const Args& args,
                                            const Work& work, int group) {
  const int chunks = work.range.chunks(), thread = threadIdx.x % 128;
  float state[64];
  if (chunks > 0) {
    load_state(args, work, group, state);
  } else {
#pragma unroll
    for (int i = 0; i < 64; ++i) state[i] = 0.0f;
  }
  uint32_t rounded[8][4], pending[16] = {};
  round_fragment(state, rounded);
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    step_chunk(shared, args, work, chunk, group, state, rounded, pending);
  }
  store_state(args, work, group, state);
  if (chunks > 0) {
    write_output(shared, args, work, chunks - 1, group, pending);
  }
  if (work.seq == 0) clear_rows(args, 0, work.range.start, work.column(group), VALUES, thread, 128);
  if (work.seq == args.num_seqs - 1) {
    clear_rows(args, work.range.stop, args.tokens, work.column(group), VALUES, thread, 128);
  }
}

}  // namespace
