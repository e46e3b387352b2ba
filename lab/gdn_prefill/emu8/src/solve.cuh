// What a chunk needs that does not depend on the state: per q/k head and its two v heads.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "async_copy.cuh"
#include "bulk_copy.cuh"
#include "bulk_hints.cuh"
#include "fast_math.cuh"
#include "gates.cuh"
#include "named_barrier.cuh"
#include "order.cuh"
#include "plan.cuh"
#include "small_copy.cuh"
#include "tensor_core.cuh"
#include "tensor_core_f16.cuh"
#include "warpgroup.cuh"
#include "warpgroup_rows.cuh"

namespace {

// A team of a CTA takes a task after the other; a warpgroup of it a v head.
constexpr int TEAM = SERVED * 128, SOLVE_THREADS = Tuning::SOLVE_TEAMS * TEAM;

__device__ __forceinline__ int team_thread() { return threadIdx.x % TEAM; }

__device__ __forceinline__ void sync_team() {
  sync_threads_of(1 + threadIdx.x / TEAM, TEAM);
}

// The team's threads of my v head.
__device__ __forceinline__ void sync_head() {
  sync_threads_of(1 + Tuning::SOLVE_TEAMS + threadIdx.x / 128, 128);
}

constexpr int CORNER_ROW = BLOCK + 4;  // banks

struct RawGates {
  alignas(8) __nv_bfloat16 a[SERVED], b[SERVED];
};
static_assert(sizeof(RawGates::a) == 4, "a word");

struct SolveMemory {
  alignas(1024) uint8_t keys[2][TILE_BYTES];  // [token][key] fp16
  union {
    uint8_t queries[2][TILE_BYTES];
    // scale (Q K^T o D) [i][j], in the end Solved::reads
    uint8_t scores[SERVED][TILE_BYTES];
  };
  // The strict lower part of A in two terms, [i][j], then its 16 x 16 inverses on the diagonal; in
  // the end Solved::writes.
  uint8_t below[SERVED][2][TILE_BYTES];
  alignas(16) float corners[SERVED][BLOCKS][BLOCK * CORNER_ROW];  // of A transposed, inverses
  alignas(16) float2 elapsed[SERVED][CHUNK];  // log2 of the decay up to the token, two terms
  alignas(16) float remaining[SERVED][CHUNK];  // decay from the token to the end of the chunk
  alignas(16) float within[SERVED][CHUNK];     // and to the end of its 16 tokens
  alignas(16) float beta[SERVED][CHUNK];
  alignas(16) int4 raw_keys[CHUNK * DIM / 8], raw_queries[CHUNK * DIM / 8];  // bf16, as they come
  RawGates raw_gates[SERVED][CHUNK];
  Task tasks[2];  // in turns: the present one, the next one
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

// A thread's 16 bytes of keys and queries are copied to a place that it alone reads. Rows from the
// chunk's last on are zero.
constexpr int ROW_COPIES = CHUNK * DIM / 8 / TEAM;

__device__ __forceinline__ void request_rows(SolveMemory& shared, const Args& args,
                                             const Task& task) {
#pragma unroll
  for (int i = 0; i < ROW_COPIES; ++i) {
    const int at = team_thread() + i * TEAM, row = at / 16;
    const bool is_token = row < task.tokens;
    const int64_t token = task.first + (is_token ? row : 0);
    const int64_t offset = (token * QK_HEADS + task.qk_head) * DIM + at % 16 * 8;
    copy_chunk_or_clear(&shared.raw_keys[at], args.k + offset, is_token);
    copy_chunk_or_clear(&shared.raw_queries[at], args.q + offset, is_token);
  }
  commit_copies();
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
  for (int i = 0; i < ROW_COPIES; ++i) {
    const int at = team_thread() + i * TEAM;
    store_pairs(shared.keys, at / 16, at % 16, convert_row(shared.raw_keys[at]));
    store_pairs(shared.queries, at / 16, at % 16, convert_row(shared.raw_queries[at]));
  }
}

// a and b of a lane's two tokens, for both heads, to places that it alone reads; behind the chunk's
// last token those of its first.
__device__ __forceinline__ void request_gates(SolveMemory& shared, const Args& args,
                                              const Task& task, int served) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = threadIdx.x % 32 * 2 + i, token = task.first + (row < task.tokens ? row : 0);
    const int64_t at = int64_t{token} * V_HEADS + task.qk_head * SERVED;
    copy_word(shared.raw_gates[served][row].a, args.a + at);
    copy_word(shared.raw_gates[served][row].b, args.b + at);
  }
}

// One warp a v head, two tokens a lane. Sums in fp64: next to a g of 0 those of g near 1 remain.
__device__ __forceinline__ void find_gates(SolveMemory& shared, const Args& args, int tokens,
                                           int slot, int v_head) {
  const int lane = threadIdx.x % 32, served = v_head % SERVED;
  const Head head = load_head(args, v_head);
  double log_g[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = 2 * lane + i;
    const bool is_token = row < tokens;
    const RawGates& raw = shared.raw_gates[served][row];
    log_g[i] = is_token ? LOG2_E * log_decay(head, __bfloat162float(raw.a[served])) : 0.0;
    const float strength = write_strength(__bfloat162float(raw.b[served]));
    shared.beta[served][row] = is_token ? strength : 0.0f;
  }
  double sum = log_g[0] + log_g[1];
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const double other = __shfl_up_sync(FULL, sum, step);
    if (lane >= step) sum += other;
  }
  const double total = __shfl_sync(FULL, sum, 31);
  const double block_end = __shfl_sync(FULL, sum, lane | (BLOCK / 2 - 1));
  const double elapsed[2] = {sum - log_g[1], sum};
  Solved* solved = solved_of(args, slot, v_head);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float high = elapsed[i];
    shared.elapsed[served][2 * lane + i] = {high, static_cast<float>(elapsed[i] - high)};
    shared.remaining[served][2 * lane + i] = exp2_approx(static_cast<float>(total - elapsed[i]));
    shared.within[served][2 * lane + i] = exp2_approx(static_cast<float>(block_end - elapsed[i]));
    solved->carry[2 * lane + i] = exp2_approx(high);
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

