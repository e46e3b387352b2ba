// The warps that keep the rings full: one requests weights, three bring packed rows.
//
// Weights do not wait for C: those of the second product are requested while the first one's last
// units are still computed, as far as the ring reaches. C comes in words that say for themselves
// that they are there, by the call's nonce: nobody counts parts, and who waits for C reads it.
#pragma once

#include "async_copy.cuh"
#include "barrier_wait.cuh"
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

// Waits until the scales of all columns of an expert's last row of C are told; the columns may
// still be on their way.
__device__ __forceinline__ void await_parts(const Told& told, const Unit& unit) {
  const int lane = threadIdx.x % 32;
  const uint4* scales = told.c + int64_t{unit.first_row + unit.rows - 1} * C_WORDS +
                        WIDTH / COLUMNS_A_WORD;
  static_assert(PIECES == 64, "two a lane");
  bool is_told;
  do {
    const uint4 low = load_relaxed(scales + lane), high = load_relaxed(scales + 32 + lane);
    is_told = has_nonce(low, told.nonce) && has_nonce(high, told.nonce);
  } while (!__all_sync(FULL, is_told));
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
#pragma unroll 1
    for (int block = 0; block < blocks; block += STAGE_BLOCKS) {
      if (unit.kind == SECOND && block == HOLD_STAGES * STAGE_BLOCKS) await_parts(args.told, unit);
      wait_cta_phase(&shared.weights_free[ring.stage], ring.parity ^ 1);
      if (lane == 0) {
        request_weights(shared, args, unit, block, ring.stage);
        if (block == blocks - AHEAD) ticket = take_count<TICKET_BITS>(args.told.ticket);
      }
      ring.advance();
    }
  }
}

// The rows of x that a stage of the first product multiplies, and the scales of both operands. A
// lane has the token of a row.
__device__ __forceinline__ void feed_x(SharedMemory& shared, const Args& args, const Unit& unit,
                                       int token, int first_block, int stage) {
  constexpr int CHUNKS = BLOCK / 16, PASS_ROWS = 32 / CHUNKS;
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int first = 0; first < unit.rows; first += PASS_ROWS) {
    const int row = first + lane / CHUNKS, chunk = lane % CHUNKS;
    const int64_t of = __shfl_sync(FULL, token, row);
    const uint8_t* from = args.x + of * HIDDEN + first_block * BLOCK + 16 * chunk;
    if (row >= unit.rows) continue;
#pragma unroll
    for (int step = 0; step < STAGE_BLOCKS; ++step) {
      copy_chunk(shared.rows[stage][step] + swizzled(row, chunk), from + step * BLOCK);
    }
  }
  static_assert(STAGE_BLOCKS * UNIT_ROWS == 32, "a lane a scale");
  const int step = lane / UNIT_ROWS, row = lane % UNIT_ROWS, block = first_block + step;
  const int of = __shfl_sync(FULL, token, row);
  if (row < unit.rows) {
    copy_word(shared.row_scales[stage][step] + row,
              args.x_scale + int64_t{block} * args.num_tokens + of);
  }
  if (row < 2) {
    const int half = unit.expert * 2 + row;
    const float* scales = args.w1_scale + int64_t{half} * WIDTH_BLOCKS * HIDDEN_BLOCKS;
    copy_word(shared.weight_scales[stage][step] + row,
              scales + unit.part * PIECE / BLOCK * HIDDEN_BLOCKS + block);
  }
  arrive_with_copies(&shared.rows_full[stage]);
}

// A few rows of C: of a lane both planes of four columns a row and block, and a scale.
constexpr int TAKEN_ROWS = 4, STAGE_SCALES = STAGE_BLOCKS * BLOCK_PIECES;
static_assert(BLOCK == 32 * COLUMNS_A_WORD, "a lane a word of a row's block");
static_assert(TAKEN_ROWS * STAGE_SCALES == 32, "a lane a scale");
struct TakenC {
  uint4 columns[TAKEN_ROWS][STAGE_BLOCKS], scale;
};

