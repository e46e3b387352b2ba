// Products of many packed rows, bound by the tensor cores: units, shared memory, and the warps
// that keep the rings full.
//
// A cluster of two CTAs takes 256 weight rows of an expert and up to 256 of its packed rows, cut
// evenly: the rows of an expert become an even number of tiles of equal height. Weights come once
// for both, each CTA requesting half of them for the two. Packed rows are gathered by each.
#pragma once

#include "async_copy.cuh"
#include "multicast.cuh"
#include "named_barrier.cuh"
#include "plan.cuh"
#include "small_copy.cuh"
#include "warpgroup.cuh"

namespace {

constexpr int PAIR = 2;          // CTAs of a cluster
constexpr int TILE_ROWS = 128;   // packed rows of a CTA at most
constexpr int TILE_GRAIN = 8;    // the heights are its multiples
constexpr int TILE_STAGES = 4;   // 48 KiB each
constexpr int BYTE_ROW = BLOCK + 16;   // of C on its way out
constexpr int FEEDERS = 3;             // number of their barrier

struct TileShared {
  alignas(1024) uint8_t weights[TILE_STAGES][2][BLOCK * BLOCK];
  alignas(1024) uint8_t rows[TILE_STAGES][TILE_ROWS * BLOCK];
  alignas(16) uint8_t out[TILE_ROWS * BYTE_ROW];
  alignas(16) float row_scales[TILE_STAGES][TILE_ROWS];
  alignas(16) float weight_scales[2][2 * HIDDEN_BLOCKS];  // of this unit and the next
  alignas(16) float inverses[TILE_ROWS];
  float peaks[MULTIPLYING / 32][TILE_ROWS];
  int sources[2][TILE_ROWS];  // rows of the operand, for this unit and the next
  alignas(8) uint64_t weights_full[TILE_STAGES], weights_free[TILE_STAGES];
  uint64_t rows_full[TILE_STAGES], rows_free[TILE_STAGES];
};

static_assert(TILE_ROWS * BYTE_ROW == MULTIPLYING / GROUP_THREADS * 64 * OUT_ROW,
              "the output of a unit leaves through `out` too, 64 columns a warpgroup at a time");

// One of the two products: what it multiplies.
template <Kind KIND>
struct Product {
  static constexpr int BLOCKS = KIND == FIRST ? HIDDEN_BLOCKS : WIDTH_BLOCKS;  // of k
  static constexpr int PARTS = KIND == FIRST ? WIDTH / BLOCK : HIDDEN / (2 * BLOCK);
  static constexpr int K = BLOCKS * BLOCK;
  // Scale rows of the weights, and the one of a unit's two blocks of 128 weight rows.
  static constexpr int SCALE_ROWS = KIND == FIRST ? 2 * WIDTH_BLOCKS : HIDDEN_BLOCKS;
  static __device__ __forceinline__ int scale_row(int part, int block) {
    return KIND == FIRST ? part + block * WIDTH_BLOCKS : 2 * part + block;
  }
};

// The unit of an index, for one CTA of a cluster; kind NONE behind the last one. Units of one
// expert that share weights come one after the other.
template <Kind KIND>
__device__ __forceinline__ Unit find_tile(const Args& args, int index, int rank) {
  constexpr int PARTS = Product<KIND>::PARTS, MOST = PAIR * TILE_ROWS;
  const int rows = args.routing.counts[threadIdx.x % 32], rows_through = scan_lanes(rows);
  const int pairs = (rows + MOST - 1) / MOST, pairs_through = scan_lanes(pairs);
  const int expert = __popc(__ballot_sync(FULL, pairs_through * PARTS <= index));
  Unit unit = {};
  if (expert == LOCAL) return unit;
  const int of_expert = __shfl_sync(FULL, pairs, expert);
  const int pair_before = __shfl_sync(FULL, pairs_through, expert) - of_expert;
  const int all_rows = __shfl_sync(FULL, rows, expert);
  const int row_before = __shfl_sync(FULL, rows_through, expert) - all_rows;
  const int within = index - pair_before * PARTS;
  const int tiles = PAIR * of_expert;
  const int height = ((all_rows + tiles - 1) / tiles + TILE_GRAIN - 1) / TILE_GRAIN * TILE_GRAIN;
  unit.kind = KIND;
  unit.expert = expert, unit.part = within / of_expert;
  unit.tile = PAIR * (within % of_expert) + rank;
  unit.rows = max(0, min(all_rows - unit.tile * height, height));
  unit.first_row = row_before + unit.tile * height;
  return unit;
}

// Rows of the output without a local expert, which a warp fills with zeros while it has nothing
// else to do: DRAM is idle while the tensor cores bind. A CTA takes 32 tokens at a time.
struct BlankRows {
  static constexpr int STEPS = HIDDEN / (32 * 8);  // of 16 bytes a lane in a row
  int first_token, step = 0;
  uint32_t blank = 0;  // those of the 32 tokens that are left

