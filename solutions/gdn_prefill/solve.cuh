// What a chunk needs that does not depend on the state: per q/k head and its two v heads.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "async_copy.cuh"
#include "barrier_vote.cuh"
#include "barrier_wait.cuh"
#include "fast_math.cuh"
#include "named_barrier.cuh"
#include "order.cuh"
#include "plan.cuh"
#include "tensor_core.cuh"
#include "tensor_core_f16.cuh"
#include "warp_arrival.cuh"
#include "warpgroup.cuh"
#include "warpgroup_rows.cuh"

namespace {

// A team of a CTA takes a task after the other; a warpgroup of it a v head. In a warpgroup behind
// all teams each has two warps that find gates and tasks, request, store and report: feed.cuh.
constexpr int TEAM = SERVED * 128, SOLVING = Tuning::SOLVE_TEAMS * TEAM;
constexpr int SOLVE_THREADS = SOLVING + 128;
static_assert(Tuning::SOLVE_TEAMS * SERVED * 32 == 128, "a warp a team and v head");
static_assert(SOLVING * Tuning::SOLVE_REGISTERS + 128 * Tuning::FEED_REGISTERS <=
                  SOLVE_THREADS * 96, "what a CTA of so many threads begins with");

__device__ __forceinline__ int team_thread() { return threadIdx.x % TEAM; }

// compute-sanitizer's racecheck now and then loses a barrier of some threads by number, and does
// not know that products end behind the loads of their operands. Built for it with TEAMS_MEET
// defined, a team meets at an mbarrier instead, also where a warp's own order and products are
// enough.
#ifdef TEAMS_MEET
constexpr bool MEETS_BY_NUMBER = false;
#else
constexpr bool MEETS_BY_NUMBER = true;
#endif

constexpr int CORNER_ROW = BLOCK + 4;  // banks
// Entries of the inverse without decay from which on it is found anew with the decays in it: far
// from what overflows, and from what keys of norm 1 give.
constexpr float MOST_UNFADED = 256.0f;

// Each ends a phase a task. Arrivals of the feeding warps: rows (each lane with its copies, and one
// for the task), gates (both warps), below, apart, free; of the team's: operands, reads, done.
struct TeamBarriers {
  uint64_t rows;      // task, keys and queries as they come
  uint64_t gates;     // gates
  uint64_t below;     // `below` has been stored: in the next task
  uint64_t apart;     // keys and queries as operands have been stored: for `reads`
  uint64_t free;      // reads have been stored
  uint64_t operands;  // keys and queries are operands; the raw ones have been read
  uint64_t reads;     // reads are there
  uint64_t done;      // writes are there; all else has been read
  uint64_t meeting;   // the team's where it does not meet by number: an even number a task
};

struct SolveMemory {
  alignas(1024) uint8_t keys[2][TILE_BYTES];  // [token][key] fp16
  union {
    uint8_t queries[2][TILE_BYTES];
    // Scores with decays, of each v head. In the end Solved::reads.
    uint8_t reads[SERVED][TILE_BYTES];
  };
  // K K^T [i][j] below its 16 x 16 corners in two terms, the first; with decays, of each v head. Of
  // each the transposed inverses of the corners, in the second tile: inverse_place(). Without
  // decays scores lie in scores(). Nothing here waits for a store of this task. In the end
  // Solved::writes.
  uint8_t below[SERVED][2][TILE_BYTES];
  // Of K K^T below the diagonal, transposed: the first; with decays, of each v head.
  alignas(16) float corners[SERVED][BLOCKS][BLOCK * CORNER_ROW];
  alignas(16) float2 elapsed[SERVED][CHUNK];  // log2 of the decay up to the token, two terms
  alignas(16) float remaining[SERVED][CHUNK];  // decay from the token to the end of the chunk
  alignas(16) float within[SERVED][CHUNK];     // and to the end of its 16 tokens
  alignas(16) float since[SERVED][CHUNK];      // from the end of the 16 before up to the token
  alignas(16) float beta[SERVED][CHUNK];
  alignas(16) int4 raw_keys[CHUNK * DIM / 8], raw_queries[CHUNK * DIM / 8];  // bf16, as they come
  Task task;  // the one whose rows are here
  TeamBarriers barriers;
  // scale Q K^T [i][j] up to the diagonal, zeros above: until there are decays in what is below.
  __device__ uint8_t (&scores())[TILE_BYTES] { return below[1][0]; }
};

struct SolveCta {
  SolveMemory teams[Tuning::SOLVE_TEAMS];
  Order order;
};
static_assert(sizeof(SolveCta) <= 227 * 1024, "what sm_90 gives a CTA");
static_assert(SOLVE_THREADS >= ORDERED, "a thread a sequence");

// meeting: of the team's so far, in turns 0 and 1.
__device__ __forceinline__ void sync_team(SolveMemory& shared, int meeting) {
  if (MEETS_BY_NUMBER) return sync_threads_of(1 + threadIdx.x / TEAM, TEAM);
  arrive(&shared.barriers.meeting);
  wait_cta_phase(&shared.barriers.meeting, meeting);
}

// Where a team meets for racecheck alone.
__device__ __forceinline__ void show_order(SolveMemory& shared, int meeting) {
  if (!MEETS_BY_NUMBER) sync_team(shared, meeting);
}

// A meeting: whether `says` is true in any thread of the team.
__device__ __forceinline__ bool ask_team(SolveMemory& shared, int meeting, bool says) {
  const bool any = any_of_threads(1 + threadIdx.x / TEAM, TEAM, says);
  show_order(shared, meeting);
  return any;
}

// Eight bf16 as fp16: exact from 2^-14 to 2^16.
__device__ __forceinline__ uint4 convert_row(const int4& x) {
  const float2 a = widen_bf16(x.x), b = widen_bf16(x.y), c = widen_bf16(x.z), d = widen_bf16(x.w);
  return {pack_f16(a.x, a.y), pack_f16(b.x, b.y), pack_f16(c.x, c.y), pack_f16(d.x, d.y)};
}

// Of a lane's four pairs of keys two go to a chunk of the row and two to the next one, so that a
// lane of the scan holds four keys in a row of its fragments: Operands.
__device__ __forceinline__ void store_pairs(uint8_t (&tiles)[2][TILE_BYTES], int row, int chunk,
                                            const uint4& pairs) {
  uint8_t* to = tiles[chunk / 8] + chunk % 2 * 8;
  const int even = chunk % 8 & ~1;
  *reinterpret_cast<uint2*>(to + swizzled(row, even)) = {pairs.x, pairs.z};
  *reinterpret_cast<uint2*>(to + swizzled(row, even + 1)) = {pairs.y, pairs.w};
}

// Once they have come, as operands. Lanes next to each other have the first half of a row and the
// second half of its neighbour, whose chunks are permuted otherwise: none meets a bank twice.
__device__ __forceinline__ void convert_rows(SolveMemory& shared) {
  const int chunk = threadIdx.x % 16, first = team_thread() / 16 ^ chunk / 8;
#pragma unroll
  for (int i = 0; i < CHUNK; i += TEAM / 16) {
    const int row = first + i, at = row * (DIM / 8) + chunk;
    store_pairs(shared.keys, row, chunk, convert_row(shared.raw_keys[at]));
    store_pairs(shared.queries, row, chunk, convert_row(shared.raw_queries[at]));
  }
}

// sums = rows keys^T. A warp's 16 rows are those of its block: any order of blocks is right.
__device__ __forceinline__ void multiply_keys(const uint8_t (&rows)[2][TILE_BYTES],
                                              const uint8_t (&keys)[2][TILE_BYTES], int block,
                                              float (&sums)[32]) {
  const int row = BLOCK * block + threadIdx.x % 16, half = threadIdx.x % 32 / 16;
  uint32_t a[8][4];
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    load_tiles(a[step], shared_address(rows[step / 4] + swizzled(row, step % 4 * 2 + half)));
  }
  begin_products();
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    multiply_f16(sums, a[step], at_step(describe_tile(keys[step / 4]), step % 4), step > 0);
  }
  commit_products();
  wait_products<0>(sums);
}

