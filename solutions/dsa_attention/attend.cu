// Sparse MLA attention in one launch.
//
// Definition dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64. Per token, with n valid entries
// among its 2048 sparse indices, q = [q_nope | q_pe] [16, 576] and gathered rows K = [ckv | kpe]
// [n, 576]:
//
//     s      = sm_scale q K^T                  [16, n]
//     lse    = log2 sum_j exp(s_j)             [16]        base 2; -inf if n = 0
//     output = softmax(s) ckv                  [16, 512]   0 if n = 0
//
// Grid: a cluster of CLUSTER CTAs a token. Blocks of 16 slots belong to CTAs by their place, not by
// the rank of their valid entries, so that a warp knows which rows to request as soon as it has
// read their indices. Of a long row, one with a valid entry in the fifth block, CTAs take blocks in
// turns. Of a short one the first four blocks are CTA 0's: usually its work alone, and the others
// end.
// Eight warps of a CTA compute, tile by tile of 64 rows: in q K^T a warp has 16 rows and half of
// the columns, in the softmax the eight rows that it then knows, in p ckv 64 columns. Four warps
// help: they find out whose the valid entries are, request the rows of all tiles but the first,
// exchange maxima and sums, and find what each sender counts in the merge.
//
// Bytes: 1152 a valid entry, read once for both products; flops: 34 816 a valid entry. Thousands of
// tokens are bound by DRAM, a few by the chain launch, indices, rows, products, merge.
//
// Idea: nothing but loads lies between launch and request. Rows of [ckv | kpe] lie in shared
// memory once, permuted so that copies and both products are without bank conflicts. Logits,
// maxima and sums stay in the registers of who weighs them; fragments of q K^T and p ckv have the
// same heads in a lane. Partial sums travel in fp16 from registers to shared memory of another CTA,
// and count there on a barrier: no scratch, no second launch. A sixteenth of a row is two tiles,
// which have one softmax.
//
// Numerics: bf16 operands, fp32 accumulators; p is rounded to bf16 for the second product. The sum
// of lse and of the merge is that of p before; a CTA that has a token alone divides its output by
// the sum of p as rounded, which the tensor cores give it. Partial sums of several CTAs are rounded
// to fp16 once more: a power of two on all weights of a CTA, from its largest value, keeps them in
// range; exp2 with the scale folded in. Only -1 is padding, but any index outside the cache counts
// as padding and is never read.

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>

#include "async_copy.cuh"
#include "barrier_wait.cuh"
#include "cluster.cuh"
#include "counted_barrier.cuh"
#include "gather.cuh"
#include "merge.cuh"
#include "plan.cuh"
#include "products.cuh"
#include "register_shares.cuh"

namespace {

template <typename Shared>
__device__ __forceinline__ void init_barriers(Shared& shared) {
#pragma unroll
  for (int stage = 0; stage < STAGES; ++stage) {
    init_barrier(&shared.full[stage], HELPING);
    init_barrier(&shared.free[stage], WARPS);
  }
  init_barrier(&shared.first_requested, WARPS);
  init_barrier(&shared.survey_made, HELPERS);
  init_barrier(&shared.stats_landed, 1);
  init_barrier(&shared.sums_landed, 1);
  init_barrier(&shared.factors_found, HELPING);
  shared.nothing = 0;
  fence_barrier_init();
}

// Rows of my tiles but the first, as stages become free. The first tile's requests go before: they
// would land with these otherwise, which nobody needs while the first is computed.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void request_others(Shared& shared, const Args& args, int token,
                                               int rank, const Work& work, Entries entries) {
  int loaded = 1, turn = 1;  // entries are those of tile 1
  wait_cta_phase(&shared.first_requested, 0);
#pragma unroll 1
  for (uint32_t left = work.tiles & ~1u; left != 0; left &= left - 1, ++turn) {
    const int tile = __ffs(left) - 1, stage = turn % STAGES;
    if (tile != loaded) entries = load_others<CLUSTER>(args, token, threadIdx.x, rank, tile);
    const uint64_t valid = vote(entries, args.num_rows);
    if (turn >= STAGES) wait_cta_phase(&shared.free[stage], (turn / STAGES - 1) % 2);
    request_rows<HELPERS>(shared.tiles[stage], args, entries, valid, threadIdx.x / 32 - WARPS);
    arrive_with_copies(&shared.full[stage]);
    loaded = __ffs(left & (left - 1)) - 1;
    if (loaded > 0) entries = load_others<CLUSTER>(args, token, threadIdx.x, rank, loaded);
  }
}

