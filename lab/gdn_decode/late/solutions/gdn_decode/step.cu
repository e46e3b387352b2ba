// Gated delta rule, one decode step, in one launch.
//
// Definition gdn_decode_qk4_v8_d128_k_last. Per batch row and v head, with the state S [V=128,
// K=128] stored k-last, q, k [K], v [V]:
//
//     S0      = g S                          g    = exp(-exp(A_log) softplus(a + dt_bias))
//     delta   = beta (v - S0 k)              beta = sigmoid(b)
//     S'      = S0 + delta k^T               new_state
//     output  = scale (S0 q + (q.k) delta)   = scale S' q, without a second pass over S'
//
// Grid: warps of Shape::ROWS rows of V, WARPS a CTA, in memory order of `state` over batch rows and
// heads. A row lies in LANES lanes, each with every LANES-th 16 bytes of it, so that a load of a
// warp is whole lines, S0 k and S0 q are log2(LANES) shuffles for 32 / LANES rows at once, and all
// rows of a warp interleave. Rows of a group of lanes are consecutive: their v and output are one
// access. q/k head j serves v heads 2j, 2j+1.
//
// Bytes: 2 x 512 KiB of state and 6 KiB of vectors per batch row; flops: 7 per state element, about
// 0.9 a byte. DRAM is the roof at large B; one cold round trip, the chain behind it and the store
// at small B.
//
// Idea: every load of a warp, the gates' scalars first, is issued before anything is awaited; then
// the shortest chain from the last landed byte to the store. No shared memory.
//
// Numerics: fp32 throughout; S0 k is g (S k), of k scaled down by a power of two so that a huge state
// that the decay tames does not overflow; output is rounded once to bf16. See
// docs/kernels/gdn_decode.md.

#include <cuda_bf16.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>

#include "gates.cuh"

namespace {

constexpr int QK_HEADS = 4, V_HEADS = 8, HEAD_SIZE = 128;
constexpr int GROUP = V_HEADS / QK_HEADS;  // v heads of a q/k head

struct Args {
  const __nv_bfloat16* q;        // [B, 1, 4, 128]
  const __nv_bfloat16* k;        // [B, 1, 4, 128]
  const __nv_bfloat16* v;        // [B, 1, 8, 128]
  const float* state;            // [B, 8, 128, 128], k-last
  const float* a_log;            // [8]
  const uint16_t* a;             // [B, 1, 8] bf16
  const float* dt_bias;          // [8]
  const __nv_bfloat16* b;        // [B, 1, 8]
  __nv_bfloat16* output;         // [B, 1, 8, 128]
  float* new_state;              // [B, 8, 128, 128]
  float scale;
};

// How the rows of V are spread; chosen per batch size in kernel.py.
template <int LANES_, int ROWS_, int WARPS_>
struct Shape {
  static constexpr int LANES = LANES_;  // that hold a row
  static constexpr int ROWS = ROWS_;    // of a warp
  static constexpr int WARPS = WARPS_;  // of a CTA
  static constexpr int PASSES = ROWS * LANES / 32;        // rows of a lane
  static constexpr int CHUNKS = HEAD_SIZE / (4 * LANES);  // of 4 floats, of a row in a lane
  static_assert(LANES == 8 || LANES == 16 || LANES == 32, "128 bytes or more a row and load");
  static_assert(PASSES * 32 == ROWS * LANES && PASSES >= 1 && PASSES <= 8,
                "a lane's v is one load of 2 to 16 bytes");
  static_assert(HEAD_SIZE % (ROWS * WARPS) == 0, "the rows of a CTA are of one head");
};

// N consecutive bf16 values, loaded or stored as one.
template <int N>
struct alignas(2 * N) Vector {
  __nv_bfloat16 x[N];
};

// The decay comes behind the sums, whose chain then runs beside that of g. Of k and q scaled down, so
// that no finite state overflows a sum that the decay would tame.
constexpr float TINY = 0x1p-24f;

// The four floats that four bf16 values are: their bits are the upper half.
__device__ __forceinline__ float4 widen(uint2 packed) {
  return {__uint_as_float(packed.x << 16), __uint_as_float(packed.x & 0xffff0000u),
          __uint_as_float(packed.y << 16), __uint_as_float(packed.y & 0xffff0000u)};
}

__device__ __forceinline__ float4 scaled(float4 x, float factor) {
  return {x.x * factor, x.y * factor, x.z * factor, x.w * factor};
}

// sum += x y, of the even elements and of the odd ones apart: half the chain.
__device__ __forceinline__ void add_dot(float2& sum, float4 x, float4 y) {
  sum.x = fmaf(x.x, y.x, sum.x), sum.y = fmaf(x.y, y.y, sum.y);
  sum.x = fmaf(x.z, y.z, sum.x), sum.y = fmaf(x.w, y.w, sum.y);
}

// Sums over the LANES lanes of a row, all N at once: their shuffles interleave.
template <int LANES, int N>
__device__ __forceinline__ void sum_lanes(float (&sums)[N], const float2 (&parts)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) sums[i] = parts[i].x + parts[i].y;
#pragma unroll
  for (int mask = LANES / 2; mask > 0; mask /= 2) {
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] += __shfl_xor_sync(~0u, sums[i], mask);
  }
}

