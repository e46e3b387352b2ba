// Products of many packed rows: the two warpgroups that multiply, and what they write.
//
// A warpgroup has 64 of a tile's packed rows, whose codes it holds in registers for a block of k,
// and all of its weight rows, in four boxes of 64. Products of two boxes take turns: one is scaled
// and added while the tensor cores work on the other. Only from block to block, when the registers
// with codes change, a warpgroup has no product in flight; then the other one has.
//
// With two planes of C both warpgroups have all 64 rows, and two boxes each: what codes round off
// is one more product on the same sums. They exchange the largest magnitudes of rows of C alone.
//
// Of 32 weight rows a product's columns 8 j + 2 q and one more are rows 8 q + 2 j and one more: the
// eight that a lane holds are neighbours, and leave without a way through shared memory.
#pragma once

#include <cuda_fp8.h>

#include <cfloat>

#include "finite_product.cuh"
#include "fp8_products.cuh"
#include "fp8_row_products.cuh"
#include "named_barrier.cuh"
#include "tensor_core.cuh"
#include "tile_feed.cuh"
#include "warp_arrival.cuh"

namespace {

constexpr int BOX_SUMS = BOX_ROWS / 2;              // of a thread, in a product
constexpr int WARPS_MEET = 1;  // a barrier of two warps with the same packed rows, and three more
constexpr int BOX_STEP = BOX_ROWS * BLOCK / 16;  // from box to box, as describe_start() counts

// Sums of a thread: of two packed rows, times its warpgroup's weight rows. Boxes of the first
// product are 64 rows of the linear half, the same of the gate half, and so on.
template <typename Form>
using TileSums = float[Form::BOXES_EACH][BOX_SUMS];

// A warp's first packed row of a tile.
template <typename Form>
__device__ __forceinline__ int warp_row() {
  return (threadIdx.x / 32 - 4 * Form::half()) * 16;
}

// A thread's first packed row of a tile; the other one is eight on.
template <typename Form>
__device__ __forceinline__ int lane_row() { return warp_row<Form>() + threadIdx.x % 32 / 4; }

// Where a lane finds the codes of its warp's 16 packed rows, in the first stage. The shuffle, to
// the lane itself, makes this a register: the compiler would compute it anew for each block of k,
// in front of the products.
template <typename Form>
__device__ __forceinline__ uint32_t find_codes(TileShared& shared) {
  const int lane = threadIdx.x % 32, row = warp_row<Form>() + lane % 16;
  return __shfl_sync(FULL, shared_address(shared.rows[0]) + swizzled(row, lane / 16), lane);
}

// The codes of a block of k, 32 of k each, of the 16 rows from there on: chunks 2 k and 2 k + 1. A
// plane's 64 rows come after the other's.
template <int PLANES>
__device__ __forceinline__ void load_codes(uint32_t from, uint32_t (&rows)[PLANES][4][4]) {
#pragma unroll
  for (int i = 0; i < PLANES * 4; ++i) {
    load_tiles(rows[i / 4][i % 4], (from ^ 32 * (i % 4)) + i / 4 * BOX_ROWS * BLOCK);
  }
}

// Begins a product of the packed rows and a box of weights.
template <int PLANES>
__device__ __forceinline__ void issue_box(float (&product)[BOX_SUMS],
                                          const uint32_t (&rows)[PLANES][4][4], uint32_t weights,
                                          int box) {
  begin_products();
#pragma unroll
  for (int i = 0; i < PLANES * 4; ++i) {
    multiply_rows(product, rows[i / 4][i % 4], weights + box * BOX_STEP + 2 * (i % 4), i > 0);
  }
  commit_products();
}

// sums += product, scaled. scales: of the thread's two rows.
__device__ __forceinline__ void add_scaled(float (&sums)[BOX_SUMS],
                                           const float (&product)[BOX_SUMS],
                                           const float (&scales)[2]) {
#pragma unroll
  for (int i = 0; i < BOX_SUMS; ++i) sums[i] += product[i] * scales[i % 4 / 2];
}

// This warp has read the stage, as both CTAs of the cluster learn.
__device__ __forceinline__ void free_stage(TileShared& shared, int stage) {
  __syncwarp();
#pragma unroll
  for (int i = threadIdx.x % 32; i < PAIR * ARRIVALS_A_WARP; i += 32) {
    arrive_at(&shared.free[stage], i / ARRIVALS_A_WARP);
  }
}

// Where the ring stands at a block of any unit.
__device__ __forceinline__ Ring<TILE_STAGES> find_stage(uint32_t block) {
  static_assert(HIDDEN_BLOCKS % (2 * TILE_STAGES) == 0 && WIDTH_BLOCKS % (2 * TILE_STAGES) == 0,
                "a unit is an even number of turns");
  return {static_cast<int>(block % TILE_STAGES), block / TILE_STAGES % 2};
}

// The scales of a warpgroup's first and last weight rows: of linear and gate half, or of the first
// and last 128 columns of the outputs.
template <Kind KIND, typename Form>
__device__ __forceinline__ float2 load_weight_scales(const TileShared& shared, int stage) {
  const float* scales = shared.weight_scales[stage];
  if (KIND == FIRST || Form::PLANES == 1) return *reinterpret_cast<const float2*>(scales);
  return {scales[Form::half()], scales[Form::half()]};
}

// The last box's product of a block is added while the next block's first one runs. A kernel that
// routes has no registers to keep where the ring stands.
template <Kind KIND, typename Form>
__device__ __forceinline__ void multiply_tile(TileShared& shared, Ring<TILE_STAGES>& ring,
                                              TileSums<Form>& acc) {
  constexpr int LAST = Form::BOXES_EACH - 1;
  float product[2][BOX_SUMS] = {};
  float scales[2][2] = {};  // [of the weights][of the rows]
  const uint32_t codes = find_codes<Form>(shared);
#pragma unroll 1
  for (int block = 0; block < Product<KIND>::BLOCKS; ++block) {
    if (Form::TOLD) ring = find_stage(block);
    uint32_t rows[KIND == FIRST ? 1 : Form::PLANES][4][4];
    const uint32_t weights =
        describe_start(shared.weights[ring.stage][Form::half() * Form::BOXES_EACH]);
    wait_cta_phase(&shared.full[ring.stage], ring.parity);
    load_codes(codes + ring.stage * sizeof(shared.rows[0]), rows);
    issue_box(product[0], rows, weights, 0);
    await_products<1>(product[1]);
    add_scaled(acc[LAST], product[1], scales[1]);
    issue_box(product[1], rows, weights, 1);
    const float2 of_weights = load_weight_scales<KIND, Form>(shared, ring.stage);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float of_row = shared.row_scales[ring.stage][lane_row<Form>() + 8 * i];
      scales[0][i] = multiply_finite(of_row, of_weights.x);
      scales[1][i] = multiply_finite(of_row, of_weights.y);
    }
    await_products<1>(product[0]);
    add_scaled(acc[0], product[0], scales[0]);
    if constexpr (LAST == 3) {
      issue_box(product[0], rows, weights, 2);
      await_products<1>(product[1]);
      add_scaled(acc[1], product[1], scales[KIND == FIRST ? 1 : 0]);
      issue_box(product[1], rows, weights, 3);
      await_products<1>(product[0]);
      add_scaled(acc[2], product[0], scales[KIND == FIRST ? 0 : 1]);
    }
    wait_products<0>();
    free_stage(shared, ring.stage);
    ring.advance();
  }
  await_products<0>(product[1]);
  add_scaled(acc[LAST], product[1], scales[1]);
}

