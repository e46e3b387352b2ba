// Sizes, arguments, shared memory and the division of work of attend.cu.
//
// Everything of attend.cu is in an unnamed namespace: two builds that are loaded into one process
// would share the statics of a named one.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace {

constexpr int HEADS = 16, CKV = 512, KPE = 64, SLOTS = 2048;
constexpr int WARPS = 8, COMPUTING = 32 * WARPS;  // who computes
constexpr int HELPERS = 4, HELPING = 32 * HELPERS, THREADS = COMPUTING + HELPING;
constexpr int CKV_BYTES = 2 * CKV, KPE_BYTES = 2 * KPE;
// 16 bytes more than a row: eight rows of a matrix load start in eight different groups of banks.
constexpr int ROW = CKV_BYTES + KPE_BYTES + 16;
constexpr int BLOCK = 16, BLOCKS = SLOTS / BLOCK;  // consecutive slots, the rows of an mma

struct Tuning {
  static constexpr int TILE = 64;   // rows of a stage, 73 KiB
  static constexpr int STAGES = 2;  // with 16 CTAs a token all of its rows lie there at once
  static constexpr int FIRST = 4;   // blocks that one CTA takes rather than share and merge
};
constexpr int TILE = Tuning::TILE, STAGES = Tuning::STAGES, FIRST = Tuning::FIRST;
constexpr int TILE_BLOCKS = TILE / BLOCK;
constexpr int LARGEST = 16;  // CTAs of a cluster, more than 8 of which are not portable
// In q K^T a warp takes the rows of a block and half of the columns.
constexpr int HALVES = 2, PART_BYTES = (CKV_BYTES + KPE_BYTES) / HALVES;
constexpr int PART_STEPS = PART_BYTES / 32;
constexpr int WARP_COLUMNS = CKV / WARPS;  // in p ckv
constexpr int WEIGHT_ROW = 2 * TILE + 16;
constexpr int OUTPUT_ROW = 2 * WARP_COLUMNS + 16;

static_assert(HEADS == 16, "the heads are the 16 rows of an mma");
static_assert(TILE == 64, "two entries a lane, and their validity a word of 64 bits");
static_assert(WARPS == HALVES * TILE_BLOCKS, "a warp for each half of each block of a tile");
static_assert(PART_BYTES == 32 * PART_STEPS && PART_STEPS % 3 == 0, "steps are loaded by threes");
static_assert(WARP_COLUMNS == 64, "accumulate() holds eight groups of eight columns a warp");
static_assert(HELPING == BLOCKS, "survey() gives a block to a helping thread");
static_assert(HELPING == 8 * HEADS, "find_factors() gives a head a quarter-warp");
static_assert(COMPUTING == 16 * HEADS, "merge() gives a head half a warp");
static_assert(FIRST * LARGEST <= BLOCKS && SLOTS / LARGEST == STAGES * TILE, "see block_of()");

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

// A piece of what a CTA sends of its sums: [head][column] of as many columns as one warp has for
// one owner, in bf16, the groups of eight columns permuted by head so that fragments are stored
// without bank conflicts.
template <int CLUSTER>
struct Piece {
  static constexpr int OWNED = CKV / CLUSTER;  // columns of a CTA in the merge
  static constexpr int WIDTH = OWNED < WARP_COLUMNS ? OWNED : WARP_COLUMNS;
  static constexpr int A_WARP = WARP_COLUMNS / WIDTH, AN_OWNER = OWNED / WIDTH;
  __nv_bfloat16 sums[HEADS * WIDTH];
  static __device__ __forceinline__ int place(int head, int column) {
    const int turned = WIDTH == 32 ? head / 2 % 4 : head % 8;
    return head * WIDTH + ((column / 8 ^ turned) * 8) + column % 8;
  }
};

template <int CLUSTER>
struct SharedMemory {
  // The queries; then each warp's sums on their way out, to memory or to other CTAs.
  alignas(128) uint8_t query[HEADS * ROW];
  alignas(128) uint8_t tiles[STAGES][TILE * ROW];
  alignas(128) Piece<CLUSTER> received[CLUSTER][Piece<CLUSTER>::AN_OWNER];  // [sender][piece]
  alignas(16) float4 halves[WARPS][32];             // [for warp][lane]: logits
  alignas(16) uint8_t weights[HEADS * WEIGHT_ROW];  // [head][row] bf16
  alignas(16) float tops[HEADS][WARPS];             // of a tile
  alignas(16) float sums[HEADS][WARPS];             // of a run
  float top[HEADS];                                 // of a run
  alignas(16) float factors[HEADS][LARGEST];        // [head][sender]: what its sums count
  alignas(16) float2 peers[HEADS][LARGEST];         // [head][sender]: maximum, sum
  alignas(16) int2 surveyed[HELPERS];               // owners of valid entries, my tiles with some
  alignas(8) uint64_t full[STAGES], free[STAGES];
  uint64_t survey_made, sums_stored, stats_landed, sums_landed, factors_found;
};

static_assert(sizeof(SharedMemory<1>) <= 227 * 1024, "what sm_90 and sm_100 give a CTA");
static_assert(sizeof(SharedMemory<LARGEST>) == sizeof(SharedMemory<1>), "shares cover all columns");
static_assert(sizeof(Piece<LARGEST>) * LARGEST <= HEADS * ROW &&
                  WARPS * HEADS * OUTPUT_ROW <= HEADS * ROW,
              "what goes out lies where the queries were");

// Which slots are whose: entries are not ranked, so that their rows are requested as soon as the
// indices are there. Valid ones usually stand in front. The first FIRST blocks belong to CTA 0, so
// that a short row is the work of one CTA; then the other CTAs take blocks in turns until they have
// as many, then all. Block j of CTA `rank`:
template <int CLUSTER>
__device__ __forceinline__ int block_of(int rank, int j) {
  if (j >= FIRST) return CLUSTER * j + rank;
  return rank == 0 ? j : FIRST + (CLUSTER - 1) * j + rank - 1;
}

struct Place {
  int owner, j;
};

template <int CLUSTER>
__device__ __forceinline__ Place place_of(int block) {
  constexpr int OTHERS = CLUSTER > 1 ? CLUSTER - 1 : 1;
  if (block < FIRST) return {0, block};
  if (block >= CLUSTER * FIRST) return {block % CLUSTER, block / CLUSTER};
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
