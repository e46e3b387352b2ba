// FP8 mixture of experts with DeepSeek routing.
//
// Definition moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048. For token t and the
// local experts e among the 8 that it selects, with dequantised X, W1 and W2:
//
//     C[t,e]    = silu(X[t] W1[e,2048:]^T) * (X[t] W1[e,:2048]^T)              [2048]
//     output[t] = sum_e weight[t,e] C[t,e] W2[e]^T                              [7168]
//
// Two kernels multiply. Tiles (tile_multiply.cuh) serve all calls but those of few tokens: to 1536
// with two planes of C, to 3072 their kernel routes (tile_route.cuh), beyond it runs behind a
// launch that routes and one that packs and puts scales in their order. The rest of this is of the
// other one, the stream, which routes itself (stream_route.cuh).
//
// Launches: these, and combine. From the second on they are set up while the one before runs.
//
// The persistent kernel, one CTA an SM: units are 64 weight rows of an expert times all of its
// packed rows, taken in order from a counter, the first product's before the second's. A warp
// requests weights into a deep ring, three warps request packed rows, two warpgroups multiply, a
// stage each in turns. Weights are the tall operand of wgmma, packed rows the narrow one.
//
// Bytes: 44 MB of weights an expert that is hit; flops: 88 MFLOP a packed row. DRAM binds up to
// some thousand tokens; choose() in kernel.py draws the line between the two kernels.
//
// Idea: nobody waits in the weight stream. The ring runs on from one unit to the next and into the
// second product, which waits, expert by expert, for C: until then little is requested for it, as
// that would be in the way of the weights that C waits for. Units are small, and an SM that is done
// takes the next: no barrier of the grid, no round of units that is half empty, and no two CTAs
// that must run together.
//
// Numerics: products of one 128-block of k (of C: of the 32 or 128 columns that share a scale) on
// the FP8 tensor cores, scaled and added in fp32. C is two e4m3 planes, codes and what they round
// off. Experts' outputs are bf16, weighted and summed in fp32 in the order of the slots; what a
// token's only local expert gives in tiles is weighted before it is rounded. No floating-point
// atomics: the same call gives the same bits. See docs/kernels/moe.md.

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>

#include "async_copy.cuh"
#include "programmatic_launch.cuh"
#include "tensor_map.cuh"

#include "combine.cuh"
#include "counted_barrier.cuh"
#include "feed.cuh"
#include "multiply.cuh"
#include "plan.cuh"
#include "register_shares.cuh"
#include "route.cuh"
#include "stream_route.cuh"
#include "tile_feed.cuh"
#include "tile_multiply.cuh"
#include "tile_plan.cuh"
#include "tile_route.cuh"
#include "warp_arrival.cuh"

