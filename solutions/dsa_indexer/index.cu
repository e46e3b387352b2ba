// Exact top-2048 of paged FP8 index scores in one launch.
//
// Definition dsa_topk_indexer_fp8_h64_d128_topk2048_ps64. Per sequence of L tokens, with query
// q [64, 128] and keys k [L, 128] in e4m3, key scales d [L] and head weights w [64]:
//
//     score_i = sum_h w_h max(d_i q_h . k_i, 0)
//     ids     = table[i / 64] 64 + i % 64  of the 2048 largest scores, any order, then -1
//
// Where the block table holds no sequence of more than 2048 tokens, map_kernel lists all tokens, a
// CTA of 512 threads a sequence. Elsewhere index_kernel runs: clusters of 16 such CTAs. The first
// long_clusters of them take turns with the long sequences; each CTA of the rest lists short ones.
// Page p of a long sequence is scored by CTA p % 16 of its cluster, a warpgroup a page. The scores
// go straight into the shared memory of CTA 0, which selects alone, 6 to 16 keys a thread.
//
// Bytes: 132 a token of a long sequence; flops: 16 384. One sequence of 5806 tokens is 0.18 us of
// bandwidth: the chain lengths, pages, keys, products, exchange, search, ids binds.
//
// Idea: every step of that chain is made short. The block table's column is read for 32 sequences
// beside their lengths. Keys go from memory into the registers that the tensor cores read. Three
// probes around the quantile that mean, deviation and skewness predict are counted together, and
// the prefix sums of these counts are already the places of the output. Between two probes lie few
// keys then: they are ranked by comparing all pairs.
//
// Numerics: codes widen to fp16, which is exact; fp32 sums. The scale multiplies the sum over the
// heads, its sign the products before the ReLU. The selection is exact for these scores; NaN ranks
// above +inf. See docs/kernels/dsa_indexer.md.

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>

#include "async_copy.cuh"
#include "cluster.cuh"
#include "plan.cuh"
#include "score.cuh"
#include "select.cuh"

namespace {

// All tokens of a sequence of at most 2048.
__device__ __forceinline__ void map_tokens(const Args& args, int row) {
  const int first = 4 * threadIdx.x, page = first / PAGE;
  const int* entry = args.table + int64_t{row} * args.columns + page;
  const uint32_t id = (page < args.columns ? __ldg(entry) : 0) * uint32_t{PAGE} + first % PAGE;
  const int length = __ldg(args.lengths + row);
  if (length > TOPK && args.columns * PAGE > TOPK) return;
  const int count = min(length, args.columns * PAGE) - first;
  const int4 ids = {count > 0 ? int(id) : -1, count > 1 ? int(id + 1) : -1,
                    count > 2 ? int(id + 2) : -1, count > 3 ? int(id + 3) : -1};
  reinterpret_cast<int4*>(args.ids + int64_t{row} * TOPK)[threadIdx.x] = ids;
}

// Grid: (B,)
__global__ void __launch_bounds__(THREADS) map_kernel(const __grid_constant__ Args args) {
  map_tokens(args, blockIdx.x);
}

// Grid: (long_clusters + clusters of a CTA a sequence) * 16
__global__ void __launch_bounds__(THREADS, 1) index_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  SharedMemory& shared = *reinterpret_cast<SharedMemory*>(memory);
  const int cluster = blockIdx.x / CLUSTER, rank = cluster_rank();
  if (cluster >= args.long_clusters) {
    const int row = blockIdx.x - args.long_clusters * CLUSTER;
    if (row < args.batch) map_tokens(args, row);
    return;
  }
  if (threadIdx.x == 0) {
    init_barrier(&shared.landed, 1);
    fence_barrier_init();
  }
  arrive_cluster();
  const int lane = threadIdx.x % 32, group = threadIdx.x / 128;
  int turn = 0;  // the cluster that takes the next long sequence
  uint32_t parity = 0;
  for (int first = 0; first < args.batch; first += ROWS) {
    int length = 0, column[GROUP_PAGES] = {};
    if (first + lane < args.batch) {
      length = min(__ldg(args.lengths + first + lane), args.columns * PAGE);
#pragma unroll
      for (int i = 0; i < GROUP_PAGES; ++i) {
        const int page = rank + CLUSTER * (group + GROUPS * i);
        const int* entry = args.table + int64_t{first + lane} * args.columns + page;
        if (page < args.columns) column[i] = __ldg(entry);
      }
    }
    for (uint32_t left = __ballot_sync(FULL, length > TOPK); left != 0; left &= left - 1) {
      const bool is_mine = turn == cluster;
      turn = turn + 1 == args.long_clusters ? 0 : turn + 1;
      if (!is_mine) continue;
      const int source = __ffs(left) - 1, row = first + source;
      const int tokens = __shfl_sync(FULL, length, source);
      int entries[GROUP_PAGES];
#pragma unroll
      for (int i = 0; i < GROUP_PAGES; ++i) entries[i] = __shfl_sync(FULL, column[i], source);
      if (rank == 0 && threadIdx.x == 0) arrive_expecting(&shared.landed, 4 * tokens);
      score_pages(shared, args, row, tokens, rank, entries);
      if (rank == 0) {
        if (tokens <= 6 * THREADS) {
          select_tokens<6>(shared, args, row, tokens, parity);
        } else if (tokens <= 12 * THREADS) {
          select_tokens<12>(shared, args, row, tokens, parity);
        } else {
          select_tokens<MOST_KEYS>(shared, args, row, tokens, parity);
        }
      }
      parity ^= 1;
      __syncthreads();
      publish_shared();  // the keys are read, and may be overwritten by the others' sends
      arrive_cluster();
    }
  }
}

