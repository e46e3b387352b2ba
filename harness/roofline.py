"""Bytes and flops that a workload needs, and how fast a measured device could be at best.

    floor = launch + max(bytes / bandwidth, flops / rate)

Counted is what every correct kernel must move once from and to device memory, with inputs cold,
and the multiplications that no formulation avoids; caches, scratch and padding cost nothing. A
floor is therefore a lower bound, not a forecast. Pure functions of the axes and of the few facts
about a workload's data that decide how much work it is. A floor belongs to a definition: all
rooms that answer it have the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.config import DSA_PREFILL
from harness.errors import DatasetError, UsageError
from harness.ranges import TOPK, row_ranges

FP32_BYTES, INT32_BYTES, INT64_BYTES, BF16_BYTES = 4, 4, 8, 2
COPY_SHARE = 1 / 3  # from this share of written bytes on, the copy bandwidth binds
MOE = "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048"
DSA_INDEXER = "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64"
DSA_ATTENTION = "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64"
GDN_DECODE = "gdn_decode_qk4_v8_d128_k_last"
GDN_PREFILL = "gdn_prefill_qk4_v8_d128_k_last"

LAUNCH, READ, COPY = "launch", "memory (read)", "memory (copy)"  # what may bind, beside operands

HEAD_SIZE = 128  # gdn
QK_HEADS, V_HEADS = 4, 8

HIDDEN, INTERMEDIATE = 7168, 2048  # moe
NUM_EXPERTS, NUM_LOCAL_EXPERTS, NUM_GROUPS, KEPT_GROUPS, EXPERTS_PER_TOKEN = 256, 32, 8, 4, 8
SCALE_BLOCK = 128

QO_HEADS, CKV_DIM, KPE_DIM = 16, 512, 64  # dsa_attention
INDEX_HEADS, INDEX_DIM, PAGE_SIZE = 64, 128, 64  # dsa_indexer


@dataclass(frozen=True)
class Ceilings:
    """Measured limits of one device: launch_us, bytes a second, flops a second by operand type."""

    launch_us: float
    read_bandwidth: float
    copy_bandwidth: float
    flop_rates: Mapping[str, float]


CEILINGS = {
    # One kernel that stores a word per CTA; streaming read and copy; 8192³ matrix products.
    "nvidia-h200": Ceilings(0.80, 4.39e12, 4.28e12, {"bf16": 790e12, "fp8": 1500e12}),
}


@dataclass(frozen=True)
class Work:
    """What a workload costs any kernel. operands: the type that the flops may use."""

    bytes_read: int
    bytes_written: int
    flops: int
    operands: str

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True)
class Floor:
    """Least latency of a workload on a device in µs, and what binds it, the largest of three:
    LAUNCH, the bytes (READ or COPY), the flops (by the type of their operands)."""

    latency_us: float
    roof: str


def gdn_work(tokens: int, sequences: int) -> Work:
    """Gated delta rule: each state is read and written once, whatever the sequence's length.

    Flops: the three products of a token with the state, k·S, q·S and k⊗δ, of 2·128² each and for
    every v head. Recurrent and chunked forms both need them; the terms inside a chunk depend on
    its size and are left out.
    """
    state_bytes = sequences * V_HEADS * HEAD_SIZE * HEAD_SIZE * FP32_BYTES
    value_bytes = tokens * V_HEADS * HEAD_SIZE * BF16_BYTES  # v, and likewise the output
    query_key_bytes = 2 * tokens * QK_HEADS * HEAD_SIZE * BF16_BYTES
    gate_bytes = 2 * tokens * V_HEADS * BF16_BYTES + 2 * V_HEADS * FP32_BYTES
    return Work(
        bytes_read=state_bytes + value_bytes + query_key_bytes + gate_bytes,
        bytes_written=state_bytes + value_bytes,
        flops=tokens * V_HEADS * 3 * 2 * HEAD_SIZE * HEAD_SIZE,
        operands="bf16",
    )


def gdn_prefill_work(tokens: int, sequences: int) -> Work:
    """As gdn_work, and cu_seqlens."""
    work = gdn_work(tokens, sequences)
    offsets_bytes = (sequences + 1) * INT64_BYTES
    return Work(
        work.bytes_read + offsets_bytes, work.bytes_written, work.flops, work.operands
    )  # fmt: skip


def moe_work(
    tokens: int, experts_hit: int, local_assignments: int, tokens_hit: int | None = None
) -> Work:
    """Routed experts: only the weights of experts that were hit, only the tokens with one.

    tokens_hit: tokens with a local expert; None takes the fewest that local_assignments allow.
    """
    if tokens_hit is None:
        tokens_hit = -(-local_assignments // EXPERTS_PER_TOKEN)
    weights = 3 * INTERMEDIATE * HIDDEN  # gate and up, then down; one byte each
    scale_bytes = weights // SCALE_BLOCK**2 * FP32_BYTES
    routing_bytes = tokens * NUM_EXPERTS * FP32_BYTES + NUM_EXPERTS * BF16_BYTES
    hidden_bytes = tokens_hit * (HIDDEN + HIDDEN // SCALE_BLOCK * FP32_BYTES)
    return Work(
        bytes_read=experts_hit * (weights + scale_bytes) + routing_bytes + hidden_bytes,
        bytes_written=tokens * HIDDEN * BF16_BYTES,
        flops=local_assignments * 2 * weights,
        operands="fp8",
    )


def attention_work(valid_counts: Sequence[int], distinct_rows: int | None = None) -> Work:
    """Sparse attention over gathered rows of ckv and kpe; one count a query token.

    distinct_rows: cache rows named by any token; None takes every count as rows of its own.
    All indices are read: padding may stand anywhere.
    """
    tokens, valid = len(valid_counts), sum(valid_counts)
    row_bytes = (CKV_DIM + KPE_DIM) * BF16_BYTES
    rows = valid if distinct_rows is None else distinct_rows
    return Work(
        bytes_read=rows * row_bytes + tokens * (QO_HEADS * row_bytes + TOPK * INT32_BYTES),
        bytes_written=tokens * QO_HEADS * (CKV_DIM * BF16_BYTES + FP32_BYTES),
        flops=valid * QO_HEADS * 2 * (CKV_DIM + KPE_DIM + CKV_DIM),
        operands="bf16",
    )


def indexer_work(seq_lens: Sequence[int]) -> Work:
    """Exact top-2048: a row of at most 2048 tokens selects all and needs no scores.

    A longer row reads its keys with their scales, its query and its head weights.
    """
    long_rows = [length for length in seq_lens if length > TOPK]
    query_bytes = INDEX_HEADS * (INDEX_DIM + FP32_BYTES)
    pages = sum(-(-length // PAGE_SIZE) for length in seq_lens)
    return Work(
        bytes_read=sum(long_rows) * (INDEX_DIM + FP32_BYTES)
        + len(long_rows) * query_bytes
        + (len(seq_lens) + pages) * INT32_BYTES,
        bytes_written=len(seq_lens) * TOPK * INT32_BYTES,
        flops=sum(long_rows) * INDEX_HEADS * INDEX_DIM * 2,
        operands="fp8",
    )


def prefill_indexer_work(starts: NDArray[np.int32], ends: NDArray[np.int32], keys: int) -> Work:
    """Exact top-2048 of each range [start, end) of `keys` keys; one of at most 2048 selects all
    and needs no scores.

    Queries and head weights of longer ranges are read, and each key that any of these holds, once.
    """
    lengths = np.maximum(ends - starts, 0).astype(np.int64)
    is_long = lengths > TOPK
    steps = np.zeros(keys + 1, np.int64)  # of how many long ranges hold a key
    np.add.at(steps, starts[is_long], 1)
    np.add.at(steps, ends[is_long], -1)
    keys_read = int((np.cumsum(steps) > 0).sum())
    query_bytes = INDEX_HEADS * (INDEX_DIM + FP32_BYTES)
    return Work(
        bytes_read=keys_read * (INDEX_DIM + FP32_BYTES)
        + int(is_long.sum()) * query_bytes
        + 2 * len(lengths) * INT32_BYTES,
        bytes_written=len(lengths) * TOPK * INT32_BYTES,
        flops=int(lengths[is_long].sum()) * INDEX_HEADS * INDEX_DIM * 2,
        operands="fp8",
    )


_WORK: dict[str, Callable[[Mapping[str, int], Mapping[str, Any]], Work]] = {
    MOE: lambda axes, data: moe_work(
        axes["seq_len"], data["experts_hit"], data["local_assignments"], data.get("tokens_hit")
    ),
    DSA_INDEXER: lambda _, data: indexer_work(data["seq_lens"]),
    DSA_ATTENTION: lambda _, data: attention_work(data["valid_counts"], data.get("distinct_rows")),
    GDN_DECODE: lambda axes, _: gdn_work(axes["batch_size"], axes["batch_size"]),
    GDN_PREFILL: lambda axes, _: gdn_prefill_work(axes["total_seq_len"], axes["num_seqs"]),
    DSA_PREFILL: lambda axes, _: prefill_indexer_work(*row_ranges(axes), axes["num_keys"]),
}


def is_counted(definition: str) -> bool:
    """Whether this module knows what a definition's workloads must move and multiply."""
    return definition in _WORK