// x = high + low, both fp16.
__device__ __forceinline__ void split(float x, float y, uint32_t& high, uint32_t& low) {
  const __half2 pair = __floats2half2_rn(x, y);
  const float2 back = __half22float2(pair);
  high = bits_of(pair);
  low = pack_f16(x - back.x, y - back.y);
}

// A block of 16 x 16 as an operand, in two terms.
struct Terms {
  uint32_t high[4], low[4];
};

__device__ __forceinline__ Terms split_sums(const float (&x)[8]) {
  Terms terms;
#pragma unroll
  for (int i = 0; i < 4; ++i) split(x[2 * i], x[2 * i + 1], terms.high[i], terms.low[i]);
  return terms;
}

// What a thread holds of a block of 16 x 16 of sums: entries 0, 1 and 4, 5 are of its first row, 2,
// 3 and 6, 7 of the row eight on; columns 2 pair, 2 pair + 1 and those eight on.
struct BlockPlace {
  int row, pair;
  __device__ explicit BlockPlace(int block)
      : row(BLOCK * block + threadIdx.x % 32 / 4), pair(threadIdx.x % 4) {}
};

// Blocks (block, ...) of a tile, from pairs of entries.
struct BlockRow {
  uint32_t first;  // of this lane's rows of 8 x 8 tiles, in the first block
  __device__ BlockRow(const uint8_t* tile, int block)
      : first(shared_address(tile) +
              swizzled(BLOCK * block + threadIdx.x % 16, threadIdx.x % 32 / 16)) {}
  __device__ void store(int column, const uint32_t (&pairs)[4]) const {
    store_tiles(first ^ column << 5, pairs);  // tiles lie at multiples of 1024
  }
  __device__ void store(int column, const float (&x)[8]) const {
    const uint32_t pairs[4] = {pack_f16(x[0], x[1]), pack_f16(x[2], x[3]), pack_f16(x[4], x[5]),
                               pack_f16(x[6], x[7])};
    store(column, pairs);
  }
};

