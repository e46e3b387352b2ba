// Many packed rows, bound by the tensor cores: units of work and the shared memory of a CTA.
//
// A tile is up to 128 packed rows of an expert times 256 rows of its weights. A cluster of two CTAs
// takes two tiles at a time: two row tiles of an expert, whose weights then come once for both, or,
// of a last row tile without a partner, two neighbouring parts of the weights.
#pragma once

#include "plan.cuh"

namespace {

constexpr int PAIR = 2;         // CTAs of a cluster
constexpr int TILE_ROWS = 128;  // packed rows, 64 of each warpgroup
constexpr int TILE_STAGES = 4;  // 48 KiB each
constexpr int BOX_ROWS = 64;    // weight rows that one request brings
constexpr int BOXES = 4;        // of a tile
constexpr int TILE_FEEDERS = 64;                                 // threads that request packed rows
constexpr int TILE_READERS = (MULTIPLYING + TILE_FEEDERS) / 32;  // warps that read of units
constexpr int TILE_DONE = MULTIPLYING / 32 * WIDTH_BLOCKS;       // counts of a finished row tile

// One of the two products.
template <Kind KIND>
struct Product {
  static constexpr int BLOCKS = KIND == FIRST ? HIDDEN_BLOCKS : WIDTH_BLOCKS;  // of k
  static constexpr int K = BLOCKS * BLOCK;
  // 256 weight rows each: linear and gate half of 128 columns of C, or 256 columns of the output.
  static constexpr int PARTS = KIND == FIRST ? WIDTH / BLOCK : HIDDEN / (2 * BLOCK);
};

static_assert(Product<FIRST>::PARTS % PAIR == 0 && Product<SECOND>::PARTS % PAIR == 0,
              "a row tile without a partner has an even number of parts");

static_assert(Product<FIRST>::BLOCKS % (2 * TILE_STAGES) == 0 &&
                  Product<SECOND>::BLOCKS % (2 * TILE_STAGES) == 0,
              "the ring stands at its begin wherever a unit begins");

// Where a block of k of a unit stands in the ring of stages.
__device__ __forceinline__ int stage_of(int block) { return block % TILE_STAGES; }
__device__ __forceinline__ uint32_t parity_of(int block) { return block / TILE_STAGES % 2; }

struct alignas(16) TileUnit {
  int kind;
  int expert, part;
  int first_row, rows;  // packed
  int tile;             // row tile, counted over all experts
  bool is_shared;       // both CTAs of the cluster have these weights
};

struct TileShared {
  alignas(1024) uint8_t weights[TILE_STAGES][BOXES][BOX_ROWS * BLOCK];
  alignas(1024) uint8_t rows[TILE_STAGES][TILE_ROWS * BLOCK];
  alignas(16) float row_scales[TILE_STAGES][TILE_ROWS];
  alignas(8) float weight_scales[TILE_STAGES][2];
  alignas(16) TileUnit units[UNIT_STAGES];
  int tickets[2];
  alignas(8) uint64_t full[TILE_STAGES], free[TILE_STAGES];
  uint64_t unit_full[UNIT_STAGES], unit_free[UNIT_STAGES];
  uint64_t ticket_full[2];
};

// Packed rows of a row tile, counted over all experts.
struct TileRows {
  int expert, first_row, rows;
};

// For a whole warp whose lanes hold the rows of an expert each, and the sums of rows and of tiles.
__device__ __forceinline__ TileRows find_rows(int tile, int rows, int rows_through,
                                              int tiles_through) {
  const int expert = __popc(__ballot_sync(FULL, tiles_through <= tile));
  const int all_rows = __shfl_sync(FULL, rows, expert);
  const int row_before = __shfl_sync(FULL, rows_through, expert) - all_rows;
  const int tiles = (all_rows + TILE_ROWS - 1) / TILE_ROWS;
  const int within = tile - (__shfl_sync(FULL, tiles_through, expert) - tiles);
  return {expert, row_before + within * TILE_ROWS,
          min(all_rows - within * TILE_ROWS, TILE_ROWS)};
}

// The tile that one CTA of a cluster has of a ticket, found by a whole warp whose lanes hold the
// rows of an expert each and their sums. As in find_unit(), all of the first product come first.
__device__ __forceinline__ TileUnit find_tile(int ticket, int rank, int rows, int rows_through) {
  const int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS, tiles_through = scan_lanes(tiles);
  const int first_units = __shfl_sync(FULL, tiles_through, 31) * (Product<FIRST>::PARTS / PAIR);
  const bool is_first = ticket < first_units;
  const int parts = is_first ? Product<FIRST>::PARTS : Product<SECOND>::PARTS;
  const int index = is_first ? ticket : ticket - first_units;
  const int expert = __popc(__ballot_sync(FULL, tiles_through * (parts / PAIR) <= index));
  TileUnit unit = {};
  if (expert == LOCAL) return unit;
  const int of_expert = __shfl_sync(FULL, tiles, expert);
  const int tile_before = __shfl_sync(FULL, tiles_through, expert) - of_expert;
  const int within = index - tile_before * (parts / PAIR), pairs = of_expert / PAIR;
  unit.is_shared = within < pairs * parts;
  const int tile = unit.is_shared ? PAIR * (within % pairs) + rank : of_expert - 1;
  unit.kind = is_first ? FIRST : SECOND;
  unit.part = unit.is_shared ? within / pairs : PAIR * (within - pairs * parts) + rank;
  unit.tile = tile_before + tile;
  const TileRows place = find_rows(unit.tile, rows, rows_through, tiles_through);
  unit.expert = place.expert, unit.first_row = place.first_row, unit.rows = place.rows;
  return unit;
}

}  // namespace
