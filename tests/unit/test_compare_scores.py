"""The contest's score and what it is not; workloads by regime; what others published."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.compare.published import PUBLISHED, Published, read_published
from harness.compare.regimes import regimes
from harness.compare.scores import (
    definitions_of_tracks,
    geometric_mean,
    ratio_of_means,
    track_score,
)
from harness.config import load_workspace
from harness.errors import DatasetError, UsageError
from harness.records import official_uuids
from tests.official_rooms import official_workspace

AVERAGES = [ratio_of_means, geometric_mean]

# --- scores ----------------------------------------------------------------------------------


def test_the_two_other_averages_differ():
    baseline_us, ours_us = [10.0, 1.0], [1.0, 2.0]
    assert ratio_of_means(baseline_us, ours_us) == pytest.approx(11 / 3)
    assert geometric_mean(baseline_us, ours_us) == pytest.approx(math.sqrt(5))


def test_one_failure_of_ours_leaves_no_average():
    assert ratio_of_means([10.0, 1.0], [1.0, None]) is None
    assert geometric_mean([10.0, 1.0], [1.0, None]) is None


@pytest.mark.parametrize("average", AVERAGES)
def test_a_baseline_that_lacks_a_workload_leaves_no_average(average):
    assert average([10.0, None], [1.0, 2.0]) is None
    assert average([None, None], [1.0, 2.0]) is None


@pytest.mark.parametrize("average", AVERAGES)
def test_latencies_that_are_none_are_refused(average):
    for baseline_us, ours_us in (([], []), ([1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0])):
        with pytest.raises(UsageError, match="same workloads"):
            average(baseline_us, ours_us)
    for wrong in (0.0, -1.0, math.inf, math.nan):
        for baseline_us, ours_us in (([wrong], [1.0]), ([1.0], [wrong])):
            with pytest.raises(UsageError, match="above 0"):
                average(baseline_us, ours_us)


_latencies = st.lists(
    st.tuples(st.floats(0.5, 5e3), st.floats(0.5, 5e3)), min_size=1, max_size=20
)  # fmt: skip


@given(_latencies)
def test_only_the_geometric_mean_keeps_its_verdict_when_the_sides_change_places(pairs):
    baseline_us, ours_us = [b for b, _ in pairs], [a for _, a in pairs]
    mean = geometric_mean(baseline_us, ours_us)
    assert mean == pytest.approx(1 / geometric_mean(ours_us, baseline_us))


@given(_latencies)
def test_averages_lie_between_the_extreme_ratios(pairs):
    ratios = [b / a for b, a in pairs]
    for average in AVERAGES:
        found = average([b for b, _ in pairs], [a for _, a in pairs])
        assert min(ratios) * (1 - 1e-9) <= found <= max(ratios) * (1 + 1e-9)


GDN = {"decode_d128": ("gdn_decode",), "prefill_d128": ("gdn_prefill",)}


def test_a_definition_that_was_not_compared_halves_a_track_of_two():
    assert track_score(GDN, {"gdn_decode": 3.0, "gdn_prefill": 5.0, "moe": 9.0}) == 4.0
    assert track_score(GDN, {"gdn_decode": 3.0}) == 1.5
    assert track_score(GDN, {}) == 0.0


def test_a_failed_definition_counts_as_zero():
    assert track_score(GDN, {"gdn_decode": 3.0, "gdn_prefill": 0.0}) == 1.5


def test_a_baseline_that_cannot_run_leaves_the_track_undefined():
    assert track_score(GDN, {"gdn_decode": 3.0, "gdn_prefill": None}) is None
    assert track_score(GDN, {"gdn_prefill": None}) is None
    alone = {"decode_d128": ("gdn_decode",)}
    assert track_score(alone, {"gdn_decode": 3.0, "gdn_prefill": None}) == 3.0


def test_of_two_rooms_with_one_definition_the_better_counts_once():
    track = {**GDN, "decode_d128": ("gdn_decode", "my_decode")}
    assert track_score(track, {"gdn_decode": 3.0, "my_decode": 4.0, "gdn_prefill": 6.0}) == 5.0
    assert track_score(track, {"gdn_decode": 3.0, "my_decode": 0.0, "gdn_prefill": 6.0}) == 4.5
    assert track_score(track, {"gdn_decode": 3.0, "gdn_prefill": 6.0}) == 4.5
    assert track_score(track, {"gdn_decode": 3.0, "my_decode": None, "gdn_prefill": 6.0}) == 4.5
    assert track_score(track, {"my_decode": None, "gdn_prefill": 6.0}) is None


def test_a_track_without_definitions_has_no_score():
    with pytest.raises(UsageError, match="at least one definition"):
        track_score({}, {"gdn_decode": 3.0})


def test_the_tracks_hold_what_config_toml_lists():
    official = dict(official_workspace().rooms)
    found = definitions_of_tracks(official)
    assert {track: list(rooms.values()) for track, rooms in found.items()} == {
        "fused_moe": [("moe",)],
        "sparse_attention": [("dsa_indexer",), ("dsa_attention",)],
        "gated_delta_net": [("gdn_decode",), ("gdn_prefill",)],
    }
    second = replace(official["gdn_decode"], name="my_decode")
    found = definitions_of_tracks({**official, "my_decode": second})
    assert list(found["gated_delta_net"].values()) == [
        ("gdn_decode", "my_decode"),
        ("gdn_prefill",),
    ]


# --- regimes ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    uuid: str
    axes: dict[str, int]


def _rows(axis: str, values: list[int]) -> list[Row]:
    return [Row(f"u-{index}", {axis: value, "heads": 8}) for index, value in enumerate(values)]


def test_few_values_are_a_regime_each_and_a_constant_axis_is_none():
    found = regimes(_rows("batch", [4, 1, 64, 1]))
    assert [(one.axis, one.label, one.uuids) for one in found] == [
        ("batch", "1", ("u-1", "u-3")),
        ("batch", "4", ("u-0",)),
        ("batch", "64", ("u-2",)),
    ]


def test_many_values_are_cut_after_the_powers_of_two():
    found = regimes(_rows("tokens", [0, 1, 2, 3, 4, 5, 8, 9, 16, 8192, 8193]))
    assert [(one.label, len(one.uuids)) for one in found] == [
        ("0", 1), ("1", 1), ("2", 1), ("3-4", 2), ("5-8", 2), ("9-16", 2), ("4097-8192", 1),
        ("8193-16384", 1),
    ]  # fmt: skip


def test_eight_values_are_still_single_and_nine_are_not():
    assert [one.label for one in regimes(_rows("n", [*range(10, 18)]))][-1] == "17"
    assert [one.label for one in regimes(_rows("n", [*range(10, 19)]))] == ["9-16", "17-32"]


@given(st.lists(st.integers(0, 1 << 20), min_size=1, max_size=40))
def test_each_workload_lies_in_one_regime_of_each_axis_that_varies(values):
    found = regimes(_rows("n", values))
    if len(set(values)) == 1:
        assert found == []
        return
    assert sorted(uuid for one in found for uuid in one.uuids) == sorted(
        f"u-{index}" for index in range(len(values))
    )
    for one in found:
        low, _, high = one.label.partition("-")
        assert all(int(low) <= values[int(uuid[2:])] <= int(high or low) for uuid in one.uuids)


def test_axes_come_in_their_order_and_some_rows_may_lack_one():
    rows = [
        Row("u-0", {"b": 1, "a": 1}),
        Row("u-1", {"b": 2, "a": 1}),
        Row("u-2", {"b": 2, "a": 2}),
    ]
    assert [one.axis for one in regimes(rows)] == ["b", "b", "a", "a"]
    assert [one.uuids for one in regimes([*rows, Row("u-3", {})])] == [
        one.uuids for one in regimes(rows)
    ]


# --- published latencies ---------------------------------------------------------------------


def test_every_official_workload_has_a_published_latency_of_another_chip():
    workspace = load_workspace()
    published = read_published(workspace.root)
    uuids = [
        uuid
        for room in workspace.contest_rooms.values()
        for uuid in official_uuids(workspace.root, room.definition)
    ]
    assert set(published) == set(uuids)
    assert all(one.paper_us is not None for one in published.values())
    assert sum(one.flashinfer_us is not None for one in published.values()) == 54 + 19
    assert "another chip" in (workspace.root / PUBLISHED).read_text().splitlines()[0]


HEAD = "# of another chip\nuuid,paper_b200_us,flashinfer_b200_us\n"


def _write(root, text):
    path = root / PUBLISHED
    path.parent.mkdir()
    path.write_text(text)


def test_an_absent_latency_is_none(tmp_path):
    _write(tmp_path, f"{HEAD}u-0,5.5,\nu-1,,7\n")
    assert read_published(tmp_path) == {"u-0": Published(5.5, None), "u-1": Published(None, 7.0)}


@pytest.mark.parametrize(
    "line", ["u-0,5.5", "u-0,5.5,7,9", "u-0,0,7", "u-0,-1,", "u-0,nan,", "u-0,inf,", "u-0,fast,"]
)
def test_a_damaged_line_is_named(tmp_path, line):
    _write(tmp_path, f"{HEAD}u-9,1,2\n{line}\n")
    with pytest.raises(DatasetError, match=rf"{PUBLISHED}:4: .*{line}"):
        read_published(tmp_path)


def test_a_missing_file_or_header_is_named(tmp_path):
    with pytest.raises(DatasetError, match="restore it from git"):
        read_published(tmp_path)
    _write(tmp_path, "uuid,flashinfer_b200_us,paper_b200_us\nu-0,1,2\n")
    with pytest.raises(DatasetError, match="expected the columns uuid,paper_b200_us"):
        read_published(tmp_path)
