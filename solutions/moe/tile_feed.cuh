// The warps that keep the stages of tiles full: one requests weights, two gather packed rows.
//
// A stage is free once both CTAs of the cluster have read theirs, whether they share weights or
// not: so the two are never more than a ring apart.
#pragma once

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "device_flags.cuh"
#include "multicast.cuh"
#include "small_copy.cuh"
#include "tagged_words.cuh"
#include "tensor_map.cuh"
#include "tile_plan.cuh"
#include "warp_arrival.cuh"
#include "warpgroup.cuh"

namespace {

__device__ __forceinline__ void init_tile_barriers(TileShared& shared) {
#pragma unroll 1
  for (int i = 0; i < TILE_STAGES; ++i) {
    init_barrier(&shared.full[i], TILE_FEEDERS + 1);
    init_barrier(&shared.free[i], PAIR * MULTIPLYING / 32 * ARRIVALS_A_WARP);
  }
#pragma unroll 1
  for (int i = 0; i < UNIT_STAGES; ++i) {
    init_barrier(&shared.unit_full[i], 1);
    init_barrier(&shared.unit_free[i], TILE_READERS * ARRIVALS_A_WARP);
  }
  init_barrier(&shared.ticket_full[0], 1), init_barrier(&shared.ticket_full[1], 1);
  fence_barrier_init();
}

// From unit to unit: the warp of the weights finds them and puts them into the ring, each of the
// others reads of the ring's next one until it leaves it.
__device__ __forceinline__ void publish_unit(TileShared& shared, UnitRing& units,
                                             const TileUnit& unit) {
  wait_cta_phase(&shared.unit_free[units.stage()], units.parity() ^ 1);
  if (threadIdx.x % 32 == 0) {
    shared.units[units.stage()] = unit;
    arrive(&shared.unit_full[units.stage()]);
  }
  ++units.turn;
}

__device__ __forceinline__ const TileUnit& await_unit(TileShared& shared,
                                                      const UnitRing& units) {
  wait_cta_phase(&shared.unit_full[units.stage()], units.parity());
  return shared.units[units.stage()];
}

__device__ __forceinline__ void leave_unit(TileShared& shared, UnitRing& units) {
  __syncwarp();
  arrive_for_warp(&shared.unit_free[units.stage()]);
  ++units.turn;
}

// work(product, unit, turn, stages) for unit after unit until there is none left, by a warp that
// reads of them. product: a Product, as the two are different code. turn: how many units came
// before. HOLDS_TURN makes that a register of its own, as in find_codes(): its remainder would be
// kept, too.
template <bool HOLDS_TURN, typename Work>
__device__ __forceinline__ void for_each_unit(TileShared& shared, const Work& work) {
  UnitRing units;
  Ring<TILE_STAGES> stages;
  while (true) {
    const TileUnit& unit = await_unit(shared, units);
    if (unit.kind == NONE) return;
    if (unit.kind == FIRST) {
      work(Product<FIRST>(), unit, units.turn, stages);
    } else {
      work(Product<SECOND>(), unit, units.turn, stages);
    }
    if (HOLDS_TURN) units.turn = __shfl_sync(FULL, units.turn, threadIdx.x % 32);
    leave_unit(shared, units);
  }
}

// Weights of a block of k, 64 rows for each request. CTAs that share them request two boxes each.
template <Kind KIND>
__device__ __forceinline__ void request_tile(TileShared& shared, const Args& args,
                                             const TileUnit& unit, int rank, int block,
                                             int stage) {
  const CUtensorMap* map = KIND == FIRST ? &args.w1 : &args.w2;
  uint64_t* full = &shared.full[stage];
  arrive_expecting(full, sizeof(shared.weights[stage]));
#pragma unroll
  for (int i = 0; i < BOXES; ++i) {
    const int row = KIND == FIRST ? unit.expert * 2 * WIDTH + i % 2 * WIDTH + unit.part * BLOCK +
                                        i / 2 * BOX_ROWS
                                  : unit.expert * HIDDEN + unit.part * 2 * BLOCK + i * BOX_ROWS;
    uint8_t* to = shared.weights[stage][i];
    if (!unit.is_shared) {
      copy_box(to, map, full, block * BLOCK, 0, 0, 0, row / 32);
    } else if (i / 2 == rank) {
      copy_box_to((1 << PAIR) - 1, to, map, full, block * BLOCK, 0, 0, 0, row / 32);
    }
  }
}

// Rows of the output without a local expert, which a warp of each CTA fills with zeros while it has
// nothing else to do: DRAM has little while the tensor cores bind. 32 tokens at a time.
struct BlankRows {
  static constexpr int STEPS = HIDDEN / (32 * 8);  // of 16 bytes a lane in a row
  int first_token, step = 0;
  uint32_t blank = 0;  // those of the 32 tokens that are left

