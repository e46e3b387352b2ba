// Products of many packed rows: the two warpgroups that multiply, and what they write.
//
// Of a unit's two blocks of 128 weight rows a warpgroup takes 64 each: linear and gate half of the
// same 64 columns of C, or two runs of 64 columns of the output. One product of 64 weight rows and
// all packed rows is scaled and added while the other warpgroup's product runs.
#pragma once

#include <cuda_fp8.h>

#include <cfloat>

#include "fp8_products.cuh"
#include "fp8_products_to_128.cuh"
#include "fp8_products_to_96.cuh"
#include "matrix_store.cuh"
#include "tile_feed.cuh"

namespace {

constexpr int COMPUTERS = 1;  // number of the barrier of both warpgroups
constexpr int GROUP_BARRIER = 4;  // and, with the group added, of each

// Sums of a thread: two products of 64 weight rows x N packed rows.
template <int N>
using TileSums = float[2][N / 2];

// Frees a stage for both CTAs, whose weights came together.
__device__ __forceinline__ void free_stage(TileShared& shared, int stage) {
  const int lane = threadIdx.x % 32;
  if (lane < PAIR) arrive_at(&shared.weights_free[stage], lane);
  if (lane == PAIR) arrive(&shared.rows_free[stage]);
}

// acc[half] += product, scaled. Columns of a thread: 8 j + 2 (lane % 4) and one more.
template <int N>
__device__ __forceinline__ void add_scaled(float (&acc)[N / 2], const float (&product)[N / 2],
                                           const float* row_scales, float weight_scale) {
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    const float2 pair =
        *reinterpret_cast<const float2*>(row_scales + 8 * j + threadIdx.x % 4 * 2);
    const float even = pair.x * weight_scale, odd = pair.y * weight_scale;
    acc[4 * j] += product[4 * j] * even;
    acc[4 * j + 1] += product[4 * j + 1] * odd;
    acc[4 * j + 2] += product[4 * j + 2] * even;
    acc[4 * j + 3] += product[4 * j + 3] * odd;
  }
}

template <Kind KIND, int N>
__device__ __forceinline__ void multiply_tile(TileShared& shared, const float* weight_scales,
                                              int group, Ring<TILE_STAGES>& ring,
                                              TileSums<N>& acc) {
#pragma unroll 1
  for (int block = 0; block < Product<KIND>::BLOCKS; ++block) {
    wait_phase(&shared.rows_full[ring.stage], ring.parity);
    wait_phase(&shared.weights_full[ring.stage], ring.parity);
    publish_shared();  // rows came by cp.async, which is ordinary stores to the tensor cores
    const uint64_t rows = describe_tile(shared.rows[ring.stage]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float product[N / 2];
      const uint64_t weights =
          describe_tile(shared.weights[ring.stage][half] + group * 64 * BLOCK);
      begin_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        multiply_e4m3(product, at_step(weights, k), at_step(rows, k), k > 0);
      }
      commit_products();
      wait_products<0>();
      hold_sums(product);
      add_scaled<N>(acc[half], product, shared.row_scales[ring.stage],
                    weight_scales[half * HIDDEN_BLOCKS + block]);
    }
    __syncwarp();
    free_stage(shared, ring.stage);
    ring.advance();
  }
}

// C in place of the linear half, and each warp's largest magnitude of every column.
template <int N>
__device__ __forceinline__ void activate_tile(TileShared& shared, TileSums<N>& acc) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    acc[0][i] *= __fdividef(acc[1][i], 1.0f + __expf(-acc[1][i]));
  }
#pragma unroll
  for (int i = 0; i < N / 4; ++i) {
    const int slot = i / 2 * 4 + i % 2;
    float peak = fmaxf(fabsf(acc[0][slot]), fabsf(acc[0][slot + 2]));
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) {
      peak = fmaxf(peak, __shfl_xor_sync(FULL, peak, mask));
    }
    if (lane < 4) shared.peaks[warp][i / 2 * 8 + 2 * lane + i % 2] = peak;
  }
}

__device__ __forceinline__ uint32_t pack_codes(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(float2{low, high}, __NV_SATFINITE, __NV_E4M3);
}

