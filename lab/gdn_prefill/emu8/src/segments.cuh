// How the scan divides few long sequences: into segments, whose chains of chunks run at the same
// time, and into units, of states and of outputs.
#pragma once

#include <cstdint>

#include "order.cuh"
#include "plan.cuh"

namespace {

constexpr int MOST_SEGMENTS = Tuning::FEW + MOST_LATER;
static_assert(MOST_SEGMENTS <= 32, "a lane a segment");
constexpr int HALVES = DIM / VALUES;

// Of few long sequences, longest first, the segments of each in order. A later segment, which has
// one in front, has a number among all later ones. Two halves of 8 v heads of a segment are units;
// in front of them, of a later one, two halves of the transition.
struct Segments {
  int count;
  int seqs[MOST_SEGMENTS], firsts[MOST_SEGMENTS], chunks[MOST_SEGMENTS];  // first chunk, chunks
  int laters[MOST_SEGMENTS], nexts[MOST_SEGMENTS];  // its number, that of the one behind it; or -1
  int first_states[MOST_SEGMENTS];   // first unit
  int first_outputs[MOST_SEGMENTS];  // that of a later segment's outputs; none: none
  int states;                        // units of all states
  int longest;                       // chunks of the longest of the first segments
  int units;                         // of all
};

// Segments behind the first one that a sequence is worth: docs/kernels/gdn_prefill.md, "Segments".
__device__ __forceinline__ int count_wanted(int chunks) {
  return (chunks >= Tuning::SECOND) + (chunks >= Tuning::THIRD) + (chunks >= Tuning::FOURTH);
}

// How often the lane's sequence is cut: the longest segment of all again and again, as long as it is
// worth it. Cuts of sequences that are hardly longer than a segment of others gain nothing.
__device__ __forceinline__ int count_cuts(const Args& args, int chunks) {
  const int wanted = count_wanted(chunks), lane = threadIdx.x % 32;
  int cuts = 0, longest = 0;
#pragma unroll 1
  for (int left = may_cut(args.tokens, args.num_seqs);; --left) {
    const int mine = (chunks + cuts) / (cuts + 1);
    longest = __reduce_max_sync(FULL, mine);
    const uint32_t of = __ballot_sync(FULL, mine == longest && cuts < wanted);
    if (left == 0 || of == 0) break;
    cuts += lane == __ffs(of) - 1;
  }
  return 4 * chunks < 5 * longest ? 0 : cuts;
}

// Chunks that the longest sequence's first segment is ahead of all others: it alone has SMs from
// the start, the others those that solve_kernel has no task of a last round for.
__device__ __forceinline__ int count_ahead(const Order& order, const Args& args) {
  const int rounds = order.chunks * QK_HEADS / (Tuning::SOLVE_TEAMS * args.solve_ctas);
  return Tuning::AHEAD + Tuning::A_ROUND * max(rounds - 1, 0);
}

// Sum over the lanes in front, of which none from FEW on holds anything.
__device__ __forceinline__ int sum_before(int x) {
  int sum = x;
#pragma unroll
  for (int step = 1; step < Tuning::FEW; step *= 2) {
    const int more = __shfl_up_sync(FULL, sum, step);
    sum += threadIdx.x % 32 >= step ? more : 0;
  }
  return sum - x;
}

// By a whole warp once sequences are ordered, a lane a sequence, longest first.
__device__ __forceinline__ void cut_sequences(Segments& to, const Order& order, const Args& args) {
  const int lane = threadIdx.x % 32;
  const bool is_seq = lane < args.num_seqs;
  const int seq = is_seq ? order.seqs[lane] : 0, chunks = is_seq ? order.lengths[seq] : 0;
  const int cuts = count_cuts(args, chunks);
  const int ahead = lane == 0 ? min(count_ahead(order, args), chunks / 2) : 0;
  const int step = (chunks - ahead) / (cuts + 1), first = chunks - cuts * step;
  const int firsts = __reduce_add_sync(FULL, first), longest = __reduce_max_sync(FULL, first);
  const int before = sum_before(cuts), all = __reduce_add_sync(FULL, cuts);
  const int states = V_HEADS * HALVES * (args.num_seqs + 2 * all);
  const int outputs = states + V_HEADS * firsts, step_outputs = V_HEADS * step;
  int first_output = outputs + V_HEADS * sum_before(cuts * step);
  const int units = outputs + V_HEADS * __reduce_add_sync(FULL, cuts * step);
  if (lane == 0) {
    to.count = args.num_seqs + all, to.states = states, to.units = units, to.longest = longest;
  }
#pragma unroll 1
  for (int cut = 0; is_seq && cut <= cuts; ++cut) {
    const int later = before + cut, at = lane + later;  // later: of the segment behind this one
    to.seqs[at] = seq;
    to.firsts[at] = cut == 0 ? 0 : first + (cut - 1) * step;
    to.chunks[at] = cut == 0 ? first : step;
    to.laters[at] = cut == 0 ? -1 : later - 1;
    to.nexts[at] = cut == cuts ? -1 : later;
    to.first_states[at] = V_HEADS * HALVES * (at + later - (cut > 0));
    to.first_outputs[at] = first_output;
    if (cut > 0) first_output += step_outputs;
  }
}

// What a unit of few long sequences is: chunks [first, first + chunks) of a segment's sequence.
struct Part {
  int segment, first, chunks, v_head;
  int half;  // of the columns; -1: outputs
  bool is_transition;
};

// The last segment whose first unit is not behind `unit`. By a whole warp.
__device__ __forceinline__ int find_segment(const int (&first_units)[MOST_SEGMENTS], int count,
                                            int unit) {
  const int lane = threadIdx.x % 32;
  return __popc(__ballot_sync(FULL, lane < count && first_units[lane] <= unit)) - 1;
}

__device__ __forceinline__ Part find_states(const Segments& segments, int unit) {
  const int at = find_segment(segments.first_states, segments.count, unit);
  const int part = unit - segments.first_states[at];
  const bool is_transition = segments.laters[at] >= 0 && part < V_HEADS * HALVES;
  return {at, segments.firsts[at], segments.chunks[at], part / HALVES % V_HEADS, part % HALVES,
          is_transition};
}

// Outputs of the first segments, a chunk and v head each, in the order in which states come if all
// chains end at once: `ahead` chunks of all are at least as far from their segment's end.
__device__ __forceinline__ Part find_first_output(const Segments& segments, int unit) {
  const int lane = threadIdx.x % 32, ahead = unit / V_HEADS;
  const bool is_first = lane < segments.count && segments.laters[lane] < 0;
  const int chunks = is_first ? segments.chunks[lane] : 0;
  int low = 0, high = segments.longest;  // [low, high): how many are behind it in its segment
#pragma unroll 1
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    const bool is_behind = __reduce_add_sync(FULL, max(chunks - middle, 0)) > ahead;
    low = is_behind ? middle : low, high = is_behind ? high : middle;
  }
  int among = ahead - __reduce_add_sync(FULL, max(chunks - high, 0));
  uint32_t there = __ballot_sync(FULL, chunks > low);
  for (; among > 0; --among) there &= there - 1;
  const int at = __ffs(there) - 1;
  return {at, segments.chunks[at] - 1 - low, 1, unit % V_HEADS, -1, false};
}

// Those of the later segments, one behind the other.
__device__ __forceinline__ Part find_later_output(const Segments& segments, int unit) {
  const int at = find_segment(segments.first_outputs, segments.count, unit);
  const int part = unit - segments.first_outputs[at];
  return {at, segments.firsts[at] + part / V_HEADS, 1, part % V_HEADS, -1, false};
}

// By a whole warp. States first; then outputs: a unit waits only for units in front of it.
__device__ __forceinline__ Part find_part(const Segments& segments, int unit) {
  if (unit < segments.states) return find_states(segments, unit);
  if (unit >= segments.first_outputs[0]) return find_later_output(segments, unit);
  return find_first_output(segments, unit - segments.states);
}

}  // namespace