void check_error(cudaError_t error) {
  TVM_FFI_ICHECK(error == cudaSuccess) << "index: " << cudaGetErrorString(error);
}

// Calls use(config) with a launch of so many clusters. What the kernel may use is set in front of
// each: it is kept by the device, and said once a process it would be missing on a second one.
template <typename Use>
void with_clusters(int clusters, cudaStream_t stream, Use use) {
  check_error(cudaFuncSetAttribute(index_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   sizeof(SharedMemory)));
  check_error(
      cudaFuncSetAttribute(index_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {CLUSTER, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(clusters * CLUSTER);
  config.blockDim = dim3(THREADS);
  config.dynamicSmemBytes = sizeof(SharedMemory);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check_error(use(config));
}

void launch(const Args& args, cudaStream_t stream) {
  if (args.long_clusters == 0) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(args.batch);
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    return check_error(cudaLaunchKernelEx(&config, map_kernel, args));
  }
  const int short_clusters = (args.batch + CLUSTER - 1) / CLUSTER;
  with_clusters(args.long_clusters + short_clusters, stream, [&](const auto& config) {
    return cudaLaunchKernelEx(&config, index_kernel, args);
  });
}

// How many clusters the current device holds at once. None where no group of SMs that a cluster may
// spread over has 16 to give, as in a slice of a GPU: then no launch of index_kernel succeeds.
int64_t count_clusters() {
  int count = 0;
  with_clusters(1, nullptr, [&](const auto& config) {
    return cudaOccupancyMaxActiveClusters(&count, index_kernel, &config);
  });
  return count;
}

// Shapes and dtypes are checked by the caller; all tensors start at multiples of 16 bytes.
// long_clusters: clusters that share out the long sequences, 0 where the table can hold none.
void index_topk(tvm::ffi::TensorView query, tvm::ffi::TensorView cache,
                tvm::ffi::TensorView weights, tvm::ffi::TensorView lengths,
                tvm::ffi::TensorView table, tvm::ffi::TensorView ids, int64_t long_clusters) {
  const Args args = {
      static_cast<const uint8_t*>(query.data_ptr()),
      static_cast<const uint8_t*>(cache.data_ptr()),
      static_cast<const float*>(weights.data_ptr()),
      static_cast<const int*>(lengths.data_ptr()),
      static_cast<const int*>(table.data_ptr()),
      static_cast<int*>(ids.data_ptr()),
      static_cast<int>(table.size(0)),
      static_cast<int>(table.size(1)),
      static_cast<int>(cache.size(0)),
      static_cast<int>(long_clusters),
  };
  const int most = args.long_clusters == 0 ? TOPK / PAGE : MAX_PAGES;
  TVM_FFI_ICHECK(args.columns <= most)
      << "block_table: expected at most " << most << " columns, got " << args.columns;
  const DLDevice device = query.device();
  launch(args,
         static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id)));
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(index_topk, index_topk)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_clusters, count_clusters)
