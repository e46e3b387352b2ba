// Exact top-2048 of paged FP8 index scores in one launch, or two.
//
// Definition dsa_topk_indexer_fp8_h64_d128_topk2048_ps64. Per sequence of L tokens, with query
// q [64, 128] and keys k [L, 128] in e4m3, key scales d [L] and head weights w [64]:
//
//     score_i = sum_h w_h max(d_i q_h . k_i, 0)
//     ids     = table[i / 64] 64 + i % 64  of the 2048 largest scores, any order, then -1
//
// Where the block table holds no sequence of more than 2048 tokens, map_kernel lists all tokens, a
// CTA of 512 threads a sequence. For few sequences of up to 8192 tokens index_kernel runs: clusters
// of 16 such CTAs. The first long_clusters of them take turns with the long sequences; each CTA of
// the rest lists short ones. Page p of a long sequence is scored by CTA p % 16 of its cluster, a
// warpgroup a page. The scores go straight into the shared memory of CTA 0, which selects alone, 6
// to 16 keys a thread. For many sequences or long tables score_kernel cuts all pages into a run an
// SM, and select_kernel takes the keys from memory, a CTA or a cluster of 8 a sequence.
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
#include "spread.cuh"

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
  __syncthreads();
  arrive_cluster();
  const int lane = threadIdx.x % 32, group = threadIdx.x / 128;
  int turn = 0;  // the cluster that takes the next long sequence
  uint32_t parity = 0;
  for (int first = 0; first < args.batch; first += ROWS) {
    int length = 0, column[GROUP_PAGES] = {};
    if (first + lane < args.batch) {
      length = args.tokens(first + lane);
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
        select_tokens(shared, args, row, tokens, [&] {
          wait_phase(&shared.landed, parity);
          return shared.keys;
        });
      }
      parity ^= 1;
      __syncthreads();
      publish_shared();  // the keys are read, and may be overwritten by the others' sends
      arrive_cluster();
    }
  }
}

// Pages of the sequences first ... first + 31 that need scores, a lane a sequence.
__device__ __forceinline__ int count_pages(const Args& args, int row) {
  const int length = row < args.batch ? args.tokens(row) : 0;
  return length > TOPK ? (length + PAGE - 1) / PAGE : 0;
}

// Grid: (SMs,). All pages of all long sequences, in equal runs.
__global__ void __launch_bounds__(THREADS, 1) score_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  SharedMemory& shared = *reinterpret_cast<SharedMemory*>(memory);
  const int lane = threadIdx.x % 32;
  int all = 0;  // their keys, 256 bytes a page, are in memory: far fewer than 2^31
  for (int first = 0; first < args.batch; first += ROWS) {
    all += __reduce_add_sync(FULL, count_pages(args, first + lane));
  }
  const int begin = int64_t{all} * blockIdx.x / gridDim.x;
  const int end = int64_t{all} * (blockIdx.x + 1) / gridDim.x;
  int before = 0;  // pages of the sequences in front of `first`
  for (int first = 0; first < args.batch && before < end; first += ROWS) {
    const int pages = count_pages(args, first + lane);
    int through = pages;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int earlier = __shfl_up_sync(FULL, through, distance);
      if (lane >= distance) through += earlier;
    }
    const int start = before + through - pages;
    const int from = max(0, begin - start), to = min(pages, end - start);
    for (uint32_t left = __ballot_sync(FULL, from < to); left != 0; left &= left - 1) {
      const int source = __ffs(left) - 1, row = first + source;
      store_pages(shared, args, row, args.tokens(row), __shfl_sync(FULL, from, source),
                  __shfl_sync(FULL, to, source));
    }
    before += __shfl_sync(FULL, through, 31);
  }
}

// Grid: (B * CLUSTER,). A cluster a sequence; up to 8192 tokens are one CTA's.
template <int CLUSTER>
__global__ void __launch_bounds__(THREADS, 1) select_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<SpreadMemory<CLUSTER>*>(memory);
  const int row = blockIdx.x / CLUSTER, rank = blockIdx.x % CLUSTER;
  const int length = args.tokens(row), pages = (length + PAGE - 1) / PAGE;
  if (length <= TOPK) {
    if (rank == 0) map_tokens(args, row);
  } else if (CLUSTER > 1 && length > MAX_TOKENS) {
    cudaGridDependencySynchronize();
    select_spread(shared, args, row, length);
  } else if (rank == 0) {
    const int* table = args.table + int64_t{row} * args.columns;
    if (threadIdx.x < pages) shared.base.table[threadIdx.x] = __ldg(table + threadIdx.x);
    __syncthreads();
    select_tokens(shared.base, args, row, length, [&] {
      cudaGridDependencySynchronize();
      return args.keys + int64_t{row} * args.columns * PAGE;
    });
  }
  cudaGridDependencySynchronize();  // what follows on the stream must not overtake score_kernel
}

void check_error(cudaError_t error) {
  TVM_FFI_ICHECK(error == cudaSuccess) << "index: " << cudaGetErrorString(error);
}

