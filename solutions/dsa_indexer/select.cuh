// From the keys of a sequence to the ids of its 2048 largest, in one CTA.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "carry.cuh"
#include "plan.cuh"

namespace {

// Where the normal curve has the 2048th largest of many scores.
struct Quantile {
  float deviations;  // above the mean
  float skewed;      // more, for skewness 1
  float spread;      // deviations between two probes
};

__device__ __forceinline__ Quantile predict(int length, float share) {  // share: 1 / length
  // Keys behind the last probe are few enough to be candidates, so it need not be at the very end.
  const float wanted = min(TOPK, length - CANDIDATES / 2) * share;
  const float odds = __logf(__fdividef(1.0f - wanted, wanted));
  const float square = odds * odds;  // the normal quantile within 6 ranks of 8192
  const float z = odds * (0.625717f + square * (-0.00978982f + square * 0.000210222f));
  return {z, (z * z - 1.0f) * (1.0f / 6.0f),
          Tuning::SPREAD * 2.5066283f * share * __expf(0.5f * z * z)};
}

// Predicted score of the 2048th largest key, and the distance of the probes on its sides. scores:
// sums of this thread's scores, their squares and cubes; share: 1 / scores of all threads.
__device__ __forceinline__ float2 guess(SharedMemory& shared, const float (&scores)[3],
                                        float share, const Quantile& quantile) {
  const int lane = threadIdx.x % 32;
  // Lanes 0, 1, 2 of each four sum the first, second, third moment.
  float first = lane % 2 ? scores[1] : scores[0], third = scores[2];
  first += __shfl_xor_sync(FULL, lane % 2 ? scores[0] : scores[1], 1);
  third += __shfl_xor_sync(FULL, third, 1);
  float sum = lane & 2 ? third : first;
  sum += __shfl_xor_sync(FULL, lane & 2 ? first : third, 2);
#pragma unroll
  for (int mask = 4; mask < 32; mask *= 2) sum += __shfl_xor_sync(FULL, sum, mask);
  if (lane < 4) shared.moments[threadIdx.x / 32][lane] = sum;
  __syncthreads();
  sum = shared.moments[lane / 4][lane % 4] + shared.moments[lane / 4 + 8][lane % 4];
#pragma unroll
  for (int mask = 4; mask < 32; mask *= 2) sum += __shfl_xor_sync(FULL, sum, mask);
  sum *= share;
  const float mean = __shfl_sync(FULL, sum, 0);
  const float square = __shfl_sync(FULL, sum, 1), cube = __shfl_sync(FULL, sum, 2);
  const float variance = square - mean * mean;
  const float inverse = rsqrtf(fmaxf(variance, 1e-30f)), deviation = variance * inverse;
  const float moment = cube - mean * (3.0f * square - 2.0f * mean * mean);
  return {mean + deviation * quantile.deviations + quantile.skewed * moment * inverse * inverse,
          deviation * quantile.spread};
}

// How many keys are at or above one: of the CTA, and of the threads before this one.
struct Edge {
  uint32_t key;
  int count, earlier;
};

// Counts at PROBES keys together, one barrier. `turn` alternates from call to call.
template <int KEYS>
__device__ __forceinline__ void count_at(SharedMemory& shared, const uint32_t (&keys)[KEYS],
                                         Edge (&edges)[PROBES], int turn) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t counts = 0;
#pragma unroll
  for (int j = 0; j < PROBES; ++j) {
    uint32_t count = 0;
#pragma unroll
    for (int i = 0; i < KEYS; ++i) count_carry(count, keys[i], -edges[j].key);
    counts += count << FIELD * j;
  }
  uint32_t through = counts;  // with the lanes before
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t before = __shfl_up_sync(FULL, through, distance);
    if (lane >= distance) through += before;
  }
  if (lane == 31) shared.counts[turn][warp] = through;
  __syncthreads();
  const uint32_t of_warp = shared.counts[turn][lane % WARPS];
