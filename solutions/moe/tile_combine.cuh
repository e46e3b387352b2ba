// A warp of each CTA of tiles that adds up what is finished of the experts' outputs, while the
// others multiply.
//
// The second product's units come in slabs of 1024 columns of the output, all experts' in turn.
// Once a slab is complete, each CTA has its share of the tokens: rows come by bulk copies, many at
// a time. The last slab is left to combine_kernel, which has all SMs to itself.
#pragma once

#include "barrier_wait.cuh"
#include "bulk_copy.cuh"
#include "combine.cuh"
#include "device_flags.cuh"
#include "global_proxy.cuh"
#include "tile_plan.cuh"

namespace {

// Packed rows of 32 tokens that follow one another in the order of tokens, then slots, from `base`
// on; returns how many. A token's last row has its number, others have -1.
__device__ __forceinline__ int list_tokens(TileShared& shared, const Args& args, int first_token) {
  const int token = first_token + threadIdx.x % 32 * gridDim.x;
  int rows[TOP_K];
  int count = 0;
#pragma unroll
  for (int i = 0; i < TOP_K; ++i) {
    const bool is_token = token < args.num_tokens;
    rows[i] = is_token ? args.routing.slot_row[int64_t{token} * TOP_K + i] : -1;
    count += rows[i] >= 0;
  }
  const int through = scan_lanes(count);
  int at = through - count;
#pragma unroll
  for (int i = 0; i < TOP_K; ++i) {
    if (rows[i] < 0) continue;
    const float weight = args.routing.slot_weight[int64_t{token} * TOP_K + i];
    shared.summands[at] = {rows[i], weight, at + 1 == through ? token : -1};
    ++at;
  }
  __syncwarp();
  return __shfl_sync(FULL, through, 31);
}

__device__ __forceinline__ void request_slice(TileShared& shared, const Args& args, int part,
                                              int index, int stage) {
  uint64_t* full = &shared.slice_full[stage];
  arrive_expecting(full, SLICE_BYTES);
  copy_bulk(shared.slices[stage],
            args.expert_out + int64_t{shared.summands[index].row} * HIDDEN + part * SLAB_COLUMNS,
            SLICE_BYTES, full);
}

// sums += weight * the lane's columns of a slice.
__device__ __forceinline__ void add_slice(const uint8_t* slice, float weight,
                                          float (&sums)[SLAB_COLUMNS / 32]) {
#pragma unroll
  for (int i = 0; i < SLAB_COLUMNS / 256; ++i) {
    const uint4 part = reinterpret_cast<const uint4*>(slice)[i * 32 + threadIdx.x % 32];
    const uint32_t pairs[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const uint32_t bits = k % 2 ? pairs[k / 2] & 0xffff0000 : pairs[k / 2] << 16;
      sums[8 * i + k] += weight * __uint_as_float(bits);
    }
  }
}

// Writes a token's columns of a slab; the sums start anew.
__device__ __forceinline__ void write_slice(__nv_bfloat16* output,
                                            float (&sums)[SLAB_COLUMNS / 32]) {
#pragma unroll
  for (int i = 0; i < SLAB_COLUMNS / 256; ++i) {
    __nv_bfloat162 rounded[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      rounded[k] = __floats2bfloat162_rn(sums[8 * i + 2 * k], sums[8 * i + 2 * k + 1]);
      sums[8 * i + 2 * k] = sums[8 * i + 2 * k + 1] = 0.0f;
    }
    reinterpret_cast<uint4*>(output)[i * 32 + threadIdx.x % 32] =
        *reinterpret_cast<const uint4*>(rounded);
  }
}

// One slab's columns of the tokens that list_tokens() has found.
__device__ __forceinline__ void add_listed(TileShared& shared, const Args& args, int part,
                                           int count, Ring<SLICES>& ring) {
  const bool is_first = threadIdx.x % 32 == 0;
  for (int i = 0; is_first && i < min(count, SLICES); ++i) {
    request_slice(shared, args, part, i, (ring.stage + i) % SLICES);
  }
  float sums[SLAB_COLUMNS / 32] = {};
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    const Summand summand = shared.summands[i];
    wait_cta_phase(&shared.slice_full[ring.stage], ring.parity);
    add_slice(shared.slices[ring.stage], summand.weight, sums);
    __syncwarp();
    if (is_first && i + SLICES < count) {
      request_slice(shared, args, part, i + SLICES, ring.stage);
    }
    ring.advance();
    if (summand.token < 0) continue;
    write_slice(args.output + int64_t{summand.token} * HIDDEN + part * SLAB_COLUMNS, sums);
  }
  __syncwarp();
}

// Waits until a slab of all experts' outputs is written. Whoever is to count a unit has taken it
// and runs.
__device__ __forceinline__ void wait_for_slab(const Args& args, int slab) {
  const int rows = args.routing.counts[threadIdx.x % 32];
  const int tiles = __reduce_add_sync(FULL, (rows + TILE_ROWS - 1) / TILE_ROWS);
  const int* done = args.routing.done + MOST_TILES + slab;
  while (load_acquire(done) < tiles * SLAB_PARTS) __nanosleep(1000);
  admit_bulk_reads();
  __syncwarp();
}

// One warp: the sums of all slabs but the last.
__device__ __forceinline__ void combine_slabs(TileShared& shared, const Args& args) {
  Ring<SLICES> ring;
#pragma unroll 1
  for (int part = 0; part + 1 < SLABS; ++part) {
    wait_for_slab(args, part);
#pragma unroll 1
    for (int token = blockIdx.x; token < args.num_tokens; token += 32 * gridDim.x) {
      const int count = list_tokens(shared, args, token);
      add_listed(shared, args, part, count, ring);
    }
  }
}

}  // namespace
