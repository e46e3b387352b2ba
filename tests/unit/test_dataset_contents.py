"""What the generated tensors hold, checked against the definitions' own rules."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.config import load_workspace
from harness.dataset import read_definition, read_workloads
from harness.dataset.blobs import DTYPES, expected_tensors, write_blob
from harness.dataset.facts import read_facts
from harness.dataset.manifest import read_manifest
from harness.dataset.paging import allocate_pages
from harness.dataset.recipes import generate
from harness.dataset.routing import expert_loads
from harness.errors import DatasetError
from tests.official_rooms import OFFICIAL_ROOMS

WORKSPACE = load_workspace()
ROOT = WORKSPACE.root
FACTS = read_facts(ROOT)


def read(room):
    return read_workloads(ROOT, WORKSPACE.room(room))


def tensors(room, row):
    return generate(WORKSPACE.room(room).definition, row, FACTS.get(row.uuid, {}))


def values(room, row):
    return {name: tensor.values for name, tensor in tensors(room, row).items()}


def as_float(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


SMALL_GDN = [("gdn_decode", 0), ("gdn_decode", 10), ("gdn_prefill", 0), ("gdn_prefill", 21)]


@pytest.mark.parametrize(
    ("room", "index"), [("moe", 2), ("dsa_indexer", 60), ("dsa_attention", 9), *SMALL_GDN]
)
def test_tensors_are_what_definition_and_axes_say(room, index):
    row = read(room)[index]
    (expected,) = expected_tensors(read_definition(ROOT, WORKSPACE.room(room)), row).values()
    made = tensors(room, row)
    assert {
        name: (tensor.dtype, tensor.values.shape, tensor.values.itemsize)
        for name, tensor in made.items()
    } == {name: (spec.dtype, spec.shape, DTYPES[spec.dtype][1]) for name, spec in expected.items()}


@pytest.mark.parametrize(
    ("room", "indices"),
    [
        ("moe", range(8)),
        ("dsa_indexer", range(0, 128, 9)),
        ("dsa_attention", range(0, 23, 3)),
        ("gdn_decode", [0, 9]),
        ("gdn_prefill", [0, 22]),
    ],
)
def test_bytes_are_those_of_the_committed_manifest(room, indices, tmp_path):
    manifest = read_manifest(ROOT)
    for index in indices:
        row = read(room)[index]
        sha256 = write_blob(tmp_path / "blob", tensors(room, row), None)
        assert sha256 == manifest[row.blob_paths[0]]


def test_the_manifest_lists_every_blob_in_official_order():
    paths = [path for room in OFFICIAL_ROOMS for row in read(room) for path in row.blob_paths]
    assert list(read_manifest(ROOT)) == paths


def test_unknown_definition_and_unfit_facts():
    row = read("dsa_indexer")[0]
    with pytest.raises(DatasetError, match="no generator"):
        generate("other", row, {})
    with pytest.raises(DatasetError, match=r"facts\.csv"):
        generate(WORKSPACE.room("dsa_indexer").definition, row, {})
    with pytest.raises(DatasetError, match="cannot hit"):
        name = WORKSPACE.room("moe").definition
        generate(name, read("moe")[1], {"experts_hit": (9,)})


# --- paged rooms -------------------------------------------------------------------------------


def test_page_tables_of_all_indexer_workloads():
    long_rows = long_rows_with_overflow = 0
    steps = []
    for row in read("dsa_indexer"):
        made = values("dsa_indexer", row)
        lengths, table = made["seq_lens"], made["block_table"]
        assert tuple(lengths) == FACTS[row.uuid]["seq_lens"]
        live = []
        for length, pages in zip(lengths.tolist(), table, strict=True):
            used = math.ceil(length / 64)
            assert (pages[used:] == 0).all()
            live.append(pages[:used])
            step = np.diff(pages[:used])
            steps.extend(step.tolist())
            if length > 2048:
                long_rows += 1
                long_rows_with_overflow += bool((step != 1).any())
        pages = np.concatenate(live)
        assert pages.min() >= 1 and pages.max() < row.axes["num_pages"]
        assert len(set(pages.tolist())) == len(pages)
    assert long_rows == 59
    assert 30 <= long_rows_with_overflow <= 50  # 42 of the captured tables
    assert 0.85 < np.mean(np.array(steps) == 1) < 0.99


def test_a_pool_that_is_too_small_is_an_error():
    with pytest.raises(ValueError, match="do not fit"):
        allocate_pages("0" * 32, [10, 10], 20)


def test_sparse_indices_of_all_attention_workloads():
    for row in read("dsa_attention"):
        indices = values("dsa_attention", row)["sparse_indices"]
        seen = set()
        for count, line in zip(FACTS[row.uuid]["valid_counts"], indices, strict=True):
            valid = line[:count]
            assert (line[count:] == -1).all()
            assert valid.min() >= 64 and valid.max() < row.axes["num_pages"] * 64
            assert len(set(valid.tolist())) == count
            if count == 1:
                assert valid.tolist() == [64]
                continue
            pages = set((valid // 64).tolist())
            assert not pages & seen and 1 not in pages
            seen |= pages
            unit_steps = np.mean(np.diff(valid) == 1)
            if count == 2048:
                assert 0.75 <= unit_steps <= 0.95
                assert (np.diff(valid) < 0).any()
            else:
                offsets = np.arange(count) % 64
                assert ((valid - offsets) % 64 == 0).all()
                assert len(pages) == math.ceil(count / 64)


# --- MoE ---------------------------------------------------------------------------------------


def top(scores, count):
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


def route(logits, bias):
    """The definition's routing, in fp32. Returns the eight experts of each token and the margins.

    margin: the smallest difference, over tokens, between what is taken and what is not.
    """
    one = np.float32(1)
    with np.errstate(over="ignore"):
        scores = one / (one + np.exp(-logits))
    biased = scores + bias
    tokens = len(logits)
    groups = biased.reshape(tokens, 8, 32)
    sums = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    kept = np.zeros((tokens, 8), bool)
    np.put_along_axis(kept, top(sums, 4), True, axis=1)
    ranked_sums = -np.sort(-sums, axis=1)
    masked = np.where(kept[:, :, None], groups, np.finfo(np.float32).min).reshape(tokens, 256)
    ranked = -np.sort(-masked, axis=1)
    margin = min((ranked_sums[:, 3] - ranked_sums[:, 4]).min(), (ranked[:, 7] - ranked[:, 8]).min())
    return top(masked, 8), top(scores, 8), margin


@pytest.mark.parametrize("index", range(19))
def test_routing_hits_the_listed_experts(index):
    row = read("moe")[index]
    made = values("moe", row)
    logits, bias = made["routing_logits"], as_float(made["routing_bias"])
    experts, without_bias, margin = route(logits, bias)
    first = row.inputs["local_expert_offset"]["value"]
    tokens = row.axes["seq_len"]
    hit = FACTS[row.uuid]["experts_hit"][0]

    local = (experts >= first) & (experts < first + 32)
    loads = np.bincount(experts[local] - first, minlength=32)
    assert np.count_nonzero(loads) == hit
    assert loads.sum() == max(tokens, hit)
    assert sorted(loads[loads > 0].tolist(), reverse=True) == expert_loads(tokens, hit)
    # No tie, and no near-tie that another sigmoid might decide otherwise.
    assert margin > 1e-4
    # The bias decides: routing that leaves it out is wrong.
    different = (np.sort(experts, axis=1) != np.sort(without_bias, axis=1)).any(axis=1)
    assert different.mean() > 0.5
    assert np.isfinite(logits).all() and np.abs(logits).max() < 8
    assert 0 < np.abs(bias).max() < 0.1
    if tokens > 10:
        assert 0.3 < np.mean(~local.any(axis=1)) < 0.7


def test_loads_follow_zipf():
    loads = expert_loads(14107, 32)
    assert sum(loads) == 14107
    expected = np.arange(1, 33) ** -0.6
    assert np.allclose(np.array(loads) / loads[0], expected, atol=1e-3)
    assert expert_loads(1, 2) == [1, 1]


# --- GDN ---------------------------------------------------------------------------------------


def gates(made):
    """Decay of each token and head, fp64, as the definition has it."""
    a, dt_bias = as_float(made["a"]).astype(np.float64), made["dt_bias"].astype(np.float64)
    rate = np.exp(made["A_log"].astype(np.float64)) * np.logaddexp(0, a + dt_bias)
    return np.exp(-rate)


@pytest.mark.parametrize(("room", "index"), SMALL_GDN)
def test_gdn_values(room, index):
    made = values(room, read(room)[index])
    for name in ("q", "k"):
        lengths = np.linalg.norm(as_float(made[name]).astype(np.float64), axis=-1)
        assert np.abs(lengths - 1).max() < 2**-8
    assert 0.9 < as_float(made["v"]).std() < 1.1
    assert 0.03 < made["state"].std() < 0.035
    assert np.isfinite(made["state"]).all() and np.abs(made["state"]).max() < 0.2
    decay = gates(made)
    assert ((decay > 0) & (decay < 1)).all()
    at_rest = np.sort(gates({**made, "a": np.zeros_like(made["a"])}).reshape(-1, 8)[0])
    assert at_rest[0] < 0.2 and at_rest[-1] > 0.998
    assert (np.diff(at_rest) > 0).all()


def test_gdn_rows_differ_from_each_other():
    first, second = (values("gdn_decode", read("gdn_decode")[index]) for index in (0, 1))
    assert all(not np.array_equal(first[name], second[name]) for name in ("q", "k", "v", "state"))
    assert not np.array_equal(first["A_log"], second["A_log"])


def test_sequence_lengths_of_all_prefill_workloads():
    from harness.dataset.gdn import sequence_lengths

    spreads = []
    for row in read("gdn_prefill"):
        total, count = row.axes["total_seq_len"], row.axes["num_seqs"]
        lengths = sequence_lengths(row.uuid, total, count)
        assert len(lengths) == count and sum(lengths) == total and min(lengths) >= 1
        if count >= 20:
            spreads.append(np.std(np.log(lengths)))
    assert 0.85 < np.mean(spreads) < 1.15


def test_prefill_cu_seqlens_are_int64_boundaries():
    row = read("gdn_prefill")[3]
    assert row.axes["num_seqs"] == 32
    from harness.dataset.gdn import sequence_lengths

    made = values("gdn_prefill", read("gdn_prefill")[21])["cu_seqlens"]
    lengths = sequence_lengths(read("gdn_prefill")[21].uuid, 32, 2)
    assert made.dtype == np.int64
    assert made.tolist() == [0, lengths[0], 32]
