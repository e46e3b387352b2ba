"""SwiGLU and the FP8 form in which its result feeds the second GEMM.

    C = silu(gate) * up [rows, 2048], stored as e4m3 codes with one fp32 scale per row and 128
    columns, scale = amax / 448: the scaled values fill the format, without saturating.

A second plane of codes, where asked for, holds what the first one's rounding left: e4m3 rounds
with a relative error of 2^-4, the sum of both with 2^-8 (as bf16), or at most amax / 2^19.
"""

import triton
import triton.language as tl

FP8_MAX = tl.constexpr(448.0)
SMALLEST_NORMAL = tl.constexpr(1.1754943508222875e-38)  # fp32; its reciprocal is finite
LARGEST = tl.constexpr(3.4028234663852886e38)  # fp32


@triton.jit
def clamp_magnitude(x, limit):
    """x within +-limit, NaN as it is."""
    above = tl.maximum(x, -limit, propagate_nan=tl.PropagateNan.ALL)
    return tl.minimum(above, limit, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def join_scales(of_rows, of_weights):
    """Their product, finite where both are: a block of zeros stays zeros whatever scale it has."""
    return clamp_magnitude(of_rows * of_weights, LARGEST)


@triton.jit
def swiglu(up, gate):
    return gate / (1.0 + tl.exp(-gate)) * up


@triton.jit
def scale_rows(x):
    """x [R,128] fp32 -> (x / scale within +-448, scale [R])."""
    scale = tl.maximum(tl.max(tl.abs(x), axis=1) * (1.0 / FP8_MAX), SMALLEST_NORMAL)
    scaled = x * (1.0 / scale)[:, None]
    return clamp_magnitude(scaled, FP8_MAX), scale


@triton.jit
def round_to_e4m3(x):
    """x fp32 rounded, to nearest even, to the 4 significant bits of a normal e4m3 number.

    On the bits, because Triton 3.6 computes x - x.to(e4m3).to(fp32) wrongly on sm_90 (measured on
    an H200: rows of unrelated values), and its interpreter truncates. The cast that follows is then
    exact, but below 2^-6, where e4m3 numbers hold fewer bits and the cast rounds once more. NaN
    stays NaN: one whose first bits are those of e4m3's, for casts that know none.
    """
    bits = x.to(tl.int32, bitcast=True)
    rounded = (bits + 0x7FFFF + ((bits >> 20) & 1)) & -0x100000
    return tl.where(x == x, rounded, 0x7FF00000).to(tl.float32, bitcast=True)