  // Writes 512 bytes, or looks for rows; returns false behind the last one.
  __device__ __forceinline__ bool advance(const Args& args) {
    const int lane = threadIdx.x % 32;
    if (blank == 0) {
      first_token += 32 * gridDim.x;
      if (first_token >= args.num_tokens) return false;
      const int token = min(first_token + lane, args.num_tokens - 1);
      const int4* rows = reinterpret_cast<const int4*>(args.routing.slot_row + token * TOP_K);
      const int4 a = rows[0], b = rows[1];
      const int signs = a.x & a.y & a.z & a.w & b.x & b.y & b.z & b.w;  // -1: no slot has a row
      blank = __ballot_sync(FULL, signs < 0 && first_token + lane < args.num_tokens);
      return true;
    }
    const int64_t token = first_token + __ffs(blank) - 1;
    reinterpret_cast<int4*>(args.output + token * HIDDEN)[step * 32 + lane] = int4{};
    if (++step == STEPS) step = 0, blank &= blank - 1;
    return true;
  }
};

// One warp: requests half of the weights of unit after unit, for both CTAs.
template <Kind KIND>
__device__ __forceinline__ void feed_tile_weights(TileShared& shared, const Args& args, int rank) {
  constexpr int STEPS = KIND == FIRST ? 2 : 0;  // of blank rows a stage: half of all rows fit in
  const CUtensorMap* map = KIND == FIRST ? &args.w1 : &args.w2;
  BlankRows blank_rows = {32 * (int(blockIdx.x) - int(gridDim.x))};
  Ring<TILE_STAGES> ring;
  for (int index = blockIdx.x / PAIR;; index += gridDim.x / PAIR) {
    const Unit unit = find_tile<KIND>(args, index, rank);
    if (unit.kind == NONE) break;
    const int row = KIND == FIRST ? rank * WIDTH + unit.part * BLOCK
                                  : (PAIR * unit.part + rank) * BLOCK;
#pragma unroll 1
    for (int block = 0; block < Product<KIND>::BLOCKS; ++block) {
      wait_phase(&shared.weights_free[ring.stage], ring.parity ^ 1);
      if (threadIdx.x % 32 == 0) {
        uint64_t* full = &shared.weights_full[ring.stage];
        arrive_expecting(full, sizeof(shared.weights[0]));
        copy_box_to((1 << PAIR) - 1, shared.weights[ring.stage][rank], map, full, block * BLOCK, 0,
                    0, row / 16, unit.expert);
      }
#pragma unroll
      for (int i = 0; i < STEPS; ++i) blank_rows.advance(args);
      ring.advance();
    }
  }
  while (KIND == FIRST && blank_rows.advance(args)) {
  }
}

// Packed rows as an operand: rows of x found through their tokens, or rows of C.
struct RowOperand {
  const uint8_t* rows;
  const float* scales;  // [blocks of k, scale_stride]
  int64_t scale_stride;
};

template <Kind KIND>
__device__ __forceinline__ void feed_tile(TileShared& shared, const Args& args, const Unit& unit,
                                          const RowOperand& operand, int turn,
                                          Ring<TILE_STAGES>& ring) {
  constexpr int K = Product<KIND>::K, BLOCKS = Product<KIND>::BLOCKS, CHUNKS = BLOCKS / 4;
  const int thread = threadIdx.x - MULTIPLYING - 32, chunk = thread % 8;
  int* sources = shared.sources[turn];
  for (int row = thread; row < unit.rows; row += ROW_FEEDERS) {
    const int packed = unit.first_row + row;
    sources[row] = KIND == FIRST ? args.routing.row_token[packed] : packed;
  }
  if (thread < 2 * CHUNKS) {
    const int part = thread / CHUNKS, at = thread % CHUNKS * 4;
    const int row = unit.expert * Product<KIND>::SCALE_ROWS +
                    Product<KIND>::scale_row(unit.part, part);
    const float* scales = KIND == FIRST ? args.w1_scale : args.w2_scale;
    copy_chunk(shared.weight_scales[turn] + part * HIDDEN_BLOCKS + at, scales + row * BLOCKS + at);
  }
  sync_threads_of(FEEDERS, ROW_FEEDERS);
#pragma unroll 1
  for (int block = 0; block < BLOCKS; ++block) {
    wait_phase(&shared.rows_free[ring.stage], ring.parity ^ 1);
    uint8_t* to = shared.rows[ring.stage];
    const uint8_t* from = operand.rows + block * BLOCK + 16 * chunk;
#pragma unroll 4
    for (int row = thread / 8; row < unit.rows; row += ROW_FEEDERS / 8) {
      copy_chunk(to + swizzled(row, chunk), from + int64_t{sources[row]} * K);
    }
    const float* scales = operand.scales + block * operand.scale_stride;
    for (int row = thread; row < unit.rows; row += ROW_FEEDERS) {
      copy_word(shared.row_scales[ring.stage] + row, scales + sources[row]);
    }
    arrive_with_copies(&shared.rows_full[ring.stage]);
    ring.advance();
  }
}

// Three warps: request the packed rows of unit after unit. Buffers of the unit before the last one
// are free, as in feed_rows().
template <Kind KIND>
__device__ __forceinline__ void feed_tiles(TileShared& shared, const Args& args, int rank) {
  static_assert(TILE_STAGES < WIDTH_BLOCKS, "see above");
  const RowOperand operand = KIND == FIRST ? RowOperand{args.x, args.x_scale, args.num_tokens}
                                           : RowOperand{args.c, args.c_scale, args.capacity};
  Ring<TILE_STAGES> ring;
  int turn = 0;
  for (int index = blockIdx.x / PAIR;; index += gridDim.x / PAIR, turn ^= 1) {
    const Unit unit = find_tile<KIND>(args, index, rank);
    if (unit.kind == NONE) return;
    feed_tile<KIND>(shared, args, unit, operand, turn, ring);
  }
}

}  // namespace
