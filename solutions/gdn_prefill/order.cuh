// The order in which solve_kernel takes chunks, and how the scan learns which of them are there.
#pragma once

#include <cstdint>

#include "device_flags.cuh"
#include "plan.cuh"
#include "programmatic_launch.cuh"

namespace {

constexpr int ORDERED = 384;  // sequences, at most; more are taken slot by slot
constexpr int MOST_LOOKS = 1 << 16;

// A chunk and q/k head: first token, tokens, slot. None: no tokens.
struct Task {
  int first, tokens, slot, qk_head;
};

// How many chunks the sequences have in front of their chunk `position` each; by a whole warp.
__device__ __forceinline__ int count_before(const Range* ranges, int num_seqs, int position) {
  int sum = 0;
#pragma unroll 1
  for (int seq = threadIdx.x % 32; seq < num_seqs; seq += 32) {
    sum += min(ranges[seq].chunks(), position);
  }
  return __reduce_add_sync(FULL, sum);
}

__device__ __forceinline__ Task make_task(const Range& range, int seq, int position, int qk_head) {
  const int first = range.start + position * CHUNK;
  return {first, min(range.stop - first, CHUNK), first_slot(range, seq) + position, qk_head};
}

// First chunks of all sequences, then second ones and so on: the scan of a long sequence need not
// wait for its end, nor for other sequences. `chunk` counts in that order.
__device__ __forceinline__ Task find_ordered(const Range* ranges, int num_seqs, int chunk,
                                             int qk_head) {
  int position = chunk / num_seqs, most = chunk;
  while (position < most) {
    const int middle = (position + most) / 2;
    if (count_before(ranges, num_seqs, middle + 1) > chunk) {
      most = middle;
    } else {
      position = middle + 1;
    }
  }
  const uint32_t lane = threadIdx.x % 32;
  int left = chunk - count_before(ranges, num_seqs, position);
#pragma unroll 1
  for (int first = 0; first < num_seqs; first += 32) {
    const int seq = first + lane;
    const bool has = seq < num_seqs && ranges[seq].chunks() > position;
    const uint32_t having = __ballot_sync(FULL, has);
    const bool is_it = has && __popc(having & ((1u << lane) - 1)) == left;
    const uint32_t at = __ballot_sync(FULL, is_it);
    if (at != 0) {
      const int found = first + __ffs(at) - 1;
      return make_task(ranges[found], found, position, qk_head);
    }
    left -= __popc(having);
  }
  return {0, 0, 0, 0};
}

__device__ __forceinline__ Task find_in_slot(const Args& args, int slot, int qk_head) {
#pragma unroll 1
  for (int first = 0; first < args.num_seqs; first += 32) {
    const int seq = first + threadIdx.x % 32;
    Range range = {0, 0};
    if (seq < args.num_seqs) range = load_range(args, seq);
    const int position = slot - first_slot(range, seq);
    const uint32_t at = __ballot_sync(FULL, position >= 0 && position < range.chunks());
    if (at == 0) continue;
    const int found = first + __ffs(at) - 1;
    const Range of = load_range(args, found);
    return make_task(of, found, slot - first_slot(of, found), qk_head);
  }
  return {0, 0, 0, 0};
}

// The first task of number `next` or a multiple of `stride` behind it, of `tasks`; by a whole warp.
// `next` is then the number of the one behind. `ranges`: of all sequences, if they are ordered.
__device__ __forceinline__ Task find_task(const Range* ranges, const Args& args, int tasks,
                                          int stride, int& next) {
  Task task = {0, 0, 0, 0};
#pragma unroll 1
  while (next < tasks && task.tokens == 0) {
    const int chunk = next / QK_HEADS, qk_head = next % QK_HEADS;
    task = args.num_seqs > ORDERED ? find_in_slot(args, chunk, qk_head)
                                   : find_ordered(ranges, args.num_seqs, chunk, qk_head);
    next += stride;
  }
  return task;
}

// Counts the warpgroups whose part of a task is there.
__device__ __forceinline__ int* parts_of(const Args& args, int slot, int qk_head) {
  uint8_t* first = args.scratch + int64_t{args.slots} * (SLOT_BYTES - QK_HEADS * sizeof(int));
  return reinterpret_cast<int*>(first) + (int64_t{slot} * QK_HEADS + qk_head);
}

// How many chunks from `slot` on, up to `most`, the scan may read: at least one, which it waits
// for. By a whole warp. Sequences that overlap may lose a count: in the end solve_kernel's is
// waited for.
__device__ __forceinline__ int await_solved(const Args& args, int slot, int qk_head, int most) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int looks = 0; looks < MOST_LOOKS; ++looks) {
    bool is_there = false;
    if (lane < most) is_there = load_acquire(parts_of(args, slot + lane, qk_head)) >= SERVED;
    const uint32_t missing = ~__ballot_sync(FULL, is_there);
    __syncwarp();  // what a lane has acquired, the others have
    if ((missing & 1) == 0) return missing ? __ffs(missing) - 1 : 32;
    __nanosleep(20);
  }
  wait_for_launches_before();
  return most;
}

}  // namespace
