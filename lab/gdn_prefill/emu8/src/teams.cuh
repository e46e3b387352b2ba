// The tasks of a team of solve_kernel, one after the other, and what the scan is told of them.
#pragma once

#include <cstdint>

#include "async_copy.cuh"
#include "bulk_copy.cuh"
#include "device_flags.cuh"
#include "named_barrier.cuh"
#include "order.cuh"
#include "plan.cuh"
#include "programmatic_launch.cuh"
#include "solve.cuh"

namespace {

// The warpgroup's part of a task is in scratch, and said to be.
__device__ __forceinline__ void report_part(const Args& args, const Task& task) {
  if (threadIdx.x % 128 != STORING || task.tokens == 0) return;
  finish_bulk_stores();
  count_release(parts_of(args, task.slot, task.qk_head));
}

// By a whole warp.
__device__ __forceinline__ void clear_units(const Args& args) {
  const int lane = threadIdx.x % 32;
  if (lane == 0) *taken_units(args) = 0;
  if (may_cut(args.tokens, args.num_seqs) == 0 || !is_handing(args)) return;
  for (int at = lane; at < MOST_LATER * V_HEADS; at += 32) *seam_counts_of(args, 0, at) = {0, 0};
}

// No part of the team's tasks is there, no unit is taken; by a whole warp. Then the scan may start.
__device__ __forceinline__ void clear_parts(const SolveCta& cta, const Args& args, int tasks,
                                            Numbers numbers) {
  for (;;) {
    const Task task = find_task(cta.order, args, tasks, numbers);
    if (task.tokens == 0) break;
    const int lane = threadIdx.x % 32;
    if (lane == 0) *parts_of(args, task.slot, task.qk_head) = 0;
    if (lane < SERVED && is_handing(args)) {
      *halves_of(args, task.slot, task.qk_head * SERVED + lane) = 0;
    }
  }
  if (blockIdx.x == 0) clear_units(args);
  __threadfence();
  sync_threads_of(1 + 3 * Tuning::SOLVE_TEAMS, 32 * Tuning::SOLVE_TEAMS);
  allow_next_launch();
}

__device__ __forceinline__ void request_task(SolveMemory& shared, const Args& args,
                                             const Task& task) {
  if (task.tokens == 0) return;
  if (threadIdx.x % 128 < 32) request_gates(shared, args, task, team_thread() / 128);
  request_rows(shared, args, task);
}

constexpr int FINDING = 1, CLEARING = 2;  // warps of a team: neither finds gates nor stores

// A team's tasks.
__device__ __forceinline__ void solve_tasks(SolveCta& cta, SolveMemory& shared, const Args& args) {
  Numbers numbers(args, threadIdx.x / TEAM);
  const bool is_leader = threadIdx.x % 32 == 0;
  const Numbers all = numbers;
  const int tasks = QK_HEADS * (args.num_seqs > ORDERED ? args.slots : cta.order.chunks);
  const auto find_next = [&](int place) {
    const Task task = find_task(cta.order, args, tasks, numbers);
    if (is_leader) shared.tasks[place] = task;
  };
  const int role = __shfl_sync(FULL, team_thread() / 32, 0);
  if (role == FINDING) find_next(0);
  sync_team();  // the first task is there
  request_task(shared, args, shared.tasks[0]);
  if (role == CLEARING) clear_parts(cta, args, tasks, all);
  Task before = {0, 0, 0, 0};
#pragma unroll 1
  for (int place = 0; shared.tasks[place].tokens > 0; place ^= 1) {
    const Task task = shared.tasks[place];
    // Found anew for each chunk, or the compiler keeps all addresses that follow from it.
    const int warps = __shfl_sync(FULL, team_thread() / 32, 0), warp = warps % 4, head = warps / 4;
    // Blocks of rows differ in length: the second warpgroup takes them the other way round.
    const int block = head == 0 ? warp : BLOCKS - 1 - warp;
    wait_copies<0>();
    // The gates of the chunk before have been read; its stores read the rest meanwhile.
    if (warp == 0) find_gates(shared, args, task.tokens, task.slot, task.qk_head * SERVED + head);
    if (warps == FINDING) find_next(place ^ 1);
    report_part(args, before);
    sync_team();  // all of the chunk before has been read
    convert_rows(shared);
    publish_shared();  // before requests go out, whose arrival it would wait for
    sync_team();       // keys, queries and gates are there
    request_task(shared, args, shared.tasks[place ^ 1]);  // on its way while this one is solved
    solve_chunk(shared, args, task.slot, task.qk_head, head, block);
    before = task;
  }
  report_part(args, before);
}

}  // namespace
