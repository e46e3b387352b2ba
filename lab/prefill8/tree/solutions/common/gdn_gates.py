"""Gates of the gated delta rule (definitions gdn_decode and gdn_prefill), elementwise in fp32.

    decay  g    = exp(-exp(A_log) * softplus(a + dt_bias))      in [0, 1], multiplies the state
    beta   beta = sigmoid(b)                                     in [0, 1], strength of the write

Callers upcast every operand to fp32 before the call: a and dt_bias are added in fp32.

Accuracy. The GPU's fast logarithm has a small absolute error, hence a large relative one near
log(1) = 0, and exp(A_log) magnifies it. softplus therefore splits off its linear part and takes
log1p of a number in [0, 1] from its own series, correct to about 1e-6 relative for every argument.
No expression subtracts infinities: a = +inf gives g = 0, a = -inf gives g = 1, NaN stays NaN.
Only triton.language is used, so the Triton interpreter runs the same text.
"""

import triton
import triton.language as tl


@triton.jit
def log1p_of_unit(t):
    """log(1 + t) for 0 <= t <= 1, with a small relative error.

    log(1 + t) = 2 artanh(s), s = t / (2 + t) <= 1/3; the series is cut after s^15, where the next
    term is below 2e-9 of the sum.
    """
    s = t / (2.0 + t)
    square = s * s
    series = 1.0 / 13.0 + square * (1.0 / 15.0)
    series = 1.0 / 11.0 + square * series
    series = 1.0 / 9.0 + square * series
    series = 1.0 / 7.0 + square * series
    series = 1.0 / 5.0 + square * series
    series = 1.0 / 3.0 + square * series
    return 2.0 * s * (1.0 + square * series)


@triton.jit
def softplus(x):
    """log(1 + exp(x)) of an fp32 value; x itself above 20, as torch.nn.functional.softplus.

    exp(-|x|) is the square of a half-argument exponential: subnormal results survive whether or not
    the device's exponential flushes them.
    """
    half = tl.exp(-0.5 * tl.abs(x))
    return tl.where(x > 20.0, x, tl.maximum(x, 0.0) + log1p_of_unit(half * half))


@triton.jit
def log_decay(a, dt_bias, a_log):
    """Natural logarithm of the decay, in [-inf, 0]; chunked forms sum it. Operands fp32."""
    return -tl.exp(a_log) * softplus(a + dt_bias)


@triton.jit
def decay(a, dt_bias, a_log):
    """Decay g = exp(log_decay) in [0, 1]. Operands fp32."""
    return tl.exp(log_decay(a, dt_bias, a_log))


@triton.jit
def write_strength(b):
    """beta = sigmoid(b) of an fp32 value, without overflow on either side."""
    small = tl.exp(-tl.abs(b))
    return tl.where(b >= 0.0, 1.0, small) / (1.0 + small)