// Quantises and writes 128 columns of C. Weight rows came in an order in which a thread's two rows
// of sixteen are neighbours in C: their codes are a 16-bit element.
template <int N>
__device__ __forceinline__ void write_tile(TileShared& shared, const Args& args, const Unit& unit,
                                           TileSums<N>& acc) {
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  activate_tile<N>(shared, acc);
  sync_threads_of(COMPUTERS, MULTIPLYING);
  if (thread < N) {
    float peak = 0.0f;
#pragma unroll
    for (int i = 0; i < MULTIPLYING / 32; ++i) peak = fmaxf(peak, shared.peaks[i][thread]);
    const float scale = fmaxf(peak * (1.0f / 448.0f), FLT_MIN);  // its reciprocal is finite
    shared.inverses[thread] = 1.0f / scale;
    if (thread < unit.rows) {
      args.c_scale[unit.part * int64_t{args.capacity} + unit.first_row + thread] = scale;
    }
  }
  sync_threads_of(COMPUTERS, MULTIPLYING);
  const uint32_t place = shared_address(shared.out) + lane % 16 * BYTE_ROW + 16 * warp;
#pragma unroll
  for (int j = 0; j < N / 8; j += 2) {
    uint32_t tiles[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (j + i == N / 8) {  // behind the last columns: a place that nobody reads
        tiles[i] = 0;
        continue;
      }
      const float* sums = acc[0] + 4 * (j + i);
      const float2 pair =
          *reinterpret_cast<const float2*>(shared.inverses + 8 * (j + i) + lane % 4 * 2);
      tiles[i] = pack_codes(sums[0] * pair.x, sums[2] * pair.x) |
                 pack_codes(sums[1] * pair.y, sums[3] * pair.y) << 16;
    }
    store_tiles_transposed(place + 8 * j * BYTE_ROW, tiles);
  }
  sync_threads_of(COMPUTERS, MULTIPLYING);
  for (int at = thread; at < unit.rows * 8; at += MULTIPLYING) {
    uint8_t* row = args.c + int64_t{unit.first_row + at / 8} * WIDTH + unit.part * BLOCK;
    reinterpret_cast<int4*>(row)[at % 8] =
        *reinterpret_cast<const int4*>(shared.out + at / 8 * BYTE_ROW + at % 8 * 16);
  }
  sync_threads_of(COMPUTERS, MULTIPLYING);
}

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Writes a warpgroup's 2 x 64 columns of the experts' outputs, 64 packed rows at a time.
template <int N>
__device__ __forceinline__ void write_outputs(TileShared& shared, const Args& args,
                                              const Unit& unit, int group,
                                              const TileSums<N>& acc) {
  constexpr int RUN = 64;  // packed rows
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, warp = thread / 32;
  uint8_t* out = shared.out + group * RUN * OUT_ROW;
  const uint32_t place = shared_address(out) + (lane / 16 * 8 + lane % 8) * OUT_ROW +
                         32 * warp + lane / 8 % 2 * 16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int first = 0; first < N; first += RUN) {
#pragma unroll
      for (int j = first / 8; j < min(first + RUN, N) / 8; j += 2) {
        const float* sums = acc[half] + 4 * j;
        const float* next = acc[half] + 4 * min(j + 1, N / 8 - 1);
        const uint32_t tiles[4] = {pack_bf16(sums[0], sums[1]), pack_bf16(sums[2], sums[3]),
                                   pack_bf16(next[0], next[1]), pack_bf16(next[2], next[3])};
        store_tiles_transposed(place + (8 * j - first) * OUT_ROW, tiles);
      }
      sync_threads_of(GROUP_BARRIER + group, GROUP_THREADS);
      const int column = (2 * unit.part + half) * BLOCK + group * 64;
      for (int at = thread; at < min(unit.rows - first, RUN) * 8; at += GROUP_THREADS) {
        __nv_bfloat16* row =
            args.expert_out + int64_t{unit.first_row + first + at / 8} * HIDDEN + column;
        reinterpret_cast<int4*>(row)[at % 8] =
            *reinterpret_cast<const int4*>(out + at / 8 * OUT_ROW + at % 8 * 16);
      }
      sync_threads_of(GROUP_BARRIER + group, GROUP_THREADS);
    }
  }
}

template <Kind KIND, int N>
__device__ __forceinline__ void compute_tile(TileShared& shared, const Args& args,
                                             const Unit& unit, int group, int turn,
                                             Ring<TILE_STAGES>& ring) {
  TileSums<N> acc = {};
  multiply_tile<KIND, N>(shared, shared.weight_scales[turn], group, ring, acc);
  if constexpr (KIND == FIRST) {
    write_tile<N>(shared, args, unit, acc);
  } else {
    write_outputs<N>(shared, args, unit, group, acc);
  }
}

// A unit without packed rows for this CTA.
template <Kind KIND>
__device__ __forceinline__ void pass_over_tile(TileShared& shared, Ring<TILE_STAGES>& ring) {
#pragma unroll 1
  for (int block = 0; block < Product<KIND>::BLOCKS; ++block) {
    wait_phase(&shared.rows_full[ring.stage], ring.parity);
    wait_phase(&shared.weights_full[ring.stage], ring.parity);
    __syncwarp();
    free_stage(shared, ring.stage);
    ring.advance();
  }
}

template <Kind KIND>
__device__ __forceinline__ void multiply_tiles(TileShared& shared, const Args& args, int rank) {
  const int group = threadIdx.x / GROUP_THREADS;
  Ring<TILE_STAGES> ring;
  int turn = 0;
  for (int index = blockIdx.x / PAIR;; index += gridDim.x / PAIR, turn ^= 1) {
    const Unit unit = find_tile<KIND>(args, index, rank);
    if (unit.kind == NONE) return;
    switch ((unit.rows + TILE_GRAIN - 1) / TILE_GRAIN) {
      case 0: pass_over_tile<KIND>(shared, ring); break;
      case 9: compute_tile<KIND, 72>(shared, args, unit, group, turn, ring); break;
      case 10: compute_tile<KIND, 80>(shared, args, unit, group, turn, ring); break;
      case 11: compute_tile<KIND, 88>(shared, args, unit, group, turn, ring); break;
      case 12: compute_tile<KIND, 96>(shared, args, unit, group, turn, ring); break;
      case 13: compute_tile<KIND, 104>(shared, args, unit, group, turn, ring); break;
      case 14: compute_tile<KIND, 112>(shared, args, unit, group, turn, ring); break;
      case 15: compute_tile<KIND, 120>(shared, args, unit, group, turn, ring); break;
      case 16: compute_tile<KIND, 128>(shared, args, unit, group, turn, ring); break;
      default:
        if (unit.rows <= 32) {
          compute_tile<KIND, 32>(shared, args, unit, group, turn, ring);
        } else {
          compute_tile<KIND, 64>(shared, args, unit, group, turn, ring);
        }
    }
  }
}

}  // namespace
