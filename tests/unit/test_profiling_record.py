"""Profile records: what a row says, strict reading, merging, and their table."""

import json
from dataclasses import replace

import pytest

from harness.errors import RecordError
from harness.profiling.display import describe_limiters, describe_row, describe_shares
from harness.profiling.record import (
    all_profiles,
    find_profile,
    load_profile,
    merge,
    profile_path,
    write_profile,
)
from harness.profiling.shares import KernelShare
from harness.report.document import tables_of
from harness.report.profiles import profiles_table, write_profiles
from harness.report.publish import compose, render
from tests.sample_evidence import evidence
from tests.sample_profile import COUNTED, DENIED, LIMITS, MERGE, SPLIT, profile_record, profile_row


def torch_only(**changes):
    return profile_row(launches=None, no_launches=DENIED, **changes)


def ncu_only(**changes):
    return profile_row(shares=None, no_shares="not asked for", **changes)


# Rows


def test_a_row_says_what_dominates_and_what_bounds_and_limits_it():
    row = profile_row()
    assert (row.dominant, row.dominant_share) == ("split", 0.8)
    assert (row.kind, row.limiters) == ("latency", ("grid",))
    assert row.headroom == pytest.approx(5.0)
    assert row.kernel == COUNTED
    assert describe_shares(row) == "split 80.0 %, merge x 2 20.0 %"
    line = describe_row(row)
    assert line.startswith("2207f0fd num_tokens 8: 10.50 us (5.00 x floor); split 80.0 %")
    assert line.endswith("limited by grid")


def test_without_ncu_a_row_keeps_the_shares_and_what_the_trace_knows_of_the_launch():
    row = torch_only()
    assert (row.dominant, row.dominant_share, row.kind) == ("split", 0.8, None)
    assert row.limiters == ("grid",)
    kernel = row.kernel
    assert (kernel.grid_blocks, kernel.registers_per_thread) == (64, 126)
    assert kernel.waves_per_sm is None and kernel.spills is None
    assert "bound by unknown (no counters, 5.00 x the floor)" in describe_row(row)


def test_without_torch_profiler_the_longest_kernel_dominates_and_has_no_share():
    merging = replace(COUNTED, name="merge", duration_us=5.0)
    row = ncu_only(launches=(merging, COUNTED, merging))
    assert (row.dominant, row.dominant_share) == ("merge", None)
    assert row.kernel == merging
    assert describe_shares(row) == "merge -"


def test_small_kernels_are_counted_together():
    many = [KernelShare(f"k{i}", 1, 1.0, 0.01) for i in range(10)]
    row = profile_row(shares=(replace(SPLIT, share=0.9), *many))
    assert describe_shares(row) == "split 90.0 %, 10 others 10 %"
    even = [KernelShare(f"k{i}", 1, 1.0, 0.02) for i in range(50)]
    assert describe_shares(profile_row(shares=tuple(even))) == "k0 2.00 %, 49 others 98 %"


def test_a_limit_is_unknown_or_nothing_or_named():
    assert describe_limiters(profile_row()) == "grid"
    unknown = replace(SPLIT, grid_blocks=None)
    assert describe_limiters(torch_only(shares=(unknown, MERGE))) == "unknown"
    full = replace(COUNTED, waves_per_sm=2.0, limit_warps=1)
    assert describe_limiters(profile_row(launches=(full,))) == "nothing"


# Files


def test_a_record_is_read_as_it_was_written(tmp_path):
    rows = profile_row(), torch_only(uuid="b", floor_us=None, roof=None), ncu_only(uuid="c")
    record = profile_record(*rows)
    path = write_profile(record, tmp_path)
    assert path == tmp_path / "results/profiles/nvidia-h200/moe.json"
    assert load_profile(path) == record
    assert all_profiles(tmp_path) == [record]
    assert len(path.read_text().splitlines()) == 14 + len(rows)
    assert find_profile(tmp_path, "nvidia-h200", "gdn_decode") is None


def test_what_is_missing_is_null_and_never_zero(tmp_path):
    launch = replace(COUNTED, dram_share=None, spills=None)
    path = write_profile(profile_record(profile_row(launches=(launch,))), tmp_path)
    (kept,) = json.loads(path.read_text())["workloads"][0]["launches"]
    assert kept["dram_share"] is None and kept["spills"] is None
    assert load_profile(path).workloads[0].launches == (launch,)


def damaged(**changes):
    """A record's JSON values with some exchanged: row__kind is the kind of its row."""
    values = profile_record().to_json()
    row = values["workloads"][0]
    parts = {"record": values, "row": row, "share": row["shares"][0], "launch": row["launches"][0]}
    for place, value in changes.items():
        part, _, key = place.partition("__")
        parts[part][key] = value
    return values


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"record__extra": 1}, "extra: expected no such key"),
        ({"record__workloads": []}, "at least one"),
        ({"record__solution_sha256": "a"}, "solution_sha256"),
        ({"row__kind": "slow"}, "kind: expected one of launch, latency"),
        ({"row__limiters": ["luck"]}, "limiters: expected some of grid"),
        ({"row__latency_us": 0.0}, "latency_us"),
        ({"row__floor_us": None}, "roof: expected one of .* beside a floor"),
        ({"row__roof": "luck"}, "roof"),
        ({"row__shares": None}, "no_shares: expected a reason"),
        ({"row__shares": [], "row__no_shares": "why"}, "shares: expected at least one, or null"),
        ({"row__no_launches": "why"}, "no_launches: expected a reason"),
        ({"row__shares": None, "row__no_shares": "a", "row__launches": None,
          "row__no_launches": "b"}, "shares: expected shares or launches"),
        ({"row__dominant": "merge"}, "dominant: expected the kernel that takes most"),
        ({"row__dominant_share": 0.7}, "dominant: expected the kernel that takes most"),
        ({"row__measured_at": "today"}, "measured_at"),
        ({"row__axes": {"num_tokens": -1}}, "axes"),
        ({"share__share": 0.5}, "shares that add up to 1"),
        ({"share__launches": 0}, r"shares\[0\].launches"),
        ({"launch__spills": 1.5}, r"launches\[0\].spills"),
        ({"launch__dram_share": 20.0}, r"launches\[0\].dram_share"),
        ({"launch__extra": 1}, "extra"),
    ],
)  # fmt: skip
def test_a_damaged_record_is_refused_by_file_and_key(tmp_path, changes, words):
    path = profile_path(tmp_path, "nvidia-h200", "moe")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(damaged(**changes)))
    with pytest.raises(RecordError, match=f"moe.json: .*{words}"):
        load_profile(path)


