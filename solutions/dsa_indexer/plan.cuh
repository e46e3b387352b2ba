// Sizes, arguments and shared memory of index.cu, and keys.
//
// Everything of index.cu is in an unnamed namespace: two builds that are loaded into one process
// would share the statics of a named one.
#pragma once

#include <cstdint>

namespace {

constexpr int HEADS = 64, DIM = 128, PAGE = 64, TOPK = 2048;
constexpr int SCALES_AT = PAGE * DIM, PAGE_BYTES = SCALES_AT + 4 * PAGE;
constexpr int THREADS = 512, WARPS = THREADS / 32, GROUPS = THREADS / 128;  // warpgroups
constexpr int ROWS = 32;  // sequences whose lengths a warp looks at together
constexpr uint32_t FULL = ~0u;

// CLUSTER: docs/kernels/dsa_indexer.md, "Tried and lost": 8 CTAs take 6.27 us where 16 take 5.73.
// GROUP_PAGES: 128 pages a cluster, official sequences have up to 91. CANDIDATES and SPREAD: one
// round of probes sufficed in every row that was emulated (there, "The native route"). Of two
// launches: SPREAD_CLUSTER and its batch there, "One launch or two".
struct Tuning {
  static constexpr int CLUSTER = 16;      // CTAs of a long sequence
  static constexpr int GROUP_PAGES = 2;   // pages of a warpgroup, all requested at once
  static constexpr int CANDIDATES = 128;  // keys that are ranked by comparing all pairs
  static constexpr float SPREAD = 48.0f;  // ranks between two probes
  static constexpr int SPREAD_CLUSTER = 8;       // CTAs that select from a sequence in memory
  static constexpr int SPREAD_BATCH = 8;         // keys that a thread requests at once
  static constexpr float SAMPLED_SPREAD = 0.3f;  // deviations: five of the sampled guess's own
};
constexpr int CLUSTER = Tuning::CLUSTER, GROUP_PAGES = Tuning::GROUP_PAGES;
constexpr int CANDIDATES = Tuning::CANDIDATES, RANKERS = THREADS / CANDIDATES;
constexpr int MAX_PAGES = CLUSTER * GROUPS * GROUP_PAGES, MAX_TOKENS = MAX_PAGES * PAGE;
constexpr int PROBES = 3, FIELD = 10;  // counts of a warp, 512 at most, in 10 bits each
constexpr int MOST_KEYS = 16;  // of a thread

static_assert(HEADS == 64 && PAGE == 64, "a product of a warpgroup is 64 tokens by 64 heads");
static_assert(DIM == 128, "a row is two halves of 64 codes, 16 bytes of each a lane");
static_assert(4 * THREADS == TOPK, "a thread writes four ids");
static_assert(THREADS == 8 * HEADS, "place_query() gives a thread 16 of a head's 128 codes");
static_assert(WARPS == 16, "guess() reads the moments of two warps a quad");
static_assert(MAX_TOKENS <= MOST_KEYS * THREADS, "all keys are in the registers of one CTA");
static_assert(MAX_PAGES <= THREADS, "a thread reads an entry of the block table");
static_assert(32 * MOST_KEYS < 1 << FIELD && PROBES * FIELD <= 32, "a word holds a warp's counts");
static_assert(THREADS * MOST_KEYS < 1 << 16, "a word holds a CTA's count and the one before");
static_assert(CANDIDATES % 4 == 0 && RANKERS * CANDIDATES == THREADS && RANKERS <= 32,
              "the threads of a candidate are of one warp, and read four keys at a time");

// Keys: scores as integers of the same order.
constexpr uint32_t NO_TOKEN = 0, NAN_KEY = ~0u - 1, ABOVE_ALL = ~0u;

struct Args {
  const uint8_t* query;  // [B, 64, 128] e4m3
  const uint8_t* cache;  // [num_pages, 8448]: 64 rows of 128 e4m3, then 64 fp32 scales
  const float* weights;  // [B, 64]
  const int* lengths;    // [B]
  const int* table;      // [B, columns]
  int* ids;              // [B, 2048]
  uint32_t* keys;        // [B, columns * 64], scratch of two launches
  int batch, columns, num_pages, long_clusters;

  // A row's tokens: a length is data, and may be anything.
  __device__ int tokens(int row) const {
    return max(0, min(__ldg(lengths + row), columns * PAGE));
  }
};

struct SharedMemory {
  alignas(1024) uint8_t query[2][HEADS * DIM];  // halves of the dimensions, fp16, permuted
  alignas(16) float weights[HEADS];
  // What follows is used in CTA 0 alone.
  uint32_t keys[MAX_TOKENS];                    // by position
  alignas(16) uint32_t ids[TOPK + CANDIDATES];  // chosen, then candidates
  alignas(16) uint32_t candidates[CANDIDATES];  // keys
  uint32_t table[MAX_PAGES];
  float moments[WARPS][4];
  uint32_t counts[2][WARPS];
  alignas(8) uint64_t landed;  // all scores of a sequence
};

static_assert(sizeof(SharedMemory) <= 227 * 1024, "what sm_90 gives a CTA");

__device__ __forceinline__ uint32_t key_of(float score) {
  const int bits = __float_as_int(score);
  return score != score ? NAN_KEY : bits ^ (bits >> 31 | 1 << 31);
}

__device__ __forceinline__ float score_of(uint32_t key) {
  return __uint_as_float(key ^ (~(int(key) >> 31) | 1 << 31));
}

}  // namespace