// A corner's entries above the diagonal are 0, those on it too unless `keeps`.
__device__ __forceinline__ void clear_above(bool keeps, float (&x)[8]) {
  const int row = threadIdx.x % 32 / 4 + keeps, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 8; i += 6) {
    x[i] = column < row ? x[i] : 0.0f;
    x[i + 1] = column + 1 < row ? x[i + 1] : 0.0f;
  }
  x[4] = x[5] = 0.0f;
}

// Of K K^T, for both v heads: what is below the corners in two terms, and the corner.
__device__ __forceinline__ void store_key_products(SolveMemory& shared, int block,
                                                   const float (&sums)[32]) {
  const BlockRow high(shared.below[0][0], block), low(shared.below[0][1], block);
#pragma unroll
  for (int column = 0; column < BLOCKS; ++column) {
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = sums[8 * column + i];
    if (column < block && column < BLOCKS - 1) {
      const Terms terms = split_sums(x);
      high.store(column, terms.high);
      low.store(column, terms.low);
    } else if (column == block) {
      clear_above(false, x);
      const BlockPlace place(block);
      float* to = shared.corners[0][block] + 2 * place.pair * CORNER_ROW + place.row % BLOCK;
#pragma unroll
      for (int i = 0; i < 8; ++i) to[(i / 4 * 8 + i % 2) * CORNER_ROW + i / 2 % 2 * 8] = x[i];
    }
  }
}

// scale Q K^T, for both v heads: zeros above the diagonal, since products of whole tiles read it.
__device__ __forceinline__ void store_scores(SolveMemory& shared, int block, float scale,
                                             const float (&sums)[32]) {
  const BlockRow to(shared.scores(), block);
#pragma unroll
  for (int column = 0; column < BLOCKS; ++column) {
    float x[8] = {};
    if (column <= block) {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = scale * sums[8 * column + i];
      if (column == block) clear_above(true, x);
    }
    to.store(column, x);
  }
}

// Chunk `half` of a row of a term of the transposed inverse of corner i: the first term on the
// diagonal, the second one above it, in four of the six blocks where nothing else is.
__device__ __forceinline__ uint32_t inverse_place(int term, int i, int row, int half) {
  return term == 0 ? swizzled(BLOCK * i + row, 2 * i + half)
                   : swizzled(BLOCK * (i % 2) + row, 4 + i / 2 * 2 + half);
}

// (I + diag(beta) corner)^-1 diag(beta) of both v heads by elimination, a column a lane:
// transposed, in two terms. By the warp that has stored the corner.
__device__ __forceinline__ void invert_corner(SolveMemory& shared, int block, bool is_faded) {
  const int lane = threadIdx.x % 32, column = lane % BLOCK, head = lane / BLOCK;
  const float* corner = shared.corners[is_faded ? head : 0][block];
  float x[BLOCK], beta[BLOCK];
#pragma unroll
  for (int i = 0; i < BLOCK; i += 4) {
    *reinterpret_cast<float4*>(beta + i) =
        *reinterpret_cast<const float4*>(shared.beta[head] + BLOCK * block + i);
  }
#pragma unroll
  for (int i = 0; i < BLOCK; ++i) x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
  for (int step = 0; step < BLOCK; ++step) {
    x[step] *= beta[step];  // nothing is added to it any more
#pragma unroll
    for (int quad = (step + 1) / 4; quad < BLOCK / 4; ++quad) {
      const float4 a = *reinterpret_cast<const float4*>(corner + step * CORNER_ROW + 4 * quad);
      if (4 * quad > step) x[4 * quad] -= a.x * x[step];
      if (4 * quad + 1 > step) x[4 * quad + 1] -= a.y * x[step];
      if (4 * quad + 2 > step) x[4 * quad + 2] -= a.z * x[step];
      if (4 * quad + 3 > step) x[4 * quad + 3] -= a.w * x[step];
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float* of = x + 8 * half;
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) split(of[2 * i], of[2 * i + 1], high[i], low[i]);
    const auto place = [&](int term) {
      return reinterpret_cast<uint4*>(shared.below[head][1] +
                                      inverse_place(term, block, column, half));
    };
    *place(0) = {high[0], high[1], high[2], high[3]};
    *place(1) = {low[0], low[1], low[2], low[3]};
  }
}

