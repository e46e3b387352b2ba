// The two warpgroups that multiply: both take all 64 * TILES weight rows of a unit, each takes half
// of the unit's packed rows as columns.
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

// Sums of a thread over the blocks of k: of TILES products of 64 x COLUMNS.
template <typename S>
using Sums = float[S::TILES][S::COLUMNS / 2];

template <typename S>
struct Rings {
  Ring<S::WEIGHT_STAGES> weights;
  Ring<S::ROW_STAGES> rows;

  __device__ __forceinline__ void wait(SharedMemory<S>& shared) const {
    wait_phase(&shared.weights_full[weights.stage], weights.parity);
    wait_phase(&shared.rows_full[rows.stage], rows.parity);
  }
  // This warp has read the stage.
  __device__ __forceinline__ void free(SharedMemory<S>& shared) const {
    arrive_for_warp(&shared.weights_free[weights.stage]);
    arrive_for_warp(&shared.rows_free[rows.stage]);
  }
  __device__ __forceinline__ void advance() { weights.advance(), rows.advance(); }
};

__device__ __forceinline__ int lane_column() { return threadIdx.x % 4 * 2; }

// Operands of a block of k: a weight tile, and packed rows from a multiple of eight on.
template <typename S>
__device__ __forceinline__ uint64_t weight_tile(SharedMemory<S>& shared, int stage, int step,
                                                int tile) {
  return describe_tile(shared.weights[stage][step] + tile * 64 * BLOCK);
}
template <typename S>
__device__ __forceinline__ uint64_t row_tile(SharedMemory<S>& shared, int stage, int step,
                                             int first_row) {
  return describe_tile(shared.rows[stage][step] + first_row * BLOCK);
}

// acc = the first product of a unit. Of four slots the first two are the linear half, the others
// the gate.
template <typename S>
__device__ __forceinline__ void multiply_x(SharedMemory<S>& shared, const float* weight_scales,
                                           int group, Rings<S>& rings, Sums<S>& acc) {
#pragma unroll 1
  for (int block = 0; block < HIDDEN_BLOCKS; block += S::BLOCKS) {
    float product[S::BLOCKS][S::TILES][S::COLUMNS / 2];
    float2 scales[S::BLOCKS][S::COLUMNS / 8];
    const Rings<S> at = rings;
    rings.advance();
    at.wait(shared);
    publish_shared();  // rows came by cp.async, which is ordinary stores to the tensor cores
    begin_products();
#pragma unroll
    for (int step = 0; step < S::BLOCKS; ++step) {
      const uint64_t rows = row_tile(shared, at.rows.stage, step, group * S::COLUMNS);
#pragma unroll
      for (int tile = 0; tile < S::TILES; ++tile) {
        const uint64_t weights = weight_tile(shared, at.weights.stage, step, tile);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          multiply_e4m3(product[step][tile], at_step(weights, k), at_step(rows, k), k > 0);
        }
      }
    }
    commit_products();
#pragma unroll
    for (int step = 0; step < S::BLOCKS; ++step) {
      const float* of_rows = shared.row_scales[at.rows.stage][step] + group * S::COLUMNS;
#pragma unroll
      for (int j = 0; j < S::COLUMNS / 8; ++j) {
        scales[step][j] = *reinterpret_cast<const float2*>(of_rows + 8 * j + lane_column());
      }
    }
    wait_products<0>();
    __syncwarp();
    at.free(shared);
#pragma unroll
    for (int step = 0; step < S::BLOCKS; ++step) {
      const float linear = weight_scales[block + step];
      const float gate = weight_scales[HIDDEN_BLOCKS + block + step];
#pragma unroll
      for (int tile = 0; tile < S::TILES; ++tile) {
        hold_sums(product[step][tile]);
#pragma unroll
        for (int i = 0; i < S::COLUMNS / 2; ++i) {
          const float2 pair = scales[step][i / 4];
          const float scale = (i % 2 ? pair.y : pair.x) * (i % 4 < 2 ? linear : gate);
          acc[tile][i] += product[step][tile][i] * scale;
        }
      }
    }
  }
}

// Products of a block of C, [piece with a scale of its own][tile][..]: codes and what they round
// off, side by side or one added to the other.
template <typename S>
using Pieces = float[S::SUBS][S::TILES][S::PLANES * S::COLUMNS / 2];

