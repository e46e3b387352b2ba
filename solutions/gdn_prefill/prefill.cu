// The gated delta rule over whole sequences, in one launch or two.
//
// Definition gdn_prefill_qk4_v8_d128_k_last. Per sequence and v head, with the state S [K, V]:
//
//     S <- g S;   S <- S + k (x) beta (v - S^T k);   output = scale S^T q     token after token
//
// Few tokens: walk_kernel does just this, 8 columns of V a CTA, grid (N, 8, 16). Others go in
// chunks of 64 tokens. With D_ij = exp(G_i - G_j), G the sums of log g, and
// T = (I + tril(diag(beta) (K K^T o D), -1))^-1 diag(beta):
//
//     R  = V - diag(exp G) K S                                            [64, V]
//     O  = scale diag(exp G) Q S + reads^T R,   reads  = T^T (scale Q K^T o D)^T          [64, V]
//     S <- exp(G_last) S + writes^T R,          writes = T^T diag(exp(G_last - G)) K      [K, V]
//
// solve_kernel, a CTA of two teams an SM: chunk after chunk of a q/k head, longest sequences
// first; a team finds K, Q, and for the two v heads writes and reads, as tiles that the scan
// copies whole; warps beside it find gates, request, store and count what is there. scan_kernel,
// launched with programmatic dependence, a CTA an SM: a sequence and v head after the other, long
// ones halved, longest first, each taken by who is done; S^T [64 values, 128] a warpgroup; a third
// requests, stores, and drops from the L2 what nobody reads again. A chunk of it begins when it is
// counted. At least 16 SMs are left to it from the start; others it takes as CTAs of solve_kernel
// end. No CTA of it is placed before all of these are: none waits for it. Of few long sequences it
// leaves states and residuals in scratch, and other SMs find the outputs: units behind all those
// whose chunks they wait for. The longest of few is cut into segments whose chains run at once:
// later ones from zeros, and beside that, with values of zero, from the identity; what this gives
// is multiplied by the state in front of the segment, once it is known.
//
// Bytes a chunk: 384 KiB in and out, 322 KiB of scratch written and read, by few sequences twice,
// and 384 KiB more where outputs are found apart, 768 in a segment behind the first. Flops: 67
// million of fp16 products a chunk. The chain of chunks binds few sequences: K S, the residual, the
// update, each product's result being the next one's operand in the same registers.
//
// Idea: the transposed state is the first operand of wgmma and the sum of another, and never leaves
// registers. T is folded into K ahead of time, so that two products are in the chain and not three.
// T = D o U, U the same without D: what is inverted knows no decay and differs between the two v
// heads by beta alone, and the decays are factors of reads and writes.
//
// Numerics: exponents are differences of fp64 sums and not positive. K, Q and V are exact; S, R,
// writes and reads are rounded to fp16, the inverse's factors are split in two; fp32 sums. |v| and
// |S| up to 65504. See docs/kernels/gdn_prefill.md.

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include <algorithm>
#include <cstdint>

#include "feed.cuh"
#include "plan.cuh"
#include "register_shares.cuh"
#include "scan.cuh"
#include "send.cuh"
#include "solve.cuh"
#include "teams.cuh"
#include "walk.cuh"

namespace {

// Grid: solve_ctas, one an SM
__global__ void __launch_bounds__(SOLVE_THREADS, 1)
    solve_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  SolveCta& cta = *reinterpret_cast<SolveCta*>(memory);
  const int team = share(threadIdx.x / TEAM), feeding = share(threadIdx.x / 32) - SOLVING / 32;
  if (feeding >= 0 && feeding < Tuning::SOLVE_TEAMS && threadIdx.x % 32 == 0) {
    init_barriers(cta.teams[feeding].barriers);
  }
  order_sequences(cta.order, args);
  __syncthreads();  // the order and the barriers are there
  if (team < Tuning::SOLVE_TEAMS) {
    take_registers<Tuning::SOLVE_REGISTERS>();
    solve_tasks(cta, cta.teams[team], args);
  } else {
    give_registers<Tuning::FEED_REGISTERS>();
    const int fed = feeding % Tuning::SOLVE_TEAMS;
    feed_team(cta, cta.teams[fed], args, fed, feeding / Tuning::SOLVE_TEAMS);
  }
}

// Grid: scan_ctas, one an SM. MAY_CUT: args.most_later > 0; others fetch less code.
template <bool MAY_CUT>
__global__ void __launch_bounds__(SCAN_THREADS, 1) scan_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  ScanMemory& shared = *reinterpret_cast<ScanMemory*>(memory);
  if (threadIdx.x == 0) init_barriers(shared);
  const int group = share(threadIdx.x / 128);
  // On its way while sequences are ordered.
  const int first = threadIdx.x == GROUPS * 128 ? take_unit(args) : 0;
  const int rank = order_sequences(shared.order, args);
  if (MAY_CUT && rank == 0) cut_longest(shared.cut, shared.order, args, threadIdx.x);
  __syncthreads();  // barriers, order and cut are there
  if (group == GROUPS) {
    give_registers<Tuning::SENDER_REGISTERS>();
    send_chunks<MAY_CUT>(shared, args, first);
  } else {
    take_registers<Tuning::SCAN_REGISTERS>();
    scan_chunks<MAY_CUT>(shared, args, group);
  }
}

