// Gates of the gated delta rule in fp32: the formulas of gdn_gates.py, in fewer dependent steps.
//
//     decay  g    = exp(-exp(A_log) softplus(a + dt_bias))      beta = sigmoid(b)
//
// At small batches all loads of a warp land together, and the chain from a to g is on the critical
// path: there the special-function unit's own operations, off it libm's exponentials.
// No expression subtracts infinities: a = +inf gives g = 0, a = -inf gives g = 1, NaN stays NaN.
#pragma once

#include "fast_math.cuh"

namespace {

constexpr float LOG2_E = 1.4426950408889634f;

// log(1 + t), 0 <= t <= 1, as 2 artanh(s), s = t / (2 + t) <= 1/3: a logarithm's absolute error
// near log(1), magnified by a large exp(A_log), would be a large one of g. The polynomial in s^2
// is within 5e-9 of artanh(s) / s (least relative error on [0, 1/9]).
__device__ __forceinline__ float log1p_of_unit(float t) {
  const float s = __fdividef(t, 2.0f + t), square = s * s;
  float series = fmaf(square, 0.14012233f, 0.1399957f);
  series = fmaf(square, series, 0.2001085f);
  series = fmaf(square, series, 0.33333207f);
  return 2.0f * s * fmaf(square, series, 1.0f);
}

// x itself above 20, as torch's. exp(-|x|) is a square: exp2_approx flushes subnormal results.
__device__ __forceinline__ float softplus(float x) {
  const float half = exp2_approx(-0.5f * LOG2_E * fabsf(x));
  const float curve = log1p_of_unit(half * half);
  return x > 20.0f ? x : (x > 0.0f ? x + curve : curve);
}

__device__ __forceinline__ float decay(float a, float dt_bias, float a_log) {
  const float rate = -LOG2_E * expf(a_log);
  return exp2_approx(rate * softplus(a + dt_bias));
}

// 0 and 1 are reached exactly: exp(-b) is infinite from b = -89 down, and 0 far above.
__device__ __forceinline__ float write_strength(float b) {
  return __fdividef(1.0f, 1.0f + expf(-b));
}

}  // namespace
