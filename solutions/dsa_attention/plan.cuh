// Sizes, arguments, shared memory and the division of work of attend.cu.
//
// Everything of attend.cu is in an unnamed namespace: two builds that are loaded into one process
// would share the statics of a named one.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace {

constexpr int HEADS = 16, CKV = 512, KPE = 64, SLOTS = 2048;
constexpr int WARPS = 8, COMPUTING = 32 * WARPS;  // who computes
constexpr int HELPERS = 4, HELPING = 32 * HELPERS, THREADS = COMPUTING + HELPING;
constexpr int CKV_BYTES = 2 * CKV, KPE_BYTES = 2 * KPE;
// Nine lines of 128 bytes, [ckv | kpe]. Chunks of 16 bytes are permuted within each line, by row,
// so that the eight rows of a matrix load lie in eight groups of banks. Not padded rows: a cp.async
// of 512 bytes that starts off a line of 128 takes 12 cycles of shared memory instead of 4.
constexpr int ROW = CKV_BYTES + KPE_BYTES, CHUNK = 16, LINE = 128, LINES = ROW / LINE;
// Registers a thread: computing warps hold half of the queries, sums, and keys two batches ahead.
constexpr int COMPUTING_REGISTERS = 216, HELPING_REGISTERS = 72;
// Numbered barriers: 1 is sync_first()'s, 2 to 5 are those of neighbouring warps in q K^T. Where
// all take part, some arrive and the others wait: they come from different places in the code.
constexpr int BARRIERS_MADE = 6, SUMS_STORED = 7, CLUSTER_MET = 8, HELPERS_MEET = 9;
constexpr int BLOCK = 16, BLOCKS = SLOTS / BLOCK;  // consecutive slots, the rows of an mma

struct Tuning {
  static constexpr int TILE = 64;   // rows of a stage, 73 KiB
  static constexpr int STAGES = 2;  // with 16 CTAs a token all of its rows lie there at once
  static constexpr int FIRST = 4;   // blocks that one CTA takes rather than share and merge
};
constexpr int TILE = Tuning::TILE, STAGES = Tuning::STAGES, FIRST = Tuning::FIRST;
constexpr int TILE_BLOCKS = TILE / BLOCK;
constexpr int LARGEST = 16;  // CTAs of a cluster, more than 8 of which are not portable
constexpr int log2_of(int x) { return x > 1 ? 1 + log2_of(x / 2) : 0; }
// In q K^T a warp takes the rows of a block and half of the columns: half of each line.
constexpr int HALVES = 2, PART_STEPS = ROW / HALVES / 32;
constexpr int VALUE_STEPS = CKV_BYTES / HALVES / 32;  // of those, in front: ckv
constexpr int WARP_COLUMNS = CKV / WARPS;  // in p ckv
constexpr int WEIGHT_ROW = 2 * STAGES * TILE + 16;

static_assert(HEADS == 16, "the heads are the 16 rows of an mma");
static_assert(TILE == 64, "two entries a lane, and their validity a word of 64 bits");
static_assert(WARPS == HALVES * TILE_BLOCKS, "a warp for each half of each block of a tile");
static_assert(ROW % LINE == 0 && PART_STEPS == 2 * LINES, "two steps a line");
static_assert(PART_STEPS % 6 == 0, "steps are loaded by sixes");
static_assert(2 * WARP_COLUMNS == LINE, "in accumulate() a warp has a line");
static_assert(HELPING == BLOCKS, "survey() gives a block to a helping thread");
static_assert(HELPING == 8 * HEADS, "find_factors() gives a head a quarter-warp");
static_assert(COMPUTING == 16 * HEADS, "merge() gives a head half a warp");
static_assert(FIRST <= TILE_BLOCKS && FIRST * LARGEST < BLOCKS, "see block_of()");
static_assert(SLOTS / LARGEST == STAGES * TILE, "16 CTAs request all of their rows at once");

// Where chunk `chunk` of row `row` of a tile, or of the queries, lies.
__device__ __forceinline__ int place_of_chunk(int row, int chunk) {
  return row * ROW + CHUNK * (chunk ^ row % (LINE / CHUNK));
}

struct Args {
  const __nv_bfloat16* q_nope;  // [T, 16, 512]
  const __nv_bfloat16* q_pe;    // [T, 16, 64]
  const __nv_bfloat16* ckv;     // [num_rows, 512]
  const __nv_bfloat16* kpe;     // [num_rows, 64]
  const int* indices;           // [T, 2048]
  __nv_bfloat16* output;        // [T, 16, 512]
  float* lse;                   // [T, 16]
  float scale;                  // sm_scale log2(e)
  int num_rows;
};

