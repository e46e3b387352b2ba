// The two warpgroups that multiply: both take all 64 weight rows of a unit, each takes half of the
// unit's packed rows as columns.
//
// Rows of the first product's tiles alternate, eight of W1's linear half and eight of its gate
// half. A thread's two rows of a 16-row slab are then the pair that SwiGLU joins.
#pragma once

#include <cuda_fp8.h>

#include <cfloat>

#include "feed.cuh"
#include "fp8_products.cuh"
#include "named_barrier.cuh"
#include "plan.cuh"
#include "warp_arrival.cuh"
#include "warpgroup.cuh"

namespace {

// Sums of a thread over the blocks of k, of products of 64 x COLUMNS.
using Sums = float[COLUMNS / 2];

struct Rings {
  Ring<WEIGHT_STAGES> weights;
  Ring<ROW_STAGES> rows;

  __device__ __forceinline__ void wait(SharedMemory& shared) const {
    wait_phase(&shared.weights_full[weights.stage], weights.parity);
    wait_phase(&shared.rows_full[rows.stage], rows.parity);
  }
  // This warp has read the stage.
  __device__ __forceinline__ void free(SharedMemory& shared) const {
    arrive_for_warp(&shared.weights_free[weights.stage]);
    arrive_for_warp(&shared.rows_free[rows.stage]);
  }
  __device__ __forceinline__ void advance() { weights.advance(), rows.advance(); }
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

// acc = the first product of a unit. Of four slots the first two are the linear half, the others
// the gate.
__device__ __forceinline__ void multiply_x(SharedMemory& shared, const float* weight_scales,
                                           int group, Rings& rings, Sums& acc) {
#pragma unroll 1
  for (int block = 0; block < HIDDEN_BLOCKS; block += STAGE_BLOCKS) {
    Sums product[STAGE_BLOCKS];
    float2 scales[STAGE_BLOCKS][COLUMNS / 8];
    const Rings at = rings;
    rings.advance();
    at.wait(shared);
    publish_shared();  // rows came by cp.async, which is ordinary stores to the tensor cores
    begin_products();
#pragma unroll
    for (int step = 0; step < STAGE_BLOCKS; ++step) {
      const uint64_t rows = row_tile(shared, at.rows.stage, step, group * COLUMNS);
      const uint64_t weights = weight_tile(shared, at.weights.stage, step);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        multiply_e4m3(product[step], at_step(weights, k), at_step(rows, k), k > 0);
      }
    }
    commit_products();
#pragma unroll
    for (int step = 0; step < STAGE_BLOCKS; ++step) {
      const float* of_rows = shared.row_scales[at.rows.stage][step] + group * COLUMNS;
#pragma unroll
      for (int j = 0; j < COLUMNS / 8; ++j) {
        scales[step][j] = *reinterpret_cast<const float2*>(of_rows + 8 * j + lane_column());
      }
    }
    wait_products<0>();
    __syncwarp();
    at.free(shared);
#pragma unroll
    for (int step = 0; step < STAGE_BLOCKS; ++step) {
      const float linear = weight_scales[block + step];
      const float gate = weight_scales[HIDDEN_BLOCKS + block + step];
      hold_sums(product[step]);
#pragma unroll
      for (int i = 0; i < COLUMNS / 2; ++i) {
        const float2 pair = scales[step][i / 4];
        const float scale = (i % 2 ? pair.y : pair.x) * (i % 4 < 2 ? linear : gate);
        acc[i] += product[step][i] * scale;
      }
    }
  }
}

// Products of a block of C, [piece with a scale of its own][..]. Few columns leave the tensor cores
// reading weights: codes of C and what they round off are columns side by side of one product.
using Pieces = float[BLOCK_PIECES][COLUMNS];

__device__ __forceinline__ void issue_pieces(SharedMemory& shared, const Rings& at, int step,
                                             int group, Pieces& product) {
  const uint64_t rows = row_tile(shared, at.rows.stage, step, 2 * group * COLUMNS);
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
  float scales[BLOCK_PIECES][COLUMNS / 4];  // of each column
#pragma unroll
  for (int i = 0; i < COLUMNS / 4; ++i) {
    const float* of_row = row_scales + 4 * (i / 2 * 8 + lane_column() + i % 2);
#pragma unroll
    for (int piece = 0; piece < BLOCK_PIECES; ++piece) scales[piece][i] = of_row[piece];
  }
  const float of_weights = *weight_scale;
#pragma unroll
  for (int piece = 0; piece < BLOCK_PIECES; ++piece) {
    auto& sums = product[piece];
    hold_sums(sums);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const float sum = sums[i] + sums[COUNT + i];
      acc[i] += sum * (scales[piece][i / 4 * 2 + i % 2] * of_weights);
    }
  }
}

