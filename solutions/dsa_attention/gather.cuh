// From a token's index row to its queries and cache rows in shared memory.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "plan.cuh"

namespace {

template <int CLUSTER>
__device__ __forceinline__ Entries load_entries(const Args& args, int token, uint32_t thread,
                                                int rank, int tile, bool is_long) {
  const int lane = thread % 32, j = TILE_BLOCKS * tile + lane / BLOCK;
  const int* row = args.indices + int64_t{token} * SLOTS + lane % BLOCK;
  return {row[BLOCK * block_of<CLUSTER>(rank, j, is_long)],
          row[BLOCK * block_of<CLUSTER>(rank, j + TILE_BLOCKS / 2, is_long)]};
}

// Of other tiles than the first: the same in short and long rows.
template <int CLUSTER>
__device__ __forceinline__ Entries load_others(const Args& args, int token, uint32_t thread,
                                               int rank, int tile) {
  return load_entries<CLUSTER>(args, token, thread, rank, tile, true);
}

__device__ __forceinline__ bool is_row(int index, int num_rows) {
  return static_cast<uint32_t>(index) < static_cast<uint32_t>(num_rows);
}

// An entry of block FIRST, by which a warp sees whether the row is a long one.
__device__ __forceinline__ int load_teller(const Args& args, int token) {
  return args.indices[int64_t{token} * SLOTS + BLOCK * FIRST + threadIdx.x % BLOCK];
}

__device__ __forceinline__ bool is_long_row(int teller, int num_rows) {
  return __ballot_sync(~0u, is_row(teller, num_rows)) != 0;
}

// The first tile, of whichever row it will be: one round trip finds both.
struct Candidates {
  Entries of_short, of_long;
  int teller;
};

template <int CLUSTER>
__device__ __forceinline__ Candidates load_first(const Args& args, int token, int rank) {
  const Entries brief = load_entries<CLUSTER>(args, token, threadIdx.x, rank, 0, false);
  if (CLUSTER == 1) return {brief, brief, -1};
  const Entries spread = load_entries<CLUSTER>(args, token, threadIdx.x, rank, 0, true);
  return {brief, spread, load_teller(args, token)};
}

// nothing: 0, which is known where the indices are needed.
template <int CLUSTER>
__device__ __forceinline__ Entries pick_first(const Candidates& found, int num_rows, int nothing) {
  const Entries& brief = found.of_short;
  if (CLUSTER == 1) return {brief.low | nothing, brief.high | nothing};
  const bool is_long = is_long_row(found.teller | nothing, num_rows);
  return {(is_long ? found.of_long.low : brief.low) | nothing,
          (is_long ? found.of_long.high : brief.high) | nothing};
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
__device__ __forceinline__ void request_query(Shared& shared, const Args& args, int token) {
  const int lane = threadIdx.x % 32;
  const auto* nope = reinterpret_cast<const char*>(args.q_nope + int64_t{token} * HEADS * CKV);
  const auto* pe = reinterpret_cast<const char*>(args.q_pe + int64_t{token} * HEADS * KPE);
#pragma unroll
  for (int i = 0; i < HEADS / WARPS; ++i) {
    const int head = threadIdx.x / 32 + WARPS * i;
    uint8_t* to = &shared.query[place_of_chunk(head, lane)];
    copy_chunk(to, nope + head * CKV_BYTES + 16 * lane);
    copy_chunk(to + 512, nope + head * CKV_BYTES + 16 * lane + 512);
  }
  if (threadIdx.x < HEADS * 8) {
    const int head = threadIdx.x / 8, chunk = threadIdx.x % 8;
    copy_chunk(&shared.query[place_of_chunk(head, CKV_BYTES / CHUNK + chunk)],
               pe + head * KPE_BYTES + CHUNK * chunk);
  }
  commit_copies();
}

// The 16 indices of my block, as four loads.
struct Block {
  int4 slots[BLOCK / 4];
  int teller;
};

__device__ __forceinline__ Block load_block(const Args& args, int token) {
  const int block = threadIdx.x - COMPUTING;
  const int* row = args.indices + int64_t{token} * SLOTS;
  const auto* from = reinterpret_cast<const int4*>(row + BLOCK * block);
  Block loaded;
#pragma unroll
  for (int i = 0; i < BLOCK / 4; ++i) loaded.slots[i] = from[i];
  loaded.teller = load_teller(args, token);
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
  const bool is_long = CLUSTER > 1 && is_long_row(block.teller, num_rows);
  const Place place = place_of<CLUSTER>(threadIdx.x - COMPUTING, is_long);
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

// Requests the valid rows of a tile; MEMBERS warps take rows in turns. The other rows of a half
// with a valid one become 0, since weights of 0 times whatever lies there must be 0; nobody reads
// another half. Copies of invalid rows are copies of zeros, not branches: a branch has every copy
// wait for the one in front of it.
template <int MEMBERS>
__device__ __forceinline__ void request_rows(uint8_t* tile, const Args& args,
                                             const Entries& entries, uint64_t valid, int member) {
  constexpr int TURNS = 32 / MEMBERS, QUADS = TURNS / 4;
  constexpr int LANES = KPE_BYTES / CHUNK;  // of a row of kpe
  const int lane = threadIdx.x % 32, chunk = lane % LANES;
#pragma unroll
  for (int first = 0; first < TILE; first += 32) {
    if (static_cast<uint32_t>(valid >> first) == 0) continue;
    const int entry = first == 0 ? entries.low : entries.high;
    int quads[QUADS], rows[TURNS];
#pragma unroll
    for (int i = 0; i < QUADS; ++i) {
      quads[i] = __shfl_sync(~0u, entry, member + MEMBERS * (4 * i + lane / LANES));
    }
#pragma unroll
    for (int i = 0; i < TURNS; ++i) rows[i] = __shfl_sync(~0u, entry, member + MEMBERS * i);
#pragma unroll
    for (int i = 0; i < QUADS; ++i) {
      const int row = first + member + MEMBERS * (4 * i + lane / LANES);
      const auto* from = reinterpret_cast<const char*>(args.kpe) +
                         static_cast<int64_t>(quads[i]) * KPE_BYTES + CHUNK * chunk;
      copy_chunk_or_clear(tile + place_of_chunk(row, CKV_BYTES / CHUNK + chunk), from,
                          is_row(quads[i], args.num_rows));
    }
#pragma unroll
    for (int i = 0; i < TURNS; ++i) {
      const bool is_valid = is_row(rows[i], args.num_rows);
      const auto* from = reinterpret_cast<const char*>(args.ckv) +
                         static_cast<int64_t>(rows[i]) * CKV_BYTES + CHUNK * lane;
      uint8_t* to = tile + place_of_chunk(first + member + MEMBERS * i, lane);
      copy_chunk_or_clear(to, from, is_valid);
      copy_chunk_or_clear(to + 512, from + 512, is_valid);
    }
  }
}

}  // namespace
