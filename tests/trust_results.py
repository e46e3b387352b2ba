"""What the tests of faults and of cheats gave, results/trust.json, and the tables of docs/trust.md.

    python -m tests.trust_results          # run those that need no GPU, keep and show what came
    python -m tests.trust_results --gpu    # the others, on a GPU
    python -m tests.trust_results --show   # the tables of what is kept; run nothing
    python -m tests.trust_results --check  # whether the page shows these; write nothing

A row is kept with a hash of what was tried and of the test that tried it: where either changes, the
row is stale until the test runs again. The tables of audits and of timers are made of what these
recorded; what is of other content than a room packs to now is called stale.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pytest

from harness.audit.record import load_audit
from harness.audit.timer_record import TimerRecord, TimerRow, load_timers
from harness.config import Workspace, load_workspace
from harness.devices import read_facts
from harness.errors import run_program
from harness.files import write_atomically
from harness.packing import pack
from harness.records import HASH_CHARACTERS, format_us
from harness.report import NOT_MEASURED, STALE, read_block, replace_block
from tests import cheat_table
from tests.cheat_table import CHEATS
from tests.unit.fault_registry import ALL_FAULTS, GPU_FAULTS, Fault

TESTS = Path(__file__).parent
KEPT = TESTS.parent / "results" / "trust.json"
PAGE = TESTS.parent / "docs" / "trust.md"
CHEAT_TESTS = ("unit/test_audit_cheats.py", "gpu/test_audit.py")
COMMAND = "python -m tests.trust_results"
PROBED, JUDGED = "test_its_probe_catches_a_trick", "test_the_judge_alone_says"
NOT_RUN = "not run yet"


@dataclass(frozen=True)
class Row:
    """One fault or trick. outcome: pytest's word of all its tests; verdict: what they saw, "" where
    they name none; judged: of a trick, the judge's verdict without its probe."""

    kind: str
    name: str
    outcome: str
    verdict: str
    judged: str
    device: str
    tried: str


class Reports:
    """A pytest plugin: (file::function, parameter, outcome, properties) of each test that ran."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str, dict[str, str]]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            place, _, parameter = report.nodeid.removeprefix("tests/").partition("[")
            found = (
                place,
                parameter.removesuffix("]"),
                report.outcome,
                dict(report.user_properties),
            )
            self.seen.append(found)

    def of(self, place: str, parameter: str | None) -> list[tuple[str, dict[str, str]]]:
        """Outcome and properties of a test's cases; parameter: of that one alone."""
        return [
            (outcome, properties)
            for seen, own, outcome, properties in self.seen
            if seen == place and parameter in (None, own)
        ]


def fault_row(fault: Fault, reports: Reports, device: str) -> Row | None:
    """None where none of its tests ran."""
    cases = reports.of(fault.held_by, fault.name if fault.status else None)
    return _row("fault", fault.name, cases, [], device, tried_of_fault(fault)) if cases else None


def cheat_row(trick: str, reports: Reports, device: str) -> Row | None:
    """None where its probe was not tried."""
    probed, judged = (
        [case for place in cheat_places(start) for case in reports.of(place, trick)]
        for start in (PROBED, JUDGED)
    )
    return _row("cheat", trick, probed, judged, device, tried_of_cheat(trick)) if probed else None


def _row(
    kind: str, name: str, cases: list[tuple[str, dict[str, str]]],
    judged: list[tuple[str, dict[str, str]]], device: str, tried: str,
) -> Row:  # fmt: skip
    outcomes = {outcome for outcome, _ in (*cases, *judged)}
    worst = next(word for word in ("failed", "skipped", "passed") if word in outcomes)
    verdict, without = (
        ", ".join(sorted({one["verdict"] for _, one in found if "verdict" in one}))
        for found in (cases, judged)
    )
    return Row(kind, name, worst, verdict, without, device, tried)


def tried_of_fault(fault: Fault) -> str:
    """A hash of the entry and of the test that holds it."""
    return _digest(json.dumps(asdict(fault)), source_of(*fault.held_by.split("::")))


