// Sizes, arguments and scratch of moe.cu, and how the weight stream is cut into units.
//
// Everything of moe.cu is in an unnamed namespace: two builds that are loaded into one process
// would share the statics of a named one.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace {

constexpr int EXPERTS = 256, LOCAL = 32, GROUPS = 8, KEPT_GROUPS = 4, TOP_K = 8;
constexpr int HIDDEN = 7168, WIDTH = 2048, BLOCK = 128;
constexpr int HIDDEN_BLOCKS = HIDDEN / BLOCK, WIDTH_BLOCKS = WIDTH / BLOCK;
constexpr int PIECE = 32, PIECES = WIDTH / PIECE;  // columns of C that share a scale
constexpr uint32_t FULL = 0xffffffff;              // all lanes

static_assert(BLOCK == 4 * PIECE, "a product has 32 columns of k: a piece of C");
static_assert(LOCAL == 32, "a lane an expert");

// What routing leaves for the launches behind it. Kernels that route themselves have Told, and
// stream_kernel row_token of this. T tokens; packed rows, at most 8T, are pairs of a token and a
// local expert, sorted by expert, then by token.
struct Routing {
  float* slot_weight;  // [T, 8]
  int* slot_row;       // [T, 8] packed row, -1: the expert is not local
  int* row_token;      // [8T]
  int* counts;         // [32] packed rows of each local expert
  int* ticket;         // [1] the next unit that nobody has taken
  int* done;           // [MOST_TILES] finished parts of a row tile of C
  uint2* slot_local;   // [T] local experts, as in Told
  int* block_counts;   // [T / 32, 32] packed rows of each expert in 32 tokens
};

constexpr int TICKET_BITS = 20, DONE_BITS = 8;  // of counts in words with a nonce

// What the CTAs of a kernel that routes tell each other and combine_kernel: tagged_words.cuh. No
// launch comes before to clear any of it; combine_kernel clears it at the end, since a captured
// call comes again with the same nonce. Memory that was never used so passes, by chance, for what
// this call has told with a probability of 2^-64 a token, 2^-56 a row tile, 2^-44 for the ticket:
// 2^-44 a call, of the first calls in such memory.
struct Told {
  uint64_t nonce;
  uint4* locals;     // [T] local experts, .x and .z: a byte a slot, or NOT_LOCAL; or LONE
  uint64_t* ticket;  // [1] the next unit that nobody has taken
  uint64_t* done;    // [MOST_TILES] finished parts of a row tile of C
  uint4* slots;      // [T, 8] packed row, -1: the expert is not local; weight
};

// A third of the tokens with local experts have one alone. In front of tiles such a lone one is
// told by its weight, and LONE, expert and token: whoever multiplies the token's row then writes
// its output.
constexpr uint32_t NOT_LOCAL = 0xff;  // a byte
constexpr uint32_t LONE = 0xc0;       // for the highest byte: no local expert, nor NOT_LOCAL

__device__ __forceinline__ bool is_lone(uint2 told) { return told.y >> 24 == LONE; }

// A byte a slot; a lone expert is in slot 4.
__device__ __forceinline__ uint2 read_locals(uint2 told) {
  return is_lone(told) ? uint2{FULL, 0xffffff00 | (told.y >> 16 & 0xff)} : told;
}

// Of a token without local experts, or of no token.
__device__ __forceinline__ uint2 no_locals() { return {FULL, FULL}; }

// The local expert of a slot, or NOT_LOCAL.
__device__ __forceinline__ uint32_t expert_in(uint2 locals, int slot) {
  return (slot < 4 ? locals.x : locals.y) >> slot % 4 * 8 & 0xff;
}

struct Args {
  CUtensorMap w1, w2;
  Routing routing;
  Told told;
  const uint8_t* x;             // [T, 7168] e4m3
  const float* x_scale;         // [56, T]
  const float* w1_scale;        // [32, 32, 56]
  const float* w2_scale;        // [32, 56, 16]
  uint8_t* c;                   // [2, capacity, 2048] e4m3: codes, then what they round off
  float* c_scale;               // [capacity, 64]
  float* x_tile_scale;          // [row tiles, 56, 128], in tiles: tile_scales.cuh
  float* c_tile_scale;          // [row tiles, 16, rows of a tile]
  __nv_bfloat16* expert_out;    // [capacity, 7168] packed rows, not weighted; tiles: no lone ones
  __nv_bfloat16* output;        // [T, 7168]
  int num_tokens, capacity;
};

constexpr int MOST_TILES = 2048;  // row tiles of a call: 32 + 8T / rows of a tile
// Most experts hit for which weights are requested evict-first. Lines that others left to be
// written then stay in the L2: a stream of 88 MB takes 3.5 us less, of 176 MB 1.5 less, of 308 MB
// 1.6 more.
constexpr int MOST_READ_ONCE = 5;
constexpr int MOST_ROUTED = 3072;  // tokens of routing_tile_kernel
// Tokens to which tiles have two planes of C: up to 48 packed rows an expert are expected, most in
// one row tile of 64, and the tensor cores have the time.
constexpr int MOST_IN_PLANES = 1536;
constexpr int ROUTED_ROWS = 32;      // tokens of a CTA of route_kernel, a warp each

struct Tuning {
  static constexpr int WEIGHT_STAGES = 10;  // 160 KiB
  static constexpr int ROW_STAGES = 6;      // 48 KiB
  static constexpr int STAGES_AHEAD = 4;    // of a unit's weights, requested before its C is there
};
constexpr int WEIGHT_STAGES = Tuning::WEIGHT_STAGES, ROW_STAGES = Tuning::ROW_STAGES;

