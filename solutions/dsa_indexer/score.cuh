// From pages of the cache to keys: in the shared memory of CTA 0, or in memory.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "async_copy.cuh"
#include "cluster.cuh"
#include "plan.cuh"
#include "warpgroup.cuh"

namespace {

// The codes that a lane multiplies: of tokens lane / 4 and eight on in its warp's 16, bytes
// 16 (lane % 4) to 15 more of both halves of the dimensions. The order of the dimensions inside a
// product is free, so this one serves: 16 bytes a load, and the registers are the operand.
struct Codes {
  uint4 words[2][2];  // [token][half]
  float scales[2];
};

__device__ __forceinline__ int page_row() {  // of the lane's first token
  return threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
}

__device__ __forceinline__ Codes request_page(const Args& args, int entry, int first, int length) {
  Codes codes = {};
  if (entry < 0 || entry >= args.num_pages) return codes;
  const uint8_t* page = args.cache + int64_t{entry} * PAGE_BYTES;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = page_row() + 8 * i;
    if (first + row >= length) continue;
    const uint8_t* from = page + row * DIM + threadIdx.x % 4 * 16;
    codes.words[i][0] = __ldg(reinterpret_cast<const uint4*>(from));
    codes.words[i][1] = __ldg(reinterpret_cast<const uint4*>(from + DIM / 2));
    codes.scales[i] = __ldg(reinterpret_cast<const float*>(page + SCALES_AT) + row);
  }
  return codes;
}

__device__ __forceinline__ uint32_t word_of(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

// Four e4m3 codes as two pairs of fp16.
__device__ __forceinline__ uint2 widen(uint32_t codes) {
  const __half2_raw low = __nv_cvt_fp8x2_to_halfraw2(codes & 0xffff, __NV_E4M3);
  const __half2_raw high = __nv_cvt_fp8x2_to_halfraw2(codes >> 16, __NV_E4M3);
  return {low.x | uint32_t{low.y} << 16, high.x | uint32_t{high.y} << 16};
}

// The query's dimensions in the order that the lanes hold the keys' in: a thread places 16 codes.
__device__ __forceinline__ uint4 request_query(const Args& args, int row) {
  const int part = threadIdx.x % 4, head = threadIdx.x / 4 % HEADS, half = threadIdx.x / 256;
  const uint8_t* from = args.query + int64_t{row} * HEADS * DIM + head * DIM;
  return __ldg(reinterpret_cast<const uint4*>(from + half * (DIM / 2) + part * 16));
}

__device__ __forceinline__ void place_query(SharedMemory& shared, const uint4& codes) {
  const int part = threadIdx.x % 4, head = threadIdx.x / 4 % HEADS, half = threadIdx.x / 256;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint2 pairs = widen(word_of(codes, i));
    uint8_t* tile = shared.query[half] + 4 * part;
    *reinterpret_cast<uint32_t*>(tile + swizzled(head, 2 * i)) = pairs.x;
    *reinterpret_cast<uint32_t*>(tile + swizzled(head, 2 * i + 1)) = pairs.y;
  }
}

// Products of the warpgroup's 64 tokens with all heads: see multiply_f16 for who holds which.
__device__ __forceinline__ void multiply(SharedMemory& shared, const Codes& codes,
                                         float (&products)[HEADS / 2]) {
  uint32_t operands[8][4];
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    const uint2 low = widen(word_of(codes.words[0][step / 4], step % 4));
    const uint2 high = widen(word_of(codes.words[1][step / 4], step % 4));
    operands[step][0] = low.x, operands[step][1] = high.x;
    operands[step][2] = low.y, operands[step][3] = high.y;
  }
  const uint64_t tiles[2] = {describe_tile(shared.query[0]), describe_tile(shared.query[1])};
  begin_products();
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    multiply_f16(products, operands[step], at_step(tiles[step / 4], step % 4), step > 0);
  }
  finish_products(products);
}

