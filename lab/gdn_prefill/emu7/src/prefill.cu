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
// solve_kernel, a CTA of two teams an SM: chunk after chunk of a q/k head, longest sequences first;
// a team writes K, Q, and for the two v heads writes, reads and exp G, as tiles that the scan
// copies whole, and counts what is there. scan_kernel, launched with programmatic dependence, a CTA
// an SM: a sequence and v head after the other, long ones halved, longest first, each taken by who
// is done; S^T [64 values, 128] a warpgroup; a third requests and stores. A chunk of it begins when
// it is counted. 16 SMs are left to it from the start; the others it takes as solve_kernel's CTAs
// end. No CTA of it is placed before all of solve_kernel's are: none of these waits for it. Of few
// long sequences it leaves states and residuals in scratch, and other SMs find the outputs: units
// behind all those whose chunks they wait for.
//
// Bytes a chunk: 384 KiB in and out, 322 KiB of scratch written and read, by few sequences twice,
// and 384 KiB more where outputs are found apart. Flops: 67 million of fp16 products a chunk. The
// chain of chunks binds few sequences: K S, the residual, the update, each product's result being
// the next one's operand in the same registers.
//
// Idea: the transposed state is the first operand of wgmma and the sum of another, and never leaves
// registers. T is folded into K ahead of time, so that two products are in the chain and not three.
//
// Numerics: exponents are differences of fp64 sums and not positive. K, Q and V are exact; S, R,
// writes and reads are rounded to fp16, the inverse's factors are split in two; fp32 sums. |v| and
// |S| up to 65504. See docs/kernels/gdn_prefill.md.


#include <algorithm>
#include <cstdint>

#include "async_copy.cuh"
#include "bulk_copy.cuh"
#include "bulk_hints.cuh"
#include "named_barrier.cuh"
#include "plan.cuh"
#include "programmatic_launch.cuh"
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
  
  SolveCta& cta = *reinterpret_cast<SolveCta*>(memory);
  order_sequences(cta.order, args);
  __syncthreads();  // the order is there
  solve_tasks(cta, cta.teams[__shfl_sync(FULL, threadIdx.x / TEAM, 0)], args);
}

// Grid: scan_ctas, one an SM
__global__ void __launch_bounds__(SCAN_THREADS, 1) scan_kernel(const __grid_constant__ Args args) {
  
  ScanMemory& shared = *reinterpret_cast<ScanMemory*>(memory);
  if (threadIdx.x == 0) init_barriers(shared);
  const int group = share(threadIdx.x / 128);
  // On its way while sequences are ordered.
  const int first = threadIdx.x == GROUPS * 128 ? take_unit(args) : 0;
  order_sequences(shared.order, args);
  __syncthreads();  // barriers and order are there
  if (group == GROUPS) {
    give_registers<Tuning::SENDER_REGISTERS>();
    send_chunks(shared, args, first);
  } else {
    take_registers<Tuning::SCAN_REGISTERS>();
    scan_chunks(shared, args, group);
  }
}

// Grid: (N, 8, 16)
__global__ void __launch_bounds__(WALK_THREADS) walk_kernel(const __grid_constant__ Args args) {
  
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

}  // namespace