// Grid: (N, 8, 16)
__global__ void __launch_bounds__(WALK_THREADS) walk_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  WalkMemory& shared = *reinterpret_cast<WalkMemory*>(memory);
  const int seq = blockIdx.x, v_head = blockIdx.y;
  const int row = blockIdx.z * WALK_ROWS + threadIdx.x / LANES;
  const Range range = load_range(args, seq);
  const Head head = load_head(args, v_head);
  const int64_t offset = ((int64_t{seq} * V_HEADS + v_head) * DIM + row) * DIM;
  Vector state = {};
#pragma unroll
  for (int quad = 0; quad < QUADS; ++quad) {
    if (!args.state || range.start == range.stop) continue;
    const float4 x =
        __ldg(reinterpret_cast<const float4*>(args.state + offset + lane_key(quad)));
    state.x[4 * quad] = x.x, state.x[4 * quad + 1] = x.y;
    state.x[4 * quad + 2] = x.z, state.x[4 * quad + 3] = x.w;
  }
#pragma unroll 1
  for (int first = range.start; first < range.stop; first += Tuning::TOKENS) {
    const int count = min(range.stop - first, Tuning::TOKENS);
    __syncthreads();  // the tokens before are through
    load_gates(shared, args, head, first, count, v_head);
    load_vectors(shared, args, first, count, v_head);
    __syncthreads();  // tokens are there
    walk_tokens(shared, args, first, count, v_head * DIM + row, state);
  }
#pragma unroll
  for (int quad = 0; quad < QUADS; ++quad) {
    *reinterpret_cast<float4*>(args.new_state + offset + lane_key(quad)) = {
        state.x[4 * quad], state.x[4 * quad + 1], state.x[4 * quad + 2], state.x[4 * quad + 3]};
  }
  const int column = v_head * DIM + blockIdx.z * WALK_ROWS;
  if (seq == 0) clear_rows(args, 0, range.start, column, WALK_ROWS, threadIdx.x, WALK_THREADS);
  if (seq == args.num_seqs - 1) {
    clear_rows(args, range.stop, args.tokens, column, WALK_ROWS, threadIdx.x, WALK_THREADS);
  }
}

void check_error(cudaError_t error, const char* kernel) {
  TVM_FFI_ICHECK(error == cudaSuccess) << kernel << ": " << cudaGetErrorString(error);
}

// What a kernel may use is kept by the device: said once a process it would be missing on a second
// one. Before all launches, since the first does not wait for the next one's preparations.
template <typename Kernel>
void allow_memory(Kernel kernel, const char* name, int bytes) {
  check_error(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
              name);
  check_error(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared),
              name);
}

template <typename Kernel>
void launch(Kernel kernel, const char* name, dim3 grid, int threads, int bytes, bool is_dependent,
            const Args& args, cudaStream_t stream) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = is_dependent;
  check_error(cudaLaunchKernelEx(&config, kernel, args), name);
}

void launch_chunks(const Args& args, cudaStream_t stream) {
  const auto scan = args.most_later > 0 ? scan_kernel<true> : scan_kernel<false>;
  allow_memory(solve_kernel, "solve", sizeof(SolveCta));
  allow_memory(scan, "scan", sizeof(ScanMemory));
  if (args.tokens > 0) {
    launch(solve_kernel, "solve", dim3(args.solve_ctas), SOLVE_THREADS, sizeof(SolveCta), false,
           args, stream);
  } else {
    int* taken = taken_units(args);  // cleared by solve_kernel else
    check_error(cudaMemsetAsync(taken, 0, sizeof(int), stream), "units");
  }
  launch(scan, "scan", dim3(args.scan_ctas), SCAN_THREADS, sizeof(ScanMemory),
         args.tokens > 0, args, stream);
}

void launch_walk(const Args& args, cudaStream_t stream) {
  allow_memory(walk_kernel, "walk", sizeof(WalkMemory));
  launch(walk_kernel, "walk", dim3(args.num_seqs, V_HEADS, DIM / WALK_ROWS), WALK_THREADS,
         sizeof(WalkMemory), false, args, stream);
}

int count_sms(int device) {
  int count = 0;
  check_error(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "device");
  return count;
}