template <typename S>
__device__ __forceinline__ void issue_pieces(SharedMemory<S>& shared, const Rings<S>& at, int step,
                                             int group, Pieces<S>& product) {
  const int first = 2 * group * S::COLUMNS;
  const uint64_t codes = row_tile(shared, at.rows.stage, step, first);
  const uint64_t residuals = row_tile(shared, at.rows.stage, step, first + S::COLUMNS);
#pragma unroll
  for (int tile = 0; tile < S::TILES; ++tile) {
    const uint64_t weights = weight_tile(shared, at.weights.stage, step, tile);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      auto& sums = product[k / S::TILES][tile];
      multiply_e4m3(sums, at_step(weights, k), at_step(codes, k), k % S::TILES > 0);
      if (S::PLANES == 1) {
        multiply_e4m3(sums, at_step(weights, k), at_step(residuals, k), true);
      }
    }
  }
}

// acc += the products of a block, scaled.
template <typename S>
__device__ __forceinline__ void add_pieces(Pieces<S>& product, const float* row_scales,
                                           const float* weight_scales, Sums<S>& acc) {
  constexpr int COUNT = S::COLUMNS / 2;
  float scales[S::SUBS][S::COLUMNS / 4];  // of each column
#pragma unroll
  for (int i = 0; i < S::COLUMNS / 4; ++i) {
    const float* of_row = row_scales + 4 * (i / 2 * 8 + lane_column() + i % 2);
#pragma unroll
    for (int sub = 0; sub < S::SUBS; ++sub) scales[sub][i] = of_row[sub * S::TILES];
  }
#pragma unroll
  for (int tile = 0; tile < S::TILES; ++tile) {
    const float of_weights = weight_scales[tile / 2 * WIDTH_BLOCKS];
#pragma unroll
    for (int sub = 0; sub < S::SUBS; ++sub) {
      auto& sums = product[sub][tile];
      hold_sums(sums);
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        const float sum = S::PLANES == 2 ? sums[i] + sums[(S::PLANES - 1) * COUNT + i] : sums[i];
        acc[tile][i] += sum * (scales[sub][i / 4 * 2 + i % 2] * of_weights);
      }
    }
  }
}

// acc = the second product of a unit.
template <typename S>
__device__ __forceinline__ void multiply_c(SharedMemory<S>& shared, const float* weight_scales,
                                           int group, Rings<S>& rings, Sums<S>& acc) {
#pragma unroll 1
  for (int block = 0; block < WIDTH_BLOCKS; block += S::BLOCKS) {
    rings.wait(shared);
    publish_shared();
#pragma unroll
    for (int first = 0; first < S::BLOCKS; first += S::ISSUED) {
      Pieces<S> product[S::ISSUED];
      begin_products();
#pragma unroll
      for (int i = 0; i < S::ISSUED; ++i) {
        issue_pieces<S>(shared, rings, first + i, group, product[i]);
      }
      commit_products();
      wait_products<0>();
#pragma unroll
      for (int i = 0; i < S::ISSUED; ++i) {
        const int step = first + i;
        add_pieces<S>(product[i],
                      shared.row_scales[rings.rows.stage][step] + 4 * group * S::COLUMNS,
                      weight_scales + block + step, acc);
      }
    }
    __syncwarp();
    rings.free(shared);
    rings.advance();
  }
}

// acc[tile][i], linear half, becomes C. Returns nothing in the odd pairs.
template <typename S>
__device__ __forceinline__ void activate(Sums<S>& acc) {
#pragma unroll
  for (int tile = 0; tile < S::TILES; ++tile) {
#pragma unroll
    for (int i = 0; i < S::COLUMNS / 2; ++i) {
      if (i % 4 >= 2) continue;
      const float gate = acc[tile][i + 2];
      acc[tile][i] *= gate / (1.0f + __expf(-gate));
    }
  }
}

// The scale of each of the thread's columns, from the largest magnitude in the unit's features.
template <typename S>
__device__ __forceinline__ void find_scales(SharedMemory<S>& shared, const Sums<S>& acc, int group,
                                            float (&scales)[S::COLUMNS / 4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int i = 0; i < S::COLUMNS / 4; ++i) {
    float peak = 0.0f;
#pragma unroll
    for (int tile = 0; tile < S::TILES; ++tile) {
      peak = fmaxf(peak, fabsf(acc[tile][i / 2 * 4 + i % 2]));
    }
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) {
      peak = fmaxf(peak, __shfl_xor_sync(FULL, peak, mask));
    }
    if (lane < 4) shared.peaks[group][warp][i / 2 * 8 + lane_column() + i % 2] = peak;
  }
  sync_threads_of(1 + group, GROUP_THREADS);
