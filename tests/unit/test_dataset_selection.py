"""all, smoke and UUID prefixes."""

from __future__ import annotations

import pytest

from harness.config import load_workspace
from harness.dataset import WorkloadRow, read_workloads, select, select_rooms
from harness.errors import ExitCode, UsageError

WORKSPACE = load_workspace()
DASHED = "901e5104-dccb-4c3f-ae13-ef4d31a4d456"
PLAIN = "901e6104dccb4c3fae13ef4d31a4d456"
ROWS = [WorkloadRow(uuid, {}, {}, ()) for uuid in (DASHED, PLAIN, "a0", "a01")]


def uuids(spec, smoke=("a01",)):
    return [row.uuid for row in select(ROWS, spec, smoke)]


def test_all_and_smoke():
    assert uuids("all") == [row.uuid for row in ROWS]
    assert uuids("smoke") == ["a01"]


@pytest.mark.parametrize("prefix", ["901e5", DASHED, DASHED.upper(), DASHED.replace("-", "")])
def test_prefixes_match_with_or_without_dashes(prefix):
    assert uuids(prefix) == [DASHED]


def test_dashes_in_a_prefix_match_a_uuid_without_any():
    assert uuids("901e6104-dccb") == [PLAIN]


def test_a_whole_uuid_is_not_ambiguous():
    assert uuids("a0") == ["a0"]


def test_several_prefixes_keep_official_order_and_occur_once():
    assert uuids("a01,901e6 901e5, a01") == [DASHED, PLAIN, "a01"]
    assert uuids(["a01", "smoke", "901e5"]) == [DASHED, "a01"]


@pytest.mark.parametrize("spec", ["901e", "9"])
def test_ambiguous_prefix_is_a_usage_error(spec):
    with pytest.raises(UsageError, match="ambiguous") as caught:
        uuids(spec)
    assert DASHED in str(caught.value) and PLAIN in str(caught.value)
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("spec", ["77", "-", "901e5104x"])
def test_unknown_prefix_is_a_usage_error(spec):
    with pytest.raises(UsageError, match="no UUID starts with"):
        uuids(spec)


@pytest.mark.parametrize("spec", ["", " , ", []])
def test_empty_spec_is_a_usage_error(spec):
    with pytest.raises(UsageError, match="got nothing"):
        uuids(spec)


@pytest.mark.parametrize("room", WORKSPACE.rooms)
def test_eight_digits_find_each_official_workload(room):
    entry = WORKSPACE.room(room)
    rows = read_workloads(WORKSPACE.root, entry)
    for row in rows:
        assert select(rows, row.uuid[:8], ()) == [row]
    for smoke in (entry.smoke, entry.smoke_cpu):
        assert len(select(rows, "smoke", smoke)) == len(smoke) > 0


def test_a_prefix_means_one_workload_of_all_rooms():
    rooms = {name: WORKSPACE.room(name) for name in ("moe", "gdn_decode")}
    rows = {name: read_workloads(WORKSPACE.root, room) for name, room in rooms.items()}
    assert {name: len(chosen) for name, chosen in select_rooms(rows, rooms, "all").items()} == {
        "moe": 19,
        "gdn_decode": 54,
    }
    chosen = select_rooms(rows, rooms, "901e5104")
    assert {name: [row.uuid for row in some] for name, some in chosen.items()} == {
        "gdn_decode": [DASHED]
    }
    smoke = select_rooms(rows, rooms, "smoke", {"moe": ["e05c"], "gdn_decode": ["901e5104"]})
    assert [len(some) for some in smoke.values()] == [1, 1]
    with pytest.raises(UsageError, match="ambiguous"):
        select_rooms(rows, rooms, "7")
    with pytest.raises(UsageError, match="no UUID"):
        select_rooms(rows, rooms, "ffffffff")


def test_a_uuid_of_two_rooms_with_one_definition_means_both():
    rooms = {"first": WORKSPACE.room("gdn_decode"), "second": WORKSPACE.room("gdn_decode")}
    chosen = select_rooms({name: ROWS for name in rooms}, rooms, "901e5")
    assert {name: [row.uuid for row in some] for name, some in chosen.items()} == {
        "first": [DASHED],
        "second": [DASHED],
    }
    with pytest.raises(UsageError, match=f"ambiguous: {DASHED}, {PLAIN};"):
        select_rooms({name: ROWS for name in rooms}, rooms, "901e")
