// From a token's index row to its queries and cache rows in shared memory.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "plan.cuh"

namespace {

__device__ __forceinline__ Slots load_slots(const Args& args, int64_t token) {
  const int4* mine = reinterpret_cast<const int4*>(args.indices + token * SLOTS) + 2 * threadIdx.x;
  const int4 low = load_now(mine), high = load_now(mine + 1);
  return {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
}

template <typename Shared>
__device__ __forceinline__ void request_query(Shared& shared, const Args& args, int64_t token) {
  const int lane = threadIdx.x % 32;
  const auto* nope = reinterpret_cast<const char*>(args.q_nope + token * HEADS * CKV);
  const auto* pe = reinterpret_cast<const char*>(args.q_pe + token * HEADS * KPE);
#pragma unroll
  for (int i = 0; i < HEADS / WARPS; ++i) {
    const int head = threadIdx.x / 32 + WARPS * i;
    uint8_t* to = &shared.query[head * ROW + 16 * lane];
    copy_chunk(to, nope + head * CKV_BYTES + 16 * lane);
    copy_chunk(to + 512, nope + head * CKV_BYTES + 16 * lane + 512);
  }
  if (threadIdx.x < HEADS * 8) {
    const int head = threadIdx.x / 8, chunk = 16 * (threadIdx.x % 8);
    copy_chunk(&shared.query[head * ROW + CKV_BYTES + chunk], pe + head * KPE_BYTES + chunk);
  }
  commit_copies();
}

// What there is to do, from the counts of the valid entries that each warp has found.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ Work divide_work(const Shared& shared, int rank) {
  int total = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) total += shared.warp_counts[w];
  const int share = max((total + CLUSTER - 1) / CLUSTER, Tuning::MIN_RUN);
  const int run = total <= Tuning::ALONE ? total : share;
  return {total, run, min(max(total - rank * run, 0), run)};
}

// Ranks the valid entries of a row, in any order, and keeps those of my run in shared.rows.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ Work rank_entries(Shared& shared, int num_rows, const Slots& slots,
                                             int rank) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int places[SLOTS_A_THREAD], found = 0;
#pragma unroll
  for (int i = 0; i < SLOTS_A_THREAD; ++i) {
    const bool valid = static_cast<uint32_t>(slots.at[i]) < static_cast<uint32_t>(num_rows);
    const uint32_t votes = __ballot_sync(~0u, valid);
    places[i] = valid ? found + __popc(votes & ((1u << lane) - 1)) : SLOTS;
    found += __popc(votes);
  }
  if (lane == 0) shared.warp_counts[warp] = found;
  sync_first<COMPUTING>();
  const Work work = divide_work<CLUSTER>(shared, rank);
  int first = -rank * work.run;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) first += w < warp ? shared.warp_counts[w] : 0;
#pragma unroll
  for (int i = 0; i < SLOTS_A_THREAD; ++i) {
    const int place = places[i] + first;
    if (places[i] < SLOTS && place >= 0 && place < work.run) shared.rows[place] = slots.at[i];
  }
  return work;
}

// Requests the rows of a tile, and zeros up to the 16 of an mma: weights of 0 times whatever lies
// there must be 0. MEMBERS warps share the work, each two rows at a time.
template <int MEMBERS, typename Shared>
__device__ __forceinline__ void request_tile(Shared& shared, const Args& args, int tile, int count,
                                             int member) {
  constexpr int TURNS = TILE / MEMBERS / 2;
  const int lane = threadIdx.x % 32;
  uint8_t* to = shared.tiles[tile % STAGES] + 2 * member * ROW;
  int2 found[TURNS];
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const int* rows = &shared.rows[tile * TILE + 2 * (member + MEMBERS * turn)];
    found[turn] = *reinterpret_cast<const int2*>(rows);
  }
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn, to += 2 * MEMBERS * ROW) {
    const int row = 2 * (member + MEMBERS * turn);
    if (row >= (count + 15) / 16 * 16) return;
    const bool valid[2] = {row < count, row + 1 < count};  // what is not lies where row 0 does
    const int64_t from[2] = {valid[0] ? found[turn].x : 0, valid[1] ? found[turn].y : 0};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t at = from[i] * CKV_BYTES + 16 * lane;
      const auto* source = reinterpret_cast<const char*>(args.ckv) + at;
      copy_chunk_or_clear(to + i * ROW + 16 * lane, source, valid[i]);
      copy_chunk_or_clear(to + i * ROW + 16 * lane + 512, source + 512, valid[i]);
    }
    if (lane < 16) {
      const int64_t at = (lane < 8 ? from[0] : from[1]) * KPE_BYTES + 16 * (lane % 8);
      copy_chunk_or_clear(to + lane / 8 * ROW + CKV_BYTES + 16 * (lane % 8),
                          reinterpret_cast<const char*>(args.kpe) + at,
                          lane < 8 ? valid[0] : valid[1]);
    }
  }
}

}  // namespace
