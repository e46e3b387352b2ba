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

// Routes a token. Tells its local experts to all CTAs, or to this one alone, and the weights of its
// slots, if it is the CTA's, to combine_kernel. TILES: as tiles are told of lone ones.
template <bool TILES>
__device__ __forceinline__ void route_token(const StreamArgs& args, int token,
                                            uint2* here = nullptr) {
  const int lane = threadIdx.x % 32;
  const Told& told = args.all.told;
  const Slot slot = choose_experts(args.route.logits, args.route.bias, token);
  const float weight = weigh(slot, args.route.scaling);
  const uint2 locals = TILES ? describe_locals(slot, weight, args.route.offset, token)
                             : list_locals(slot, args.route.offset);
  if (lane == 0) {
    if (here != nullptr) {
      *here = locals;
    } else {
      store_halves(told.locals + token, locals, told.nonce);
    }
  }
  if (lane < TOP_K && is_owner(token)) {
    uint2* half = reinterpret_cast<uint2*>(told.slots + int64_t{token} * TOP_K + lane) + 1;
    store_half(half, __float_as_uint(weight), told.nonce >> 32);
  }
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

// All workers: each routes a token at most. If CTAs are few, await_locals() does the rest.
__device__ __forceinline__ void route_tokens(SharedMemory& shared, const StreamArgs& args) {
  const int worker = worker_number();
  const bool is_here = is_few(args.all);
  const int token = is_here ? worker : worker * gridDim.x + blockIdx.x;
  uint2* here = is_here ? shared.few_locals + worker : nullptr;
  if (token < args.all.num_tokens) route_token<false>(args, token, here);
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
