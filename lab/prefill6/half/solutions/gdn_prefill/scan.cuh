// The state along the chunks of a sequence: 64 columns of V a warpgroup, transposed, in the
// registers of its products. A third warpgroup brings what they read and stores what they leave; of
// half of the columns the second warpgroup, which has none, stores what the first one leaves.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "bulk_copy.cuh"
#include "bulk_hints.cuh"
#include "global_proxy.cuh"
#include "order.cuh"
#include "plan.cuh"
#include "programmatic_launch.cuh"
#include "tensor_core.cuh"
#include "tensor_core_f16.cuh"
#include "warpgroup.cuh"
#include "warpgroup_rows.cuh"

namespace {

constexpr int GROUPS = 2;    // warpgroups, 64 columns of V each
constexpr int SENDERS = 128;  // threads of the third
constexpr int SCAN_THREADS = GROUPS * 128 + SENDERS;
static_assert(SCAN_THREADS == ORDERED, "a thread a sequence, ordered where solve_kernel does it");

constexpr int LISTED = 4;  // units that the senders may be ahead
constexpr int SCAN_WARPS = SCAN_THREADS / 32;

struct Stage {
  alignas(1024) Operands operands;
  Solved solved;
  // [token][value] bf16, then the output; the output of half of the columns lies in the second.
  alignas(128) uint8_t values[GROUPS][TILE_BYTES];
};

// Where the outputs of a chunk belong: first token, tokens, first column, warpgroups.
struct Place {
  int token, rows, column, groups;
};

// Chunks of all that a CTA works on are counted through, as rounds: the one after a sequence's last
// is the next one's first, and is on its way before.
struct ScanMemory {
  Stage stages[Tuning::STAGES];
  // All is there; keys, queries and values have been read; all has been read and the output is
  // there, or taken from there, if it is of half of the columns.
  alignas(8) uint64_t full[Tuning::STAGES], used[Tuning::STAGES], done[Tuning::STAGES];
  uint64_t left;  // the first warpgroup's output of half of the columns is there
  Place places[2 * Tuning::STAGES];  // one is read up to STAGES rounds late
  // The CTA's units: one is listed; all warps know it.
  uint64_t listed[LISTED], known[LISTED];
  int units[LISTED];
  Order order;
};
static_assert(sizeof(ScanMemory) <= 227 * 1024, "what sm_90 gives a CTA");
static_assert(sizeof(Operands) % 1024 == 0 && sizeof(Operands::keys) % 1024 == 0,
              "tiles of 128-byte rows start at multiples of 1024");

// What a CTA works on: a v head of a sequence, all columns of V or half of them.
struct Work {
  Range range;
  int slot, seq, v_head;    // first slot of the sequence
  int first_group, groups;  // of 64 columns
  __device__ int column(int group) const { return v_head * DIM + (first_group + group) * VALUES; }
  // In state and new_state.
  __device__ int64_t first_value() const {
    return (int64_t{seq} * V_HEADS + v_head) * (DIM * DIM) + first_group * (VALUES * DIM);
  }
};

// Says to the compiler that all lanes hold the same: products in flight suffer no other branches.
__device__ __forceinline__ int share(int x) { return __shfl_sync(FULL, x, 0); }

// Units: two a v head of the sequences that are split, each half of the columns, one of the others.
__device__ __forceinline__ Work find_work(const ScanMemory& shared, const Args& args,
                                          int num_split, int unit) {
  const int halves = 2 * V_HEADS * num_split;
  const bool is_half = unit < halves;
  const int part = is_half ? unit / 2 : unit - halves + V_HEADS * num_split;
  const int rank = part / V_HEADS;
  const int seq = share(args.num_seqs > ORDERED ? rank : shared.order.seqs[rank]);
  const Range of = load_range(args, seq), range = {share(of.start), share(of.stop)};
  const int first_group = is_half ? unit % 2 : 0;
  return {range, first_slot(range, seq), seq, part % V_HEADS, first_group, is_half ? 1 : GROUPS};
}

// The stage of a round and the parity of its barriers.
struct Turn {
  int stage, parity;
  __device__ explicit Turn(int round)
      : stage(round % Tuning::STAGES), parity(round / Tuning::STAGES % 2) {}
  __device__ void advance() {
    ++stage;
    if (stage == Tuning::STAGES) stage = 0, parity ^= 1;
  }
};

__device__ __forceinline__ void init_barriers(ScanMemory& shared) {
#pragma unroll
  for (int stage = 0; stage < Tuning::STAGES; ++stage) {
    init_barrier(&shared.full[stage], SENDERS + 2);
    init_barrier(&shared.used[stage], GROUPS * 4);
    init_barrier(&shared.done[stage], GROUPS * 4);
  }
  init_barrier(&shared.left, 4);
#pragma unroll
  for (int place = 0; place < LISTED; ++place) {
    init_barrier(&shared.listed[place], 1);
    init_barrier(&shared.known[place], SCAN_WARPS);
  }
  fence_barrier_init();
}

__device__ __forceinline__ void arrive_once_a_warp(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(barrier);
}

// The longest of the units that no CTA has taken yet.
__device__ __forceinline__ int take_unit(const Args& args) {
  return atomicAdd(taken_units(args), 1);
}

// The CTA's unit `number`, from 1 on, to all of its warps.
__device__ __forceinline__ void list_unit(ScanMemory& shared, int number, int unit) {
  const int place = number % LISTED;
  if (number > LISTED) wait_cta_phase(&shared.known[place], (number - 1) / LISTED % 2 ^ 1);
  shared.units[place] = unit;
  arrive(&shared.listed[place]);
}

__device__ __forceinline__ int read_unit(ScanMemory& shared, int number) {
  const int place = number % LISTED;
  wait_cta_phase(&shared.listed[place], (number - 1) / LISTED % 2);
  const int unit = share(shared.units[place]);
  arrive_once_a_warp(&shared.known[place]);
  return unit;
}

// Calls use(work, number) for what this CTA works on, until there is nothing left. The first unit
// is listed before, that behind `number` by use() of the senders.
template <typename Use>
__device__ __forceinline__ void for_works(ScanMemory& shared, const Args& args, Use use) {
  const int num_split = share(min(shared.order.longer, args.most_split));
  const int units = V_HEADS * (args.num_seqs + num_split);
#pragma unroll 1
  for (int number = 1;; ++number) {
    const int unit = read_unit(shared, number);
    if (unit >= units) break;
    use(find_work(shared, args, num_split, unit), number);
  }
}

// A thread's 16 bytes of every sixteenth row of a warpgroup's tile: of the senders, or of whoever
// stores half of the columns.
struct Share {
  int row, column;
  __device__ Share() : row(threadIdx.x % SENDERS / 8), column(threadIdx.x % 8 * 8) {}
  __device__ uint8_t* in(uint8_t* tile) const { return tile + swizzled(row, column / 8); }
};
constexpr int SHARES = CHUNK / (SENDERS / 8), SHARE_ROWS = SENDERS / 8;

__device__ __forceinline__ void take_rows(uint8_t* tile, uint4 (&rows)[SHARES]) {
  const uint8_t* from = Share().in(tile);
#pragma unroll
  for (int i = 0; i < SHARES; ++i) {
    rows[i] = *reinterpret_cast<const uint4*>(from + i * (SHARE_ROWS * 128));
  }
}

// Rows of the tile as output from `token` on, `count` of them, in 64 columns from `column` on.
__device__ __forceinline__ void store_taken(const Args& args, const uint4 (&rows)[SHARES],
                                            int token, int count, int column) {
  const Share mine;
  const int64_t first = int64_t{token} + mine.row;
  __nv_bfloat16* to = args.output + first * (V_HEADS * DIM) + column + mine.column;
#pragma unroll
  for (int i = 0; i < SHARES; ++i) {
    __nv_bfloat16* row = to + i * (SHARE_ROWS * V_HEADS * DIM);
    if (mine.row + i * SHARE_ROWS < count) __stcs(reinterpret_cast<uint4*>(row), rows[i]);
  }
}

// Value columns of a chunk, a row of 128 bytes a token and group; zero behind the sequence's end.
__device__ __forceinline__ void request_values(ScanMemory& shared, const Args& args,
                                               const Work& work, int chunk, int round) {
  const Share mine;
  const int stage = round % Tuning::STAGES, first = work.range.start + chunk * CHUNK;
  const int rows = min(work.range.stop - first, CHUNK);
  const int64_t token = first + mine.row;
  const __nv_bfloat16* from = args.v + token * (V_HEADS * DIM) + work.column(0) + mine.column;
  uint8_t* to = mine.in(shared.stages[stage].values[0]);
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    if (group >= work.groups) break;
#pragma unroll
    for (int i = 0; i < SHARES; ++i) {
      const __nv_bfloat16* row = from + group * VALUES + i * (SHARE_ROWS * V_HEADS * DIM);
      const bool is_token = mine.row + i * SHARE_ROWS < rows;
      copy_chunk_or_clear(to + group * TILE_BYTES + i * (SHARE_ROWS * 128), row, is_token);
    }
  }
  arrive_with_copies(&shared.full[stage]);
}

