// Sizes, arguments, shared memory and the division of work of prefill.cu.
//
// Everything of prefill.cu is in an unnamed namespace: two builds that are loaded into one process
// would share the statics of a named one.
#pragma once

#include <cstdint>

#include "rank.cuh"

namespace {

constexpr int HEADS = 64, DIM = 128, TOPK = 2048;
constexpr int BLOCK = 4;   // queries that a CTA scores together
constexpr int TILE = 128;  // keys of a stage, 64 of them a warpgroup's
constexpr int QUERY_BYTES = HEADS * DIM, GROUP_BYTES = 64 * DIM, TILE_BYTES = TILE * DIM;
constexpr int COMPUTING = 256, FEEDING = 128, THREADS = COMPUTING + FEEDING;
constexpr int SEGMENTS = COMPUTING / 32;  // of a query's candidates: one a warp
constexpr uint32_t FULL = ~0u;

// Reasoned, not measured: docs/kernels/dsa_indexer_prefill.md, "Native route".
struct Tuning {
  static constexpr int STAGES = 6;              // 96 KiB of keys
  static constexpr int LAG = 3;                 // tiles in flight: two others are ready meanwhile
  static constexpr bool ORDERED = true;         // the warpgroups issue their products in turns
  static constexpr int COMPUTING_REGISTERS = 232, FEEDING_REGISTERS = 40;
  static constexpr int STRETCH = 48;            // keys of which one is sampled
  static constexpr int WANTED = 3840;           // candidates: rank 80 in the sample of any range
  static constexpr int WHOLE = 5120;            // keys of a range that are all candidates
  static constexpr int CAPACITY = 832;          // candidates of a query in a segment: 480 are usual
  static constexpr int TIES = 264;              // kept of a tie at the threshold by each warp
};
constexpr int STAGES = Tuning::STAGES, LAG = Tuning::LAG, STRETCH = Tuning::STRETCH;
constexpr int CAPACITY = Tuning::CAPACITY;
constexpr int MOST_BLOCKS = 1024;  // of a launch
constexpr int MOST_CTAS = 132;     // of a launch, one an SM; and so pieces of a block

static_assert(COMPUTING == 4 * TILE / 2, "a warpgroup takes half of a tile");
static_assert(SEGMENTS * Tuning::TIES >= TOPK, "the best of equal scores are kept");
static_assert(LAG < STAGES - 1, "a stage that is waited for depends on no tile that is held back");
static_assert((COMPUTING * Tuning::COMPUTING_REGISTERS + FEEDING * Tuning::FEEDING_REGISTERS) <=
                  64 * 1024,
              "registers of an SM");

struct Args {
  const uint8_t* query;   // [Q, 64, 128] e4m3
  const uint8_t* codes;   // [N, 128] e4m3
  const float* scales;    // [N]
  const float* weights;   // [Q, 64]
  const int* starts;      // [Q]
  const int* ends;        // [Q]
  int* ids;               // [Q, 2048]
  float* thresholds;      // [Q]: what a candidate scores at least
  int2* shares;           // [blocks]: the first CTA that has a piece, and how many have one
  int* counts;            // [areas, 8]: what each segment was offered
  int* failed;            // [1 + Q]: how many queries need repair, and which
  // One memory, for one of these at a time:
  float* samples;         // [Q, slots]
  uint2* candidates;      // [areas, 8, CAPACITY]: bits of the score, key
  uint32_t* keys;         // [CTAs of the repair, 4, N]: scores by their order
  int num_queries, num_keys, slots, most_candidates;
};

// What the warps that compute know of the queries of a block.
struct Rows {
  alignas(16) float weights[BLOCK][4][16];  // halved; of lane l of a quad: heads 8 j + 2 l + {0, 1}
  int row[BLOCK];     // -1: none
  int start[BLOCK];   // of the range
  int length[BLOCK];  // 0: not scored here
  float threshold[BLOCK];
};

struct SharedMemory {
  alignas(1024) uint8_t queries[2][BLOCK * QUERY_BYTES];  // of this block and the next
  alignas(1024) uint8_t tiles[STAGES][TILE_BYTES];
  Rows rows[2];
  int before[MOST_BLOCKS + 1];  // tiles of the blocks before
  int first_tile[MOST_BLOCKS];
  RankMemory rank;
  alignas(8) uint64_t full[STAGES], free[STAGES], block_free[2], issued[2];
};

static_assert(sizeof(SharedMemory) <= 227 * 1024, "what sm_90 gives a CTA");

enum class Mode {
  SAMPLE,  // one key of each stretch, for the thresholds
  FILTER,  // all keys, for the candidates
  REPAIR,  // all keys of the queries that failed, for a selection from all their scores
};

struct Range {
  int start, length;  // cut to the keys that there are; an empty one has length 0
  __device__ int first_tile() const { return start / TILE; }
  __device__ int tiles() const { return (start + length + TILE - 1) / TILE - first_tile(); }
};

__device__ __forceinline__ Range load_range(const Args& args, int row) {
  const int start = max(__ldg(args.starts + row), 0);  // and ends, or their difference may wrap
  const int end = max(min(__ldg(args.ends + row), args.num_keys), 0);
  return {start, max(end - start, 0)};
}

// The key that is sampled of a stretch, at a random place in it: equal distances would over- or
// undercount better keys that come at a distance of their own. It may lie behind the last key.
__device__ __forceinline__ int sampled_key(int slot) {
  const uint32_t random = static_cast<uint32_t>(slot) * 2654435761u >> 16;
  return slot * STRETCH + static_cast<int>(random * STRETCH >> 16);
}

// What lies in a row of a tile: a key, or a slot of the sample. From tile to tile the rows move on
// by those of a warp: keys that come at a distance of 128 meet all warps in turn.
__device__ __forceinline__ int place_of(int tile, int row) {
  return tile * TILE + (row + tile * 16) % TILE;
}

template <Mode MODE>
__device__ __forceinline__ int key_at(int place) {
  return MODE == Mode::SAMPLE ? sampled_key(place) : place;
}

// Keys of a range that a launch does not score.
template <Mode MODE>
__device__ constexpr int unscored() {
  return MODE == Mode::SAMPLE ? Tuning::WHOLE : TOPK;
}

template <Mode MODE>
__device__ __forceinline__ int row_of(const Args& args, int block, int query) {
  const int at = block * BLOCK + query;
  if (MODE != Mode::REPAIR) return at < args.num_queries ? at : -1;
  return at < args.failed[0] ? args.failed[1 + at] : -1;
}

// Tiles that hold the scored ranges of a block, those between them included.
struct Tiles {
  int first, count;
};

template <Mode MODE>
__device__ __forceinline__ Tiles find_tiles(const Args& args, int block) {
  int low = INT32_MAX, high = 0;
#pragma unroll
  for (int query = 0; query < BLOCK; ++query) {
    const int row = row_of<MODE>(args, block, query);
    if (row < 0) continue;
    const Range range = load_range(args, row);
    if (range.length <= unscored<MODE>()) continue;
    low = min(low, range.start), high = max(high, range.start + range.length);
  }
  if (high == 0) return {0, 0};
  constexpr int KEYS = MODE == Mode::SAMPLE ? STRETCH : 1;  // of a place
  const int first = low / KEYS / TILE;
  return {first, (high - 1) / KEYS / TILE + 1 - first};
}

// Fills before and first_tile. All tiles of all blocks form one line, which is cut into equal
// shares, one a CTA.
template <Mode MODE>
__device__ __forceinline__ void divide_work(SharedMemory& shared, const Args& args) {
  constexpr int EACH = (MOST_BLOCKS + THREADS - 1) / THREADS;
  const int blocks = (args.num_queries + BLOCK - 1) / BLOCK, first = threadIdx.x * EACH;
  Tiles tiles[EACH];
  int sum = 0;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    tiles[i] = first + i < blocks ? find_tiles<MODE>(args, first + i) : Tiles{0, 0};
    sum += tiles[i].count;
  }
  int before = sum_before<THREADS, 0>(shared.rank, sum);
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    if (first + i >= blocks) break;
    shared.before[first + i] = before, shared.first_tile[first + i] = tiles[i].first;
    before += tiles[i].count;
    if (first + i == blocks - 1) shared.before[blocks] = before;
  }
}