// Three of the four products of two terms, the small ones with sums of their own: the chain is
// shorter.
struct Sums {
  float x[2][2][4];
  __device__ float operator[](int i) const {  // of 8
    return x[0][i / 4][i % 4] + x[1][i / 4][i % 4];
  }
};

// sums [16 x 16] += terms [16 x 16] times right [16 x 16], in tiles of 8 x 8. What needs the low
// terms, which are there last, comes last.
__device__ __forceinline__ void multiply_terms(const Terms& terms, const Terms& right,
                                               Sums& sums) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t* high = right.high + 2 * half;
    const uint32_t* low = right.low + 2 * half;
    multiply_f16(sums.x[1][half], terms.high, low[0], low[1]);
    multiply_f16(sums.x[0][half], terms.high, high[0], high[1]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t* high = right.high + 2 * half;
    multiply_f16(sums.x[1][half], terms.low, high[0], high[1]);
  }
}

// Block (i, m) of K K^T, transposed, as a second operand.
__device__ __forceinline__ Terms load_block(const SolveMemory& shared, int tile, int i, int m) {
  const int lane = threadIdx.x % 32;
  const uint32_t place = swizzled(BLOCK * i + lane % 8 + lane / 16 * 8, 2 * m + lane / 8 % 2);
  Terms terms;
  load_tiles(terms.high, shared_address(shared.below[tile][0] + place));
  load_tiles(terms.low, shared_address(shared.below[tile][1] + place));
  return terms;
}

// The transposed inverse of corner i, as a first operand or as a second one.
template <bool IS_FIRST>
__device__ __forceinline__ Terms load_inverse(const SolveMemory& shared, int head, int i) {
  const int lane = threadIdx.x % 32;
  Terms terms;
#pragma unroll
  for (int term = 0; term < 2; ++term) {
    const uint32_t from = shared_address(shared.below[head][1] +
                                         inverse_place(term, i, lane % 16, lane / 16));
    uint32_t(&to)[4] = term ? terms.low : terms.high;
    if (IS_FIRST) {
      load_tiles(to, from);
    } else {
      load_tiles_transposed(to, from);
    }
  }
  return terms;
}

// rows [16 x 64] = rows [16 block, +16) of Y, (I + diag(beta) L)^-1 diag(beta) transposed, L what
// of K K^T is below the diagonal. With E the same of a corner: Y_i = -(sum of Y_m L_im^T over
// m < i) E_i^T. As soon as a block is there, all sums get their part of it: only that of the next
// block is in the chain.
__device__ __forceinline__ void merge_corners(const SolveMemory& shared, int head, int tile,
                                              int block, Terms (&rows)[BLOCKS]) {
  Sums sums[BLOCKS] = {};
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m) {
    if (m < block) {
      rows[m] = {};
      continue;
    }
    if (m == block) {
      rows[m] = load_inverse<true>(shared, head, m);
    } else {
      const Terms inverse = load_inverse<false>(shared, head, m);
      Sums merged = {};
      float x[8];
#pragma unroll
      for (int part = 0; part < 8; ++part) x[part] = -sums[m][part];
      multiply_terms(split_sums(x), inverse, merged);
#pragma unroll
      for (int part = 0; part < 8; ++part) x[part] = merged[part];
      rows[m] = split_sums(x);
    }
#pragma unroll
    for (int i = m + 1; i < BLOCKS; ++i) {
      multiply_terms(rows[m], load_block(shared, tile, i, m), sums[i]);
    }
  }
}

