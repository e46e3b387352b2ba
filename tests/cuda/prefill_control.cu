// The filtering launch of dsa_indexer_prefill without what follows its products: a control.
//
// Built from the room's own sources, with this file beside them. The grid, the division of work,
// the warps that fetch, the ring, the barriers and the products are the room's; what a computing
// warp does with its sums is left out, in two steps:
//   PRODUCTS  nothing but one sum of each tile's 64 goes into a checksum
//   SCORES    they are weighed and summed over the heads, and a score goes into a checksum alone
// Without the checksum, which is stored, the assembler would leave out the products: to it an empty
// volatile instruction of the compiler's is no use of them.
// launch_part() launches one of these, or the room's own filter, alone: what a call of
// select_topk() with the same scratch has left there are its thresholds, and what its warps told.
//
// tests/prefill_study measures the three in turns.

#include "prefill.cu"

namespace {

enum class Part { PRODUCTS, SCORES, FILTER };

// compute() of score.cuh, without a sink.
template <Part PART>
__device__ __forceinline__ void compute_part(SharedMemory& shared, const Args& args) {
  constexpr bool WEIGHS = PART == Part::SCORES;
  wait_for_launches_before();
  Turn<STAGES> stage;
  Side buffer;
  const int row = __shfl_sync(FULL, row_in_tile(), threadIdx.x % 32);
  const bool speaks = is_speaker(row);
  const uint32_t tiles = lower_word(shared.tiles[0] + threadIdx.x / 128 % 2 * HALF_TILE_BYTES);
  float checksum = 0.0f;
  while (true) {
    wait_cta_phase(&shared.block_full[buffer.at()], buffer.parity());
    const Job& job = shared.jobs[buffer.at()];
    const int first = __shfl_sync(FULL, job.piece.first, 0);
    const int end = first + __shfl_sync(FULL, job.piece.tiles, 0);
    if (first == end) break;
    float weights[32], x[64] = {};
    Score score = {};
    if (WEIGHS) load_weights(job, weights);
    const uint32_t queries =
        lower_word(shared.queries[buffer.at()] + threadIdx.x / 256 * HALF_BLOCK_BYTES);
#pragma unroll 1
    for (int tile = first; tile < end; ++tile) {
      wait_cta_phase(&shared.full[stage.at], stage.parity);
      const float scale = shared.scales[stage.at][row];
      start_products(x, tiles + stage.at * (TILE_BYTES >> 4), queries);
      const bool turns = __any_sync(FULL, scale < 0.0f);
      if (WEIGHS && tile > first) checksum += score.value();
      await_sums<0>(x);
      if (speaks) arrive(&shared.free[stage.at]);
      stage.advance();
      if (WEIGHS) {
        if (turns) turn_products(x, scale, row & 8);
        score = weigh(x, weights, scale, row & 8);
      } else {
        checksum += x[0];
      }
    }
    if (WEIGHS) checksum += score.value();
    __syncwarp();
    if (speaks) arrive(&shared.block_free[buffer.at()]);
    buffer.advance();
  }
  args.samples[blockIdx.x * COMPUTING + threadIdx.x] = checksum;  // as scratch: nobody reads it
}

// score_kernel<FILTER>, but for what computes. Grid: one CTA an SM, in clusters of two
template <Part PART>
__global__ void __launch_bounds__(THREADS, 1) part_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  SharedMemory& shared = *reinterpret_cast<SharedMemory*>(memory);
  if (threadIdx.x == 0) init_barriers<Mode::FILTER>(shared);
  arrive_cluster();
  if (threadIdx.x == COMPUTING) prefetch_map(&args.map);
  divide_work<Mode::FILTER>(shared, args);
  __syncthreads();
  wait_cluster();
  if (threadIdx.x < COMPUTING) {
    take_registers<Tuning::COMPUTING_REGISTERS>();
    compute_part<PART>(shared, args);
  } else {
    give_registers<Tuning::FEEDING_REGISTERS>();
    feed<Mode::FILTER>(shared, args);
  }
  __syncwarp();
  meet_cluster();
}

// Arguments and scratch as of a select_topk() that has run; part: as in Part. At most one group of
// launches.
void launch_part(tvm::ffi::TensorView queries, tvm::ffi::TensorView codes,
                 tvm::ffi::TensorView scales, tvm::ffi::TensorView weights,
                 tvm::ffi::TensorView starts, tvm::ffi::TensorView ends,
                 tvm::ffi::TensorView table, tvm::ffi::TensorView area, int64_t part) {
  const DLDevice device = queries.device();
  auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  int sms = 0;
  check_error(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.device_id));
  sms = std::min(sms, MOST_CTAS);
  Args args = {};
  args.map = map_codes(codes);
  args.queries = static_cast<const uint8_t*>(queries.data_ptr());
  args.codes = static_cast<const uint8_t*>(codes.data_ptr());
  args.scales = static_cast<const float*>(scales.data_ptr());
  args.weights = static_cast<const float*>(weights.data_ptr());
  args.starts = static_cast<const int*>(starts.data_ptr());
  args.ends = static_cast<const int*>(ends.data_ptr());
  args.samples = static_cast<float*>(area.data_ptr());
  args.candidates = static_cast<uint2*>(area.data_ptr());
  args.num_queries = static_cast<int>(queries.size(0));
  args.num_keys = static_cast<int>(codes.size(0));
  args.stretch = stretch_of(args.num_keys);
  args.slots = (args.num_keys + args.stretch - 1) / args.stretch;
  const int64_t bytes = count_areas(args) * SEGMENTS * CAPACITY * sizeof(uint2);
  TVM_FFI_ICHECK(args.num_queries <= MOST_BLOCKS * BLOCK && args.num_keys > TOPK)
      << "prefill control: expected one group of launches and more than " << TOPK << " keys, got "
      << args.num_queries << " queries and " << args.num_keys << " keys";
  TVM_FFI_ICHECK(lay_out_table(args, static_cast<int*>(table.data_ptr())) <= table.size(0) &&
                 bytes <= area.size(0))
      << "prefill control: expected the scratch of select_topk, got " << table.size(0)
      << " words and " << area.size(0) << " bytes";
  const auto start = [&](auto kernel) {
    launch(kernel, args, sms / CLUSTER * CLUSTER, THREADS, sizeof(SharedMemory), stream, true,
           CLUSTER);
  };
  if (part == static_cast<int>(Part::PRODUCTS)) return start(part_kernel<Part::PRODUCTS>);
  if (part == static_cast<int>(Part::SCORES)) return start(part_kernel<Part::SCORES>);
  TVM_FFI_ICHECK(part == static_cast<int>(Part::FILTER)) << "prefill control: no part " << part;
  start(choose_filter(args));
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(launch_part, launch_part)
