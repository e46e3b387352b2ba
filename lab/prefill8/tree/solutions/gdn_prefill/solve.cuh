// What a chunk needs that does not depend on the state: per q/k head and its two v heads.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "async_copy.cuh"
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

__device__ __forceinline__ void sync_team() {
  sync_threads_of(1 + threadIdx.x / TEAM, TEAM);
}

// compute-sanitizer's racecheck loses a barrier of a team behind one of a part of it: built for it
// with TEAMS_MEET defined, both v heads wait wherever one of them does.
#ifdef TEAMS_MEET
constexpr bool HEADS_MEET_APART = false;
#else
constexpr bool HEADS_MEET_APART = true;
#endif

// The team's threads of my v head.
__device__ __forceinline__ void sync_head() {
  if (!HEADS_MEET_APART) return sync_team();
  sync_threads_of(1 + Tuning::SOLVE_TEAMS + threadIdx.x / 128, 128);
}

constexpr int CORNER_ROW = BLOCK + 4;  // banks

// Each ends a phase a task. Arrivals of the feeding warps: rows (each lane with its copies, and one
// for the task), gates (both warps), apart, free; of the team's warps: operands, reads, done.
struct TeamBarriers {
  uint64_t rows;      // task, keys and queries as they come
  uint64_t gates;     // gates; `below` of the task before has been stored
  uint64_t apart;     // keys and queries as operands have been stored
  uint64_t free;      // reads have been stored
  uint64_t operands;  // keys and queries are operands; the raw ones have been read
  uint64_t reads;     // reads are there
  uint64_t done;      // writes are there; all else has been read
};

struct SolveMemory {
  alignas(1024) uint8_t keys[2][TILE_BYTES];  // [token][key] fp16
  union {
    uint8_t queries[2][TILE_BYTES];
    // scale (Q K^T o D) [i][j], in the end Solved::reads
    uint8_t scores[SERVED][TILE_BYTES];
  };
  // The strict lower part of A in two terms, [i][j], and the transposed inverses of its 16 x 16
  // corners; in the end Solved::writes.
  uint8_t below[SERVED][2][TILE_BYTES];
  alignas(16) float corners[SERVED][BLOCKS][BLOCK * CORNER_ROW];  // of A, transposed
  alignas(16) float2 elapsed[SERVED][CHUNK];  // log2 of the decay up to the token, two terms
  alignas(16) float remaining[SERVED][CHUNK];  // decay from the token to the end of the chunk
  alignas(16) float within[SERVED][CHUNK];     // and to the end of its 16 tokens
  alignas(16) float beta[SERVED][CHUNK];
  alignas(16) int4 raw_keys[CHUNK * DIM / 8], raw_queries[CHUNK * DIM / 8];  // bf16, as they come
  Task task;  // the one whose rows are here
  TeamBarriers barriers;
};

struct SolveCta {
  SolveMemory teams[Tuning::SOLVE_TEAMS];
  Order order;
};
static_assert(sizeof(SolveCta) <= 227 * 1024, "what sm_90 gives a CTA");
static_assert(SOLVE_THREADS >= ORDERED, "a thread a sequence");

// Eight bf16 as fp16: exact from 2^-14 to 2^16.
__device__ __forceinline__ uint4 convert_row(const int4& x) {
  const float2 a = widen_bf16(x.x), b = widen_bf16(x.y), c = widen_bf16(x.z), d = widen_bf16(x.w);
  return {pack_f16(a.x, a.y), pack_f16(b.x, b.y), pack_f16(c.x, c.y), pack_f16(d.x, d.y)};
}

// Of a lane's four pairs of keys two go to a chunk of the row and two to the next one, so that a
// lane of the scan holds four keys in a row of its fragments: Operands. The second tile's lanes
// take the other chunk first: none meets a bank twice.
__device__ __forceinline__ void store_pairs(uint8_t (&tiles)[2][TILE_BYTES], int row, int chunk,
                                            const uint4& pairs) {
  const int tile = chunk / 8, even = chunk % 8 & ~1;
  const uint2 kinds[2] = {{pairs.x, pairs.z}, {pairs.y, pairs.w}};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int kind = tile ^ i;
    uint8_t* to = tiles[tile] + swizzled(row, even + kind) + chunk % 2 * 8;
    *reinterpret_cast<uint2*>(to) = kind ? kinds[1] : kinds[0];
  }
}

