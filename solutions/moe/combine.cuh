// The last step: each token's sum over its local experts, in the order of its slots. Behind tiles
// those of two or more: tiles write the outputs of the others.
#pragma once

#include "plan.cuh"
#include "programmatic_launch.cuh"
#include "tagged_words.cuh"

namespace {

constexpr int COMBINERS = 128, COMBINED = 8;  // threads, and columns of each
constexpr int BATCH = 4;                      // few tokens have more local experts
constexpr int COMBINE_PARTS = HIDDEN / (COMBINERS * COMBINED);
// Of a CTA. Behind tiles a quarter of the tokens have a sum to be written, where each would be too
// little for a CTA: most would begin, see that there is nothing to do, and end.
template <bool TILES>
constexpr int COMBINED_TOKENS = TILES ? 32 / TOP_K : 1;

static_assert(COMBINE_PARTS * COMBINERS * COMBINED == HIDDEN, "parts of a row are equal");

struct CombineArgs {
  Routing routing;
  const __nv_bfloat16* expert_out;  // [capacity, 7168]
  __nv_bfloat16* output;            // [T, 7168]
  int num_tokens;
  Told told;                        // by the launch before, if it routes
  int told_words;                   // of `locals`, `ticket` and `done`, which lie in a row
};

// A slot of a token, one a lane: packed row, -1 where it has none, and weight.
struct WeighedRow {
  int row;
  float weight;
};

// sums += the columns of up to BATCH slots, which are requested together; `slots` loses them.
__device__ __forceinline__ void add_slots(const CombineArgs& args, const WeighedRow& mine,
                                          int column, uint32_t& slots, float (&sums)[COMBINED]) {
  uint4 parts[BATCH];
  float weights[BATCH];
#pragma unroll
  for (int i = 0; i < BATCH; ++i) {
    const bool is_left = slots != 0;
    const int slot = is_left ? __ffs(slots) - 1 : 0;
    const int64_t row = __shfl_sync(FULL, mine.row, slot);
    const float weight = __shfl_sync(FULL, mine.weight, slot);
    weights[i] = is_left ? weight : 0.0f;
    parts[i] = is_left ? *reinterpret_cast<const uint4*>(args.expert_out + row * HIDDEN + column)
                       : uint4{};
    slots &= slots - 1;
  }
#pragma unroll
  for (int i = 0; i < BATCH; ++i) {
    const uint32_t pairs[4] = {parts[i].x, parts[i].y, parts[i].z, parts[i].w};
#pragma unroll
    for (int k = 0; k < COMBINED; ++k) {
      const uint32_t bits = k % 2 ? pairs[k / 2] & 0xffff0000 : pairs[k / 2] << 16;
      sums[k] += weights[i] * __uint_as_float(bits);
    }
  }
}

// Slots are read before the launch before has ended. Those of launches that route and pack come
// from what ended before this one could begin; TOLD ones that are not told yet, once it has ended.
template <bool TOLD>
__device__ __forceinline__ WeighedRow read_slot(const CombineArgs& args, int64_t slot) {
  if (!TOLD) return {args.routing.slot_row[slot], args.routing.slot_weight[slot]};
  uint4 words = load_relaxed(args.told.slots + slot);
  if (__ballot_sync(FULL, !has_nonce(words, args.told.nonce)) != 0) {
    wait_for_launches_before();
    words = load_relaxed(args.told.slots + slot);
  }
  return {static_cast<int>(words.x), __uint_as_float(words.z)};
}

// After these a packed row of C is garbage again, a part of the row for each of its token's CTAs.
__device__ __forceinline__ void forget_row(const CombineArgs& args, int64_t row) {
  for (int i = blockIdx.y * COMBINERS + threadIdx.x; i < C_WORDS; i += COMBINE_PARTS * COMBINERS) {
    args.told.c[row * C_WORDS + i] = {};
  }
}

// All else that was told is. Row and weight of the slots stay: other CTAs may have to read them
// yet.
__device__ __forceinline__ void forget(const CombineArgs& args, int64_t first_slot, int slots) {
  uint64_t* words = reinterpret_cast<uint64_t*>(args.told.locals);
  const int step = gridDim.x * COMBINERS;
  for (int i = blockIdx.x * COMBINERS + threadIdx.x; i < args.told_words; i += step) words[i] = 0;
  if (threadIdx.x < slots) {
    uint4* slot = args.told.slots + first_slot + threadIdx.x;
    slot->y = 0, slot->w = 0;
  }
}

// The sum of a token's slots.
__device__ __forceinline__ void write_sum(const CombineArgs& args, const WeighedRow& mine,
                                          int64_t token, int column, uint32_t slots) {
  float sums[COMBINED] = {};
  while (slots != 0) add_slots(args, mine, column, slots, sums);
  __nv_bfloat162 rounded[COMBINED / 2];
#pragma unroll
  for (int i = 0; i < COMBINED / 2; ++i) {
    rounded[i] = __floats2bfloat162_rn(sums[2 * i], sums[2 * i + 1]);
  }
  *reinterpret_cast<uint4*>(args.output + token * HIDDEN + column) =
      *reinterpret_cast<const uint4*>(rounded);
}

// Grid: (T / COMBINED_TOKENS, 7) rounded up. TOLD: the launch before has routed. TILES: it has
// written all tokens with less than two slots.
template <bool TOLD, bool TILES>
__global__ void __launch_bounds__(COMBINERS)
    combine_kernel(const __grid_constant__ CombineArgs args) {
  constexpr int TOKENS = COMBINED_TOKENS<TILES>, SLOTS = TOKENS * TOP_K;
  constexpr uint32_t OF_TOKEN = (1u << TOP_K) - 1;
  const int64_t first_token = int64_t{blockIdx.x} * TOKENS, first_slot = first_token * TOP_K;
  const int column = (blockIdx.y * COMBINERS + threadIdx.x) * COMBINED;
  const int tokens = min(TOKENS, static_cast<int>(args.num_tokens - first_token));
  const int slot = threadIdx.x % SLOTS, count = tokens * TOP_K;
  const WeighedRow mine = read_slot<TOLD>(args, first_slot + min(slot, count - 1));
  const uint32_t slots = __ballot_sync(FULL, mine.row >= 0);
  wait_for_launches_before();
#pragma unroll 1
  for (int i = 0; i < tokens; ++i) {
    const uint32_t of_token = slots & OF_TOKEN << TOP_K * i;
    if (TILES && (of_token & (of_token - 1)) == 0) continue;
    write_sum(args, mine, first_token + i, column, of_token);
  }
  if (TOLD && !TILES) {
    for (uint32_t left = slots & OF_TOKEN; left != 0; left &= left - 1) {
      forget_row(args, __shfl_sync(FULL, mine.row, __ffs(left) - 1));
    }
  }
  // The last CTAs of the grid: few have to wait before they read.
  if (TOLD && blockIdx.y == COMBINE_PARTS - 1) forget(args, first_slot, count);
}

}  // namespace
