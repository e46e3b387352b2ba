// The third warpgroup of the scan: it brings what the other two read, stores what they leave and
// drops what nobody reads again.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "bulk_copy.cuh"
#include "bulk_hints.cuh"
#include "cache_lines.cuh"
#include "global_proxy.cuh"
#include "named_barrier.cuh"
#include "order.cuh"
#include "plan.cuh"
#include "scan_plan.cuh"

namespace {

// Waits for the stage's barrier, of those of a kind, of the round that had a round's stage before.
__device__ __forceinline__ void await_round_before(uint64_t (&barriers)[Tuning::STAGES],
                                                   int round) {
  if (round < Tuning::STAGES) return;
  wait_cta_phase(&barriers[round % Tuning::STAGES], (round / Tuning::STAGES - 1) % 2);
}

// Announces a part of a round that one copy brings, and requests it.
__device__ __forceinline__ void request_part(void* to, const void* from, uint32_t bytes,
                                             uint64_t* full) {
  arrive_expecting(full, bytes);
  copy_bulk_passing(to, from, bytes, full);
}

// Value columns of a chunk, a row of 128 bytes a token and group; zero behind the sequence's end
// and of a transition. announce_values() comes behind it.
__device__ __forceinline__ void request_values(ScanMemory& shared, const Args& args,
                                               const Work& work, int chunk, int round) {
  const Share mine;
  const int stage = round % Tuning::STAGES, first = work.range.start + chunk * CHUNK;
  const int rows = work.is_transition ? 0 : min(work.range.stop - first, CHUNK);
  const int64_t token = first + mine.row;
  const __nv_bfloat16* from = args.v + token * (V_HEADS * DIM) + work.column(0) + mine.column;
  uint8_t* to = mine.in(shared.stages[stage].values[0]);
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    if (group >= work.groups) break;
#pragma unroll
    for (int i = 0; i < SHARES; ++i) {
      const __nv_bfloat16* row = from + group * VALUES + i * (SHARE_ROWS * V_HEADS * DIM);
      const bool is_token = mine.row + i * SHARE_ROWS < rows;
      copy_chunk_or_clear(to + group * TILE_BYTES + i * (SHARE_ROWS * 128), row, is_token);
    }
  }
}

// Behind all waits for the round that had the stage before: a sender that arrives first may wait
// for a phase while the others, whom nothing else holds up, get two further.
__device__ __forceinline__ void announce_values(ScanMemory& shared, int round) {
  arrive_with_copies(&shared.full[round % Tuning::STAGES]);
}

// The output of a round, from where a sender's next values go.
__device__ __forceinline__ void store_output(ScanMemory& shared, const Args& args, int round) {
  const Place place = shared.places[round % (2 * Tuning::STAGES)];
  if (place.groups < GROUPS) return;  // stored by the second warpgroup
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    uint4 rows[SHARES];
    take_rows(shared.stages[round % Tuning::STAGES].values[group], rows);
    store_taken(args, rows, place.token, place.rows, place.column + group * VALUES);
  }
}

// What nobody reads again of a round that is done, its lines shared among the senders: the L2 need
// not write it to memory, and has room for others.
__device__ __forceinline__ void drop_round(ScanMemory& shared, const Args& args, int round) {
  if (!args.is_dropping) return;
  const Solved* spent = shared.places[round % (2 * Tuning::STAGES)].spent;
  if (!spent) return;
  const uint8_t* first = reinterpret_cast<const uint8_t*>(spent);
  constexpr int BYTES = sizeof(Solved);
  for (int at = threadIdx.x % SENDERS * LINE_BYTES; at < BYTES; at += SENDERS * LINE_BYTES) {
    drop_line(first + at);
  }
}

