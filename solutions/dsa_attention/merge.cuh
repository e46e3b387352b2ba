// From the sums of one CTA, or of a cluster, to output and lse.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "cluster.cuh"
#include "fast_math.cuh"
#include "plan.cuh"
#include "products.cuh"
#include "wide_send.cuh"

namespace {

__device__ __forceinline__ uint32_t as_word(__nv_bfloat162 pair) {
  return *reinterpret_cast<uint32_t*>(&pair);
}
__device__ __forceinline__ uint32_t as_word(__half2 pair) {
  return *reinterpret_cast<uint32_t*>(&pair);
}

// Among the four lanes of a quad: word j of lane l becomes word l of lane j.
__device__ __forceinline__ void turn_in_quad(uint32_t (&words)[4], uint32_t lane) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool has_bit = (lane & bit) != 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if ((j & bit) != 0) continue;
      const uint32_t got = __shfl_xor_sync(~0u, has_bit ? words[j] : words[j + bit], bit);
      words[j] = has_bit ? got : words[j];
      words[j + bit] = has_bit ? words[j + bit] : got;
    }
  }
}

// The result of one CTA. A lane holds two columns of each group of eight, and stores eight of one.
__device__ __forceinline__ void write_alone(const Args& args, int token, uint32_t thread,
                                            const Sums& acc) {
  const int lane = thread % 32, warp = thread / 32;
  const float factors[2] = {__fdividef(1.0f, acc[8][0]), __fdividef(1.0f, acc[8][2])};
  __nv_bfloat16* to = args.output + (int64_t{token} * HEADS + lane / 4) * CKV +
                      WARP_COLUMNS * warp + 8 * (lane % 4);
#pragma unroll
  for (int four = 0; four < WARP_COLUMNS / 32; ++four) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float(&sums)[4] = acc[4 * four + j];
        words[j] = as_word(
            __floats2bfloat162_rn(sums[2 * i] * factors[i], sums[2 * i + 1] * factors[i]));
      }
      turn_in_quad(words, lane);
      *reinterpret_cast<uint4*>(to + 8 * CKV * i + 32 * four) = {words[0], words[1], words[2],
                                                                 words[3]};
    }
  }
}

// By the helping warps: lse of a token that one CTA has alone.
template <typename Shared>
__device__ __forceinline__ void write_lse_alone(Shared& shared, const Args& args, int token) {
  sync_threads_of(SUMS_STORED, THREADS);
  const int head = (threadIdx.x - COMPUTING) / 8;
  const float total = total_of(shared, head);
  if (threadIdx.x % 8 != 0) return;
  args.lse[int64_t{token} * HEADS + head] = shared.anchor[head] + __log2f(total);
}

// My maxima and sums to every CTA of the cluster, by the helping warps.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void send_stats(Shared& shared, int rank) {
  sync_threads_of(SUMS_STORED, THREADS);
  const int head = (threadIdx.x - COMPUTING) / 8;
  const float2 stats = {shared.anchor[head], total_of(shared, head)};
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
__device__ __forceinline__ void send_piece(Shared& shared, uint32_t thread, int rank,
                                           const Sums& acc) {
  using Part = Piece<CLUSTER>;
  constexpr int GROUPS = Part::WIDTH / 8;
  const int piece = thread / 32 * Part::A_WARP + FIRST_GROUP / GROUPS;
  const int owner = piece / Part::AN_OWNER;
  Part& part = shared.received[rank][piece % Part::AN_OWNER];
  const uint32_t barrier = address_in(shared_address(&shared.sums_landed), owner);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int four = 0; four < GROUPS / 4; ++four) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float(&sums)[4] = acc[FIRST_GROUP + 4 * four + j];
        words[j] = as_word(__floats2half2_rn(sums[2 * i], sums[2 * i + 1]));
      }
      send(address_in(shared_address(part.sums[i][four][thread % 32]), owner), words, barrier);
    }
  }
}

// What the sums of each sender count, and lse: by the helping warps, a quarter-warp a head, four
// senders a lane, each of them twice: shuffles cost more than loads.
template <typename Shared>
__device__ __forceinline__ void find_factors(Shared& shared, const Args& args, int token,
                                             int rank, const Work& work) {
  const int head = (threadIdx.x - COMPUTING) / 8, first = threadIdx.x % 4 * 4;
  float tops[4], sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 stats = shared.peers[head][first + i];
    tops[i] = work.sends(first + i) ? stats.x : -INFINITY;
    sums[i] = work.sends(first + i) ? stats.y : 0.0f;
  }
  float top = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));