// The helping warps' part.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void help(Shared& shared, const Args& args, int token, int rank,
                                     const Entries& second) {
  const Work work = read_survey(shared);
  if (!work.is_mine(rank)) return;
  const bool merges = CLUSTER > 1 && work.merges();
  if (merges && threadIdx.x == COMPUTING) {
    arrive_expecting(&shared.stats_landed, work.senders() * HEADS * sizeof(float2));
    arrive_expecting(&shared.sums_landed,
                     work.senders() * Piece<CLUSTER>::AN_OWNER * sizeof(Piece<CLUSTER>));
  }
  if (merges) {
    wait_cluster();  // all barriers are there
    arrive_for_threads(CLUSTER_MET, THREADS);
  }
  request_others<CLUSTER>(shared, args, token, rank, work, second);
  commit_copies();
  wait_copies<0>();  // no copy may land in a CTA that has ended
  if (!merges) return write_lse_alone(shared, args, token);
  if constexpr (CLUSTER > 1) {
    clear_received<CLUSTER>(shared, work);
    if (work.sends(rank)) send_stats<CLUSTER>(shared, rank);
    wait_phase(&shared.stats_landed, 0);
    find_factors(shared, args, token, rank, work);
  }
}

// The computing warps' part: sums of all my tiles, the first of which is requested, to memory or to
// the other CTAs. query: loaded where I have a row of the first tile.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void attend_tiles(Shared& shared, const Args& args, int token,
                                             int rank, const Work& work, uint64_t valid,
                                             uint32_t thread, const Places& places,
                                             Query& query) {
  uint32_t left = work.tiles & ~1u;
  uint32_t mine = bits_of_mine(thread, valid);
  if (left != 0 && mine == 0) load_query(query, shared.query, thread);
  const bool merges = CLUSTER > 1 && work.merges();
  Softmax softmax = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}, merges ? Shared::FIRST_SHIFT : 0.0f};
  Sums acc = {};
  Entries entries = {};
  wait_copies<0>();
  sync_first<COMPUTING>();
#pragma unroll 1
  for (int turn = 0;; ++turn, left &= left - 1) {
    const int stage = turn % STAGES;
    if (turn > 0) {
      wait_cta_phase(&shared.full[stage], (turn - 1) / STAGES % 2);
      valid = vote(entries, args.num_rows);
      mine = bits_of_mine(thread, valid);
    }
    const uint32_t rows = stage * sizeof(shared.tiles[0]);
    Weighing<1> tile = {{mine}, {}};
    uint32_t magnitude = 0;
    if (mine != 0) {
      Kept kept;
      score(shared, thread, 0, places.keys + rows, query, kept, magnitude);
      meet_other_half(thread);
      tile.logits[0] = take_half(shared, thread, 0, kept);
    }
    const auto scaled = share_tops(shared, thread, args.scale, tile, magnitude);
    const Fade fade = weigh(shared, thread, true, merges, scaled, softmax, [] {});
    if (left == 0) arrive_for_threads(SUMS_STORED, THREADS);
    if (turn > 0) fade_sums(acc, fade);
    if (left != 0) entries = load_others<CLUSTER>(args, token, thread, rank, __ffs(left) - 1);
    accumulate<0, 8>(places.weights, places.values + rows, valid, acc);
    if (left == 0) {
      if (!merges) return write_alone(args, token, thread, acc);
      return send_piece<CLUSTER, 0>(shared, thread, rank, acc);
    }
    __syncwarp();
    if (thread % 32 == 0) arrive(&shared.free[stage]);
  }
}

// Logits of both tiles; the second, where there is one, lands later. second: its valid rows.
template <typename Shared>
__device__ __forceinline__ Weighing<STAGES> score_both(Shared& shared, uint32_t thread,
                                                       const Places& places, const Query& query,
                                                       uint32_t mine, bool has_second,
                                                       const Entries& entries, int num_rows,
                                                       uint64_t& second,
                                                       uint32_t& magnitude) {
  Weighing<STAGES> of = {{mine, 0}, {}};
  Kept kept[STAGES];
  if (mine != 0) score(shared, thread, 0, places.keys, query, kept[0], magnitude);
  if (has_second) {
    wait_cta_phase(&shared.full[1], 0);
    second = vote(entries, num_rows);
    of.mine[1] = bits_of_mine(thread, second);
    if (of.mine[1] != 0) {
      score(shared, thread, 1, places.keys + sizeof(shared.tiles[0]), query, kept[1], magnitude);
    }
  }
  if ((of.mine[0] | of.mine[1]) == 0) return of;
  meet_other_half(thread);
  if (of.mine[0] != 0) of.logits[0] = take_half(shared, thread, 0, kept[0]);
  if (of.mine[1] != 0) of.logits[1] = take_half(shared, thread, 1, kept[1]);
  return of;
}

