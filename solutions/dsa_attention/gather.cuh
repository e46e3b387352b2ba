// From a token's index row to its queries and cache rows in shared memory.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "plan.cuh"
#include "predicated_copy.cuh"

namespace {

template <int CLUSTER>
__device__ __forceinline__ Entries load_entries(const Args& args, int64_t token, int rank,
                                                int tile) {
  const int lane = threadIdx.x % 32, j = TILE_BLOCKS * tile + lane / BLOCK;
  const int* row = args.indices + token * SLOTS + lane % BLOCK;
  return {row[BLOCK * block_of<CLUSTER>(rank, j)],
          row[BLOCK * block_of<CLUSTER>(rank, j + TILE_BLOCKS / 2)]};
}

__device__ __forceinline__ bool is_row(int index, int num_rows) {
  return static_cast<uint32_t>(index) < static_cast<uint32_t>(num_rows);
}

// Bit r: row r of the tile is valid.
__device__ __forceinline__ uint64_t vote(const Entries& entries, int num_rows) {
  const uint32_t low = __ballot_sync(~0u, is_row(entries.low, num_rows));
  const uint32_t high = __ballot_sync(~0u, is_row(entries.high, num_rows));
  return static_cast<uint64_t>(high) << 32 | low;
}

__device__ __forceinline__ bool has_block(uint64_t valid, int block) {
  return (valid >> BLOCK * block & 0xffff) != 0;
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

// The 16 indices of my block, as four loads.
struct Block {
  int4 slots[BLOCK / 4];
};

__device__ __forceinline__ Block load_block(const Args& args, int64_t token) {
  const int block = threadIdx.x - COMPUTING;
  const auto* from = reinterpret_cast<const int4*>(args.indices + token * SLOTS + BLOCK * block);
  Block loaded;
#pragma unroll
  for (int i = 0; i < BLOCK / 4; ++i) loaded.slots[i] = from[i];
  return loaded;
}

// By the helping warps: whose the valid entries of the whole row are.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void survey(Shared& shared, const Block& block, int num_rows, int rank) {
  bool has_some = false;
#pragma unroll
  for (int i = 0; i < BLOCK / 4; ++i) {
    const int4& four = block.slots[i];
    has_some |= is_row(four.x, num_rows) || is_row(four.y, num_rows) ||
                is_row(four.z, num_rows) || is_row(four.w, num_rows);
  }
  const Place place = place_of<CLUSTER>(threadIdx.x - COMPUTING);
  const uint32_t tile = place.owner == rank ? 1u << place.j / TILE_BLOCKS : 0;
  const uint32_t owners = __reduce_or_sync(~0u, has_some ? 1u << place.owner : 0);
  const uint32_t tiles = __reduce_or_sync(~0u, has_some ? tile : 0);
  if (threadIdx.x % 32 == 0) {
    shared.surveyed[threadIdx.x / 32 - WARPS] = {static_cast<int>(owners), static_cast<int>(tiles)};
    arrive(&shared.survey_made);
  }
}

template <typename Shared>
__device__ __forceinline__ Work read_survey(Shared& shared) {
  wait_cta_phase(&shared.survey_made, 0);
  Work work = {0, 0};
#pragma unroll
  for (int i = 0; i < HELPERS; ++i) {
    const int2 found = shared.surveyed[i];
    work.owners |= found.x, work.tiles |= found.y;
  }
  return work;
}

// Requests the valid rows of a tile. MEMBERS warps take rows in turns. Neither votes nor branches
// stand in front of a copy: all indices are handed round first, and each row's own index says
// whether it is there.
template <int MEMBERS>
__device__ __forceinline__ void request_rows(uint8_t* tile, const Args& args,
                                             const Entries& entries, int member) {
  constexpr int TURNS = TILE / MEMBERS, QUADS = TURNS / 4;
  const int lane = threadIdx.x % 32;
  int rows[TURNS], quads[QUADS];  // the last for kpe: a quarter-warp a row
#pragma unroll
  for (int i = 0; i < TURNS; ++i) {
    const int entry = MEMBERS * i < 32 ? entries.low : entries.high;
    rows[i] = __shfl_sync(~0u, entry, (member + MEMBERS * i) % 32);
  }
#pragma unroll
  for (int i = 0; i < QUADS; ++i) {
    const int entry = 4 * MEMBERS * i < 32 ? entries.low : entries.high;
    quads[i] = __shfl_sync(~0u, entry, (member + MEMBERS * (4 * i + lane / 8)) % 32);
  }
#pragma unroll
  for (int i = 0; i < QUADS; ++i) {
#pragma unroll
    for (int turn = 4 * i; turn < 4 * i + 4; ++turn) {
      const bool is_valid = is_row(rows[turn], args.num_rows);
      const auto* from = reinterpret_cast<const char*>(args.ckv) +
                         static_cast<int64_t>(rows[turn]) * CKV_BYTES + 16 * lane;
      uint8_t* to = tile + (member + MEMBERS * turn) * ROW + 16 * lane;
      copy_chunk_where(is_valid, to, from);
      copy_chunk_where(is_valid, to + 512, from + 512);
    }
    const auto* from = reinterpret_cast<const char*>(args.kpe) +
                       static_cast<int64_t>(quads[i]) * KPE_BYTES + 16 * (lane % 8);
    uint8_t* to = tile + (member + MEMBERS * (4 * i + lane / 8)) * ROW + CKV_BYTES;
    copy_chunk_where(is_row(quads[i], args.num_rows), to + 16 * (lane % 8), from);
  }
}

// Zeros for the values of the other rows of blocks with a valid one, since weights of 0 times
// whatever lies there must be 0. Their keys make logits that do not count. Copies too: they are
// awaited with the rows.
template <int MEMBERS>
__device__ __forceinline__ void clear_rows(uint8_t* tile, const Args& args, uint64_t valid,
                                           int member) {
  const int lane = threadIdx.x % 32;
#pragma unroll 4
  for (int turn = 0; turn < TILE / MEMBERS; ++turn) {
    const int row = member + MEMBERS * turn;
    if (!has_block(valid, row / BLOCK) || (valid >> row & 1) != 0) continue;
    copy_chunk_or_clear(tile + row * ROW + 16 * lane, args.ckv, false);
    copy_chunk_or_clear(tile + row * ROW + 16 * lane + 512, args.ckv, false);
  }
}

}  // namespace