// Once they have come, as operands.
__device__ __forceinline__ void convert_rows(SolveMemory& shared) {
#pragma unroll
  for (int i = 0; i < CHUNK * DIM / 8 / TEAM; ++i) {
    const int at = team_thread() + i * TEAM;
    store_pairs(shared.keys, at / 16, at % 16, convert_row(shared.raw_keys[at]));
    store_pairs(shared.queries, at / 16, at % 16, convert_row(shared.raw_queries[at]));
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

// exp2 of a difference of two-term logarithms.
__device__ __forceinline__ float fade_between(float2 later, float2 earlier) {
  return exp2_approx((later.x - earlier.x) + (later.y - earlier.y));
}

// What a thread scales of a block of 16 x 16: for each head two entries of each of two tiles in row
// `row` and in the one eight on, `pair` the place within the tile.
struct Faded {
  float x[SERVED][2][4];
};

struct Scaling {
  bool is_score;
  int block, row, pair;
  float2 later[SERVED][2];   // elapsed in the rows
  float factor[SERVED][2];  // of the rows

  __device__ Scaling(const SolveMemory& shared, bool is_score, int block, float scale)
      : is_score(is_score), block(block), row(BLOCK * block + threadIdx.x % 32 / 4),
        pair(threadIdx.x % 4) {
#pragma unroll
    for (int at = 0; at < SERVED * 2; ++at) {
      const int head = at / 2, half = at % 2, i = row + 8 * half;
      later[head][half] = shared.elapsed[head][i];
      factor[head][half] = is_score ? scale : shared.beta[head][i];
    }
  }

  // Block (block, column < block): what follows the column's end is a factor of the row.
  __device__ Faded fade_block(const SolveMemory& shared, int column, const float* sums) const {
    Faded faded;
#pragma unroll
    for (int head = 0; head < SERVED; ++head) {
      const float2 end = shared.elapsed[head][BLOCK * column + BLOCK - 1];
      const float* within = shared.within[head] + BLOCK * column + 2 * pair;
      const float2 fades[2] = {*reinterpret_cast<const float2*>(within),
                               *reinterpret_cast<const float2*>(within + 8)};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float by = factor[head][half] * fade_between(later[head][half], end);
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const float* of = sums + 4 * side + 2 * half;
          faded.x[head][half][2 * side] = of[0] * (by * fades[side].x);
          faded.x[head][half][2 * side + 1] = of[1] * (by * fades[side].y);
        }
      }
    }
    return faded;
  }

  // Block (block, block): scores up to the diagonal, or A below it.
  __device__ Faded fade_corner(const SolveMemory& shared, const float (&sums)[8]) const {
    Faded faded;
#pragma unroll
    for (int at = 0; at < SERVED * 2; ++at) {
      const int head = at / 2, side = at % 2, j = BLOCK * block + 8 * side + 2 * pair;
      const float4 earlier = *reinterpret_cast<const float4*>(&shared.elapsed[head][j]);
      const int least = is_score ? j : j + 1;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = row + 8 * half;
        const float* of = sums + 4 * side + 2 * half;
        const float x = fade_between(later[head][half], {earlier.x, earlier.y});
        const float y = fade_between(later[head][half], {earlier.z, earlier.w});
        faded.x[head][half][2 * side] = least <= i ? of[0] * factor[head][half] * x : 0.0f;
        faded.x[head][half][2 * side + 1] = least < i ? of[1] * factor[head][half] * y : 0.0f;
      }
    }
    return faded;
  }

  // Calls use(head, offset in a tile, x, y) for the pairs of entries of block (block, column).
  template <typename Use>
  __device__ void for_pairs(int column, const Faded& faded, Use use) const {
#pragma unroll
    for (int at = 0; at < SERVED * 4; ++at) {
      const int head = at / 4, half = at / 2 % 2, side = at % 2;
      const float* x = faded.x[head][half] + 2 * side;
      use(head, swizzled(row + 8 * half, 2 * column + side) + 4 * pair, x[0], x[1]);
    }
  }

  __device__ void store_scores(SolveMemory& shared, int column, const Faded& faded) const {
    for_pairs(column, faded, [&](int head, uint32_t place, float x, float y) {
      *reinterpret_cast<uint32_t*>(shared.scores[head] + place) = pack_f16(x, y);
    });
  }

  __device__ void store_terms(SolveMemory& shared, int column, const Faded& faded) const {
    for_pairs(column, faded, [&](int head, uint32_t place, float x, float y) {
      uint32_t high, low;
      split(x, y, high, low);
      *reinterpret_cast<uint32_t*>(shared.below[head][0] + place) = high;
      *reinterpret_cast<uint32_t*>(shared.below[head][1] + place) = low;
    });
  }

  // Transposed.
  __device__ void store_corner(SolveMemory& shared, const Faded& faded) const {
#pragma unroll
    for (int at = 0; at < SERVED * 4; ++at) {
      const int head = at / 4, half = at / 2 % 2, side = at % 2;
      float* to = shared.corners[head][block] + (8 * side + 2 * pair) * CORNER_ROW;
      to[row % BLOCK + 8 * half] = faded.x[head][half][2 * side];
      to[CORNER_ROW + row % BLOCK + 8 * half] = faded.x[head][half][2 * side + 1];
    }
  }
};

