// The two products of a tile of rows and the online softmax between them.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "async_copy.cuh"
#include "fast_math.cuh"
#include "magnitudes.cuh"
#include "named_barrier.cuh"
#include "plan.cuh"
#include "tensor_core.cuh"

namespace {

// The assembler computes an address anew, in the chain, wherever it is used; what a shuffle gave it
// keeps in a register.
__device__ __forceinline__ uint32_t keep(uint32_t x) {
  return __shfl_sync(~0u, x, threadIdx.x % 32);
}

// My warp's half of the columns of the queries, as first operands.
struct Query {
  uint32_t steps[PART_STEPS][4];
};

// In q K^T: the block of a tile whose rows my warp takes, and which half of the columns. The two
// warps of a block are neighbours, on two schedulers: one tensor core would take both in turns
// where a tile has one block.
__device__ __forceinline__ int my_block(uint32_t thread) { return thread / 32 / HALVES; }
__device__ __forceinline__ int my_half(uint32_t thread) { return thread / 32 % HALVES; }

// The first of the two neighbouring rows of a tile whose logits I weigh: of my block, the eight
// rows of my half.
__device__ __forceinline__ int my_row(uint32_t thread) {
  return BLOCK * my_block(thread) + 8 * my_half(thread) + thread % 4 * 2;
}

// Step `step` of my half of the columns, given the first one's place: two steps a line.
__device__ __forceinline__ uint32_t place_of_step(uint32_t first, int step) {
  return (first ^ 32 * (step % 2)) + LINE * (step / 2);
}

// Where a lane finds its operands in shared memory, of the first stage.
struct Places {
  uint32_t keys;     // my first step's
  uint32_t values;   // my warp's columns of row lane % 16
  uint32_t weights;  // those of head lane % 16
};

template <typename Shared>
__device__ __forceinline__ Places find_places(const Shared& shared, uint32_t thread) {
  const int lane = thread % 32, warp = thread / 32;
  const uint32_t tile = shared_address(shared.tiles[0]);
  const int row = BLOCK * my_block(thread) + lane % 8 + lane / 16 * 8;
  return {keep(tile + place_of_chunk(row, 4 * my_half(thread) + lane / 8 % 2)),
          keep(tile + place_of_chunk(lane % 16, LINE / CHUNK * warp + lane / 16)),
          keep(shared_address(shared.weights) + lane % 16 * WEIGHT_ROW + lane / 16 * 16)};
}

// The 16 validity bits of my block.
__device__ __forceinline__ uint32_t bits_of_mine(uint32_t thread, uint64_t valid) {
  const uint32_t half = my_block(thread) < TILE_BLOCKS / 2 ? valid : valid >> 32;
  return half >> BLOCK * (my_block(thread) % 2) & 0xffff;
}

__device__ __forceinline__ void load_query(Query& loaded, const uint8_t* query, uint32_t thread) {
  const int lane = thread % 32;
  const uint32_t from =
      shared_address(query) + place_of_chunk(lane % 16, 4 * my_half(thread) + lane / 16);
#pragma unroll
  for (int step = 0; step < PART_STEPS; ++step) {
    load_tiles(loaded.steps[step], place_of_step(from, step));
  }
}

// Logits [head][row], without the scale: heads lane / 4 and eight on, rows my_row() and one on.
struct Logits {
  float low[2], high[2];
};

// The exponent, as fp32 has it, of the largest of the warp's magnitudes, two a lane.
__device__ __forceinline__ float largest_exponent(uint32_t magnitudes) {
  const uint32_t first = magnitudes << 16 & 0x7fff0000, second = magnitudes & 0x7fff0000;
  const uint32_t exponent = __reduce_max_sync(~0u, first > second ? first : second) >> 23;
  constexpr uint32_t TWO_TO_23 = 0x4b000000;  // in fp32, whose last bit counts 1
  return __uint_as_float(TWO_TO_23 | exponent) - __uint_as_float(TWO_TO_23);
}

// Sums over my half of the columns, of the eight rows of my block that I keep.
using Kept = float[4];

// Half of the sum over columns is the other half's warp's: each of the two ends with eight rows.
// Between giving and taking the two meet.
template <typename Shared>
__device__ __forceinline__ void give_half(Shared& shared, uint32_t thread, int tile,
                                          const float (&sums)[2][4], Kept& kept) {
  const bool keeps_second = my_half(thread) == 1;
  float give[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    kept[i] = keeps_second ? sums[1][i] : sums[0][i];
    give[i] = keeps_second ? sums[0][i] : sums[1][i];
  }
  shared.halves[tile][thread / 32 ^ 1][thread % 32] = {give[0], give[1], give[2], give[3]};
}

__device__ __forceinline__ void meet_other_half(uint32_t thread) {
  sync_threads_of(2 + my_block(thread), 64);
}

template <typename Shared>
__device__ __forceinline__ Logits take_half(const Shared& shared, uint32_t thread, int tile,
                                            const Kept& kept) {
  const float4 got = shared.halves[tile][thread / 32][thread % 32];
  return {{kept[0] + got.x, kept[1] + got.y}, {kept[2] + got.z, kept[3] + got.w}};
}

// My half of q K^T of my block's rows, which begin at `from`: three chains of products for each
// eight rows, keys loaded a batch ahead. magnitude: the largest of those that are values as well,
// by four chains, since one would be longer than those of products.
template <typename Shared>
__device__ __forceinline__ void score(Shared& shared, uint32_t thread, int tile, uint32_t from,
                                      const Query& query, Kept& kept, uint32_t& magnitude) {
  constexpr int BATCH = 6, CHAINS = 3, BATCHES = PART_STEPS / BATCH;
  uint32_t keys[2][BATCH][4];
  float chains[CHAINS][2][4] = {};  // [step mod CHAINS][eight rows]
  uint32_t magnitudes[4] = {magnitude};
#pragma unroll
  for (int i = 0; i < BATCH; ++i) load_tiles(keys[0][i], place_of_step(from, i));
#pragma unroll
  for (int batch = 0; batch < BATCHES; ++batch) {
    if (batch + 1 < BATCHES) {
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        load_tiles(keys[(batch + 1) % 2][i], place_of_step(from, BATCH * (batch + 1) + i));
      }
    }
    // Holds the next batch's loads here. The assembler would put them in front of all products, and
    // has fewer counters than batches: a product would wait for loads that it does not need.
    __syncwarp();
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const int step = BATCH * batch + i;
      const uint32_t(&key)[4] = keys[batch % 2][i];
      multiply_bf16(chains[step % CHAINS][0], query.steps[step], key[0], key[1]);
      multiply_bf16(chains[step % CHAINS][1], query.steps[step], key[2], key[3]);
      if constexpr (Shared::SCALED) {
        if (step >= VALUE_STEPS) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j) magnitudes[j] = larger_magnitudes(magnitudes[j], key[j]);
      }
    }
  }
  magnitude = larger_magnitudes(larger_magnitudes(magnitudes[0], magnitudes[1]),
                                larger_magnitudes(magnitudes[2], magnitudes[3]));
  float sums[2][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[0][i] = (chains[0][0][i] + chains[1][0][i]) + chains[2][0][i];
    sums[1][i] = (chains[0][1][i] + chains[1][1][i]) + chains[2][1][i];
  }
  give_half(shared, thread, tile, sums, kept);
}