def test_a_missing_key_is_refused(tmp_path):
    values = profile_record().to_json()
    del values["workloads"][0]["launches"][0]["spills"]
    with pytest.raises(RecordError, match=r"spills: expected int, got 'nothing'"):
        profile_record().from_json(values)


def test_a_record_under_another_name_is_refused(tmp_path):
    path = write_profile(profile_record(), tmp_path)
    moved = path.rename(path.with_name("gdn_decode.json"))
    with pytest.raises(RecordError, match="holds moe on nvidia-h200"):
        load_profile(moved)


# Merging

ORDER = ("a", "b", "c")


def merged(old, new):
    return merge(old, new, ORDER, LIMITS)


def test_workloads_are_added_in_official_order():
    old = profile_record(profile_row("c"), profile_row("a"))
    new = profile_record(profile_row("b"), commit="abcdef0")
    found = merged(old, new)
    assert [row.uuid for row in found.workloads] == ["a", "b", "c"]
    assert found.commit == "abcdef0"
    assert merged(None, new) == new


def test_what_one_tool_found_joins_what_the_other_had_found():
    for first, second in ((torch_only(uuid="a"), ncu_only(uuid="a")),
                          (ncu_only(uuid="a"), torch_only(uuid="a"))):  # fmt: skip
        (row,) = merged(profile_record(first), profile_record(second)).workloads
        assert row == profile_row("a")


def test_new_evidence_replaces_old():
    old = profile_row("a", launches=(replace(COUNTED, waves_per_sm=3.0),), latency_us=99.0)
    (row,) = merged(profile_record(old), profile_record(profile_row("a"))).workloads
    assert row == profile_row("a")


def test_an_import_keeps_the_latency_and_the_machine_that_are_known():
    old = profile_record(torch_only(uuid="a"))
    table = ncu_only(uuid="a", latency_us=None)
    imported = profile_record(table, driver=None, hardware="nvidia-h200", libraries={})
    found = merged(old, imported)
    assert (found.driver, found.hardware) == ("580.1", "NVIDIA H200")
    assert found.workloads == (profile_row("a"),)


@pytest.mark.parametrize("key", ["solution_sha256", "device"])
def test_nothing_is_kept_of_other_content_or_another_device(key):
    old = profile_record(profile_row("a"), **{key: "b" * 64})
    new = profile_record(profile_row("b"))
    assert merged(old, new) == new


# The table


def table_row(record, packed="a" * 64):
    table = profiles_table([record], {"moe": packed})
    return dict(zip([column.name for column in table.columns], table.rows[0], strict=True))


def test_a_regime_is_a_row_of_the_table():
    row = table_row(profile_record())
    assert (row["room"], row["regime"], row["workload"]) == ("moe", "num_tokens 8", "2207f0fd")
    assert row["kernels"] == "split 80.0 %, merge x 2 20.0 %"
    assert (row["bound by"], row["limited by"], row["waves/SM"]) == ("latency", "grid", 0.86)
    assert (row["occupancy"], row["possible"], row["DRAM"]) == (0.12, 0.125, 0.2)
    assert (row["shared KB"], row["spills"], row["registers"]) == (181.0, 976, 126)


def test_a_regime_of_several_profiled_workloads_is_still_one_row():
    rows = [profile_row(uuid, latency_us=us) for uuid, us in (("a", 30.0), ("b", 11.0), ("c", 9.0))]
    other = profile_row("d", regime="num_tokens 1", latency_us=None)
    table = profiles_table([profile_record(*rows, other)], {})
    assert [(row[1], row[2]) for row in table.rows] == [
        ("num_tokens 8", "b"),
        ("num_tokens 1", "d"),
    ]


def test_what_was_not_measured_is_a_dash_and_stale_content_is_marked():
    record = profile_record(torch_only(latency_us=None))
    row = table_row(record, "b" * 64)
    assert row["DRAM"] is None and row["spills"] is None and row["latency / floor"] is None
    assert row["bound by"] == "unknown"
    assert row["content"] == "stale, measured on aaaaaaaa"
    files = render(compose(evidence(profiled=(record,))))
    (line,) = [one for one in files["report.md"].splitlines() if one.startswith("| moe | num_t")]
    assert line.count("| - |") >= 1


def test_the_report_has_a_chapter_where_something_was_profiled():
    assert write_profiles(evidence()) == ()
    (section,) = write_profiles(evidence(profiled=(profile_record(),)))
    assert [table.name for table in tables_of((section,))] == ["profiles"]
