"""The DSA acceptance rules, on candidates whose verdict is known by construction."""

from types import SimpleNamespace

import pytest
import torch
from flashinfer_bench.bench.evaluators import registry

from harness import evaluators
from harness.evaluators import (
    DsaSparseAttentionEvaluator,
    DsaTopkIndexerEvaluator,
    _Rejected,
    find_bad_index,
    random_key_cache,
    register,
    scores_at,
)

PAGE, HEADS, DIM = 4, 2, 8
CONFIG = SimpleNamespace(atol=1e-2, rtol=1e-2, required_matched_ratio=1.0)
DEFINITION = SimpleNamespace(
    name="dsa_topk_indexer_test",
    inputs=["q_index_fp8", "k_index_cache_fp8", "weights", "seq_lens", "block_table"],
    outputs=["output", "lse"],
    axes={"page_size": SimpleNamespace(value=PAGE), "topk": SimpleNamespace(value=6)},
)


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    return [
        torch.randn(2, HEADS, DIM).to(torch.float8_e4m3fn),
        random_key_cache((5, PAGE, 1, DIM + 4), "cpu"),
        torch.randn(2, HEADS),
        torch.tensor([7, 3], dtype=torch.int32),
        torch.tensor([[3, 1], [2, 0]], dtype=torch.int32),
    ]


def reference(inputs):
    """Top 6 by score, [2, 6], as the definition emits them."""
    values = dict(zip(DEFINITION.inputs, inputs, strict=True))
    rows = []
    for row, length in enumerate([7, 3]):
        position = torch.arange(length)
        ids = inputs[4][row].long()[position // PAGE] * PAGE + position % PAGE
        scores = scores_at(ids[None].repeat(2, 1), values, PAGE)[row]
        best = ids[scores.argsort(descending=True)][:6]
        rows.append(torch.nn.functional.pad(best, (0, 6 - len(best)), value=-1))
    return torch.stack(rows).int()


def verdict(inputs, out):
    """True where the rule accepts `out`."""
    try:
        errors = DsaTopkIndexerEvaluator.compare(
            DEFINITION, inputs, [out], [reference(inputs)], CONFIG
        )
    except _Rejected:
        return False
    return not errors[0].exceeds_tolerance


def edited(out, **cells):
    out = out.clone()
    for cell, value in cells.items():
        row, column = map(int, cell[1:].split("_"))
        out[row, column] = value
    return out


def test_the_reference_and_any_order_of_it_pass(inputs):
    best = reference(inputs)
    assert verdict(inputs, best)
    assert verdict(inputs, best.flip(1))
    assert verdict(inputs, best[:, torch.randperm(6)])


def test_equal_scores_may_be_swapped(inputs):
    cache = inputs[1].view(torch.uint8).reshape(5, -1)
    for page in (3, 1):  # every key of row 0 the same, so that all seven scores tie
        for slot in range(PAGE):
            cache[page, slot * DIM : (slot + 1) * DIM] = cache[3, :DIM]
        cache[page, PAGE * DIM :] = cache[3, PAGE * DIM : PAGE * DIM + 4].repeat(PAGE)
    best = reference(inputs)
    left_out = ({12, 13, 14, 15, 4, 5, 6} - set(best[0].tolist())).pop()
    assert verdict(inputs, edited(best, c0_0=left_out))


@pytest.mark.parametrize(
    ("cell", "value", "why"),
    [
        ("c0_0", 9, "a page of the other sequence"),
        ("c0_0", 7, "right page, position 7 of 7"),
        ("c0_0", -2, "a negative index that is not padding"),
        ("c0_0", 20, "beyond the pool"),
        ("c0_0", -1, "a winner is missing"),
        ("c1_3", 8 + 3, "position 3 of 3 in the short row"),
        ("c1_5", 0, "the padding page"),
    ],
)
def test_unreachable_or_missing_indices_fail(inputs, cell, value, why):
    assert not verdict(inputs, edited(reference(inputs), **{cell: value})), why


def test_duplicates_fail(inputs):
    best = reference(inputs)
    assert not verdict(inputs, edited(best, c0_1=int(best[0, 0])))


def test_a_loser_in_place_of_a_winner_fails(inputs):
    best = reference(inputs)
    left_out = ({12, 13, 14, 15, 4, 5, 6} - set(best[0].tolist())).pop()
    assert not verdict(inputs, edited(best, c0_0=left_out))


def test_a_repeated_page_is_named_through_its_first_slot():
    table = torch.tensor([[1, 1]])
    lengths = torch.tensor([6])
    assert find_bad_index(torch.tensor([[4, 5]]), lengths, table, PAGE) is None
    assert "row 0" in find_bad_index(torch.tensor([[8]]), lengths, table, PAGE)


def test_an_empty_row_accepts_only_padding():
    table, lengths = torch.tensor([[1]]), torch.tensor([0])
    assert find_bad_index(torch.tensor([[-1, -1]]), lengths, table, PAGE) is None
    assert find_bad_index(torch.tensor([[4, -1]]), lengths, table, PAGE)


def test_the_random_key_cache_has_the_packed_layout():
    torch.manual_seed(1)
    cache = random_key_cache((3, PAGE, 1, DIM + 4), "cpu")
    assert cache.shape == (3, PAGE, 1, DIM + 4) and cache.dtype is torch.int8
    flat = cache.view(torch.uint8).reshape(3, -1)
    keys = flat[:, : PAGE * DIM].contiguous().view(torch.float8_e4m3fn).float()
    scales = flat[:, PAGE * DIM :].contiguous().view(torch.float32)
    assert torch.isfinite(keys).all() and (scales > 0).all()
    assert keys.abs().reshape(3, PAGE, DIM).amax(dim=2).eq(448).all(), "amax maps to 448"


@pytest.mark.parametrize(
    ("got", "want", "accepted"),
    [
        (float("-inf"), float("-inf"), True),
        (float("-inf"), 1.0, False),
        (1.0, float("-inf"), False),
        (float("inf"), float("inf"), False),
        (float("nan"), 1.0, False),
        (1.005, 1.0, True),
        (1.5, 1.0, False),
    ],
)
def test_lse_by_the_definition(got, want, accepted):
    output = torch.zeros(1, 1)
    try:
        errors = DsaSparseAttentionEvaluator.compare(
            DEFINITION,
            [],
            [output, torch.tensor([[got]])],
            [output, torch.tensor([[want]])],
            CONFIG,
        )
        assert any(e.exceeds_tolerance for e in errors) != accepted
    except _Rejected:
        assert not accepted


def test_lse_may_be_left_out_by_a_value_returning_solution():
    assert len(DsaSparseAttentionEvaluator.normalize(DEFINITION, torch.zeros(1), "cpu")) == 1
    with pytest.raises(ValueError, match="3 values"):
        DsaSparseAttentionEvaluator.normalize(DEFINITION, [torch.zeros(1)] * 3, "cpu")


def test_registering_stands_down_where_the_rules_exist(monkeypatch):
    monkeypatch.setattr(registry, "_EVALUATORS", [])
    assert register() == ["DsaSparseAttentionEvaluator", "DsaTopkIndexerEvaluator"]
    assert register() == []
    official = type("DsaTopkIndexerEvaluator", (), {})
    monkeypatch.setattr(registry, "_EVALUATORS", [official])
    assert register() == ["DsaSparseAttentionEvaluator"]
    assert official in registry._EVALUATORS and evaluators.DsaTopkIndexerEvaluator is not official