// The running softmax of the two heads that are mine in logits and sums alike, lane / 4 and eight
// on: maximum of all rows, sum of the rows that I weighed, and the power of two that all weights
// are multiplied by.
struct Softmax {
  float top[2], sum[2], shift;
};

__device__ __forceinline__ float largest_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float largest(const float (&tops)[WARPS]) {
  const float4 a = reinterpret_cast<const float4*>(tops)[0];
  const float4 b = reinterpret_cast<const float4*>(tops)[1];
  return fmaxf(fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)), fmaxf(fmaxf(b.x, b.y), fmaxf(b.z, b.w)));
}

struct Fade {
  float of[2];  // what sums so far still count, by my two heads
};

// Of COUNT tiles at once: validity bits of my block's rows, and their logits.
template <int COUNT>
struct Weighing {
  uint32_t mine[COUNT];
  Logits logits[COUNT];
};

// Logits with the scale, -inf where there is no entry.
template <int COUNT>
struct Scaled {
  float of[COUNT][2][2];  // [tile][head][row]
};

// The largest of each head's logits, and the exponent of the largest value, for all warps.
template <int COUNT, typename Shared>
__device__ __forceinline__ Scaled<COUNT> share_tops(Shared& shared, uint32_t thread, float scale,
                                                    const Weighing<COUNT>& tiles,
                                                    uint32_t magnitude) {
  const int lane = thread % 32, warp = thread / 32, head = lane / 4;
  Scaled<COUNT> scaled;
  float tops[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int t = 0; t < COUNT; ++t) {
    const uint32_t pair = tiles.mine[t] >> my_row(thread) % BLOCK;
    const Logits& logits = tiles.logits[t];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool counts = (pair >> i & 1) != 0;
      scaled.of[t][0][i] = counts ? logits.low[i] * scale : -INFINITY;
      scaled.of[t][1][i] = counts ? logits.high[i] * scale : -INFINITY;
      tops[0] = fmaxf(tops[0], scaled.of[t][0][i]);
      tops[1] = fmaxf(tops[1], scaled.of[t][1][i]);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) tops[i] = largest_of_quad(tops[i]);
  const float exponent = Shared::SCALED ? largest_exponent(magnitude) : 0.0f;
  if (lane % 4 == 0) {
    shared.tops[head][warp] = tops[0];
    shared.tops[head + 8][warp] = tops[1];
  }
  if (Shared::SCALED && lane == 0) shared.exponents[warp] = exponent;
  return scaled;
}