// As attend_tiles() where a CTA has two tiles at most, which are there at once: one softmax for
// both. Operands of p ckv go into registers that queries have left, a block ahead of its products.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void attend_both(Shared& shared, const Args& args, int token, int rank,
                                            const Work& work, uint64_t valid, uint32_t thread,
                                            const Places& places, Query& query) {
  const bool has_second = (work.tiles & ~1u) != 0;
  const uint32_t mine = bits_of_mine(thread, valid);
  Entries entries = {-1, -1};
  if (has_second) {
    entries = load_others<CLUSTER>(args, token, thread, rank, 1);
    if (mine == 0) load_query(query, shared.query, thread);
  }
  wait_copies<0>();
  sync_first<COMPUTING>();
  const bool merges = work.merges();
  uint64_t second = 0;
  uint32_t magnitude = 0;
  const Weighing<STAGES> of =
      score_both(shared, thread, places, query, mine, has_second, entries, args.num_rows, second,
                 magnitude);
  const auto scaled = share_tops(shared, thread, args.scale, of, magnitude);
  Loaded loaded[STAGES];
  Softmax softmax = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}, merges ? Shared::FIRST_SHIFT : 0.0f};
  // The first block's, whether or not it has a valid row: behind a branch they would come later.
  weigh(shared, thread, has_second, merges, scaled, softmax,
        [&] { load_values<0, 8>(loaded[0], places.values, 0); });
  arrive_for_threads(SUMS_STORED, THREADS);
#pragma unroll
  for (int block = 0; block < TILE_BLOCKS; ++block) {
    if (has_block(valid, block)) load_weights(loaded[0], places.weights, block);
  }
  Sums acc = {};
  if (!merges) {
    multiply_alone(loaded[0], places.values, valid, acc);
    if (has_second) {
      accumulate<0, 8>(places.weights + 2 * TILE, places.values + sizeof(shared.tiles[0]), second,
                       acc);
    }
    return write_alone(args, token, thread, acc);
  }
  // A warp's columns have two owners: the first half is under way while the second is multiplied.
  static_assert(Piece<CLUSTER>::A_WARP == 2);
  const uint64_t both[STAGES] = {valid, second};
  multiply_both<0, 4>(loaded[0], loaded[1], places, both, acc);
  send_piece<CLUSTER, 0>(shared, thread, rank, acc);
  multiply_both<4, 4>(loaded[0], loaded[1], places, both, acc);
  send_piece<CLUSTER, 4>(shared, thread, rank, acc);
}

template <int CLUSTER, typename Shared>
__device__ __forceinline__ void attend_mine(Shared& shared, const Args& args, int token, int rank,
                                            const Work& work, uint64_t valid, uint32_t thread,
                                            const Places& places, Query& query) {
  if constexpr (CLUSTER == LARGEST) {
    attend_both<CLUSTER>(shared, args, token, rank, work, valid, thread, places, query);
  } else {
    attend_tiles<CLUSTER>(shared, args, token, rank, work, valid, thread, places, query);
  }
}

template <int CLUSTER>
__global__ void __launch_bounds__(THREADS, 1) attend_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(128) uint8_t memory[];
  auto& shared = *reinterpret_cast<SharedMemory<CLUSTER>*>(memory);
  const int rank = CLUSTER == 1 ? 0 : cluster_rank();
  const int token = blockIdx.x / CLUSTER;
  // No load crosses a barrier: indices are in flight while barriers are made.
  if (threadIdx.x >= COMPUTING) {
    give_registers<HELPING_REGISTERS>();
    // In front of the loads, for which its fence would wait, and everybody with it.
    if (threadIdx.x == COMPUTING) init_barriers(shared);
    const Block block = load_block(args, token);
    const Entries second = load_others<CLUSTER>(args, token, threadIdx.x, rank, 1);
    if (CLUSTER > 1) arrive_cluster();  // my barriers are there
    sync_threads_of(HELPERS_MEET, HELPING);
    arrive_for_threads(BARRIERS_MADE, THREADS);
    survey<CLUSTER>(shared, block, args.num_rows, rank);
    return help<CLUSTER>(shared, args, token, rank, second);
  }
  const Candidates found = load_first<CLUSTER>(args, token, rank);
  if (CLUSTER > 1) arrive_cluster();
  request_query(shared, args, token);
  sync_threads_of(BARRIERS_MADE, THREADS);
  // A 0 that is read here keeps the assembler from awaiting the indices in front of the barrier.
  const int nothing = *static_cast<volatile int*>(&shared.nothing);
  const Entries first = pick_first<CLUSTER>(found, args.num_rows, nothing);
  const uint64_t valid = vote(first, args.num_rows);
  request_rows<WARPS>(shared.tiles[0], args, first, valid, threadIdx.x / 32);
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(&shared.first_requested);
  commit_copies();
  take_registers<COMPUTING_REGISTERS>();
  wait_copies<1>();
  sync_first<COMPUTING>();
  const uint32_t thread = keep(threadIdx.x);
  const Places places = find_places(shared, thread);
  // Not by warps without a row: 74 KiB in all, 600 cycles, and short rows do not hide them.
  Query query;
  if (bits_of_mine(thread, valid) != 0) load_query(query, shared.query, thread);
  const Work work = read_survey(shared);
  if (!work.is_mine(rank)) {
    wait_copies<0>();
    if (rank == 0) write_empty(args, token);
    return;
  }
  const bool merges = CLUSTER > 1 && work.merges();
  if (merges) {
#ifdef ALL_AWAIT_CLUSTER
    wait_cluster();  // racecheck calls it a deadlock where the helping warps alone wait
#endif
    sync_threads_of(CLUSTER_MET, THREADS);
  }
  if (work.sends(rank)) {
    attend_mine<CLUSTER>(shared, args, token, rank, work, valid, thread, places, query);
  } else {
    wait_copies<0>();  // of the queries
  }
  if constexpr (CLUSTER > 1) {
    if (!merges) return;
    wait_cta_phase(&shared.factors_found, 0);
    const Share<CLUSTER> share = find_share<CLUSTER>(shared);
    wait_phase(&shared.sums_landed, 0);
    // Nothing is awaited behind it: all that was sent to me has landed, what I sent is not mine.
    merge<CLUSTER>(shared, args, token, rank, share);
  }
}