// The output of a round, from where a sender's next values go.
__device__ __forceinline__ void store_output(ScanMemory& shared, const Args& args, int round) {
  const Place place = shared.places[round % (2 * Tuning::STAGES)];
  if (place.groups < GROUPS) return;  // stored by the second warpgroup
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    uint4 rows[SHARES];
    take_rows(shared.stages[round % Tuning::STAGES].values[group], rows);
    store_taken(args, rows, place.token, place.rows, place.column + group * VALUES);
  }
}

// What solve_kernel left for a chunk.
__device__ __forceinline__ void request_operands(ScanMemory& shared, const Args& args,
                                                 const Work& work, int chunk, int round) {
  if (threadIdx.x % SENDERS != 0) return;
  const int stage = round % Tuning::STAGES, first = work.range.start + chunk * CHUNK;
  shared.places[round % (2 * Tuning::STAGES)] = {first, min(work.range.stop - first, CHUNK),
                                                 work.column(0), work.groups};
  const Operands* operands = operands_of(args, work.slot + chunk, work.v_head / SERVED);
  arrive_expecting(&shared.full[stage], sizeof(Operands));
  copy_bulk(&shared.stages[stage].operands, operands, sizeof(Operands), &shared.full[stage]);
}

__device__ __forceinline__ void request_solved(ScanMemory& shared, const Args& args,
                                               const Work& work, int chunk, int stage) {
  if (threadIdx.x % SENDERS != 0) return;
  const Solved* solved = solved_of(args, work.slot + chunk, work.v_head);
  arrive_expecting(&shared.full[stage], sizeof(Solved));
  copy_bulk(&shared.stages[stage].solved, solved, sizeof(Solved), &shared.full[stage]);
}