// A unit is 64 rows of one expert's weights times all of its packed rows, all of k. An expert has
// at most a row a token. Its threads: two warpgroups that multiply, a stage each in turns, a warp
// that requests weights, three that request packed rows.
constexpr int UNIT_WEIGHTS = 64, UNIT_ROWS = 16;
constexpr int MOST_STREAMED = UNIT_ROWS;     // tokens of stream_kernel
constexpr int COLUMNS = UNIT_ROWS / 2;       // of a product: half of a unit's rows, or all
constexpr int HALVES = UNIT_ROWS / COLUMNS;
constexpr int STAGE_BLOCKS = 2;              // of k: 16 KiB of weights
constexpr int BLOCK_PIECES = BLOCK / PIECE;  // scales of C in a block of k
constexpr int FIRST_UNITS = PIECES;          // of an expert: each has 32 columns of C
constexpr int SECOND_UNITS = HIDDEN / UNIT_WEIGHTS;
constexpr int FIRST_STAGES = HIDDEN_BLOCKS / STAGE_BLOCKS;
constexpr int SECOND_STAGES = WIDTH_BLOCKS / STAGE_BLOCKS;
static_assert(Tuning::STAGES_AHEAD < SECOND_STAGES, "weights wait for C");

constexpr int MULTIPLIERS = 2;  // warpgroups: one gives its sums to the other
constexpr int GROUP_THREADS = 128, MULTIPLYING = MULTIPLIERS * GROUP_THREADS;
static_assert(WEIGHT_STAGES % MULTIPLIERS == 0 && ROW_STAGES % MULTIPLIERS == 0 &&
                  FIRST_STAGES % MULTIPLIERS == 0 && SECOND_STAGES % MULTIPLIERS == 0,
              "a place in a ring is one warpgroup's for good: parity tells it which turn it is");
constexpr int ROW_FEEDERS = 96;  // threads that request packed rows
constexpr int THREADS = MULTIPLYING + 32 + ROW_FEEDERS;
constexpr int WORKERS = THREADS / 32 - 1;  // warps that route: all but the one of the weights
constexpr int MOST_FEW = WORKERS;          // tokens that each CTA routes itself
constexpr int READERS = (MULTIPLYING + ROW_FEEDERS) / 32;  // warps that read of units
constexpr int UNIT_STAGES = 4;
constexpr int OUT_ROW = 2 * 64 + 16;  // bytes; rows of eight lanes start in different banks

enum Kind { NONE, FIRST, SECOND };  // which product, or that there is no work left

struct alignas(16) Unit {
  int kind;
  int expert, part;     // part: which 64 rows of the weights
  int first_row, rows;  // packed
  int tile;             // row tile of C: counted over the experts with rows
  bool is_read_once;
};

struct SharedMemory {
  alignas(1024) uint8_t weights[WEIGHT_STAGES][STAGE_BLOCKS][UNIT_WEIGHTS * BLOCK];
  // Of x, 16 rows; of C, for each half 8 of codes, then of what they round off.
  alignas(1024) uint8_t rows[ROW_STAGES][STAGE_BLOCKS][2 * UNIT_ROWS * BLOCK];
  alignas(16) uint8_t out[COLUMNS * OUT_ROW];
  alignas(16) float row_scales[ROW_STAGES][STAGE_BLOCKS][UNIT_ROWS * 4];
  alignas(16) float weight_scales[2][2 * HIDDEN_BLOCKS];  // of this unit and the next
  float peaks[4][COLUMNS];
  float given[2][HALVES][COLUMNS / 2][GROUP_THREADS];     // sums: of this unit and the next
  alignas(16) Unit units[UNIT_STAGES];
  alignas(8) uint2 few_locals[MOST_FEW];
  int expert_rows[LOCAL];                                 // packed rows
  alignas(8) uint64_t weights_full[WEIGHT_STAGES], weights_free[WEIGHT_STAGES];
  uint64_t rows_full[ROW_STAGES], rows_free[ROW_STAGES];
  uint64_t unit_full[UNIT_STAGES], unit_free[UNIT_STAGES];
  uint64_t sums_given[2];
  uint64_t rows_counted;  // expert_rows are there
};

// Where a ring of barriers stands.
template <int STAGES>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

// Sum over the lanes up to this one.
__device__ __forceinline__ int scan_lanes(int value) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int before = __shfl_up_sync(FULL, value, distance);
    if (lane >= distance) value += before;
  }
  return value;
}

// The unit of a ticket, found by a whole warp whose lanes hold the rows of an expert each and their
// sums. All units of the first product come before those of the second: whoever waits for C waits
// for CTAs that run.
__device__ __forceinline__ Unit find_unit(int ticket, int rows, int rows_through) {
  const uint32_t hit = __ballot_sync(FULL, rows > 0);
  const int first_units = __popc(hit) * FIRST_UNITS;
  const bool is_first = ticket < first_units;
  const int parts = is_first ? FIRST_UNITS : SECOND_UNITS;
  const int index = is_first ? ticket : ticket - first_units;
  const int hit_through = __popc(hit & ((2u << threadIdx.x % 32) - 1));
  const int expert = __popc(__ballot_sync(FULL, hit_through * parts <= index));
  Unit unit = {};
  if (expert == LOCAL) return unit;
  unit.kind = is_first ? FIRST : SECOND;
  unit.expert = expert, unit.tile = __popc(hit & ((1u << expert) - 1));
  unit.part = index - unit.tile * parts;
  unit.rows = __shfl_sync(FULL, rows, expert);
  unit.first_row = __shfl_sync(FULL, rows_through, expert) - unit.rows;
  // A stage takes the 256 bytes of a weight row that the L2 reads at a time.
  unit.is_read_once = __popc(hit) <= MOST_READ_ONCE;
  return unit;
}

}  // namespace
