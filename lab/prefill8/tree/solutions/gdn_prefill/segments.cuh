// How the scan divides few long sequences: the longest into segments, whose chains of chunks run at
// the same time, and all into units, of states and of outputs.
#pragma once

#include <cstdint>

#include "order.cuh"
#include "plan.cuh"

namespace {

constexpr int HALVES = DIM / VALUES;
constexpr int HEAD_HALVES = V_HEADS * HALVES;  // units of the states of a segment

// The longest sequence: segments behind its first one, chunks of that and of each later one.
struct Cut {
  int later, first, step;
};

// Segments behind the first one that a sequence is worth: docs/kernels/gdn_prefill.md, "Segments".
// None next to another that is longer than half of it, on which the call would wait.
__device__ __forceinline__ int count_later(const Args& args, int chunks, int next_longest) {
  const int wanted =
      (chunks >= Tuning::SECOND) + (chunks >= Tuning::THIRD) + (chunks >= Tuning::FOURTH);
  return 2 * next_longest > chunks ? 0 : min(wanted, args.most_later);
}

// Chunks that the first segment is ahead of all others: it alone has SMs from the start, the others
// those that solve_kernel has no task of a last round for.
__device__ __forceinline__ int count_ahead(const Args& args, int all_chunks) {
  const int rounds = all_chunks * QK_HEADS / (Tuning::SOLVE_TEAMS * args.solve_ctas);
  return Tuning::AHEAD + Tuning::A_ROUND * max(rounds - 1, 0);
}

// By the thread that has ranked `seq` first. A barrier comes behind it.
__device__ __forceinline__ void cut_longest(Cut& to, const Order& order, const Args& args,
                                            int seq) {
  const int chunks = order.lengths[seq];
  int all = 0, next_longest = 0;
#pragma unroll 1
  for (int other = 0; other < args.num_seqs; ++other) {
    const int others = order.lengths[other];
    all += others;
    if (other != seq) next_longest = max(next_longest, others);
  }
  const int later = count_later(args, chunks, next_longest);
  to = {later, chunks, 0};
  if (later == 0) return;
  to.step = (chunks - min(count_ahead(args, all), chunks / 2)) / (later + 1);
  to.first = chunks - later * to.step;
}

// What a unit of few long sequences is: chunks [first, first + chunks) of the sequence of a rank.
struct Part {
  int rank, first, chunks, v_head;
  int half;         // of the columns; -1: outputs
  int later, next;  // its segment's number if it is a later one, that of the one behind it; or -1
  bool is_transition;
};

// Two halves of 8 v heads of a segment are units; in front of them, of a later one, two halves of
// the transition. All of the longest sequence, then the others.
__device__ __forceinline__ Part find_states(const Order& order, const Cut& cut, int unit) {
  const int group = unit / HEAD_HALVES, v_head = unit / HALVES % V_HEADS, half = unit % HALVES;
  if (group == 0) return {0, 0, cut.first, v_head, half, -1, cut.later > 0 ? 0 : -1, false};
  const int later = (group - 1) / 2;
  if (later < cut.later) {
    const int next = later + 1 < cut.later ? later + 1 : -1;
    const bool is_transition = group % 2 == 1;
    return {0, cut.first + later * cut.step, cut.step, v_head, half, later, next, is_transition};
  }
  const int rank = group - 2 * cut.later;
  return {rank, 0, order.lengths[order.seqs[rank]], v_head, half, -1, -1, false};
}

// Outputs of first segments, a chunk and v head each, in the order in which states come if all
// chains end at once: `ahead` chunks of all are at least as far from their segment's end.
__device__ __forceinline__ Part find_first_output(const Order& order, const Cut& cut, int num_seqs,
                                                  int unit) {
  const int lane = threadIdx.x % 32, ahead = unit / V_HEADS;
  int chunks = lane == 0 ? cut.first : 0;
  if (lane > 0 && lane < num_seqs) chunks = order.lengths[order.seqs[lane]];
  int low = 0, high = __reduce_max_sync(FULL, chunks);  // [low, high): how many are behind it
#pragma unroll 1
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    const bool is_behind = __reduce_add_sync(FULL, max(chunks - middle, 0)) > ahead;
    low = is_behind ? middle : low, high = is_behind ? high : middle;
  }
  int among = ahead - __reduce_add_sync(FULL, max(chunks - high, 0));
  uint32_t there = __ballot_sync(FULL, chunks > low);
  for (; among > 0; --among) there &= there - 1;
  const int rank = __ffs(there) - 1;
  const int of = __shfl_sync(FULL, chunks, rank);
  return {rank, of - 1 - low, 1, unit % V_HEADS, -1, -1, -1, false};
}

// Those of the later segments, one behind the other.
__device__ __forceinline__ Part find_later_output(const Cut& cut, int unit) {
  const int chunk = unit / V_HEADS;
  return {0, cut.first + chunk, 1, unit % V_HEADS, -1, chunk / cut.step, -1, false};
}

__device__ __forceinline__ int count_states(const Args& args, const Cut& cut) {
  return HEAD_HALVES * (args.num_seqs + 2 * cut.later);
}

// By a whole warp. States first; then outputs: a unit waits only for units in front of it.
__device__ __forceinline__ Part find_part(const Order& order, const Cut& cut, const Args& args,
                                          int unit) {
  const int output = unit - count_states(args, cut);
  const int firsts = V_HEADS * (order.chunks - cut.later * cut.step);
  if (output < 0) return find_states(order, cut, unit);
  if (output >= firsts) return find_later_output(cut, output - firsts);
  return find_first_output(order, cut, args.num_seqs, output);
}

}  // namespace