def needs_data(definition: str) -> bool:
    """Whether a workload's axes alone do not say how much work it is: `read_data` reads files."""
    return definition in (MOE, DSA_INDEXER, DSA_ATTENTION)


def count_work(definition: str, axes: Mapping[str, int], data: Mapping[str, Any]) -> Work:
    """Bytes and flops of one workload.

    data: what `read_data` returns: MOE experts_hit, local_assignments (tokens_hit); DSA_INDEXER
    seq_lens; DSA_ATTENTION valid_counts (distinct_rows); nothing for the others.
    Raises UsageError for a definition that nobody counted and for a missing fact.
    """
    if not is_counted(definition):
        raise UsageError(
            f"{definition}: expected a definition whose bytes and flops were counted, "
            f"{', '.join(_WORK)}; count its work in harness/roofline.py"
        )
    try:
        return _WORK[definition](axes, data)
    except KeyError as error:
        raise UsageError(
            f"roofline of {definition}: expected {error.args[0]} among the axes and data, got "
            f"{', '.join([*axes, *data]) or 'nothing'}"
        ) from error


def find_floor(work: Work, ceilings: Ceilings) -> Floor:
    """The floor of that work on a device with those ceilings, and what binds it there."""
    copies = work.bytes_written >= COPY_SHARE * work.bytes_moved
    bandwidth = ceilings.copy_bandwidth if copies else ceilings.read_bandwidth
    memory_us = work.bytes_moved / bandwidth * 1e6
    flops_us = work.flops / ceilings.flop_rates[work.operands] * 1e6
    roofs = {
        LAUNCH: ceilings.launch_us,
        COPY if copies else READ: memory_us,
        work.operands: flops_us,
    }
    binding = max(roofs, key=lambda roof: roofs[roof])
    return Floor(ceilings.launch_us + max(memory_us, flops_us), binding)