// CTAs of solve_kernel: all SMs but some that are the scan's from the start. Their teams take tasks
// in rounds; from the third on no more CTAs than fill all of them: the scan makes use of the others
// while these would wait for the last round's. It then also has more SMs from the start: the sooner
// it reads, the less of scratch is in memory by then. With many sequences a last chunk is half full
// in the mean, 5/8 of one allows for fuller ones.
int64_t count_solving(int64_t tokens, int64_t num_seqs, int64_t sms) {
  // In proportion where there are fewer SMs than 128.
  const auto leave = [&](int64_t scanned) {
    return std::max<int64_t>(sms - std::min(scanned, sms * scanned / 128), 1);
  };
  const auto count_rounds = [](int64_t tasks, int64_t ctas) {
    return (tasks - 1) / (Tuning::SOLVE_TEAMS * ctas) + 1;
  };
  const int64_t most = leave(Tuning::SCANNED);
  const int64_t bound = std::min(count_slots(tokens, num_seqs) * QK_HEADS, most);
  if (num_seqs <= Tuning::FEW) return bound;
  const int64_t tasks = (tokens / CHUNK + num_seqs * 5 / 8) * QK_HEADS;
  if (count_rounds(tasks, most) < 3) return bound;
  const int64_t rounds = count_rounds(tasks, leave(Tuning::SCANNED_OF_MANY));
  const int64_t teams = (tasks - 1) / rounds + 1;
  return (teams - 1) / Tuning::SOLVE_TEAMS + 1;
}

// Shapes and dtypes are checked by the caller; all tensors start at multiples of 16 bytes.
// most_whole: chunks of the longest sequence that is not cut by columns of V; -1: walk_kernel,
// without scratch.
void prefill(tvm::ffi::TensorView q, tvm::ffi::TensorView k, tvm::ffi::TensorView v,
             tvm::ffi::Optional<tvm::ffi::TensorView> state, tvm::ffi::TensorView a_log,
             tvm::ffi::TensorView a, tvm::ffi::TensorView dt_bias, tvm::ffi::TensorView b,
             tvm::ffi::TensorView cu_seqlens, double scale, tvm::ffi::TensorView output,
             tvm::ffi::TensorView new_state, tvm::ffi::TensorView scratch, int64_t most_whole) {
  const int64_t tokens = q.size(0), num_seqs = cu_seqlens.size(0) - 1;
  const int64_t slots = count_slots(tokens, num_seqs);
  // More sequences cannot be longer. Without an order among them none is cut.
  const int64_t longest = slots / (std::max<int64_t>(most_whole, 0) + 1);
  const int64_t most_split = num_seqs > SCAN_THREADS ? 0 : std::min(num_seqs, longest);
  const DLDevice device = q.device();
  const bool hands = (most_whole == 0 || !are_few(num_seqs)) && may_hand(tokens, num_seqs);
  const int64_t outputs = hands && most_split > 0 ? slots : 0;
  const int64_t units = V_HEADS * (num_seqs + most_split + outputs);
  const int64_t sms = count_sms(device.device_id);
  const Args args = {
      static_cast<const __nv_bfloat16*>(q.data_ptr()),
      static_cast<const __nv_bfloat16*>(k.data_ptr()),
      static_cast<const __nv_bfloat16*>(v.data_ptr()),
      state.has_value() ? static_cast<const float*>(state.value().data_ptr()) : nullptr,
      static_cast<const float*>(a_log.data_ptr()),
      static_cast<const __nv_bfloat16*>(a.data_ptr()),
      static_cast<const float*>(dt_bias.data_ptr()),
      static_cast<const __nv_bfloat16*>(b.data_ptr()),
      static_cast<const int64_t*>(cu_seqlens.data_ptr()),
      static_cast<__nv_bfloat16*>(output.data_ptr()),
      static_cast<float*>(new_state.data_ptr()),
      static_cast<uint8_t*>(scratch.data_ptr()),
      static_cast<float>(scale),
      static_cast<int>(tokens),
      static_cast<int>(num_seqs),
      static_cast<int>(slots),
      static_cast<int>(most_whole),
      static_cast<int>(most_split),
      static_cast<int>(count_solving(tokens, num_seqs, sms)),
      static_cast<int>(std::min(units, sms)),
      hands ? may_cut(tokens, num_seqs) : 0,
      !are_few(num_seqs) && handed_offset(slots) > Tuning::KEPT_BYTES,
  };
  auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  if (most_whole < 0) return launch_walk(args, stream);
  TVM_FFI_ICHECK(scratch.size(0) >= count_scratch(tokens, num_seqs))
      << "scratch: expected " << count_scratch(tokens, num_seqs) << " bytes, got "
      << scratch.size(0);
  TVM_FFI_ICHECK(reinterpret_cast<uintptr_t>(scratch.data_ptr()) % LINE_BYTES == 0)
      << "scratch: expected to start at a multiple of " << LINE_BYTES
      << " bytes, since lines of it are dropped; torch.empty() gives that";
  launch_chunks(args, stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(prefill, prefill)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_scratch, count_scratch)
