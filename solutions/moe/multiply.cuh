// The two warpgroups that multiply: all 64 weight rows of a unit times all of its packed rows, as
// columns. They share the unit's blocks of k, a stage each in turns: of few columns a stage is
// waiting, for the tensor cores and for what comes behind them, and two wait at once. The first one
// gives its sums to the second, whose stage is the last, and which writes what comes of them.
//
// Rows of the first product's tiles alternate, eight of W1's linear half and eight of its gate
// half. A thread's two rows of a 16-row slab are then the pair that SwiGLU joins.
#pragma once

#include <cuda_fp8.h>

#include <cfloat>

#include "barrier_wait.cuh"
#include "feed.cuh"
#include "finite_product.cuh"
#include "fp8_products.cuh"
#include "named_barrier.cuh"
#include "plan.cuh"
#include "warp_arrival.cuh"
#include "warpgroup.cuh"

namespace {

constexpr int WRITER = MULTIPLIERS - 1, WRITERS_MEET = 1;  // a warpgroup, and its barrier

// Sums of a thread over the blocks of k, of products of 64 x COLUMNS.
using Sums = float[COLUMNS / 2];

// Where a warpgroup stands: at one of its own places.
struct Rings {
  Ring<WEIGHT_STAGES> weights;
  Ring<ROW_STAGES> rows;

  __device__ __forceinline__ void wait(SharedMemory& shared) const {
    wait_cta_phase(&shared.weights_full[weights.stage], weights.parity);
    wait_cta_phase(&shared.rows_full[rows.stage], rows.parity);
  }
  // This warp has read the stage.
  __device__ __forceinline__ void free(SharedMemory& shared) const {
    arrive_for_warp(&shared.weights_free[weights.stage]);
    arrive_for_warp(&shared.rows_free[rows.stage]);
  }
  __device__ __forceinline__ void advance() {
#pragma unroll
    for (int i = 0; i < MULTIPLIERS; ++i) weights.advance(), rows.advance();
  }
};

__device__ __forceinline__ int lane_column() { return threadIdx.x % 4 * 2; }

// Operands of a block of k: the weights, and packed rows from a multiple of eight on.
__device__ __forceinline__ uint64_t weight_tile(SharedMemory& shared, int stage, int step) {
  return describe_tile(shared.weights[stage][step]);
}
__device__ __forceinline__ uint64_t row_tile(SharedMemory& shared, int stage, int step,
                                             int first_row) {
  return describe_tile(shared.rows[stage][step] + first_row * BLOCK);
}

// acc = the warpgroup's part of the first product of a unit, of as many halves of packed rows as it
// has. Of four slots the first two are the linear half of the weights, the others the gate.
template <int PARTS>
__device__ __forceinline__ void multiply_x(SharedMemory& shared, const float* weight_scales,
                                           int group, Rings& rings, Sums (&acc)[PARTS]) {
#pragma unroll 1
  for (int block = group * STAGE_BLOCKS; block < HIDDEN_BLOCKS;
       block += MULTIPLIERS * STAGE_BLOCKS) {
    Sums product[STAGE_BLOCKS][PARTS];
    float2 scales[STAGE_BLOCKS][PARTS];
    const Rings at = rings;
    rings.advance();
    at.wait(shared);
    publish_shared();  // rows came by cp.async, which is ordinary stores to the tensor cores
    begin_products();
#pragma unroll
    for (int step = 0; step < STAGE_BLOCKS; ++step) {
      const uint64_t weights = weight_tile(shared, at.weights.stage, step);
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        const uint64_t rows = row_tile(shared, at.rows.stage, step, part * COLUMNS);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          multiply_e4m3(product[step][part], at_step(weights, k), at_step(rows, k), k > 0);
        }
      }
    }
    commit_products();
#pragma unroll
    for (int step = 0; step < STAGE_BLOCKS; ++step) {
      const float* of_rows = shared.row_scales[at.rows.stage][step] + lane_column();
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        scales[step][part] = *reinterpret_cast<const float2*>(of_rows + part * COLUMNS);
      }
    }
    wait_products<0>();
    __syncwarp();
    at.free(shared);
