"""What an archive refuses to read: lines that are JSON and nothing that a round writes."""

import json

import pytest

from harness.cli import main
from harness.controller.archive import ATTEMPTS, DECISIONS, MEMORY, Archive
from harness.errors import ExitCode, RecordError
from harness.search.trajectory import read_trajectory
from tests.sample_search import (
    NAME,
    PROPOSAL,
    RESULT,
    decision_line,
    measured_line,
    proposal_line,
    replay_line,
)
from tests.unit.search_room import SearchRoom
from tests.unit.test_controller import closed

REFUSED = {**PROPOSAL, "name": None, "sha256": None, "refused": "does not apply"}
HUGE = 9999999999999999999  # has as many digits as JSON may bring, and no database takes it


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path, "gdn_decode")


def write(archive, kind, *lines):
    archive.path(kind).parent.mkdir(parents=True, exist_ok=True)
    archive.path(kind).write_text("".join(json.dumps(line) + "\n" for line in lines))


def without(values, key):
    return {name: value for name, value in values.items() if name != key}


def test_what_rounds_write_is_read(archive):
    lines = [
        proposal_line(proposals=[PROPOSAL, REFUSED]),
        measured_line(),
        measured_line(stage="sweep", results={NAME: {**RESULT, "failure": "u-0: TIMEOUT"}}),
        replay_line(objection="3 of 1000 trials fail"),
    ]
    write(archive, ATTEMPTS, *lines)
    none = dict.fromkeys(("candidate", "sha256", "gain"))
    write(archive, DECISIONS, decision_line(), decision_line("r001/001", **none, matrix=[]))
    assert list(archive.lines(ATTEMPTS)) == [line["key"] for line in lines]
    assert len(archive.lines(DECISIONS)) == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (without(proposal_line(), "round"), "round: expected str, got 'nothing'"),
        (proposal_line(stage="guess"), "stage: expected one of proposal, gate"),
        (proposal_line(key="r001/001/proposal"), "key: expected r001/000/proposal"),
        (proposal_line(proposals={}), "proposals: expected list, got {}"),
        (proposal_line(proposals=["x"]), r"proposals\[0\]: expected an object, got 'x'"),
        (proposal_line(proposals=[{}]), r"proposals\[0\]"),
        (proposal_line(proposals=[{**PROPOSAL, "name": []}]), r"proposals\[0\].name"),
        (proposal_line(proposals=[{**PROPOSAL, "name": None}]), r"name: expected text, or null"),
        (proposal_line(proposals=[{**PROPOSAL, "island": {}}]), "island: expected int, got {}"),
        (proposal_line(proposals=[{**PROPOSAL, "island": HUGE}]), "island: .* at most"),
        (proposal_line(proposals=[without(PROPOSAL, "patch")]), "patch: .* got 'nothing'"),
        (proposal_line(known="x"), "known: expected int"),
        (proposal_line(other=1), "other: expected no such key"),
        (measured_line(results=[]), r"results: expected dict, got \[\]"),
        (measured_line(results={NAME: 3}), f"results.{NAME}: expected dict, got 3"),
        (measured_line(results={NAME: without(RESULT, "lost")}), f"results.{NAME}.lost"),
        (measured_line(results={NAME: {**RESULT, "passed": [1]}}), "passed: expected int"),
        (measured_line(results={NAME: {**RESULT, "low": None}}), "low: expected a number where"),
        (measured_line(record=7), "record: expected str, got 7"),
        (replay_line(objection=None), "objection: expected str, got None"),
    ],
)
def test_an_attempt_that_no_round_writes_is_refused_with_its_line(archive, line, words):
    write(archive, ATTEMPTS, proposal_line("r001/009"), line)
    with pytest.raises(RecordError, match=rf"attempts\.jsonl:2: .*{words}.*; mend that line"):
        archive.lines(ATTEMPTS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"round": None}, "round: expected str"),
        ({"key": "r001/001"}, "key: expected r001/000, its round"),
        ({"label": "keep"}, "label: expected one of archive only"),
        ({"candidate": ["x"]}, "candidate: expected str"),
        ({"reason": {"why": 1}}, "reason: expected str"),
        ({"matrix": 3}, "matrix: expected list, got 3"),
        ({"matrix": ["901e5104"]}, r"matrix\[0\]: expected a row of UUID, two latencies"),
        ({"matrix": [["901e5104", 2.0, 0, 1.0, None]]}, r"matrix\[0\]"),
        ({"matrix": [[1, 2.0, 2.0, 1.0, None]]}, r"matrix\[0\]"),
        ({"label": "promote globally", "gain": None}, "gain: expected float"),
        ({"label": "promote globally", "candidate": None}, "candidate: expected str"),
        ({"matrix": "x" * 999}, "matrix: expected list, got 'x{199}\\.\\.\\."),
    ],
)
def test_a_decision_that_no_round_writes_is_refused_with_its_line(archive, changes, words):
    write(archive, DECISIONS, decision_line("r001/009"), decision_line(**changes))
    with pytest.raises(RecordError, match=rf"decisions\.jsonl:2: .*{words}.*; mend that line"):
        archive.lines(DECISIONS)


def test_a_closed_round_that_is_damaged_is_refused_with_its_line(archive):
    write(archive, MEMORY, closed().to_json(), {**closed(number=1).to_json(), "gain": "x"})
    with pytest.raises(RecordError, match=r"memory\.jsonl:2: gain: .*; mend that line"):
        archive.history()


@pytest.mark.parametrize("command", [["history"], ["explain", "r001/000"]])
@pytest.mark.parametrize(
    ("kind", "line"),
    [(ATTEMPTS, measured_line(results={NAME: {}})), (DECISIONS, decision_line(matrix=3))],
)
def test_commands_say_which_line_is_damaged(
    tmp_path, monkeypatch, capsys, command, kind, line
):  # fmt: skip
    room = SearchRoom(tmp_path / "checkout")
    write(room.archive, DECISIONS, decision_line())
    write(room.archive, kind, line)
    monkeypatch.setattr("harness.cli.history.load_workspace", lambda: room.workspace)
    assert main(command) == ExitCode.UNFIT
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {room.archive.path(kind)}:1: ") and said.out == ""


def test_a_promotion_of_what_was_never_measured_names_both_files(archive):
    write(archive, ATTEMPTS, measured_line())
    write(archive, DECISIONS, decision_line(label="promote globally", candidate="nobody"))
    with pytest.raises(RecordError, match=r"attempts\.jsonl has results of, got nobody; restore"):
        read_trajectory(archive, "r001")


# Runs


@pytest.mark.parametrize("stem", ["r²", "r٣", "rest", "r001 copy", "r" + "1" * 99])
def test_a_manifest_of_no_run_is_named(archive, stem):
    path = archive.manifest_path(stem)
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(RecordError, match=r"such as r001\.json, got this name; move it") as error:
        archive.runs()
    assert str(path) in str(error.value)


def test_runs_are_in_the_order_of_their_numbers(archive):
    for run in ("r010", "r9", "r001"):
        archive.write_manifest({"run": run})
    assert archive.runs() == ["r001", "r9", "r010"]
