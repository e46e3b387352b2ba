"""Draws: known answers, exactness, and the shapes of the distributions."""

from __future__ import annotations

import itertools
import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.dataset.draws import (
    SIGMA_4,
    SIGMA_8,
    Stream,
    apportion,
    bell_4,
    bell_8,
    bfloat16_bits,
    log_normal_weights,
    normals_4,
    normals_bfloat16,
    unit_vectors_bfloat16,
    zipf_weights,
)

UUID = "901e5104-dccb-4c3f-ae13-ef4d31a4d456"
PINNED_WORDS = [9049753856462377029, 13717252802113028501, 14459195461320281120]


def as_float(bits):
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32)


def test_the_stream_is_pinned():
    """The manifest rests on this: a change here is a change of every blob."""
    assert Stream(UUID, "q").words(3).tolist() == PINNED_WORDS


def test_streams_are_keyed_by_uuid_and_name():
    words = Stream(UUID, "q").words(4).tolist()
    assert Stream(UUID.replace("-", "").upper(), "q").words(4).tolist() == words
    assert Stream(UUID, "k").words(4).tolist() != words
    assert Stream("0" * 32, "q").words(4).tolist() != words


@given(st.integers(1, 2**31), st.integers(0, 50))
@settings(max_examples=30, deadline=None)
def test_below_stays_below(bound, count):
    values = Stream(UUID, "x").below(bound, count)
    assert values.shape == (count,)
    assert all(0 <= value < bound for value in values.tolist())


def test_order_is_a_permutation():
    order = Stream(UUID, "x").order(1000)
    assert sorted(order.tolist()) == list(range(1000))
    assert order.tolist() != list(range(1000))


def test_keys_are_distinct_in_a_row():
    keys = Stream(UUID, "x").keys(20, 300)
    assert all(len(set(row)) == 300 for row in keys.tolist())


@pytest.mark.parametrize(
    ("bell", "words", "mean"), [(bell_4, 1, 4 * 65535 // 2), (bell_8, 2, 8 * 65535 // 2)]
)
def test_bells_are_sums_of_16_bit_lanes(bell, words, mean):
    raw = Stream(UUID, "x").words(words * 500).tolist()
    lanes = [sum(struct.unpack("<4H", struct.pack("<Q", word))) for word in raw]
    sums = [sum(lanes[i : i + words]) - mean for i in range(0, len(lanes), words)]
    assert bell(Stream(UUID, "x"), 500).tolist() == sums


@pytest.mark.parametrize(("bell", "sigma"), [(bell_4, SIGMA_4), (bell_8, SIGMA_8)])
def test_bells_have_the_moments_of_a_normal(bell, sigma):
    values = bell(Stream(UUID, "x"), 200_001) / sigma
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert abs((values**3).mean()) < 0.03
    assert abs(np.mean(np.abs(values) < 1) - 0.6827) < 0.02


def test_a_long_draw_is_the_beginning_of_a_longer_one():
    assert np.array_equal(
        normals_4(Stream(UUID, "x"), 70_000, 0.5),
        normals_4(Stream(UUID, "x"), 140_000, 0.5)[:70_000],
    )
    assert np.array_equal(
        normals_bfloat16(Stream(UUID, "x"), 70_000),
        normals_bfloat16(Stream(UUID, "x"), 140_000)[:70_000],
    )


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@settings(max_examples=300, deadline=None)
def test_bfloat16_rounds_to_nearest_even(value):
    bits = int(bfloat16_bits(np.array([value], np.float32))[0])
    if abs(value) > 3.38e38:
        return  # rounds to infinity; no draw comes near
    exact = Fraction(value)
    rounded = Fraction(float(as_float([bits])[0]))
    for neighbour in (bits - 1, bits + 1):
        if neighbour & 0x7FFF and (neighbour ^ bits) & 0x8000 == 0 and neighbour & 0x7F80 != 0x7F80:
            other = abs(Fraction(float(as_float([neighbour])[0])) - exact)
            assert abs(rounded - exact) <= other
            if abs(rounded - exact) == other:
                assert bits % 2 == 0


def test_unit_vectors_have_length_one_and_no_preferred_direction():
    vectors = as_float(unit_vectors_bfloat16(Stream(UUID, "x"), 2000, 128)).astype(np.float64)
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 2**-8
    assert np.abs(vectors.mean(axis=0)).max() < 5 / math.sqrt(128 * 2000)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=60), st.integers(0, 10_000))
@settings(max_examples=200, deadline=None)
def test_apportion_sums_and_gives_everybody_one(weights, extra):
    total = len(weights) + extra
    shares = apportion(total, weights)
    assert sum(shares) == total
    assert min(shares) >= 1
    by_weight = sorted(zip(weights, shares, strict=True))
    assert all(
        small <= large or light == heavy
        for (light, small), (heavy, large) in itertools.pairwise(by_weight)
    )


def test_apportion_is_proportional_where_it_can_be():
    assert apportion(100, [1, 2, 3, 4]) == [10, 20, 30, 40]
    assert apportion(10, [1000, 1, 1]) == [8, 1, 1]
    with pytest.raises(ValueError, match="expected total >= 3"):
        apportion(2, [1, 1, 1])


def test_weights_follow_their_formulas():
    zipf = zipf_weights(32, "0.6")
    assert all(abs(weight / 2**32 - rank**-0.6) < 1e-9 for rank, weight in enumerate(zipf, 1))
    bells = bell_8(Stream(UUID, "x"), 500)
    weights = np.array(log_normal_weights(Stream(UUID, "x"), 500, 1.0), np.float64) / 2**32
    assert np.allclose(weights, np.exp(bells / SIGMA_8), rtol=1e-8)