#pragma unroll
    for (int step = 0; step < STAGE_BLOCKS; ++step) {
      const float linear = weight_scales[block + step];
      const float gate = weight_scales[HIDDEN_BLOCKS + block + step];
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        const float2 pair = scales[step][part];
        hold_sums(product[step][part]);
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; ++i) {
          const float scale = multiply_finite(i % 2 ? pair.y : pair.x, i < 2 ? linear : gate);
          acc[part][i] += product[step][part][i] * scale;
        }
      }
    }
  }
}
static_assert(COLUMNS == 8, "a lane has four sums of a product");

// Products of a block of C, [piece with a scale of its own][..]. Few columns leave the tensor cores
// reading weights: codes of C and what they round off are columns side by side of one product.
using Pieces = float[BLOCK_PIECES][COLUMNS];

__device__ __forceinline__ void issue_pieces(SharedMemory& shared, const Rings& at, int step,
                                             int part, Pieces& product) {
  const uint64_t rows = row_tile(shared, at.rows.stage, step, 2 * part * COLUMNS);
  const uint64_t weights = weight_tile(shared, at.weights.stage, step);
#pragma unroll
  for (int piece = 0; piece < BLOCK_PIECES; ++piece) {
    multiply_e4m3(product[piece], at_step(weights, piece), at_step(rows, piece), false);
  }
}

// acc += the products of a block, scaled.
__device__ __forceinline__ void add_pieces(Pieces& product, const float* row_scales,
                                           const float* weight_scale, Sums& acc) {
  constexpr int COUNT = COLUMNS / 2;
  float scales[BLOCK_PIECES][2];  // of the lane's two columns
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float* of_row = row_scales + BLOCK_PIECES * (lane_column() + i);
#pragma unroll
    for (int piece = 0; piece < BLOCK_PIECES; ++piece) {
      scales[piece][i] = multiply_finite(of_row[piece], *weight_scale);
    }
  }
#pragma unroll
  for (int piece = 0; piece < BLOCK_PIECES; ++piece) {
    auto& sums = product[piece];
    hold_sums(sums);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const float sum = sums[i] + sums[COUNT + i];
      acc[i] += sum * scales[piece][i % 2];
    }
  }
}

// acc = the warpgroup's part of the second product of a unit. A half of the packed rows after the
// other: products of both would take more registers than there are.
template <int PARTS>
__device__ __forceinline__ void multiply_c(SharedMemory& shared, const float* weight_scales,
                                           int group, Rings& rings, Sums (&acc)[PARTS]) {
#pragma unroll 1
  for (int block = group * STAGE_BLOCKS; block < WIDTH_BLOCKS;
       block += MULTIPLIERS * STAGE_BLOCKS) {
    rings.wait(shared);
    publish_shared();
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      Pieces product[STAGE_BLOCKS];
      begin_products();
#pragma unroll
      for (int step = 0; step < STAGE_BLOCKS; ++step) {
        issue_pieces(shared, rings, step, part, product[step]);
      }
      commit_products();
      wait_products<0>();
#pragma unroll
      for (int step = 0; step < STAGE_BLOCKS; ++step) {
        const float* of_rows = shared.row_scales[rings.rows.stage][step];
        add_pieces(product[step], of_rows + part * COLUMNS * BLOCK_PIECES,
                   weight_scales + block + step, acc[part]);
      }
    }
    __syncwarp();
    rings.free(shared);
    rings.advance();
  }
}

// The first warpgroup's sums of a unit. It may be one unit ahead, not two: stages are filled in
// order, and with the unit before not read to its end the ring of packed rows ends there.
template <int PARTS>
__device__ __forceinline__ void give_sums(SharedMemory& shared, int turn,
                                          const Sums (&acc)[PARTS]) {
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i) {
      shared.given[turn][part][i][threadIdx.x % GROUP_THREADS] = acc[part][i];
    }
  }
  __syncwarp();
  arrive_for_warp(&shared.sums_given[turn]);
}
static_assert(ROW_STAGES <= SECOND_STAGES, "see above");

