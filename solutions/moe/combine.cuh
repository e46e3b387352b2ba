// The last step: each token's sum over its local experts, in the order of its slots. Behind tiles
// those of two or more: tiles write the outputs of the others.
#pragma once

#include "plan.cuh"
#include "programmatic_launch.cuh"
#include "tagged_words.cuh"

namespace {

constexpr int COMBINERS = 128, COMBINED = 8;  // threads, and columns of each
constexpr int COMBINE_PARTS = HIDDEN / (COMBINERS * COMBINED);
// Tokens of a CTA behind tiles: a third of these have a sum to be written, where each would be too
// little for a CTA. It lists their rows and requests several at once, whatever tokens they are
// of. Of 16 tokens a CTA sums take longer to 900 tokens and as long at 14 000.
constexpr int SUMMED = 4;

static_assert(COMBINE_PARTS * COMBINERS * COMBINED == HIDDEN, "parts of a row are equal");

// Rows that are requested together, and CTAs an SM. Beside a CTA of stream_kernel there is room for
// one of 32 registers a thread, which is there before the former ends.
template <int TOKENS>
constexpr int BATCH = TOKENS == 1 ? 4 : 8;
template <int TOKENS>
constexpr int COMBINE_CTAS = TOKENS == 1 ? 16 : 8;

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

// What is added to a token's sum, in the order of the slots.
struct alignas(16) Addend {
  WeighedRow of;
  int token;     // of the CTA's
  bool is_last;  // of the token's
};

template <int TOKENS>
struct Addends {
  Addend list[TOKENS * TOP_K];
  int counts[COMBINERS / 32];  // of each warp
};

// A lane a slot of `count`, by whole warps. Slots are read before the launch before has ended.
// Those of launches that route and pack come from what ended before this one could begin; TOLD ones
// that are not told soon, once it has ended.
template <bool TOLD>
__device__ __forceinline__ WeighedRow read_slot(const CombineArgs& args, int64_t first_slot,
                                                int slot, int count) {
  const bool is_there = slot < count;
  if (!TOLD) {
    if (!is_there) return {-1, 0.0f};
    return {args.routing.slot_row[first_slot + slot], args.routing.slot_weight[first_slot + slot]};
  }
  constexpr int LOOKS = 4;  // few: of a CTA that begins behind another's forget() all are in vain
  uint4 words;
  for (int look = 0;; ++look) {
    words = load_relaxed(args.told.slots + first_slot + min(slot, count - 1));
    if (__all_sync(FULL, has_nonce(words, args.told.nonce)) || look == LOOKS) break;
    if (look == LOOKS - 1) wait_for_launches_before();
  }
  return {is_there ? static_cast<int>(words.x) : -1, __uint_as_float(words.z)};
}

// Lists the CTA's addends. Complete behind a barrier of the CTA.
template <bool TOLD, int TOKENS>
__device__ __forceinline__ void list_addends(const CombineArgs& args, int64_t first_slot, int count,
                                             Addends<TOKENS>& addends) {
  constexpr int SLOTS = TOKENS * TOP_K;
  static_assert(SLOTS <= COMBINERS, "a thread a slot");
  const int slot = threadIdx.x, lane = slot % 32, warp = slot / 32;
  WeighedRow mine = {-1, 0.0f};
  if (warp * 32 < SLOTS) mine = read_slot<TOLD>(args, first_slot, slot, count);
  const uint32_t with_rows = __ballot_sync(FULL, mine.row >= 0);
  const uint32_t of_token = with_rows >> (lane & -TOP_K) & ((1u << TOP_K) - 1);
  const bool is_summed = mine.row >= 0 && (TOKENS == 1 || (of_token & (of_token - 1)) != 0);
  const uint32_t listed = __ballot_sync(FULL, is_summed);
  if (lane == 0) addends.counts[warp] = __popc(listed);
  __syncthreads();
  int at = __popc(listed & ((1u << lane) - 1));
  for (int before = 0; before < warp; ++before) at += addends.counts[before];
  if (!is_summed) return;
  Addend& it = addends.list[at];
  it.of = mine, it.token = slot / TOP_K, it.is_last = of_token >> lane % TOP_K == 1;
}

__device__ __forceinline__ void add(float (&sums)[COMBINED], uint4 part, float weight) {
  const uint32_t pairs[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
  for (int k = 0; k < COMBINED; ++k) {
    const uint32_t bits = k % 2 ? pairs[k / 2] & 0xffff0000 : pairs[k / 2] << 16;
    sums[k] += weight * __uint_as_float(bits);
  }
}

// Writes sums, which are zeros from then on.
__device__ __forceinline__ void write_sums(__nv_bfloat16* output, float (&sums)[COMBINED]) {
  __nv_bfloat162 rounded[COMBINED / 2];
#pragma unroll
  for (int i = 0; i < COMBINED / 2; ++i) {
    rounded[i] = __floats2bfloat162_rn(sums[2 * i], sums[2 * i + 1]);
    sums[2 * i] = sums[2 * i + 1] = 0.0f;
  }
  *reinterpret_cast<uint4*>(output) = *reinterpret_cast<const uint4*>(rounded);
}

// After all that was told is garbage again. Row and weight of the slots stay: other CTAs may have
// to read them yet.
__device__ __forceinline__ void forget(const CombineArgs& args, int64_t first_slot, int slots) {
  uint64_t* words = reinterpret_cast<uint64_t*>(args.told.locals);
  const int step = gridDim.x * COMBINERS;
  for (int i = blockIdx.x * COMBINERS + threadIdx.x; i < args.told_words; i += step) words[i] = 0;
  if (threadIdx.x < slots) {
    uint4* slot = args.told.slots + first_slot + threadIdx.x;
    slot->y = 0, slot->w = 0;
  }
}

// Grid: (T / TOKENS, 7) rounded up. TOLD: the launch before has routed. Of several tokens a CTA,
// behind tiles, those with less than two slots have been written.
template <bool TOLD, int TOKENS>
__global__ void __launch_bounds__(COMBINERS, COMBINE_CTAS<TOKENS>)
    combine_kernel(const __grid_constant__ CombineArgs args) {
  __shared__ Addends<TOKENS> addends;
  const int64_t first_token = int64_t{blockIdx.x} * TOKENS, first_slot = first_token * TOP_K;
  const int column = (blockIdx.y * COMBINERS + threadIdx.x) * COMBINED;
  const int tokens = min(TOKENS, static_cast<int>(args.num_tokens - first_token));
  list_addends<TOLD>(args, first_slot, tokens * TOP_K, addends);
  __syncthreads();
  int count = 0;
  for (int of_warp : addends.counts) count += of_warp;
  const __nv_bfloat16* from = args.expert_out + column;
  __nv_bfloat16* output = args.output + first_token * HIDDEN + column;
  float sums[COMBINED] = {};
  wait_for_launches_before();
#pragma unroll 1
  for (int first = 0; first < count; first += BATCH<TOKENS>) {
    uint4 parts[BATCH<TOKENS>];
#pragma unroll
    for (int i = 0; i < BATCH<TOKENS>; ++i) {
      if (first + i >= count) break;
      const int64_t row = addends.list[first + i].of.row;
      parts[i] = *reinterpret_cast<const uint4*>(from + row * HIDDEN);
    }
#pragma unroll
    for (int i = 0; i < BATCH<TOKENS>; ++i) {
      if (first + i >= count) break;
      const Addend& it = addends.list[first + i];
      add(sums, parts[i], it.of.weight);
      if (TOKENS > 1 && it.is_last) write_sums(output + int64_t{it.token} * HIDDEN, sums);
    }
  }
  if (TOKENS == 1) write_sums(output, sums);
  // The last CTAs of the grid: few have to wait before they read.
  if (TOLD && blockIdx.y == COMBINE_PARTS - 1) forget(args, first_slot, tokens * TOP_K);
}

}  // namespace