// Weights from logits, of all COUNT tiles or of the first one; shifts: sums are sent. The barrier
// in front has all warps' maxima, the one at the end all weights, and what sums of the run are
// stored. load(): other loads from shared memory, behind those of the maxima: in front they would
// hold up the maxima of the warps that come last.
template <int COUNT, typename Shared, typename Load>
__device__ __forceinline__ Fade weigh(Shared& shared, uint32_t thread, bool all, bool shifts,
                                      const Scaled<COUNT>& scaled, Softmax& softmax, Load load) {
  const int lane = thread % 32, warp = thread / 32, head = lane / 4;
  sync_first<COMPUTING>();
  // All loads, then all maxima and powers, then all stores: no load or power crosses a store.
  const float highest[2] = {largest(shared.tops[head]), largest(shared.tops[head + 8])};
  const float before = softmax.shift;
  if (Shared::SCALED) {
    // Loaded whether or not: behind a branch it would wait for the maxima.
    const float least = fminf(softmax.shift, Shared::SHIFT - largest(shared.exponents));
    softmax.shift = shifts ? least : 0.0f;
  }
  load();
  Fade fade;
  float anchors[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float top = fmaxf(softmax.top[i], highest[i]);
    anchors[i] = (top == -INFINITY ? 0.0f : top) - softmax.shift;
    fade.of[i] = exp2_approx(softmax.top[i] - before - anchors[i]);
    softmax.top[i] = top;
    // Where all tiles come at once there is nothing to fade.
    if (COUNT == 1) softmax.sum[i] *= fade.of[i];
  }
#pragma unroll
  for (int t = 0; t < COUNT; ++t) {
    if (t > 0 && !all) break;
    float weights[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) weights[i][j] = exp2_approx(scaled.of[t][i][j] - anchors[i]);
      softmax.sum[i] += weights[i][0] + weights[i][1];
    }
    uint8_t* to = &shared.weights[head * WEIGHT_ROW + 2 * (TILE * t + my_row(thread))];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<__nv_bfloat162*>(to + 8 * WEIGHT_ROW * i) =
          __floats2bfloat162_rn(weights[i][0], weights[i][1]);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    // The places of warps are permuted by head: eight heads of a warp lie in eight groups of banks.
    reinterpret_cast<float*>(&shared.sums[head + 8 * i][warp ^ head])[lane % 4] = softmax.sum[i];
    if (warp == 0 && lane % 4 == 0) {
      shared.anchor[head + 8 * i] = softmax.top[i] - softmax.shift;
    }
  }
  sync_first<COMPUTING>();
  return fade;
}

