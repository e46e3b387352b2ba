// What the scan's warpgroups share: stages, units of work, and who has which rows of a tile.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "order.cuh"
#include "plan.cuh"
#include "segments.cuh"
#include "warp_arrival.cuh"
#include "warpgroup.cuh"

namespace {

constexpr int GROUPS = 2;    // warpgroups, 64 columns of V each
constexpr int SENDERS = 128;  // threads of the third
constexpr int SCAN_THREADS = GROUPS * 128 + SENDERS;
static_assert(SCAN_THREADS == ORDERED, "a thread a sequence, ordered where solve_kernel does it");

constexpr int LISTED = 4;  // units that the senders may be ahead
constexpr int SCAN_WARPS = SCAN_THREADS / 32;

struct Stage {
  alignas(1024) Operands operands;
  // [token][value] bf16, then the output; the output of half of the columns lies in the second. Or
  // all of the stage is a state: send_state().
  uint8_t values[GROUPS][TILE_BYTES];
  Solved solved;
};

// Where the outputs of a round belong: first token, tokens, first column, warpgroups. And what
// nobody reads any more once the round is done, or nullptr.
struct Place {
  int token, rows, column, groups;
  const Solved* spent;
};

// Chunks of all that a CTA works on are counted through, as rounds: the one after a sequence's last
// is the next one's first, and is on its way before.
struct ScanMemory {
  Stage stages[Tuning::STAGES];
  // All is there; keys, queries and values have been read; all has been read and the output is
  // there, or taken from there, if it is of half of the columns. Parity does not tell a phase from
  // that two on: none of these may end before all who wait for the one in front of it have seen
  // that. Readers arrive at `used` and `done` of a round behind their waits for it, senders at
  // `full` behind those for the round that had the stage before: whoever stands still holds all up.
  alignas(8) uint64_t full[Tuning::STAGES], used[Tuning::STAGES], done[Tuning::STAGES];
  // The first warpgroup's output of half of the columns is there: phases of such rounds alone. A
  // stage has the next one after `done`, at which the second warpgroup arrives behind its wait.
  uint64_t left[Tuning::STAGES];
  Place places[2 * Tuning::STAGES];  // one is read up to STAGES rounds late
  // The CTA's units: one is listed; all warps know it.
  uint64_t listed[LISTED], known[LISTED];
  int units[LISTED];
  Order order;
  Cut cut;  // of the longest of few, where it may be cut
};
static_assert(sizeof(ScanMemory) <= 227 * 1024, "what sm_90 gives a CTA");
static_assert(sizeof(Operands) % 1024 == 0 && sizeof(Operands::keys) % 1024 == 0 &&
                  TILE_BYTES % 1024 == 0,
              "tiles of 128-byte rows start at multiples of 1024");

// What a CTA works on: a v head of a sequence or segment, all columns of V or half of them.
struct Work {
  Range range;
  int slot, seq, v_head;    // first slot; the sequence, or -1 for outputs alone
  int first_group, groups;  // of 64 columns
  // Of few long sequences: the number of the segment if it is a later one and of the one behind it,
  // else -1; whether its transition is found, which has rows of the state for columns of V.
  int later, next;
  bool is_transition;
  __device__ int column(int group) const { return v_head * DIM + (first_group + group) * VALUES; }
  // In state and new_state.
  __device__ int64_t first_value() const {
    return (int64_t{seq} * V_HEADS + v_head) * (DIM * DIM) + first_group * (VALUES * DIM);
  }
};

// Whether the unit's states were found from zeros and are to become the true ones.
__device__ __forceinline__ bool is_merged(const Work& work) {
  return work.later >= 0 && !work.is_transition;
}

// Whether a round in front of the unit's chunks brings its state: that of all columns. Of half of
// them each warp loads its own, mostly while the CTA's first chunk is still to be solved.
__device__ __forceinline__ bool is_state_sent(const Args& args, const Work& work) {
  return args.state && work.groups == GROUPS && work.range.chunks() > 0;
}

// Says to the compiler that all lanes hold the same: products in flight suffer no other branches.
__device__ __forceinline__ int share(int x) { return __shfl_sync(FULL, x, 0); }

// Of few long sequences of which one may be cut.
__device__ __forceinline__ Work find_part_work(const ScanMemory& shared, const Args& args,
                                               int unit) {
  const Part part = find_part(shared.order, shared.cut, args, unit);
  const int seq = share(shared.order.seqs[part.rank]);
  const Range of = load_range(args, seq);
  const int first = share(part.first), start = share(of.start) + first * CHUNK;
  const Range range = {start, share(min(of.stop, start + part.chunks * CHUNK))};
  const bool is_output = part.half < 0;
  return {range,
          share(first_slot(of, seq)) + first,
          is_output ? -1 : seq,
          share(part.v_head),
          is_output ? 0 : share(part.half),
          is_output ? GROUPS : 1,
          share(part.later),
          share(part.next),
          share(part.is_transition) != 0};
}

// Units: two a v head of the sequences that are split, each half of the columns, one of the others;
// then, where those hand on, one a chunk and v head of them, its outputs.
template <bool MAY_CUT>
__device__ __forceinline__ Work find_work(const ScanMemory& shared, const Args& args,
                                          int num_split, int unit) {
  if constexpr (MAY_CUT) return find_part_work(shared, args, unit);
  const int states = V_HEADS * (args.num_seqs + num_split);
  if (unit >= states) {
    const Task of = find_ordered(shared.order, args, (unit - states) / V_HEADS, 0);
    const Range range = {share(of.first), share(of.first + of.tokens)};
    return {range, share(of.slot), -1, unit % V_HEADS, 0, GROUPS, -1, -1, false};
  }
  const int halves = 2 * V_HEADS * num_split;
  const bool is_half = unit < halves;
  const int part = is_half ? unit / 2 : unit - halves + V_HEADS * num_split;
  const int rank = part / V_HEADS;
  const int seq = share(args.num_seqs > ORDERED ? rank : shared.order.seqs[rank]);
  const Range of = load_range(args, seq), range = {share(of.start), share(of.stop)};
  const int first_group = is_half ? unit % 2 : 0;
  const int groups = is_half ? 1 : GROUPS;
  return {range, first_slot(range, seq), seq, part % V_HEADS, first_group, groups, -1, -1, false};
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
  __device__ void advance(int rounds) {
    const int at = stage + rounds;
    stage = at % Tuning::STAGES, parity ^= at / Tuning::STAGES % 2;
  }
};

__device__ __forceinline__ void init_barriers(ScanMemory& shared) {
#pragma unroll
  for (int stage = 0; stage < Tuning::STAGES; ++stage) {
    init_barrier(&shared.full[stage], SENDERS + 2);
    init_barrier(&shared.used[stage], GROUPS * 4 * ARRIVALS_A_WARP);
    init_barrier(&shared.done[stage], GROUPS * 4 * ARRIVALS_A_WARP);
    init_barrier(&shared.left[stage], 4 * ARRIVALS_A_WARP);
  }
#pragma unroll
  for (int place = 0; place < LISTED; ++place) {
    init_barrier(&shared.listed[place], 1);
    init_barrier(&shared.known[place], SCAN_WARPS * ARRIVALS_A_WARP);
  }
  fence_barrier_init();
}

__device__ __forceinline__ void arrive_once_a_warp(uint64_t* barrier) {
  __syncwarp();
  arrive_for_warp(barrier);
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

// Of the sequences that are split.
__device__ __forceinline__ int count_split_chunks(const Order& order, const Args& args,
                                                  int num_split) {
  return num_split < args.num_seqs ? order.first[num_split] : order.chunks;
}

// Calls use(work, number) for what this CTA works on, until there is nothing left. The first unit
// is listed before, that behind `number` by use() of the senders.
template <bool MAY_CUT, typename Use>
__device__ __forceinline__ void for_works(ScanMemory& shared, const Args& args, Use use) {
  const int num_split = share(min(shared.order.longer, args.most_split));
  const int outputs = is_handing(args) ? share(count_split_chunks(shared.order, args, num_split))
                                       : 0;
  const int states = MAY_CUT ? share(count_states(args, shared.cut))
                             : V_HEADS * (args.num_seqs + num_split);
  const int units = states + V_HEADS * outputs;
#pragma unroll 1
  for (int number = 1;; ++number) {
    const int unit = read_unit(shared, number);
    if (unit >= units) break;
    use(find_work<MAY_CUT>(shared, args, num_split, unit), number);
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

}  // namespace