template <int CLUSTER>
void check_error(cudaError_t error) {
  TVM_FFI_ICHECK(error == cudaSuccess)
      << "attend with clusters of " << CLUSTER << ": " << cudaGetErrorString(error);
}

// Calls use(kernel, config) with a launch for so many tokens. What the kernel may use is set in
// front of each: it is kept by the device, and said once a process it would be missing on a second
// one.
template <int CLUSTER, typename Use>
void with_launch(int num_tokens, cudaStream_t stream, Use use) {
  constexpr int BYTES = sizeof(SharedMemory<CLUSTER>);
  const auto kernel = attend_kernel<CLUSTER>;
  check_error<CLUSTER>(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  if (CLUSTER > 8) {
    check_error<CLUSTER>(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {CLUSTER, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(num_tokens * CLUSTER);
  config.blockDim = dim3(THREADS);
  config.dynamicSmemBytes = BYTES;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = CLUSTER > 1;
  check_error<CLUSTER>(use(kernel, config));
}

template <int CLUSTER>
void launch(const Args& args, int num_tokens, cudaStream_t stream) {
  with_launch<CLUSTER>(num_tokens, stream, [&](auto kernel, const cudaLaunchConfig_t& config) {
    return cudaLaunchKernelEx(&config, kernel, args);
  });
}

// How many of the largest clusters the current device holds at once. None where no group of SMs
// that a cluster may spread over has 16 to give, as in a slice of a GPU: then no launch succeeds.
int64_t count_clusters() {
  int count = 0;
  with_launch<LARGEST>(1, nullptr, [&](auto kernel, const cudaLaunchConfig_t& config) {
    return cudaOccupancyMaxActiveClusters(&count, kernel, &config);
  });
  return count;
}

// Shapes and dtypes are checked by the caller. cluster: CTAs a token, 1, 2, 8 or 16.
void attend(tvm::ffi::TensorView q_nope, tvm::ffi::TensorView q_pe, tvm::ffi::TensorView ckv,
            tvm::ffi::TensorView kpe, tvm::ffi::TensorView indices, double sm_scale,
            tvm::ffi::TensorView output, tvm::ffi::TensorView lse, int64_t cluster) {
  constexpr double LOG2_E = 1.4426950408889634;
  const Args args = {
      static_cast<const __nv_bfloat16*>(q_nope.data_ptr()),
      static_cast<const __nv_bfloat16*>(q_pe.data_ptr()),
      static_cast<const __nv_bfloat16*>(ckv.data_ptr()),
      static_cast<const __nv_bfloat16*>(kpe.data_ptr()),
      static_cast<const int*>(indices.data_ptr()),
      static_cast<__nv_bfloat16*>(output.data_ptr()),
      static_cast<float*>(lse.data_ptr()),
      static_cast<float>(sm_scale * LOG2_E),
      static_cast<int>(ckv.size(0) * ckv.size(1)),
  };
  const int num_tokens = q_nope.size(0);
  const DLDevice device = q_nope.device();
  auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  switch (cluster) {
    case LARGEST: return launch<LARGEST>(args, num_tokens, stream);
    case 8: return launch<8>(args, num_tokens, stream);
    case 2: return launch<2>(args, num_tokens, stream);
    case 1: return launch<1>(args, num_tokens, stream);
    default: TVM_FFI_ICHECK(false) << "cluster: expected 1, 2, 8 or 16, got " << cluster;
  }
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(attend, attend)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_clusters, count_clusters)