// By the helping warps, a quarter-warp a head, once the last sums are stored: what all lanes and
// warps have weighed.
template <typename Shared>
__device__ __forceinline__ float total_of(const Shared& shared, int head) {
  const float4 quad = shared.sums[head][threadIdx.x % 8];
  float total = (quad.x + quad.y) + (quad.z + quad.w);
#pragma unroll
  for (int mask = 4; mask > 0; mask /= 2) total += __shfl_xor_sync(~0u, total, mask);
  return total;
}

// Of my warp's 64 columns, by groups of eight; the last group's columns are all the sum of the
// weights, as rounded, which costs no exchange.
using Sums = float[9][4];
constexpr uint32_t ONES = 0x3f803f80;  // two of bf16

__device__ __forceinline__ void fade_sums(Sums& acc, const Fade& fade) {
#pragma unroll
  for (int group = 0; group < 9; ++group) {
    acc[group][0] *= fade.of[0], acc[group][1] *= fade.of[0];
    acc[group][2] *= fade.of[1], acc[group][3] *= fade.of[1];
  }
}

// acc += weights ckv of COUNT neighbouring blocks: all loads in front of all products. GROUPS of
// eight columns from FIRST_GROUP on.
template <int COUNT, int FIRST_GROUP, int GROUPS>
__device__ __forceinline__ void accumulate_blocks(uint32_t weights, uint32_t values, Sums& acc) {
  constexpr int PAIRS = GROUPS / 2;
  uint32_t p[COUNT][4], v[COUNT][PAIRS][4];
#pragma unroll
  for (int block = 0; block < COUNT; ++block) {
    load_tiles(p[block], weights + 2 * BLOCK * block);
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
      const uint32_t from = values ^ CHUNK * (FIRST_GROUP + 2 * pair);
      load_tiles_transposed(v[block][pair], from + BLOCK * block * ROW);
    }
  }
#pragma unroll
  for (int block = 0; block < COUNT; ++block) {
    // First, since the division of a token alone waits for it.
    if (GROUPS == 8) multiply_bf16(acc[8], p[block], ONES, ONES);
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
      const uint32_t(&value)[4] = v[block][pair];
      const int group = FIRST_GROUP + 2 * pair;
      multiply_bf16(acc[group], p[block], value[0], value[1]);
      multiply_bf16(acc[group + 1], p[block], value[2], value[3]);
    }
  }
}

// Operands of a tile's second product, by blocks.
struct Loaded {
  uint32_t weights[TILE_BLOCKS][4];
  uint32_t values[TILE_BLOCKS][4][4];  // [block][pair of groups]
};

__device__ __forceinline__ void load_weights(Loaded& loaded, uint32_t from, int block) {
  load_tiles(loaded.weights[block], from + 2 * BLOCK * block);
}

// Of GROUPS of eight columns from FIRST_GROUP on.
template <int FIRST_GROUP, int GROUPS>
__device__ __forceinline__ void load_values(Loaded& loaded, uint32_t from, int block) {
#pragma unroll
  for (int pair = FIRST_GROUP / 2; pair < (FIRST_GROUP + GROUPS) / 2; ++pair) {
    load_tiles_transposed(loaded.values[block][pair],
                          (from ^ 2 * CHUNK * pair) + BLOCK * block * ROW);
  }
}