// sums = rows scores^T: [j][i], what the residual of token j adds to output i.
__device__ __forceinline__ void multiply_scores(const uint8_t* scores,
                                                const Terms (&rows)[BLOCKS], float (&sums)[32]) {
  const uint64_t tile = describe_tile(scores);
  begin_products();
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m) {
    multiply_f16(sums, rows[m].low, at_step(tile, m), m > 0);
    multiply_f16(sums, rows[m].high, at_step(tile, m), true);
  }
  commit_products();
  wait_products<0>(sums);
}

// sums = rows times 64 columns of keys: [j][key], what the residual of token j adds to the state.
__device__ __forceinline__ void multiply_by_keys(const uint8_t* keys, const Terms (&rows)[BLOCKS],
                                                 float (&sums)[32]) {
  const uint64_t tile = describe_rows(keys, 0);
  begin_products();
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m) {
    multiply_rows_f16(sums, rows[m].low, at_rows(tile, m), m > 0);
    multiply_rows_f16(sums, rows[m].high, at_rows(tile, m), true);
  }
  commit_products();
  wait_products<0>(sums);
}

// exp2 of a difference of two-term logarithms; of a positive one 1, for a sum that is 0.
__device__ __forceinline__ float fade_between(float2 later, float2 earlier) {
  return exp2_approx(fminf((later.x - earlier.x) + (later.y - earlier.y), 0.0f));
}

// Rows [16 block, +16) of reads: the sums times the decay from j to the token. In j's own 16 tokens
// that is found as it is; in later ones it is a product of three, to the end of j's 16, over those
// between, and from there on, none of them above 1.
__device__ __forceinline__ void leave_reads(SolveMemory& shared, int head, int block,
                                            const float (&sums)[32]) {
  const BlockPlace place(block);
  const BlockRow to(shared.reads[head], block);
  const float2* elapsed = shared.elapsed[head];
  const float2 begins[2] = {elapsed[place.row], elapsed[place.row + 8]};
  float by[2] = {shared.within[head][place.row], shared.within[head][place.row + 8]};
#pragma unroll
  for (int column = 0; column < BLOCKS; ++column) {
    const int token = BLOCK * column + 2 * place.pair;
    const float* of = sums + 8 * column;
    float x[8] = {};
    if (column == block) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[i] = of[i] * fade_between(elapsed[token + i / 4 * 8 + i % 2], begins[i / 2 % 2]);
      }
    } else if (column > block) {
      const float* since = shared.since[head];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[i] = of[i] * (by[i / 2 % 2] * since[token + i / 4 * 8 + i % 2]);
      }
      const float all = since[BLOCK * column + BLOCK - 1];
      by[0] *= all, by[1] *= all;
    }
    to.store(column, x);
  }
}

// Whether entries are large, or no numbers.
__device__ __forceinline__ bool is_large(const Terms (&rows)[BLOCKS]) {
  __half2 most = __float2half2_rn(0.0f);
#pragma unroll
  for (int at = 0; at < BLOCKS * 4; ++at) {
    const uint32_t& pair = rows[at / 4].high[at % 4];
    most = __hmax2_nan(most, __habs2(*reinterpret_cast<const __half2*>(&pair)));
  }
  return !__hble2(most, __float2half2_rn(MOST_UNFADED));
}

// A block's rows of K K^T and the scores times the decays, for each v head apart.
__device__ __forceinline__ void fade_products(SolveMemory& shared, int block) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int at = 0; at < BLOCK; ++at) {
    const int i = BLOCK * block + at;
    const uint32_t place = swizzled(i, lane / 4) + lane % 4 * 4;
    const auto word = [&](uint8_t* tile) { return reinterpret_cast<uint32_t*>(tile + place); };
    const float2 score = widen_f16(*word(shared.scores()));  // before the second head's are there
#pragma unroll 1
    for (int head = SERVED - 1; head >= 0; --head) {  // the first last
      const float2* elapsed = shared.elapsed[head];
      const float x = fade_between(elapsed[i], elapsed[2 * lane]);
      const float y = fade_between(elapsed[i], elapsed[2 * lane + 1]);
      *word(shared.reads[head]) = pack_f16(score.x * x, score.y * y);
      if (lane / 8 < block) {
        const float2 high = widen_f16(*word(shared.below[0][0]));
        const float2 low = widen_f16(*word(shared.below[0][1]));
        split((high.x + low.x) * x, (high.y + low.y) * y, *word(shared.below[head][0]),
              *word(shared.below[head][1]));
      } else if (lane / 8 == block) {
        const int entry = 2 * (lane % 8) * CORNER_ROW + at;
        const float* from = shared.corners[0][block] + entry;
        float* to = shared.corners[head][block] + entry;
        to[0] = from[0] * x, to[CORNER_ROW] = from[CORNER_ROW] * y;
      }
    }
  }
}

