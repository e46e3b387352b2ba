// The last step: each token's sum over its local experts, in the order of its slots.
#pragma once

#include "plan.cuh"
#include "programmatic_launch.cuh"

namespace {

constexpr int COMBINERS = 128, COMBINED = 8;  // threads, and columns of each
constexpr int COMBINE_PARTS = HIDDEN / (COMBINERS * COMBINED);

static_assert(COMBINE_PARTS * COMBINERS * COMBINED == HIDDEN, "parts of a row are equal");

struct CombineArgs {
  Routing routing;
  const __nv_bfloat16* expert_out;  // [capacity, 7168]
  __nv_bfloat16* output;            // [T, 7168]
  bool is_blanked;                  // rows without a local expert are zeros already
};

// Grid: (T, 7). Slots come from launches that ended before this one could begin, so they are read
// before the wait.
__global__ void __launch_bounds__(COMBINERS)
    combine_kernel(const __grid_constant__ CombineArgs args) {
  const int64_t token = blockIdx.x;
  const int column = (blockIdx.y * COMBINERS + threadIdx.x) * COMBINED;
  const int4* slot_rows = reinterpret_cast<const int4*>(args.routing.slot_row + token * TOP_K);
  const float4* slot_weights =
      reinterpret_cast<const float4*>(args.routing.slot_weight + token * TOP_K);
  const int4 rows0 = slot_rows[0], rows1 = slot_rows[1];
  const float4 weights0 = slot_weights[0], weights1 = slot_weights[1];
  const int rows[TOP_K] = {rows0.x, rows0.y, rows0.z, rows0.w, rows1.x, rows1.y, rows1.z, rows1.w};
  const float weights[TOP_K] = {weights0.x, weights0.y, weights0.z, weights0.w,
                                weights1.x, weights1.y, weights1.z, weights1.w};
  const int signs = rows0.x & rows0.y & rows0.z & rows0.w & rows1.x & rows1.y & rows1.z & rows1.w;
  wait_for_launches_before();
  if (args.is_blanked && signs < 0) return;  // -1 everywhere
  uint4 parts[TOP_K];
#pragma unroll
  for (int slot = 0; slot < TOP_K; ++slot) {
    const __nv_bfloat16* part = args.expert_out + int64_t{rows[slot]} * HIDDEN + column;
    parts[slot] = rows[slot] < 0 ? uint4{} : *reinterpret_cast<const uint4*>(part);
  }
  float sums[COMBINED] = {};
#pragma unroll
  for (int slot = 0; slot < TOP_K; ++slot) {
    if (rows[slot] < 0) continue;
    const uint32_t pairs[4] = {parts[slot].x, parts[slot].y, parts[slot].z, parts[slot].w};
#pragma unroll
    for (int i = 0; i < COMBINED; ++i) {
      const uint32_t bits = i % 2 ? pairs[i / 2] & 0xffff0000 : pairs[i / 2] << 16;
      sums[i] += weights[slot] * __uint_as_float(bits);
    }
  }
  __nv_bfloat162 rounded[COMBINED / 2];
#pragma unroll
  for (int i = 0; i < COMBINED / 2; ++i) {
    rounded[i] = __floats2bfloat162_rn(sums[2 * i], sums[2 * i + 1]);
  }
  *reinterpret_cast<uint4*>(args.output + token * HIDDEN + column) =
      *reinterpret_cast<const uint4*>(rounded);
}

}  // namespace
