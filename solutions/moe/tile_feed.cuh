// The warps that keep the stages of tiles full: one requests weights, two gather packed rows.
//
// A stage is free once both CTAs of the cluster have read theirs, whether they share weights or
// not: so the two are never more than a ring apart.
#pragma once

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "device_flags.cuh"
#include "multicast.cuh"
#include "small_copy.cuh"
#include "tensor_map.cuh"
#include "tile_plan.cuh"
#include "warpgroup.cuh"

namespace {

// The next unit, for a warp that reads of it until it leaves it.
__device__ __forceinline__ const TileUnit& await_tile(TileShared& shared,
                                                      const UnitRing& units) {
  wait_cta_phase(&shared.unit_full[units.stage()], units.parity());
  return shared.units[units.stage()];
}

__device__ __forceinline__ void leave_tile(TileShared& shared, UnitRing& units) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(&shared.unit_free[units.stage()]);
  ++units.turn;
}

// Weights of a block of k, 64 rows for each request. CTAs that share them request two boxes each.
template <Kind KIND>
__device__ __forceinline__ void request_tile(TileShared& shared, const Args& args,
                                             const TileUnit& unit, int rank, int block,
                                             int stage) {
  const CUtensorMap* map = KIND == FIRST ? &args.w1 : &args.w2;
  uint64_t* full = &shared.full[stage];
  arrive_expecting(full, sizeof(shared.weights[stage]));
#pragma unroll
  for (int i = 0; i < BOXES; ++i) {
    const int row = KIND == FIRST ? unit.expert * 2 * WIDTH + i % 2 * WIDTH + unit.part * BLOCK +
                                        i / 2 * BOX_ROWS
                                  : unit.expert * HIDDEN + unit.part * 2 * BLOCK + i * BOX_ROWS;
    uint8_t* to = shared.weights[stage][i];
    if (!unit.is_shared) {
      copy_box(to, map, full, block * BLOCK, 0, 0, 0, row / 32);
    } else if (i / 2 == rank) {
      copy_box_to((1 << PAIR) - 1, to, map, full, block * BLOCK, 0, 0, 0, row / 32);
    }
  }
}

// Rows of the output without a local expert, which a warp of each CTA fills with zeros while it has
// nothing else to do: DRAM has little while the tensor cores bind. 32 tokens at a time.
struct BlankRows {
  static constexpr int STEPS = HIDDEN / (32 * 8);  // of 16 bytes a lane in a row
  int first_token, step = 0;
  uint32_t blank = 0;  // those of the 32 tokens that are left

  // Writes 512 bytes, or looks for rows; returns false behind the last one.
  __device__ __forceinline__ bool advance(const Args& args) {
    const int lane = threadIdx.x % 32;
    if (blank == 0) {
      first_token += 32 * gridDim.x;
      if (first_token >= args.num_tokens) return false;
      const int token = min(first_token + lane, args.num_tokens - 1);
      const int4* slots = reinterpret_cast<const int4*>(args.routing.slot_row) + 2 * token;
      const int4 a = slots[0], b = slots[1];
      const int all = a.x & a.y & a.z & a.w & b.x & b.y & b.z & b.w;  // no row is -1: all bits
      blank = __ballot_sync(FULL, all == -1 && first_token + lane < args.num_tokens);
      return true;
    }
    const int64_t token = first_token + __ffs(blank) - 1;
    reinterpret_cast<int4*>(args.output + token * HIDDEN)[step * 32 + lane] = int4{};
    if (++step == STEPS) step = 0, blank &= blank - 1;
    return true;
  }
};

// The first CTA of a cluster takes a ticket for both.
__device__ __forceinline__ void take_ticket(TileShared& shared, const Args& args, int slot) {
  const uint32_t ticket = atomicAdd(args.routing.ticket, 1);
  for (int rank = 0; rank < PAIR; ++rank) {
    send(address_in(shared_address(&shared.tickets[slot]), rank), ticket,
         address_in(shared_address(&shared.ticket_full[slot]), rank));
  }
}

template <Kind KIND>
__device__ __forceinline__ void feed_tile_unit(TileShared& shared, const Args& args,
                                               const TileUnit& unit, int rank, int next_slot,
                                               BlankRows& blank_rows) {
  constexpr int AHEAD = 8;  // blocks before a unit's end at which the next one is taken
  // Tickets have two places: the other CTA has read the last one but one.
  static_assert(TILE_STAGES + AHEAD < WIDTH_BLOCKS, "CTAs are less than a ring apart");
#pragma unroll 1
  for (int block = 0; block < Product<KIND>::BLOCKS; ++block) {
    wait_cta_phase(&shared.free[stage_of(block)], parity_of(block) ^ 1);
    if (threadIdx.x % 32 == 0) {
      request_tile<KIND>(shared, args, unit, rank, block, stage_of(block));
      if (rank == 0 && block == Product<KIND>::BLOCKS - AHEAD) take_ticket(shared, args, next_slot);
    }
    __syncwarp();
    if (KIND == FIRST) blank_rows.advance(args), blank_rows.advance(args);
  }
}

