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
constexpr int SLOTS_A_THREAD = SLOTS / COMPUTING;
constexpr int CKV_BYTES = 2 * CKV, KPE_BYTES = 2 * KPE;
// 16 bytes more than a row: eight rows of a matrix load start in eight different groups of banks.
constexpr int ROW = CKV_BYTES + KPE_BYTES + 16;
constexpr int PART_BYTES = (CKV_BYTES + KPE_BYTES) / WARPS;  // of a row, in q K^T: 4 1/2 steps
constexpr int PART_STEPS = PART_BYTES / 32;
constexpr int WARP_COLUMNS = CKV / WARPS;  // in p ckv

// ALONE: docs/kernels/dsa_attention.md, "Chain of dependent steps, measured": 64 entries in one CTA
// take 8550 cycles, 100 in a cluster 8580. The others follow from sizes.
struct Tuning {
  static constexpr int TILE = 64;     // rows of a stage, 73 KiB
  static constexpr int STAGES = 2;    // and one takes what the cluster sends in the end
  static constexpr int ALONE = 64;    // entries that one CTA takes rather than merge
  static constexpr int MIN_RUN = 16;  // rows of an mma: shorter runs only add senders
};
constexpr int TILE = Tuning::TILE, STAGES = Tuning::STAGES;
constexpr int LARGEST = 16;  // CTAs of a cluster, more than 8 of which are not portable
constexpr int WEIGHT_ROW = 2 * TILE + 16;
constexpr int LOGIT_ROW = WARPS * TILE + 8;  // four heads of a fragment in four groups of banks

static_assert(HEADS == 16, "the heads are the 16 rows of an mma");
static_assert(HEADS == 2 * WARPS, "the softmax gives a warp two heads");
static_assert(TILE == 64, "the softmax gives a lane two rows of a tile");
static_assert(SLOTS_A_THREAD == 8, "load_slots() reads two int4");
static_assert(PART_BYTES == 32 * PART_STEPS + 16, "a part of q K^T ends with half a step");
static_assert(WARP_COLUMNS == 64, "accumulate() holds eight groups of eight columns a warp");
static_assert(HELPING == 8 * HEADS, "find_factors() gives a head a quarter-warp");
static_assert(COMPUTING == 16 * HEADS, "merge() gives a head half a warp");
static_assert(Tuning::MIN_RUN <= TILE && LARGEST <= TILE,
              "where a run is more than a tile, all runs have as many tiles or one less");

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

template <int CLUSTER>
struct SharedMemory {
  alignas(16) uint8_t query[HEADS * ROW];  // and, in the end, the output on its way out
  alignas(16) uint8_t tiles[STAGES][TILE * ROW];
  alignas(16) float logits[HEADS][LOGIT_ROW];       // [head][warp and its part][row]
  alignas(16) uint8_t weights[HEADS * WEIGHT_ROW];  // [head][row] bf16
  alignas(16) float factors[HEADS][LARGEST];        // [head][sender]: what its sums count
  float2 peers[HEADS][LARGEST];                     // [head][sender]: maximum, sum
  float2 stats[HEADS];                              // maximum, sum
  float fade[HEADS];
  alignas(16) int warp_counts[WARPS];
  int rows[SLOTS / CLUSTER > Tuning::ALONE ? SLOTS / CLUSTER : Tuning::ALONE];
  alignas(8) uint64_t full[STAGES], free[STAGES];
  uint64_t stats_landed, sums_landed, factors_found;
};

// What a CTA sends of its sums to the owner of WIDTH columns: [head][column], the groups of eight
// columns permuted by head so that fragments are stored without bank conflicts.
template <int CLUSTER>
struct Share {
  static constexpr int WIDTH = CKV / CLUSTER;
  float sums[HEADS * WIDTH];
  static __device__ __forceinline__ int place(int head, int column) {
    return head * WIDTH + (((column / 8) ^ (head % 4)) * 8) + column % 8;
  }
};

static_assert(sizeof(SharedMemory<1>) <= 227 * 1024, "what sm_90 and sm_100 give a CTA");
static_assert(sizeof(SharedMemory<LARGEST>) <= sizeof(SharedMemory<1>), "rows of a run shrink");
static_assert(LARGEST * sizeof(Share<LARGEST>) == HEADS * CKV * sizeof(float) &&
                  HEADS * CKV * sizeof(float) <= TILE * ROW,
              "the shares of a cluster of any size lie in one tile, sent and received");

// A run: the entries of one CTA.
struct Work {
  int total;  // valid entries of the token
  int run;    // entries a CTA
  int count;  // of mine
  __device__ bool merges() const { return total > run; }
  __device__ int senders() const { return (total + run - 1) / run; }
  __device__ int tiles() const { return (count + TILE - 1) / TILE; }
  __device__ int last_tile() const { return (run + TILE - 1) / TILE - 1; }  // of a full run
};

struct Slots {
  int at[SLOTS_A_THREAD];
};

}  // namespace