// acc = the second product of a unit.
__device__ __forceinline__ void multiply_c(SharedMemory& shared, const float* weight_scales,
                                           int group, Rings& rings, Sums& acc) {
#pragma unroll 1
  for (int block = 0; block < WIDTH_BLOCKS; block += STAGE_BLOCKS) {
    rings.wait(shared);
    publish_shared();
    Pieces product[STAGE_BLOCKS];
    begin_products();
#pragma unroll
    for (int step = 0; step < STAGE_BLOCKS; ++step) {
      issue_pieces(shared, rings, step, group, product[step]);
    }
    commit_products();
    wait_products<0>();
#pragma unroll
    for (int step = 0; step < STAGE_BLOCKS; ++step) {
      const float* of_rows = shared.row_scales[rings.rows.stage][step] + 4 * group * COLUMNS;
      add_pieces(product[step], of_rows, weight_scales + block + step, acc);
    }
    __syncwarp();
    rings.free(shared);
    rings.advance();
  }
}

// acc[i], linear half, becomes C. Returns nothing in the odd pairs.
__device__ __forceinline__ void activate(Sums& acc) {
#pragma unroll
  for (int i = 0; i < COLUMNS / 2; ++i) {
    if (i % 4 >= 2) continue;
    const float gate = acc[i + 2];
    acc[i] *= gate / (1.0f + __expf(-gate));
  }
}

// The scale of each of the thread's columns, from the largest magnitude in the unit's features.
__device__ __forceinline__ void find_scales(SharedMemory& shared, const Sums& acc, int group,
                                            float (&scales)[COLUMNS / 4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int i = 0; i < COLUMNS / 4; ++i) {
    float peak = fmaxf(0.0f, fabsf(acc[i / 2 * 4 + i % 2]));
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) {
      peak = fmaxf(peak, __shfl_xor_sync(FULL, peak, mask));
    }
    if (lane < 4) shared.peaks[group][warp][i / 2 * 8 + lane_column() + i % 2] = peak;
  }
  sync_threads_of(1 + group, GROUP_THREADS);
#pragma unroll
  for (int i = 0; i < COLUMNS / 4; ++i) {
    float peak = 0.0f;
#pragma unroll
    for (int other = 0; other < 4; ++other) {
      peak = fmaxf(peak, shared.peaks[group][other][i / 2 * 8 + lane_column() + i % 2]);
    }
    scales[i] = fmaxf(peak * (1.0f / 448.0f), FLT_MIN);  // FLT_MIN: its reciprocal is finite
  }
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

// Quantises a warpgroup's columns of C and writes them, a row of packed tokens each.
__device__ __forceinline__ void write_c(SharedMemory& shared, const Args& args, const Unit& unit,
                                        int group, Sums& acc) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, warp = thread / 32;
  const int columns = unit.rows - group * COLUMNS;
  const int64_t first_row = unit.first_row + group * COLUMNS;
  float scales[COLUMNS / 4];
  activate(acc);
  find_scales(shared, acc, group, scales);
  uint8_t* codes = shared.out[group];  // [2][COLUMNS][32]
  uint8_t* residuals = codes + COLUMNS * PIECE;