// A launch of CTAs of THREADS threads in clusters, of a kernel that needs so much shared memory.
// What a kernel may use is set in front of each launch: it is kept by the device, and said once a
// process it would be missing on a second one.
struct Launch {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attributes[2] = {};

  Launch(const Launch&) = delete;  // config points to attributes

  template <typename Kernel>
  Launch(Kernel kernel, int ctas, int cluster, size_t shared_bytes, cudaStream_t stream) {
    if (shared_bytes > 0) {
      check_error(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(shared_bytes)));
    }
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    if (cluster > 1) {
      check_error(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
      cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    }
  }

  void overlap() {  // with the launch before, for which the kernel waits where it must
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
};

Launch index_launch(int clusters, cudaStream_t stream) {
  return {index_kernel, clusters * CLUSTER, CLUSTER, sizeof(SharedMemory), stream};
}

// Scores of all long sequences by all SMs, then selection. Everything is set before the first
// launch: what the host does between the two, the device waits for.
template <int SPREAD_CLUSTER>
void launch_two(const Args& args, int device, cudaStream_t stream) {
  int sms = 0;
  check_error(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  const auto select = select_kernel<SPREAD_CLUSTER>;
  const Launch scores(score_kernel, sms, 1, sizeof(SharedMemory), stream);
  Launch selection(select, args.batch * SPREAD_CLUSTER, SPREAD_CLUSTER,
                   sizeof(SpreadMemory<SPREAD_CLUSTER>), stream);
  selection.overlap();
  check_error(cudaLaunchKernelEx(&scores.config, score_kernel, args));
  check_error(cudaLaunchKernelEx(&selection.config, select, args));
}

void launch_one(const Args& args, cudaStream_t stream) {
  if (args.long_clusters == 0) {
    const Launch launch(map_kernel, args.batch, 1, 0, stream);
    return check_error(cudaLaunchKernelEx(&launch.config, map_kernel, args));
  }
  const int short_clusters = (args.batch + CLUSTER - 1) / CLUSTER;
  const Launch launch = index_launch(args.long_clusters + short_clusters, stream);
  check_error(cudaLaunchKernelEx(&launch.config, index_kernel, args));
}

// How many clusters the current device holds at once. None where no group of SMs that a cluster may
// spread over has 16 to give, as in a slice of a GPU: then no launch of index_kernel succeeds.
int64_t count_clusters() {
  int count = 0;
  const Launch launch = index_launch(1, nullptr);
  check_error(cudaOccupancyMaxActiveClusters(&count, index_kernel, &launch.config));
  return count;
}

using tvm::ffi::TensorView;

Args args_of(TensorView query, TensorView cache, TensorView weights, TensorView lengths,
             TensorView table, TensorView ids) {
  Args args = {};
  args.query = static_cast<const uint8_t*>(query.data_ptr());
  args.cache = static_cast<const uint8_t*>(cache.data_ptr());
  args.weights = static_cast<const float*>(weights.data_ptr());
  args.lengths = static_cast<const int*>(lengths.data_ptr());
  args.table = static_cast<const int*>(table.data_ptr());
  args.ids = static_cast<int*>(ids.data_ptr());
  args.batch = static_cast<int>(table.size(0));
  args.columns = static_cast<int>(table.size(1));
  args.num_pages = static_cast<int>(cache.size(0));
  return args;
}

cudaStream_t stream_of(DLDevice device) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
}

// Shapes and dtypes are checked by the caller; all tensors start at multiples of 16 bytes.
// long_clusters: clusters that share out the long sequences, 0 where the table can hold none.
void index_topk(TensorView query, TensorView cache, TensorView weights, TensorView lengths,
                TensorView table, TensorView ids, int64_t long_clusters) {
  Args args = args_of(query, cache, weights, lengths, table, ids);
  args.long_clusters = static_cast<int>(long_clusters);
  const int most = args.long_clusters == 0 ? TOPK / PAGE : MAX_PAGES;
  TVM_FFI_ICHECK(args.columns <= most)
      << "block_table: expected at most " << most << " columns, got " << args.columns;
  launch_one(args, stream_of(query.device()));
}

// The same in two launches, for any table. keys: scratch [B, columns * 64] of 32 bits.
void index_topk_of_many(TensorView query, TensorView cache, TensorView weights,
                        TensorView lengths, TensorView table, TensorView ids, TensorView keys) {
  Args args = args_of(query, cache, weights, lengths, table, ids);
  args.keys = static_cast<uint32_t*>(keys.data_ptr());
  const DLDevice device = query.device();
  if (args.columns <= MAX_PAGES) {
    launch_two<1>(args, device.device_id, stream_of(device));
  } else {
    launch_two<Tuning::SPREAD_CLUSTER>(args, device.device_id, stream_of(device));
  }
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(index_topk, index_topk)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(index_topk_of_many, index_topk_of_many)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_clusters, count_clusters)
