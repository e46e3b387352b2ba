// What a chunk needs that does not depend on the state: per q/k head and its two v heads.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "bulk_copy.cuh"
#include "fast_math.cuh"
#include "gates.cuh"
#include "named_barrier.cuh"
#include "plan.cuh"
#include "tensor_core.cuh"
#include "tensor_core_f16.cuh"
#include "warpgroup.cuh"
#include "warpgroup_rows.cuh"

namespace {

struct SolveMemory {
  alignas(1024) uint8_t keys[2][TILE_BYTES];  // [token][key] fp16; with queries as in Operands
  uint8_t queries[2][TILE_BYTES];
  // The strict lower part of A in two terms, [i][j], then its 16 x 16 inverses on the diagonal; in
  // the end Solved::writes.
  uint8_t below[SERVED][2][TILE_BYTES];
  uint8_t scores[SERVED][TILE_BYTES];  // scale (Q K^T o D) [i][j], in the end Solved::reads
  alignas(16) float corners[SERVED][BLOCKS][BLOCK * BLOCK];  // transposed blocks of A, inverses
  alignas(16) float2 elapsed[SERVED][CHUNK];  // log2 of the decay up to the token, two terms
  alignas(16) float remaining[SERVED][CHUNK];  // decay from the token to the end of the chunk
  alignas(16) float within[SERVED][CHUNK];     // and to the end of its 16 tokens
  alignas(16) float beta[SERVED][CHUNK];
  alignas(8) int2 chunk;  // first token, tokens
};
static_assert(Tuning::SOLVE_CTAS * (sizeof(SolveMemory) + 1024) <= 227 * 1024, "that many an SM");

// The chunk that lies in a slot: first token and how many; none: {0, 0}.
__device__ __forceinline__ int2 find_chunk(SolveMemory& shared, const Args& args, int slot) {
  if (threadIdx.x == 0) shared.chunk = {0, 0};
  __syncthreads();
  for (int seq = threadIdx.x; seq < args.num_seqs; seq += Tuning::SOLVE_THREADS) {
    const Range range = load_range(args, seq);
    const int before = slot - first_slot(range, seq);
    if (before < 0 || before >= range.chunks()) continue;
    const int first = range.start + before * CHUNK;
    shared.chunk = {first, min(range.stop - first, CHUNK)};
  }
  __syncthreads();
  return shared.chunk;
}

// Eight bf16 as fp16: exact from 2^-14 to 2^16.
__device__ __forceinline__ uint4 convert_row(const uint4& x) {
  const float2 a = widen_bf16(x.x), b = widen_bf16(x.y), c = widen_bf16(x.z), d = widen_bf16(x.w);
  return {pack_f16(a.x, a.y), pack_f16(b.x, b.y), pack_f16(c.x, c.y), pack_f16(d.x, d.y)};
}

// Rows from the count-th on are zero.
__device__ __forceinline__ void load_operands(SolveMemory& shared, const Args& args, int2 chunk,
                                              int qk_head) {
  constexpr int LOADS = CHUNK * DIM / 8 / Tuning::SOLVE_THREADS;
  uint4 keys[LOADS] = {}, queries[LOADS] = {};
#pragma unroll
  for (int i = 0; i < LOADS; ++i) {
    const int at = threadIdx.x + i * Tuning::SOLVE_THREADS, row = at / 16;
    if (row >= chunk.y) continue;
    const int64_t offset = (int64_t{chunk.x + row} * QK_HEADS + qk_head) * DIM + at % 16 * 8;
    keys[i] = __ldg(reinterpret_cast<const uint4*>(args.k + offset));
    queries[i] = __ldg(reinterpret_cast<const uint4*>(args.q + offset));
  }
#pragma unroll
  for (int i = 0; i < LOADS; ++i) {
    const int at = threadIdx.x + i * Tuning::SOLVE_THREADS, tile = at % 16 / 8;
    const uint32_t place = swizzled(at / 16, at % 8);
    *reinterpret_cast<uint4*>(shared.keys[tile] + place) = convert_row(keys[i]);
    *reinterpret_cast<uint4*>(shared.queries[tile] + place) = convert_row(queries[i]);
  }
}

// One warp a v head, two tokens a lane. Sums in fp64: next to a g of 0 those of g near 1 remain.
__device__ __forceinline__ void load_gates(SolveMemory& shared, const Args& args, int2 chunk,
                                           int slot, int v_head) {
  const int lane = threadIdx.x % 32, served = v_head % SERVED;
  const Head head = load_head(args, v_head);
  double log_g[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = 2 * lane + i;
    const int64_t at = int64_t{chunk.x + row} * V_HEADS + v_head;
    const bool is_token = row < chunk.y;
    const float a = is_token ? __bfloat162float(args.a[at]) : 0.0f;
    const float b = is_token ? __bfloat162float(args.b[at]) : 0.0f;
    log_g[i] = is_token ? LOG2_E * log_decay(head, a) : 0.0;
    shared.beta[served][row] = is_token ? write_strength(b) : 0.0f;
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

// Two entries of row i: scores, or those of A in two terms.
template <bool IS_SCORE>
__device__ __forceinline__ void store_pair(SolveMemory& shared, int head, uint32_t place, float x,
                                           float y) {
  if (IS_SCORE) {
    *reinterpret_cast<uint32_t*>(shared.scores[head] + place) = pack_f16(x, y);
  } else {
    uint32_t high, low;
    split(x, y, high, low);
    *reinterpret_cast<uint32_t*>(shared.below[head][0] + place) = high;
    *reinterpret_cast<uint32_t*>(shared.below[head][1] + place) = low;
  }
}

// Block (block, column), column < block: the decay is that to the end of the column's tokens times
// that from there on, one factor a column and one a row, neither above 1.
template <bool IS_SCORE>
__device__ __forceinline__ void fade_block(SolveMemory& shared, int i, int column,
                                           const float (&factors)[SERVED],
                                           const float (&sums)[32], int half) {
  const int pair = threadIdx.x % 4;
  float rows[SERVED];
#pragma unroll
  for (int head = 0; head < SERVED; ++head) {
    const float2(&elapsed)[CHUNK] = shared.elapsed[head];
    rows[head] = factors[head] * fade_between(elapsed[i], elapsed[BLOCK * column + BLOCK - 1]);
  }
#pragma unroll
  for (int tile = 2 * column; tile < 2 * column + 2; ++tile) {
    const uint32_t place = swizzled(i, tile) + 4 * pair;
#pragma unroll
    for (int head = 0; head < SERVED; ++head) {
      const float2 columns =
          *reinterpret_cast<const float2*>(&shared.within[head][8 * tile + 2 * pair]);
      const float x = sums[4 * tile + 2 * half] * (rows[head] * columns.x);
      const float y = sums[4 * tile + 2 * half + 1] * (rows[head] * columns.y);
      store_pair<IS_SCORE>(shared, head, place, x, y);
    }
  }
}

// Block (block, block): scores up to the diagonal, or what is below it, transposed, to `corners`.
template <bool IS_SCORE>
__device__ __forceinline__ void fade_corner(SolveMemory& shared, int i, int block,
                                            const float (&factors)[SERVED],
                                            const float (&sums)[32], int half) {
  const int pair = threadIdx.x % 4;
#pragma unroll
  for (int tile = 2 * block; tile < 2 * block + 2; ++tile) {
    const int j = 8 * tile + 2 * pair;
#pragma unroll
    for (int head = 0; head < SERVED; ++head) {
      const float2 later = shared.elapsed[head][i];
      const float4 earlier = *reinterpret_cast<const float4*>(&shared.elapsed[head][j]);
      const float fade_x = fade_between(later, {earlier.x, earlier.y});
      const float fade_y = fade_between(later, {earlier.z, earlier.w});
      const float x = sums[4 * tile + 2 * half] * factors[head] * fade_x;
      const float y = sums[4 * tile + 2 * half + 1] * factors[head] * fade_y;
      if (IS_SCORE) {
        const uint32_t place = swizzled(i, tile) + 4 * pair;
        store_pair<true>(shared, head, place, j <= i ? x : 0.0f, j < i ? y : 0.0f);
      } else {
        float* corner = shared.corners[head][block] + j % BLOCK * BLOCK + i % BLOCK;
        corner[0] = j < i ? x : 0.0f;
        corner[BLOCK] = j + 1 < i ? y : 0.0f;
      }
    }
  }
}

// Scores above the diagonal, which a product of whole tiles reads.
__device__ __forceinline__ void clear_block(SolveMemory& shared, int i, int column) {
#pragma unroll
  for (int tile = 2 * column; tile < 2 * column + 2; ++tile) {
#pragma unroll
    for (int head = 0; head < SERVED; ++head) {
      store_pair<true>(shared, head, swizzled(i, tile) + threadIdx.x % 4 * 4, 0.0f, 0.0f);
    }
  }
}

// From K K^T (of the first warpgroup) A below the diagonal, from Q K^T (of the second) the scores.
template <bool IS_SCORE>
__device__ __forceinline__ void fade_products(SolveMemory& shared, int block, float scale,
                                              const float (&sums)[32]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = BLOCK * block + threadIdx.x % 32 / 4 + 8 * half;
    float factors[SERVED];
#pragma unroll
    for (int head = 0; head < SERVED; ++head) {
      factors[head] = IS_SCORE ? scale : shared.beta[head][i];
    }
#pragma unroll
    for (int column = 0; column < BLOCKS; ++column) {
      if (column < block) fade_block<IS_SCORE>(shared, i, column, factors, sums, half);
      if (column == block) fade_corner<IS_SCORE>(shared, i, column, factors, sums, half);
      if (IS_SCORE && column > block) clear_block(shared, i, column);
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
      const float4 a = *reinterpret_cast<const float4*>(corner + step * BLOCK + 4 * quad);
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
      *reinterpret_cast<float4*>(corner + column * BLOCK + i) = quad;
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

// Columns [16 m, +16) times factors of these columns.
__device__ __forceinline__ Terms split_block(const float (&rows)[8][4], int m, float2 left,
                                             float2 right) {
  const float(&x)[4] = rows[2 * m];
  const float(&y)[4] = rows[2 * m + 1];
  Terms terms;
  split(x[0] * left.x, x[1] * left.y, terms.high[0], terms.low[0]);
  split(x[2] * left.x, x[3] * left.y, terms.high[1], terms.low[1]);
  split(y[0] * right.x, y[1] * right.y, terms.high[2], terms.low[2]);
  split(y[2] * right.x, y[3] * right.y, terms.high[3], terms.low[3]);
  return terms;
}

// Three of the four products of two terms, each with sums of its own: the chain is shorter.
struct Sums {
  float x[3][2][4];
  __device__ float operator[](int i) const {  // of 8
    return x[0][i / 4][i % 4] + (x[1][i / 4][i % 4] + x[2][i / 4][i % 4]);
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
    multiply_f16(sums.x[2][half], terms.high, low[2 * half], low[2 * half + 1]);
  }
}

// rows [16 x 64] = rows [16 block, +16) of the transposed inverse of I + A, Y. With D the inverses
// of the corners: Y_i = -(sum of Y_m A_im^T over m < i) D_i^T, block after block.
__device__ __forceinline__ void merge_corners(SolveMemory& shared, int head, int block,
                                              float (&rows)[8][4]) {
  const int group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
  const float2 one = {1.0f, 1.0f};
#pragma unroll
  for (int i = 0; i < BLOCKS; ++i) {
    if (i == block) {
      const float* corner = shared.corners[head][i] + 2 * pair;
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int row = group + part % 2 * 8, column = part / 2 * 8;
        const float2 xy = *reinterpret_cast<const float2*>(corner + row * BLOCK + column);
        rows[2 * i + part / 2][part % 2 * 2] = xy.x;
        rows[2 * i + part / 2][part % 2 * 2 + 1] = xy.y;
      }
    } else if (i > block) {
      Sums sums = {}, merged = {};
#pragma unroll
      for (int m = 0; m < BLOCKS; ++m) {
        if (m < block || m >= i) continue;
        multiply_block(shared, head, i, m, split_block(rows, m, one, one), sums);
      }
      float negated[8][4];
#pragma unroll
      for (int part = 0; part < 8; ++part) negated[part / 4][part % 4] = -sums[part];
      multiply_block(shared, head, i, i, split_block(negated, 0, one, one), merged);
#pragma unroll
      for (int part = 0; part < 8; ++part) rows[2 * i + part / 4][part % 4] = merged[part];
    }
  }
}

// sums = rows scores^T: [j][i], what the residual of token j adds to output i.
__device__ __forceinline__ void multiply_scores(const uint8_t* scores,
                                                const float (&rows)[8][4], float (&sums)[32]) {
  Terms terms[BLOCKS];
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m) {
    terms[m] = split_block(rows, m, {1.0f, 1.0f}, {1.0f, 1.0f});
  }
  const uint64_t tile = describe_tile(scores);
  begin_products();
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m) {
    multiply_f16(sums, terms[m].low, at_step(tile, m), m > 0);
    multiply_f16(sums, terms[m].high, at_step(tile, m), true);
  }
  commit_products();
  wait_products<0>(sums);
}

// sums = (rows with the decay to the chunk's end) keys: [j][key], what the residual of token j adds
// to the state.
__device__ __forceinline__ void multiply_remaining(SolveMemory& shared, int head,
                                                   const float (&rows)[8][4], float (&sums)[64]) {
  Terms terms[BLOCKS];
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m) {
    const float* remaining = shared.remaining[head] + BLOCK * m + threadIdx.x % 4 * 2;
    terms[m] = split_block(rows, m, *reinterpret_cast<const float2*>(remaining),
                           *reinterpret_cast<const float2*>(remaining + 8));
  }
  const uint64_t keys = describe_rows(shared.keys[0], TILE_BYTES);
  begin_products();
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m) {
    multiply_rows_f16(sums, terms[m].low, at_rows(keys, m), m > 0);
    multiply_rows_f16(sums, terms[m].high, at_rows(keys, m), true);
  }
  commit_products();
  wait_products<0>(sums);
}