#pragma unroll
  for (int j = 0; j < COLUMNS / 8; ++j) {
    const float2 scaled = {acc[4 * j] * (1.0f / scales[2 * j]),
                           acc[4 * j + 1] * (1.0f / scales[2 * j + 1])};
    const int at = (8 * j + lane_column()) * PIECE + 8 * warp + lane / 4;
    store_codes(codes + at, residuals + at, scaled);
  }
  sync_threads_of(1 + group, GROUP_THREADS);
  const int plane = thread / (2 * COLUMNS), column = thread / 2 % COLUMNS;
  if (plane < 2 && column < columns) {
    uint8_t* row = args.c + (plane * int64_t{args.capacity} + first_row + column) * WIDTH;
    const int feature = unit.part * PIECE + thread % 2 * 16;
    *reinterpret_cast<int4*>(row + feature) = *reinterpret_cast<const int4*>(codes + 16 * thread);
  }
  if (warp == 0 && lane < 4) {
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; ++i) {
      const int of_column = i / 2 * 8 + lane_column() + i % 2;
      float* row = args.c_scale + (first_row + of_column) * PIECES;
      if (of_column < columns) row[unit.part] = scales[i];
    }
  }
  sync_threads_of(1 + group, GROUP_THREADS);
  if (thread == 0) count_release(args.told.done + unit.tile);
}

// Writes a warpgroup's columns of the experts' outputs.
__device__ __forceinline__ void write_out(SharedMemory& shared, const Args& args, const Unit& unit,
                                          int group, const Sums& acc) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, warp = thread / 32;
  const int columns = unit.rows - group * COLUMNS;
  const int64_t first_row = unit.first_row + group * COLUMNS;
  uint8_t* out = shared.out[group];
#pragma unroll
  for (int i = 0; i < COLUMNS / 2; ++i) {
    const int column = i / 4 * 8 + lane_column() + i % 2;
    const int feature = 16 * warp + lane / 4 + (i % 4 < 2 ? 0 : 8);
    *reinterpret_cast<__nv_bfloat16*>(out + column * OUT_ROW + 2 * feature) =
        __float2bfloat16_rn(acc[i]);
  }
  sync_threads_of(1 + group, GROUP_THREADS);
#pragma unroll
  for (int at = thread; at < COLUMNS * 8; at += GROUP_THREADS) {
    const int column = at / 8, chunk = at % 8;
    if (column >= columns) break;
    __nv_bfloat16* row =
        args.expert_out + (first_row + column) * HIDDEN + unit.part * UNIT_WEIGHTS;
    reinterpret_cast<int4*>(row)[chunk] =
        *reinterpret_cast<const int4*>(out + column * OUT_ROW + 16 * chunk);
  }
  sync_threads_of(1 + group, GROUP_THREADS);
}

// A unit without columns for this warpgroup.
__device__ __forceinline__ void pass_over(SharedMemory& shared, const Unit& unit, Rings& rings) {
  const int stages = unit.kind == FIRST ? FIRST_STAGES : SECOND_STAGES;
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    rings.wait(shared);
    __syncwarp();
    rings.free(shared);
    rings.advance();
  }
}

__device__ __forceinline__ void multiply_units(SharedMemory& shared, const Args& args) {
  const int group = threadIdx.x < GROUP_THREADS ? 0 : 1;
  Ring<UNIT_STAGES> units;
  Rings rings;
  for (int turn = 0;; turn ^= 1) {
    const Unit unit = take_unit(shared, units);
    if (unit.kind == NONE) return;
    if (unit.rows <= group * COLUMNS) {
      pass_over(shared, unit, rings);
      continue;
    }
    Sums acc = {};
    if (unit.kind == FIRST) {
      multiply_x(shared, shared.weight_scales[turn], group, rings, acc);
      write_c(shared, args, unit, group, acc);
    } else {
      multiply_c(shared, shared.weight_scales[turn], group, rings, acc);
      write_out(shared, args, unit, group, acc);
    }
  }
}

}  // namespace