namespace {

using tvm::ffi::TensorView;

constexpr int SHARED_BYTES = 227 * 1024;  // what sm_90 gives a CTA

__device__ __forceinline__ void init_barriers(SharedMemory& shared) {
#pragma unroll 1
  for (int i = 0; i < WEIGHT_STAGES; ++i) {
    init_barrier(&shared.weights_full[i], 1);
    init_barrier(&shared.weights_free[i], GROUP_THREADS / 32 * ARRIVALS_A_WARP);
  }
#pragma unroll 1
  for (int i = 0; i < ROW_STAGES; ++i) {
    init_barrier(&shared.rows_full[i], ROW_FEEDERS);
    init_barrier(&shared.rows_free[i], GROUP_THREADS / 32 * ARRIVALS_A_WARP);
  }
#pragma unroll 1
  for (int i = 0; i < UNIT_STAGES; ++i) {
    init_barrier(&shared.unit_full[i], 1);
    init_barrier(&shared.unit_free[i], READERS * ARRIVALS_A_WARP);
  }
  for (uint64_t& barrier : shared.sums_given) {
    init_barrier(&barrier, GROUP_THREADS / 32 * ARRIVALS_A_WARP);
  }
  init_barrier(&shared.rows_counted, ARRIVALS_A_WARP);
  fence_barrier_init();
}

// Grid: (SMs,); any number is right, and CTAs need not run together.
__global__ void __launch_bounds__(THREADS, 1)
    stream_kernel(const __grid_constant__ StreamArgs args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<SharedMemory*>(memory);
  const Args& all = args.all;
  if (threadIdx.x / 32 == MULTIPLYING / 32) {
    const bool takes = threadIdx.x == MULTIPLYING;
    const uint64_t seen = takes ? load_relaxed(all.told.ticket) : 0;
    if (takes) {
      prefetch_map(&all.w1), prefetch_map(&all.w2);
      init_barriers(shared);
    }
    __syncwarp();
    arrive_for_threads(BARRIERS_MADE, THREADS);
    const int ticket = takes ? take_first_ticket(all.told, seen) : 0;
    __syncwarp();
    wait_cta_phase(&shared.rows_counted, 0);
    feed_weights(shared, all, ticket, shared.expert_rows[threadIdx.x % 32]);
    return;
  }
  route_tokens(shared, args);
  sync_threads_of(BARRIERS_MADE, THREADS);
  if (threadIdx.x < 32) pack_tokens(shared, args, await_locals(shared, args));
  sync_threads_of(WORKERS_MEET, 32 * WORKERS);
  allow_next_launch();
  if (threadIdx.x < MULTIPLYING) {
    multiply_units(shared, all);
  } else {
    feed_rows(shared, all);
  }
}

// Grid: (SMs,) rounded down to clusters of two, of which any number is right.
__global__ void __launch_bounds__(THREADS, 1) tile_kernel(const __grid_constant__ Args args) {
  using Form = TileForm<false, 1>;
  extern __shared__ __align__(1024) uint8_t memory[];
  TileShared& shared = *reinterpret_cast<TileShared*>(memory);
  const int rank = cluster_rank(), warp = threadIdx.x / 32;
  if (threadIdx.x == 0) init_tile_barriers(shared);
  if (threadIdx.x == MULTIPLYING) prefetch_map(&args.w1), prefetch_map(&args.w2);
  meet_cluster();  // before one CTA arrives at the other's barriers
  wait_for_launches_before();
  allow_next_launch();
  if (warp < MULTIPLYING / 32) {
    take_registers<224>();
    multiply_tiles<Form>(shared, args);
  } else {
    give_registers<56>();
    if (warp == MULTIPLYING / 32) {
      feed_tile_weights<Form>(shared, args, rank, args.routing.counts[threadIdx.x % 32]);
    } else if (warp <= MULTIPLYING / 32 + TILE_FEEDERS / 32) {
      feed_tile_rows<Form>(shared, args, PackedRows());
    }
  }
  __syncwarp();
  meet_cluster();  // nobody ends while the other may still arrive here
}

// The same, which routes: tile_route.cuh. PLANES: of C.
template <int PLANES>
__global__ void __launch_bounds__(THREADS, 1)
    routing_tile_kernel(const __grid_constant__ StreamArgs args) {
  using Form = TileForm<true, PLANES>;
  extern __shared__ __align__(1024) uint8_t memory[];
  RoutingTiles& shared = *reinterpret_cast<RoutingTiles*>(memory);
  const Args& all = args.all;
  const int rank = cluster_rank(), warp = threadIdx.x / 32;
  if (warp == MULTIPLYING / 32) {
    begin_tiles(shared, all, rank);
  } else {
    arrive_cluster();
    route_for_tiles(shared, args);
    wait_cluster();
  }
  __syncthreads();
  allow_next_launch();
  if (warp < MULTIPLYING / 32) {
    take_registers<224>();
    multiply_tiles<Form>(shared.tiles, all);
  } else {
    give_registers<56>();
    if (warp == MULTIPLYING / 32) {
      feed_tile_weights<Form>(shared.tiles, all, rank, count_expert_rows(shared));
    } else if (warp <= MULTIPLYING / 32 + TILE_FEEDERS / 32) {
      feed_tile_rows<Form>(shared.tiles, all, find_routed_rows(shared, all));
    } else {
      tell_slots(shared, all);
    }
  }
  __syncwarp();
  meet_cluster();  // nobody ends while the other may still arrive here
}

void check_error(cudaError_t error) {
  TVM_FFI_ICHECK(error == cudaSuccess) << "moe: " << cudaGetErrorString(error);
}

// How a kernel is launched: behind whatever is in the stream, or set up while the launch before it
// runs, all CTAs alone or in clusters of two.
enum How { ALONE, PAIRS, CHAINED, CHAINED_PAIRS };

struct Launch {
  dim3 grid;
  int threads, bytes;
  How how;
};

// Set in front of the first launch of each call: the setting is the current device's.
template <typename A>
void allow_shared(void (*kernel)(A), int bytes) {
  check_error(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

template <typename A>
void launch(void (*kernel)(A), const Launch& it, cudaStream_t stream, const A& args) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = it.grid;
  config.blockDim = dim3(it.threads);
  config.dynamicSmemBytes = it.bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (it.how == CHAINED || it.how == CHAINED_PAIRS) {
    auto& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (it.how == PAIRS || it.how == CHAINED_PAIRS) {
    auto& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {PAIR, 1, 1};
  }
  check_error(cudaLaunchKernelEx(&config, kernel, args));
}

void check_map(bool is_made) {
  TVM_FFI_ICHECK(is_made) << "moe: the driver describes no tensor maps of the weights";
}

// W1 as the first product's units take it: eight rows of the linear half, eight of the gate half,
// and so on. W2 as it lies.
void describe_weights(Args& args, const void* w1, const void* w2) {
  check_map(make_byte_map<5>(
      args.w1, w1, {HIDDEN, 8, 2, WIDTH / 8, LOCAL},
      {HIDDEN, uint64_t{WIDTH} * HIDDEN, 8 * HIDDEN, uint64_t{2} * WIDTH * HIDDEN},
      {BLOCK, 8, 2, PIECE / 8, 1}));
  check_map(
      make_byte_map<2>(args.w2, w2, {WIDTH, LOCAL * HIDDEN}, {WIDTH}, {BLOCK, UNIT_WEIGHTS}));
}

// Weights as tiles have them, 64 rows a box. Of 32 rows the order is that of tile_multiply.cuh.
void describe_tiles(Args& args, const void* w1, const void* w2) {
  check_map(make_byte_map<5>(args.w1, w1, {HIDDEN, 2, 4, 4, LOCAL * 2 * WIDTH / 32},
                             {HIDDEN, 8 * HIDDEN, 2 * HIDDEN, 32 * HIDDEN},
                             {BLOCK, 2, 4, 4, BOX_ROWS / 32}));
  check_map(make_byte_map<5>(args.w2, w2, {WIDTH, 2, 4, 4, LOCAL * HIDDEN / 32},
                             {WIDTH, 8 * WIDTH, 2 * WIDTH, 32 * WIDTH},
                             {BLOCK, 2, 4, 4, BOX_ROWS / 32}));
}

// Parts of the scratch of a call, each at a multiple of 256 bytes.
struct Scratch {
  uint8_t* base;
  int64_t used = 0;
  template <typename T>
  void take(T*& part, int64_t count) {
    part = reinterpret_cast<T*>(base + used);
    used += (count * int64_t{sizeof(T)} + 255) / 256 * 256;
  }
};

// Words of Told from `locals` to `done`, of which no more are used than there can be row tiles.
int64_t count_told_words(int64_t num_tokens) {
  return 2 * num_tokens + 1 + std::min(num_tokens * TOP_K, int64_t{MOST_TILES});
}

// Places scratch for so many tokens from `base` on; returns its bytes.
int64_t place_scratch(uint8_t* base, int64_t num_tokens, Args& args) {
  Scratch scratch = {base};
  const int64_t capacity = num_tokens * TOP_K;
  Routing& routing = args.routing;
  scratch.take(routing.slot_weight, capacity);
  scratch.take(routing.slot_row, capacity);
  scratch.take(routing.row_token, capacity);
  scratch.take(routing.counts, LOCAL);
  scratch.take(routing.ticket, 1);
  scratch.take(routing.done, MOST_TILES);
  scratch.take(routing.slot_local, num_tokens);
  scratch.take(routing.block_counts, (num_tokens + ROUTED_ROWS - 1) / ROUTED_ROWS * LOCAL);
  uint64_t* told;
  scratch.take(told, count_told_words(num_tokens));
  args.told.locals = reinterpret_cast<uint4*>(told);
  args.told.ticket = told + 2 * num_tokens, args.told.done = args.told.ticket + 1;
  scratch.take(args.told.slots, capacity);
  scratch.take(args.c, 2 * capacity * WIDTH);
  scratch.take(args.c_scale, capacity * PIECES);
  const int64_t tiled_rows = (LOCAL + capacity / TILE_ROWS) * TILE_ROWS;
  scratch.take(args.x_tile_scale, tiled_rows * HIDDEN_BLOCKS);
  scratch.take(args.c_tile_scale, tiled_rows * WIDTH_BLOCKS);
  scratch.take(args.expert_out, capacity * HIDDEN);
  return scratch.used;
}

int64_t count_scratch_bytes(int64_t num_tokens) {
  Args args = {};
  return place_scratch(nullptr, num_tokens, args);
}

// A call: everything is bound before the first launch, so that launches follow one another.
struct Call {
  Args args;
  RouteArgs route;
  const void *w1, *w2;
  int num_sms;
  cudaStream_t stream;
};

// A number that no other call, of this process or another one, is likely to have: a count from a
// random number on, mixed (splitmix64).
uint64_t next_nonce() {
  static std::atomic<uint64_t> count{uint64_t{std::random_device{}()} << 32 ^
                                     std::random_device{}()};
  uint64_t mixed = count.fetch_add(0x9e3779b97f4a7c15);
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
  return (mixed ^ mixed >> 31) | 1;
}

// For compute-sanitizer's initcheck, which cannot know that words without the nonce count for
// nothing, nor scales of C behind a tile's last row, which are copied in fours: built for it with
// TOLD_IS_CLEARED defined, both are 0 before the first launch.
void clear_told(const Call& call) {
#ifdef TOLD_IS_CLEARED
  const Args& args = call.args;
  const auto clear = [&](auto* first, const void* last) {
    const int64_t bytes = static_cast<const uint8_t*>(last) - reinterpret_cast<uint8_t*>(first);
    check_error(cudaMemsetAsync(first, 0, bytes, call.stream));
  };
  clear(args.told.locals, args.told.slots + args.capacity);
  clear(args.c_tile_scale, args.expert_out);  // which lies behind
#endif
}

void launch_routing(const Call& call) {
  const int blocks = (call.args.num_tokens + ROUTED_ROWS - 1) / ROUTED_ROWS;
  launch(route_kernel, {dim3(blocks), ROUTERS, 0, ALONE}, call.stream, call.route);
  const int packers = (blocks + PACKED_BLOCKS - 1) / PACKED_BLOCKS;
  launch(pack_kernel, {dim3(packers), ROUTERS, 0, CHAINED}, call.stream, call.route);
}

template <bool TOLD, int TOKENS>
void launch_combine(const Call& call) {
  const Args& of = call.args;
  const int words = count_told_words(of.num_tokens);
  const CombineArgs args = {of.routing, of.expert_out, of.output, of.num_tokens, of.told, words};
  const dim3 grid((of.num_tokens + TOKENS - 1) / TOKENS, COMBINE_PARTS);
  launch(combine_kernel<TOLD, TOKENS>, {grid, COMBINERS, 0, CHAINED}, call.stream, args);
}

void run_stream(Call& call) {
  constexpr int BYTES = sizeof(SharedMemory);
  static_assert(BYTES <= SHARED_BYTES, "the rings fit an SM");
  static_assert(LOCAL * (FIRST_UNITS + SECOND_UNITS) < 1 << (TICKET_BITS - 1),
                "tickets can be counted");
  TVM_FFI_ICHECK(call.args.num_tokens <= MOST_STREAMED)
      << "moe: too many tokens for the stream: " << call.args.num_tokens;
  describe_weights(call.args, call.w1, call.w2);
  call.args.told.nonce = next_nonce();
  allow_shared(stream_kernel, BYTES);
  const StreamArgs args = {call.args, call.route};
  launch(stream_kernel, {dim3(call.num_sms), THREADS, BYTES, ALONE}, call.stream, args);
  launch_combine<true, 1>(call);
}

// Up to MOST_ROUTED tokens; with two planes of C, MOST_IN_PLANES.
template <int PLANES>
void run_routing_tiles(Call& call) {
  constexpr int BYTES = sizeof(RoutingTiles);
  static_assert(BYTES <= SHARED_BYTES, "stages and routing fit an SM");
  static_assert(LOCAL + MOST_ROUTED * TOP_K / TILE_ROWS <= MOST_TILES &&
                    LOCAL + MOST_IN_PLANES * TOP_K / TileForm<true, 2>::ROWS <= MOST_TILES,
                "row tiles are counted");
  static_assert(MOST_TILES * (Product<FIRST>::PARTS + Product<SECOND>::PARTS) / PAIR <
                    1 << (TICKET_BITS - 1),
                "tickets can be counted");
  call.args.told.nonce = next_nonce();
  allow_shared(routing_tile_kernel<PLANES>, BYTES);
  const Launch it = {dim3(call.num_sms / PAIR * PAIR), THREADS, BYTES, PAIRS};
  launch(routing_tile_kernel<PLANES>, it, call.stream, StreamArgs{call.args, call.route});
  launch_combine<true, SUMMED>(call);
}

void run_tiles(Call& call) {
  constexpr int BYTES = sizeof(TileShared);
  static_assert(BYTES <= SHARED_BYTES, "the stages fit an SM");
  TVM_FFI_ICHECK(LOCAL + call.args.capacity / TILE_ROWS <= MOST_TILES)
      << "moe: too many tokens for tiles: " << call.args.num_tokens;
  describe_tiles(call.args, call.w1, call.w2);
  if (call.args.num_tokens <= MOST_IN_PLANES) return run_routing_tiles<2>(call);
  if (call.args.num_tokens <= MOST_ROUTED) return run_routing_tiles<1>(call);
  allow_shared(tile_kernel, BYTES);
  launch_routing(call);
  const Launch it = {dim3(call.num_sms / PAIR * PAIR), THREADS, BYTES, CHAINED_PAIRS};
  launch(tile_kernel, it, call.stream, call.args);
  launch_combine<false, SUMMED>(call);
}

// Shapes and dtypes are checked by the caller; all tensors start at multiples of 16 bytes.
// offset: of the first local expert, between -512 and 512. scratch: count_scratch_bytes(T) bytes.
// in_tiles: which of the two ways it is multiplied.
void moe(TensorView logits, TensorView bias, TensorView x, TensorView x_scale, TensorView w1,
         TensorView w1_scale, TensorView w2, TensorView w2_scale, int64_t offset, double scaling,
         TensorView output, TensorView scratch, int64_t num_sms, bool in_tiles) {
  Call call = {};
  Args& args = call.args;
  args.num_tokens = logits.size(0), args.capacity = args.num_tokens * TOP_K;
  place_scratch(static_cast<uint8_t*>(scratch.data_ptr()), args.num_tokens, args);
  args.x = static_cast<const uint8_t*>(x.data_ptr());
  args.x_scale = static_cast<const float*>(x_scale.data_ptr());
  args.w1_scale = static_cast<const float*>(w1_scale.data_ptr());
  args.w2_scale = static_cast<const float*>(w2_scale.data_ptr());
  call.route = {static_cast<const float*>(logits.data_ptr()),
                static_cast<const __nv_bfloat16*>(bias.data_ptr()),
                args.routing,
                static_cast<float>(scaling),
                static_cast<int>(offset),
                args.num_tokens,
                args.x_scale,
                args.x_tile_scale};
  call.w1 = w1.data_ptr(), call.w2 = w2.data_ptr();
  args.output = static_cast<__nv_bfloat16*>(output.data_ptr());
  call.num_sms = num_sms;
  const DLDevice device = logits.device();
  call.stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  clear_told(call);
  if (in_tiles) {
    run_tiles(call);
  } else {
    run_stream(call);
  }
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(moe, moe)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_scratch_bytes, count_scratch_bytes)
