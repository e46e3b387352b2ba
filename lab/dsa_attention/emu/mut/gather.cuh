// From a token's index row to its queries and cache rows in shared memory.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "plan.cuh"

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
  wait_phase(&shared.survey_made, 0);
  Work work = {0, 0};
#pragma unroll
  for (int i = 0; i < HELPERS; ++i) {
    const int2 found = shared.surveyed[i];
    work.owners |= found.x, work.tiles |= found.y;
  }
  return work;
}

// Requests the rows of a tile: of blocks with a valid entry the valid rows, and zeros for the
// others, since weights of 0 times whatever lies there must be 0. MEMBERS warps take rows in turns.
template <int MEMBERS>
__device__ __forceinline__ void request_tile(uint8_t* tile, const Args& args,
                                             const Entries& entries, uint64_t valid, int member) {
  constexpr int QUADS = TILE / MEMBERS / 4;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int quad = 0; quad < QUADS; ++quad) {
    const int first = member + 4 * quad * MEMBERS;
    const int entry = 4 * quad * MEMBERS < 32 ? entries.low : entries.high;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first + i * MEMBERS;
      const int index = __shfl_sync(~0u, entry, row % 32);
      const bool is_valid = valid >> row & 1;
      if (!has_block(valid, row / BLOCK)) continue;  // alike in all lanes
      const auto* from = reinterpret_cast<const char*>(args.ckv) +
                         static_cast<int64_t>(is_valid ? index : 0) * CKV_BYTES + 16 * lane;
      copy_chunk_or_clear(tile + row * ROW + 16 * lane, from, is_valid);
      copy_chunk_or_clear(tile + row * ROW + 16 * lane + 512, from + 512, is_valid);
    }
    const int row = first + lane / 8 * MEMBERS;
    const int index = __shfl_sync(~0u, entry, row % 32);
    const bool is_valid = valid >> row & 1;
    const auto* from = reinterpret_cast<const char*>(args.kpe) +
                       static_cast<int64_t>(is_valid ? index : 0) * KPE_BYTES + 16 * (lane % 8);
    if (has_block(valid, row / BLOCK)) {
      copy_chunk_or_clear(tile + row * ROW + CKV_BYTES + 16 * (lane % 8), from, is_valid);
    }
  }
}

}  // namespace
