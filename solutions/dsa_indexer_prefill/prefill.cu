// Exact top-2048 of many queries over one long run of FP8 keys, scores never in memory.
//
// Definition dsa_prefill_topk_indexer_fp8_h64_d128_topk2048. Query i sees the keys j of
// [row_starts[i], row_ends[i]); 64 heads h, q [Q, 64, 128], k [N, 128]:
//
//     score[i,j] = sum_h weights[i,h] max(0, s[j] (q[i,h] . k[j]))    q, k e4m3, s[j] fp32
//     topk[i]    = the min(2048, length) best j of the range, in any order, then -1
//
// Five launches, each set up while the one before it runs:
//   1. score_kernel<SAMPLE>   scores of one key of each 48, or 64
//   2. threshold_kernel       from these, what a candidate must score: some 3840 of a range will;
//                             warp_threshold_kernel where they are few
//   3. score_kernel<FILTER>   all scores, of which candidates alone are stored
//   4. select_kernel          the 2048 best candidates, where all are there: a certificate
//   5. score_kernel<REPAIR>   queries without the certificate, from all of their scores
//
// Grid of score_kernel: one CTA an SM. Four queries are a block; its tiles of 128 keys and those of
// all other blocks form one line, of which each CTA takes an equal share. In the filter two CTAs
// share the tiles of two blocks, and each tile leaves the L2 once for both; where too many blocks
// see other keys than their neighbours, each CTA goes alone there too. Queries stay in shared
// memory while keys go through a ring of six tiles. Four warps feed, by the copy engine where keys
// follow one another. Four warpgroups multiply half of a tile by half of a block each: keys are the
// M of the instruction, so that the sum over heads stays in a quad. While one weighs its products,
// the tensor cores work for the others.
//
// Flops: 16 384 a score, the tensor cores are the roof; the ReLU and the weights take half as long
// on the fp32 units. Bytes: 132 a key and eight queries out of the L2; 8 a candidate.
//
// Numerics: e4m3 products with fp32 sums, of which the tensor cores keep 14 bits of the largest
// term. The scale multiplies the sum over the heads, its sign the products before the ReLU. All
// modes compute a score alike, to the last bit. The selection is exact for these scores; NaN ranks
// above +inf. See docs/kernels/dsa_indexer_prefill.md.

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cstdint>

#include "async_copy.cuh"
#include "cluster.cuh"
#include "feed.cuh"
#include "multicast.cuh"
#include "plan.cuh"
#include "programmatic_launch.cuh"
#include "register_shares.cuh"
#include "score.cuh"
#include "select.cuh"
#include "tensor_map.cuh"

namespace {

template <Mode MODE>
__device__ __forceinline__ void init_barriers(SharedMemory& shared) {
#pragma unroll
  for (int stage = 0; stage < STAGES; ++stage) {
    init_barrier(&shared.full[stage], MODE == Mode::SAMPLE ? FEEDING : 32 + 1);  // and bytes
    init_barrier(&shared.free[stage], SPEAKERS);
    init_barrier(&shared.free_in_both[stage], CLUSTER);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    init_barrier(&shared.block_full[i], FEEDING);
    init_barrier(&shared.block_free[i], SPEAKERS);
  }
  fence_barrier_init();
}

// Grid: one CTA an SM, or fewer; of the filter in clusters of two
template <Mode MODE, bool HOLDS = false>
__global__ void __launch_bounds__(THREADS, 1) score_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  SharedMemory& shared = *reinterpret_cast<SharedMemory*>(memory);
  constexpr bool IN_CLUSTERS = MODE == Mode::FILTER;
  if (threadIdx.x == 0) init_barriers<MODE>(shared);
  if (IN_CLUSTERS) arrive_cluster();
  if (MODE != Mode::SAMPLE && threadIdx.x == COMPUTING) prefetch_map(&args.map);
  allow_next_launch();
  if (MODE != Mode::REPAIR) divide_work<MODE>(shared, args);  // from inputs alone
  __syncthreads();
  if (IN_CLUSTERS) wait_cluster();  // for the other's barriers
  if (threadIdx.x < COMPUTING) {
    take_registers<Tuning::COMPUTING_REGISTERS>();
    compute<MODE, HOLDS>(shared, args);
  } else {
    give_registers<Tuning::FEEDING_REGISTERS>();
    feed<MODE>(shared, args);
  }
  __syncwarp();
  if (IN_CLUSTERS) meet_cluster();  // nobody arrives at a CTA that has ended
}

