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
// Tokens of a CTA, behind tiles of few or of many tokens: a quarter of these have a sum to be
// written. A CTA reads all of its slots at once, and of many tokens finds several sums there.
constexpr int FEW_SUMMED = 4, MANY_SUMMED = 16, MOST_SUMMED_FEW = 512;

static_assert(COMBINE_PARTS * COMBINERS * COMBINED == HIDDEN, "parts of a row are equal");

struct CombineArgs {
  Routing routing;
  const __nv_bfloat16* expert_out;  // [capacity, 7168]
  __nv_bfloat16* output;            // [T, 7168]
  int num_tokens;
  Told told;                        // by the launch before, if it routes
  int told_words;                   // of `locals`, `ticket` and `done`, which lie in a row
};

// A slot of a token: packed row, -1 where it has none, and weight.
struct WeighedRow {
  int row;
  float weight;
};

// sums += the columns of up to BATCH slots of a token's, which are requested together; `left` loses
// them.
__device__ __forceinline__ void add_slots(const CombineArgs& args, const WeighedRow* slots,
                                          int column, uint32_t& left, float (&sums)[COMBINED]) {
  uint4 parts[BATCH];
  float weights[BATCH];
#pragma unroll
  for (int i = 0; i < BATCH; ++i) {
    const bool is_left = left != 0;
    const WeighedRow of = slots[is_left ? __ffs(left) - 1 : 0];
    weights[i] = is_left ? of.weight : 0.0f;
    parts[i] = uint4{};
    if (is_left) {
      const __nv_bfloat16* row = args.expert_out + int64_t{of.row} * HIDDEN;
      parts[i] = *reinterpret_cast<const uint4*>(row + column);
    }
    left &= left - 1;
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

// The sum of a token's slots that have rows.
__device__ __forceinline__ void write_sum(const CombineArgs& args, const WeighedRow* slots,
                                          int64_t token, int column, uint32_t with_rows) {
  float sums[COMBINED] = {};
  while (with_rows != 0) add_slots(args, slots, column, with_rows, sums);
  __nv_bfloat162 rounded[COMBINED / 2];
#pragma unroll
  for (int i = 0; i < COMBINED / 2; ++i) {
    rounded[i] = __floats2bfloat162_rn(sums[2 * i], sums[2 * i + 1]);
  }
  *reinterpret_cast<uint4*>(args.output + token * HIDDEN + column) =
      *reinterpret_cast<const uint4*>(rounded);
}

// Grid: (T / TOKENS, 7) rounded up. TOLD: the launch before has routed. Of several tokens a CTA,
// behind tiles, those with less than two slots have been written.
template <bool TOLD, int TOKENS>
__global__ void __launch_bounds__(COMBINERS)
    combine_kernel(const __grid_constant__ CombineArgs args) {
  constexpr int SLOTS = TOKENS * TOP_K;
  static_assert(SLOTS <= COMBINERS, "a thread a slot");
  __shared__ WeighedRow slots[SLOTS];
  const int64_t first_token = int64_t{blockIdx.x} * TOKENS, first_slot = first_token * TOP_K;
  const int column = (blockIdx.y * COMBINERS + threadIdx.x) * COMBINED;
  const int tokens = min(TOKENS, static_cast<int>(args.num_tokens - first_token));
  const int thread = threadIdx.x, lane = thread % 32, count = tokens * TOP_K;
  if (thread - lane < SLOTS) {  // whole warps
    const WeighedRow mine = read_slot<TOLD>(args, first_slot + min(thread, count - 1));
    if (thread < count) slots[thread] = mine;
  }
  wait_for_launches_before();
  __syncthreads();
#pragma unroll 1
  for (int i = 0; i < tokens; ++i) {
    const WeighedRow* of_token = slots + i * TOP_K;
    const bool has_row = of_token[lane % TOP_K].row >= 0;
    uint32_t with_rows = __ballot_sync(FULL, has_row) & ((1u << TOP_K) - 1);
    if (TOKENS > 1 && (with_rows & (with_rows - 1)) == 0) continue;
    write_sum(args, of_token, first_token + i, column, with_rows);
    if constexpr (TOKENS == 1) {
      for (; with_rows != 0; with_rows &= with_rows - 1) {
        forget_row(args, of_token[__ffs(with_rows) - 1].row);
      }
    }
  }
  // The last CTAs of the grid: few have to wait before they read.
  if (TOLD && blockIdx.y == COMBINE_PARTS - 1) forget(args, first_slot, count);
}

}  // namespace
