"""What a failure report says, on mismatches built by hand."""

import math

import pytest
import torch

from harness.evaluate.diagnosis import (
    describe_mismatch,
    describe_reference,
    dump_inputs,
    is_finite,
)

NAN, INF = float("nan"), float("inf")


def describe(got, want, ratio=1.0, name="output"):
    return describe_mismatch(name, torch.tensor(got), torch.tensor(want), 0.01, 0.01, ratio)


@pytest.mark.parametrize(
    ("got", "want", "accepted"),
    [
        (1.0, 1.0, True),
        (1.005, 1.0, True),
        (100.5, 100.0, True),  # relative error saves it
        (0.009, 0.0, True),  # absolute error saves it
        (1.5, 1.0, False),
        (NAN, 1.0, False),
        (1.0, NAN, False),
        (NAN, NAN, True),
        (INF, INF, True),
        (-INF, INF, False),
        (-INF, -INF, True),
        (INF, 1.0, False),
    ],
)
def test_one_element(got, want, accepted):
    assert (describe([got], [want]) is None) == accepted


def test_an_empty_tensor_is_accepted():
    assert describe([], []) is None


def test_first_and_worst_elements_are_named_with_both_values():
    want = torch.zeros(4, 5)
    got = want.clone()
    got[1, 2], got[3, 4] = 0.5, -7.0
    text = describe_mismatch("new_state", got, want, 0.01, 0.01, 1.0)
    assert "new_state: 2 of 20" in text
    assert "first at [1, 2]" in text
    assert "worst at [3, 4]: expected 0, got -7" in text


def test_the_allowed_count_is_shown_and_honoured():
    want, got = torch.zeros(64), torch.zeros(64)
    got[0] = 1.0
    assert "allowed 0" in describe_mismatch("o", got, want, 0.01, 0.01, 0.999)
    want, got = torch.zeros(64_000), torch.zeros(64_000)
    got[:64] = 1.0
    assert describe_mismatch("o", got, want, 0.01, 0.01, 0.999) is None
    got[:65] = 1.0
    assert "allowed 64" in describe_mismatch("o", got, want, 0.01, 0.01, 0.999)


def test_a_nan_is_never_within_the_allowance():
    want, got = torch.zeros(1000), torch.zeros(1000)
    got[5] = NAN
    assert "[5]" in describe_mismatch("o", got, want, 0.01, 0.01, 0.9)


def test_chunks_do_not_change_the_verdict(monkeypatch):
    want = torch.zeros(1000)
    got = want.clone()
    got[777] = 3.0
    whole = describe_mismatch("o", got, want, 0.01, 0.01, 1.0)
    monkeypatch.setattr("harness.evaluate.diagnosis.CHUNK_ELEMENTS", 64)
    assert describe_mismatch("o", got, want, 0.01, 0.01, 1.0) == whole
    assert "[777]" in whole


def test_shape_and_dtype_are_compared_first():
    text = describe_mismatch("o", torch.zeros(2), torch.zeros(3), 1, 1, 1.0)
    assert "(3,)" in text and "(2,)" in text
    assert "float16" in describe_mismatch("o", torch.zeros(2).half(), torch.zeros(2), 1, 1, 1.0)


@pytest.mark.parametrize(
    ("factor", "words"), [(math.log(2.0), "1.442695"), (math.log2(math.e), "0.693147")]
)
def test_the_wrong_base_of_lse_is_recognised(factor, words):
    want = torch.linspace(2.0, 9.0, 16)
    text = describe_mismatch("lse", want * factor, want, 0.01, 0.01, 1.0)
    assert words in text and "base" in text
    assert "base" not in describe_mismatch("output", want * factor, want, 0.01, 0.01, 1.0)


def test_a_reference_with_nan_is_reported_with_its_share():
    bad = torch.tensor([1.0] * 9 + [NAN])
    assert "10 %" in describe_reference(["output"], [bad])
    assert describe_reference(["output"], [torch.ones(3)]) is None
    assert describe_reference(["topk_indices"], [torch.tensor([1])]) is None
    assert describe_reference(["lse"], [torch.tensor([-INF])]) is None
    assert describe_reference(["lse"], [torch.tensor([INF])])


def test_is_finite_reads_integers_as_finite():
    assert is_finite(torch.tensor([1])) and not is_finite(torch.tensor([1.0, INF]))


def test_dumped_inputs_can_be_read_back(tmp_path):
    from safetensors import safe_open

    path = dump_inputs(
        str(tmp_path / "new"), "room-uuid-trial1", ["x", "scale"], [torch.ones(3), 0.5]
    )
    with safe_open(path, framework="pt") as stored:
        assert torch.equal(stored.get_tensor("x"), torch.ones(3))
        assert stored.metadata() == {"scale": "0.5"}
    assert not list(tmp_path.rglob("*.partial"))