template <int PARTS>
__device__ __forceinline__ void take_sums(SharedMemory& shared, int turn, uint32_t parity,
                                          Sums (&acc)[PARTS]) {
  wait_cta_phase(&shared.sums_given[turn], parity);
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i) {
      acc[part][i] += shared.given[turn][part][i][threadIdx.x % GROUP_THREADS];
    }
  }
}

// Of four sums the first two, of the linear half, become C; the gates behind them are read.
__device__ __forceinline__ void activate(Sums& acc) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float gate = acc[i + 2];
    acc[i] *= gate / (1.0f + __expf(-gate));
  }
}

// The scale of each of the lane's two columns, from the largest magnitude in the unit's features.
__device__ __forceinline__ float2 find_scales(SharedMemory& shared, const Sums& acc) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  float peaks[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    peaks[i] = fmaxf(0.0f, fabsf(acc[i]));
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) {
      peaks[i] = fmaxf(peaks[i], __shfl_xor_sync(FULL, peaks[i], mask));
    }
    if (lane < 4) shared.peaks[warp][lane_column() + i] = peaks[i];
  }
  sync_threads_of(WRITERS_MEET, GROUP_THREADS);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int other = 0; other < 4; ++other) {
      peaks[i] = fmaxf(peaks[i], shared.peaks[other][lane_column() + i]);
    }
    peaks[i] = fmaxf(peaks[i] * (1.0f / 448.0f), FLT_MIN);  // its reciprocal is finite
  }
  return {peaks[0], peaks[1]};
}

// Two numbers as codes, and what the codes round off as codes; a column's are 32 bytes apart from
// the next one's.
__device__ __forceinline__ void store_codes(uint8_t* codes, uint8_t* residuals, float2 scaled) {
  const __nv_fp8x2_storage_t code = __nv_cvt_float2_to_fp8x2(scaled, __NV_SATFINITE, __NV_E4M3);
  const __half2 rounded = __half2(__nv_cvt_fp8x2_to_halfraw2(code, __NV_E4M3));
  const float2 back = __half22float2(rounded);
  const float2 rest = {scaled.x - back.x, scaled.y - back.y};
  const __nv_fp8x2_storage_t more = __nv_cvt_float2_to_fp8x2(rest, __NV_SATFINITE, __NV_E4M3);
  codes[0] = code & 0xff, codes[PIECE] = code >> 8;
  residuals[0] = more & 0xff, residuals[PIECE] = more >> 8;
}

// Quantises half of a unit's columns of C, or all, and writes them, a row of packed tokens each.
// The first warp does so alone: it can say when they are there.
__device__ __forceinline__ void write_c(SharedMemory& shared, const Args& args, const Unit& unit,
                                        int part, Sums& acc) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, warp = thread / 32;
  const int columns = unit.rows - part * COLUMNS;
  const int64_t first_row = unit.first_row + part * COLUMNS;
  activate(acc);
  const float2 scales = find_scales(shared, acc);
  uint8_t* codes = shared.out;  // [2][COLUMNS][32]
  uint8_t* residuals = codes + COLUMNS * PIECE;
  const float2 scaled = {acc[0] * (1.0f / scales.x), acc[1] * (1.0f / scales.y)};
  const int at = lane_column() * PIECE + 8 * warp + lane / 4;
  store_codes(codes + at, residuals + at, scaled);
  sync_threads_of(WRITERS_MEET, GROUP_THREADS);
  if (warp > 0) return;
  static_assert(2 * COLUMNS * PIECE == 32 * sizeof(int4), "a lane 16 bytes");
  const int plane = lane / (2 * COLUMNS), column = lane / 2 % COLUMNS;
  if (column < columns) {
    uint8_t* row = args.c + (plane * int64_t{args.capacity} + first_row + column) * WIDTH;
    const int feature = unit.part * PIECE + lane % 2 * 16;
    *reinterpret_cast<int4*>(row + feature) = *reinterpret_cast<const int4*>(codes + 16 * lane);
  }
  if (lane < 4) {
    float* to = args.c_scale + (first_row + lane_column()) * PIECES + unit.part;
    if (lane_column() < columns) to[0] = scales.x;
    if (lane_column() + 1 < columns) to[PIECES] = scales.y;
  }
}

