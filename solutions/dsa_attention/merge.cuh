// From the sums of one CTA, or of a cluster, to output and lse.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "async_copy.cuh"
#include "cluster.cuh"
#include "fast_math.cuh"
#include "plan.cuh"

namespace {

// Calls use(head, column, two values) for everything that this thread holds of acc.
template <typename Use>
__device__ __forceinline__ void for_each_pair(const float (&acc)[8][4], Use use) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int group = 0; group < 8; ++group) {
      use(lane / 4 + 8 * half, warp * WARP_COLUMNS + 8 * group + lane % 4 * 2,
          float2{acc[group][2 * half], acc[group][2 * half + 1]});
    }
  }
}

// The result of one CTA, through shared memory: fragments are 4 bytes, lines 128.
template <typename Shared>
__device__ __forceinline__ void write_alone(Shared& shared, const Args& args, int64_t token,
                                            const float (&acc)[8][4]) {
  const int lane = threadIdx.x % 32;
  const float factors[2] = {__fdividef(1.0f, shared.stats[lane / 4].y),
                            __fdividef(1.0f, shared.stats[lane / 4 + 8].y)};
  for_each_pair(acc, [&](int head, int column, float2 pair) {
    const float factor = factors[head / 8];
    *reinterpret_cast<__nv_bfloat162*>(&shared.query[head * ROW + 2 * column]) =
        __floats2bfloat162_rn(pair.x * factor, pair.y * factor);
  });
  if (threadIdx.x < HEADS) {
    const float2 stats = shared.stats[threadIdx.x];
    args.lse[token * HEADS + threadIdx.x] = stats.x + __log2f(stats.y);
  }
  sync_first<COMPUTING>();
  uint4* output = reinterpret_cast<uint4*>(args.output + token * HEADS * CKV);
#pragma unroll
  for (int i = 0; i < HEADS * CKV_BYTES / 16 / COMPUTING; ++i) {
    const int chunk = threadIdx.x + COMPUTING * i;
    const uint8_t* from = &shared.query[chunk / 64 * ROW + chunk % 64 * 16];
    output[chunk] = *reinterpret_cast<const uint4*>(from);
  }
}

// My maxima and sums to every CTA of the cluster.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void send_stats(Shared& shared, int rank) {
  if (threadIdx.x >= CLUSTER * HEADS) return;
  const int peer = threadIdx.x / HEADS, head = threadIdx.x % HEADS;
  send(address_in(shared_address(&shared.peers[head][rank]), peer), shared.stats[head],
       address_in(shared_address(&shared.stats_landed), peer));
}

// Every CTA of the cluster owns 512 / CLUSTER columns and receives what all have of them.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void send_sums(Shared& shared, uint8_t* from, uint8_t* received,
                                          int rank, const float (&acc)[8][4]) {
  using Part = Share<CLUSTER>;
  Part* shares = reinterpret_cast<Part*>(from);
  for_each_pair(acc, [&](int head, int column, float2 pair) {
    float* to = shares[column / Part::WIDTH].sums;
    *reinterpret_cast<float2*>(&to[Part::place(head, column % Part::WIDTH)]) = pair;
  });
  publish_shared();
  sync_first<COMPUTING>();
  const int lane = threadIdx.x % 32, peer = threadIdx.x / 32 + WARPS * lane;  // two copies a warp
  if (lane < 2 && peer < CLUSTER) {
    const uint32_t to = shared_address(received + rank * sizeof(Part));
    copy_to_cluster(address_in(to, peer), shared_address(&shares[peer]), sizeof(Part),
                    address_in(shared_address(&shared.sums_landed), peer));
  }
}

// What the sums of each sender count, and lse: by the helping warps, a quarter-warp a head.
template <typename Shared>
__device__ __forceinline__ void find_factors(Shared& shared, const Args& args, int64_t token,
                                             int rank, int senders) {
  const int head = (threadIdx.x - COMPUTING) / 8, first = threadIdx.x % 8 * 2;
  const float4 found = *reinterpret_cast<const float4*>(&shared.peers[head][first]);
  constexpr float2 NOTHING = {-INFINITY, 0.0f};
  const float2 stats[2] = {first < senders ? float2{found.x, found.y} : NOTHING,
                           first + 1 < senders ? float2{found.z, found.w} : NOTHING};
  float top = fmaxf(stats[0].x, stats[1].x);
#pragma unroll
  for (int mask = 4; mask > 0; mask /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, mask));
  const float anchor = top == -INFINITY ? 0.0f : top;
  const float factors[2] = {exp2_approx(stats[0].x - anchor), exp2_approx(stats[1].x - anchor)};
  float total = factors[0] * stats[0].y + factors[1] * stats[1].y;
#pragma unroll
  for (int mask = 4; mask > 0; mask /= 2) total += __shfl_xor_sync(~0u, total, mask);
  *reinterpret_cast<float2*>(&shared.factors[head][first]) =
      float2{__fdividef(factors[0], total), __fdividef(factors[1], total)};
  if (rank == 0 && first == 0) args.lse[token * HEADS + head] = top + __log2f(total);
}

template <int CLUSTER, typename Shared>
__device__ __forceinline__ void merge(const Shared& shared, const uint8_t* received,
                                      const Args& args, int64_t token, int rank, int senders) {
  using Part = Share<CLUSTER>;
  const int head = threadIdx.x / 16;
  const auto* shares = reinterpret_cast<const Part*>(received);
  float4 factors[(CLUSTER + 3) / 4];
#pragma unroll
  for (int i = 0; i < (CLUSTER + 3) / 4; ++i) {
    factors[i] = *reinterpret_cast<const float4*>(&shared.factors[head][4 * i]);
  }
#pragma unroll
  for (int first = 0; first < Part::WIDTH; first += 32) {
    const int column = first + threadIdx.x % 16 * 2;
    float2 sum = {};
#pragma unroll
    for (int s = 0; s < CLUSTER; ++s) {
      const float factor = reinterpret_cast<const float*>(factors)[s];
      const auto* from = &shares[s].sums[Part::place(head, column)];
      const float2 part = s < senders ? *reinterpret_cast<const float2*>(from) : float2{};
      sum.x += factor * part.x, sum.y += factor * part.y;
    }
    auto* to = args.output + (token * HEADS + head) * CKV + rank * Part::WIDTH + column;
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(sum.x, sum.y);
  }
}

__device__ __forceinline__ void write_empty(const Args& args, int64_t token) {
  uint4* at = reinterpret_cast<uint4*>(args.output + token * HEADS * CKV);
#pragma unroll
  for (int i = threadIdx.x; i < HEADS * CKV_BYTES / 16; i += COMPUTING) at[i] = uint4{};
  if (threadIdx.x < HEADS) args.lse[token * HEADS + threadIdx.x] = -INFINITY;
}

}  // namespace
