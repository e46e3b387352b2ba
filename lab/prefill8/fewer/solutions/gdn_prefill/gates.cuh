// Gates of a token: decay and strength of the write. docs/kernels/gdn_prefill.md, "Numerics".
#pragma once

#include "plan.cuh"

namespace {

struct Head {
  float rate, bias;  // exp(A_log), dt_bias
};

__device__ __forceinline__ Head load_head(const Args& args, int v_head) {
  return {expf(__ldg(args.a_log + v_head)), __ldg(args.dt_bias + v_head)};
}

// Natural logarithm of the decay, in [-1e4, 0]: its exponential is 0 there as at -inf, but
// differences of sums of it are numbers. NaN stays NaN.
__device__ __forceinline__ float log_decay(const Head& head, float a) {
  const float x = a + head.bias;
  const float softplus = x > 20.0f ? x : log1pf(expf(x));
  const float log_g = -head.rate * softplus;
  return log_g < -1e4f ? -1e4f : log_g;
}

__device__ __forceinline__ float write_strength(float b) { return 1.0f / (1.0f + expf(-b)); }

}  // namespace
