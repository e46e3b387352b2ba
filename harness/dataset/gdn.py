"""Tensors of the two gated-delta-net rooms.

What they mean: q and k of length 1 (the definitions do no normalisation of their own, and the
recurrence grows without bound for longer keys), v standard normal, one gate a head from slow to
fast decay, initial states of a few hundredths as a long prefix leaves them. Sequence lengths of a
prefill batch are not public: they are log-normal with sigma 1, scaled to the official total.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.dataset.blobs import Tensor
from harness.dataset.draws import (
    Stream,
    apportion,
    log_normal_weights,
    normals_4,
    normals_bfloat16,
    unit_vectors_bfloat16,
)
from harness.dataset.facts import Facts
from harness.dataset.workloads import WorkloadRow

NUM_QK_HEADS = 4
NUM_V_HEADS = 8
HEAD_SIZE = 128
STATE_SIGMA = 1 / 32
LENGTH_SIGMA = 1.0

# (dt_bias, A_log) of the eight heads. With a = 0 the decay exp(-exp(A_log) · softplus(dt_bias)) is
# about 0.999, 0.995, 0.985, 0.96, 0.9, 0.7, 0.4 and 0.1.
HEAD_GATES = (
    (-3.0, -3.88),
    (-2.5, -2.76),
    (-2.0, -2.13),
    (-1.5, -1.60),
    (-1.0, -1.09),
    (-0.5, -0.28),
    (0.0, 0.28),
    (0.5, 0.86),
)
_JITTER_STEPS = 33  # A_log moves by up to 16 / 128 either way
_JITTER_UNIT = 1 / 128


def _gate_tensors(uuid: str) -> dict[str, Tensor]:
    """A_log and dt_bias, [num_v_heads] fp32: the table in a random order of heads, jittered."""
    heads = Stream(uuid, "A_log/order").order(NUM_V_HEADS)
    steps = Stream(uuid, "A_log").below(_JITTER_STEPS, NUM_V_HEADS) - _JITTER_STEPS // 2
    table = np.array(HEAD_GATES, np.float64)[heads]
    a_log = table[:, 1] + steps.astype(np.float64) * _JITTER_UNIT
    return {
        "A_log": Tensor("float32", a_log.astype(np.float32)),
        "dt_bias": Tensor("float32", table[:, 0].astype(np.float32)),
    }


def _state(uuid: str, count: int) -> Tensor:
    """[count, num_v_heads, head_size (V), head_size (K)] fp32."""
    shape = (count, NUM_V_HEADS, HEAD_SIZE, HEAD_SIZE)
    values = normals_4(Stream(uuid, "state"), int(np.prod(shape)), STATE_SIGMA)
    return Tensor("float32", values.reshape(shape))


def _token_tensors(uuid: str, lead: tuple[int, ...]) -> dict[str, Tensor]:
    """q, k, v, a and b, bf16, with the leading axes ``lead``."""
    tokens = int(np.prod(lead))

    def unit(name: str) -> Tensor:
        vectors = unit_vectors_bfloat16(Stream(uuid, name), tokens * NUM_QK_HEADS, HEAD_SIZE)
        return Tensor("bfloat16", vectors.reshape(*lead, NUM_QK_HEADS, HEAD_SIZE))

    def normal(name: str, *shape: int) -> Tensor:
        count = tokens * int(np.prod(shape))
        values = normals_bfloat16(Stream(uuid, name), count)
        return Tensor("bfloat16", values.reshape(*lead, *shape))

    return {
        "q": unit("q"),
        "k": unit("k"),
        "v": normal("v", NUM_V_HEADS, HEAD_SIZE),
        "a": normal("a", NUM_V_HEADS),
        "b": normal("b", NUM_V_HEADS),
    }


def sequence_lengths(uuid: str, total: int, count: int) -> list[int]:
    """``count`` lengths of at least 1 token that sum to ``total``; log-normal before scaling."""
    return apportion(total, log_normal_weights(Stream(uuid, "cu_seqlens"), count, LENGTH_SIGMA))


def decode_tensors(row: WorkloadRow, facts: Facts) -> dict[str, Tensor]:
    """Every tensor of a gdn_decode workload."""
    batch_size = row.axes["batch_size"]
    return {
        **_token_tensors(row.uuid, (batch_size, 1)),
        **_gate_tensors(row.uuid),
        "state": _state(row.uuid, batch_size),
    }


def prefill_tensors(row: WorkloadRow, facts: Facts) -> dict[str, Tensor]:
    """Every tensor of a gdn_prefill workload; cu_seqlens is int64."""
    total, count = row.axes["total_seq_len"], row.axes["num_seqs"]
    lengths = sequence_lengths(row.uuid, total, count)
    cu_seqlens: NDArray[np.int64] = np.cumsum([0, *lengths], dtype=np.int64)
    return {
        **_token_tensors(row.uuid, (total,)),
        **_gate_tensors(row.uuid),
        "state": _state(row.uuid, count),
        "cu_seqlens": Tensor("int64", cu_seqlens),
    }
