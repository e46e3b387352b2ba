"""Floors against numbers worked out by hand, and the routing count against the rule in words."""

from __future__ import annotations

import numpy as np
import pytest

from harness.config import load_workspace
from harness.errors import DatasetError, UsageError
from harness.roofline import (
    DSA_ATTENTION,
    DSA_INDEXER,
    GDN_DECODE,
    GDN_PREFILL,
    MOE,
    attention_work,
    count_routing,
    count_work,
    floor_us,
    gdn_work,
    indexer_work,
    is_counted,
    moe_work,
    read_data,
)

H200 = "nvidia-h200"


@pytest.mark.parametrize(
    ("definition", "axes", "data", "expected_us"),
    [
        (GDN_DECODE, {"batch_size": 64}, {}, 16.6),
        (MOE, {"seq_len": 80}, {"experts_hit": 32, "local_assignments": 80}, 322.0),
        (MOE, {"seq_len": 1}, {"experts_hit": 2, "local_assignments": 2}, 20.9),
        (MOE, {"seq_len": 7}, {"experts_hit": 7, "local_assignments": 7}, 71.0),
        # 14107 assignments of 88 MFLOP at 1500 TFLOP/s outlast the 32 experts' weights.
        (MOE, {"seq_len": 14107}, {"experts_hit": 32, "local_assignments": 14107}, 829.0),
    ],
)
def test_known_floors(definition, axes, data, expected_us):
    assert floor_us(definition, axes, data, H200) == pytest.approx(expected_us, rel=2e-3)


def test_mean_floor_over_the_decode_workloads():
    counts = {1: 10, 4: 8, 8: 7, 16: 7, 32: 7, 48: 7, 64: 8}
    floors_us = [
        floor_us(GDN_DECODE, {"batch_size": batch}, {}, H200)
        for batch, count in counts.items()
        for _ in range(count)
    ]
    assert len(floors_us) == 54
    assert sum(floors_us) / 54 == pytest.approx(6.7, abs=0.06)


def test_floors_are_unknown_where_nobody_measured():
    for device in ("nvidia-b200", "cpu"):
        assert floor_us(GDN_DECODE, {"batch_size": 1}, {}, device) is None


def test_decode_moves_each_state_in_and_out():
    work = gdn_work(tokens=1, sequences=1)
    states = 2 * 8 * 128 * 128 * 4
    token = 2 * 4 * 128 * 2 + 2 * 8 * 128 * 2 + 2 * 8 * 2  # q, k; v, output; a, b
    assert work.bytes_moved == states + token + 2 * 8 * 4  # A_log, dt_bias
    assert work.flops == 3 * 2 * 8 * 128 * 128


def test_a_prefill_is_bound_by_its_bytes():
    axes = {"total_seq_len": 8192, "num_seqs": 57}
    work = count_work(GDN_PREFILL, axes, {})
    assert work.bytes_moved / 4.28e12 > work.flops / 790e12
    assert floor_us(GDN_PREFILL, axes, {}, H200) == pytest.approx(26.6, rel=1e-2)


def test_the_copy_bandwidth_binds_from_a_third_written_on():
    reads = floor_us(MOE, {"seq_len": 1}, {"experts_hit": 1, "local_assignments": 1}, H200)
    work = moe_work(1, 1, 1)
    assert reads == pytest.approx(0.80 + work.bytes_moved / 4.39e6)
    copies = gdn_work(1, 1)
    assert floor_us(GDN_DECODE, {"batch_size": 1}, {}, H200) == pytest.approx(
        0.80 + copies.bytes_moved / 4.28e6
    )


def test_moe_reads_an_expert_once_and_only_tokens_that_need_it():
    one, two = moe_work(8, 1, 8, tokens_hit=8), moe_work(8, 2, 8, tokens_hit=8)
    weights = 4096 * 7168 + 7168 * 2048
    scales = 4 * (32 * 56 + 56 * 16)
    assert two.bytes_read - one.bytes_read == weights + scales
    assert one.flops == 8 * 2 * weights
    # Eight assignments may all belong to one token: the floor may not assume more.
    assert moe_work(8, 1, 8).bytes_read == moe_work(8, 1, 8, tokens_hit=1).bytes_read


def test_short_indexer_rows_need_no_keys():
    short = indexer_work([2048, 1])
    assert short.flops == 0
    assert short.bytes_read == (2 + 32 + 1) * 4  # lengths and page tables
    assert short.bytes_written == 2 * 2048 * 4


def test_a_long_indexer_row_reads_132_bytes_and_multiplies_64_heads_a_token():
    long, longer = indexer_work([2112]), indexer_work([2176])
    assert longer.bytes_read - long.bytes_read == 64 * 132 + 4
    assert longer.flops - long.flops == 64 * 64 * 128 * 2
    assert long.bytes_read == 2112 * 132 + 64 * 128 + 64 * 4 + 4 + 33 * 4