// Whether the values of a round go where no output lies: half of the columns, as in the round that
// had the stage before.
__device__ __forceinline__ bool is_apart(const ScanMemory& shared, const Work& work, int round) {
  if (work.groups == GROUPS || round < Tuning::STAGES) return work.groups < GROUPS;
  return shared.places[(round - Tuning::STAGES) % (2 * Tuning::STAGES)].groups < GROUPS;
}

// A sender's part of a unit's chunks, from the CTA's `round` on. Values of the first rounds of all
// do not wait for solve_kernel, those of half of the columns for no output.
__device__ __forceinline__ void send_unit(ScanMemory& shared, const Args& args, const Work& work,
                                          bool is_requesting, int& round) {
  const int chunks = work.range.chunks(), early = round == 0 ? min(chunks, Tuning::STAGES) : 0;
#pragma unroll 1
  for (int chunk = 0; chunk < early; ++chunk) request_values(shared, args, work, chunk, chunk);
  int solved = 0;  // chunks that are known to be there
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk, ++round) {
    const int stage = round % Tuning::STAGES, parity = (round / Tuning::STAGES - 1) % 2;
    const bool is_reused = round >= Tuning::STAGES;
    if (is_requesting && chunk >= solved) {
      const int qk_head = work.v_head / SERVED;
      solved = chunk + await_solved(args, work.slot + chunk, qk_head, chunks - chunk);
      admit_bulk_reads();
    }
    if (is_reused) wait_cta_phase(&shared.used[stage], parity);
    request_operands(shared, args, work, chunk, round);
    const bool apart = is_apart(shared, work, round);
    if (chunk >= early && apart) request_values(shared, args, work, chunk, round);
    if (is_reused) wait_cta_phase(&shared.done[stage], parity);
    request_solved(shared, args, work, chunk, stage);
    if (apart) continue;
    if (is_reused) store_output(shared, args, round - Tuning::STAGES);
    if (chunk >= early) request_values(shared, args, work, chunk, round);
  }
}