#pragma unroll
  for (int j = 0; j < PROBES; ++j) {
    const uint32_t mask = (1u << FIELD) - 1, count = of_warp >> FIELD * j & mask;
    const uint32_t addend = lane < WARPS ? count | (lane < warp ? count << 16 : 0) : 0;
    const uint32_t sums = __reduce_add_sync(FULL, addend);
    edges[j].count = sums & 0xffff;
    edges[j].earlier = (sums >> 16) + ((through - counts) >> FIELD * j & mask);
  }
}

// #(keys >= low.key) > 2048 >= #(keys >= high.key)
struct Bracket {
  Edge low, high;
  __device__ int candidates() const { return low.count - high.count; }
  __device__ bool is_one_key() const { return high.key - low.key == 1; }
};

// The next probes: two around `centre`, and the middle of the bracket in keys, which bounds the
// search; in the first round the centre itself.
__device__ __forceinline__ void choose_probes(const Bracket& bracket, float centre, float spread,
                                              bool is_first, Edge (&probes)[PROBES]) {
  const uint32_t low = bracket.low.key, high = bracket.high.key;
  probes[0].key = key_of(centre - spread), probes[2].key = key_of(centre + spread);
  probes[1].key = is_first ? key_of(centre) : low + (high - low) / 2;
#pragma unroll
  for (int j = 0; j < PROBES; ++j) probes[j].key = min(max(probes[j].key, low + 1), high - 1);
}

// Narrows the bracket of the 2048th largest key until its keys are none, few, or all equal.
template <int KEYS>
__device__ __forceinline__ Bracket search(SharedMemory& shared, const uint32_t (&keys)[KEYS],
                                          int length, float2 guessed) {
  float centre = guessed.x, spread = guessed.y;
  const int full = length / THREADS, rest = length % THREADS;  // this thread's keys are these
  Bracket bracket = {{NO_TOKEN + 1, length, int(threadIdx.x) * full + min(int(threadIdx.x), rest)},
                     {ABOVE_ALL, 0, 0}};
  for (int round = 0;; ++round) {
    Edge probes[PROBES];
    choose_probes(bracket, centre, spread, round == 0, probes);
    count_at(shared, keys, probes, round % 2);
#pragma unroll
    for (int j = 0; j < PROBES; ++j) {
      if (probes[j].count > TOPK) {
        if (probes[j].key > bracket.low.key) bracket.low = probes[j];
      } else if (probes[j].key < bracket.high.key) {
        bracket.high = probes[j];
      }
    }
    if (bracket.high.count == TOPK || bracket.candidates() <= CANDIDATES || bracket.is_one_key()) {
      return bracket;
    }
    if (bracket.low.key > NO_TOKEN + 1 && bracket.high.key < ABOVE_ALL) {
      const float below = score_of(bracket.low.key);
      const float rank = __fdividef(score_of(bracket.high.key) - below, bracket.candidates());
      centre = below + rank * (bracket.low.count - TOPK), spread = rank * Tuning::SPREAD;
    } else {
      spread *= 8.0f;  // the guess was far off
    }
  }
}

// Places the ids of the keys above the bracket, and of those in it where all are equal; lists the
// others as candidates.
template <int KEYS>
__device__ __forceinline__ void place(SharedMemory& shared, const uint32_t (&keys)[KEYS],
                                      const uint32_t (&ids)[KEYS], const Bracket& bracket) {
  const bool is_ranked = bracket.candidates() <= CANDIDATES;
  int above = bracket.high.earlier, inside = bracket.low.earlier - bracket.high.earlier;
  inside += is_ranked ? TOPK : bracket.high.count;
  if (is_ranked && threadIdx.x < CANDIDATES && threadIdx.x >= bracket.candidates()) {
    shared.candidates[threadIdx.x] = NO_TOKEN;
  }
#pragma unroll
  for (int i = 0; i < KEYS; ++i) {
    const bool is_above = keys[i] >= bracket.high.key, is_inside = keys[i] >= bracket.low.key;
    const int at = min(is_above ? above : inside, TOPK + CANDIDATES - 1);
    if (is_inside) shared.ids[at] = ids[i];
    if (is_inside && !is_above && is_ranked) shared.candidates[at - TOPK] = keys[i];
    if (is_above) {
      ++above;
    } else if (is_inside) {
      ++inside;
    }
  }
}