// Rows [16 block, +16) of a tile, from 64 columns of sums.
template <int N>
__device__ __forceinline__ void store_rows(uint8_t* tile, int block, const float (&sums)[N],
                                           int first) {
  const int row = BLOCK * block + threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float* x = sums + first + 4 * i;
    uint8_t* place = tile + 4 * pair;
    *reinterpret_cast<uint32_t*>(place + swizzled(row, i)) = pack_f16(x[0], x[1]);
    *reinterpret_cast<uint32_t*>(place + swizzled(row + 8, i)) = pack_f16(x[2], x[3]);
  }
}

// A warpgroup's v head from the corners' inverses on, a warp 16 rows j.
__device__ __forceinline__ void solve_head(SolveMemory& shared, int head, int block) {
  float rows[8][4] = {};
  merge_corners(shared, head, block, rows);
  const float* beta = shared.beta[head] + BLOCK * block + threadIdx.x % 32 / 4;
  const float strengths[2] = {beta[0], beta[8]};
#pragma unroll
  for (int i = 0; i < 32; ++i) rows[i / 4][i % 4] *= strengths[i % 4 / 2];
  float reads[32], writes[64];
  multiply_scores(shared.scores[head], rows, reads);
  sync_threads_of(1 + head, 128);  // all have read what is overwritten from here on
  store_rows(shared.scores[head], block, reads, 0);
  multiply_remaining(shared, head, rows, writes);
  store_rows(shared.below[head][0], block, writes, 0);
  store_rows(shared.below[head][1], block, writes, 32);
}

}  // namespace