// (I + corner)^-1 by elimination, a column a lane: in fp32 where it stands, transposed, and in two
// terms on the diagonal of `below`.
__device__ __forceinline__ void invert_corner(SolveMemory& shared, int head, int block) {
  const int lane = threadIdx.x % 32, column = lane % BLOCK;
  float* corner = shared.corners[head][block];
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
  __syncwarp();
  if (lane < BLOCK) {
#pragma unroll
    for (int i = 0; i < BLOCK; i += 4) {
      const float4 quad = {x[i], x[i + 1], x[i + 2], x[i + 3]};
      *reinterpret_cast<float4*>(corner + column * CORNER_ROW + i) = quad;
    }
  }
  const int place = BLOCK * block + column;
#pragma unroll
  for (int i = 0; i < BLOCK; ++i) {
    const __half high = __float2half_rn(x[i]);
    const __half term = lane < BLOCK ? high : __float2half_rn(x[i] - __half2float(high));
    uint8_t* to = shared.below[head][lane / BLOCK] + swizzled(BLOCK * block + i, place / 8);
    *reinterpret_cast<__half*>(to + place % 8 * 2) = term;
  }
  __syncwarp();
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

// sums [16 x 16] += terms [16 x 16] times block (i, m) of `below`, transposed.
__device__ __forceinline__ void multiply_block(SolveMemory& shared, int head, int i, int m,
                                               const Terms& terms, Sums& sums) {
  const int lane = threadIdx.x % 32;
  const uint32_t place = swizzled(BLOCK * i + lane % 8 + lane / 16 * 8, 2 * m + lane / 8 % 2);
  uint32_t high[4], low[4];
  load_tiles(high, shared_address(shared.below[head][0] + place));
  load_tiles(low, shared_address(shared.below[head][1] + place));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    multiply_f16(sums.x[0][half], terms.high, high[2 * half], high[2 * half + 1]);
    multiply_f16(sums.x[1][half], terms.low, high[2 * half], high[2 * half + 1]);
    multiply_f16(sums.x[1][half], terms.high, low[2 * half], low[2 * half + 1]);
  }
}

// rows [16 x 64] = rows [16 block, +16) of the transposed inverse of I + A, Y. With D the inverses
// of the corners: Y_i = -(sum of Y_m A_im^T over m < i) D_i^T, block after block.
__device__ __forceinline__ void merge_corners(SolveMemory& shared, int head, int block,
                                              Terms (&rows)[BLOCKS]) {
  const int group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < BLOCKS; ++i) {
    float x[8];
    if (i < block) {
      rows[i] = {};
    } else if (i == block) {
      const float* corner = shared.corners[head][i] + 2 * pair;
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int row = group + part % 2 * 8, column = part / 2 * 8;
        const float2 xy = *reinterpret_cast<const float2*>(corner + row * CORNER_ROW + column);
        x[2 * part] = xy.x, x[2 * part + 1] = xy.y;
      }
      rows[i] = split_sums(x);
    } else {
      Sums sums = {}, merged = {};
#pragma unroll
      for (int m = 0; m < i; ++m) {
        if (m >= block) multiply_block(shared, head, i, m, rows[m], sums);
      }
#pragma unroll
      for (int part = 0; part < 8; ++part) x[part] = -sums[part];
      multiply_block(shared, head, i, i, split_sums(x), merged);
#pragma unroll
      for (int part = 0; part < 8; ++part) x[part] = merged[part];
      rows[i] = split_sums(x);
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

constexpr int STORING = 96;  // thread of a warpgroup: its warp finds no gates

// Operands of a chunk are in shared memory, published: what the scan reads of it goes to scratch.
// The stores may still read at the end.
__device__ __forceinline__ void solve_chunk(SolveMemory& shared, const Args& args, int slot,
                                            int qk_head, int head, int block) {
  const bool is_storing = threadIdx.x % 128 == STORING;
  Operands* operands = operands_of(args, slot, qk_head);
  if (is_storing) {
    store_bulk(head == 0 ? operands->keys : operands->queries,
               head == 0 ? shared.keys : shared.queries, sizeof(Operands::keys));
  }
  float sums[32];
  multiply_keys(head == 0 ? shared.keys : shared.queries, shared.keys, block, sums);
  if (head == 1) {
    if (is_storing) finish_bulk_reads();
    sync_head();  // queries have been read: scores take their place
  }
  fade_products(shared, head == 1, block, args.scale, sums);
  publish_shared();
  sync_team();  // A and the scores of both v heads are there
  invert_corner(shared, head, block);
  sync_head();  // the inverses of my v head are there
  solve_head(shared, head, block);
  publish_shared();
  sync_head();  // writes and reads are there
  if (is_storing) {
    Solved* solved = solved_of(args, slot, qk_head * SERVED + head);
    store_bulk(solved->writes, shared.below[head], sizeof(Solved::writes));
    store_bulk(solved->reads, shared.scores[head], sizeof(Solved::reads));
  }
}

}  // namespace
