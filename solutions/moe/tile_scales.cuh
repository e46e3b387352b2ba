// Scales of packed rows in tiles: 128 rows' scales of a block of k are 512 bytes in a row.
//
// Each of a row tile's 16 parts needs them. As x has them, [56, T], a scale of four bytes lies in
// a sector of its own, and a tile would read an eighth more than its operands.
#pragma once

#include "programmatic_launch.cuh"
#include "tile_plan.cuh"

namespace {

constexpr int SCALE_THREADS = 1024, SCALE_GROUPS = SCALE_THREADS / TILE_ROWS;

static_assert(HIDDEN_BLOCKS % SCALE_GROUPS == 0, "a thread takes every eighth block");

// Grid: any; a CTA takes row tiles in a stride. Rows behind a tile's last one repeat it.
__global__ void __launch_bounds__(SCALE_THREADS, 1)
    tile_scales_kernel(const __grid_constant__ Args args) {
  wait_for_launches_before();
  allow_next_launch();
  const int lane = threadIdx.x % 32, group = threadIdx.x / TILE_ROWS;
  const int rows = args.routing.counts[lane], rows_through = scan_lanes(rows);
  const int tiles_through = scan_lanes((rows + TILE_ROWS - 1) / TILE_ROWS);
  const int tiles = __shfl_sync(FULL, tiles_through, 31);
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const TileRows place = find_rows(tile, rows, rows_through, tiles_through);
    const int row = min(int(threadIdx.x % TILE_ROWS), place.rows - 1);
    const int token = args.routing.row_token[place.first_row + row];
    float scales[HIDDEN_BLOCKS / SCALE_GROUPS];
#pragma unroll
    for (int i = 0; i < HIDDEN_BLOCKS / SCALE_GROUPS; ++i) {
      scales[i] = args.x_scale[int64_t{i * SCALE_GROUPS + group} * args.num_tokens + token];
    }
    float* to = args.x_tile_scale + int64_t{tile} * HIDDEN_BLOCKS * TILE_ROWS;
#pragma unroll
    for (int i = 0; i < HIDDEN_BLOCKS / SCALE_GROUPS; ++i) {
      to[i * SCALE_THREADS + threadIdx.x] = scales[i];
    }
  }
}

}  // namespace
