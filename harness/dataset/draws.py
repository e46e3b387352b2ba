"""Random draws that have the same bits on every machine, numpy version and thread count.

Only the raw 64-bit stream of the counter-based generator Philox is used, which numpy keeps stable,
keyed by workload and tensor. Values come from it by integer arithmetic and by single IEEE
operations that are correctly rounded everywhere (+ - * / sqrt and conversions). Normal variates are
sums of uniform integers (Irwin-Hall). Where a logarithm or an exponential is needed, `decimal`
computes it: its ln and exp are correctly rounded by specification.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT = Context(prec=30)

# Sum of 4 or 8 independent 16-bit integers, centred: half-range and standard deviation.
_LANE_MEAN_4 = 4 * 65535 // 2
_LANE_MEAN_8 = 8 * 65535 // 2
SIGMA_4 = math.sqrt(4 * (65536**2 - 1) / 12)
SIGMA_8 = math.sqrt(8 * (65536**2 - 1) / 12)

_EVEN_LANES = np.uint64(0x0000FFFF0000FFFF)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_CHUNK = 1 << 16  # words: what a draw works on stays in the core's cache


class Stream:
    """The raw words that belong to one workload's tensor, or to one named part of it."""

    def __init__(self, uuid: str, name: str) -> None:
        plain = uuid.replace("-", "").lower()
        digest = hashlib.sha256(f"{plain}/{name}".encode()).digest()
        self._source = np.random.Philox(key=int.from_bytes(digest[:16], "little"))

    def words(self, count: int) -> NDArray[np.uint64]:
        """[count] uniform 64-bit integers."""
        words: NDArray[np.uint64] = self._source.random_raw(count)
        return words

    def below(self, bound: int, count: int) -> NDArray[np.int64]:
        """[count] integers in [0, bound), bound <= 2^31, uniform to within bound / 2^32."""
        high = self.words(count) >> np.uint64(32)
        return ((high * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)

    def order(self, count: int) -> NDArray[np.int64]:
        """A random permutation of 0 … count-1, count < 2^20."""
        return np.argsort(self.keys(1, count)[0])

    def keys(self, rows: int, columns: int) -> NDArray[np.uint64]:
        """[rows, columns] random 60-bit integers, distinct within a row (columns < 2^20)."""
        words = self.words(rows * columns).reshape(rows, columns)
        return ((words >> np.uint64(24)) << np.uint64(20)) | np.arange(columns, dtype=np.uint64)


def _four_lanes(words: NDArray[np.uint64]) -> NDArray[np.int32]:
    pairs = (words & _EVEN_LANES) + ((words >> np.uint64(16)) & _EVEN_LANES)
    return ((pairs & _LOW_HALF) + (pairs >> np.uint64(32))).astype(np.int32)


def bell_4(stream: Stream, count: int) -> NDArray[np.int32]:
    """[count] centred sums of four 16-bit integers: sigma SIGMA_4, nothing beyond 3.46 sigma."""
    result = np.empty(count, np.int32)
    for start in range(0, count, _CHUNK):
        part = result[start : start + _CHUNK]
        np.subtract(_four_lanes(stream.words(part.size)), _LANE_MEAN_4, out=part)
    return result


def bell_8(stream: Stream, count: int) -> NDArray[np.int32]:
    """[count] centred sums of eight 16-bit integers: sigma SIGMA_8, nothing beyond 4.9 sigma."""
    result = np.empty(count, np.int32)
    for start in range(0, count, _CHUNK):
        part = result[start : start + _CHUNK]
        lanes = _four_lanes(stream.words(2 * part.size))
        np.subtract(lanes[0::2] + lanes[1::2], _LANE_MEAN_8, out=part)
    return result


def normals_4(stream: Stream, count: int, sigma: float) -> NDArray[np.float32]:
    """[count] near-normal fp32 values of standard deviation ``sigma``, within 3.46 sigma."""
    scale = np.float32(sigma / SIGMA_4)
    result = np.empty(count, np.float32)
    for start in range(0, count, _CHUNK):
        part = result[start : start + _CHUNK]
        np.multiply(bell_4(stream, part.size).astype(np.float32), scale, out=part)
    return result


def bfloat16_bits(values: NDArray[Any]) -> NDArray[np.uint16]:
    """fp32 values, finite, rounded to the nearest bfloat16 (ties to even), as bit patterns."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


def normals_bfloat16(stream: Stream, count: int) -> NDArray[np.uint16]:
    """[count] near-normal values of standard deviation 1, within 4.9 sigma, as bfloat16 bits."""
    bell = bell_8(stream, count).astype(np.float32)  # below 2^24: exact
    return bfloat16_bits(bell * np.float32(1.0 / SIGMA_8))


def unit_vectors_bfloat16(stream: Stream, count: int, size: int) -> NDArray[np.uint16]:
    """[count, size] uniformly directed vectors of length 1 (before rounding), as bfloat16 bits.

    The squares are summed as integers below 2^53, so that neither the order of the sum nor a fused
    multiply-add can change a bit; then one square root and one division, both in fp64.
    """
    bell = bell_4(stream, count * size).astype(np.int64).reshape(count, size)
    squares = (bell * bell).sum(axis=1)
    norms = np.sqrt(squares.astype(np.float64))
    return bfloat16_bits(bell.astype(np.float64) / norms[:, None])


def log_normal_weights(stream: Stream, count: int, sigma: float) -> list[int]:
    """exp(sigma · z) for ``count`` near-normal z, as integers in units of 2^-32."""
    bells = bell_8(stream, count).tolist()
    unit = Decimal(1 << 32)
    scale = EXACT.divide(Decimal(sigma), Decimal(SIGMA_8))
    return [int(EXACT.multiply(EXACT.exp(EXACT.multiply(scale, bell)), unit)) for bell in bells]


def zipf_weights(count: int, exponent: str) -> list[int]:
    """rank^-exponent for the ranks 1 … count, as integers in units of 2^-32."""
    power = -Decimal(exponent)
    unit = Decimal(1 << 32)
    return [
        int(EXACT.multiply(EXACT.exp(EXACT.multiply(power, EXACT.ln(Decimal(rank)))), unit))
        for rank in range(1, count + 1)
    ]


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Whole shares of ``total``, at least 1 each, in proportion to the weights, all above 0.

    A weight whose share would fall below 1 gets 1, and the others divide what remains; fractions
    go to the largest remainders, ties to the lower index. Raises ValueError if total < count.
    """
    if total < len(weights):
        raise ValueError(f"apportion: expected total >= {len(weights)} shares, got {total}")
    shares = [1] * len(weights)
    open_shares = list(range(len(weights)))
    while True:
        remaining = total - (len(weights) - len(open_shares))
        whole = sum(weights[index] for index in open_shares)
        # The largest weight is never small, since at least 1 remains for each open share.
        small = [index for index in open_shares if remaining * weights[index] < whole]
        if not small:
            break
        open_shares = [index for index in open_shares if index not in small]
    for index in open_shares:
        shares[index] = remaining * weights[index] // whole
    by_fraction = sorted(open_shares, key=lambda i: (-(remaining * weights[i] % whole), i))
    for index in by_fraction[: total - sum(shares)]:
        shares[index] += 1
    return shares
