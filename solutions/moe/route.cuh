// Routing: which experts a token goes to, with what weight, and at which packed row.
//
//     s      = sigmoid(logits) [T, 256]            s_b = s + bias
//     groups : 8 of 32 consecutive experts, scored by the sum of their 2 largest s_b; 4 are kept
//     slots  : the 8 largest s_b in the kept groups
//     weight = s / (sum of s over the 8 slots + 1e-20) * routed_scaling_factor
//
// A warp routes a token, eight experts a lane, so that a group is four lanes. Ties go to the lower
// group and the lower expert; NaN and -inf scores rank last, as a finite number.
//
// Launches that route and pack, in front of tiles of many tokens: packing gives a warp one local
// expert, a ballot over 32 tokens is their membership. Kernels that route themselves:
// stream_route.cuh, tile_route.cuh.
#pragma once

#include <cfloat>

#include "plan.cuh"
#include "programmatic_launch.cuh"
#include "reciprocal.cuh"
#include "tile_scales.cuh"

namespace {

constexpr int LANE_EXPERTS = EXPERTS / 32, GROUP_LANES = 32 / GROUPS;
constexpr int ROUTERS = 32 * ROUTED_ROWS;  // threads
constexpr int PACKED_BLOCKS = 2;           // blocks of 32 tokens that a CTA of pack_kernel packs

static_assert(TOP_K == LANE_EXPERTS, "a lane that gives all slots has keys for them");
static_assert((MOST_TILES - LOCAL) * TILE_ROWS / TOP_K < 1 << 16,
              "any token fits 16 bits, as in describe_locals()");

struct RouteArgs {
  const float* logits;         // [T, 256]
  const __nv_bfloat16* bias;   // [256]
  Routing routing;
  float scaling;
  int offset;  // of the first local expert, between -512 and 512
  int num_tokens;
  const float* x_scale;  // [56, T]
  float* x_tile_scale;   // [row tiles, 56, 128]
};

// Integers in the order of the floats.
__device__ __forceinline__ int key_of(float score) {
  const int bits = __float_as_int(score);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

// The sum of the two largest scores of the lane's group.
__device__ __forceinline__ float score_group(const float (&biased)[LANE_EXPERTS]) {
  float first = biased[0], second = -INFINITY;
#pragma unroll
  for (int i = 1; i < LANE_EXPERTS; ++i) {
    second = fmaxf(second, fminf(first, biased[i]));
    first = fmaxf(first, biased[i]);
  }
#pragma unroll
  for (int mask = 1; mask < GROUP_LANES; mask *= 2) {
    const float other_first = __shfl_xor_sync(FULL, first, mask);
    const float other_second = __shfl_xor_sync(FULL, second, mask);
    second = fmaxf(fminf(first, other_first), fmaxf(second, other_second));
    first = fmaxf(first, other_first);
  }
  return first + second;
}

// Whether the lane's group is among the four that are kept.
__device__ __forceinline__ bool is_group_kept(float score) {
  const int mine = threadIdx.x % 32 / GROUP_LANES;
  int better = 0;
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    const float other = __shfl_sync(FULL, score, group * GROUP_LANES);
    better += other > score || (other == score && group < mine);
  }
  return better < KEPT_GROUPS;
}

// The expert with the n-th greatest of a warp's keys, in lane n from 0 to 7. A lane first puts its
// own in order, equal ones in that of the experts: then a round looks at one key of each lane.
__device__ __forceinline__ int take_best(int (&keys)[LANE_EXPERTS]) {
  const int lane = threadIdx.x % 32;
  int ids[LANE_EXPERTS];
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; ++i) ids[i] = i;
#pragma unroll
  for (int pass = 0; pass < LANE_EXPERTS; ++pass) {
#pragma unroll
    for (int i = pass % 2; i + 1 < LANE_EXPERTS; i += 2) {
      const int key = keys[i], id = ids[i];
      const bool is_less = key < keys[i + 1];
      keys[i] = max(key, keys[i + 1]), keys[i + 1] = min(key, keys[i + 1]);
      ids[i] = is_less ? ids[i + 1] : id, ids[i + 1] = is_less ? id : ids[i + 1];
    }
  }
  uint32_t order = 0;  // four bits each
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; ++i) order |= ids[i] << 4 * i;
  int mine = 0;
#pragma unroll
  for (int round = 0; round < TOP_K; ++round) {
    const int best = __reduce_max_sync(FULL, keys[0]);
    const int from = __ffs(__ballot_sync(FULL, keys[0] == best)) - 1;
    const int expert = from * LANE_EXPERTS + (__shfl_sync(FULL, order, from) & 0xf);
    if (lane == round) mine = expert;
    if (lane != from) continue;
    order >>= 4;
#pragma unroll
    for (int i = 0; i + 1 < TOP_K - round; ++i) keys[i] = keys[i + 1];
  }
  return mine;
}