// The stages of a unit without packed rows for this warpgroup.
template <Kind KIND, typename Form>
__device__ __forceinline__ void pass_over_tile(TileShared& shared, Ring<TILE_STAGES>& ring) {
#pragma unroll 1
  for (int block = 0; block < Product<KIND>::BLOCKS; ++block) {
    if (Form::TOLD) ring = find_stage(block);
    wait_cta_phase(&shared.full[ring.stage], ring.parity);
    free_stage(shared, ring.stage);
    ring.advance();
  }
}

// C in place of the linear half, and the largest magnitudes of the thread's two rows.
template <typename Form>
__device__ __forceinline__ void activate_tile(TileSums<Form>& acc, float (&peaks)[2]) {
  peaks[0] = 0.0f, peaks[1] = 0.0f;
#pragma unroll
  for (int i = 0; i < Form::BOXES_EACH * BOX_SUMS / 2; ++i) {
    float& linear = acc[i / BOX_SUMS * 2][i % BOX_SUMS];
    const float gate = acc[i / BOX_SUMS * 2 + 1][i % BOX_SUMS];
    linear *= __fdividef(gate, 1.0f + __expf(-gate));
    peaks[i % 4 / 2] = fmaxf(peaks[i % 4 / 2], fabsf(linear));
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    peaks[i] = fmaxf(peaks[i], __shfl_xor_sync(FULL, peaks[i], 1));
    peaks[i] = fmaxf(peaks[i], __shfl_xor_sync(FULL, peaks[i], 2));
  }
}