#pragma unroll
  for (int i = 0; i < S::COLUMNS / 4; ++i) {
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
template <typename S>
__device__ __forceinline__ void write_c(SharedMemory<S>& shared, const Args& args,
                                        const Unit& unit, int group, Sums<S>& acc) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, warp = thread / 32;
  const int columns = unit.rows - group * S::COLUMNS;
  const int64_t first_row = unit.first_row + group * S::COLUMNS;
  float scales[S::COLUMNS / 4];
  activate<S>(acc);
  find_scales<S>(shared, acc, group, scales);
  uint8_t* codes = shared.out[group];  // [2][COLUMNS][32]
  uint8_t* residuals = codes + S::COLUMNS * PIECE;
#pragma unroll
  for (int tile = 0; tile < S::TILES; ++tile) {
#pragma unroll
    for (int j = 0; j < S::COLUMNS / 8; ++j) {
      const float2 scaled = {acc[tile][4 * j] * (1.0f / scales[2 * j]),
                             acc[tile][4 * j + 1] * (1.0f / scales[2 * j + 1])};
      const int at = (8 * j + lane_column()) * PIECE + 8 * warp + lane / 4;
      store_codes(codes + at, residuals + at, scaled);
    }
    sync_threads_of(1 + group, GROUP_THREADS);
    const int plane = thread / (2 * S::COLUMNS), column = thread / 2 % S::COLUMNS;
    if (plane < 2 && column < columns) {
      uint8_t* row = args.c + (plane * int64_t{args.capacity} + first_row + column) * WIDTH;
      const int feature = unit.part * S::FEATURES + tile * PIECE + thread % 2 * 16;
      *reinterpret_cast<int4*>(row + feature) = *reinterpret_cast<const int4*>(codes + 16 * thread);
    }
    if (warp == tile && lane < 4) {
#pragma unroll
      for (int i = 0; i < S::COLUMNS / 4; ++i) {
        const int column = i / 2 * 8 + lane_column() + i % 2;
        float* row = args.c_scale + (first_row + column) * PIECES;
        if (column < columns) row[unit.part * S::TILES + tile] = scales[i];
      }
    }
    sync_threads_of(1 + group, GROUP_THREADS);
  }
  if (thread == 0) count_release(args.told.done + unit.tile);
}

// Writes a warpgroup's columns of the experts' outputs.
template <typename S>
__device__ __forceinline__ void write_out(SharedMemory<S>& shared, const Args& args,
                                          const Unit& unit, int group, const Sums<S>& acc) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, warp = thread / 32;
  const int columns = unit.rows - group * S::COLUMNS;
  const int64_t first_row = unit.first_row + group * S::COLUMNS;
  uint8_t* out = shared.out[group];
#pragma unroll
  for (int tile = 0; tile < S::TILES; ++tile) {
#pragma unroll
    for (int i = 0; i < S::COLUMNS / 2; ++i) {
      const int column = i / 4 * 8 + lane_column() + i % 2;
      const int feature = 16 * warp + lane / 4 + (i % 4 < 2 ? 0 : 8);
      *reinterpret_cast<__nv_bfloat16*>(out + column * OUT_ROW + 2 * feature) =
          __float2bfloat16_rn(acc[tile][i]);
    }
    sync_threads_of(1 + group, GROUP_THREADS);
    const int first_feature = (unit.part * S::TILES + tile) * 64;
#pragma unroll
    for (int at = thread; at < S::COLUMNS * 8; at += GROUP_THREADS) {
      const int column = at / 8, chunk = at % 8;
      if (column >= columns) break;
      __nv_bfloat16* row = args.expert_out + (first_row + column) * HIDDEN + first_feature;
      reinterpret_cast<int4*>(row)[chunk] =
          *reinterpret_cast<const int4*>(out + column * OUT_ROW + 16 * chunk);
    }
    sync_threads_of(1 + group, GROUP_THREADS);
  }
}

// A unit without columns for this warpgroup.
template <typename S>
__device__ __forceinline__ void pass_over(SharedMemory<S>& shared, const Unit& unit,
                                          Rings<S>& rings) {
  const int stages = unit.kind == FIRST ? S::FIRST_STAGES : S::SECOND_STAGES;
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    rings.wait(shared);
    __syncwarp();
    rings.free(shared);
    rings.advance();
  }
}

template <typename S>
__device__ __forceinline__ void multiply_units(SharedMemory<S>& shared, const Args& args) {
  const int group = threadIdx.x / GROUP_THREADS;
  Ring<UNIT_STAGES> units;
  Rings<S> rings;
  for (int turn = 0;; turn ^= 1) {
    const Unit unit = take_unit(shared, units);
    if (unit.kind == NONE) return;
    if (unit.rows <= group * S::COLUMNS) {
      pass_over(shared, unit, rings);
      continue;
    }
    Sums<S> acc = {};
    if (unit.kind == FIRST) {
      multiply_x<S>(shared, shared.weight_scales[turn], group, rings, acc);
      write_c<S>(shared, args, unit, group, acc);
    } else {
      multiply_c<S>(shared, shared.weight_scales[turn], group, rings, acc);
      write_out<S>(shared, args, unit, group, acc);
    }
  }
}

}  // namespace
