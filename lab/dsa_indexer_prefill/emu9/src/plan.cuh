// Sizes, arguments, shared memory and the division of work of prefill.cu.
//
// Everything of prefill.cu is in an unnamed namespace: two builds that are loaded into one process
// would share the statics of a named one.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "rank.cuh"

namespace {

constexpr int HEADS = 64, DIM = 128, TOPK = 2048;
constexpr int BLOCK = 4;   // queries that a CTA scores together
constexpr int TILE = 128;  // keys of a stage
constexpr int HALF = 64;   // keys of it that a warpgroup multiplies, with a pair of the queries
constexpr int QUERY_BYTES = HEADS * DIM, PAIR_BYTES = 2 * QUERY_BYTES;
constexpr int HALF_BYTES = HALF * DIM, TILE_BYTES = TILE * DIM;
constexpr int COMPUTING = 512, FEEDING = 128, THREADS = COMPUTING + FEEDING;
constexpr int ROWS = 16;   // of a tile, that a warp has
constexpr int SEGMENTS = TILE / ROWS;  // of a query's candidates: one a warp that meets the query
constexpr int SPEAKERS = 2 * (COMPUTING / 32);  // lanes that say for their warp that it is done
constexpr uint32_t FULL = ~0u;

// Reasoned, not measured, but for SHORT_STRETCH, which was measured in turns with STRETCH:
// docs/kernels/dsa_indexer_prefill.md, "Native route", and docs/log.md.
struct Tuning {
  static constexpr int STAGES = 6;              // 96 KiB of keys
  static constexpr int COMPUTING_REGISTERS = 112, FEEDING_REGISTERS = 32;
  static constexpr int STRETCH = 48;            // keys of which one is sampled
  static constexpr int SHORT_STRETCH = 64;      // the same in contexts of at most SHORT keys:
  static constexpr int SHORT = 16384;           // their sample fills two tiles
  static constexpr int SPARE = 32;              // pairs of blocks: at most 1/32 more tiles
  static constexpr int WANTED = 3840;           // candidates: rank 81 of a sample, 61 if short
  static constexpr int WHOLE = 5120;            // keys of a range that are all candidates
  static constexpr int CAPACITY = 832;          // candidates of a query in a segment: 480 are usual
  static constexpr int UNTOLD = 4;              // ties that a warp keeps before it tells of them
};
constexpr int STAGES = Tuning::STAGES;
constexpr int CAPACITY = Tuning::CAPACITY;
constexpr int MOST_BLOCKS = 1024;  // of a launch
constexpr int MOST_CTAS = 132;     // of a launch, one an SM
constexpr int PAIR = 2;            // CTAs of a cluster of the filter
constexpr int MOST_PIECES = MOST_CTAS;  // of a block there
constexpr int MOST_KEYS = 1 << 20;

static_assert(COMPUTING == 128 * (TILE / HALF) * (BLOCK / 2), "a warpgroup for each product");
static_assert(int64_t{MOST_BLOCKS} * (MOST_KEYS / TILE) * MOST_CTAS < INT32_MAX,
              "a tile of the line times a CTA");
static_assert((COMPUTING * Tuning::COMPUTING_REGISTERS + FEEDING * Tuning::FEEDING_REGISTERS) <=
                  THREADS * (64 * 1024 / THREADS / 8 * 8),
              "registers that the CTA starts with");

// The CTAs that have a piece of a block: each step-th from the first on.
struct Share {
  int first, pieces, step;
};

struct Args {
  CUtensorMap map;        // codes, a box: 16 keys
  const uint8_t* query;   // [Q, 64, 128] e4m3
  const uint8_t* codes;   // [N, 128] e4m3
  const float* scales;    // [N]
  const float* weights;   // [Q, 64]
  const int* starts;      // [Q]
  const int* ends;        // [Q]
  int* ids;               // [Q, 2048]
  float* thresholds;      // [Q]: what a candidate scores at least
  int* known;             // [Q]: stored candidates that warps have told of
  Share* shares;          // [blocks]
  int* counts;            // [areas, 8]: what each segment was offered
  int* failed;            // [1 + Q]: how many queries need repair, and which
  // One memory, for one of these at a time:
  float* samples;         // [Q, slots]
  uint2* candidates;      // [areas, 8, CAPACITY]: bits of the score, key
  uint32_t* keys;         // [CTAs of the repair, 4, N]: scores by their order
  int num_queries, num_keys, stretch, slots, most_candidates;
};

// Of a block's tiles, those that a CTA goes through. No tiles: it has no piece left.
struct Piece {
  int block, first, tiles;
  int pieces;  // of the block, where this is the first one; else 0
};

// What the warps that compute know of a piece and the queries of its block.
struct Rows {
  alignas(16) float weights[BLOCK / 2][4][32];  // of a pair, in a lane of a quad: weight_place()
  int row[BLOCK];     // -1: none
  int start[BLOCK];   // of the range
  int length[BLOCK];  // 0: not scored here
  float threshold[BLOCK];
  Piece piece;
};

// What a warp has told of a query's candidates in its segment.
struct Told {
  int new_ties;    // scores at the threshold that it has not told of
  uint32_t place;  // behind the last one that it has
  uint32_t end;    // of the segment
  int* known;      // how many are known of the query, where it tells
};

// Products of a pair of queries lie in lanes so that each lane has one query: lanes l and l ^ 2 of
// a quad, half of the heads each, have query l % 2.
__device__ __forceinline__ int lane_of(int query, int head) { return head / 2 % 2 * 2 + query; }
__device__ __forceinline__ int weight_place(int head) { return head / 4 * 2 + head % 2; }
__device__ __forceinline__ int column_of(int query, int head) {
  return weight_place(head) / 2 * 8 + lane_of(query, head) * 2 + head % 2;
}

struct SharedMemory {
  alignas(1024) uint8_t queries[2][BLOCK * QUERY_BYTES];  // of this block and the next
  alignas(1024) uint8_t tiles[STAGES][TILE_BYTES];
  float scales[STAGES][TILE];
  Rows rows[2];
  Told told[BLOCK][SEGMENTS];
  int team, items;  // CTAs that take a block each of the same tiles; how many blocks or pairs
  int before[MOST_BLOCKS + 1];  // tiles of the blocks before, or of the pairs
  int first_tile[MOST_BLOCKS];
  RankMemory rank;
  alignas(8) uint64_t full[STAGES], free[STAGES], block_full[2], block_free[2];
  uint64_t free_in_both[STAGES];  // of a pair
};

static_assert(sizeof(SharedMemory) <= 227 * 1024, "what sm_90 gives a CTA");

enum class Mode {
  SAMPLE,  // one key of each stretch, for the thresholds
  FILTER,  // all keys, for the candidates
  REPAIR,  // all keys of the queries that failed, for a selection from all their scores
};

// CTAs that go through the same tiles, with a block of queries each. Two are a cluster of the
// filter, whose keys come out of the L2 once for both; else each goes alone.
template <Mode MODE>
__device__ __forceinline__ int team_of(const SharedMemory& shared) {
  return MODE == Mode::FILTER ? shared.team : 1;
}

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
__device__ __forceinline__ int sampled_key(int stretch, int slot) {
  const uint32_t random = static_cast<uint32_t>(slot) * 2654435761u >> 16;
  return slot * stretch + static_cast<int>(random * stretch >> 16);
}

// What lies in a row of a tile: a key, or a slot of the sample. From tile to tile the rows move on
// by those of a warp: keys that come at a distance of 128 meet all warps in turn.
__device__ __forceinline__ int place_of(int tile, int row) {
  return tile * TILE + static_cast<uint32_t>(row + tile * ROWS) % TILE;
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

// Keys from the first to the last of scored ranges, those between them included.
struct Span {
  int start = INT32_MAX, end = 0;  // none: the end is 0
  __device__ void include(int other_start, int other_end) {
    start = min(start, other_start), end = max(end, other_end);
  }
};

template <Mode MODE>
__device__ __forceinline__ Span find_span(const Args& args, int block) {
  Span span;
#pragma unroll
  for (int query = 0; query < BLOCK; ++query) {
    const int row = row_of<MODE>(args, block, query);
    if (row < 0) continue;
    const Range range = load_range(args, row);
    if (range.length > unscored<MODE>()) span.include(range.start, range.start + range.length);
  }
  return span;
}

struct Tiles {
  int first, count;
};

template <Mode MODE>
__device__ __forceinline__ Tiles tiles_of(const Args& args, const Span& span) {
  if (span.end == 0) return {0, 0};
  const int keys = TILE * (MODE == Mode::SAMPLE ? args.stretch : 1);
  const int first = span.start / keys;
  return {first, (span.end - 1) / keys + 1 - first};
}

// Finds the line of all tiles, those of a block, or of a pair of blocks, behind those of the one
// before. It is cut into equal shares, one a team. The filter's teams are pairs where these go
// through hardly more tiles than blocks do: all CTAs find the same, from all ranges.
template <Mode MODE>
__device__ __forceinline__ void divide_work(SharedMemory& shared, const Args& args) {
  static_assert(MOST_BLOCKS <= PAIR * THREADS, "two blocks a thread");
  Span both;
  Tiles own[PAIR];
  int sum = 0;
#pragma unroll
  for (int i = 0; i < PAIR; ++i) {
    const Span span = find_span<MODE>(args, threadIdx.x * PAIR + i);
    both.include(span.start, span.end);
    own[i] = tiles_of<MODE>(args, span);
    sum += own[i].count;
  }
  const Tiles joint = tiles_of<MODE>(args, both);
  const uint64_t two = static_cast<uint64_t>(joint.count) << 32 | sum;
  uint64_t totals;
  const uint64_t befores = sum_before<THREADS, 0>(shared.rank, two, &totals);
  const int all = static_cast<int>(totals), all_joint = static_cast<int>(totals >> 32);
  const bool in_pairs = MODE == Mode::FILTER && PAIR * all_joint <= all + all / Tuning::SPARE;
  if (in_pairs) own[0] = joint;
  const int team = in_pairs ? PAIR : 1, total = in_pairs ? all_joint : all;
  int before = static_cast<int>(in_pairs ? befores >> 32 : befores);
  const int items = (args.num_queries + BLOCK * team - 1) / (BLOCK * team);
#pragma unroll
  for (int i = 0; i < PAIR; ++i) {
    const int item = threadIdx.x * (PAIR / team) + i;
    if (i * team >= PAIR || item >= items) break;
    shared.before[item] = before, shared.first_tile[item] = own[i].first;
    before += own[i].count;
  }
  if (threadIdx.x == 0) shared.team = team, shared.items = items, shared.before[items] = total;
}

// Teams that have a share of the line, each of them a tile at least.
__device__ __forceinline__ int count_shares(int total, int team) {
  return max(min(total, static_cast<int>(gridDim.x) / team), 1);
}

// The team that a tile of the line belongs to.
__device__ __forceinline__ int owner_of(int tile, int total, int team) {
  return (static_cast<uint32_t>(tile + 1) * count_shares(total, team) - 1) / total;
}

// A CTA's pieces, in order.
template <Mode MODE>
struct Walk {
  const SharedMemory& shared;
  const Args& args;
  int item, tile, end;  // in the repair: a block, of none, and of how many

  __device__ Walk(const SharedMemory& shared, const Args& args) : shared(shared), args(args) {
    if (MODE == Mode::REPAIR) {
      item = blockIdx.x, tile = 0, end = (args.failed[0] + BLOCK - 1) / BLOCK;
      return;
    }
    const int items = shared.items, team = team_of<MODE>(shared);
    const uint32_t total = shared.before[items];
    const int shares = count_shares(total, team);
    const int own = min(static_cast<int>(blockIdx.x) / team, shares);
    tile = total * own / shares;
    end = total * min(own + 1, shares) / shares;
    item = 0;
    for (int step = MOST_BLOCKS / 2; step > 0; step /= 2) {  // the last that begins there
      if (item + step < items && shared.before[item + step] <= tile) item += step;
    }
  }

  __device__ bool next(Piece& piece) {
    piece = {0, 0, 0, 0};
    if (MODE == Mode::REPAIR) {
      if (item >= end) return false;
      const Tiles tiles = tiles_of<MODE>(args, find_span<MODE>(args, item));
      piece = {item, tiles.first, tiles.count, 1};
      item += gridDim.x;
      return true;
    }
    if (tile >= end) return false;
    while (shared.before[item + 1] <= tile) ++item;
    const int before = shared.before[item], behind = shared.before[item + 1];
    const int team = team_of<MODE>(shared), total = shared.before[shared.items];
    const int stop = min(end, behind), last = owner_of(behind - 1, total, team);
    piece = {item * team + static_cast<int>(blockIdx.x) % team,
             shared.first_tile[item] + tile - before, stop - tile,
             tile == before ? last - static_cast<int>(blockIdx.x) / team + 1 : 0};
    tile = stop;
    return true;
  }
};

// Where the candidates of a query in a piece go, a segment a warp: where the block begins, the
// query's own area; else one of the CTA's four, as a CTA begins in the middle of one block at most.
__device__ __forceinline__ int area_of(const Args& args, int row, int query, int cta, bool begins) {
  return begins ? row : args.num_queries + cta * BLOCK + query;
}

}  // namespace