// In a block's tokens reads have no decay any more: it is in what they are the product of.
__device__ __forceinline__ void clear_decays(SolveMemory& shared, int block) {
  const int lane = threadIdx.x % 32, head = lane / BLOCK, row = BLOCK * block + lane % BLOCK;
  shared.elapsed[head][row] = {0.0f, 0.0f};
  shared.within[head][row] = shared.since[head][row] = 1.0f;
}

// terms times the decay from their columns' tokens to the end of the chunk.
__device__ __forceinline__ void fade_terms(const float* remaining, Terms& terms) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 by = *reinterpret_cast<const float2*>(remaining + i / 2 * 8);
    const float2 high = widen_f16(terms.high[i]), low = widen_f16(terms.low[i]);
    split((high.x + low.x) * by.x, (high.y + low.y) * by.y, terms.high[i], terms.low[i]);
  }
}

// Rows [16 block, +16) of a tile of writes, times the decay from j to the chunk's end.
__device__ __forceinline__ void leave_writes(SolveMemory& shared, int head, int tile, int block,
                                             bool is_faded, const float (&sums)[32]) {
  const BlockRow to(shared.below[head][tile], block);
  const float* remaining = shared.remaining[head] + BlockPlace(block).row;
  const float by[2] = {is_faded ? 1.0f : remaining[0], is_faded ? 1.0f : remaining[8]};
#pragma unroll
  for (int column = 0; column < BLOCKS; ++column) {
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = sums[8 * column + i] * by[i / 2 % 2];
    to.store(column, x);
  }
}

// A warpgroup's v head from the products on, a warp 16 rows j. What is inverted and multiplied has
// no decay: from one token to another that depends on these two alone, whatever lies between, and
// is a factor of the sums. But keys longer than 1 may make the inverse grow where decays would not
// let it: then all is done once more, with them in the products.
__device__ __forceinline__ void solve_head(SolveMemory& shared, int head, int block,
                                           uint32_t parity) {
  Terms rows[BLOCKS];
  float sums[32];
  bool is_faded = false;
#pragma unroll 1
  for (;;) {
    show_order(shared, 1);
    if (head == 0) {
      __syncwarp();  // the corner is there
      invert_corner(shared, block, is_faded);
    }
    publish_shared();
    sync_team(shared, 0);  // K K^T, the corners' inverses and the scores are there
    if (is_faded && head == 0) clear_decays(shared, block);
    const int tile = is_faded ? head : 0;
    merge_corners(shared, head, tile, block, rows);
    multiply_scores(is_faded ? shared.reads[head] : shared.scores(), rows, sums);
    wait_cta_phase(&shared.barriers.apart, parity);
    // All have read what is overwritten from here on.
    if (!ask_team(shared, 1, is_large(rows)) || is_faded) break;
    if (head == 0) fade_products(shared, block);
    show_order(shared, 0);
    is_faded = true;
  }
  leave_reads(shared, head, block, sums);
  publish_shared();
  __syncwarp();
  arrive_for_warp(&shared.barriers.reads);
  if (is_faded) {
#pragma unroll
    for (int m = 0; m < BLOCKS; ++m) {
      fade_terms(shared.remaining[head] + BLOCK * m + threadIdx.x % 4 * 2, rows[m]);
    }
  }
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    multiply_by_keys(shared.keys[tile], rows, sums);
    leave_writes(shared, head, tile, block, is_faded, sums);
  }
}

// Operands of a chunk are in shared memory, published. The feeding warp stores what the scan reads.
__device__ __forceinline__ void solve_chunk(SolveMemory& shared, float scale, int head, int block,
                                            uint32_t parity) {
  float sums[32];
  multiply_keys(head == 0 ? shared.keys : shared.queries, shared.keys, block, sums);
  show_order(shared, 0);  // with the three of a pass an even number
  wait_cta_phase(&shared.barriers.below, parity ^ 1);
  if (head == 0) {
    store_key_products(shared, block, sums);
  } else {
    store_scores(shared, block, scale, sums);
  }
  wait_cta_phase(&shared.barriers.gates, parity);
  solve_head(shared, head, block, parity);
  publish_shared();
  __syncwarp();
  arrive_for_warp(&shared.barriers.done);
}

}  // namespace
