// Steps of attend_both() of one CTA alone, three times in one launch: code cold, then hot. Includes the room's headers.
#include <cuda_runtime.h>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "cluster.cuh"
#include "gather.cuh"
#include "merge.cuh"
#include "plan.cuh"
#include "products.cuh"
#include "register_shares.cuh"

namespace {
constexpr int PASSES = 3, STEPS = 8;

template <bool MAGNITUDES>
struct Memory : SharedMemory<LARGEST> {
  static constexpr bool SCALED = MAGNITUDES;
};

template <bool MAGNITUDES>
__global__ void __launch_bounds__(THREADS, 1) steps(const __grid_constant__ Args args, uint64_t valid, long long* out) {
  extern __shared__ __align__(128) uint8_t memory[];
  auto& shared = *reinterpret_cast<Memory<MAGNITUDES>*>(memory);
  if (threadIdx.x >= COMPUTING) {
    give_registers<HELPING_REGISTERS>();
    if (threadIdx.x == COMPUTING) init_barrier(&shared.sums_stored, 1);
    __syncthreads();
    return;
  }
  for (int i = threadIdx.x; i < sizeof(shared.query) / 16; i += COMPUTING) reinterpret_cast<uint4*>(shared.query)[i] = {0x3c003c00, 0x3c013c00, 0x3c003c02, 0x3c003c04};
  for (int i = threadIdx.x; i < sizeof(shared.tiles) / 16; i += COMPUTING) reinterpret_cast<uint4*>(shared.tiles)[i] = {0x3c003c00, 0x3c013c01, 0x3c053c02, 0x3c003c04};
  take_registers<COMPUTING_REGISTERS>();
  __syncthreads();
  const uint32_t thread = keep(threadIdx.x);
  const Places places = find_places(shared, thread);
  const uint32_t mine = bits_of_mine(thread, valid);
#pragma unroll 1
  for (int pass = 0; pass < PASSES; ++pass) {
    long long at[STEPS + 1];
    Query query;
    sync_first<COMPUTING>();
    at[0] = clock64();
    if (mine != 0) load_query(query, shared.query, thread);
    sync_first<COMPUTING>();
    at[1] = clock64();
    Weighing<STAGES> of = {{mine, 0}, {}};
    Kept kept;
    uint32_t magnitude = 0;
    if (mine != 0) score(shared, thread, 0, places.keys, query, kept, magnitude);
    at[2] = clock64();
    if (mine != 0) {
      meet_other_half(thread);
      of.logits[0] = take_half(shared, thread, 0, kept);
    }
    const auto scaled = share_tops(shared, thread, args.scale, of, magnitude);
    at[3] = clock64();
    Loaded loaded;
    Softmax softmax = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}, 0.0f};
    weigh(shared, thread, false, false, scaled, softmax, [&] { load_values<0, 8>(loaded, places.values, 0); });
    at[4] = clock64();
    if (thread == 0) arrive(&shared.sums_stored);
#pragma unroll
    for (int block = 0; block < TILE_BLOCKS; ++block) {
      if (has_block(valid, block)) load_weights(loaded, places.weights, block);
    }
    Sums acc = {};
    multiply_alone(loaded, places.values, valid, acc);
    at[5] = clock64();
    write_alone(args, 0, thread, acc);
    at[6] = clock64();
    at[7] = clock64();
    asm volatile("" ::: "memory");
    if (thread == 0) {
#pragma unroll
      for (int i = 0; i < STEPS; ++i) out[pass * STEPS + i] = at[i];
    }
  }
}
}  // namespace

// blocks: of 16 rows, all valid. magnitudes: as in clusters.
extern "C" int launch_micro(int blocks, int magnitudes, void* output, void* lse, void* out, void* stream) {
  Args args = {};
  args.output = static_cast<__nv_bfloat16*>(output), args.lse = static_cast<float*>(lse), args.scale = 0.1f, args.num_rows = 1;
  const uint64_t valid = blocks == 4 ? ~0ull : (1ull << 16 * blocks) - 1;
  constexpr int BYTES = sizeof(SharedMemory<LARGEST>);
  const auto kernel = magnitudes ? steps<true> : steps<false>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  kernel<<<1, THREADS, BYTES, static_cast<cudaStream_t>(stream)>>>(args, valid, static_cast<long long*>(out));
  return cudaGetLastError();
}
