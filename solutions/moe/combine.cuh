// The last step: each token's sum over its local experts, in the order of its slots.
#pragma once

#include "plan.cuh"
#include "programmatic_launch.cuh"

namespace {

constexpr int COMBINERS = 128, COMBINED = 8;  // threads, and columns of each
constexpr int BATCH = 4;                      // few tokens have more local experts
constexpr int COMBINE_PARTS = HIDDEN / (COMBINERS * COMBINED);

static_assert(COMBINE_PARTS * COMBINERS * COMBINED == HIDDEN, "parts of a row are equal");
static_assert(COMBINE_PARTS == SLABS, "a part is a slab");

struct CombineArgs {
  Routing routing;
  const __nv_bfloat16* expert_out;  // [capacity, 7168]
  __nv_bfloat16* output;            // [T, 7168]
  int first_part;                   // what is in front is there
  bool is_cleared;                  // rows without a local expert are zeros
};

// A token's slot, one a lane: packed row, -1 where it has none, and weight.
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

// Grid: (T, parts that are left of 7). Slots come from launches that ended before this one could
// begin, so they are read before the wait.
__global__ void __launch_bounds__(COMBINERS)
    combine_kernel(const __grid_constant__ CombineArgs args) {
  const int64_t token = blockIdx.x;
  const int part = args.first_part + blockIdx.y;
  const int column = (part * COMBINERS + threadIdx.x) * COMBINED;
  const int64_t slot = token * TOP_K + threadIdx.x % TOP_K;
  const WeighedRow mine = {args.routing.slot_row[slot], args.routing.slot_weight[slot]};
  uint32_t slots = __ballot_sync(FULL, mine.row >= 0) & ((1u << TOP_K) - 1);
  wait_for_launches_before();
  if (slots == 0 && args.is_cleared) return;
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

}  // namespace
