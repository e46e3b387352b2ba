// What the warp beside a team of solve_kernel does: it finds tasks and their gates, requests rows,
// stores what the team leaves and tells the scan, so that the team waits for none of this.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "bulk_copy.cuh"
#include "bulk_groups.cuh"
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
  init_barrier(&barriers.rows, 32);
  for (uint64_t* barrier : {&barriers.gates, &barriers.apart, &barriers.free}) {
    init_barrier(barrier, ARRIVALS_A_WARP);
  }
  for (uint64_t* barrier : {&barriers.operands, &barriers.reads, &barriers.done}) {
    init_barrier(barrier, TEAM / 32 * ARRIVALS_A_WARP);
  }
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

// Keys and queries and what task they are of. Rows behind the chunk's last token are zero. Of a task
// without tokens nothing comes.
__device__ __forceinline__ void request_task(SolveMemory& shared, const Args& args,
                                             const Task& task) {
  const int lane = threadIdx.x % 32;
  if (lane == 0) shared.task = task;
  if (task.tokens > 0) {
    const int64_t first = (int64_t{task.first} * QK_HEADS + task.qk_head) * DIM + lane % 16 * 8;
#pragma unroll 4
    for (int pair = 0; pair < CHUNK / 2; ++pair) {
      const int row = 2 * pair + lane / 16, at = 32 * pair + lane;
      const bool is_token = row < task.tokens;
      const int64_t offset = first + (is_token ? row : 0) * (QK_HEADS * DIM);
      copy_chunk_or_clear(&shared.raw_keys[at], args.k + offset, is_token);
      copy_chunk_or_clear(&shared.raw_queries[at], args.q + offset, is_token);
    }
  }
  arrive_with_copies(&shared.barriers.rows);
}

// Of a lane's two tokens and both heads.
struct Gates {
  float2 elapsed[SERVED][2];
  float remaining[SERVED][2], within[SERVED][2], beta[SERVED][2];
};

// Sums in fp64: next to a g of 0 those of g near 1 remain.
__device__ __forceinline__ Gates find_gates(const Args& args, const Task& task,
                                            const RawGates& raw) {
  const int lane = threadIdx.x % 32;
  Gates gates;
  double log_g[SERVED][2], sum[SERVED];
#pragma unroll
  for (int head = 0; head < SERVED; ++head) {
    const Head of = load_head(args, task.qk_head * SERVED + head);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool is_token = 2 * lane + i < task.tokens;
      const float2 a = widen_bf16(raw.a[i]), b = widen_bf16(raw.b[i]);
      const float log = log_decay(of, head == 0 ? a.x : a.y);
      log_g[head][i] = is_token ? LOG2_E * log : 0.0;
      gates.beta[head][i] = is_token ? write_strength(head == 0 ? b.x : b.y) : 0.0f;
    }
    sum[head] = log_g[head][0] + log_g[head][1];
  }
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
#pragma unroll
    for (int head = 0; head < SERVED; ++head) {
      const double other = __shfl_up_sync(FULL, sum[head], step);
      if (lane >= step) sum[head] += other;
    }
  }
#pragma unroll
  for (int head = 0; head < SERVED; ++head) {
    const double total = __shfl_sync(FULL, sum[head], 31);
    const double block_end = __shfl_sync(FULL, sum[head], lane | (BLOCK / 2 - 1));
    const double elapsed[2] = {sum[head] - log_g[head][1], sum[head]};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float high = elapsed[i];
      gates.elapsed[head][i] = {high, static_cast<float>(elapsed[i] - high)};
      gates.remaining[head][i] = exp2_approx(static_cast<float>(total - elapsed[i]));
      gates.within[head][i] = exp2_approx(static_cast<float>(block_end - elapsed[i]));
    }
  }
  return gates;
}