void check_error(cudaError_t error) {
  TVM_FFI_ICHECK(error == cudaSuccess) << "prefill: " << cudaGetErrorString(error);
}

// is_first: of a call; it waits for whatever is before it in the stream to end, others need not.
// cluster: CTAs of one, of which `ctas` is a multiple.
template <typename Kernel>
void launch(Kernel kernel, const Args& args, int ctas, int threads, int shared_bytes,
            cudaStream_t stream, bool is_first, int cluster = 1) {
  // Set in front of each launch: it is kept by the device, and said once a process it would be
  // missing on a second one.
  check_error(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   shared_bytes));
  cudaLaunchAttribute attributes[2] = {};
  int count = 0;
  if (!is_first) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = cluster;
    attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  check_error(cudaLaunchKernelEx(&config, kernel, args));
}

// Holds candidates back where they are sparse.
auto choose_filter(const Args& args) {
  return args.num_keys > Tuning::DENSE ? score_kernel<Mode::FILTER, true>
                                       : score_kernel<Mode::FILTER, false>;
}

void launch_all(const Args& args, int sms, int repair_ctas, cudaStream_t stream, bool is_first) {
  constexpr int SCORE_BYTES = sizeof(SharedMemory);
  const int select_bytes = Selection::bytes_of(args.most_candidates);
  const bool is_scored = args.num_keys > TOPK, is_sampled = args.num_keys > Tuning::WHOLE;
  if (is_sampled) {
    launch(score_kernel<Mode::SAMPLE>, args, sms, THREADS, SCORE_BYTES, stream, is_first);
  }
  if (is_scored) {
    const bool is_few = args.slots <= FEW_SLOTS;
    constexpr int WARPS = GUESSING / 32;
    launch(is_few ? warp_threshold_kernel : threshold_kernel, args,
           is_few ? (args.num_queries + WARPS - 1) / WARPS : args.num_queries, GUESSING, 0, stream,
           is_first && !is_sampled);
    launch(choose_filter(args), args, sms / CLUSTER * CLUSTER, THREADS, SCORE_BYTES, stream, false,
           CLUSTER);
  }
  launch(select_kernel, args, args.num_queries, SELECTING, select_bytes, stream,
         is_first && !is_scored);
  if (is_scored) {
    launch(score_kernel<Mode::REPAIR>, args, repair_ctas, THREADS, SCORE_BYTES, stream, false);
  }
}

// Of no use, and empty, where no key is scored.
CUtensorMap map_codes(tvm::ffi::TensorView codes) {
  CUtensorMap map = {};
  const uint64_t num_keys = codes.size(0);
  if (num_keys <= TOPK) return map;
  TVM_FFI_ICHECK(make_byte_map<2>(map, codes.data_ptr(), {DIM, num_keys}, {DIM}, {DIM, ROWS}))
      << "prefill: the driver refuses a tensor map of " << num_keys << " keys";
  return map;
}

// Keys of which one is sampled. In short contexts queries change often: a tile less of each counts.
int stretch_of(int num_keys) {
  return num_keys <= Tuning::SHORT ? Tuning::SHORT_STRETCH : Tuning::STRETCH;
}

// Areas for candidates: one a query, and four a CTA.
int64_t count_areas(const Args& args) { return args.num_queries + MOST_CTAS * BLOCK; }