def tried_of_cheat(trick: str) -> str:
    """A hash of the entry, the trick and the tests that try it."""
    tests = [source_of(*place.split("::")) for place in cheat_places(PROBED, JUDGED)]
    return _digest(json.dumps(asdict(CHEATS[trick])), cheat_table.source(trick), *tests)


def cheat_places(*starts: str) -> list[str]:
    """file::function of the tests of tricks whose names start so."""
    return [
        f"{file}::{name}"
        for file in CHEAT_TESTS
        for name in functions_of(file)
        if name.startswith(starts)
    ]


def source_of(file: str, function: str) -> str:
    return functions_of(file)[function]


@cache
def functions_of(file: str) -> dict[str, str]:
    """The functions of a test file, without their decorators, as text."""
    text = (TESTS / file).read_text(encoding="utf-8")
    return {
        node.name: ast.get_source_segment(text, node) or ""
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    }


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def load(path: Path = KEPT) -> dict[tuple[str, str], Row]:
    """The kept rows by kind and name; none where nothing was kept."""
    values = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return {(one["kind"], one["name"]): Row(**one) for one in values}


def keep(rows: Iterable[Row], path: Path = KEPT) -> None:
    """Put rows in the place of those of the same name; one a line, in the registries' order."""
    merged = {**load(path), **{(row.kind, row.name): row for row in rows}}
    order = [
        *(("fault", fault.name) for fault in ALL_FAULTS),
        *(("cheat", name) for name in CHEATS),
    ]
    lines = [json.dumps(asdict(merged[key])) for key in order if key in merged]
    write_atomically(path, "[\n" + ",\n".join(lines) + "\n]\n")


def result(row: Row | None, tried: str, plain: str) -> str:
    """What a table says of a row. plain: the word for a pass whose test names no verdict."""
    if row is None:
        return NOT_RUN
    if row.tried != tried:
        return f"stale: {row.outcome} before the test changed"
    word = (row.verdict or plain) if row.outcome == "passed" else row.outcome
    return f"{word}, {row.device}"