__device__ __forceinline__ void store_gates(SolveMemory& shared, const Args& args,
                                            const Task& task, const Gates& gates) {
  const int row = threadIdx.x % 32 * 2;
#pragma unroll
  for (int head = 0; head < SERVED; ++head) {
    const float2(&elapsed)[2] = gates.elapsed[head];
    const auto store = [&](float* to, const float (&x)[2]) {
      *reinterpret_cast<float2*>(to + row) = {x[0], x[1]};
    };
    *reinterpret_cast<float4*>(&shared.elapsed[head][row]) = {elapsed[0].x, elapsed[0].y,
                                                              elapsed[1].x, elapsed[1].y};
    store(shared.remaining[head], gates.remaining[head]);
    store(shared.within[head], gates.within[head]);
    store(shared.beta[head], gates.beta[head]);
    float* carry = solved_of(args, task.slot, task.qk_head * SERVED + head)->carry;
    store(carry, {exp2_approx(elapsed[0].x), exp2_approx(elapsed[1].x)});
  }
}

__device__ __forceinline__ void store_operands(const SolveMemory& shared, const Args& args,
                                               const Task& task) {
  Operands* operands = operands_of(args, task.slot, task.qk_head);
  store_bulk(operands->keys, shared.keys, sizeof(Operands::keys));
  store_bulk(operands->queries, shared.queries, sizeof(Operands::queries));
}

__device__ __forceinline__ void store_reads(const SolveMemory& shared, const Args& args,
                                            const Task& task) {
#pragma unroll
  for (int head = 0; head < SERVED; ++head) {
    Solved* solved = solved_of(args, task.slot, task.qk_head * SERVED + head);
    store_bulk(solved->reads, shared.scores[head], sizeof(Solved::reads));
  }
}

__device__ __forceinline__ void store_writes(const SolveMemory& shared, const Args& args,
                                             const Task& task) {
#pragma unroll
  for (int head = 0; head < SERVED; ++head) {
    Solved* solved = solved_of(args, task.slot, task.qk_head * SERVED + head);
    store_bulk(solved->writes, shared.below[head], sizeof(Solved::writes));
  }
}

// By a whole warp, for the team. Bulk stores are its first lane's.
__device__ __forceinline__ void feed_team(SolveCta& cta, SolveMemory& shared, const Args& args,
                                          int team) {
  Numbers numbers(args, team);
  const bool is_storing = threadIdx.x % 32 == 0;
  const int tasks = count_tasks(cta, args);
  TeamBarriers& barriers = shared.barriers;
  Task task = find_task(cta.order, args, tasks, numbers), before = {0, 0, 0, 0};
  RawGates raw = load_gates(args, task);
  request_task(shared, args, task);
  const auto free_place = [&](uint64_t* barrier) {
    if (is_storing) finish_bulk_reads();
    __syncwarp();
    arrive_for_warp(barrier);
  };
#pragma unroll 1
  for (uint32_t parity = 0; task.tokens > 0; parity ^= 1) {
    const Gates gates = find_gates(args, task, raw);
    if (before.tokens > 0) {
      wait_cta_phase(&barriers.done, parity ^ 1);
      if (is_storing) store_writes(shared, args, before);
    }
    store_gates(shared, args, task, gates);
    free_place(&barriers.gates);
    const Task next = find_task(cta.order, args, tasks, numbers);
    raw = load_gates(args, next);
    wait_cta_phase(&barriers.operands, parity);
    if (is_storing) store_operands(shared, args, task);
    request_task(shared, args, next);
    free_place(&barriers.apart);
    if (is_storing && before.tokens > 0) {
      finish_bulk_stores_before();
      count_release(parts_of(args, before.slot, before.qk_head));
    }
    before = task;
    task = next;
    wait_cta_phase(&barriers.reads, parity);
    if (is_storing) store_reads(shared, args, before);
    free_place(&barriers.free);
    if (task.tokens > 0) continue;
    wait_cta_phase(&barriers.done, parity);
    if (!is_storing) continue;
    store_writes(shared, args, before);
    finish_bulk_stores();
    count_release(parts_of(args, before.slot, before.qk_head));
  }
}

}  // namespace