// One warp: finds units, tells the others of them, requests their weights.
__device__ __forceinline__ void feed_tile_weights(TileShared& shared, const Args& args, int rank) {
  const int lane = threadIdx.x % 32;
  const int rows = args.routing.counts[lane], rows_through = scan_lanes(rows);
  UnitRing units;
  Ring<2> tickets;
  BlankRows blank_rows = {32 * (int(blockIdx.x) - int(gridDim.x))};
  if (rank == 0 && lane == 0) take_ticket(shared, args, 0);
  while (true) {
    uint64_t* ticket_full = &shared.ticket_full[tickets.stage];
    if (lane == 0) arrive_expecting(ticket_full, sizeof(int));
    wait_phase(ticket_full, tickets.parity);
    const TileUnit unit = find_tile(shared.tickets[tickets.stage], rank, rows, rows_through);
    tickets.advance();
    wait_cta_phase(&shared.unit_free[units.stage()], units.parity() ^ 1);
    if (lane == 0) {
      shared.units[units.stage()] = unit;
      arrive(&shared.unit_full[units.stage()]);
    }
    ++units.turn;
    if (unit.kind == NONE) break;
    if (unit.kind == FIRST) {
      feed_tile_unit<FIRST>(shared, args, unit, rank, tickets.stage, blank_rows);
    } else {
      feed_tile_unit<SECOND>(shared, args, unit, rank, tickets.stage, blank_rows);
    }
  }
  while (blank_rows.advance(args)) {
  }
}

constexpr int TILE_COPIES = TILE_ROWS * 8 / TILE_FEEDERS;  // chunks of a thread in a block of k
constexpr int COPY_ROWS = TILE_FEEDERS / 8;                // from one of them to the next

static_assert(COPY_ROWS % 8 == 0, "a thread's chunks have the same place in their rows");

// Where a thread's chunks of packed rows lie: in rows of x found through their tokens, or in rows
// of C, which follow one another. Pointers move on from block to block: so they stay registers.
template <Kind KIND>
struct TileSources {
  uint32_t chunks[TILE_COPIES];  // of x, from its begin
  const uint8_t* rows;
  const float *row_scales, *weight_scale;
  int left;     // rows from the thread's first one on
  bool scales;  // whether the thread copies some

  __device__ __forceinline__ void find(const Args& args, const TileUnit& unit) {
    constexpr uint32_t ROW = Product<KIND>::K / 16;  // chunks
    constexpr int TILE_SCALES = Product<KIND>::BLOCKS * TILE_ROWS;
    const int thread = threadIdx.x - MULTIPLYING - 32, first = thread / 8;
    left = unit.rows - first;
    scales = thread * 4 < unit.rows;
    if (KIND == FIRST) {
      const int* tokens = args.routing.row_token + unit.first_row;
#pragma unroll
      for (int i = 0; i < TILE_COPIES; ++i) {
        chunks[i] = tokens[min(first + COPY_ROWS * i, unit.rows - 1)] * ROW + thread % 8;
      }
      rows = args.x;
      weight_scale = args.w1_scale + (unit.expert * 2 * WIDTH_BLOCKS + unit.part +
                                      thread % 2 * WIDTH_BLOCKS) * HIDDEN_BLOCKS;
    } else {
      rows = args.c + int64_t{unit.first_row + first} * WIDTH + thread % 8 * 16;
      weight_scale = args.w2_scale + (unit.expert * HIDDEN_BLOCKS + 2 * unit.part + thread % 2) *
                                         WIDTH_BLOCKS;
    }
    row_scales = (KIND == FIRST ? args.x_tile_scale : args.c_tile_scale) +
                 int64_t{unit.tile} * TILE_SCALES + thread % (TILE_ROWS / 4) * 4;
  }
  __device__ __forceinline__ int64_t byte(int i) const {
    return KIND == FIRST ? int64_t{chunks[i]} * 16 : int64_t{i} * COPY_ROWS * WIDTH;
  }
  __device__ __forceinline__ void advance() {
    rows += BLOCK, row_scales += TILE_ROWS, weight_scale += 1;
  }
};

template <Kind KIND>
__device__ __forceinline__ void request_rows(TileShared& shared,
                                             const TileSources<KIND>& sources, int stage) {
  const int thread = threadIdx.x - MULTIPLYING - 32;
  uint8_t* to = shared.rows[stage] + swizzled(thread / 8, thread % 8);
#pragma unroll
  for (int i = 0; i < TILE_COPIES; ++i) {
    if (COPY_ROWS * i < sources.left) {
      copy_chunk(to + i * COPY_ROWS * BLOCK, sources.rows + sources.byte(i));
    }
  }
  if (sources.scales) {
    copy_chunk(shared.row_scales[stage] + 4 * thread, sources.row_scales);
  }
  if (thread < 2) copy_word(shared.weight_scales[stage] + thread, sources.weight_scale);
  arrive_with_copies(&shared.full[stage]);
}

template <Kind KIND>
__device__ __forceinline__ void feed_tile_rows(TileShared& shared, const Args& args,
                                               const TileUnit& unit) {
  TileSources<KIND> sources;
  sources.find(args, unit);
  if (KIND == SECOND) {
    while (load_acquire(args.routing.done + unit.tile) < TILE_DONE) __nanosleep(20);
    __syncwarp();
  }
#pragma unroll 1
  for (int block = 0; block < Product<KIND>::BLOCKS; ++block) {
    wait_cta_phase(&shared.free[stage_of(block)], parity_of(block) ^ 1);
    request_rows<KIND>(shared, sources, stage_of(block));
    sources.advance();
  }
}

// Two warps: gather the packed rows of unit after unit.
__device__ __forceinline__ void feed_tiles(TileShared& shared, const Args& args) {
  UnitRing units;
  while (true) {
    const TileUnit& unit = await_tile(shared, units);
    if (unit.kind == NONE) return;
    if (unit.kind == FIRST) {
      feed_tile_rows<FIRST>(shared, args, unit);
    } else {
      feed_tile_rows<SECOND>(shared, args, unit);
    }
    leave_tile(shared, units);
  }
}

}  // namespace