// What solve_kernel left for a chunk.
__device__ __forceinline__ void request_operands(ScanMemory& shared, const Args& args,
                                                 const Work& work, int chunk, int round) {
  if (threadIdx.x % SENDERS != 0) return;
  const int stage = round % Tuning::STAGES, first = work.range.start + chunk * CHUNK;
  const Solved* spent = work.groups == GROUPS ? solved_of(args, work.slot + chunk, work.v_head)
                                              : nullptr;  // there is another half
  shared.places[round % (2 * Tuning::STAGES)] = {first, min(work.range.stop - first, CHUNK),
                                                 work.column(0), work.groups, spent};
  const Operands* operands = operands_of(args, work.slot + chunk, work.v_head / SERVED);
  request_part(&shared.stages[stage].operands, operands, sizeof(Operands), &shared.full[stage]);
}

__device__ __forceinline__ void request_solved(ScanMemory& shared, const Args& args,
                                               const Work& work, int chunk, int round) {
  if (threadIdx.x % SENDERS != 0) return;
  const int stage = round % Tuning::STAGES;
  const Solved* solved = solved_of(args, work.slot + chunk, work.v_head);
  request_part(&shared.stages[stage].solved, solved, sizeof(Solved), &shared.full[stage]);
}

// The parts of both that the states need. None of these copies is the last to read: so do the other
// half, the other v head and, of a later segment, its transition.
__device__ __forceinline__ void request_keys(ScanMemory& shared, const Args& args, const Work& work,
                                             int chunk, int round) {
  if (threadIdx.x % SENDERS != 0) return;
  const int stage = round % Tuning::STAGES;
  shared.places[round % (2 * Tuning::STAGES)] = {};  // leaves no output
  const Operands* operands = operands_of(args, work.slot + chunk, work.v_head / SERVED);
  auto& keys = shared.stages[stage].operands.keys;
  arrive_expecting(&shared.full[stage], sizeof(keys));
  copy_bulk(keys, operands->keys, sizeof(keys), &shared.full[stage]);
}

__device__ __forceinline__ void request_writes(ScanMemory& shared, const Args& args,
                                               const Work& work, int chunk, int round) {
  if (threadIdx.x % SENDERS != 0) return;
  const int stage = round % Tuning::STAGES;
  const Solved* from = solved_of(args, work.slot + chunk, work.v_head);
  Solved& to = shared.stages[stage].solved;
  arrive_expecting(&shared.full[stage], sizeof(to.writes) + sizeof(to.carry));
  copy_bulk(to.writes, from->writes, sizeof(to.writes), &shared.full[stage]);
  copy_bulk(to.carry, from->carry, sizeof(to.carry), &shared.full[stage]);
}

// And those that the outputs need.
__device__ __forceinline__ void request_reads(ScanMemory& shared, const Args& args,
                                              const Work& work, int stage) {
  if (threadIdx.x % SENDERS != 0) return;
  Stage& to = shared.stages[stage];
  uint64_t* full = &shared.full[stage];
  const Operands* operands = operands_of(args, work.slot, work.v_head / SERVED);
  const Solved* solved = solved_of(args, work.slot, work.v_head);
  constexpr int REST = sizeof(Solved::reads) + sizeof(Solved::carry);
  static_assert(offsetof(Solved, carry) == offsetof(Solved, reads) + sizeof(Solved::reads),
                "one copy");
  arrive_expecting(full, sizeof(Operands::queries) + REST);
  copy_bulk(to.operands.queries, operands->queries, sizeof(Operands::queries), full);
  copy_bulk_passing(to.solved.reads, solved->reads, REST, full);
}

// With what the states' units have left, which goes where keys, writes and values do else.
__device__ __forceinline__ void request_handed(ScanMemory& shared, const Handed* handed,
                                               const Place& place, int round) {
  if (threadIdx.x % SENDERS != 0) return;
  Stage& to = shared.stages[round % Tuning::STAGES];
  uint64_t* full = &shared.full[round % Tuning::STAGES];
  shared.places[round % (2 * Tuning::STAGES)] = place;
  constexpr int STATE = sizeof(Handed::state), RESIDUAL = sizeof(Handed::residual);
  static_assert(STATE == sizeof(Operands::keys) && STATE == sizeof(Solved::writes) &&
                    RESIDUAL == TILE_BYTES, "they take the places of others");
  arrive_expecting(full, 2 * (STATE + RESIDUAL));
  copy_bulk_passing(to.operands.keys, handed[0].state, STATE, full);
  copy_bulk_passing(to.solved.writes, handed[1].state, STATE, full);
  copy_bulk_passing(to.values[0], handed[0].residual, RESIDUAL, full);
  copy_bulk_passing(to.values[1], handed[1].residual, RESIDUAL, full);
}

