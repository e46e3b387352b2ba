// Every score of dsa_indexer_prefill in memory: what tests prove a selection from.
//
// Built from the room's own sources, with this file beside them. score_kernel, the warps that fetch
// and compute() are the room's, as its repair calls them; only what takes a score is new here, in
// the place that the repair has left open, Sink<REPAIR, true>.
//
// So the scores are the filter's to the last bit. What makes one depends on no mode:
// start_products(), turn_products(), weigh() and value() know of none, compute() calls them in one
// order for all, and place_job() and load_weights() place a head's weight alike. Modes differ in
//   who fetches a tile   FILTER and REPAIR: fetch_tile(), the same rows at the same places
//   pieces               tiles are counted from key 0: a key has its row in every piece
//   a query's member     here the listed queries move up: other columns of the products, maybe
//                        another warpgroup, and the same operations in the same order
// Nor can the compiler make a difference: every multiply-add is written as one, a scale's sign and
// the halves of weights are exact, and no other product goes into a sum.
// tests/unit/test_native_builds.py counts the instructions of each mode, and
// tests/gpu/test_prefill_scores.py compares the scores with the candidates that a filter left.

#include "prefill.cu"

namespace {

template <>
struct Sink<Mode::REPAIR, true> {
  const Job& job;
  float* scores;  // of the lane's query

  __device__ Sink(SharedMemory&, const Args& args, const Job& job) : job(job) {
    const int query = max(job.query[own_member()], 0);
    scores = args.samples + static_cast<int64_t>(query) * args.num_keys;
  }
  __device__ void take(float score, int tile, int row) {
    const int key = place_of(tile, row);
    if (OwnRange(job).holds(key)) scores[key] = score;
  }
  __device__ void close(SharedMemory&, const Args&, const Job&, int) {}
};

// listed [1 + count or more] int32: how many queries, and which; each has a range of more than 2048
// keys, as a block without one would be the end. scores [Q, N] fp32: what lies in a listed query's
// range is written, nothing else.
void store_scores(tvm::ffi::TensorView queries, tvm::ffi::TensorView codes,
                  tvm::ffi::TensorView scales, tvm::ffi::TensorView weights,
                  tvm::ffi::TensorView starts, tvm::ffi::TensorView ends,
                  tvm::ffi::TensorView listed, tvm::ffi::TensorView scores) {
  const DLDevice device = queries.device();
  auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  int sms = 0;
  check_error(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.device_id));
  const int64_t num_keys = codes.size(0);
  TVM_FFI_ICHECK(num_keys > TOPK && num_keys <= MOST_KEYS)
      << "prefill scores: expected more than " << TOPK << " keys and at most " << MOST_KEYS
      << ", got " << num_keys;
  TVM_FFI_ICHECK(scores.size(0) == queries.size(0) && scores.size(1) == num_keys)
      << "prefill scores: expected memory for " << queries.size(0) << " x " << num_keys
      << " scores, got " << scores.size(0) << " x " << scores.size(1);
  Args args = {};
  args.map = map_codes(codes);
  args.queries = static_cast<const uint8_t*>(queries.data_ptr());
  args.codes = static_cast<const uint8_t*>(codes.data_ptr());
  args.scales = static_cast<const float*>(scales.data_ptr());
  args.weights = static_cast<const float*>(weights.data_ptr());
  args.starts = static_cast<const int*>(starts.data_ptr());
  args.ends = static_cast<const int*>(ends.data_ptr());
  args.failed = static_cast<int*>(listed.data_ptr());
  args.samples = static_cast<float*>(scores.data_ptr());
  args.num_queries = static_cast<int>(queries.size(0));
  args.num_keys = static_cast<int>(num_keys);
  launch(score_kernel<Mode::REPAIR, true>, args, sms, THREADS, sizeof(SharedMemory), stream, true);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(store_scores, store_scores)
