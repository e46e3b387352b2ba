// The order in which solve_kernel takes chunks, and how the scan learns which of them are there.
#pragma once

#include <cstdint>

#include "device_flags.cuh"
#include "plan.cuh"
#include "programmatic_launch.cuh"

namespace {

constexpr int MOST_LOOKS = 1 << 16;

// A chunk and q/k head: first token, tokens, slot. None: no tokens.
struct Task {
  int first, tokens, slot, qk_head;
};

// The sequences, longest first, if there are no more than ORDERED.
struct Order {
  int16_t seqs[ORDERED];
  int first[ORDERED];    // chunks of all in front of it
  int lengths[ORDERED];  // in chunks, by sequence
  int chunks;            // of all
  int longer;            // how many have more than Args::most_whole
};

// By all threads of the CTA, at least ORDERED; returns the rank of the thread's sequence, or -1. A
// barrier comes behind it.
__device__ __forceinline__ int order_sequences(Order& order, const Args& args) {
  const int seq = threadIdx.x;
  if (seq == 0) order.chunks = order.longer = 0;
  if (args.num_seqs > ORDERED) return -1;
  const int length = seq < args.num_seqs ? load_range(args, seq).chunks() : 0;
  if (seq < ORDERED) order.lengths[seq] = length;
  __syncthreads();
  if (seq >= args.num_seqs) return -1;
  int rank = 0, first = 0, longer = 0;
  for (int other = 0; other < args.num_seqs; ++other) {
    const int others = order.lengths[other];
    const bool is_before = others > length || (others == length && other < seq);
    rank += is_before;
    first += is_before ? others : 0;
    longer += others > args.most_whole;
  }
  order.seqs[rank] = seq;
  order.first[rank] = first;
  if (rank == args.num_seqs - 1) order.chunks = first + length, order.longer = longer;
  return rank;
}

__device__ __forceinline__ Task make_task(const Range& range, int seq, int position, int qk_head) {
  const int first = range.start + position * CHUNK;
  return {first, min(range.stop - first, CHUNK), first_slot(range, seq) + position, qk_head};
}

// Sequence after sequence, as the scan takes them: what it begins with is soon there as a whole.
// `chunk` counts in that order.
__device__ __forceinline__ Task find_ordered(const Order& order, const Args& args, int chunk,
                                             int qk_head) {
  int rank = -1;
#pragma unroll 1
  for (int before = 0; before < args.num_seqs; before += 32) {
    const int other = before + threadIdx.x % 32;
    rank += __popc(__ballot_sync(FULL, other < args.num_seqs && order.first[other] <= chunk));
  }
  const int seq = order.seqs[rank];
  return make_task(load_range(args, seq), seq, chunk - order.first[rank], qk_head);
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

// Which tasks a team takes: in the first round, in which one SM may have one team at work, the
// first teams of all CTAs and then the second ones from the back: what the scan needs first shares
// its SM last. Later a CTA's teams take neighbours: CTAs without any leave their SMs to the scan.
struct Numbers {
  int workers, pair, next;
  __device__ Numbers(const Args& args, int team)
      : workers(2 * args.solve_ctas), pair(2 * blockIdx.x + team),
        next(team == 0 ? blockIdx.x : workers - 1 - blockIdx.x) {}
  __device__ void advance() { next = next < workers ? workers + pair : next + workers; }
};

// The first of a team's tasks from numbers.next on, of `tasks`; by a whole warp. `numbers` are then
// those behind it.
__device__ __forceinline__ Task find_task(const Order& order, const Args& args, int tasks,
                                          Numbers& numbers) {
  Task task = {0, 0, 0, 0};
#pragma unroll 1
  while (numbers.next < tasks && task.tokens == 0) {
    const int chunk = numbers.next / QK_HEADS, qk_head = numbers.next % QK_HEADS;
    task = args.num_seqs > ORDERED ? find_in_slot(args, chunk, qk_head)
                                   : find_ordered(order, args, chunk, qk_head);
    numbers.advance();
  }
  return task;
}

// How many of a task's parts are there, one a feeding warp: SERVED where it is solved.
__device__ __forceinline__ int* parts_of(const Args& args, int slot, int qk_head) {
  uint8_t* first = args.scratch + int64_t{args.slots} * (SLOT_BYTES - QK_HEADS * sizeof(int));
  return reinterpret_cast<int*>(first) + (int64_t{slot} * QK_HEADS + qk_head);
}

// How many units the scan has taken.
__host__ __device__ __forceinline__ int* taken_units(const Args& args) {
  return reinterpret_cast<int*>(args.scratch + int64_t{args.slots} * SLOT_BYTES);
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

// So many parts are there: halves of a chunk or of a seam. By a whole warp.
__device__ __forceinline__ void await_count(const int* count, int parts) {
  while (load_acquire(count) < parts) __nanosleep(20);
  __syncwarp();
}

}  // namespace
