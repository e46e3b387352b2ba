// The tasks of a team of solve_kernel, one after the other.
#pragma once

#include <cstdint>

#include "barrier_wait.cuh"
#include "device_flags.cuh"
#include "named_barrier.cuh"
#include "order.cuh"
#include "plan.cuh"
#include "programmatic_launch.cuh"
#include "solve.cuh"
#include "warp_arrival.cuh"

namespace {

// By a whole warp.
__device__ __forceinline__ void clear_units(const Args& args) {
  static_assert(MOST_LATER * V_HEADS <= 32, "a lane a seam");
  const int lane = threadIdx.x % 32;
  if (lane == 0) *taken_units(args) = 0;
  if (lane < args.most_later * V_HEADS) *seam_counts_of(args, 0, lane) = {0, 0};
}

__device__ __forceinline__ int count_tasks(const SolveCta& cta, const Args& args) {
  return QK_HEADS * (args.num_seqs > ORDERED ? args.slots : cta.order.chunks);
}

// No part of the team's tasks is there, no unit is taken; by a whole warp. Then the scan may start.
__device__ __forceinline__ void clear_parts(const SolveCta& cta, const Args& args) {
  Numbers numbers(args, threadIdx.x / TEAM);
  const int tasks = count_tasks(cta, args);
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

constexpr int CLEARING = 2;  // warp of a team

// A team's tasks, as its feeding warp finds them.
__device__ __forceinline__ void solve_tasks(SolveCta& cta, SolveMemory& shared, const Args& args) {
  if (__shfl_sync(FULL, team_thread() / 32, 0) == CLEARING) clear_parts(cta, args);
  TeamBarriers& barriers = shared.barriers;
#pragma unroll 1
  for (uint32_t parity = 0;; parity ^= 1) {
    // Found anew for each chunk, or the compiler keeps all addresses that follow from it. Masked,
    // so that it knows them to be small.
    const int warps = __shfl_sync(FULL, team_thread() / 32, 0) & 7, warp = warps & 3;
    const int head = warps >> 2;
    // Blocks of rows differ in length: the second warpgroup takes them the other way round.
    const int block = head == 0 ? warp : BLOCKS - 1 - warp;
    wait_cta_phase(&barriers.rows, parity);
    if (shared.task.tokens == 0) break;
    convert_rows(shared);
    publish_shared();
    __syncwarp();
    arrive_for_warp(&barriers.operands);
    wait_cta_phase(&barriers.operands, parity);
    solve_chunk(shared, args.scale, head, block, parity);
    wait_cta_phase(&barriers.done, parity);  // the place of keys and queries may be taken
    wait_cta_phase(&barriers.free, parity);
  }
}

}  // namespace
