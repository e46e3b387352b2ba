// Routing: which experts a token goes to, with what weight, and at which packed row.
//
//     s      = sigmoid(logits) [T, 256]            s_b = s + bias
//     groups : 8 of 32 consecutive experts, scored by the sum of their 2 largest s_b; 4 are kept
//     slots  : the 8 largest s_b in the kept groups
//     weight = s / (sum of s over the 8 slots + 1e-20) * routed_scaling_factor
//
// A warp routes a token, eight experts a lane, so that a group is four lanes. Ties go to the lower
// group and the lower expert; NaN and -inf scores rank last, as a finite number. Packing gives a
// warp one local expert: a ballot over 32 tokens is their membership.
#pragma once

#include <cfloat>

#include "async_copy.cuh"
#include "cluster.cuh"
#include "plan.cuh"
#include "programmatic_launch.cuh"

namespace {

constexpr int LANE_EXPERTS = EXPERTS / 32, GROUP_LANES = 32 / GROUPS;
constexpr int ROUTERS = 32 * ROUTED_ROWS;  // threads
constexpr int MOST_ALONE = 128;            // tokens that one launch routes and packs
constexpr int ROUTING_CTAS = 8;            // of that launch, one cluster
constexpr int PACKED_BLOCKS = 2;           // blocks of 32 tokens that a CTA of pack_kernel packs
constexpr int TAKEN = INT32_MIN;           // below the key of every finite score

static_assert(MOST_ALONE <= ROUTING_CTAS * ROUTED_ROWS, "a warp a token");

struct RouteArgs {
  const float* logits;         // [T, 256]
  const __nv_bfloat16* bias;   // [256]
  Routing routing;
  float scaling;
  int offset;  // of the first local expert, between -512 and 512
  int num_tokens;
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

// A token's slot as lanes 0 to 7 hold it: expert and score without bias.
struct Slot {
  int expert;
  float score;
};

__device__ __forceinline__ Slot choose_experts(const RouteArgs& args, int token) {
  const int lane = threadIdx.x % 32;
  const float4* logits =
      reinterpret_cast<const float4*>(args.logits + int64_t{token} * EXPERTS) + 2 * lane;
  const uint4 packed = __ldg(reinterpret_cast<const uint4*>(args.bias) + lane);
  const float4 low = __ldg(logits), high = __ldg(logits + 1);
  float scores[LANE_EXPERTS] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
  float biased[LANE_EXPERTS];
  int keys[LANE_EXPERTS];
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; ++i) {
    const float bias = __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000 : pairs[i / 2] << 16);
    scores[i] = __fdiv_rn(1.0f, 1.0f + expf(-scores[i]));
    const float sum = scores[i] + bias;
    biased[i] = sum >= -FLT_MAX ? sum : -FLT_MAX;
  }
  const bool is_kept = is_group_kept(score_group(biased));
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; ++i) keys[i] = key_of(is_kept ? biased[i] : -FLT_MAX);
  Slot slot = {};
#pragma unroll
  for (int round = 0; round < TOP_K; ++round) {
    int most = keys[0];
#pragma unroll
    for (int i = 1; i < LANE_EXPERTS; ++i) most = max(most, keys[i]);
    const int best = __reduce_max_sync(FULL, most);
    unsigned found = EXPERTS;
    float score = 0.0f;
#pragma unroll
    for (int i = LANE_EXPERTS - 1; i >= 0; --i) {
      if (keys[i] == best) found = lane * LANE_EXPERTS + i, score = scores[i];
    }
    const unsigned expert = __reduce_min_sync(FULL, found);
    score = __shfl_sync(FULL, score, expert / LANE_EXPERTS);
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; ++i) {
      if (lane * LANE_EXPERTS + i == expert) keys[i] = TAKEN;
    }
    if (lane == round) slot = {static_cast<int>(expert), score};
  }
  return slot;
}

// Routes a token. Returns its local experts, a byte each, 255 where the expert is not local.
__device__ __forceinline__ uint2 route(const RouteArgs& args, int token) {
  const int lane = threadIdx.x % 32;
  const Slot slot = choose_experts(args, token);
  float total = slot.score;
#pragma unroll
  for (int mask = 1; mask < TOP_K; mask *= 2) total += __shfl_xor_sync(FULL, total, mask);
  if (lane < TOP_K) {
    const float weight = __fdiv_rn(slot.score, total + 1e-20f) * args.scaling;
    args.routing.slot_weight[int64_t{token} * TOP_K + lane] = weight;
  }
  const int local = slot.expert - args.offset;
  const uint32_t byte = local >= 0 && local < LOCAL ? local : 255;
  uint2 packed = {0, 0};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    packed.x |= __shfl_sync(FULL, byte, i) << 8 * i;
    packed.y |= __shfl_sync(FULL, byte, i + 4) << 8 * i;
  }
  return packed;
}