// A later segment's transition, both halves of its rows, in two terms: a stage that is all of it.
__device__ __forceinline__ void request_transition(ScanMemory& shared, const Seam& seam,
                                                   int round) {
  if (threadIdx.x % SENDERS != 0) return;
  Stage& to = shared.stages[round % Tuning::STAGES];
  uint64_t* full = &shared.full[round % Tuning::STAGES];
  shared.places[round % (2 * Tuning::STAGES)] = {};  // leaves no output
  constexpr int TERM = sizeof(seam.transition[0][0]);
  static_assert(TERM == sizeof(Operands::keys) && TERM == sizeof(Stage::values) &&
                    TERM == sizeof(Solved::writes), "they take the places of others");
  arrive_expecting(full, 2 * TERM);
  copy_bulk(to.operands.keys, seam.transition[0][0], TERM, full);
  copy_bulk(to.operands.queries, seam.transition[0][1], TERM, full);
  arrive_expecting(full, 2 * TERM);
  copy_bulk(to.solved.writes, seam.transition[1][0], TERM, full);
  copy_bulk(to.values, seam.transition[1][1], TERM, full);
}

// Whether the values of a round go where no output lies: half of the columns, as in the round that
// had the stage before.
__device__ __forceinline__ bool is_apart(const ScanMemory& shared, const Work& work, int round) {
  if (work.groups == GROUPS || round < Tuning::STAGES) return work.groups < GROUPS;
  return shared.places[(round - Tuning::STAGES) % (2 * Tuning::STAGES)].groups < GROUPS;
}

// Waits until a chunk of the unit is solved; returns up to which one they are then known to be.
__device__ __forceinline__ int await_chunk(const Args& args, const Work& work, int chunk,
                                           int chunks) {
  const int qk_head = work.v_head / SERVED;
  const int solved = chunk + await_solved(args, work.slot + chunk, qk_head, chunks - chunk);
  admit_bulk_reads();
  return solved;
}

// Bulk copies may take the place of what was read or left in the stage of a round.
__device__ __forceinline__ void reuse_stage(ScanMemory& shared, const Args& args, int round) {
  if (round < Tuning::STAGES) return;
  await_round_before(shared.done, round);
  store_output(shared, args, round - Tuning::STAGES);
  drop_round(shared, args, round - Tuning::STAGES);
  publish_shared();
  sync_threads_of(1 + GROUPS, SENDERS);  // outputs have been read
}

// The state in front of a sequence: a round of its own, the first of its unit.
__device__ __forceinline__ void send_state(ScanMemory& shared, const Args& args, const Work& work,
                                           int& round) {
  await_round_before(shared.used, round);
  reuse_stage(shared, args, round);
  if (threadIdx.x % SENDERS == 0) {
    Stage& stage = shared.stages[round % Tuning::STAGES];
    uint64_t* full = &shared.full[round % Tuning::STAGES];
    shared.places[round % (2 * Tuning::STAGES)] = {};  // leaves no output
    constexpr int HALF = DIM * DIM / 2;  // values
    static_assert(2 * HALF * sizeof(float) <= sizeof(stage), "a stage that is all of it");
    float* to = reinterpret_cast<float*>(&stage);
    const float* from = args.state + work.first_value();
    request_part(to, from, HALF * sizeof(float), full);
    request_part(to + HALF, from + HALF, HALF * sizeof(float), full);
  }
  arrive(&shared.full[round % Tuning::STAGES]);
  ++round;
}