def floor_us(
    definition: str, axes: Mapping[str, int], data: Mapping[str, Any], device: str
) -> float | None:
    """Least latency of one workload in µs.

    None on a device whose ceilings nobody measured, and for a definition that nobody counted.
    """
    ceilings = CEILINGS.get(device)
    if ceilings is None or not is_counted(definition):
        return None
    return find_floor(count_work(definition, axes, data), ceilings).latency_us


def count_routing(
    logits: NDArray[np.float32], bias: NDArray[np.float32], local_expert_offset: int
) -> dict[str, int]:
    """What the routing rule sends to the local experts.

    logits: [T, 256] fp32. bias: [256] fp32. Groups of 32 rank by the sum of their two best biased
    scores, four are kept, and the eight best of those are the token's experts.
    """
    with np.errstate(over="ignore"):  # exp of a very negative logit: the score is 0
        scores = 1.0 / (1.0 + np.exp(-logits.astype(np.float32))) + bias.astype(np.float32)
    grouped = scores.reshape(len(scores), NUM_GROUPS, -1)
    group_scores = np.sort(grouped, axis=2)[:, :, -2:].sum(axis=2)
    dropped = np.argsort(-group_scores, axis=1, kind="stable")[:, KEPT_GROUPS:]
    np.put_along_axis(grouped, dropped[:, :, None], np.finfo(np.float32).min, axis=1)
    experts = np.argsort(-grouped.reshape(scores.shape), axis=1, kind="stable")
    local = experts[:, :EXPERTS_PER_TOKEN] - local_expert_offset
    is_local = (local >= 0) & (local < NUM_LOCAL_EXPERTS)
    return {
        "experts_hit": len(np.unique(local[is_local])),
        "local_assignments": int(is_local.sum()),
        "tokens_hit": int(is_local.any(axis=1).sum()),
    }


def read_data(
    definition: str, inputs: Mapping[str, Mapping[str, Any]], root: Path
) -> dict[str, Any]:
    """The facts that `count_work` needs of a workload, from its files.

    inputs: the workload's official input descriptions. root: the data set's. Raises DatasetError
    where a tensor is missing.
    """
    if definition == MOE:
        offset = int(inputs["local_expert_offset"]["value"])
        logits, bias = (
            _read_tensor(inputs[name], root) for name in ("routing_logits", "routing_bias")
        )
        return dict(count_routing(logits, bias, offset))
    if definition == DSA_INDEXER:
        return {"seq_lens": _read_tensor(inputs["seq_lens"], root).tolist()}
    if definition == DSA_ATTENTION:
        indices = _read_tensor(inputs["sparse_indices"], root)
        return {
            "valid_counts": (indices != -1).sum(axis=1).tolist(),
            "distinct_rows": len(np.unique(indices[indices != -1])),
        }
    return {}


def _read_tensor(spec: Mapping[str, Any], root: Path) -> NDArray[Any]:
    """One tensor of a safetensors file; bfloat16 becomes fp32, which numpy has."""
    from safetensors import SafetensorError, deserialize

    path, key = root / str(spec["path"]), str(spec["tensor_key"])
    try:
        tensors = dict(deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
        entry = tensors[key]
    except (OSError, KeyError, SafetensorError) as error:
        raise DatasetError(
            f"{path}: cannot read {key}: {error!r}; run `python -m harness dataset make`"
        ) from error
    if entry["dtype"] == "BF16":
        bits = np.frombuffer(entry["data"], "<u2").astype(np.uint32) << 16
        return bits.view(np.float32).reshape(entry["shape"])
    kind = {"F32": "<f4", "I32": "<i4", "I64": "<i8"}[entry["dtype"]]
    return np.frombuffer(entry["data"], kind).reshape(entry["shape"])
