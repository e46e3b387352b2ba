// Routing and packing inside stream_kernel, in front of its roles. A launch of its own would begin
// as much earlier as the host needs for a launch, which is longer than all of this takes.
//
// A warp routes a token, as in route.cuh. Tiles do much of this alike: tile_route.cuh. Up to
// MOST_FEW tokens are routed in every CTA: less work than to wait for another one. Of more each CTA
// routes a share and tells all others. Whoever has waited long for a token routes it itself, which
// gives the same: nobody depends on a CTA that may not run yet. Then one warp packs, in each CTA:
// all of them write the same packed rows.
#pragma once

#include "named_barrier.cuh"
#include "plan.cuh"
#include "route.cuh"
#include "tagged_words.cuh"
#include "warp_arrival.cuh"

namespace {

constexpr int PATIENCE = 32;     // looks at a token, half a microsecond or more each
// Barriers: of the workers alone; where they wait for those that the warp of the weights makes, and
// for one another's tokens.
constexpr int WORKERS_MEET = 3, BARRIERS_MADE = 4;

struct StreamArgs {
  Args all;
  RouteArgs route;
};

// The number of a warp other than the one of the weights.
__device__ __forceinline__ int worker_number() {
  const int warp = threadIdx.x / 32;
  return warp < MULTIPLYING / 32 ? warp : warp - 1;
}

__device__ __forceinline__ bool is_few(const Args& args) { return args.num_tokens <= MOST_FEW; }

// The CTA that says which rows and weights a token's slots have, whoever routes it first.
__device__ __forceinline__ bool is_owner(int token) { return token % gridDim.x == blockIdx.x; }

// Tells a token's local experts to all CTAs, or to this one alone.
__device__ __forceinline__ void tell_locals(const Told& told, int token, uint2 locals,
                                            uint2* here = nullptr) {
  if (threadIdx.x % 32 > 0) return;
  if (here != nullptr) {
    *here = locals;
  } else {
    store_halves(told.locals + token, locals, told.nonce);
  }
}

// Tells combine_kernel what a token's slots weigh, if the token is the CTA's.
__device__ __forceinline__ void tell_weights(const Told& told, int token, float weight) {
  const int lane = threadIdx.x % 32;
  if (lane >= TOP_K || !is_owner(token)) return;
  uint2* half = reinterpret_cast<uint2*>(told.slots + int64_t{token} * TOP_K + lane) + 1;
  store_half(half, __float_as_uint(weight), told.nonce >> 32);
}

// Routes a token and tells of it. TILES: as tiles are told of lone experts.
template <bool TILES>
__device__ __forceinline__ void route_token(const StreamArgs& args, int token) {
  const Told& told = args.all.told;
  const Chosen chosen = choose_experts(args.route.logits, args.route.bias, token);
  const float weight = weigh(chosen, args.route.scaling);
  tell_locals(told, token, TILES ? describe_locals(chosen.expert, weight, args.route.offset, token)
                                 : list_locals(chosen.expert, args.route.offset));
  tell_weights(told, token, weight);
}

// Local experts of all tokens, a lane each, as soon as all are known.
__device__ __forceinline__ uint2 await_locals(SharedMemory& shared, const StreamArgs& args) {
  const int token = threadIdx.x % 32;
  const Told& told = args.all.told;
  const bool is_token = token < args.all.num_tokens;
  if (is_few(args.all)) return is_token ? shared.few_locals[token] : no_locals();
  for (int looks = 1;; ++looks) {
    uint4 words = {};
    if (is_token) words = load_relaxed(told.locals + token);
    const bool is_missing = is_token && !has_nonce(words, told.nonce);
    const uint32_t missing = __ballot_sync(FULL, is_missing);
    if (missing == 0) return is_token ? uint2{words.x, words.z} : no_locals();
    if (looks >= PATIENCE) route_token<false>(args, __ffs(missing) - 1);
  }
}

// The tokens, a bit each, of the lane's expert, of those that lanes have local experts of: a matrix
// of 32 by 32 bits is transposed by swapping its quarters, their quarters, and so on.
__device__ __forceinline__ uint32_t find_members(uint2 locals) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < TOP_K; ++i) {
    const uint32_t expert = expert_in(locals, i);
    if (expert < LOCAL) bits |= 1u << expert;
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const uint32_t low = FULL / ((1u << step) + 1);  // the lower half of each 2 * step bits
    const uint32_t other = __shfl_xor_sync(FULL, bits, step);
    bits = threadIdx.x & step ? (bits & ~low) | (other >> step & low)
                              : (bits & low) | (other & low) << step;
  }
  return bits;
}

// The token that a worker routes, if there are as many. If CTAs are few, await_locals() routes the
// rest.
__device__ __forceinline__ int find_own_token(const Args& args) {
  return is_few(args) ? worker_number() : worker_number() * gridDim.x + blockIdx.x;
}

// Routes a worker's own token, and tells its local experts. What its slots weigh can wait.
__device__ __forceinline__ Chosen route_own_token(SharedMemory& shared, const StreamArgs& args,
                                                  int token) {
  const Chosen chosen = choose_experts(args.route.logits, args.route.bias, token);
  uint2* here = is_few(args.all) ? shared.few_locals + token : nullptr;
  tell_locals(args.all.told, token, list_locals(chosen.expert, args.route.offset), here);
  return chosen;
}

// One warp: packed rows of each expert, which the warp of the weights waits for, their tokens, and,
// of a CTA's own tokens, the rows of their slots. locals: of the lane's token.
__device__ __forceinline__ void pack_tokens(SharedMemory& shared, const StreamArgs& args,
                                            uint2 locals) {
  const int lane = threadIdx.x % 32, token = lane;
  const uint32_t members = find_members(locals);
  const int rows = __popc(members);
  shared.expert_rows[lane] = rows;
  __syncwarp();
  arrive_for_warp(&shared.rows_counted);
  const int row = scan_lanes(rows) - rows;  // the first of the lane's expert
  const bool is_told = token < args.all.num_tokens && is_owner(token);
  const Told& told = args.all.told;
  uint2* half = reinterpret_cast<uint2*>(told.slots + int64_t{token} * TOP_K);
#pragma unroll
  for (int i = 0; i < TOP_K; ++i) {
    const uint32_t expert = expert_in(locals, i);
    const uint32_t ahead = __shfl_sync(FULL, members, expert % LOCAL) & ((1u << lane) - 1);
    const int mine = __shfl_sync(FULL, row, expert % LOCAL) + __popc(ahead);
    if (expert < LOCAL) args.all.routing.row_token[mine] = token;
    if (is_told) store_half(half + 2 * i, expert < LOCAL ? mine : -1, told.nonce);
  }
}

// One thread: a CTA's first ticket. Whoever takes one runs, and waits for nobody but whoever took
// one before.
__device__ __forceinline__ int take_first_ticket(const Told& told, uint64_t seen) {
  begin_count<TICKET_BITS>(told.ticket, seen, told.nonce);
  return take_count<TICKET_BITS>(told.ticket);
}

}  // namespace
