"""What README.md claims is what results/ holds, and what results/ holds is official and whole."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from harness.compare.scores import BASELINE
from harness.config import load_workspace
from harness.errors import RecordError
from harness.records import (
    Protocol,
    WorkloadRow,
    all_latest,
    load,
    official_uuids,
    to_text,
    write_latest,
)
from harness.report import (
    NOT_MEASURED,
    README_BLOCK,
    front_rooms,
    read_block,
    render_summary,
    replace_block,
    without_staleness,
)
from harness.report.blocks import read_page_block
from harness.report.evidence import read_compared
from harness.report.glance import GLANCE_BLOCK, Standing, render_front, render_glance
from harness.roofline import CEILINGS
from tests.official_rooms import OFFICIAL_ROOMS
from tests.sample_records import DEFINITION, record, write_checkout

TO_RENDER = "python -m harness report --readme"
WORKSPACE = load_workspace()
ROOT = WORKSPACE.root
LATEST = all_latest(ROOT)
# A number with a unit of time, rate or ratio: a measurement.
MEASUREMENT = re.compile(r"\d[\d.,]*\s*(µs|us|ms|ns|TB/s|GB/s|TFLOP|%|\u00d7|x faster)(?!\w)")


def _readme():
    return (ROOT / "README.md").read_text(encoding="utf-8")


def _as_recorded(records):
    """Content hashes under which nothing is stale."""
    return {one.room: one.solution_sha256 for one in records}


def _identify(one):
    return f"{one.device}/{one.room}"


@cache
def _standing():
    """As recorded; nothing packs, so that labels of staleness are everywhere."""
    return Standing(LATEST, read_compared(WORKSPACE), {}, {})


def test_readme_shows_what_results_hold():
    """Labels of staleness aside: work in progress changes those and no number."""
    shown_rooms = front_rooms(WORKSPACE.rooms, LATEST)
    expected = without_staleness(render_front(shown_rooms, _standing()))
    shown = without_staleness(read_block(_readme(), README_BLOCK))
    assert shown == expected, f"run `{TO_RENDER}`"


@pytest.mark.parametrize("room", front_rooms(WORKSPACE.rooms, LATEST))
def test_a_rooms_page_shows_what_results_hold_under_its_title(room):
    page = ROOT / "docs" / "kernels" / f"{room}.md"
    shown = without_staleness(read_page_block(page, GLANCE_BLOCK, TO_RENDER))
    assert shown == without_staleness(render_glance(room, _standing())), f"run `{TO_RENDER}`"
    title, _, first = page.read_text(encoding="utf-8").split("\n", 3)[:3]
    assert title.startswith("# ") and first.startswith(f"<!-- {GLANCE_BLOCK}: begin ")


def test_readme_says_where_the_baselines_own_kernels_run():
    """By that side of each comparison that has it: what it measured in their place, and its
    statuses."""
    text = " ".join(_readme().split())
    own, words = [], ""
    for room, found in read_compared(WORKSPACE).items():
        if BASELINE not in {side.name for side in found.record.sides}:
            continue
        side = found.side(BASELINE)
        statuses = Counter(row.sides[BASELINE].status for row in found.record.workloads
                           if BASELINE in row.sides)  # fmt: skip
        if side.stands_in is None:
            own.append(room)
            wrong = sum(statuses.values()) - statuses["PASSED"]
            words += f"in {wrong} of {room}'s {sum(statuses.values())} workloads" if wrong else ""
    assert f"FlashInfer's own kernels run on this GPU for {' and '.join(sorted(own))}" in text
    assert words and words in text


def test_readme_has_a_row_for_every_definition_and_every_measured_room():
    block = read_block(_readme(), README_BLOCK)
    measured = {one.room for one in LATEST}
    for room in measured.union(OFFICIAL_ROOMS):
        lines = [line for line in block.splitlines() if line.startswith(f"| {room} |")]
        assert lines, room
        assert all((NOT_MEASURED in line) == (room not in measured) for line in lines)


def test_a_second_room_has_no_row_before_it_is_measured():
    rooms = {name: WORKSPACE.rooms[name] for name in ("moe", "gdn_decode")}
    rooms["my_decode"] = replace(rooms["gdn_decode"], name="my_decode")
    mine = record(room="my_decode", definition=rooms["gdn_decode"].definition)
    assert front_rooms(rooms, []) == ["moe", "gdn_decode"]
    assert front_rooms(rooms, [record()]) == ["moe", "gdn_decode"]
    assert front_rooms(rooms, [mine]) == ["moe", "my_decode"]
    assert front_rooms(rooms, [record(), mine]) == ["moe", "gdn_decode", "my_decode"]


def test_readme_holds_no_measurement_outside_its_block():
    for claim in ("it takes 2.19 µs", "90 % of peak", "4.3 TB/s", "is 1.2\u00d7 as fast"):
        assert MEASUREMENT.search(claim)
    page = replace_block(_readme(), README_BLOCK, "")
    assert MEASUREMENT.findall(page) == []


def _problems(one, kept_texts):
    """What keeps a record under results/latest from being evidence."""
    room = WORKSPACE.room(one.room)
    official, protocol = room.evaluation, one.protocol
    claims = {
        "definition": one.definition == room.definition,
        "workloads": tuple(row.uuid for row in one.workloads)
        == official_uuids(ROOT, room.definition),
        "timer": one.timer == "cupti",
        "calls": (protocol.warmup, protocol.iterations, protocol.trials)
        == (official.warmup_runs, official.iterations, official.trials),
        "tolerances": (protocol.atol, protocol.rtol, protocol.required_matched_ratio)
        == (official.atol, official.rtol, official.required_matched_ratio),
        "floors": all((r.floor_us is not None) == (one.device in CEILINGS) for r in one.workloads),
        "kept": to_text(one) in kept_texts,
    }
    return [name for name, holds in claims.items() if not holds]


def _kept_texts(one):
    folder = ROOT / "results" / "runs" / one.device / one.room
    return [path.read_text(encoding="utf-8") for path in folder.glob("*.json")]


def test_the_latest_is_official_whole_and_kept_as_a_run():
    assert {_identify(one): _problems(one, _kept_texts(one)) for one in LATEST} == {
        _identify(one): [] for one in LATEST
    }


def test_evidence_that_is_not_official_is_noticed(tmp_path):
    good = _full_sweep("gdn_decode", tmp_path)
    kept = [to_text(good)]
    assert _problems(good, kept) == []
    swapped = (good.workloads[1], good.workloads[0], *good.workloads[2:])
    floorless = (replace(good.workloads[0], floor_us=None), *good.workloads[1:])
    for problem, bad in {
        "workloads": replace(good, workloads=swapped),
        "timer": replace(good, timer="events"),
        "calls": replace(good, protocol=replace(good.protocol, iterations=5)),
        "tolerances": replace(good, protocol=replace(good.protocol, atol=1.0)),
        "floors": replace(good, workloads=floorless),
    }.items():
        assert _problems(bad, [to_text(bad)]) == [problem]
    assert _problems(replace(good, seed=1), kept) == ["kept"]


def test_every_recorded_run_can_be_read():
    runs = sorted((ROOT / "results" / "runs").glob("*/*/*.json"))
    for path in runs:
        one = load(path)
        assert (one.device, one.room) == (path.parent.parent.name, path.parent.name), path
        assert path.name.endswith(f"-{one.solution_sha256[:8]}.json"), path
    assert len(runs) >= len(LATEST)


def _full_sweep(room, root: Path):
    """A record of every official workload of a room, written as its latest under `root`."""
    official = WORKSPACE.room(room)
    rows = tuple(
        WorkloadRow(uuid, {"size": 1}, "PASSED", 10.0 + i, 5.0)
        for i, uuid in enumerate(official_uuids(ROOT, official.definition))
    )
    source = Path("workloads", official.op_type, f"{official.definition}.jsonl")
    for path in (Path("config.toml"), source):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes((ROOT / path).read_bytes())
    settings = official.evaluation
    protocol = Protocol(
        settings.warmup_runs, settings.iterations, settings.trials, settings.atol, settings.rtol,
        settings.required_matched_ratio,
    )  # fmt: skip
    sweep = record(rows, room=room, definition=official.definition, protocol=protocol)
    write_latest(sweep, root)
    return sweep


def test_full_sweeps_of_all_rooms_fill_the_readme(tmp_path):
    for room in OFFICIAL_ROOMS:
        _full_sweep(room, tmp_path)
    records = all_latest(tmp_path)
    assert sum(one.total for one in records) == 324
    page = replace_block(
        _readme(),
        README_BLOCK,
        render_summary(OFFICIAL_ROOMS, records, _as_recorded(records)),
    )
    block = read_block(page, README_BLOCK)
    assert NOT_MEASURED not in block and "stale" not in block
    for room, total in (("moe", 19), ("dsa_indexer", 128), ("gdn_prefill", 100)):
        assert f"| {room} | {total}/{total} |" in block


def test_stale_evidence_is_labelled_in_the_readme(tmp_path):
    _full_sweep("moe", tmp_path)
    records = all_latest(tmp_path)
    now = {**_as_recorded(records), "moe": "0" * 64}
    block = render_summary(list(WORKSPACE.rooms), records, now)
    assert "| stale, measured on `aaaaaaaa` |" in block
    assert without_staleness(block) == render_summary(
        list(WORKSPACE.rooms), records, _as_recorded(records)
    )


def test_measuring_page_states_the_official_settings():
    page = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    for name in OFFICIAL_ROOMS:
        settings = WORKSPACE.rooms[name].evaluation
        share = settings.required_matched_ratio
        cells = (
            name,
            f"{settings.atol:g}",
            f"{settings.rtol:g}",
            "all" if share == 1.0 else f"{share:.0%}".replace("%", " %"),
            f"{settings.warmup_runs} + {settings.iterations}",
            str(settings.trials),
        )
        assert f"| {' | '.join(cells)} |" in page


@pytest.mark.parametrize("last", ['{"workload": {"uu', "3", '{"workload": {}}'])
def test_a_damaged_workload_file_is_named(tmp_path, last):
    write_checkout(tmp_path, ["u-0"])
    (path,) = (tmp_path / "workloads").glob(f"*/{DEFINITION}.jsonl")
    path.write_text(path.read_text() + last)
    with pytest.raises(RecordError, match=rf"{DEFINITION}\.jsonl: .*; restore it"):
        official_uuids(tmp_path, DEFINITION)