// From K K^T (of the first warpgroup) A below the diagonal, from Q K^T (of the second) the scores.
// One piece of code for both kinds: most of a cold start is the fetch of instructions. Both heads
// and all rows of a block at once: the chain of one hides those of the others.
__device__ __forceinline__ void fade_products(SolveMemory& shared, bool is_score, int block,
                                              float scale, const float (&sums)[32]) {
  const Scaling scaling(shared, is_score, block, scale);
  float corner[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float low = block % 2 ? sums[8 + i] : sums[i];
    corner[i] = block / 2 ? (block % 2 ? sums[24 + i] : sums[16 + i]) : low;
  }
  const Faded faded = scaling.fade_corner(shared, corner);
  if (is_score) {
    scaling.store_scores(shared, block, faded);
  } else {
    scaling.store_corner(shared, faded);
  }
#pragma unroll
  for (int column = 0; column < BLOCKS; ++column) {
    if (column < block && column < BLOCKS - 1) {
      const Faded faded = scaling.fade_block(shared, column, sums + 8 * column);
      if (is_score) {
        scaling.store_scores(shared, column, faded);
      } else {
        scaling.store_terms(shared, column, faded);
      }
    } else if (column > block && is_score) {  // products of whole tiles read it
      scaling.store_scores(shared, column, {});
    }
  }
}

// (I + corner)^-1 by elimination, a column a lane: transposed, in two terms, on the diagonal of
// `below`. Sixteen lanes keep the first terms, the others the second ones.
__device__ __forceinline__ void invert_corner(SolveMemory& shared, int head, int block) {
  const int lane = threadIdx.x % 32, column = lane % BLOCK, term = lane / BLOCK;
  const float* corner = shared.corners[head][block];
  float x[BLOCK];
#pragma unroll
  for (int i = 0; i < BLOCK; ++i) x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
  for (int step = 0; step < BLOCK - 1; ++step) {
#pragma unroll
    for (int quad = (step + 1) / 4; quad < BLOCK / 4; ++quad) {
      const float4 a = *reinterpret_cast<const float4*>(corner + step * CORNER_ROW + 4 * quad);
      if (4 * quad > step) x[4 * quad] -= a.x * x[step];
      if (4 * quad + 1 > step) x[4 * quad + 1] -= a.y * x[step];
      if (4 * quad + 2 > step) x[4 * quad + 2] -= a.z * x[step];
      if (4 * quad + 3 > step) x[4 * quad + 3] -= a.w * x[step];
    }
  }
  uint32_t pairs[BLOCK / 2];
#pragma unroll
  for (int i = 0; i < BLOCK / 2; ++i) {
    uint32_t high, low;
    split(x[2 * i], x[2 * i + 1], high, low);
    pairs[i] = term ? low : high;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint8_t* to = shared.below[head][term] + swizzled(BLOCK * block + column, 2 * block + half);
    const uint32_t* of = pairs + 4 * half;
    *reinterpret_cast<uint4*>(to) = uint4{of[0], of[1], of[2], of[3]};
  }
}

// Rows of the transposed inverse as first operands: two terms of 16 columns.
struct Terms {
  uint32_t high[4], low[4];
};

__device__ __forceinline__ Terms split_sums(const float (&x)[8]) {
  Terms terms;
#pragma unroll
  for (int i = 0; i < 4; ++i) split(x[2 * i], x[2 * i + 1], terms.high[i], terms.low[i]);
  return terms;
}

// terms[i] *= {x, y} of fade(i)
template <typename Fade>
__device__ __forceinline__ void scale_terms(Terms& terms, Fade fade) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 by = fade(i), high = widen_f16(terms.high[i]), low = widen_f16(terms.low[i]);
    split((high.x + low.x) * by.x, (high.y + low.y) * by.y, terms.high[i], terms.low[i]);
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

