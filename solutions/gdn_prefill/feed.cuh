// What the two warps beside a team of solve_kernel do, so that the team waits for none of it: each
// finds the gates of a v head, stores a part of what the team leaves and tells the scan. The first
// also requests rows and stores operands and reads. The second stores writes: they are the last to
// be there, and it has time to see them through. Both find the team's tasks for themselves.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "bulk_copy.cuh"
#include "bulk_hints.cuh"
#include "device_flags.cuh"
#include "fast_math.cuh"
#include "gates.cuh"
#include "order.cuh"
#include "plan.cuh"
#include "solve.cuh"
#include "teams.cuh"
#include "warp_arrival.cuh"

namespace {

// By one thread; a barrier comes behind it.
__device__ __forceinline__ void init_barriers(TeamBarriers& barriers) {
  init_barrier(&barriers.rows, 32 + 1);
  init_barrier(&barriers.gates, SERVED * ARRIVALS_A_WARP);
  for (uint64_t* barrier : {&barriers.below, &barriers.apart, &barriers.free}) {
    init_barrier(barrier, ARRIVALS_A_WARP);
  }
  for (uint64_t* barrier : {&barriers.operands, &barriers.reads, &barriers.done}) {
    init_barrier(barrier, TEAM / 32 * ARRIVALS_A_WARP);
  }
  if (!MEETS_BY_NUMBER) init_barrier(&barriers.meeting, TEAM);
  fence_barrier_init();
}

// a and b of a lane's two tokens, a pair of heads each; behind the chunk's last token those of its
// first.
struct RawGates {
  uint32_t a[2], b[2];
};

__device__ __forceinline__ RawGates load_gates(const Args& args, const Task& task) {
  RawGates raw;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = threadIdx.x % 32 * 2 + i, token = task.first + (row < task.tokens ? row : 0);
    const int64_t at = (int64_t{token} * V_HEADS + task.qk_head * SERVED) / SERVED;
    raw.a[i] = __ldg(reinterpret_cast<const uint32_t*>(args.a) + at);
    raw.b[i] = __ldg(reinterpret_cast<const uint32_t*>(args.b) + at);
  }
  return raw;
}
static_assert(SERVED == 2, "a word is a pair of heads");

// Keys and queries and what task they are of. Rows behind the chunk's last token are zero; of these
// nothing is read, wherever they would lie. Of a task without tokens nothing comes.
__device__ __forceinline__ void request_task(SolveMemory& shared, const Args& args,
                                             const Task& task) {
  const int lane = threadIdx.x % 32;
  if (lane == 0) {
    shared.task = task;
    arrive(&shared.barriers.rows);  // those with copies only speak of these
  }
  if (task.tokens > 0) {
    constexpr int NEXT = QK_HEADS * DIM;  // row
    const int64_t first = (int64_t{task.first} * QK_HEADS + task.qk_head) * DIM +
                          lane / 16 * NEXT + lane % 16 * 8;
    const int left = task.tokens - lane / 16;
#pragma unroll 8
    for (int row = 0; row < CHUNK; row += 2) {
      const int at = row * (DIM / 8) + lane;
      copy_chunk_or_clear(&shared.raw_keys[at], args.k + first + row * NEXT, row < left);
      copy_chunk_or_clear(&shared.raw_queries[at], args.q + first + row * NEXT, row < left);
    }
  }
  arrive_with_copies(&shared.barriers.rows);
}

// What the scan will need of a chunk's values, on their way to the L2 while the chunk is solved.
// Of more than one round of tasks, values would push scratch out of it.
__device__ __forceinline__ void prefetch_values(const Args& args, const Task& task) {
  if (args.slots * QK_HEADS > args.solve_ctas * Tuning::SOLVE_TEAMS) return;
  for (int row = threadIdx.x % 32; row < task.tokens; row += 32) {
    const int64_t token = task.first + row;
    prefetch_bulk(args.v + (token * V_HEADS + task.qk_head * SERVED) * DIM,
                  SERVED * DIM * sizeof(*args.v));
  }
}

// Of a lane's two tokens.
struct Gates {
  float2 elapsed[2];
  float2 remaining, within, since, beta;
};

// Two tokens a lane. Sums in fp64: next to a g of 0 those of g near 1 remain.
__device__ __forceinline__ Gates find_gates(const Args& args, const Task& task, const RawGates& raw,
                                            int served) {
  const int lane = threadIdx.x % 32;
  const Head head = load_head(args, task.qk_head * SERVED + served);
  double log_g[2];
  float beta[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool is_token = 2 * lane + i < task.tokens;
    const float2 a = widen_bf16(raw.a[i]), b = widen_bf16(raw.b[i]);
    log_g[i] = is_token ? LOG2_E * log_decay(head, served ? a.y : a.x) : 0.0;
    const float strength = write_strength(served ? b.y : b.x);
    beta[i] = is_token ? strength : 0.0f;
  }
  double sum = log_g[0] + log_g[1];
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const double other = __shfl_up_sync(FULL, sum, step);
    if (lane >= step) sum += other;
  }
  const double total = __shfl_sync(FULL, sum, 31);
  const double block_end = __shfl_sync(FULL, sum, lane | (BLOCK / 2 - 1));
  const double elapsed[2] = {sum - log_g[1], sum};
  const double before = __shfl_sync(FULL, sum, (lane & ~(BLOCK / 2 - 1)) - 1 & 31);
  const double block_begin = lane < BLOCK / 2 ? 0.0 : before;
  const auto fade = [](double from, double to) {
    return exp2_approx(static_cast<float>(to - from));
  };
  Gates gates;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float high = elapsed[i];
    gates.elapsed[i] = {high, static_cast<float>(elapsed[i] - high)};
  }
  gates.remaining = {fade(elapsed[0], total), fade(elapsed[1], total)};
  gates.within = {fade(elapsed[0], block_end), fade(elapsed[1], block_end)};
  gates.since = {fade(block_begin, elapsed[0]), fade(block_begin, elapsed[1])};
  gates.beta = {beta[0], beta[1]};
  return gates;
}