template <class S>
__global__ void __launch_bounds__(32 * S::WARPS) step_kernel(const __grid_constant__ Args args) {
  // Grid: B * 8 * 128 / (ROWS * WARPS) CTAs.
  const uint32_t lane = threadIdx.x % 32, place = lane % S::LANES;
  const uint32_t block = blockIdx.x * S::WARPS + threadIdx.x / 32;  // of ROWS rows
  const uint32_t head = block / (HEAD_SIZE / S::ROWS);              // batch row * 8 + v head
  const int64_t row = static_cast<int64_t>(block) * S::ROWS + lane / S::LANES * S::PASSES;
  const int64_t at = row * HEAD_SIZE + 4 * place;

  // The gates have the longest chain: their inputs go first.
  const uint16_t a = args.a[head];
  const __nv_bfloat16 b = args.b[head];
  const float a_log = args.a_log[head % V_HEADS], dt_bias = args.dt_bias[head % V_HEADS];
  const int64_t at_key = static_cast<int64_t>(head / GROUP) * HEAD_SIZE + 4 * place;
  uint2 q[S::CHUNKS], k[S::CHUNKS];
#pragma unroll
  for (int c = 0; c < S::CHUNKS; ++c) {
    k[c] = *reinterpret_cast<const uint2*>(args.k + at_key + 4 * S::LANES * c);
    q[c] = *reinterpret_cast<const uint2*>(args.q + at_key + 4 * S::LANES * c);
  }
  const auto v = *reinterpret_cast<const Vector<S::PASSES>*>(args.v + row);
  float4 state[S::PASSES][S::CHUNKS];
#pragma unroll
  for (int p = 0; p < S::PASSES; ++p) {
#pragma unroll
    for (int c = 0; c < S::CHUNKS; ++c) {
      const float* from = args.state + at + p * HEAD_SIZE + 4 * S::LANES * c;
      state[p][c] = *reinterpret_cast<const float4*>(from);
    }
  }
  // No load crosses a barrier (those through the non-coherent path would), and the longest chain
  // starts from its result, which is 0: so all loads are issued before the first is awaited. Left
  // alone, the assembler takes row after row, each behind a round trip of its own; behind a barrier
  // without a result it sinks v's load.
  const uint32_t nothing = __syncthreads_or(0);

  const float g = decay(__uint_as_float(uint32_t{a} << 16 | nothing), dt_bias, a_log);
  const float beta = write_strength(__bfloat162float(b));
  constexpr int QK = 2 * S::PASSES;
  float2 parts[QK + 1] = {};  // S0 k and S0 q of each row, then q.k
#pragma unroll
  for (int c = 0; c < S::CHUNKS; ++c) {
    const float4 key = widen(k[c]), query = widen(q[c]);
    add_dot(parts[QK], query, key);
    const float4 small_key = scaled(key, TINY), small_query = scaled(query, TINY);
#pragma unroll
    for (int p = 0; p < S::PASSES; ++p) {
      add_dot(parts[2 * p], state[p][c], small_key);
      add_dot(parts[2 * p + 1], state[p][c], small_query);
    }
  }
  float sums[QK + 1];
  sum_lanes<S::LANES>(sums, parts);
  const float g_back = g * (1.0f / TINY);

  Vector<S::PASSES> output;
#pragma unroll
  for (int p = 0; p < S::PASSES; ++p) {
    const float delta = beta * (__bfloat162float(v.x[p]) - g_back * sums[2 * p]);
    output.x[p] = __float2bfloat16_rn(args.scale * fmaf(sums[QK], delta, g_back * sums[2 * p + 1]));
#pragma unroll
    for (int c = 0; c < S::CHUNKS; ++c) {
      const float4 key = widen(k[c]), old = scaled(state[p][c], g);
      *reinterpret_cast<float4*>(args.new_state + at + p * HEAD_SIZE + 4 * S::LANES * c) = {
          fmaf(delta, key.x, old.x), fmaf(delta, key.y, old.y), fmaf(delta, key.z, old.z),
          fmaf(delta, key.w, old.w)};
    }
  }
  if (place == 0) *reinterpret_cast<Vector<S::PASSES>*>(args.output + row) = output;
}

