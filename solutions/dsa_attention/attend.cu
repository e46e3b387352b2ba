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
// Grid: a cluster of CLUSTER CTAs a token. Every CTA reads the token's whole index row (8 KiB, one
// round trip) and ranks its valid entries. Up to ALONE entries are the work of one CTA, and the
// others end; more are cut into equal runs, one a CTA.
// Eight warps of a CTA compute: the 576 columns of q K^T are cut among them, 72 each, the heads of
// the softmax, two each, and the 512 columns of p ckv, 64 each. Four warps help: they request the
// rows of all tiles but the first, and find what each sender counts in the merge.
//
// Bytes: 1152 a valid entry, read once for both products; flops: 34 816 a valid entry. Thousands of
// tokens are bound by DRAM, a few by the chain launch, indices, rows, products, merge.
//
// Idea: rows of [ckv | kpe] lie in shared memory once, padded so that both products read them
// without bank conflicts. Queries are fetched while the indices are ranked and stay in registers.
// Partial sums travel from shared memory to shared memory, into a tile that is used up, and count
// there on a barrier: no scratch, no second launch.
//
// Numerics: bf16 operands, fp32 accumulators; p is rounded to bf16 for the second product, its sum
// is not; exp2 with the scale folded in. Only -1 is padding, but any index outside the cache counts
// as padding and is never read.

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>

#include "async_copy.cuh"
#include "cluster.cuh"
#include "gather.cuh"
#include "merge.cuh"
#include "plan.cuh"
#include "products.cuh"

namespace {

template <typename Shared>
__device__ __forceinline__ void init_barriers(Shared& shared) {
#pragma unroll
  for (int stage = 0; stage < STAGES; ++stage) {
    init_barrier(&shared.full[stage], HELPING);
    init_barrier(&shared.free[stage], 1);
  }
  init_barrier(&shared.stats_landed, 1);
  init_barrier(&shared.sums_landed, 1);
  init_barrier(&shared.factors_found, HELPING);
  fence_barrier_init();
}

// The helping warps' part: rows of all tiles but the first, and the factors of the merge.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void help(Shared& shared, const Args& args, int64_t token, int rank,
                                     const Work& work) {
#pragma unroll 1
  for (int tile = 1; tile < work.tiles(); ++tile) {
    const int stage = tile % STAGES;
    if (tile >= STAGES) wait_phase(&shared.free[stage], (tile / STAGES - 1) % 2);
    const int warp = threadIdx.x / 32 - WARPS;
    request_tile<HELPERS>(shared, args, tile, min(work.count - tile * TILE, TILE), warp);
    arrive_with_copies(&shared.full[stage]);
  }
  commit_copies();
  wait_copies<0>();  // no copy may land in a CTA that has ended
  if (CLUSTER > 1 && work.merges()) {
    wait_cluster();
    if (work.last_tile() > 0) {  // all my copies into the tile that is reused have landed
      publish_shared();
      arrive_cluster();
    }
    wait_phase(&shared.stats_landed, 0);
    find_factors(shared, args, token, rank, work.senders());
    arrive(&shared.factors_found);
  }
}

template <int CLUSTER>
__global__ void __launch_bounds__(THREADS, 1) attend_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(16) uint8_t memory[];
  auto& shared = *reinterpret_cast<SharedMemory<CLUSTER>*>(memory);
  const int rank = CLUSTER == 1 ? 0 : cluster_rank();
  const int64_t token = blockIdx.x / CLUSTER;
  const bool computes = threadIdx.x < COMPUTING;
  Work work;
  if (computes) {
    const Slots slots = load_slots(args, token);
    request_query(shared, args, token);
    work = rank_entries<CLUSTER>(shared, args.num_rows, slots, rank);
  } else if (threadIdx.x == COMPUTING) {
    init_barriers(shared);
  }
  if (CLUSTER > 1) arrive_cluster();  // my barriers are there
  __syncthreads();
  if (!computes) work = divide_work<CLUSTER>(shared, rank);
  const bool works = work.total > 0 && (work.merges() || rank == 0);
  if (!computes) {
    if (works) help<CLUSTER>(shared, args, token, rank, work);
    return;
  }
  if (!works) {
    wait_copies<0>();
    if (rank == 0) write_empty(args, token);
    return;
  }
  if (work.count > 0) {
    request_tile<WARPS>(shared, args, 0, min(work.count, TILE), threadIdx.x / 32);
  }
  commit_copies();
  if (CLUSTER > 1 && work.merges()) {
    if (threadIdx.x == 0) {
      arrive_expecting(&shared.stats_landed, work.senders() * sizeof(shared.stats));
      arrive_expecting(&shared.sums_landed, work.senders() * sizeof(Share<CLUSTER>));
    }
    wait_cluster();
  }
  // Sums land in the tile that no full run uses last: once I am through with it, I say so.
  uint8_t* received = shared.tiles[(work.last_tile() + 1) % STAGES];
  const bool is_reused = CLUSTER > 1 && work.merges() && work.last_tile() > 0;
  const int tiles = work.tiles(), in_the_way = work.last_tile() - 1;  // I have that one too
  wait_copies<1>();
  sync_first<COMPUTING>();
  const Query query = load_query(shared.query);

  float acc[8][4] = {};
  Softmax softmax = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % STAGES, count = min(work.count - tile * TILE, TILE);
    const uint8_t* rows = shared.tiles[stage];
    if (tile == 0) {
      wait_copies<0>();
      sync_first<COMPUTING>();
    } else {
      wait_phase(&shared.full[stage], (tile - 1) / STAGES % 2);
    }
    score(shared, rows, count, query);
    sync_first<COMPUTING>();
    weigh(shared, args.scale, count, softmax);
    sync_first<COMPUTING>();
    accumulate(shared, rows, count, tile == 0, acc);
    if (tile == tiles - 1) store_stats(shared, softmax);
    sync_first<COMPUTING>();
    if (is_reused && tile == in_the_way) {
      publish_shared();
      arrive_cluster();
    }
    if (threadIdx.x == 0) arrive(&shared.free[stage]);
  }
  if (!work.merges()) return write_alone(shared, args, token, acc);
  if constexpr (CLUSTER > 1) {
    if (work.count > 0) send_stats<CLUSTER>(shared, rank);
    if (is_reused) wait_cluster();
    uint8_t* from = shared.tiles[work.last_tile() % STAGES];
    if (work.count > 0) send_sums<CLUSTER>(shared, from, received, rank, acc);
    wait_phase(&shared.factors_found, 0);
    wait_phase(&shared.sums_landed, 0);
    arrive_cluster();  // what I sent was read once all have received
    merge<CLUSTER>(shared, received, args, token, rank, work.senders());
    wait_cluster();
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