// Pointers into the table, [words] int32. Returns how many words it takes.
int64_t lay_out_table(Args& args, int* table) {
  const int64_t num_queries = args.num_queries, blocks = (num_queries + BLOCK - 1) / BLOCK;
  int* at = table;
  args.shares = reinterpret_cast<Share*>(at), at += sizeof(Share) / sizeof(int) * blocks;
  args.counts = at, at += count_areas(args) * SEGMENTS;
  args.thresholds = reinterpret_cast<float*>(at), at += num_queries;
  args.known = at, at += num_queries;
  args.failed = at, at += 1 + num_queries;
  return at - table;
}

// Shapes and dtypes are checked by the caller; all tensors start at multiples of 16 bytes.
// table [words] int32, area [bytes] uint8: scratch. most_queries: of a group of launches.
// most_candidates: of a query, that a selecting CTA takes.
void select_topk(tvm::ffi::TensorView queries, tvm::ffi::TensorView codes,
                 tvm::ffi::TensorView scales, tvm::ffi::TensorView weights,
                 tvm::ffi::TensorView starts, tvm::ffi::TensorView ends, tvm::ffi::TensorView ids,
                 tvm::ffi::TensorView table, tvm::ffi::TensorView area, int64_t most_queries,
                 int64_t most_candidates) {
  const int64_t num_queries = queries.size(0), num_keys = codes.size(0);
  const DLDevice device = queries.device();
  auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  int sms = 0;
  check_error(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.device_id));
  sms = std::min(sms, MOST_CTAS);
  TVM_FFI_ICHECK(most_queries <= MOST_BLOCKS * BLOCK)
      << "prefill: expected at most " << MOST_BLOCKS * BLOCK << " queries, got " << most_queries;
  TVM_FFI_ICHECK(num_keys <= MOST_KEYS)
      << "prefill: expected at most " << MOST_KEYS << " keys, got " << num_keys;
  const CUtensorMap map = map_codes(codes);
  for (int64_t first = 0; first < num_queries; first += most_queries) {
    Args args = {};
    args.map = map;
    args.queries = static_cast<const uint8_t*>(queries.data_ptr()) + first * QUERY_BYTES;
    args.codes = static_cast<const uint8_t*>(codes.data_ptr());
    args.scales = static_cast<const float*>(scales.data_ptr());
    args.weights = static_cast<const float*>(weights.data_ptr()) + first * HEADS;
    args.starts = static_cast<const int*>(starts.data_ptr()) + first;
    args.ends = static_cast<const int*>(ends.data_ptr()) + first;
    args.ids = static_cast<int*>(ids.data_ptr()) + first * TOPK;
    args.samples = static_cast<float*>(area.data_ptr());
    args.candidates = static_cast<uint2*>(area.data_ptr());
    args.orders = static_cast<uint32_t*>(area.data_ptr());
    args.num_queries = static_cast<int>(std::min(most_queries, num_queries - first));
    args.num_keys = static_cast<int>(num_keys);
    args.stretch = stretch_of(args.num_keys);
    args.slots = (args.num_keys + args.stretch - 1) / args.stretch;
    args.most_candidates = static_cast<int>(most_candidates);
    const int64_t words = lay_out_table(args, static_cast<int*>(table.data_ptr()));
    const int64_t candidate_bytes = count_areas(args) * SEGMENTS * CAPACITY * sizeof(uint2);
    const int64_t sample_bytes = int64_t{args.num_queries} * args.slots * sizeof(float);
    const int64_t repair_bytes = BLOCK * num_keys * sizeof(uint32_t);  // a CTA
    const int64_t bytes = std::max({candidate_bytes, sample_bytes, repair_bytes});
    TVM_FFI_ICHECK(num_keys <= TOPK || (words <= table.size(0) && bytes <= area.size(0)))
        << "prefill: expected scratch of " << words << " words and " << bytes << " bytes, got "
        << table.size(0) << " and " << area.size(0);
    const int64_t blocks = (args.num_queries + BLOCK - 1) / BLOCK;
    const int64_t fit = area.size(0) / std::max<int64_t>(repair_bytes, 1);
    const int repair_ctas = static_cast<int>(std::min({blocks, fit, int64_t{sms}}));
    launch_all(args, sms, repair_ctas, stream, first == 0);
  }
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(select_topk, select_topk)
