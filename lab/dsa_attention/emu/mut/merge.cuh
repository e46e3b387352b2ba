// From the sums of one CTA, or of a cluster, to output and lse.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "async_copy.cuh"
#include "cluster.cuh"
#include "fast_math.cuh"
#include "plan.cuh"
#include "products.cuh"

namespace {

// The result of one CTA. Fragments are 4 bytes, lines 128: each warp turns its own 64 columns
// through shared memory.
template <typename Shared>
__device__ __forceinline__ void write_alone(Shared& shared, const Args& args, int64_t token,
                                            const Sums& acc) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  wait_phase(&shared.sums_stored, 0);
  uint8_t* mine = &shared.query[warp * HEADS * OUTPUT_ROW];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int head = lane / 4 + 8 * i;
    const float factor = __fdividef(1.0f, total_of(shared, head));
#pragma unroll
    for (int group = 0; group < 8; ++group) {
      *reinterpret_cast<__nv_bfloat162*>(&mine[head * OUTPUT_ROW + 16 * group + lane % 4 * 4]) =
          __floats2bfloat162_rn(acc[group][2 * i] * factor, acc[group][2 * i + 1] * factor);
    }
  }
  __syncwarp();
  auto* to = reinterpret_cast<char*>(args.output + token * HEADS * CKV) + 2 * warp * WARP_COLUMNS;
#pragma unroll
  for (int i = 0; i < HEADS / 4; ++i) {
    const int head = 4 * i + lane / 8, chunk = 16 * (lane % 8);
    *reinterpret_cast<uint4*>(to + head * CKV_BYTES + chunk) =
        *reinterpret_cast<const uint4*>(&mine[head * OUTPUT_ROW + chunk]);
  }
}

// By the helping warps: lse of a token that one CTA has alone.
template <typename Shared>
__device__ __forceinline__ void write_lse_alone(Shared& shared, const Args& args, int64_t token) {
  wait_phase(&shared.sums_stored, 0);
  const int head = threadIdx.x - COMPUTING;
  if (head >= HEADS) return;
  args.lse[token * HEADS + head] = shared.top[head] + __log2f(total_of(shared, head));
}

// My maxima and sums to every CTA of the cluster, by the helping warps.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void send_stats(Shared& shared, int rank) {
  wait_phase(&shared.sums_stored, 0);
  const int head = (threadIdx.x - COMPUTING) / 8;
  const float2 stats = {shared.top[head], total_of(shared, head)};
#pragma unroll
  for (int i = 0; i < (CLUSTER + 7) / 8; ++i) {
    const int peer = threadIdx.x % 8 + 8 * i;
    if (peer >= CLUSTER) continue;
    send(address_in(shared_address(&shared.peers[head][rank]), peer), stats,
         address_in(shared_address(&shared.stats_landed), peer));
  }
}

// Groups of eight columns FIRST_GROUP and on, as many as a piece has, to the CTA that owns them.
template <int CLUSTER, int FIRST_GROUP, typename Shared>
__device__ __forceinline__ void send_piece(Shared& shared, int rank, const Sums& acc) {
  using Part = Piece<CLUSTER>;
  constexpr int GROUPS = Part::WIDTH / 8;
  const int lane = threadIdx.x % 32;
  const int piece = threadIdx.x / 32 * Part::A_WARP + FIRST_GROUP / GROUPS;
  Part& mine = reinterpret_cast<Part*>(shared.query)[piece];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      const float(&sums)[4] = acc[FIRST_GROUP + group];
      auto* to = &mine.sums[Part::place(lane / 4 + 8 * i, 8 * group + lane % 4 * 2)];
      *reinterpret_cast<__nv_bfloat162*>(to) =
          __floats2bfloat162_rn(sums[2 * i], sums[2 * i + 1]);
    }
  }
  publish_shared();
  __syncwarp();
  if (lane == 0) {
    const int owner = piece / Part::AN_OWNER;
    const uint32_t to = shared_address(&shared.received[rank][piece % Part::AN_OWNER]);
    copy_to_cluster(address_in(to, owner), shared_address(&mine), sizeof(Part),
                    address_in(shared_address(&shared.sums_landed), owner));
  }
}

// What the sums of each sender count, and lse: by the helping warps, a quarter-warp a head.
template <typename Shared>
__device__ __forceinline__ void find_factors(Shared& shared, const Args& args, int64_t token,
                                             int rank, const Work& work) {
  const int head = (threadIdx.x - COMPUTING) / 8, first = threadIdx.x % 8 * 2;
  const float4 found = *reinterpret_cast<const float4*>(&shared.peers[head][first]);
  constexpr float2 NOTHING = {-INFINITY, 0.0f};
  const float2 stats[2] = {work.sends(first) ? float2{found.x, found.y} : NOTHING,
                           work.sends(first + 1) ? float2{found.z, found.w} : NOTHING};
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
__device__ __forceinline__ void merge(const Shared& shared, const Args& args, int64_t token,
                                      int rank, const Work& work) {
  using Part = Piece<CLUSTER>;
  const int head = threadIdx.x / 16;
  float4 factors[(CLUSTER + 3) / 4];
#pragma unroll
  for (int i = 0; i < (CLUSTER + 3) / 4; ++i) {
    factors[i] = *reinterpret_cast<const float4*>(&shared.factors[head][4 * i]);
  }
#pragma unroll
  for (int first = 0; first < Part::OWNED; first += 32) {
    const int column = first + threadIdx.x % 16 * 2;
    float2 sum = {};
#pragma unroll
    for (int s = 0; s < CLUSTER; ++s) {
      if (!work.sends(s)) continue;
      const float factor = reinterpret_cast<const float*>(factors)[s];
      const Part& part = shared.received[s][column / Part::WIDTH];
      const auto* from = &part.sums[Part::place(head, column % Part::WIDTH)];
      const float2 some = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
      sum.x += factor * some.x, sum.y += factor * some.y;
    }
    auto* to = args.output + (token * HEADS + head) * CKV + rank * Part::OWNED + column;
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