def test_attention_gathers_each_distinct_row_once():
    apart, shared = attention_work([100, 100]), attention_work([100, 100], distinct_rows=100)
    assert apart.bytes_read - shared.bytes_read == 100 * 1152
    assert apart.flops == shared.flops == 200 * 16 * 2 * (576 + 512)
    assert attention_work([0]).bytes_written == 16 * 512 * 2 + 16 * 4


def test_floors_are_unknown_where_nobody_counted():
    assert floor_us("softmax_h8", {"batch_size": 1}, {}, H200) is None


def test_missing_facts_and_definitions_are_named():
    with pytest.raises(UsageError, match=r"moe.*experts_hit"):
        floor_us(MOE, {"seq_len": 1}, {}, H200)
    with pytest.raises(UsageError, match=r"softmax_h8: expected .*dsa_sparse_attention_h16"):
        count_work("softmax_h8", {}, {})


def test_every_definition_of_the_workspace_is_counted():
    for room in load_workspace().rooms.values():
        assert is_counted(room.definition)


def _count_in_words(logits, bias, offset):
    hit, assignments, tokens = set(), 0, 0
    for row in logits:
        biased = 1.0 / (1.0 + np.exp(-row.astype(np.float64))) + bias
        groups = sorted(
            range(8), key=lambda g: -sum(sorted(biased[32 * g : 32 * g + 32])[-2:])
        )[:4]  # fmt: skip
        allowed = [e for e in range(256) if e // 32 in groups]
        chosen = sorted(allowed, key=lambda e: -biased[e])[:8]
        local = [e - offset for e in chosen if 0 <= e - offset < 32]
        hit |= set(local)
        assignments += len(local)
        tokens += bool(local)
    return {"experts_hit": len(hit), "local_assignments": assignments, "tokens_hit": tokens}


@pytest.mark.parametrize("offset", [0, 96, 224])
def test_routing_is_counted_as_the_definition_routes(offset):
    rng = np.random.default_rng(offset)
    logits = rng.standard_normal((40, 256)).astype(np.float32)
    bias = (0.2 * rng.standard_normal(256)).astype(np.float32)
    counts = count_routing(logits, bias, offset)
    assert counts == _count_in_words(logits, bias, offset)
    assert 0 < counts["tokens_hit"] <= counts["local_assignments"]


def test_routing_survives_scores_that_underflow():
    logits = np.full((1, 256), -200.0, np.float32)
    bias = np.zeros(256, np.float32)
    bias[[0, 1, 32, 33, 64, 65, 96, 97]] = 1.0
    assert count_routing(logits, bias, 32)["local_assignments"] == 2


def _write(path, **tensors):
    import torch
    from safetensors.torch import save_file

    save_file({name: torch.as_tensor(value) for name, value in tensors.items()}, path)


def _file(path, *keys):
    return {key: {"type": "safetensors", "path": path, "tensor_key": key} for key in keys}


def test_facts_are_read_from_the_workloads_files(tmp_path):
    import torch

    rng = np.random.default_rng(0)
    logits = rng.standard_normal((5, 256)).astype(np.float32)
    bias = torch.tensor(rng.standard_normal(256)).bfloat16()
    _write(tmp_path / "moe", routing_logits=logits, routing_bias=bias)
    inputs = {
        **_file("moe", "routing_logits", "routing_bias"),
        "local_expert_offset": {"type": "scalar", "value": 64},
    }
    assert read_data(MOE, inputs, tmp_path) == _count_in_words(
        logits, bias.double().numpy(), 64
    )  # fmt: skip

    indices = np.full((2, 2048), -1, np.int32)
    indices[0, [0, 5]] = 64, 65
    indices[1, 2047] = 64
    _write(tmp_path / "attention", sparse_indices=indices)
    data = read_data(DSA_ATTENTION, _file("attention", "sparse_indices"), tmp_path)
    assert data == {"valid_counts": [2, 1], "distinct_rows": 2}

    _write(tmp_path / "indexer", seq_lens=np.array([3, 2049], np.int32))
    data = read_data(DSA_INDEXER, _file("indexer", "seq_lens"), tmp_path)
    assert data == {"seq_lens": [3, 2049]}
    assert read_data(GDN_DECODE, {}, tmp_path) == {}


def test_a_missing_or_damaged_file_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"absent.*seq_lens.*dataset make"):
        read_data(DSA_INDEXER, _file("absent", "seq_lens"), tmp_path)
    (tmp_path / "torn").write_bytes(b"\x00" * 20)
    with pytest.raises(DatasetError, match="torn"):
        read_data(DSA_INDEXER, _file("torn", "seq_lens"), tmp_path)
    _write(tmp_path / "other", block_table=np.zeros((1, 1), np.int32))
    with pytest.raises(DatasetError, match="seq_lens"):
        read_data(DSA_INDEXER, _file("other", "seq_lens"), tmp_path)