// scores = sigmoid(scores).
__device__ __forceinline__ void squash(float (&scores)[LANE_EXPERTS]) {
  float sums[LANE_EXPERTS];
  bool is_quick = true;
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; ++i) {
    sums[i] = 1.0f + expf(-scores[i]);
    is_quick &= sums[i] < MOST_QUICK;
    scores[i] = quick_reciprocal(sums[i]);
  }
  if (is_quick) return;
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; ++i) scores[i] = __frcp_rn(sums[i]);
}

// A token's slots: the experts that lanes 0 to 7 hold, and of all its experts the scores without
// bias, of which each lane has its own.
struct Chosen {
  int expert;
  float scores[LANE_EXPERTS];
};

__device__ __forceinline__ Chosen choose_experts(const float* logits, const __nv_bfloat16* bias,
                                                 int token) {
  const int lane = threadIdx.x % 32;
  const float4* row = reinterpret_cast<const float4*>(logits + int64_t{token} * EXPERTS) + 2 * lane;
  const uint4 packed = __ldg(reinterpret_cast<const uint4*>(bias) + lane);
  const float4 low = __ldg(row), high = __ldg(row + 1);
  Chosen chosen = {0, {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
  const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
  float biased[LANE_EXPERTS];
  int keys[LANE_EXPERTS];
  squash(chosen.scores);
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; ++i) {
    const float bias = __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000 : pairs[i / 2] << 16);
    const float sum = chosen.scores[i] + bias;
    biased[i] = sum >= -FLT_MAX ? sum : -FLT_MAX;
  }
  const bool is_kept = is_group_kept(score_group(biased));
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; ++i) keys[i] = key_of(is_kept ? biased[i] : -FLT_MAX);
  chosen.expert = take_best(keys);
  return chosen;
}

// The weight of each slot, in lanes 0 to 7.
__device__ __forceinline__ float weigh(const Chosen& chosen, float scaling) {
  float score = 0.0f;
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; ++i) {
    const float other = __shfl_sync(FULL, chosen.scores[i], chosen.expert / LANE_EXPERTS);
    if (chosen.expert % LANE_EXPERTS == i) score = other;
  }
  float total = score;
#pragma unroll
  for (int mask = 1; mask < TOP_K; mask *= 2) total += __shfl_xor_sync(FULL, total, mask);
  return __fdiv_rn(score, total + 1e-20f) * scaling;
}

// A token's local experts, a byte each.
__device__ __forceinline__ uint2 list_locals(int expert, int offset) {
  const int local = expert - offset;
  const uint32_t byte = local >= 0 && local < LOCAL ? local : NOT_LOCAL;
  uint2 packed = {0, 0};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    packed.x |= __shfl_sync(FULL, byte, i) << 8 * i;
    packed.y |= __shfl_sync(FULL, byte, i + 4) << 8 * i;
  }
  return packed;
}

// A token's local experts as in Told.
__device__ __forceinline__ uint2 describe_locals(int expert, float weight, int offset,
                                                 int token) {
  const int local = expert - offset;
  const bool is_local = threadIdx.x % 32 < TOP_K && local >= 0 && local < LOCAL;
  const uint32_t locals = __ballot_sync(FULL, is_local);
  if (__popc(locals) != 1) return list_locals(expert, offset);
  const int from = __ffs(locals) - 1;
  const uint32_t lone = __shfl_sync(FULL, local, from);
  return {__float_as_uint(__shfl_sync(FULL, weight, from)), LONE << 24 | lone << 16 | token};
}

// Routes a token. Returns its local experts as in Told.
__device__ __forceinline__ uint2 route(const RouteArgs& args, int token) {
  const int lane = threadIdx.x % 32;
  const Chosen chosen = choose_experts(args.logits, args.bias, token);
  const float weight = weigh(chosen, args.scaling);
  if (lane < TOP_K) args.routing.slot_weight[int64_t{token} * TOP_K + lane] = weight;
  return describe_locals(chosen.expert, weight, args.offset, token);
}

// The slot, 0 to 7, of a local expert among a token's; -1 if it is in none.
__device__ __forceinline__ int find_slot(uint2 locals, uint32_t expert) {
  int slot = -1;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (expert_in(locals, i) == expert) slot = i;
    if (expert_in(locals, i + 4) == expert) slot = i + 4;
  }
  return slot;
}

// A warp's expert gets the rows of 32 tokens, of which this lane has one; returns the next row.
__device__ __forceinline__ int pack(const Routing& routing, uint2 locals, int token, int row) {
  const int lane = threadIdx.x % 32, expert = threadIdx.x / 32;
  const int slot = find_slot(locals, expert);
  const uint32_t members = __ballot_sync(FULL, slot >= 0);
  if (slot >= 0) {
    const int mine = row + __popc(members & ((1u << lane) - 1));
    routing.row_token[mine] = token;
    routing.slot_row[int64_t{token} * TOP_K + slot] = mine;
  }
  return row + __popc(members);
}

