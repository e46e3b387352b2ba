// Scales of packed rows in tiles: 128 rows' scales of a block of k are 512 bytes in a row.
//
// Of calls that the tensor cores bind. Each of a row tile's 16 parts needs them. As x has them,
// [56, T], a scale of four bytes lies in a sector of its own, and a tile would read an eighth more
// than its operands.
#pragma once

#include "tile_plan.cuh"

namespace {

constexpr int TILED_SLOTS = 512;  // of the tokens of a CTA that packs

// A packed row: where its scales are, and where that of the first block of k goes.
struct TiledRow {
  int token, at;
};

// The packed rows of 64 tokens, in no order; returns how many. counts: rows of each expert.
__device__ __forceinline__ int list_rows(const Routing& routing, int num_tokens, int first_token,
                                         const int (&counts)[LOCAL],
                                         TiledRow (&listed)[TILED_SLOTS]) {
  __shared__ int count;
  const int lane = threadIdx.x % 32, slot = threadIdx.x % TOP_K;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();  // the tokens' packed rows are written, too
  if (threadIdx.x < TILED_SLOTS) {
    const int rows = counts[lane], tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    const int rows_before = scan_lanes(rows) - rows, tiles_before = scan_lanes(tiles) - tiles;
    const int token = first_token + threadIdx.x / TOP_K;
    const bool is_token = token < num_tokens;
    const int row = is_token ? routing.slot_row[int64_t{token} * TOP_K + slot] : -1;
    const uint2 locals = read_locals(is_token ? routing.slot_local[token] : no_locals());
    const int expert = expert_in(locals, slot);
    const int within = row - __shfl_sync(FULL, rows_before, expert);
    const int tile = __shfl_sync(FULL, tiles_before, expert) + within / TILE_ROWS;
    const uint32_t local = __ballot_sync(FULL, row >= 0);
    int at = lane == 0 ? atomicAdd(&count, __popc(local)) : 0;
    at = __shfl_sync(FULL, at, 0) + __popc(local & ((1u << lane) - 1));
    if (row >= 0) {
      listed[at] = {token, tile * HIDDEN_BLOCKS * TILE_ROWS + within % TILE_ROWS};
    }
  }
  __syncthreads();
  return count;
}

// For a CTA of 32 warps that has packed 64 tokens.
__device__ __forceinline__ void tile_scales(const Routing& routing, const float* x_scale,
                                            float* x_tile_scale, int num_tokens, int first_token,
                                            const int (&counts)[LOCAL]) {
  __shared__ TiledRow listed[TILED_SLOTS];
  const int count = list_rows(routing, num_tokens, first_token, counts, listed);
  const int lane = threadIdx.x % 32;
  for (int block = threadIdx.x / 32; block < HIDDEN_BLOCKS; block += blockDim.x / 32) {
    const float* from = x_scale + int64_t{block} * num_tokens;
    for (int i = lane; i < count; i += 32) {
      x_tile_scale[listed[i].at + block * TILE_ROWS] = from[listed[i].token];
    }
  }
}

// Scales behind the last row of each expert, up to four's multiple: they are copied together.
__device__ __forceinline__ void blank_scales(float* x_tile_scale, const int (&counts)[LOCAL]) {
  const int lane = threadIdx.x % 32, expert = threadIdx.x / 32;
  const int rows = counts[expert];
  const int tiles_through = scan_lanes((counts[lane] + TILE_ROWS - 1) / TILE_ROWS);
  const int tile = __shfl_sync(FULL, tiles_through, expert) - 1;
  if (rows % 4 == 0) return;
  float* last = x_tile_scale + int64_t{tile} * HIDDEN_BLOCKS * TILE_ROWS + rows % TILE_ROWS;
  for (int block = lane; block < HIDDEN_BLOCKS; block += 32) {
    for (int i = 0; i < 4 - rows % 4; ++i) last[block * TILE_ROWS + i] = 0.0f;
  }
}

}  // namespace