__device__ __forceinline__ void store_gates(SolveMemory& shared, const Args& args,
                                            const Task& task, int served, const Gates& gates) {
  const int row = threadIdx.x % 32 * 2;
  const float2 first = gates.elapsed[0], second = gates.elapsed[1];
  const auto store = [&](float* to, float2 x) { *reinterpret_cast<float2*>(to + row) = x; };
  *reinterpret_cast<float4*>(&shared.elapsed[served][row]) = {first.x, first.y, second.x, second.y};
  store(shared.remaining[served], gates.remaining);
  store(shared.within[served], gates.within);
  store(shared.since[served], gates.since);
  store(shared.beta[served], gates.beta);
  store(solved_of(args, task.slot, task.qk_head * SERVED + served)->carry,
        {exp2_approx(first.x), exp2_approx(second.x)});
}

__device__ __forceinline__ void store_operands(const SolveMemory& shared, const Args& args,
                                               const Task& task) {
  Operands* operands = operands_of(args, task.slot, task.qk_head);
  store_bulk_kept(operands->keys, shared.keys, sizeof(Operands::keys));
  store_bulk_kept(operands->queries, shared.queries, sizeof(Operands::queries));
}

__device__ __forceinline__ void store_reads(const SolveMemory& shared, const Args& args,
                                            const Task& task) {
#pragma unroll
  for (int head = 0; head < SERVED; ++head) {
    Solved* solved = solved_of(args, task.slot, task.qk_head * SERVED + head);
    store_bulk_kept(solved->reads, shared.scores[head], sizeof(Solved::reads));
  }
}

__device__ __forceinline__ void store_writes(const SolveMemory& shared, const Args& args,
                                             const Task& task) {
#pragma unroll
  for (int head = 0; head < SERVED; ++head) {
    Solved* solved = solved_of(args, task.slot, task.qk_head * SERVED + head);
    store_bulk_kept(solved->writes, shared.below[head], sizeof(Solved::writes));
  }
}

// A feeding warp's part of a task is there: by the lane whose bulk stores are of it. Behind `done`:
// the team has zeroed the count by then.
__device__ __forceinline__ void count_part(const Args& args, const Task& task) {
  finish_bulk_stores();
  count_release(parts_of(args, task.slot, task.qk_head));
}

// By a whole warp, for the team. Its bulk stores are the first lane's.
__device__ __forceinline__ void feed_team(SolveCta& cta, SolveMemory& shared, const Args& args,
                                          int team, int served) {
  Numbers numbers(args, team);
  const bool is_first = served == 0, is_storing = threadIdx.x % 32 == 0;
  const int tasks = count_tasks(cta, args);
  TeamBarriers& barriers = shared.barriers;
  const auto free_place = [&](uint64_t* barrier) {
    if (is_storing) finish_bulk_reads();
    __syncwarp();
    arrive_for_warp(barrier);
  };
  Task task = {0, 0, 0, 0}, before = task;
  RawGates raw;
  // The first round has no task yet.
#pragma unroll 1
  for (uint32_t parity = 1;; parity ^= 1) {
    if (task.tokens > 0) {
      const Gates gates = find_gates(args, task, raw, served);
      if (before.tokens > 0) {
        wait_cta_phase(&barriers.done, parity ^ 1);
        if (is_storing && !is_first) store_writes(shared, args, before);
      }
      store_gates(shared, args, task, served, gates);
      __syncwarp();
      arrive_for_warp(&barriers.gates);
      if (before.tokens > 0) {
        if (!is_first) free_place(&barriers.below);
        if (is_storing) count_part(args, before);
      }
    }
    if (task.tokens > 0 && is_first) {
      wait_cta_phase(&barriers.operands, parity);
      if (is_storing) store_operands(shared, args, task);
      free_place(&barriers.apart);
    }
    const Task next = find_task(cta.order, args, tasks, numbers);
    raw = load_gates(args, next);
    if (is_first) {
      request_task(shared, args, next);
    } else {
      prefetch_values(args, next);
    }
    if (task.tokens > 0 && is_first) {
      wait_cta_phase(&barriers.reads, parity);
      if (is_storing) store_reads(shared, args, task);
      free_place(&barriers.free);
    }
    before = task;
    task = next;
    if (task.tokens > 0) continue;
    if (before.tokens == 0) break;
    wait_cta_phase(&barriers.done, parity);
    if (!is_storing) break;
    if (!is_first) store_writes(shared, args, before);
    count_part(args, before);
    break;
  }
}

}  // namespace