// Peaks of a row's columns of C in both warpgroups, where these have half of them each. A place is
// written again two units on, when the two warps have met once more. turn: of the unit.
template <typename Form>
__device__ __forceinline__ void join_peaks(TileShared& shared, uint32_t turn, float (&peaks)[2]) {
  if (Form::PLANES == 1) return;
  auto& all = shared.peaks[turn % 2];
  const int row = lane_row<Form>();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (threadIdx.x % 4 == 0) all[Form::half()][row + 8 * i] = peaks[i];
  }
  sync_threads_of(WARPS_MEET + threadIdx.x / 32 % 4, 64);
#pragma unroll
  for (int i = 0; i < 2; ++i) peaks[i] = fmaxf(peaks[i], all[1 - Form::half()][row + 8 * i]);
}

__device__ __forceinline__ uint32_t pack_codes(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(float2{low, high}, __NV_SATFINITE, __NV_E4M3);
}

// What codes of two numbers round off, as codes.
__device__ __forceinline__ uint32_t pack_rest(uint32_t codes, float low, float high) {
  const auto halves = __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t(codes), __NV_E4M3);
  const float2 back = __half22float2(__half2(halves));
  return pack_codes(low - back.x, high - back.y);
}

// Writes eight columns of a row of C, whose sums are these times `inverse`.
template <typename Form>
__device__ __forceinline__ void write_codes(const Args& args, uint8_t* c, const float* sums,
                                            float inverse) {
  uint32_t codes[4], rest[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float low = sums[4 * j] * inverse, high = sums[4 * j + 1] * inverse;
    codes[j] = pack_codes(low, high);
    if (Form::PLANES == 2) rest[j] = pack_rest(codes[j], low, high);
  }
  *reinterpret_cast<uint2*>(c) = {codes[0] | codes[1] << 16, codes[2] | codes[3] << 16};
  if (Form::PLANES == 1) return;
  *reinterpret_cast<uint2*>(c + int64_t{args.capacity} * WIDTH) = {rest[0] | rest[1] << 16,
                                                                   rest[2] | rest[3] << 16};
}