// Of `rows` from the first one's words on. Returns whether the lane's part is there.
__device__ __forceinline__ bool take_c(const Told& told, const uint4* from, int rows,
                                       int first_block, TakenC& to) {
  const int lane = threadIdx.x % 32, row_of_scale = lane / STAGE_SCALES;
#pragma unroll
  for (int i = 0; i < TAKEN_ROWS * STAGE_BLOCKS; ++i) {
    const int row = i / STAGE_BLOCKS, step = i % STAGE_BLOCKS;
    if (row < rows) {
      to.columns[row][step] =
          load_relaxed(from + row * C_WORDS + (first_block + step) * 32 + lane);
    }
  }
  const bool has_scale = row_of_scale < rows;
  const uint4* scales = from + row_of_scale * C_WORDS + WIDTH / COLUMNS_A_WORD;
  if (has_scale) {
    to.scale = load_relaxed(scales + first_block * BLOCK_PIECES + lane % STAGE_SCALES);
  }
  bool is_there = !has_scale || has_nonce(to.scale, told.nonce);
#pragma unroll
  for (int i = 0; i < TAKEN_ROWS * STAGE_BLOCKS; ++i) {
    const int row = i / STAGE_BLOCKS, step = i % STAGE_BLOCKS;
    is_there &= row >= rows || has_nonce(to.columns[row][step], told.nonce);
  }
  return is_there;
}

// Into a stage, from its row `first` on: past both planes of the half before.
__device__ __forceinline__ void place_c(SharedMemory& shared, int stage, int first, int rows,
                                        const TakenC& of) {
  const int lane = threadIdx.x % 32, row_of_scale = lane / STAGE_SCALES;
#pragma unroll
  for (int i = 0; i < TAKEN_ROWS * STAGE_BLOCKS; ++i) {
    const int row = i / STAGE_BLOCKS, step = i % STAGE_BLOCKS;
    const int at = (first + row) / COLUMNS * COLUMNS + first + row;
    uint8_t* to = shared.rows[stage][step] + lane % 4 * COLUMNS_A_WORD;
    if (row < rows) {
      const uint4 columns = of.columns[row][step];
      *reinterpret_cast<uint32_t*>(to + swizzled(at, lane / 4)) = columns.x;
      *reinterpret_cast<uint32_t*>(to + swizzled(at + COLUMNS, lane / 4)) = columns.z;
    }
  }
  float* scales = shared.row_scales[stage][lane / BLOCK_PIECES % STAGE_BLOCKS];
  if (row_of_scale < rows) {
    scales[(first + row_of_scale) * BLOCK_PIECES + lane % BLOCK_PIECES] =
        __uint_as_float(of.scale.x);
  }
}

// The rows of C that a stage of the second product multiplies, as soon as they are there.
__device__ __forceinline__ void feed_c(SharedMemory& shared, const Args& args, const Unit& unit,
                                       int first_block, int stage) {
  const int lane = threadIdx.x % 32;
  const int of_row = unit.expert * HIDDEN_BLOCKS + unit.part * UNIT_WEIGHTS / BLOCK;
  const float* weight_scale = args.w2_scale + of_row * WIDTH_BLOCKS + first_block;
  const float of_weights = lane < STAGE_BLOCKS ? __ldg(weight_scale + lane) : 0.0f;
#pragma unroll 1
  for (int first = 0; first < unit.rows; first += TAKEN_ROWS) {
    const uint4* from = args.told.c + int64_t{unit.first_row + first} * C_WORDS;
    const int rows = min(unit.rows - first, TAKEN_ROWS);
    TakenC taken;
    while (!take_c(args.told, from, rows, first_block, taken)) __nanosleep(20);
    place_c(shared, stage, first, rows, taken);
  }
  if (lane < STAGE_BLOCKS) shared.weight_scales[stage][lane][0] = of_weights;
  arrive(&shared.rows_full[stage]);
}

// Three warps: bring the rows of unit after unit, a stage each in turns.
__device__ __forceinline__ void feed_rows(SharedMemory& shared, const Args& args) {
  const int lane = threadIdx.x % 32;
  Ring<UNIT_STAGES> units;
  Ring<ROW_STAGES> ring;
  ring.stage = (threadIdx.x - MULTIPLYING) / 32 - 1;
  int stage = ring.stage;  // of the unit: the warp's next
#pragma unroll 1
  while (true) {
    const Unit unit = take_unit(shared, units);
    if (unit.kind == NONE) return;
    const int stages = unit.kind == FIRST ? FIRST_STAGES : SECOND_STAGES;
    const int* tokens = args.routing.row_token + unit.first_row;
    const int token = unit.kind == FIRST && lane < unit.rows ? tokens[lane] : 0;
    if (unit.kind == SECOND && POLLS_SCALES) await_parts(args.told, unit);
#pragma unroll 1
    for (; stage < stages; stage += ROW_WARPS) {
      wait_cta_phase(&shared.rows_free[ring.stage], ring.parity ^ 1);
      if (unit.kind == FIRST) {
        feed_x(shared, args, unit, token, stage * STAGE_BLOCKS, ring.stage);
      } else {
        feed_c(shared, args, unit, stage * STAGE_BLOCKS, ring.stage);
      }
      ring.skip(ROW_WARPS);
    }
    stage -= stages;
  }
}

}  // namespace