// Values of the CTA's first rounds do not wait for solve_kernel. Of how many of the unit's chunks.
__device__ __forceinline__ int request_early(ScanMemory& shared, const Args& args,
                                             const Work& work, int chunks, int round) {
  const int early = max(min(chunks, Tuning::STAGES - round), 0);
#pragma unroll 1
  for (int chunk = 0; chunk < early; ++chunk) {
    request_values(shared, args, work, chunk, round + chunk);
    announce_values(shared, round + chunk);
  }
  return early;
}

// A sender's part of a unit's chunks, from the CTA's `round` on. Values of half of the columns wait
// for no output.
__device__ __forceinline__ void send_unit(ScanMemory& shared, const Args& args, const Work& work,
                                          bool is_requesting, int& round) {
  const int chunks = work.range.chunks();
  if (is_state_sent(args, work)) send_state(shared, args, work, round);
  const int early = request_early(shared, args, work, chunks, round);
  int solved = 0;  // chunks that are known to be there
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk, ++round) {
    const int stage = round % Tuning::STAGES, parity = (round / Tuning::STAGES - 1) % 2;
    const bool is_reused = round >= Tuning::STAGES;
    if (is_requesting && chunk >= solved) solved = await_chunk(args, work, chunk, chunks);
    if (is_reused) wait_cta_phase(&shared.used[stage], parity);
    request_operands(shared, args, work, chunk, round);
    const bool apart = is_apart(shared, work, round);
    if (chunk >= early && apart) request_values(shared, args, work, chunk, round);
    if (is_reused) wait_cta_phase(&shared.done[stage], parity);
    request_solved(shared, args, work, chunk, round);
    if (is_reused && !apart) store_output(shared, args, round - Tuning::STAGES);
    if (is_reused) drop_round(shared, args, round - Tuning::STAGES);
    if (chunk < early) continue;
    if (!apart) request_values(shared, args, work, chunk, round);
    announce_values(shared, round);
  }
}

// As send_unit() for half of the columns whose outputs are found elsewhere. What a round leaves is
// reported once it is done, in turns by warps that request no operands: a report waits until all of
// it is visible.
__device__ __forceinline__ void send_states(ScanMemory& shared, const Args& args, const Work& work,
                                            bool is_requesting, int& round) {
  const int chunks = work.range.chunks();
  const int early = request_early(shared, args, work, chunks, round);
  const auto report = [&](int chunk, int of) {
    if (threadIdx.x % SENDERS != 32 + of % 3 * 32) return;
    count_release(halves_of(args, work.slot + chunk, work.v_head));
  };
  int solved = 0;  // chunks that are known to be there
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk, ++round) {
    if (is_requesting && chunk >= solved) solved = await_chunk(args, work, chunk, chunks);
    await_round_before(shared.used, round);
    request_keys(shared, args, work, chunk, round);
    if (chunk >= early) request_values(shared, args, work, chunk, round);
    await_round_before(shared.done, round);
    request_writes(shared, args, work, chunk, round);
    if (chunk >= early) announce_values(shared, round);
    if (chunk >= Tuning::STAGES) report(chunk - Tuning::STAGES, round - Tuning::STAGES);
  }
#pragma unroll 1
  for (int last = min(chunks, Tuning::STAGES); last > 0; --last) {
    await_round_before(shared.done, round - last + Tuning::STAGES);
    report(chunks - last, round - last);
  }
}

// What a later segment's states, found from zeros, are merged with: a round of its own.
__device__ __forceinline__ void send_seam(ScanMemory& shared, const Args& args, const Work& work,
                                          bool is_requesting, int& round) {
  if (is_requesting) {
    const SeamCounts* counts = seam_counts_of(args, work.later, work.v_head);
    await_count(&counts->begin, HALVES);
    await_count(&counts->transition, HALVES);
    admit_bulk_reads();
  }
  await_round_before(shared.used, round);  // true by then: its next arrivals are the seam's
  reuse_stage(shared, args, round);
  request_transition(shared, *seam_of(args, work.later, work.v_head), round);
  arrive(&shared.full[round % Tuning::STAGES]);
  ++round;
}

// Where the outputs of a unit of outputs belong.
__device__ __forceinline__ Place place_of(const Work& work) {
  return {work.range.start, work.range.stop - work.range.start, work.column(0), GROUPS, nullptr};
}