template <int FIRST_GROUP, int GROUPS>
__device__ __forceinline__ void multiply_block(const Loaded& loaded, int block, Sums& acc) {
#pragma unroll
  for (int group = FIRST_GROUP; group < FIRST_GROUP + GROUPS; ++group) {
    const uint32_t(&value)[4] = loaded.values[block][group / 2];
    multiply_bf16(acc[group], loaded.weights[block], value[group % 2 * 2],
                  value[group % 2 * 2 + 1]);
  }
}

// acc += weights ckv of a tile, and the sum of the weights. Weights are loaded, and the first
// block's values; from: where values lie. The other blocks' are loaded while those in front are
// multiplied.
__device__ __forceinline__ void multiply_alone(Loaded& loaded, uint32_t from, uint64_t valid,
                                               Sums& acc) {
#pragma unroll
  for (int block = 0; block < TILE_BLOCKS; ++block) {
    const int next = block + 1;
    if (next < TILE_BLOCKS && has_block(valid, next)) load_values<0, 8>(loaded, from, next);
    if (has_block(valid, block)) {
      multiply_bf16(acc[8], loaded.weights[block], ONES, ONES);
      multiply_block<0, 8>(loaded, block, acc);
    }
    // Usually there is one block at most: one branch instead of three and the loads.
    if (block == 0 && valid >> BLOCK == 0) break;
  }
}

// acc += weights ckv of two tiles, GROUPS of eight columns from FIRST_GROUP on; second: operands of
// the second tile, both of whose halves count whole, as zeros stand for other rows. Its weights are
// loaded with the first groups, half by half while blocks in front are multiplied.
template <int FIRST_GROUP, int GROUPS>
__device__ __forceinline__ void multiply_both(Loaded& first, Loaded& second, const Places& places,
                                              const uint64_t (&valid)[STAGES], Sums& acc) {
  const uint32_t values = places.values + TILE * ROW, weights = places.weights + 2 * TILE;
  const bool has_half[2] = {static_cast<uint32_t>(valid[1]) != 0, valid[1] >> 32 != 0};
#pragma unroll
  for (int block = 0; block < TILE_BLOCKS; ++block) {
    const int next = block + 1, half = block - TILE_BLOCKS / 2;
    if (next < TILE_BLOCKS && has_block(valid[0], next)) {
      load_values<FIRST_GROUP, GROUPS>(first, places.values, next);
    }
    if (half >= 0 && has_half[half]) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        if (FIRST_GROUP == 0) load_weights(second, weights, i);
        load_values<FIRST_GROUP, GROUPS>(second, values, i);
      }
    }
    if (has_block(valid[0], block)) multiply_block<FIRST_GROUP, GROUPS>(first, block, acc);
  }
  if (valid[1] == 0) return;
#pragma unroll
  for (int block = 0; block < TILE_BLOCKS; ++block) {
    if (has_half[block / 2]) multiply_block<FIRST_GROUP, GROUPS>(second, block, acc);
  }
}

// acc += weights ckv of all halves of a tile with a valid row. Operands are loaded and used in one
// branch: between two they would hold their registers throughout the loop.
template <int FIRST_GROUP, int GROUPS>
__device__ __forceinline__ void accumulate(uint32_t weights, uint32_t values, uint64_t valid,
                                           Sums& acc) {
#pragma unroll
  for (int first = 0; first < TILE; first += 2 * BLOCK) {
    const uint32_t rows = static_cast<uint32_t>(valid >> first);
    if (rows == 0) continue;
    if (rows >> BLOCK == 0) {
      accumulate_blocks<1, FIRST_GROUP, GROUPS>(weights + 2 * first, values + first * ROW, acc);
    } else {
      accumulate_blocks<2, FIRST_GROUP, GROUPS>(weights + 2 * first, values + first * ROW, acc);
    }
  }
}

}  // namespace