template <class S>
void launch(const Args& args, int64_t batch_size, cudaStream_t stream) {
  const int64_t blocks = batch_size * V_HEADS * HEAD_SIZE / (S::ROWS * S::WARPS);
  TVM_FFI_ICHECK(blocks <= INT32_MAX)
      << "q: expected a batch that a grid can hold, got " << batch_size << " rows";
  step_kernel<S><<<static_cast<uint32_t>(blocks), 32 * S::WARPS, 0, stream>>>(args);
  const cudaError_t error = cudaGetLastError();
  TVM_FFI_ICHECK(error == cudaSuccess) << "step of gdn_decode: " << cudaGetErrorString(error);
}

template <int LANES, int ROWS>
void launch_warps(int64_t warps, const Args& args, int64_t batch_size, cudaStream_t stream) {
  switch (warps) {
    case 1: return launch<Shape<LANES, ROWS, 1>>(args, batch_size, stream);
    case 2: return launch<Shape<LANES, ROWS, 2>>(args, batch_size, stream);
    case 4: return launch<Shape<LANES, ROWS, 4>>(args, batch_size, stream);
    default: TVM_FFI_ICHECK(false) << "warps: expected 1, 2 or 4, got " << warps;
  }
}

// Shapes and dtypes are checked by the caller. lanes, rows, warps: as in Shape.
void step(tvm::ffi::TensorView q, tvm::ffi::TensorView k, tvm::ffi::TensorView v,
          tvm::ffi::TensorView state, tvm::ffi::TensorView a_log, tvm::ffi::TensorView a,
          tvm::ffi::TensorView dt_bias, tvm::ffi::TensorView b, double scale,
          tvm::ffi::TensorView output, tvm::ffi::TensorView new_state, int64_t lanes, int64_t rows,
          int64_t warps) {
  const Args args = {
      static_cast<const __nv_bfloat16*>(q.data_ptr()),
      static_cast<const __nv_bfloat16*>(k.data_ptr()),
      static_cast<const __nv_bfloat16*>(v.data_ptr()),
      static_cast<const float*>(state.data_ptr()),
      static_cast<const float*>(a_log.data_ptr()),
      static_cast<const uint16_t*>(a.data_ptr()),
      static_cast<const float*>(dt_bias.data_ptr()),
      static_cast<const __nv_bfloat16*>(b.data_ptr()),
      static_cast<__nv_bfloat16*>(output.data_ptr()),
      static_cast<float*>(new_state.data_ptr()),
      static_cast<float>(scale),
  };
  const int64_t batch_size = q.size(0);
  const DLDevice device = q.device();
  auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  const auto is = [&](int64_t of_a_row, int64_t of_a_warp) {
    return lanes == of_a_row && rows == of_a_warp;
  };
  if (is(8, 4)) return launch_warps<8, 4>(warps, args, batch_size, stream);
  if (is(8, 8)) return launch_warps<8, 8>(warps, args, batch_size, stream);
  if (is(16, 2)) return launch_warps<16, 2>(warps, args, batch_size, stream);
  if (is(16, 4)) return launch_warps<16, 4>(warps, args, batch_size, stream);
  if (is(16, 8)) return launch_warps<16, 8>(warps, args, batch_size, stream);
  if (is(32, 2)) return launch_warps<32, 2>(warps, args, batch_size, stream);
  if (is(32, 4)) return launch_warps<32, 4>(warps, args, batch_size, stream);
  if (is(32, 8)) return launch_warps<32, 8>(warps, args, batch_size, stream);
  TVM_FFI_ICHECK(false) << "no shape has " << lanes << " lanes a row, " << rows << " rows a warp";
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(step, step)