// Ranks each candidate among all, RANKERS threads a candidate, and places those that rank high
// enough. Of equal keys the one listed first ranks higher.
__device__ __forceinline__ void rank_candidates(SharedMemory& shared, const Bracket& bracket) {
  const int mine = threadIdx.x / RANKERS, part = threadIdx.x % RANKERS;
  const uint32_t key = shared.candidates[mine];
  const uint4* lists = reinterpret_cast<const uint4*>(shared.candidates);
  const uint4 around = lists[mine / 4];
  uint32_t better = 0;
  if (part == 0) {
    better = (mine % 4 > 0 && around.x == key) + (mine % 4 > 1 && around.y == key) +
             (mine % 4 > 2 && around.z == key);
  }
  for (int i = part; 4 * i < bracket.candidates(); i += RANKERS) {
    const uint4 other = lists[i];
    const uint32_t negated = i < mine / 4 ? -key : ~key;  // earlier ones win ties
    count_carry(better, other.x, negated), count_carry(better, other.y, negated);
    count_carry(better, other.z, negated), count_carry(better, other.w, negated);
  }
#pragma unroll
  for (int mask = 1; mask < RANKERS; mask *= 2) better += __shfl_xor_sync(FULL, better, mask);
  const int at = bracket.high.count + better;
  if (part == 0 && mine < bracket.candidates() && at < TOPK) {
    shared.ids[at] = shared.ids[TOPK + mine];
  }
}

// Selects from the keys of a sequence. Thread t has keys t, t + 512, ... wait_keys() gives them by
// position, once they are there.
template <int KEYS, typename WaitKeys>
__device__ __forceinline__ void select_among(SharedMemory& shared, const Args& args, int row,
                                             int length, WaitKeys wait_keys) {
  const uint32_t* entries = shared.table + threadIdx.x / PAGE;
  uint32_t ids[KEYS];
#pragma unroll
  for (int i = 0; i < KEYS; ++i) {
    ids[i] = entries[i * (THREADS / PAGE)] * PAGE + threadIdx.x % PAGE;
  }
  const uint32_t* landed = wait_keys();
  uint32_t keys[KEYS];
  float moments[3] = {};
#pragma unroll
  for (int i = 0; i < KEYS; ++i) {
    const int position = i * THREADS + threadIdx.x;
    keys[i] = position < length ? landed[position] : NO_TOKEN;
    const float score = position < length ? score_of(keys[i]) : 0.0f, square = score * score;
    moments[0] += score, moments[1] += square, moments[2] += square * score;
  }
  const float share = __fdividef(1.0f, length);
  const float2 guessed = guess(shared, moments, share, predict(length, share));
  const Bracket bracket = search(shared, keys, length, guessed);
  place(shared, keys, ids, bracket);
  __syncthreads();
  if (bracket.high.count < TOPK && bracket.candidates() <= CANDIDATES) {
    rank_candidates(shared, bracket);
    __syncthreads();
  }
  reinterpret_cast<int4*>(args.ids + int64_t{row} * TOPK)[threadIdx.x] =
      reinterpret_cast<const int4*>(shared.ids)[threadIdx.x];
}

// The same with as few keys a thread as the length allows. shared.table holds the pages.
template <typename WaitKeys>
__device__ __forceinline__ void select_tokens(SharedMemory& shared, const Args& args, int row,
                                              int length, WaitKeys wait_keys) {
  if (length <= 6 * THREADS) {
    select_among<6>(shared, args, row, length, wait_keys);
  } else if (length <= 12 * THREADS) {
    select_among<12>(shared, args, row, length, wait_keys);
  } else {
    select_among<MOST_KEYS>(shared, args, row, length, wait_keys);
  }
}

}  // namespace