  // Writes 512 bytes, or looks for rows; returns false behind the last one.
  __device__ __forceinline__ bool advance(const Args& args) {
    const int lane = threadIdx.x % 32;
    if (blank == 0) {
      first_token += 32 * gridDim.x;
      if (first_token >= args.num_tokens) return false;
      const int token = min(first_token + lane, args.num_tokens - 1);
      const int4* slots = reinterpret_cast<const int4*>(args.routing.slot_row) + 2 * token;
      const int4 a = slots[0], b = slots[1];
      const int all = a.x & a.y & a.z & a.w & b.x & b.y & b.z & b.w;  // no row is -1: all bits
      blank = __ballot_sync(FULL, all == -1 && first_token + lane < args.num_tokens);
      return true;
    }
    const int64_t token = first_token + __ffs(blank) - 1;
    reinterpret_cast<int4*>(args.output + token * HIDDEN)[step * 32 + lane] = int4{};
    if (++step == STEPS) step = 0, blank &= blank - 1;
    return true;
  }
};

// What CTAs count in global memory: units that are taken and parts of C that are written. TOLD:
// in words with a nonce, otherwise in what route_kernel has cleared.
template <bool TOLD>
__device__ __forceinline__ int take_ticket(const Args& args) {
  return TOLD ? take_count<TICKET_BITS>(args.told.ticket) : atomicAdd(args.routing.ticket, 1);
}

template <bool TOLD>
__device__ __forceinline__ bool is_written(const Args& args, int tile) {
  if (!TOLD) return load_acquire(args.routing.done + tile) >= TILE_DONE;
  return load_acquire(args.told.done + tile) == (args.told.nonce << DONE_BITS) + TILE_DONE;
}

template <bool TOLD>
__device__ __forceinline__ void count_written(const Args& args, int tile) {
  if (TOLD) {
    count_release(args.told.done + tile);
  } else {
    count_release(args.routing.done + tile);
  }
}

// The first CTA of a cluster sends both a ticket.
__device__ __forceinline__ void send_ticket(TileShared& shared, uint32_t ticket, int slot) {
  for (int rank = 0; rank < PAIR; ++rank) {
    send(address_in(shared_address(&shared.tickets[slot]), rank), ticket,
         address_in(shared_address(&shared.ticket_full[slot]), rank));
  }
}

// The ticket that is sent to a place, for the whole warp of the weights.
__device__ __forceinline__ int await_ticket(TileShared& shared, const Ring<2>& tickets) {
  uint64_t* full = &shared.ticket_full[tickets.stage];
  if (threadIdx.x % 32 == 0) arrive_expecting(full, sizeof(int));
  wait_phase(full, tickets.parity);
  return shared.tickets[tickets.stage];
}

// Requests a unit's weights. Before its end takes the next ticket and, of the first product, begins
// the count of the row tile's finished parts, unless another part's CTA has.
template <Kind KIND, typename Form>
__device__ __forceinline__ void feed_unit_weights(TileShared& shared, const Args& args,
                                                  const TileUnit& unit, int rank, int next_slot,
                                                  BlankRows& blank_rows,
                                                  Ring<TILE_STAGES>& ring) {
  constexpr int AHEAD = 8;  // blocks before a unit's end at which the next one is taken
  // Tickets have two places: the other CTA has read the last one but one.
  static_assert(TILE_STAGES + AHEAD < WIDTH_BLOCKS, "CTAs are less than a ring apart");
  constexpr bool BEGINS = Form::TOLD && KIND == FIRST;
  static_assert(TILE_DONE < 1 << DONE_BITS, "parts can be counted");
  uint64_t* done = args.told.done + unit.tile;
  const uint64_t seen = BEGINS && threadIdx.x % 32 == 0 ? load_relaxed(done) : 0;
#pragma unroll 1
  for (int block = 0; block < Product<KIND>::BLOCKS; ++block) {
    wait_cta_phase(&shared.free[ring.stage], ring.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      request_tile<KIND>(shared, args, unit, rank, block, ring.stage);
      if (rank == 0 && block == Product<KIND>::BLOCKS - AHEAD) {
        send_ticket(shared, take_ticket<Form::TOLD>(args), next_slot);
      }
      if (BEGINS && block == Product<KIND>::BLOCKS - AHEAD) {
        begin_count<DONE_BITS>(done, seen, args.told.nonce);
      }
    }
    __syncwarp();
    if (KIND == FIRST && !Form::TOLD) blank_rows.advance(args), blank_rows.advance(args);
    ring.advance();
  }
}

// One warp: finds units, tells the others of them, requests their weights. rows: of each lane's
// expert. In a kernel that routes the first ticket is sent, and somebody else writes zeros.
template <typename Form>
__device__ __forceinline__ void feed_tile_weights(TileShared& shared, const Args& args, int rank,
                                                  int rows) {
  const int lane = threadIdx.x % 32, rows_through = scan_lanes(rows);
  UnitRing units;
  Ring<TILE_STAGES> ring;
  Ring<2> tickets;
  BlankRows blank_rows = {32 * (int(blockIdx.x) - int(gridDim.x))};
  if (!Form::TOLD && rank == 0 && lane == 0) {
    send_ticket(shared, take_ticket<false>(args), 0);
  }
  while (true) {
    const int ticket = await_ticket(shared, tickets);
    const TileUnit unit = find_tile<Form::ROWS>(ticket, rank, rows, rows_through);
    tickets.advance();
    publish_unit(shared, units, unit);
    if (unit.kind == NONE) break;
    if (unit.kind == FIRST) {
      feed_unit_weights<FIRST, Form>(shared, args, unit, rank, tickets.stage, blank_rows, ring);
    } else {
      feed_unit_weights<SECOND, Form>(shared, args, unit, rank, tickets.stage, blank_rows, ring);
    }
  }
  while (!Form::TOLD && blank_rows.advance(args)) {
  }
}

// The number of a thread among those that gather packed rows.
__device__ __forceinline__ int feeder_number() { return threadIdx.x - MULTIPLYING - 32; }

constexpr int COPY_ROWS = TILE_FEEDERS / 8;  // from one of a thread's chunks to the next

static_assert(COPY_ROWS % 8 == 0, "a thread's chunks have the same place in their rows");

// Where a thread's chunks of packed rows lie: in rows of x found through their tokens, or in rows
// of C, which follow one another. Pointers move on from block to block: so they stay registers.
template <Kind KIND, typename Form>
struct TileSources {
  static constexpr bool LOOSE = Form::TOLD && KIND == FIRST;  // scales are copied one by one
  static constexpr int PLANES = KIND == FIRST ? 1 : Form::PLANES;
  static constexpr int COPIES = Form::ROWS * 8 / TILE_FEEDERS;  // in a block of k and a plane
  static constexpr int SCALES = LOOSE ? Form::ROWS / TILE_FEEDERS : 0;
  uint32_t chunks[COPIES];  // of x, from its begin
  const uint8_t* rows;
  const float *row_scales, *weight_scale;
  int left;     // rows from the thread's first one on
  bool copies_scales;
  int scale_tokens[Form::ROWS / TILE_FEEDERS];  // LOOSE: of rows whose scales are the thread's

