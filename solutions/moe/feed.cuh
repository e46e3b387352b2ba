// The warps that keep the rings full: one requests weights, three request packed rows.
//
// The first weights of the second product are requested while the first one's last units are still
// computed; more of them would be in the way of weights that those units, and with them all rows of
// C, wait for. Rows of C wait until all parts of their expert's are written.
#pragma once

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "device_flags.cuh"
#include "plan.cuh"
#include "read_once.cuh"
#include "small_copy.cuh"
#include "tagged_words.cuh"
#include "tensor_map.cuh"
#include "warp_arrival.cuh"
#include "warpgroup.cuh"

namespace {

// The next unit, for a warp that reads of it.
__device__ __forceinline__ Unit take_unit(SharedMemory& shared, Ring<UNIT_STAGES>& units) {
  wait_cta_phase(&shared.unit_full[units.stage], units.parity);
  const Unit unit = shared.units[units.stage];
  __syncwarp();
  arrive_for_warp(&shared.unit_free[units.stage]);
  units.advance();
  return unit;
}

__device__ __forceinline__ void request_weights(SharedMemory& shared, const Args& args,
                                                const Unit& unit, int first_block, int stage) {
  uint64_t* full = &shared.weights_full[stage];
  arrive_expecting(full, sizeof(shared.weights[stage]));
#pragma unroll
  for (int i = 0; i < STAGE_BLOCKS; ++i) {
    const int k = (first_block + i) * BLOCK, eights = unit.part * PIECE / 8;
    const int row = unit.expert * HIDDEN + unit.part * UNIT_WEIGHTS;
    uint8_t* to = shared.weights[stage][i];
    if (unit.kind == FIRST && unit.is_read_once) {
      copy_box_once(to, &args.w1, full, k, 0, 0, eights, unit.expert);
    } else if (unit.kind == FIRST) {
      copy_box(to, &args.w1, full, k, 0, 0, eights, unit.expert);
    } else if (unit.is_read_once) {
      copy_box_once(to, &args.w2, full, k, row);
    } else {
      copy_box(to, &args.w2, full, k, row);
    }
  }
}

// Waits until all columns of an expert's rows of C are written.
__device__ __forceinline__ void wait_for_c(const Args& args, const Unit& unit) {
  static_assert(FIRST_UNITS < 1 << DONE_BITS, "parts can be counted");
  const uint64_t all = (args.told.nonce << DONE_BITS) + FIRST_UNITS;
  if (threadIdx.x % 32 == 0) {
    while (load_acquire(args.told.done + unit.tile) != all) __nanosleep(20);
  }
  __syncwarp();
}

// One warp: takes units, tells the others of them, requests their weights. ticket: in lane 0, the
// first one; rows: of each lane's expert.
__device__ __forceinline__ void feed_weights(SharedMemory& shared, const Args& args, int ticket,
                                             int rows) {
  constexpr int AHEAD = 8;  // blocks before a unit's end at which the next one is taken
  static_assert(AHEAD >= STAGE_BLOCKS, "a unit is counted after its last stage");
  const int lane = threadIdx.x % 32, rows_through = scan_lanes(rows);
  Ring<UNIT_STAGES> units;
  Ring<WEIGHT_STAGES> ring;
  while (true) {
    const Unit unit = find_unit(__shfl_sync(FULL, ticket, 0), rows, rows_through);
    wait_cta_phase(&shared.unit_free[units.stage], units.parity ^ 1);
    if (lane == 0) {
      shared.units[units.stage] = unit;
      arrive(&shared.unit_full[units.stage]);
    }
    units.advance();
    if (unit.kind == NONE) return;
    const int blocks = unit.kind == FIRST ? HIDDEN_BLOCKS : WIDTH_BLOCKS;
    uint64_t* done = args.told.done + unit.tile;
    const uint64_t seen = unit.kind == FIRST && lane == 0 ? load_relaxed(done) : 0;
#pragma unroll 1
    for (int block = 0; block < blocks; block += STAGE_BLOCKS) {
      if (unit.kind == SECOND && block == Tuning::STAGES_AHEAD * STAGE_BLOCKS) {
        wait_for_c(args, unit);
      }
      wait_cta_phase(&shared.weights_free[ring.stage], ring.parity ^ 1);
      if (lane == 0) {
        request_weights(shared, args, unit, block, ring.stage);
        if (block == blocks - AHEAD) {
          ticket = take_count<TICKET_BITS>(args.told.ticket);
          if (unit.kind == FIRST) begin_count<DONE_BITS>(done, seen, args.told.nonce);
        }
      }
      ring.advance();
    }
  }
}

// Rows of 128 bytes that a thread copies 16 bytes of: its first, and every twelfth from there on.
constexpr int FEEDER_ROWS = ROW_FEEDERS / 8;

// The rows of x that a unit of the first product multiplies, and the scales of both operands.
__device__ __forceinline__ void feed_x(SharedMemory& shared, const Args& args, const Unit& unit,
                                       float* weight_scales, Ring<ROW_STAGES>& ring) {
  constexpr int COPIES = (UNIT_ROWS + FEEDER_ROWS - 1) / FEEDER_ROWS;
  constexpr int CHUNKS = HIDDEN_BLOCKS / 4;  // of a row of weight scales
  const int thread = threadIdx.x - MULTIPLYING - 32, chunk = thread % 8, row = thread / 8;
  const int* tokens = args.routing.row_token + unit.first_row;
  const uint8_t* from[COPIES];
#pragma unroll
  for (int i = 0; i < COPIES; ++i) {
    const int token = row + FEEDER_ROWS * i < unit.rows ? tokens[row + FEEDER_ROWS * i] : 0;
    from[i] = args.x + int64_t{token} * HIDDEN + 16 * chunk;
  }
  const float* scale = args.x_scale + (thread < unit.rows ? tokens[thread] : 0);
  if (thread < 2 * CHUNKS) {
    const int scale_row = unit.part * PIECE / BLOCK + thread / CHUNKS * WIDTH_BLOCKS;
    const float* scales =
        args.w1_scale + (unit.expert * 2 * WIDTH_BLOCKS + scale_row) * HIDDEN_BLOCKS;
    copy_chunk(weight_scales + 4 * thread, scales + thread % CHUNKS * 4);
  }
#pragma unroll 1
  for (int first_block = 0; first_block < HIDDEN_BLOCKS; first_block += STAGE_BLOCKS) {
    wait_cta_phase(&shared.rows_free[ring.stage], ring.parity ^ 1);
#pragma unroll
    for (int step = 0; step < STAGE_BLOCKS; ++step) {
      const int block = first_block + step;
      uint8_t* rows = shared.rows[ring.stage][step];
#pragma unroll
      for (int i = 0; i < COPIES; ++i) {
        const int at = row + FEEDER_ROWS * i;
        if (at < unit.rows) copy_chunk(rows + swizzled(at, chunk), from[i] + block * BLOCK);
      }
      if (thread < unit.rows) {
        copy_word(shared.row_scales[ring.stage][step] + thread,
                  scale + int64_t{block} * args.num_tokens);
      }
    }
    arrive_with_copies(&shared.rows_full[ring.stage]);
    ring.advance();
  }
}

// The rows of C that a unit of the second product multiplies, both planes of them.
__device__ __forceinline__ void feed_c(SharedMemory& shared, const Args& args, const Unit& unit,
                                       float* weight_scales, Ring<ROW_STAGES>& ring) {
  constexpr int COPIES = (UNIT_ROWS + FEEDER_ROWS - 1) / FEEDER_ROWS;
  const int thread = threadIdx.x - MULTIPLYING - 32, chunk = thread % 8, row = thread / 8;
  if (thread < WIDTH_BLOCKS / 4) {
    const int scale_row = unit.expert * HIDDEN_BLOCKS + unit.part * UNIT_WEIGHTS / BLOCK;
    copy_chunk(weight_scales + 4 * thread, args.w2_scale + scale_row * WIDTH_BLOCKS + 4 * thread);
  }
  const uint8_t* c = args.c + int64_t{unit.first_row + row} * WIDTH + 16 * chunk;
  const float* scale = args.c_scale + int64_t{unit.first_row + thread} * PIECES;
  const int64_t plane = int64_t{args.capacity} * WIDTH;
  wait_for_c(args, unit);
#pragma unroll 1
  for (int first_block = 0; first_block < WIDTH_BLOCKS; first_block += STAGE_BLOCKS) {
    wait_cta_phase(&shared.rows_free[ring.stage], ring.parity ^ 1);
#pragma unroll
    for (int step = 0; step < STAGE_BLOCKS; ++step) {
      const int block = first_block + step;
      uint8_t* rows = shared.rows[ring.stage][step];
#pragma unroll
      for (int i = 0; i < COPIES; ++i) {
        const int at = row + FEEDER_ROWS * i;
        const uint8_t* from = c + i * FEEDER_ROWS * WIDTH + block * BLOCK;
        const int to = at / COLUMNS * COLUMNS + at;  // past both planes of the half before
        if (at < unit.rows) {
          copy_chunk(rows + swizzled(to, chunk), from);
          copy_chunk(rows + swizzled(to + COLUMNS, chunk), from + plane);
        }
      }
      if (thread < unit.rows) {
        copy_chunk(shared.row_scales[ring.stage][step] + 4 * thread, scale + 4 * block);
      }
    }
    arrive_with_copies(&shared.rows_full[ring.stage]);
    ring.advance();
  }
}

// Three warps: request the rows of unit after unit.
__device__ __forceinline__ void feed_rows(SharedMemory& shared, const Args& args) {
  Ring<UNIT_STAGES> units;
  Ring<ROW_STAGES> ring;
  for (int turn = 0;; turn ^= 1) {
    const Unit unit = take_unit(shared, units);
    // The unit before the last one, whose scales these replace, is read once each warpgroup has
    // freed a stage of the last one: so many more does a unit have than the ring.
    static_assert(ROW_STAGES + MULTIPLIERS <= SECOND_STAGES, "see above");
    if (unit.kind == NONE) return;
    float* weight_scales = shared.weight_scales[turn];
    if (unit.kind == FIRST) {
      feed_x(shared, args, unit, weight_scales, ring);
    } else {
      feed_c(shared, args, unit, weight_scales, ring);
    }
  }
}

}  // namespace