// The outputs of a chunk of a first segment.
__device__ __forceinline__ void send_output(ScanMemory& shared, const Args& args, const Work& work,
                                            bool is_requesting, int& round) {
  const int stage = round % Tuning::STAGES;
  if (is_requesting) {
    await_count(halves_of(args, work.slot, work.v_head), HALVES);
    admit_bulk_reads();
  }
  reuse_stage(shared, args, round);
  request_reads(shared, args, work, stage);
  request_handed(shared, handed_of(args, work.slot, work.v_head, 0), place_of(work), round);
  arrive(&shared.full[stage]);
  ++round;
}

// And of one of a later segment, in two rounds: what the transition adds for each row of the state
// in front of the segment, which need not be there yet, then what that is added to.
__device__ __forceinline__ void send_later_output(ScanMemory& shared, const Args& args,
                                                  const Work& work, bool is_requesting,
                                                  int& round) {
  if (is_requesting) {
    await_count(halves_of(args, work.slot, work.v_head), 2 * HALVES);
    admit_bulk_reads();
  }
  reuse_stage(shared, args, round);
  request_reads(shared, args, work, round % Tuning::STAGES);
  request_handed(shared, transition_of(args, work.slot, work.v_head, 0), {}, round);
  arrive(&shared.full[round % Tuning::STAGES]);
  ++round;
  if (is_requesting) await_count(&seam_counts_of(args, work.later, work.v_head)->begin, HALVES);
  reuse_stage(shared, args, round);
  if (threadIdx.x % SENDERS == 0) arrive(&shared.full[round % Tuning::STAGES]);  // for no reads
  request_handed(shared, handed_of(args, work.slot, work.v_head, 0), place_of(work), round);
  arrive(&shared.full[round % Tuning::STAGES]);
  ++round;
}

// The senders' part of a CTA's work. A unit is taken once all chunks of the one in front have been
// requested, of which two are still to be worked on: no earlier, or others might be done with
// theirs before it is begun.
template <bool MAY_CUT>
__device__ __forceinline__ void send_chunks(ScanMemory& shared, const Args& args, int first) {
  const bool is_requesting = share(threadIdx.x % SENDERS / 32) == 0;
  const bool is_leader = threadIdx.x % SENDERS == 0;
  int round = 0;
  if (is_leader) list_unit(shared, 1, first);
  for_works<MAY_CUT>(shared, args, [&](const Work& work, int number) {
    const bool is_loaded = work.seq >= 0 && work.later < 0 && work.groups < GROUPS && args.state;
    if (is_leader && number > 1 && is_loaded && work.range.chunks() > 0) {
      prefetch_bulk(args.state + work.first_value(), VALUES * DIM * sizeof(float));
    }
    if (work.seq < 0 && work.later < 0) {
      send_output(shared, args, work, is_requesting, round);
    } else if (work.seq < 0) {
      send_later_output(shared, args, work, is_requesting, round);
    } else if (MAY_CUT || (work.groups < GROUPS && is_handing(args))) {
      send_states(shared, args, work, is_requesting, round);
      if (is_merged(work)) send_seam(shared, args, work, is_requesting, round);
    } else {
      send_unit(shared, args, work, is_requesting, round);
    }
    if (!is_leader) return;
    const int next = take_unit(args);
    // The second warpgroup skips rounds of states and seams, and parity does not tell a phase from
    // that two before it: it learns of a round once all of the one before in its stage is there.
    if (MAY_CUT) await_round_before(shared.full, round);
    list_unit(shared, number + 1, next);
  });
#pragma unroll 1
  for (int last = max(round - Tuning::STAGES, 0); last < round; ++last) {
    wait_cta_phase(&shared.done[last % Tuning::STAGES], last / Tuning::STAGES % 2);
    store_output(shared, args, last);
    drop_round(shared, args, last);
  }
  commit_copies();
  wait_copies<0>();  // no copy may land in a CTA that has ended
  wait_for_launches_before();  // who comes after this kernel comes after solve_kernel
}

}  // namespace