def render_faults(rows: dict[tuple[str, str], Row]) -> str:
    lines = ["| fault | what happens | what must come of it | what came | held by |",
             "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for fault in ALL_FAULTS:
        came = result(rows.get(("fault", fault.name)), tried_of_fault(fault), "just that")
        lines.append(
            f"| {fault.name} | {fault.what} | {fault.comes} | {came} | `{fault.held_by}` |"
        )
    return "\n".join(lines)


def render_cheats(rows: dict[tuple[str, str], Row]) -> str:
    lines = ["| trick | caught by | what the probe said | the judge alone |", "|---|---|---|---|"]
    for trick, cheat in CHEATS.items():
        row = rows.get(("cheat", trick))
        link = f"[{trick}](../tests/cheats/{trick}.py): {cheat_table.summary(trick)}"
        said = result(row, tried_of_cheat(trick), "").replace("FAILED, ", "caught, ")
        alone = (row.judged if row else "") or "-"
        lines.append(f"| {link} | {cheat.probe} | {said} | {alone} |")
    return "\n".join(lines)


def render_rooms() -> str:
    """The honest solutions: each room's recorded audit."""
    lines = ["| room | probes passed | content | device |", "|---|---|---|---|"]
    workspace = load_workspace()
    for room in workspace.rooms:
        audit = load_audit(workspace.root, room)
        if audit is None:
            lines.append(f"| {room} | {NOT_RUN} | - | - |")
            continue
        passed = sum(probe.verdict == "PASSED" for probe in audit.probes)
        content = _content(audit.solution_sha256, workspace, room)
        lines.append(f"| {room} | {passed}/{len(audit.probes)} | {content} | {audit.device} |")
    return "\n".join(lines)


def _content(sha256: str, workspace: Workspace, room: str) -> str:
    is_stale = sha256 != pack(workspace, room).sha256
    return f"{STALE if is_stale else ''}`{sha256[:HASH_CHARACTERS]}`"


def render_timers(workspace: Workspace) -> str:
    """One call of each regime by three timers, in µs: each room's record."""
    lines = [
        "| room | workload | CUPTI | graph | NCU | disagree | content | device |",
        "|---|---|---:|---:|---:|---|---|---|",
    ]
    reasons: dict[str, None] = {}  # in the order in which they are met
    for room in workspace.rooms:
        record = load_timers(workspace.root, room)
        if record is None:
            lines.append(f"| {room} | {NOT_MEASURED} | - | - | - | - | - | - |")
            continue
        content = _content(record.solution_sha256, workspace, room)
        lines += [_timer_line(record, row, content, reasons) for row in record.workloads]
    notes = [f"[{number}] {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _timer_line(record: TimerRecord, row: TimerRow, content: str, reasons: dict[str, None]) -> str:
    """reasons: why NCU gave nothing; a cell has the number of its own."""
    graph = f"{format_us(row.graph_us)} ± {format_us(row.graph_bound_us)}"
    if row.ncu_us is not None:
        ncu = f"{format_us(sum(row.ncu_us))} ± {format_us(row.ncu_bound_us)}"
    else:
        reasons.setdefault(str(row.no_ncu))
        ncu = f"{NOT_MEASURED} [{list(reasons).index(str(row.no_ncu)) + 1}]"
    cells = (record.room, f"`{row.uuid[:8]}` {row.regime}", format_us(row.cupti_us), graph, ncu)
    ends = (", ".join(row.disagreeing) or "none", content, record.device)
    return f"| {' | '.join((*cells, *ends))} |"


def tables(rows: dict[tuple[str, str], Row]) -> dict[str, str]:
    """Every table of the page by its block's name."""
    return {
        "faults": render_faults(rows),
        "cheats": render_cheats(rows),
        "rooms": render_rooms(),
        "timers": render_timers(load_workspace()),
    }


def show(rows: dict[tuple[str, str], Row], page: Path = PAGE) -> None:
    """Write the tables into the page's blocks. Raises UsageError where it lacks one."""
    text = page.read_text(encoding="utf-8")
    for name, table in tables(rows).items():
        text = replace_block(text, name, table)
    write_atomically(page, text)


def differences(rows: dict[tuple[str, str], Row], page: Path = PAGE) -> list[str]:
    """What --show would change, one text a table. Raises UsageError where the page lacks one."""
    text = page.read_text(encoding="utf-8")
    return [
        f"{page}: {name}: not the table of what is kept; run `{COMMAND} --show`"
        for name, table in tables(rows).items()
        if read_block(text, name) != table
    ]


def run(is_gpu: bool) -> list[Row]:
    """Run the tests and give a row for each fault and trick that was tried."""
    faults = [fault for fault in ALL_FAULTS if (fault in GPU_FAULTS) == is_gpu]
    tricks = [name for name, cheat in CHEATS.items() if cheat.needs_gpu == is_gpu]
    places = [fault.held_by for fault in faults]
    places += [one for one in cheat_places(PROBED, JUDGED) if one.startswith("gpu/") == is_gpu]
    reports = Reports()
    chosen = [str(TESTS / place) for place in dict.fromkeys(places)]
    pytest.main(["-q", *chosen], [reports])
    device = read_facts().slug if is_gpu else "cpu"
    rows = [fault_row(fault, reports, device) for fault in faults]
    rows += [cheat_row(trick, reports, device) for trick in tricks]
    return [row for row in rows if row is not None]


def main(arguments: Sequence[str]) -> int:
    """0 where all that was run passed, or --check finds no other table; else 1 or as
    harness.errors says."""
    return run_program(lambda: _run(arguments))


def _run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        description="Run the tests of faults and cheats, keep what came and show it in the page. "
        "By default those that need no GPU.",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--gpu", action="store_true", help="run those that need a GPU")
    mode.add_argument("--show", action="store_true", help="write the tables; run nothing")
    mode.add_argument("--check", action="store_true", help="exit 1 where the page shows other ones")
    options = parser.parse_args(arguments)
    if options.check:
        found = differences(load())
        print("\n".join(found) or f"{PAGE} shows what is kept")
        return 1 if found else 0
    rows = [] if options.show else run(options.gpu)
    keep(rows)
    show(load())
    bad = [f"{row.kind} {row.name}: {row.outcome}" for row in rows if row.outcome != "passed"]
    print("\n".join([*bad, f"{len(rows)} rows kept in {KEPT}, tables in {PAGE}"]))
    return 1 if bad or not (rows or options.show) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
