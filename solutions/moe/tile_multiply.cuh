// Products of many packed rows: the two warpgroups that multiply, and what they write.
//
// A warpgroup has 128 of a tile's weight rows as columns, and all of its packed rows in one or two
// blocks of 64. The product of a block is scaled and added while the other warpgroup's product
// runs: the second begins each unit one product behind the first.
//
// Of 32 weight rows a product's columns 8 j + 2 q and one more are rows 8 q + 2 j and one more: the
// eight that a lane holds are neighbours, and leave without a way through shared memory.
#pragma once

#include <cuda_fp8.h>

#include <cfloat>

#include "fp8_products_128.cuh"
#include "named_barrier.cuh"
#include "tile_feed.cuh"

namespace {

constexpr int COMPUTERS = 1;  // number of the barrier of both warpgroups

// Sums of a thread: of each block of 64 packed rows, times 128 weight rows.
template <int ROW_BLOCKS>
using TileSums = float[ROW_BLOCKS][TILE_COLUMNS / 2];

// A thread's first packed row of a tile; the other one of a block is eight on.
__device__ __forceinline__ int lane_row() {
  return threadIdx.x % GROUP_THREADS / 32 * 16 + threadIdx.x % 32 / 4;
}

// acc += product, scaled. weight_scales: of columns 0 to 63, and 64 to 127.
__device__ __forceinline__ void add_scaled(float (&acc)[TILE_COLUMNS / 2],
                                           const float (&product)[TILE_COLUMNS / 2],
                                           const float (&row_scales)[2],
                                           const float (&weight_scales)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float scales[2] = {row_scales[0] * weight_scales[half],
                             row_scales[1] * weight_scales[half]};
#pragma unroll
    for (int i = half * 32; i < half * 32 + 32; ++i) acc[i] += product[i] * scales[i % 4 / 2];
  }
}

// This warp has read the stage, as both CTAs of the cluster learn.
__device__ __forceinline__ void free_stage(TileShared& shared, int stage) {
  const int lane = threadIdx.x % 32;
  __syncwarp();
  if (lane < PAIR) arrive_at(&shared.free[stage], lane);
}

template <Kind KIND, int ROW_BLOCKS>
__device__ __forceinline__ void multiply_tile(TileShared& shared, int group, uint32_t turn,
                                              Ring<TILE_STAGES>& ring,
                                              TileSums<ROW_BLOCKS>& acc) {
  if (group == 1) wait_cta_phase(&shared.is_ahead, turn);
#pragma unroll 1
  for (int block = 0; block < Product<KIND>::BLOCKS; ++block) {
    wait_cta_phase(&shared.full[ring.stage], ring.parity);
    const uint64_t weights = describe_tile(shared.weights[ring.stage][group]);
    const float2 pair = *reinterpret_cast<const float2*>(shared.weight_scales[ring.stage]);
    const float weight_scales[2] = {KIND == SECOND && group == 1 ? pair.y : pair.x,
                                    KIND == SECOND && group == 0 ? pair.x : pair.y};
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS; ++i) {
      float product[TILE_COLUMNS / 2];
      const uint64_t rows = describe_tile(shared.rows[ring.stage] + i * 64 * BLOCK);
      const float* scales = shared.row_scales[ring.stage] + i * 64 + lane_row();
      begin_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        multiply_e4m3(product, at_step(rows, k), at_step(weights, k), k > 0);
      }
      commit_products();
      const float row_scales[2] = {scales[0], scales[8]};
      wait_products<0>();
      hold_sums(product);
      if (i == ROW_BLOCKS - 1) free_stage(shared, ring.stage);
      if (block == 0 && i == 0 && threadIdx.x == 0) arrive(&shared.is_ahead);
      add_scaled(acc[i], product, row_scales, weight_scales);
    }
    ring.advance();
  }
}

// C in place of the linear half, the first 64 columns, and each row's largest magnitude.
template <int ROW_BLOCKS>
__device__ __forceinline__ void activate_tile(TileShared& shared, int group,
                                              TileSums<ROW_BLOCKS>& acc) {
#pragma unroll
  for (int i = 0; i < ROW_BLOCKS; ++i) {
    float peaks[2] = {};
#pragma unroll
    for (int j = 0; j < 32; ++j) {
      const float gate = acc[i][32 + j];
      acc[i][j] *= __fdividef(gate, 1.0f + __expf(-gate));
      peaks[j % 4 / 2] = fmaxf(peaks[j % 4 / 2], fabsf(acc[i][j]));
    }
#pragma unroll
    for (int of = 0; of < 2; ++of) {
      peaks[of] = fmaxf(peaks[of], __shfl_xor_sync(FULL, peaks[of], 1));
      peaks[of] = fmaxf(peaks[of], __shfl_xor_sync(FULL, peaks[of], 2));
      if (threadIdx.x % 4 == 0) shared.peaks[group][i * 64 + lane_row() + 8 * of] = peaks[of];
    }
  }
}