#pragma unroll
  for (int mask = 2; mask > 0; mask /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, mask));
  const float anchor = top == -INFINITY ? 0.0f : top;
  float factors[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) factors[i] = exp2_approx(tops[i] - anchor);
  float total = (factors[0] * sums[0] + factors[1] * sums[1]) +
                (factors[2] * sums[2] + factors[3] * sums[3]);
#pragma unroll
  for (int mask = 2; mask > 0; mask /= 2) total += __shfl_xor_sync(~0u, total, mask);
  const float part = __fdividef(1.0f, total);
  *reinterpret_cast<float4*>(&shared.factors[head][first]) = {
      factors[0] * part, factors[1] * part, factors[2] * part, factors[3] * part};
  arrive(&shared.factors_found);
  if (rank != 0 || threadIdx.x % 8 != 0) return;
  args.lse[int64_t{token} * HEADS + head] = top + __log2f(total);
}

// By the helping warps: zeros for the sums of those who send none, so that merge() counts all.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void clear_received(Shared& shared, const Work& work) {
  constexpr int CHUNKS = sizeof(shared.received[0]) / CHUNK;  // of a sender
#pragma unroll
  for (int first = 0; first < CLUSTER * CHUNKS; first += HELPING) {
    const int chunk = first + threadIdx.x - COMPUTING;
    if (work.sends(chunk / CHUNKS)) continue;
    reinterpret_cast<uint4*>(shared.received)[chunk] = uint4{};
  }
}

// What a thread of merge() knows before all sums have landed: what each sender's count for its
// head, and where its first columns lie among a sender's.
template <int CLUSTER>
struct Share {
  float4 factors[(CLUSTER + 3) / 4];
  uint32_t place;
};

template <int CLUSTER, typename Shared>
__device__ __forceinline__ Share<CLUSTER> find_share(const Shared& shared) {
  const int head = threadIdx.x / 16;
  Share<CLUSTER> share;
#pragma unroll
  for (int i = 0; i < (CLUSTER + 3) / 4; ++i) {
    share.factors[i] = *reinterpret_cast<const float4*>(&shared.factors[head][4 * i]);
  }
  share.place = keep(Piece<CLUSTER>::place(head, threadIdx.x % 16 * 2));
  return share;
}

// All senders' sums are loaded at once: a branch a sender would have each load wait for the sum of
// the one before.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void merge(const Shared& shared, const Args& args, int token,
                                      int rank, const Share<CLUSTER>& share) {
  using Part = Piece<CLUSTER>;
  const int head = threadIdx.x / 16;
#pragma unroll
  for (int first = 0; first < Part::OWNED; first += 32) {
    const uint32_t place = share.place + first % Part::WIDTH / 32 * sizeof(Part::sums[0][0]);
    __half2 pairs[CLUSTER];
#pragma unroll
    for (int s = 0; s < CLUSTER; ++s) {
      const auto* part = reinterpret_cast<const uint8_t*>(&shared.received[s][first / Part::WIDTH]);
      pairs[s] = *reinterpret_cast<const __half2*>(part + place);
    }
    float2 sum[2] = {};  // two chains
#pragma unroll
    for (int s = 0; s < CLUSTER; ++s) {
      const float factor = reinterpret_cast<const float*>(share.factors)[s];
      const float2 sums = __half22float2(pairs[s]);
      sum[s % 2].x += factor * sums.x;
      sum[s % 2].y += factor * sums.y;
    }
    const int column = rank * Part::OWNED + first + threadIdx.x % 16 * 2;
    auto* to = args.output + (int64_t{token} * HEADS + head) * CKV + column;
    *reinterpret_cast<__nv_bfloat162*>(to) =
        __floats2bfloat162_rn(sum[0].x + sum[1].x, sum[0].y + sum[1].y);
  }
}

__device__ __forceinline__ void write_empty(const Args& args, int token) {
  uint4* at = reinterpret_cast<uint4*>(args.output + int64_t{token} * HEADS * CKV);
#pragma unroll
  for (int i = threadIdx.x; i < HEADS * CKV_BYTES / 16; i += COMPUTING) at[i] = uint4{};
  float* lse = args.lse + int64_t{token} * HEADS;
  if (threadIdx.x < HEADS) lse[threadIdx.x] = -INFINITY;
}

}  // namespace