// Block (i, m) of `below`, transposed, as a second operand.
__device__ __forceinline__ Terms load_block(const SolveMemory& shared, int head, int i, int m) {
  const int lane = threadIdx.x % 32;
  const uint32_t place = swizzled(BLOCK * i + lane % 8 + lane / 16 * 8, 2 * m + lane / 8 % 2);
  Terms terms;
  load_tiles(terms.high, shared_address(shared.below[head][0] + place));
  load_tiles(terms.low, shared_address(shared.below[head][1] + place));
  return terms;
}

// The transposed inverse of corner i, as a first operand or as a second one.
template <bool IS_FIRST>
__device__ __forceinline__ Terms load_inverse(const SolveMemory& shared, int head, int i) {
  const int lane = threadIdx.x % 32;
  const uint32_t place = swizzled(BLOCK * i + lane % 16, 2 * i + lane / 16);
  Terms terms;
#pragma unroll
  for (int term = 0; term < 2; ++term) {
    const uint32_t from = shared_address(shared.below[head][term] + place);
    uint32_t(&to)[4] = term ? terms.low : terms.high;
    if (IS_FIRST) {
      load_tiles(to, from);
    } else {
      load_tiles_transposed(to, from);
    }
  }
  return terms;
}

// rows [16 x 64] = rows [16 block, +16) of the transposed inverse of I + A, Y. With D the inverses
// of the corners: Y_i = -(sum of Y_m A_im^T over m < i) D_i^T. As soon as a block is there, all
// sums get their part of it: only that of the next block is in the chain.
__device__ __forceinline__ void merge_corners(const SolveMemory& shared, int head, int block,
                                              Terms (&rows)[BLOCKS]) {
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
      multiply_terms(rows[m], load_block(shared, head, i, m), sums[i]);
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
__device__ __forceinline__ void multiply_remaining(const uint8_t* keys,
                                                   const Terms (&rows)[BLOCKS],
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

// Rows [16 block, +16) of a tile, from 64 columns of sums: a thread's two rows times a factor each.
__device__ __forceinline__ void store_rows(uint8_t* tile, int block, float2 factors,
                                           const float (&sums)[32]) {
  const int row = BLOCK * block + threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float* x = sums + 4 * i;
    uint8_t* place = tile + 4 * pair;
    *reinterpret_cast<uint32_t*>(place + swizzled(row, i)) =
        pack_f16(x[0] * factors.x, x[1] * factors.x);
    *reinterpret_cast<uint32_t*>(place + swizzled(row + 8, i)) =
        pack_f16(x[2] * factors.y, x[3] * factors.y);
  }
}

// A warpgroup's v head from the corners' inverses on, a warp 16 rows j. Factors of rows are applied
// to the sums, those of columns to the terms: 22 bits, and no other registers.
__device__ __forceinline__ void solve_head(SolveMemory& shared, int head, int block) {
  Terms rows[BLOCKS];
  merge_corners(shared, head, block, rows);
  const float* beta = shared.beta[head] + BLOCK * block + threadIdx.x % 32 / 4;
  const float2 strengths = {beta[0], beta[8]};
  float sums[32];
  multiply_scores(shared.scores[head], rows, sums);
  sync_head();  // all have read what is overwritten from here on
  store_rows(shared.scores[head], block, strengths, sums);
  publish_shared();
  __syncwarp();
  arrive_for_warp(&shared.barriers.reads);
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m) {  // the decay to the chunk's end
    if (m < block) continue;  // zeros
    const float* remaining = shared.remaining[head] + BLOCK * m + threadIdx.x % 4 * 2;
    scale_terms(rows[m], [&](int i) {
      return *reinterpret_cast<const float2*>(remaining + i / 2 * 8);
    });
  }
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    multiply_remaining(shared.keys[tile], rows, sums);
    store_rows(shared.below[head][tile], block, strengths, sums);
  }
}

// Operands of a chunk are in shared memory, published. The feeding warp stores what the scan reads.
__device__ __forceinline__ void solve_chunk(SolveMemory& shared, float scale, int head, int block,
                                            uint32_t parity) {
  float sums[32];
  multiply_keys(head == 0 ? shared.keys : shared.queries, shared.keys, block, sums);
  wait_cta_phase(&shared.barriers.gates, parity);
  // Scores take the place of queries, of which a warp reads no rows but its own.
  if (head == 1) wait_cta_phase(&shared.barriers.apart, parity);
  fade_products(shared, head == 1, block, scale, sums);
  publish_shared();
  sync_team();  // A and the scores of both v heads are there
  invert_corner(shared, head, block);
  sync_head();  // the inverses of my v head are there
  solve_head(shared, head, block);
  publish_shared();
  __syncwarp();
  arrive_for_warp(&shared.barriers.done);
}

}  // namespace