// Behind write_c() of all columns.
__device__ __forceinline__ void count_c(const Args& args, const Unit& unit) {
  if (threadIdx.x % GROUP_THREADS >= 32) return;
  __syncwarp();
  if (threadIdx.x % 32 == 0) count_release(args.told.done + unit.tile);
}

// Writes half of a unit's columns of the experts' outputs, or all.
__device__ __forceinline__ void write_out(SharedMemory& shared, const Args& args, const Unit& unit,
                                          int part, const Sums& acc) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, warp = thread / 32;
  const int columns = unit.rows - part * COLUMNS;
  const int64_t first_row = unit.first_row + part * COLUMNS;
  sync_threads_of(WRITERS_MEET, GROUP_THREADS);  // what was left there before has been read
#pragma unroll
  for (int i = 0; i < COLUMNS / 2; ++i) {
    const int feature = 16 * warp + lane / 4 + i / 2 * 8;
    *reinterpret_cast<__nv_bfloat16*>(shared.out + (lane_column() + i % 2) * OUT_ROW +
                                      2 * feature) = __float2bfloat16_rn(acc[i]);
  }
  sync_threads_of(WRITERS_MEET, GROUP_THREADS);
  static_assert(COLUMNS * 8 <= GROUP_THREADS, "a thread 16 bytes");
  const int column = thread / 8, chunk = thread % 8;
  if (column >= min(columns, COLUMNS)) return;
  __nv_bfloat16* row =
      args.expert_out + (first_row + column) * HIDDEN + unit.part * UNIT_WEIGHTS;
  reinterpret_cast<int4*>(row)[chunk] =
      *reinterpret_cast<const int4*>(shared.out + column * OUT_ROW + 16 * chunk);
}

// A warpgroup's part of a unit, the `number`-th of its CTA. PARTS: halves of packed rows.
template <int PARTS>
__device__ __forceinline__ void multiply_unit(SharedMemory& shared, const Args& args,
                                              const Unit& unit, int number, int group,
                                              Rings& rings) {
  const int turn = number % 2;
  Sums acc[PARTS] = {};
  if (unit.kind == FIRST) {
    multiply_x(shared, shared.weight_scales[turn], group, rings, acc);
  } else {
    multiply_c(shared, shared.weight_scales[turn], group, rings, acc);
  }
  if (group != WRITER) return give_sums(shared, turn, acc);
  take_sums(shared, turn, number / 2 % 2, acc);
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
    if (unit.kind == FIRST) {
      write_c(shared, args, unit, part, acc[part]);
    } else {
      write_out(shared, args, unit, part, acc[part]);
    }
  }
  if (unit.kind == FIRST) count_c(args, unit);
}

__device__ __forceinline__ void multiply_units(SharedMemory& shared, const Args& args) {
  const int group = threadIdx.x < GROUP_THREADS ? 0 : 1;
  Ring<UNIT_STAGES> units;
  Rings rings;
  rings.weights.stage = rings.rows.stage = group;
#pragma unroll 1
  for (int number = 0;; ++number) {
    const Unit unit = take_unit(shared, units);
    if (unit.kind == NONE) return;
    if (unit.rows <= COLUMNS) {
      multiply_unit<1>(shared, args, unit, number, group, rings);
    } else {
      multiply_unit<HALVES>(shared, args, unit, number, group, rings);
    }
  }
}

}  // namespace