// Slots whose experts are not local have no row.
__device__ __forceinline__ void mark_absent(const Routing& routing, uint2 locals, int token) {
#pragma unroll
  for (int i = 0; i < TOP_K; ++i) {
    if (expert_in(locals, i) == NOT_LOCAL) routing.slot_row[int64_t{token} * TOP_K + i] = -1;
  }
}

// What later launches count in starts at zero.
__device__ __forceinline__ void clear_counters(const Routing& routing) {
  for (int i = threadIdx.x; i < MOST_TILES; i += blockDim.x) routing.done[i] = 0;
  if (threadIdx.x == 0) *routing.ticket = 0;
}

// The rows of all experts before this warp's own, from each warp's number of rows.
__device__ __forceinline__ int rows_before(int (&counts)[LOCAL], int count) {
  const int lane = threadIdx.x % 32, expert = threadIdx.x / 32;
  if (lane == 0) counts[expert] = count;
  __syncthreads();
  const int through = scan_lanes(counts[lane]);
  return __shfl_sync(FULL, through, expert) - counts[expert];
}

// Grid: (T / 32,) rounded up. Routes 32 tokens and counts their local experts.
__global__ void __launch_bounds__(ROUTERS, 1)
    route_kernel(const __grid_constant__ RouteArgs args) {
  __shared__ uint2 locals[ROUTED_ROWS];
  allow_next_launch();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (blockIdx.x == 0) clear_counters(args.routing);
  const int token = blockIdx.x * ROUTED_ROWS + warp;
  const uint2 told = token < args.num_tokens ? route(args, token) : no_locals();
  if (lane == 0) {
    locals[warp] = read_locals(told);
    if (token < args.num_tokens) args.routing.slot_local[token] = told;
  }
  __syncthreads();
  const uint32_t members = __ballot_sync(FULL, find_slot(locals[lane], warp) >= 0);
  if (lane == 0) args.routing.block_counts[blockIdx.x * LOCAL + warp] = __popc(members);
}

// Rows of an expert in some blocks of 32 tokens: in all of them, and in those ahead of a CTA's.
struct ExpertRows {
  int all, ahead;
};

// Rows of this warp's expert. Warps read the counts of every 32nd block, a lane an expert, which
// lie side by side: a lane a block would take a sector for each count.
__device__ __forceinline__ ExpertRows count_rows(const RouteArgs& args, int first_block) {
  __shared__ ExpertRows sums[ROUTED_ROWS][LOCAL + 1];  // +1: columns start in different banks
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int num_blocks = (args.num_tokens + ROUTED_ROWS - 1) / ROUTED_ROWS;
  ExpertRows sum = {};
#pragma unroll 8
  for (int block = warp; block < num_blocks; block += ROUTED_ROWS) {
    const int of_block = args.routing.block_counts[block * LOCAL + lane];
    sum.all += of_block;
    if (block < first_block) sum.ahead += of_block;
  }
  sums[warp][lane] = sum;
  __syncthreads();
  const ExpertRows part = sums[lane][warp];
  return {__reduce_add_sync(FULL, part.all), __reduce_add_sync(FULL, part.ahead)};
}

// Grid: (T / 64,) rounded up. Packs 64 tokens, whose rows follow from the counts of all blocks. Two
// CTAs fit an SM: 264 pack 16 896 tokens at once. Puts the rows' scales in the tiles' order.
__global__ void __launch_bounds__(ROUTERS, 2)
    pack_kernel(const __grid_constant__ RouteArgs args) {
  __shared__ int counts[LOCAL];
  wait_for_launches_before();
  allow_next_launch();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first_block = blockIdx.x * PACKED_BLOCKS;
  const ExpertRows rows = count_rows(args, first_block);
  int row = rows_before(counts, rows.all) + rows.ahead;
  if (blockIdx.x == 0 && threadIdx.x < LOCAL) {
    args.routing.counts[threadIdx.x] = counts[threadIdx.x];
  }
#pragma unroll
  for (int i = 0; i < PACKED_BLOCKS; ++i) {
    const int token = (first_block + i) * ROUTED_ROWS + lane;
    const bool is_token = token < args.num_tokens;
    const uint2 told = is_token ? args.routing.slot_local[token] : no_locals();
    const uint2 locals = read_locals(told);
    row = pack(args.routing, locals, token, row);
    if (warp == i && is_token) mark_absent(args.routing, locals, token);
  }
  static_assert(PACKED_BLOCKS * ROUTED_ROWS * TOP_K == TILED_SLOTS, "a thread a slot");
  tile_scales(args.routing, args.x_scale, args.x_tile_scale, args.num_tokens,
              first_block * ROUTED_ROWS, counts);
  if (blockIdx.x == 0) blank_scales(args.x_tile_scale, counts);
}

}  // namespace