// Quantises and writes a warpgroup's columns of C. All 128 of a part share a scale.
template <typename Form>
__device__ __forceinline__ void write_tile(TileShared& shared, const Args& args,
                                           const TileUnit& unit, uint32_t turn,
                                           TileSums<Form>& acc) {
  float peaks[2];
  activate_tile<Form>(acc, peaks);
  join_peaks<Form>(shared, turn, peaks);
  const int quarter = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane_row<Form>() + 8 * i;
    if (row >= unit.rows) continue;
    const float scale = fmaxf(peaks[i] * (1.0f / 448.0f), FLT_MIN);  // its reciprocal is finite
    const float inverse = 1.0f / scale;
    uint8_t* c = args.c + int64_t{unit.first_row + row} * WIDTH + unit.part * BLOCK +
                 Form::half() * Form::C_COLUMNS + quarter * 8;
#pragma unroll
    for (int part = 0; part < Form::C_COLUMNS / 32; ++part) {
      const float* sums = acc[part / 2 * 2] + part % 2 * 16 + i * 2;
      write_codes<Form>(args, c + part * 32, sums, inverse);
    }
    if (quarter == 0 && Form::half() == 0) {
      args.c_tile_scale[(int64_t{unit.tile} * WIDTH_BLOCKS + unit.part) * Form::ROWS + row] = scale;
    }
  }
}

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Where an expert's outputs of a packed row go, and times what: with the weight of a lone expert to
// the output, where combine_kernel adds nothing to them, otherwise as they are to expert_out.
struct Destination {
  __nv_bfloat16* row;
  float weight;
};

__device__ __forceinline__ Destination find_destination(const Args& args, uint4 words,
                                                        int packed_row) {
  const uint2 told = {words.x, words.z};
  if (!is_lone(told)) return {args.expert_out + int64_t{packed_row} * HIDDEN, 1.0f};
  return {args.output + int64_t{told.y & 0xffff} * HIDDEN, __uint_as_float(told.x)};
}

// Writes a warpgroup's columns of the experts' outputs. told: of the unit's rows.
template <typename Form>
__device__ __forceinline__ void write_outputs(const Args& args, const TileUnit& unit,
                                              const uint4 (&told)[TILE_ROWS],
                                              const TileSums<Form>& acc) {
  const int column = unit.part * BOXES * BOX_ROWS + Form::half() * Form::BOXES_EACH * BOX_ROWS +
                     threadIdx.x % 4 * 8;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane_row<Form>() + 8 * i;
    if (row >= unit.rows) continue;
    const Destination to = find_destination(args, told[row], unit.first_row + row);
#pragma unroll
    for (int part = 0; part < Form::BOXES_EACH * BOX_ROWS / 32; ++part) {
      const float* sums = acc[part / 2] + part % 2 * 16 + i * 2;
      uint32_t pairs[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        pairs[j] = pack_bf16(to.weight * sums[4 * j], to.weight * sums[4 * j + 1]);
      }
      *reinterpret_cast<uint4*>(to.row + column + part * 32) = {pairs[0], pairs[1], pairs[2],
                                                                pairs[3]};
    }
  }
}

// A unit of either product. turn: of the unit.
template <Kind KIND, typename Form>
__device__ __forceinline__ void compute_unit(TileShared& shared, const Args& args,
                                             const TileUnit& unit, uint32_t turn,
                                             Ring<TILE_STAGES>& ring) {
  if (Form::PLANES == 1 && threadIdx.x / GROUP_THREADS * BOX_ROWS >= unit.rows) {
    pass_over_tile<KIND, Form>(shared, ring);
  } else {
    TileSums<Form> acc = {};
    multiply_tile<KIND, Form>(shared, ring, acc);
    if (KIND == FIRST) write_tile<Form>(shared, args, unit, turn, acc);
    if (KIND == SECOND) write_outputs<Form>(args, unit, shared.told[turn % 2], acc);
  }
  if (KIND == SECOND) return;
  __syncwarp();
  if (threadIdx.x % 32 == 0) count_written<Form::TOLD>(args, unit.tile);
}

template <typename Form>
__device__ __forceinline__ void multiply_tiles(TileShared& shared, const Args& args) {
  for_each_unit<Form::TOLD>(
      shared, [&](auto product, const TileUnit& unit, uint32_t turn, auto& stages) {
        compute_unit<product.OF, Form>(shared, args, unit, turn, stages);
      });
}

}  // namespace
