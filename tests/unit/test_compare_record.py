"""results/compare/<room>.json: every digit back, and nothing that contradicts itself."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest

from harness.compare.record import (
    CompareRecord,
    all_compare,
    compare_path,
    difference,
    load_compare,
    to_text,
    write_compare,
)
from harness.errors import RecordError
from harness.records import DatasetIdentity
from tests.sample_compare import compare_record, compare_values
from tests.sample_records import record as run_record

KEYS = [
    "room", "definition", "device", "hardware", "driver", "libraries", "clocks", "timer", "commit",
    "judge_sha256", "dataset", "seed", "protocol", "sides", "workloads", "measured_at",
]  # fmt: skip


def _values():
    return compare_values(
        {"flashinfer": 2.0, "fla": 0.8},
        missing={"torch_compile": "torch is not installed"},
        failing={"fla": (1, "INCORRECT_NUMERICAL", "7 of 9 wrong")},
    )


def test_a_record_comes_back_with_every_digit(tmp_path):
    record = CompareRecord.from_json(_values())
    path = write_compare(record, tmp_path)
    assert (
        path == compare_path(tmp_path, "gdn_decode") == tmp_path / "results/compare/gdn_decode.json"
    )
    assert load_compare(path) == record
    assert all_compare(tmp_path) == [record]
    assert list(json.loads(path.read_text())) == KEYS


def test_one_side_and_one_workload_a_line():
    values = _values()
    text = to_text(CompareRecord.from_json(values))
    lines = text.splitlines()
    for part in (*values["sides"], *values["workloads"]):
        assert f"    {json.dumps(part)}" in [line.removesuffix(",") for line in lines]
    assert len(lines) == 2 + len(KEYS) + 2 + len(values["sides"]) + len(values["workloads"])
    assert json.loads(text) == values


def test_sides_are_found_by_name():
    record = CompareRecord.from_json(_values())
    assert record.side("fla").state == "failed"
    assert record.side("torch_compile").reason == "torch is not installed"
    assert record.side("absent") is None


def test_nothing_measured_yet_is_an_empty_list(tmp_path):
    assert all_compare(tmp_path) == []


def test_a_record_under_another_rooms_name_is_refused(tmp_path):
    path = write_compare(compare_record(), tmp_path)
    path.rename(path.with_name("moe.json"))
    with pytest.raises(RecordError, match=r"moe\.json: expected a record of moe, got gdn_decode"):
        all_compare(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"room": NaN}', '{"room": "gdn_decode"}'])
def test_a_damaged_file_is_named(tmp_path, text):
    path = tmp_path / "gdn_decode.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"gdn_decode\.json"):
        load_compare(path)


def test_a_missing_file_says_what_makes_it(tmp_path):
    with pytest.raises(RecordError, match=r"absent\.json.*harness compare"):
        load_compare(tmp_path / "absent.json")


def _leaves(values, path=()):
    """Every key of the document: (path, value)."""
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in items:
        yield (*path, key), value
        if isinstance(value, (dict, list)) and key not in ("libraries", "clocks", "axes"):
            yield from _leaves(value, (*path, key))


def _at(values, path):
    for key in path:
        values = values[key]
    return values


SAMPLE = _values()
OBJECT_KEYS = [path for path, _ in _leaves(SAMPLE) if isinstance(path[-1], str)]


@pytest.mark.parametrize("path", OBJECT_KEYS, ids=lambda path: ".".join(map(str, path)))
def test_a_key_too_few_or_of_another_type_is_refused(path):
    source = "results/compare/gdn_decode.json"
    is_side_result = len(path) == 4 and path[2] == "sides"
    if not is_side_result:  # which sides a workload has is the next test's
        values = copy.deepcopy(SAMPLE)
        del _at(values, path[:-1])[path[-1]]
        with pytest.raises(RecordError, match=source):
            CompareRecord.from_json(values, source)
    for wrong in (3.5, True, [], {}, "", "?"):
        values = copy.deepcopy(SAMPLE)
        present = _at(values, path)
        if type(wrong) is type(present) and wrong == present:
            continue
        if path[-1] in FREE and type(wrong) in FREE[path[-1]]:
            continue
        _at(values, path[:-1])[path[-1]] = wrong
        with pytest.raises(RecordError, match=source):
            CompareRecord.from_json(values, source)


TEXT = (str,)
FREE = {  # values that no rule forbids
    "hardware": TEXT, "driver": TEXT, "timer": TEXT, "definition": TEXT,
    "name": TEXT, "solution_name": TEXT, "package": TEXT, "pinned": TEXT, "installed": TEXT,
    "prepared": TEXT, "stands_in": TEXT, "caveat": TEXT, "reason": TEXT,
    "detail": TEXT, "uuid": TEXT,
    "libraries": (dict,), "clocks": (dict,), "axes": (dict,),
    "atol": (float,), "rtol": (float,), "floor_us": (float,),
}  # fmt: skip


def _changed(path, value):
    values = copy.deepcopy(SAMPLE)
    _at(values, path[:-1])[path[-1]] = value
    return values


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("extra",), 1, r"record: extra: expected no such key"),
        (("sides", 0, "extra"), 1, r"sides\[0\]\.extra: expected no such key"),
        (("protocol", "trials"), 3, r"protocol\.trials: expected no such key"),
        (("dataset", "revision"), "x", r"dataset\.revision: expected no such key"),
        (("workloads", 1, "extra"), 1, r"workloads\[1\]\.extra: expected no such key"),
        (
            ("workloads", 1, "sides", "ours", "latency_us"),
            2.0,
            r"workloads\[1\]\.sides\.ours\.latency_us: expected no such key",
        ),
        (("sides",), [], r"sides: expected at least one"),
        (("workloads",), [], r"workloads: expected at least one"),
        (("device",), "NVIDIA H200", r"device: expected text like"),
        (("judge_sha256",), "b" * 63, r"judge_sha256: expected text like"),
        (("commit",), "main", r"commit: expected text like"),
        (("measured_at",), "yesterday", r"measured_at: expected text like"),
        (("seed",), -1, r"seed: expected a count of at least 0, got -1"),
        (("protocol", "rounds"), 2, r"protocol\.rounds: expected a count of at least 3"),
        (("protocol", "required_matched_ratio"), 1.5, r"required_matched_ratio: expected a number"),
        (("sides", 2, "kind"), "library", r"sides\[2\]\.kind: expected one of room, peer"),
        (("sides", 2, "state"), "lost", r"sides\[2\]\.state: expected one of measured"),
        (("sides", 2, "reason"), "slow", r"sides\[2\]\.reason: expected null where measured"),
        (("sides", 3, "reason"), None, r"sides\[3\]\.reason: expected null where measured"),
        (("sides", 1, "kind"), "peer", r"sides\[1\]\.kind: expected control for the side"),
        (("sides", 2, "kind"), "control", r"sides\[2\]\.kind: expected control for the side"),
        (("sides", 1, "solution_sha256"), "e" * 64, r"sides\[1\]\.solution_sha256: expected that"),
        (("sides", 3, "name"), "flashinfer", r"sides: expected each name once, got 'flashinfer'"),
        (("workloads", 1, "uuid"), "u-0", r"workloads: expected each UUID once, got 'u-0'"),
        (("workloads", 0, "axes"), {"batch_size": -1}, r"workloads\[0\]\.axes: expected sizes"),
        (("workloads", 0, "axes"), {"batch_size": 1.0}, r"workloads\[0\]\.axes: expected sizes"),
        (("workloads", 0, "floor_us"), 0.0, r"floor_us: expected a number above 0, or null"),
        (
            ("workloads", 0, "sides", "ours", "status"),
            "OK",
            r"workloads\[0\]\.sides\.ours\.status: expected one of PASSED",
        ),
        (
            ("workloads", 1, "sides", "fla", "rounds_us"),
            [2.0, 2.0, 2.0],
            r"sides\.fla\.rounds_us: expected none beside INCORRECT_NUMERICAL",
        ),
        (
            ("workloads", 0, "sides", "ours", "rounds_us"),
            [2.0, 2.0],
            r"sides\.ours\.rounds_us: expected at least 3 rounds, got 2",
        ),
        (
            ("workloads", 0, "sides", "ours", "rounds_us"),
            [2.0] * 7,
            r"sides\.ours\.rounds_us: expected at most 6, got 7",
        ),
        (
            ("workloads", 0, "sides", "ours", "rounds_us"),
            [2.0, 0.0, 2.0],
            r"sides\.ours\.rounds_us\[1\]: expected a number above 0",
        ),
        (
            ("workloads", 0, "sides", "ours", "rounds_us"),
            [2.0, 2.0, None],
            r"sides\.ours\.rounds_us\[2\]: expected a number above 0",
        ),
        (
            ("workloads", 0, "sides", "ours", "rounds_us"),
            [2.0, "2.0", 2.0],
            r"sides\.ours\.rounds_us\[1\]: expected float",
        ),
        (
            ("workloads", 0, "sides", "stranger"),
            {"status": "PASSED", "detail": "", "rounds_us": [1.0] * 3},
            r"workloads\[0\]\.sides\.stranger: expected one of the sides that ran",
        ),
        (
            ("workloads", 0, "sides", "torch_compile"),
            {"status": "PASSED", "detail": "", "rounds_us": [1.0] * 3},
            r"workloads\[0\]\.sides\.torch_compile: expected one of the sides that ran",
        ),
        (
            ("workloads", 1, "sides", "fla"),
            {"status": "PASSED", "detail": "", "rounds_us": [1.0] * 3},
            r"sides\[3\]\.state: expected measured, 3 of 3 passed, got 'failed'",
        ),
        (
            ("workloads", 1, "sides", "flashinfer"),
            {"status": "TIMEOUT", "detail": "", "rounds_us": []},
            r"sides\[2\]\.state: expected failed, 2 of 3 passed, got 'measured'",
        ),
    ],
)
def test_contradictions_are_refused_with_file_and_key(path, value, message):
    with pytest.raises(RecordError, match=message):
        CompareRecord.from_json(_changed(path, value), "record")


def test_a_control_is_never_the_first_side():
    values = copy.deepcopy(SAMPLE)
    values["sides"].insert(0, values["sides"].pop(1))
    with pytest.raises(RecordError, match="the first of them no control"):
        CompareRecord.from_json(values)


def test_a_side_without_an_entry_on_some_workload_failed():
    values = copy.deepcopy(SAMPLE)
    del values["workloads"][2]["sides"]["flashinfer"]
    with pytest.raises(RecordError, match=r"sides\[2\]\.state: expected failed, 2 of 3"):
        CompareRecord.from_json(values)
    values["sides"][2] |= {"state": "failed", "reason": "it hung"}
    assert "flashinfer" not in CompareRecord.from_json(values).workloads[2].sides


def test_what_contradicts_itself_is_not_written(tmp_path):
    record = compare_record()
    with pytest.raises(RecordError, match="rounds_us"):
        write_compare(replace(record, protocol=replace(record.protocol, rounds=5)), tmp_path)
    assert all_compare(tmp_path) == []


# --- what compares with what -----------------------------------------------------------------


def test_records_that_were_measured_alike_compare():
    assert difference(compare_record(), compare_record({"fla": 1.0}, seed=7)) is None
    assert difference(compare_record(), run_record()) is None  # other rounds, the same work


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "nvidia-b200"}, "device is nvidia-h200 in gdn_decode and nvidia-b200 in"),
        ({"dataset": DatasetIdentity("official", "e" * 64)}, f"sha256 is {'d' * 64} in gdn_decode"),
        ({"timer": "events"}, "timer is cupti in gdn_decode and events in gdn_decode"),
        ({"definition": "gdn_prefill"}, "definition is gdn_decode"),
    ],
)
def test_the_first_fact_that_differs_is_named(changes, message):
    record = compare_record()
    assert message in difference(record, replace(record, **changes))
    assert message.split(" is ")[0] in difference(run_record(**changes), record)


@pytest.mark.parametrize("tolerance", ["atol", "rtol", "required_matched_ratio"])
def test_other_tolerances_do_not_compare(tolerance):
    record = compare_record()
    looser = replace(record, protocol=replace(record.protocol, **{tolerance: 0.5}))
    assert f"{tolerance} is " in difference(record, looser)
    assert difference(record, replace(looser, room="moe")) is None  # each room has its own


def test_rooms_compare_by_the_data_sets_name():
    """A hash is of the room's own share of the data."""
    here, there = compare_record(), compare_record(room="gdn_prefill", definition="gdn_prefill")
    assert difference(here, replace(there, dataset=DatasetIdentity("generated", "e" * 64))) is None
    other = replace(there, dataset=DatasetIdentity("official", "d" * 64))
    assert difference(here, other) == (
        "data set is generated in gdn_decode and official in gdn_prefill"
    )
    assert "device is" in difference(here, replace(there, device="nvidia-b200"))