// A piece of what a CTA sends of its sums: those of as many columns as one warp has for one owner,
// in fp16, as a lane of that warp holds them: of heads lane / 4 and eight on, two columns of each
// of four groups of eight.
template <int CLUSTER>
struct Piece {
  static constexpr int OWNED = CKV / CLUSTER;  // columns of a CTA in the merge
  static constexpr int WIDTH = OWNED < WARP_COLUMNS ? OWNED : WARP_COLUMNS;
  static constexpr int A_WARP = WARP_COLUMNS / WIDTH, AN_OWNER = OWNED / WIDTH;
  __half2 sums[2][WIDTH / 32][32][4];  // [eight heads][four groups][lane][group]
  // Of the first four groups.
  static __device__ __forceinline__ int place(int head, int column) {
    const int lane = head % 8 * 4 + column % 8 / 2;
    return ((head / 8 * (WIDTH / 32) * 32 + lane) * 4 + column / 8) * sizeof(__half2);
  }
};

// Sums travel in fp16, which has three bits more than bf16 and range enough for what lies below a
// known bound. Of the values that a CTA has weighed the largest exponent e, biased by 127, is known
// before their weights are. Weights of at most 2^shift add up to less than 2^15 where
// shift = 15 + 126 - e - log2(rows). No more than 100: sums of weights have to fit fp32.

template <int CLUSTER>
struct SharedMemory {
  static constexpr bool SCALED = CLUSTER > 1;
  static constexpr float SHIFT = 15 + 126 - log2_of(SLOTS / CLUSTER);
  static constexpr float FIRST_SHIFT = 100;
  alignas(128) uint8_t query[HEADS * ROW];
  alignas(128) uint8_t tiles[STAGES][TILE * ROW];
  alignas(128) Piece<CLUSTER> received[CLUSTER][Piece<CLUSTER>::AN_OWNER];  // [sender][piece]
  alignas(16) float4 halves[STAGES][WARPS][32];     // [tile][for warp][lane]: logits
  alignas(16) uint8_t weights[HEADS * WEIGHT_ROW];  // [head][row] bf16, of all tiles at once
  alignas(16) float tops[HEADS][WARPS];             // of a tile
  alignas(16) float exponents[WARPS];               // of a tile's values
  alignas(16) float4 sums[HEADS][WARPS];            // of a run, by the lanes of a quad
  float anchor[HEADS];                              // of a run
  alignas(16) float factors[HEADS][LARGEST];        // [head][sender]: what its sums count
  alignas(16) float2 peers[HEADS][LARGEST];         // [head][sender]: maximum, sum
  alignas(16) int2 surveyed[HELPERS];               // owners of valid entries, my tiles with some
  alignas(8) uint64_t full[STAGES], free[STAGES];
  uint64_t first_requested, survey_made, stats_landed, sums_landed, factors_found;
  int nothing;  // 0
};

static_assert(sizeof(SharedMemory<1>) <= 227 * 1024, "what sm_90 and sm_100 give a CTA");
static_assert(sizeof(SharedMemory<LARGEST>) == sizeof(SharedMemory<1>), "shares cover all columns");

// Which slots are whose: entries are not ranked, so that their rows are requested as soon as the
// indices are there. Valid ones usually stand in front. In a long row, one with a valid entry in
// block FIRST, CTAs take blocks in turns. In a short one the first FIRST blocks belong to CTA 0, so
// that all is usually its work alone; then the others take blocks in turns until they have as many,
// then all. Both are right for every row. Block j of CTA `rank`:
template <int CLUSTER>
__device__ __forceinline__ int block_of(int rank, int j, bool is_long) {
  if (is_long || j >= FIRST) return CLUSTER * j + rank;
  return rank == 0 ? j : FIRST + (CLUSTER - 1) * j + rank - 1;
}

struct Place {
  int owner, j;
};

template <int CLUSTER>
__device__ __forceinline__ Place place_of(int block, bool is_long) {
  constexpr int OTHERS = CLUSTER > 1 ? CLUSTER - 1 : 1;
  if (is_long || block >= CLUSTER * FIRST) return {block % CLUSTER, block / CLUSTER};
  if (block < FIRST) return {0, block};
  return {1 + (block - FIRST) % OTHERS, (block - FIRST) / OTHERS};
}

// What there is to do for a token.
struct Work {
  uint32_t owners;  // bit r: CTA r has valid entries
  uint32_t tiles;   // bit t: my tile t has
  __device__ bool merges() const { return (owners & ~1u) != 0; }
  __device__ bool is_mine(int rank) const { return owners != 0 && (merges() || rank == 0); }
  __device__ bool sends(int rank) const { return owners >> rank & 1; }
  __device__ int senders() const { return __popc(owners); }
};

// The entries of a tile: those of rows `lane` and `lane + 32`, and which of all 64 are valid.
struct Entries {
  int low, high;
};

}  // namespace