// CTAs that have a share of the line, each of them a tile at least.
__device__ __forceinline__ int count_shares(int total) {
  return max(min(total, static_cast<int>(gridDim.x)), 1);
}

// The CTA that a tile of the line belongs to.
__device__ __forceinline__ int owner_of(int tile, int total) {
  return static_cast<int>((static_cast<int64_t>(tile + 1) * count_shares(total) - 1) / total);
}

struct Piece {
  int block, first, tiles;
};

// A CTA's pieces, in order: the same for those who feed and those who compute.
template <Mode MODE>
struct Walk {
  const SharedMemory& shared;
  const Args& args;
  int block, blocks, tile, end;

  __device__ Walk(const SharedMemory& shared, const Args& args) : shared(shared), args(args) {
    if (MODE == Mode::REPAIR) {
      block = blockIdx.x, blocks = (args.failed[0] + BLOCK - 1) / BLOCK;
      return;
    }
    blocks = (args.num_queries + BLOCK - 1) / BLOCK;
    const int64_t total = shared.before[blocks];
    const int shares = count_shares(static_cast<int>(total));
    const int cta = min(static_cast<int>(blockIdx.x), shares);
    tile = static_cast<int>(total * cta / shares);
    end = static_cast<int>(total * min(cta + 1, shares) / shares);
    block = 0;
    for (int step = MOST_BLOCKS / 2; step > 0; step /= 2) {  // the last block that begins there
      if (block + step < blocks && shared.before[block + step] <= tile) block += step;
    }
  }

  __device__ bool next(Piece& piece) {
    if (MODE == Mode::REPAIR) {
      if (block >= blocks) return false;
      const Tiles tiles = find_tiles<MODE>(args, block);
      piece = {block, tiles.first, tiles.count};
      block += gridDim.x;
      return true;
    }
    if (tile >= end) return false;
    while (shared.before[block + 1] <= tile) ++block;
    const int stop = min(end, shared.before[block + 1]);
    piece = {block, shared.first_tile[block] + tile - shared.before[block], stop - tile};
    tile = stop;
    return true;
  }
};

// Where the candidates of a query in a piece go, a segment a warp: where the block begins, the
// query's own area; else one of the CTA's four, as a CTA begins in the middle of one block at most.
// order: how many pieces of the block are before.
__device__ __forceinline__ int area_of(const Args& args, int row, int query, int cta, int order) {
  return order == 0 ? row : args.num_queries + cta * BLOCK + query;
}

}  // namespace