// Score of one of the lane's two tokens: the second in odd lanes. Twice max(x, 0) is x + |x|, two
// operations at the full rate, where a maximum has half of it.
__device__ __forceinline__ float weigh(const SharedMemory& shared,
                                       float (&products)[HEADS / 2], const float (&scales)[2]) {
  if (__any_sync(FULL, scales[0] < 0.0f || scales[1] < 0.0f)) {
    const float signs[2] = {copysignf(1.0f, scales[0]), copysignf(1.0f, scales[1])};
#pragma unroll
    for (int i = 0; i < HEADS / 2; ++i) products[i] *= signs[i / 2 % 2];
  }
  const float2* weights = reinterpret_cast<const float2*>(shared.weights) + threadIdx.x % 4;
  float sums[2][2] = {};
#pragma unroll
  for (int i = 0; i < HEADS / 2; ++i) {
    const float2 pair = weights[i / 4 * 4];
    float& sum = sums[i / 2 % 2][i % 2];
    sum = fmaf(i % 2 ? pair.y : pair.x, products[i] + fabsf(products[i]), sum);
  }
  const float low = sums[0][0] + sums[0][1], high = sums[1][0] + sums[1][1];
  const bool is_odd = threadIdx.x % 2;
  float sum = is_odd ? high : low;
  sum += __shfl_xor_sync(FULL, is_odd ? low : high, 1);
  sum += __shfl_xor_sync(FULL, sum, 2);
  return 0.5f * sum * fabsf(is_odd ? scales[1] : scales[0]);
}

// Keys of this CTA's pages of a sequence, sent into CTA 0. entries: the pages of this warpgroup.
__device__ __forceinline__ void score_pages(SharedMemory& shared, const Args& args, int row,
                                            int length, int rank,
                                            const int (&entries)[GROUP_PAGES]) {
  const int group = threadIdx.x / 128, pages = (length + PAGE - 1) / PAGE;
  Codes codes[GROUP_PAGES];
#pragma unroll
  for (int i = 0; i < GROUP_PAGES; ++i) {
    const int page = rank + CLUSTER * (group + GROUPS * i);
    codes[i] = request_page(args, page < pages ? entries[i] : -1, page * PAGE, length);
  }
  const uint4 query = request_query(args, row);
  if (threadIdx.x < HEADS) {
    shared.weights[threadIdx.x] = __ldg(args.weights + int64_t{row} * HEADS + threadIdx.x);
  }
  if (rank == 0 && threadIdx.x < pages) {
    shared.table[threadIdx.x] = __ldg(args.table + int64_t{row} * args.columns + threadIdx.x);
  }
  place_query(shared, query);
  publish_shared();
  __syncthreads();
  wait_cluster();  // CTA 0 has its barrier, and has read the keys of the sequence before

  const uint32_t keys = address_in(shared_address(shared.keys), 0);
  const uint32_t landed = address_in(shared_address(&shared.landed), 0);
#pragma unroll
  for (int i = 0; i < GROUP_PAGES; ++i) {
    const int page = rank + CLUSTER * (group + GROUPS * i);
    if (page >= pages) break;
    float products[HEADS / 2];
    multiply(shared, codes[i], products);
    const uint32_t key = key_of(weigh(shared, products, codes[i].scales));
    const int position = page * PAGE + page_row() + threadIdx.x % 2 * 8;
    if (threadIdx.x % 4 < 2 && position < length) send(keys + 4 * position, key, landed);
  }
}

// Keys of pages from ... to - 1 of a sequence, stored in memory by position. A warpgroup takes each
// fourth page and requests the next one before it multiplies.
__device__ __forceinline__ void store_pages(SharedMemory& shared, const Args& args, int row,
                                            int length, int from, int to) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  const int* table = args.table + int64_t{row} * args.columns;
  uint32_t* keys = args.keys + int64_t{row} * args.columns * PAGE;
  const uint4 query = request_query(args, row);
  const float weight = __ldg(args.weights + int64_t{row} * HEADS + threadIdx.x % HEADS);
  int listed = 0;  // the lane's of 32 entries that the warpgroup comes to
  const auto request = [&](int turn) {
    const int page = from + group + GROUPS * turn;
    if (turn % 32 == 0) {
      const int mine = page + GROUPS * lane;
      listed = mine < to ? __ldg(table + mine) : -1;
    }
    const int entry = __shfl_sync(FULL, listed, turn % 32);
    return request_page(args, entry, page * PAGE, page < to ? length : 0);
  };
  Codes codes = request(0);
  __syncthreads();  // the query of the sequence before is used up
  place_query(shared, query);
  if (threadIdx.x < HEADS) shared.weights[threadIdx.x] = weight;
  publish_shared();
  __syncthreads();
#pragma unroll 1
  for (int turn = 0; from + group + GROUPS * turn < to; ++turn) {
    const Codes next = request(turn + 1);
    float products[HEADS / 2];
    multiply(shared, codes, products);
    const uint32_t key = key_of(weigh(shared, products, codes.scales));
    const int page = from + group + GROUPS * turn;
    const int position = page * PAGE + page_row() + threadIdx.x % 2 * 8;
    if (threadIdx.x % 4 < 2 && position < length) keys[position] = key;
    codes = next;
  }
}

}  // namespace
