// Routing inside the kernel of the tiles, for calls that the weights' bytes still bind: launches of
// its own would have the weights begin 12 us later.
//
// Tokens are routed and told as in stream_route.cuh. Each CTA then keeps, in shared memory, which
// tokens of each 32 an expert has: rows of all experts, and the tokens of any row tile, follow from
// that. No packed list goes through memory; scales of x are read where they lie.
#pragma once

#include "cluster.cuh"
#include "stream_route.cuh"
#include "tile_feed.cuh"

namespace {

constexpr int LOOKED_AT = 4;  // blocks of 32 tokens that a warp waits for together

struct RoutingTiles {
  TileShared tiles;
  // Tokens of an expert, a bit each of 32. +1: columns start in different banks.
  uint32_t members[MOST_ROUTED / 32][LOCAL + 1];
  int worker_rows[WORKERS][LOCAL];  // of the blocks that a worker has looked at
  uint16_t tokens[TILE_FEEDERS / 32][TILE_ROWS];
};

__device__ __forceinline__ int count_blocks(const Args& args) {
  return (args.num_tokens + 31) / 32;
}

// Local experts of 32 tokens of each of some blocks, `first` and every WORKERS-th from there on, a
// lane a token, as soon as all are known.
__device__ __forceinline__ void await_blocks(const StreamArgs& args, int first,
                                             uint2 (&locals)[LOOKED_AT]) {
  const Told& told = args.all.told;
  for (int looks = 1;; ++looks) {
    uint4 words[LOOKED_AT];
    int missing = -1;
#pragma unroll
    for (int i = 0; i < LOOKED_AT; ++i) {
      const int token = 32 * (first + WORKERS * i) + threadIdx.x % 32;
      words[i] = {FULL, uint32_t(told.nonce), FULL, uint32_t(told.nonce >> 32)};
      if (token < args.all.num_tokens) words[i] = load_relaxed(told.locals + token);
    }
#pragma unroll
    for (int i = 0; i < LOOKED_AT; ++i) {
      const uint32_t left = __ballot_sync(FULL, !has_nonce(words[i], told.nonce));
      if (left != 0) missing = 32 * (first + WORKERS * i) + __ffs(left) - 1;
      locals[i] = read_locals({words[i].x, words[i].z});
    }
    if (missing < 0) return;
    if (looks >= PATIENCE) route_token<true>(args, missing);
  }
}

// All workers: afterwards, and after a barrier, shared memory has all tokens' experts.
__device__ __forceinline__ void route_for_tiles(RoutingTiles& shared, const StreamArgs& args) {
  const int lane = threadIdx.x % 32, worker = worker_number(), blocks = count_blocks(args.all);
  const int step = WORKERS * gridDim.x;
#pragma unroll 1
  for (int token = worker * gridDim.x + blockIdx.x; token < args.all.num_tokens; token += step) {
    route_token<true>(args, token);
  }
  int rows = 0;
#pragma unroll 1
  for (int first = worker; first < blocks; first += WORKERS * LOOKED_AT) {
    uint2 locals[LOOKED_AT];
    await_blocks(args, first, locals);
#pragma unroll
    for (int i = 0; i < LOOKED_AT; ++i) {
      const uint32_t members = find_members(locals[i]);
      if (first + WORKERS * i < blocks) shared.members[first + WORKERS * i][lane] = members;
      rows += __popc(members);
    }
  }
  shared.worker_rows[worker][lane] = rows;
}

// Packed rows of the lane's expert.
__device__ __forceinline__ int count_expert_rows(const RoutingTiles& shared) {
  int rows = 0;
#pragma unroll
  for (int worker = 0; worker < WORKERS; ++worker) {
    rows += shared.worker_rows[worker][threadIdx.x % 32];
  }
  return rows;
}

// One warp, that of the weights: all barriers and the cluster's first ticket.
__device__ __forceinline__ void begin_tiles(RoutingTiles& shared, const Args& args, int rank) {
  const bool takes = rank == 0 && threadIdx.x % 32 == 0;
  const uint64_t seen = takes ? load_relaxed(args.told.ticket) : 0;
  if (threadIdx.x % 32 == 0) {
    prefetch_map(&args.w1), prefetch_map(&args.w2);
    init_tile_barriers(shared.tiles);
  }
  __syncwarp();
  arrive_cluster();
  const int ticket = takes ? take_first_ticket(args.told, seen) : 0;
  __syncwarp();
  wait_cluster();  // before one CTA arrives at the other's barriers
  if (takes) send_ticket(shared.tiles, ticket, 0);
}

// The tokens of a row tile, for the warps that gather packed rows: each has a list of its own.
struct RoutedRows {
  RoutingTiles& shared;
  int blocks;
  int expert_row;  // packed row at which the lane's expert begins

  __device__ __forceinline__ const uint16_t* list(const Args& args, const TileUnit& unit) const {
    const int lane = threadIdx.x % 32;
    uint16_t* tokens = shared.tokens[threadIdx.x / 32 - MULTIPLYING / 32 - 1];
    int row = __shfl_sync(FULL, expert_row, unit.expert) - unit.first_row;
    __syncwarp();  // the list before is read
#pragma unroll 1
    for (int first = 0; first < blocks; first += 32) {
      const int block = first + lane;
      uint32_t members = block < blocks ? shared.members[block][unit.expert] : 0;
      const int through = scan_lanes(__popc(members));
      int at = row + through - __popc(members);
      for (; members != 0; members &= members - 1, ++at) {
        if (at >= 0 && at < unit.rows) tokens[at] = 32 * block + __ffs(members) - 1;
      }
      row += __shfl_sync(FULL, through, 31);
    }
    __syncwarp();
    return tokens;
  }
};

__device__ __forceinline__ RoutedRows find_routed_rows(RoutingTiles& shared, const Args& args) {
  const int rows = count_expert_rows(shared);
  return {shared, count_blocks(args), scan_lanes(rows) - rows};
}

// One warp: which rows the slots of the CTA's own tokens have, for combine_kernel, and zeros for
// tokens without any.
__device__ __forceinline__ void tell_slots(const RoutingTiles& shared, const Args& args) {
  const int lane = threadIdx.x % 32, slot = lane % TOP_K, rows = count_expert_rows(shared);
  int row = scan_lanes(rows) - rows, counted = 0;  // of the lane's expert, before a block
#pragma unroll 1
  for (int token = blockIdx.x; token < args.num_tokens; token += gridDim.x) {
    const uint4 words = load_relaxed(args.told.locals + token);  // told long ago
    const uint2 locals = read_locals({words.x, words.z});
    for (; counted < token / 32; ++counted) row += __popc(shared.members[counted][lane]);
    const uint32_t ahead = shared.members[counted][lane] & ((1u << token % 32) - 1);
    const uint32_t expert = expert_in(locals, slot);
    const int mine = __shfl_sync(FULL, row + __popc(ahead), expert % LOCAL);
    if (lane < TOP_K) {
      uint2* half = reinterpret_cast<uint2*>(args.told.slots + int64_t{token} * TOP_K + slot);
      store_half(half, expert < LOCAL ? mine : -1, args.told.nonce);
    }
    if (__any_sync(FULL, expert < LOCAL)) continue;
    int4* output = reinterpret_cast<int4*>(args.output + int64_t{token} * HIDDEN);
    for (int i = lane; i < HIDDEN / 8; i += 32) output[i] = int4{};
  }
}

}  // namespace
