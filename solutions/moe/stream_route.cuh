// Routing and packing inside stream_kernel, in front of its roles. A launch of its own would begin
// as much earlier as the host needs for a launch, which is longer than all of this takes.
//
// A warp routes a token, as in route.cuh. Tiles do much of this alike: tile_route.cuh. Up to
// MOST_FEW tokens are routed in every CTA: less work than to wait for another one. Of more each CTA
// routes a share and tells all others. Whoever has waited long for a token routes it itself, which
// gives the same: nobody depends on a CTA that may not run yet. Then each CTA packs for itself. All
// of them write the same packed rows.
#pragma once

#include "named_barrier.cuh"
#include "plan.cuh"
#include "route.cuh"
#include "tagged_words.cuh"

namespace {

constexpr int PATIENCE = 32;     // looks at a token, half a microsecond or more each
// Barriers: of the workers alone; where they wait for those that the warp of the weights makes, and
// for one another.
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

__device__ __forceinline__ int count_blocks(const Args& args) {
  return (args.num_tokens + 31) / 32;
}

// The CTA that says which rows and weights a token's slots have, whoever routes it first.
__device__ __forceinline__ bool is_owner(int token) { return token % gridDim.x == blockIdx.x; }

// The weights of a token's slots, for combine_kernel, by the CTA whose token it is.
__device__ __forceinline__ void tell_weights(const StreamArgs& args, float weight, int token) {
  const int lane = threadIdx.x % 32;
  const Told& told = args.all.told;
  if (lane < TOP_K && is_owner(token)) {
    uint2* half = reinterpret_cast<uint2*>(told.slots + int64_t{token} * TOP_K + lane) + 1;
    store_half(half, __float_as_uint(weight), told.nonce >> 32);
  }
}

// Routes a token and tells its local experts to those who wait for them.
__device__ __forceinline__ void tell_token(const StreamArgs& args, int token) {
  const Told& told = args.all.told;
  const Slot slot = choose_experts(args.route.logits, args.route.bias, token);
  const float weight = weigh(slot, args.route.scaling);
  const uint2 locals = describe_locals(slot, weight, args.route.offset, token);
  if (threadIdx.x % 32 == 0) store_halves(told.locals + token, locals, told.nonce);
  tell_weights(args, weight, token);
}

// As tell_token(); few tokens are told to this CTA alone.
__device__ __forceinline__ void route_here(SharedMemory& shared, const StreamArgs& args,
                                           int token) {
  const int lane = threadIdx.x % 32;
  const Told& told = args.all.told;
  const Slot slot = choose_experts(args.route.logits, args.route.bias, token);
  const uint2 locals = list_locals(slot, args.route.offset);
  if (lane == 0) {
    if (is_few(args.all)) {
      shared.few_locals[token] = locals;
    } else {
      store_halves(told.locals + token, locals, told.nonce);
    }
  }
  tell_weights(args, weigh(slot, args.route.scaling), token);
}

// Local experts of 32 tokens, a lane each, as soon as all are known. None for lanes without one.
__device__ __forceinline__ uint2 await_locals(SharedMemory& shared, const StreamArgs& args,
                                              int block) {
  const int first = 32 * block, token = first + threadIdx.x % 32;
  const Told& told = args.all.told;
  const bool is_token = token < args.all.num_tokens;
  if (is_few(args.all)) return is_token ? shared.few_locals[token] : uint2{FULL, FULL};
  for (int looks = 1;; ++looks) {
    uint4 words = {};
    if (is_token) words = load_relaxed(told.locals + token);
    const bool is_missing = is_token && !has_nonce(words, told.nonce);
    const uint32_t missing = __ballot_sync(FULL, is_missing);
    if (missing == 0) return is_token ? uint2{words.x, words.z} : uint2{FULL, FULL};
    if (looks >= PATIENCE) route_here(shared, args, first + __ffs(missing) - 1);
  }
}

// The tokens, a bit each, of the lane's expert, of those that lanes have local experts of: a matrix
// of 32 by 32 bits is transposed by swapping its quarters, their quarters, and so on.
__device__ __forceinline__ uint32_t find_members(uint2 locals) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < TOP_K; ++i) {
    const uint32_t byte = (i < 4 ? locals.x >> 8 * i : locals.y >> 8 * (i - 4)) & 0xff;
    if (byte < LOCAL) bits |= 1u << byte;
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

// All workers: afterwards, and after a barrier, block_rows has the rows of all tokens. Returns the
// local experts of the warp's first 32 tokens.
__device__ __forceinline__ uint2 route_tokens(SharedMemory& shared, const StreamArgs& args) {
  const int lane = threadIdx.x % 32, worker = worker_number(), blocks = count_blocks(args.all);
  const int first = is_few(args.all) ? worker : worker * gridDim.x + blockIdx.x;
  const int step = is_few(args.all) ? WORKERS : WORKERS * gridDim.x;
#pragma unroll 1
  for (int token = first; token < args.all.num_tokens; token += step) {
    route_here(shared, args, token);
  }
  if (is_few(args.all)) sync_threads_of(WORKERS_MEET, 32 * WORKERS);
  uint2 mine = {FULL, FULL};
#pragma unroll 1
  for (int block = worker; block < blocks; block += WORKERS) {
    const uint2 locals = await_locals(shared, args, block);
    if (block == worker) mine = locals;
    shared.block_rows[block][lane] = __popc(find_members(locals));
  }
  return mine;
}

// Packed rows of the lane's expert.
__device__ __forceinline__ int count_expert_rows(const SharedMemory& shared, int blocks) {
  int rows = 0;
#pragma unroll 4
  for (int block = 0; block < blocks; ++block) rows += shared.block_rows[block][threadIdx.x % 32];
  return rows;
}

// All workers: rows of tokens and, of a CTA's own tokens, of their slots. first: what
// route_tokens() has returned.
__device__ __forceinline__ void pack_tokens(SharedMemory& shared, const StreamArgs& args,
                                            uint2 first) {
  const int lane = threadIdx.x % 32, worker = worker_number(), blocks = count_blocks(args.all);
  const Told& told = args.all.told;
  const int of_expert = count_expert_rows(shared, blocks);
  int row = scan_lanes(of_expert) - of_expert;  // the first of the lane's expert in the block
  int counted = 0;
#pragma unroll 1
  for (int block = worker; block < blocks; block += WORKERS) {
    for (; counted < block; ++counted) row += shared.block_rows[counted][lane];
    const int token = 32 * block + lane;
    const bool is_token = token < args.all.num_tokens;
    uint2 locals = first;
    if (block != worker) {  // told long ago
      const uint4 words = is_token ? load_relaxed(told.locals + token) : uint4{FULL, 0, FULL, 0};
      locals = {words.x, words.z};
    }
    const uint32_t members = find_members(locals);
    const bool is_told = is_token && is_owner(token);
    uint2* half = reinterpret_cast<uint2*>(told.slots + int64_t{token} * TOP_K);
#pragma unroll
    for (int i = 0; i < TOP_K; ++i) {
      const uint32_t byte = (i < 4 ? locals.x >> 8 * i : locals.y >> 8 * (i - 4)) & 0xff;
      const uint32_t ahead = __shfl_sync(FULL, members, byte % LOCAL) & ((1u << lane) - 1);
      int mine = __shfl_sync(FULL, row, byte % LOCAL) + __popc(ahead);
      if (byte < LOCAL) {
        args.all.routing.row_token[mine] = token;
      } else {
        mine = -1;
      }
      if (is_told) store_half(half + 2 * i, mine, told.nonce);
    }
  }
}

// One thread: a CTA's first ticket. Whoever takes one runs, and waits for nobody but whoever took
// one before.
__device__ __forceinline__ int take_first_ticket(const Told& told, uint64_t seen) {
  begin_count<TICKET_BITS>(told.ticket, seen, told.nonce);
  return take_count<TICKET_BITS>(told.ticket);
}

}  // namespace
