// Many packed rows: units of work and the shared memory of a CTA.
//
// A tile is up to 128 packed rows of an expert times 256 rows of its weights, or up to 64 in calls
// that the weights' bytes bind: then C has two planes. A cluster of two CTAs takes two tiles at a
// time: two row tiles of an expert, whose weights then come once for both, or, of a last row tile
// without a partner, two neighbouring parts of the weights.
#pragma once

#include "plan.cuh"

namespace {

constexpr int PAIR = 2;         // CTAs of a cluster
constexpr int TILE_ROWS = 128;  // packed rows of a stage, times planes of C
constexpr int TILE_STAGES = 4;  // 48 KiB each
constexpr int BOX_ROWS = 64;    // weight rows that one request brings
constexpr int BOXES = 4;        // of a tile
constexpr int TILE_FEEDERS = 64;                                 // threads that request packed rows
constexpr int TILE_READERS = (MULTIPLYING + TILE_FEEDERS) / 32;  // warps that read of units
constexpr int TILE_DONE = MULTIPLYING / 32 * WIDTH_BLOCKS;       // counts of a finished row tile

// What tiles a kernel has. TOLD: it routes, and counts in words with a nonce. PLANES: of C. With
// one a warpgroup has half of a tile's packed rows and all of its weight rows. With two, codes and
// what they round off, it has all packed rows, half as many, and half of the weight rows.
template <bool TOLD_, int PLANES_>
struct TileForm {
  static constexpr bool TOLD = TOLD_;
  static constexpr int PLANES = PLANES_;
  static constexpr int ROWS = TILE_ROWS / PLANES;    // packed
  static constexpr int BOXES_EACH = BOXES / PLANES;  // of a warpgroup
  static constexpr int C_COLUMNS = BLOCK / PLANES;   // of a warpgroup, in the first product
  // Which half of the weight rows is the thread's; 0 where it has all.
  static __device__ __forceinline__ int half() {
    return PLANES == 1 ? 0 : threadIdx.x / GROUP_THREADS;
  }
};

// One of the two products.
template <Kind KIND>
struct Product {
  static constexpr Kind OF = KIND;
  static constexpr int BLOCKS = KIND == FIRST ? HIDDEN_BLOCKS : WIDTH_BLOCKS;  // of k
  static constexpr int K = BLOCKS * BLOCK;
  // 256 weight rows each: linear and gate half of 128 columns of C, or 256 columns of the output.
  static constexpr int PARTS = KIND == FIRST ? WIDTH / BLOCK : HIDDEN / (2 * BLOCK);
};

static_assert(Product<FIRST>::PARTS % PAIR == 0 && Product<SECOND>::PARTS % PAIR == 0,
              "a row tile without a partner has an even number of parts");

struct alignas(16) TileUnit {
  int kind;
  int expert, part;
  int first_row, rows;  // packed
  int tile;             // row tile, counted over all experts
  bool is_shared;       // both CTAs of the cluster have these weights
};

// Where the ring of units stands: a number alone, since registers are scarce.
struct UnitRing {
  uint32_t turn = 0;
  __device__ __forceinline__ int stage() const { return turn % UNIT_STAGES; }
  __device__ __forceinline__ uint32_t parity() const { return turn / UNIT_STAGES % 2; }
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
  float peaks[2][2][BOX_ROWS];  // of C: in this unit or the next, of each warpgroup
  alignas(16) uint4 told[2][TILE_ROWS];  // local experts of rows' tokens: likewise, in .x and .z
};

// Packed rows of a row tile, counted over all experts.
struct TileRows {
  int expert, first_row, rows;
};

// For a whole warp whose lanes hold the rows of an expert each, and the sums of rows and of tiles.
// ROWS: of a tile.
template <int ROWS>
__device__ __forceinline__ TileRows find_rows(int tile, int rows, int rows_through,
                                              int tiles_through) {
  const int expert = __popc(__ballot_sync(FULL, tiles_through <= tile));
  const int all_rows = __shfl_sync(FULL, rows, expert);
  const int row_before = __shfl_sync(FULL, rows_through, expert) - all_rows;
  const int tiles = (all_rows + ROWS - 1) / ROWS;
  const int within = tile - (__shfl_sync(FULL, tiles_through, expert) - tiles);
  return {expert, row_before + within * ROWS, min(all_rows - within * ROWS, ROWS)};
}

// The tile that one CTA of a cluster has of a ticket, found by a whole warp whose lanes hold the
// rows of an expert each and their sums. As in find_unit(), all of the first product come first.
template <int ROWS>
__device__ __forceinline__ TileUnit find_tile(int ticket, int rank, int rows, int rows_through) {
  const int tiles = (rows + ROWS - 1) / ROWS, tiles_through = scan_lanes(tiles);
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
  const TileRows place = find_rows<ROWS>(unit.tile, rows, rows_through, tiles_through);
  unit.expert = place.expert, unit.first_row = place.first_row, unit.rows = place.rows;
  return unit;
}

}  // namespace
