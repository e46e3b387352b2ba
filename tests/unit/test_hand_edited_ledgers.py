"""Ledger lines that are JSON and yet nothing that a run here would write: left out, and said so."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest

from harness.cluster.estimates import recorded_seconds
from harness.compare.ledger import CompareEntry, CompareKey, CompareLedger
from harness.compare.record import SideResult
from harness.devices import ClockSample
from harness.records import LedgerWarning, TraceLedger, append_line
from tests.sample_records import entry

ROOM, DEVICE = "gdn_decode", "nvidia-h200"
NOON = "2026-01-31T12:00:00.000000Z"


def changed(values, path, value):
    """`values` with what stands at `path` replaced."""
    edited = copy.deepcopy(values)
    place = edited
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return edited


def compared():
    key = CompareKey((("ours", "a" * 64),), "b" * 64, "d" * 64, "e" * 64, (), DEVICE, "u-0")
    results = {"ours": SideResult("RUNTIME_ERROR", "", ())}
    clocks = (ClockSample(reasons=0, power_w=1.5),)
    return CompareEntry(key, results, {"ours": "its last words"}, clocks, NOON, NOON)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("harness", "started_at"), "yesterday"),
        (("harness", "ended_at"), "2026-01-31 at noon"),
        (("evaluation",), {}),
        (("evaluation", "status"), "RUNTIME_ERROR"),
    ],
)
def test_a_trace_that_cannot_be_is_left_out(tmp_path, path, value):
    ledger = TraceLedger.of(tmp_path, DEVICE, ROOM)
    ledger.append(entry("u-0"))
    append_line(ledger.path, changed(entry("u-1").to_json(), path, value))
    with pytest.warns(LedgerWarning, match=rf"jsonl:2.*{path[-1]}"):
        assert [one.uuid for one in ledger.entries()] == ["u-0"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("logs",), {"fla": "of a side that did not run"}),
        (("started_at",), "yesterday"),
        (("ended_at",), "0"),
        (("clocks", 0, "reasons"), 0.5),
    ],
)
def test_a_compared_workload_that_cannot_be_is_left_out(tmp_path, path, value):
    ledger = CompareLedger.of(tmp_path, DEVICE, ROOM)
    ledger.append(compared())
    append_line(ledger.path, changed(compared().to_json(), path, value))
    with pytest.warns(LedgerWarning, match=rf"ndjson:2.*{path[-1]}"):
        assert ledger.entries() == [compared()]


def test_what_takes_back_workloads_says_since_when(tmp_path):
    ledger = CompareLedger.of(tmp_path, DEVICE, ROOM)
    ledger.append(compared())
    append_line(ledger.path, {"void_since": "", "reason": "edited"})
    append_line(ledger.path, {"void_since": "0", "reason": "edited"})
    with pytest.warns(LedgerWarning, match="void_since"):
        assert ledger.entries() == [compared()]


@pytest.mark.parametrize("stages", ["fast", {"timing": "1 s"}, [1.0], None])
def test_an_estimate_passes_over_what_is_no_number_of_seconds(tmp_path, stages):
    ledger = TraceLedger.of(tmp_path, DEVICE, ROOM)
    ledger.append(entry("u-0", measurement={"stages_s": {"timing": 2.0, "total": 3.0}}))
    ledger.append(entry("u-1", measurement={"stages_s": stages}))
    plan = SimpleNamespace(room=SimpleNamespace(name=ROOM))
    assert recorded_seconds(tmp_path, plan, DEVICE) == {"u-0": 2.0}