// The slot, 0 to 7, of a local expert among a token's; -1 if it is in none.
__device__ __forceinline__ int find_slot(uint2 locals, uint32_t expert) {
  int slot = -1;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if ((locals.x >> 8 * i & 0xff) == expert) slot = i;
    if ((locals.y >> 8 * i & 0xff) == expert) slot = i + 4;
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
    const uint32_t byte = (i < 4 ? locals.x >> 8 * i : locals.y >> 8 * (i - 4)) & 0xff;
    if (byte == 255) routing.slot_row[int64_t{token} * TOP_K + i] = -1;
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

// What the CTA that packs holds of few tokens.
struct FewTokens {
  uint2 locals[MOST_ALONE];
  int counts[LOCAL];
  uint64_t routed;  // a barrier: the locals of all tokens have landed
};

// A warp's token, routed; its local experts go to the CTA that packs.
__device__ __forceinline__ void route_to_first(FewTokens& shared, const RouteArgs& args,
                                               int token) {
  const bool is_token = token < args.num_tokens;
  const uint2 locals = is_token ? route(args, token) : uint2{};
  wait_cluster();  // the barrier of the CTA that packs is there
  if (!is_token || threadIdx.x % 32 != 0) return;
  const float2 bits = {__uint_as_float(locals.x), __uint_as_float(locals.y)};
  send(address_in(shared_address(&shared.locals[token]), 0), bits,
       address_in(shared_address(&shared.routed), 0));
}

// Grid: (8,), one cluster. Routes up to 128 tokens, of which each CTA has every eighth: a warp
// takes 1300 instructions, and 32 warps of an SM would wait for one another. The first CTA packs.
__global__ void __launch_bounds__(ROUTERS, 1)
    route_and_pack_kernel(const __grid_constant__ RouteArgs args) {
  auto& shared = *reinterpret_cast<FewTokens*>(cta_base());
  allow_next_launch();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = cluster_rank();
  if (threadIdx.x == 0) {
    init_barrier(&shared.routed, 1);
    fence_barrier_init();
    if (rank == 0) arrive_expecting(&shared.routed, args.num_tokens * sizeof(uint2));
  }
  arrive_cluster();
  if (rank == 0) clear_counters(args.routing);
  route_to_first(shared, args, warp * ROUTING_CTAS + rank);
  if (rank != 0) return;
  wait_phase(&shared.routed, 0);
  uint2 mine[MOST_ALONE / 32];
  int count = 0;
#pragma unroll
  for (int i = 0; i < MOST_ALONE / 32; ++i) {
    if (32 * i >= args.num_tokens) break;
    const int token = 32 * i + lane;
    mine[i] = token < args.num_tokens ? shared.locals[token] : uint2{FULL, FULL};
    count += __popc(__ballot_sync(FULL, find_slot(mine[i], warp) >= 0));
  }
  int row = rows_before(shared.counts, count);
  if (threadIdx.x < LOCAL) args.routing.counts[threadIdx.x] = shared.counts[threadIdx.x];
#pragma unroll
  for (int i = 0; i < MOST_ALONE / 32; ++i) {
    if (32 * i >= args.num_tokens) break;
    const int token = 32 * i + lane;
    row = pack(args.routing, mine[i], token, row);
    if (warp == i && token < args.num_tokens) mark_absent(args.routing, mine[i], token);
  }
}

// Grid: (T / 32,) rounded up. Routes 32 tokens and counts their local experts.
__global__ void __launch_bounds__(ROUTERS, 1)
    route_kernel(const __grid_constant__ RouteArgs args) {
  __shared__ uint2 locals[ROUTED_ROWS];
  allow_next_launch();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (blockIdx.x == 0) clear_counters(args.routing);
  const int token = blockIdx.x * ROUTED_ROWS + warp;
  const uint2 packed = token < args.num_tokens ? route(args, token) : uint2{FULL, FULL};
  if (lane == 0) {
    locals[warp] = packed;
    if (token < args.num_tokens) args.routing.slot_local[token] = packed;
  }
  __syncthreads();
  const uint32_t members = __ballot_sync(FULL, find_slot(locals[lane], warp) >= 0);
  if (lane == 0) args.routing.block_counts[blockIdx.x * LOCAL + warp] = __popc(members);
}

// Grid: (T / 64,) rounded up. Packs 64 tokens, whose rows follow from the counts of all blocks.
__global__ void __launch_bounds__(ROUTERS, 1)
    pack_kernel(const __grid_constant__ RouteArgs args) {
  __shared__ int counts[LOCAL];
  wait_for_launches_before();
  allow_next_launch();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int num_blocks = (args.num_tokens + ROUTED_ROWS - 1) / ROUTED_ROWS;
  const int first_block = blockIdx.x * PACKED_BLOCKS;
  int count = 0, before = 0;  // rows of this warp's expert: all, in blocks ahead of this CTA's
  for (int block = lane; block < num_blocks; block += 32) {
    const int of_block = args.routing.block_counts[block * LOCAL + warp];
    count += of_block;
    if (block < first_block) before += of_block;
  }
  count = __reduce_add_sync(FULL, count);
  int row = rows_before(counts, count) + __reduce_add_sync(FULL, before);
  if (blockIdx.x == 0 && threadIdx.x < LOCAL) {
    args.routing.counts[threadIdx.x] = counts[threadIdx.x];
  }
#pragma unroll
  for (int i = 0; i < PACKED_BLOCKS; ++i) {
    const int token = (first_block + i) * ROUTED_ROWS + lane;
    const bool is_token = token < args.num_tokens;
    const uint2 locals = is_token ? args.routing.slot_local[token] : uint2{FULL, FULL};
    row = pack(args.routing, locals, token, row);
    if (warp == i && is_token) mark_absent(args.routing, locals, token);
  }
}

}  // namespace