__device__ __forceinline__ uint32_t pack_codes(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(float2{low, high}, __NV_SATFINITE, __NV_E4M3);
}

// Quantises and writes a warpgroup's 64 columns of C. Both warpgroups' columns share a scale.
template <int ROW_BLOCKS>
__device__ __forceinline__ void write_tile(TileShared& shared, const Args& args,
                                           const TileUnit& unit, int group,
                                           TileSums<ROW_BLOCKS>& acc) {
  activate_tile<ROW_BLOCKS>(shared, group, acc);
  sync_threads_of(COMPUTERS, MULTIPLYING);
  const int quarter = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 2 * ROW_BLOCKS; ++i) {
    const int row = i / 2 * 64 + lane_row() + i % 2 * 8;
    if (row >= unit.rows) continue;
    const float peak = fmaxf(shared.peaks[0][row], shared.peaks[1][row]);
    const float scale = fmaxf(peak * (1.0f / 448.0f), FLT_MIN);  // its reciprocal is finite
    const float inverse = 1.0f / scale;
    uint8_t* c = args.c + int64_t{unit.first_row + row} * WIDTH + unit.part * BLOCK + group * 64;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const float* sums = acc[i / 2] + part * 16 + i % 2 * 2;
      uint32_t codes[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        codes[j] = pack_codes(sums[4 * j] * inverse, sums[4 * j + 1] * inverse);
      }
      *reinterpret_cast<uint2*>(c + part * 32 + quarter * 8) = {codes[0] | codes[1] << 16,
                                                                codes[2] | codes[3] << 16};
    }
    if (group == 0 && quarter == 0) {
      args.c_tile_scale[(int64_t{unit.tile} * WIDTH_BLOCKS + unit.part) * TILE_ROWS + row] = scale;
    }
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) count_release(args.routing.done + unit.tile);
}

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Writes a warpgroup's 128 columns of the experts' outputs.
template <int ROW_BLOCKS>
__device__ __forceinline__ void write_outputs(const Args& args, const TileUnit& unit, int group,
                                              const TileSums<ROW_BLOCKS>& acc) {
  const int column = (2 * unit.part + group) * TILE_COLUMNS + threadIdx.x % 4 * 8;
#pragma unroll
  for (int i = 0; i < 2 * ROW_BLOCKS; ++i) {
    const int row = i / 2 * 64 + lane_row() + i % 2 * 8;
    if (row >= unit.rows) continue;
    __nv_bfloat16* out = args.expert_out + int64_t{unit.first_row + row} * HIDDEN + column;
#pragma unroll
    for (int part = 0; part < TILE_COLUMNS / 32; ++part) {
      const float* sums = acc[i / 2] + part * 16 + i % 2 * 2;
      *reinterpret_cast<uint4*>(out + part * 32) = {
          pack_bf16(sums[0], sums[1]), pack_bf16(sums[4], sums[5]), pack_bf16(sums[8], sums[9]),
          pack_bf16(sums[12], sums[13])};
    }
  }
}

template <Kind KIND, int ROW_BLOCKS>
__device__ __forceinline__ void compute_tile(TileShared& shared, const Args& args,
                                             const TileUnit& unit, int group, uint32_t turn,
                                             Ring<TILE_STAGES>& ring) {
  TileSums<ROW_BLOCKS> acc = {};
  multiply_tile<KIND, ROW_BLOCKS>(shared, group, turn, ring, acc);
  if constexpr (KIND == FIRST) {
    write_tile<ROW_BLOCKS>(shared, args, unit, group, acc);
  } else {
    write_outputs<ROW_BLOCKS>(args, unit, group, acc);
  }
}

__device__ __forceinline__ void multiply_tiles(TileShared& shared, const Args& args) {
  const int group = threadIdx.x / GROUP_THREADS;
  Ring<UNIT_STAGES> units;
  Ring<TILE_STAGES> ring;
  for (uint32_t turn = 0;; turn ^= 1) {
    const TileUnit unit = take_tile(shared, units);
    if (unit.kind == NONE) return;
    const bool is_half = unit.rows <= TILE_ROWS / 2;
    if (unit.kind == FIRST && is_half) {
      compute_tile<FIRST, 1>(shared, args, unit, group, turn, ring);
    } else if (unit.kind == FIRST) {
      compute_tile<FIRST, 2>(shared, args, unit, group, turn, ring);
    } else if (is_half) {
      compute_tile<SECOND, 1>(shared, args, unit, group, turn, ring);
    } else {
      compute_tile<SECOND, 2>(shared, args, unit, group, turn, ring);
    }
  }
}

}  // namespace