// The senders' part of a CTA's work. A unit is taken once all chunks of the one in front have been
// requested, of which two are still to be worked on: no earlier, or others might be done with
// theirs before it is begun.
__device__ __forceinline__ void send_chunks(ScanMemory& shared, const Args& args, int first) {
  const bool is_requesting = share(threadIdx.x % SENDERS / 32) == 0;
  const bool is_leader = threadIdx.x % SENDERS == 0;
  int round = 0;
  if (is_leader) list_unit(shared, 1, first);
  for_works(shared, args, [&](const Work& work, int number) {
    if (is_leader && number > 1 && work.range.chunks() > 0 && args.state) {
      prefetch_bulk(args.state + work.first_value(), work.groups * VALUES * DIM * sizeof(float));
    }
    send_unit(shared, args, work, is_requesting, round);
    if (is_leader) list_unit(shared, number + 1, take_unit(args));
  });
#pragma unroll 1
  for (int last = max(round - Tuning::STAGES, 0); last < round; ++last) {
    wait_cta_phase(&shared.done[last % Tuning::STAGES], last / Tuning::STAGES % 2);
    store_output(shared, args, last);
  }
  commit_copies();
  wait_copies<0>();  // no copy may land in a CTA that has ended
  wait_for_launches_before();  // who comes after this kernel comes after solve_kernel
}

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
  arrive_once_a_warp(is_half ? &shared.left : &shared.done[stage]);
}

// sums = S^T times the transposed rows: keys or queries.
__device__ __forceinline__ void multiply_state(const uint32_t (&state)[8][4],
                                               const uint8_t (&rows)[2][TILE_BYTES],
                                               float (&sums)[32]) {
  begin_products();
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    multiply_f16(sums, state[step], at_step(describe_tile(rows[step / 4]), step % 4), step > 0);
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

// A warpgroup's part of a sequence.
__device__ __forceinline__ void scan_sequence(ScanMemory& shared, const Args& args,
                                              const Work& work, int group, Turn& turn) {
  const int chunks = work.range.chunks(), thread = threadIdx.x % 128;
  const bool is_half = work.groups < GROUPS;
  float state[64];
  if (chunks > 0) {
    load_state(args, work, group, state);
  } else {
#pragma unroll
    for (int i = 0; i < 64; ++i) state[i] = 0.0f;
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
  if (work.seq == 0) clear_rows(args, 0, work.range.start, work.column(group), VALUES, thread, 128);
  if (work.seq == args.num_seqs - 1) {
    clear_rows(args, work.range.stop, args.tokens, work.column(group), VALUES, thread, 128);
  }
}

// A warpgroup without columns stores the other's outputs. Its arrivals count, the last for both.
__device__ __forceinline__ void store_chunks(ScanMemory& shared, const Args& args,
                                             const Work& work, Turn& turn, int& parity) {
#pragma unroll 1
  for (int first = work.range.start; first < work.range.stop; first += CHUNK, turn.advance()) {
    wait_cta_phase(&shared.full[turn.stage], turn.parity);
    arrive_once_a_warp(&shared.used[turn.stage]);
    wait_cta_phase(&shared.left, parity);
    parity ^= 1;
    uint4 rows[SHARES];
    take_rows(shared.stages[turn.stage].values[1], rows);
    arrive_once_a_warp(&shared.done[turn.stage]);
    arrive_once_a_warp(&shared.done[turn.stage]);
    store_taken(args, rows, first, min(work.range.stop - first, CHUNK), work.column(0));
  }
}

// A warpgroup's part of a CTA's work.
__device__ __forceinline__ void scan_chunks(ScanMemory& shared, const Args& args, int group) {
  Turn turn(0);
  int parity = 0;  // of `left`
  for_works(shared, args, [&](const Work& work, int) {
    if (group < work.groups) {
      scan_sequence(shared, args, work, group, turn);
    } else {
      store_chunks(shared, args, work, turn, parity);
    }
  });
}

}  // namespace