  template <typename Rows>
  __device__ __forceinline__ void find(const Args& args, const TileUnit& unit,
                                       const Rows& packed) {
    constexpr uint32_t ROW = Product<KIND>::K / 16;  // chunks
    constexpr int TILE_SCALES = Product<KIND>::BLOCKS * Form::ROWS;
    const int thread = feeder_number(), first = thread / 8;
    left = unit.rows - first;
    copies_scales = thread * 4 < unit.rows;
    if (KIND == FIRST) {
      const auto* tokens = packed.list(args, unit);
#pragma unroll
      for (int i = 0; i < COPIES; ++i) {
        chunks[i] = tokens[min(first + COPY_ROWS * i, unit.rows - 1)] * ROW + thread % 8;
      }
#pragma unroll
      for (int i = 0; i < SCALES; ++i) {
        scale_tokens[i] = tokens[min(thread + TILE_FEEDERS * i, unit.rows - 1)];
      }
      rows = args.x;
      weight_scale = args.w1_scale + (unit.expert * 2 * WIDTH_BLOCKS + unit.part +
                                      thread % 2 * WIDTH_BLOCKS) * HIDDEN_BLOCKS;
    } else {
      rows = args.c + int64_t{unit.first_row + first} * WIDTH + thread % 8 * 16;
      weight_scale = args.w2_scale + (unit.expert * HIDDEN_BLOCKS + 2 * unit.part + thread % 2) *
                                         WIDTH_BLOCKS;
    }
    row_scales = (KIND == FIRST ? args.x_tile_scale : args.c_tile_scale) +
                 int64_t{unit.tile} * TILE_SCALES + thread % (Form::ROWS / 4) * 4;
    if (LOOSE) row_scales = args.x_scale;
  }
  __device__ __forceinline__ int64_t byte(const Args& args, int plane, int i) const {
    return KIND == FIRST ? int64_t{chunks[i]} * 16
                         : (int64_t{plane} * args.capacity + i * COPY_ROWS) * WIDTH;
  }
  __device__ __forceinline__ void advance(const Args& args) {
    rows += BLOCK, row_scales += LOOSE ? args.num_tokens : Form::ROWS, weight_scale += 1;
  }
};

template <Kind KIND, typename Form>
__device__ __forceinline__ void request_rows(TileShared& shared, const Args& args,
                                             const TileSources<KIND, Form>& sources, int stage) {
  using Sources = TileSources<KIND, Form>;
  const int thread = feeder_number();
  uint8_t* to = shared.rows[stage] + swizzled(thread / 8, thread % 8);
#pragma unroll
  for (int i = 0; i < Sources::PLANES * Sources::COPIES; ++i) {
    const int plane = i / Sources::COPIES, copy = i % Sources::COPIES;
    if (COPY_ROWS * copy < sources.left) {
      copy_chunk(to + i * COPY_ROWS * BLOCK, sources.rows + sources.byte(args, plane, copy));
    }
  }
  if (Sources::LOOSE) {
#pragma unroll
    for (int i = 0; i < Sources::SCALES; ++i) {
      const int row = thread + TILE_FEEDERS * i;
      if (row - thread / 8 < sources.left) {
        copy_word(shared.row_scales[stage] + row, sources.row_scales + sources.scale_tokens[i]);
      }
    }
  } else if (sources.copies_scales) {
    copy_chunk(shared.row_scales[stage] + 4 * thread, sources.row_scales);
  }
  if (thread < 2) copy_word(shared.weight_scales[stage] + thread, sources.weight_scale);
  arrive_with_copies(&shared.full[stage]);
}

// What is told of the rows' tokens, for write_outputs(): it lands before the stage that is
// requested next is full. A place is copied to again two units on, when all but a ring of the unit
// between is read.
template <typename Form, typename Rows>
__device__ __forceinline__ void request_told(const Args& args, const TileUnit& unit,
                                             const Rows& rows, uint4 (&told)[TILE_ROWS]) {
  const auto* tokens = rows.list(args, unit);
#pragma unroll
  for (int i = 0; i < Form::ROWS / TILE_FEEDERS; ++i) {
    const int row = feeder_number() + TILE_FEEDERS * i;
    if (row >= unit.rows) continue;
    const int token = tokens[row];
    if (Form::TOLD) {
      copy_chunk(told + row, args.told.locals + token);
    } else {
      copy_word(&told[row].x, &args.routing.slot_local[token].x);
      copy_word(&told[row].z, &args.routing.slot_local[token].y);
    }
  }
}

template <Kind KIND, typename Form, typename Rows>
__device__ __forceinline__ void feed_unit_rows(TileShared& shared, const Args& args,
                                               const TileUnit& unit, const Rows& rows,
                                               uint32_t turn, Ring<TILE_STAGES>& ring) {
  TileSources<KIND, Form> sources;
  sources.find(args, unit, rows);
  if (KIND == SECOND) {
    while (!is_written<Form::TOLD>(args, unit.tile)) __nanosleep(20);
    __syncwarp();
  }
#pragma unroll 1
  for (int block = 0; block < Product<KIND>::BLOCKS; ++block) {
    wait_cta_phase(&shared.free[ring.stage], ring.parity ^ 1);
    request_rows(shared, args, sources, ring.stage);
    if (KIND == SECOND && block == 0) {
      request_told<Form>(args, unit, rows, shared.told[turn % 2]);
    }
    sources.advance(args);
    ring.advance();
  }
}

// The tokens of a row tile as pack_kernel has left them.
struct PackedRows {
  __device__ __forceinline__ const int* list(const Args& args, const TileUnit& unit) const {
    return args.routing.row_token + unit.first_row;
  }
};

// Two warps: gather the packed rows of unit after unit.
template <typename Form, typename Rows>
__device__ __forceinline__ void feed_tile_rows(TileShared& shared, const Args& args,
                                           const Rows& rows) {
  for_each_unit<false>(
      shared, [&](auto product, const TileUnit& unit, uint32_t turn, auto& stages) {
        feed_unit_rows<product.OF, Form>(shared, args, unit, rows, turn, stages);
      });
}

}  // namespace
