"""What a report reads of a checkout, what it leaves out and says so, and the command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from harness.cli import report as command
from harness.compare.ledger import CompareEntry, CompareKey, CompareLedger
from harness.config import load_workspace
from harness.controller.decision import ARCHIVE, PROMOTE, REJECT
from harness.dataset import content_sha256
from harness.errors import ExitCode, PackingError, UsageError
from harness.files import write_atomically
from harness.records import DatasetIdentity, LedgerWarning, TraceLedger, write_run
from harness.report import evidence as evidence_module
from harness.report.evidence import DECISIONS, gather, read_promotions
from harness.report.failed import NO_TRACE, PASSED_LATER, write_failures
from harness.report.figures import write_figures
from harness.report.head import list_stale
from harness.report.publish import PAGE, compose, render
from harness.search.planning import Settings
from tests.sample_compare import compare_record
from tests.sample_evidence import evidence
from tests.sample_records import entry, record, row
from tests.sample_search import decision_line
from tests.small_checkout import SMALL, small_checkout
from tests.unit.search_room import ROOM, SearchRoom, analyse_once

NOW = {"gdn_decode": "a" * 64}
NOON = "2026-01-31T12:00:00.000000Z"


@pytest.fixture
def workspace(tmp_path):
    """A checkout with real definitions, a few workloads and no records."""
    return small_checkout(tmp_path / "checkout")


def _keep(workspace, one):
    """A run as its room's latest, without asking whether it is official."""
    path = write_run(one, workspace.root)
    latest = workspace.root / "results" / "latest" / one.device / f"{one.room}.json"
    write_atomically(latest, path.read_text(encoding="utf-8"))


def _keep_comparison(workspace, one):
    from harness.compare.record import write_compare

    write_compare(one, workspace.root)


def test_a_bare_checkout_has_no_evidence(workspace):
    found = gather(workspace, NOW)
    assert (found.latest, found.runs, found.compared, found.verdicts) == ((), (), {}, ())
    assert (found.promoted, found.work, found.without_work) == (None, {}, {})


def test_records_are_found_where_they_lie(workspace):
    first, second = record(measured_at="2026-01-01T00:00:00Z"), record()
    _keep(workspace, first)
    _keep(workspace, second)
    _keep_comparison(workspace, compare_record({"flashinfer": 2.0, "fla": 0.9}))
    found = gather(workspace, NOW)
    assert found.latest == (second,)
    assert found.runs == (first, second)
    (compared,) = found.compared.values()
    assert (compared.ours.name, [other.b for other in compared.others]) == (
        "ours",
        ["flashinfer", "fla"],
    )


def test_peers_are_known_by_what_they_pack_to_now(workspace, monkeypatch):
    def pack_peer(workspace, room, library):
        if library == "fla":
            raise PackingError("peers/moe/fla.py: not Python")
        return SimpleNamespace(packed=SimpleNamespace(sha256="7" * 64))

    monkeypatch.setattr(evidence_module, "list_peers", lambda _, room: ("flashinfer", "fla"))
    monkeypatch.setattr(evidence_module, "pack_peer", pack_peer)
    found = gather(workspace, NOW).packed_peers
    assert (found["moe", "flashinfer"], found["moe", "fla"]) == ("7" * 64, None)
    assert {room for room, _ in found} == set(workspace.rooms)


def test_rooms_that_config_does_not_name_are_left_out(workspace):
    _keep(workspace, record(room="gone"))
    _keep_comparison(workspace, compare_record(room="gone"))
    found = gather(workspace, NOW)
    assert (found.latest, found.runs, found.compared) == ((), (), {})


def test_a_comparison_without_the_room_is_none_of_it(workspace):
    values = compare_record(control=False).to_json()
    values["sides"][0]["kind"] = "revision"
    _keep_comparison(workspace, type(compare_record()).from_json(values))
    assert gather(workspace, NOW).compared == {}


def test_promotions_are_the_decisions_of_searches(tmp_path):
    assert read_promotions(tmp_path) is None
    path = tmp_path / DECISIONS.replace("*", "moe")
    path.parent.mkdir(parents=True)
    lines = [
        decision_line("r001/000", label=PROMOTE, sha256="a" * 64),
        decision_line("r001/001", label=REJECT, sha256="b" * 64),
        decision_line("r001/002", label=ARCHIVE, sha256=None, candidate=None, matrix=[]),
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_promotions(tmp_path) == {("moe", "a" * 64)}
    for bad in ("{}", "[]", "nonsense", "3"):
        path.write_text(json.dumps(lines[0]) + "\n" + bad + "\n")
        with pytest.warns(LedgerWarning, match=r"decisions.jsonl:2: left out"):
            assert read_promotions(tmp_path) == {("moe", "a" * 64)}


def test_what_a_search_promotes_gets_a_star(tmp_path, monkeypatch):
    analyse_once(monkeypatch)
    room = SearchRoom(tmp_path, settings=Settings(rounds=3, candidates=3))
    room.run()
    promoted = {line["sha256"] for line in room.archive.lines("decisions").values()
                if line["label"] == PROMOTE}  # fmt: skip
    assert promoted and read_promotions(room.root) == {(ROOM, one) for one in promoted}


def test_work_is_counted_from_the_very_data_that_was_measured(workspace):
    room = workspace.room("gdn_decode")
    sha256 = content_sha256(workspace.root, room)
    _keep(workspace, record(dataset=DatasetIdentity("generated", sha256)))
    found = gather(workspace, NOW)
    (work,) = found.work.values()
    assert len(work) == 2 and all(cost.flops > 0 for cost in work.values())
    _keep(workspace, record(measured_at="2026-03-01T00:00:00Z"))
    found = gather(workspace, NOW)
    assert found.work == {}
    assert found.without_work == {
        ("gdn_decode", "d" * 64): "measured on other workload data than this machine holds"
    }


@pytest.mark.parametrize("room", ["moe", "dsa_indexer", "dsa_attention"])
def test_a_checkout_without_its_tensors_gives_the_same_report(workspace, room):
    _keep_sweep(workspace, room)
    said = []
    without = gather(workspace, NOW, said.append)
    (line,) = said
    assert line.startswith(f"{room}: ") and f"made in {workspace.root / 'blob'}: the roof" in line
    assert without.without_work == {} and list(workspace.root.glob("blob/**/*.safetensors"))
    again = gather(workspace, NOW, pytest.fail)
    assert again.work == without.work and len(*again.work.values()) == len(SMALL[room])


def test_work_that_needs_tensors_that_others_lack_says_what_to_do(workspace, monkeypatch):
    """A data set elsewhere is never written into."""
    foreign = workspace.root.parent / "official"
    for folder in ("definitions", "workloads"):
        shutil.copytree(workspace.root / folder, foreign / folder)
    (foreign / "workloads" / "blobs.sha256").unlink()
    _keep_sweep(workspace, "moe", foreign)
    monkeypatch.setenv("FIB_DATASET_PATH", str(foreign))
    (reason,) = gather(workspace, NOW).without_work.values()
    assert "2 blob(s) of this data set are unfit" in reason and "missing" in reason
    assert str(workspace.root.parent) not in reason
    assert not (foreign / "blob").exists()


def _keep_sweep(workspace, name, root=None):
    room = workspace.room(name)
    identity = DatasetIdentity("generated", content_sha256(root or workspace.root, room))
    _keep(workspace, record(room=name, definition=room.definition, dataset=identity))


# --- failures --------------------------------------------------------------------------------


def _failures(found):
    section = write_failures(found)
    table = section.blocks[0]
    columns = [column.name for column in table.columns]
    return section, [dict(zip(columns, values, strict=True)) for values in table.rows]


def test_the_last_trace_of_the_recorded_content_counts(workspace):
    _keep(workspace, record((row("u-0"), row("u-1", None), row("u-2", None), row("u-3", None))))
    ledger = TraceLedger.of(workspace.root, "nvidia-h200", "gdn_decode")
    times = [f"2026-02-01T00:00:0{second}+00:00" for second in range(4)]
    for one in (
        entry("u-0", "TIMEOUT", ended_at=times[0]),
        entry("u-0", ended_at=times[1]),
        entry("u-1", ended_at=times[0]),
        entry("u-1", "RUNTIME_ERROR", ended_at=times[1], detail="bad launch", log="trace\nlast"),
        entry("u-1", "COMPILE_ERROR", ended_at=times[2], solution_sha256="b" * 64),
        entry("u-2", "INFRASTRUCTURE", ended_at=times[3], detail="the GPU is gone"),
        entry("u-9", "TIMEOUT", ended_at=times[3]),
    ):
        ledger.append(one)
    section, rows = _failures(gather(workspace, NOW))
    assert [(line["workload"], line["status"], line["detail"]) for line in rows] == [
        ("u-1", "RUNTIME_ERROR", "bad launch"),
        ("u-2", "INFRASTRUCTURE", "the GPU is gone"),
        ("u-3", "RUNTIME_ERROR", NO_TRACE),
    ]
    logs = section.blocks[1].blocks
    assert [log.text for log in logs] == ["trace\nlast", "the GPU is gone"]


def test_a_record_and_a_later_trace_may_disagree():
    traces = (entry("u-0", "TIMEOUT", detail="slow now"), entry("u-1"))
    found = evidence([record((row("u-0"), row("u-1", None)))], verdicts=traces)
    _, rows = _failures(found)
    assert [(line["workload"], line["detail"]) for line in rows] == [
        ("u-0", "slow now"), ("u-1", PASSED_LATER),
    ]  # fmt: skip


def test_a_failed_sides_log_is_shown_where_its_content_is_the_recorded_one(workspace):
    one = compare_record({"fla": 2.0}, failing={"fla": (1, "RUNTIME_ERROR", "no kernel")})
    _keep_comparison(workspace, one)
    ledger = CompareLedger.of(workspace.root, one.device, one.room)
    contents = {side.name: side.solution_sha256 for side in one.sides}
    for sides, log in (
        (contents, "an earlier one"),
        (contents, "first\nlast"),
        (contents | {"fla": "f" * 64}, "of other content"),
    ):
        key = CompareKey(
            tuple(sides.items()), "b" * 64, "d" * 64, "e" * 64, (), one.device, "u-1"
        )  # fmt: skip
        results = one.workloads[1].sides
        ledger.append(CompareEntry(key, results, {"fla": log}, (), NOON, NOON))
    section, rows = _failures(gather(workspace, NOW))
    assert [(line["side"], line["status"]) for line in rows] == [("fla", "RUNTIME_ERROR")]
    (log,) = section.blocks[1].blocks
    assert log.title == "gdn_decode on nvidia-h200, fla: RUNTIME_ERROR, workload u-1"
    assert log.text == "first\nlast"


def test_no_score_comes_from_what_is_no_official_comparison(workspace):
    _keep_comparison(workspace, compare_record({"flashinfer": 2.0}))
    found = gather(workspace, NOW)
    official = found.compared["gdn_decode"].official()
    assert official.value is None and "workloads of gdn_decode" in official.reason
    assert any("comparison is no official one" in line for line in list_stale(found))


def test_a_sweep_of_some_workloads_is_no_full_one(workspace):
    _keep(workspace, record())
    found = gather(workspace, NOW)
    assert any("the sweep is no full official one" in line for line in list_stale(found))


# --- which runs are drawn --------------------------------------------------------------------


def _plots(found):
    (device,) = write_figures(found).blocks
    figures = {block.name: block for block in device.blocks if hasattr(block, "svg")}
    notes = device.blocks[-1].items if hasattr(device.blocks[-1], "items") else ()
    return figures, " ".join(notes)


def test_only_runs_that_compare_with_the_latest_make_the_history():
    latest = record()
    others = [
        record(measured_at="2026-01-01T00:00:00Z", timer="events"),
        record(measured_at="2026-01-02T00:00:00Z", dataset=DatasetIdentity("x", "9" * 64)),
        record((row("u-0"),), measured_at="2026-01-03T00:00:00Z"),
        record((row("u-0"), row("u-1", None)), measured_at="2026-01-04T00:00:00Z"),
        record(measured_at="2026-01-05T00:00:00Z"),
    ]
    figures, notes = _plots(evidence([latest], runs=(*others, latest)))
    assert "4 of 6 runs of gdn_decode are left out" in notes
    alone, _ = _plots(evidence([latest], runs=(others[-1], latest)))
    assert figures["history-nvidia-h200"] == alone["history-nvidia-h200"]


def test_stars_follow_the_ledger_of_promotions():
    captions, stars = [], []
    for promoted in (None, frozenset(), frozenset({("gdn_decode", "a" * 64)})):
        figures, _ = _plots(evidence([record()], promoted=promoted))
        captions.append(figures["history-nvidia-h200"].caption)
        stars.append(figures["history-nvidia-h200"].svg.count("<use"))
    assert "No stars: there is no results/search/*/decisions.jsonl." in captions[0]
    assert "A star marks content that was promoted." in captions[1] == captions[2]
    assert stars[0] == stars[1] == stars[2] - 1


def test_sides_without_a_score_have_no_bar():
    failing = {"fla": (0, "TIMEOUT", "slow")}
    one = compare_record({"flashinfer": 2.0, "fla": 3.0}, failing=failing)
    figures, notes = _plots(evidence([], [one]))
    assert "gdn_decode: flashinfer" in figures["speedup-nvidia-h200"].svg
    assert "gdn_decode: fla<" not in figures["speedup-nvidia-h200"].svg
    assert "gdn_decode against fla has no bar" in notes
    figures, _ = _plots(evidence([], [compare_record({"fla": 3.0}, failing=failing)]))
    assert "speedup-nvidia-h200" not in figures


# --- the command -----------------------------------------------------------------------------


@pytest.fixture
def checkout(workspace, monkeypatch):
    _keep(workspace, record())
    monkeypatch.setattr(command, "load_workspace", lambda: load_workspace(workspace.root))
    monkeypatch.setattr(command, "packed_hashes", lambda workspace, rooms: NOW)
    return workspace.root


def _run(*arguments):
    return command.report.main(list(arguments), standalone_mode=False)


def test_the_report_is_written_where_asked(checkout, tmp_path, capsys):
    assert _run("--write") == ExitCode.OK
    assert str(checkout / "results" / "report" / PAGE) in capsys.readouterr().out
    assert _run("--write", str(tmp_path / "elsewhere")) == ExitCode.OK
    written = [
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}
        for folder in (checkout / "results" / "report", tmp_path / "elsewhere")
    ]
    assert written[0] == written[1] and len(written[0]) > 10


def test_the_front_page_does_not_agree_with_a_sweep_of_some_workloads(checkout, capsys):
    (checkout / "README.md").write_text("<!-- results: begin -->\n<!-- results: end -->\n")
    for room in load_workspace(checkout).rooms:
        write_atomically(checkout / "docs" / "kernels" / f"{room}.md", f"# {room}\n")
    assert _run("--readme") == ExitCode.OK
    assert "gdn_decode.json: no full official sweep: expected" in capsys.readouterr().err
    assert _run("--check") == ExitCode.FAILED


@pytest.mark.parametrize(
    "others", [["moe"], ["--device", "x"], ["--workloads"], ["--readme"], ["--check"]]
)
def test_a_report_holds_all_or_nothing(checkout, others, tmp_path):
    with pytest.raises(UsageError, match="nothing else"):
        _run("--write", str(tmp_path / "x"), *others)
    assert not (tmp_path / "x").exists()


def test_a_folder_in_use_is_refused_before_anything_is_read(checkout, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "packed_hashes", None)  # calling it would fail
    (tmp_path / "thesis.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "thesis.txt", tmp_path / "thesis.txt" / "deep" / "er"):
        with pytest.raises(UsageError, match="name another"):
            _run("--write", str(folder))
    assert [path.name for path in tmp_path.iterdir()].count("thesis.txt") == 1


def test_a_report_that_was_killed_at_its_first_file_is_written_again(checkout, tmp_path):
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / f".{PAGE}.partial-x1y2").write_text("<html>")
    assert _run("--write", str(folder)) == ExitCode.OK
    (folder / PAGE).write_bytes(b"\xff\xfe of somebody else")
    with pytest.raises(UsageError, match="an earlier report, got other files"):
        _run("--write", str(folder))


def test_a_room_is_no_folder_unless_written_as_one(checkout, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"got the room moe; .*\./moe names a folder"):
        _run("--write", "moe")
    assert not (tmp_path / "moe").exists()
    assert _run("--write", "./moe") == ExitCode.OK
    assert (tmp_path / "moe" / PAGE).is_file()


@pytest.mark.parametrize(
    ("arguments", "needed"), [(["--help"], ""), (["moe"], ""), (["--check"], "scipy")]
)
def test_tables_load_neither_plots_nor_pages(arguments, needed):
    """The blocks hold ratios of comparisons, which scipy analyses."""
    script = (
        "import sys\n"
        "from harness.cli import main\n"
        f"main(['report', *{arguments!r}])\n"
        f"heavy = {{'matplotlib', 'jinja2', 'scipy', 'torch'}} - {{{needed!r}}}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    root = load_workspace().root
    child = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    assert child.stdout


@pytest.mark.slow
def test_this_checkouts_report_is_of_reasonable_size():
    workspace = load_workspace()
    found = gather(workspace, {})
    page = render(compose(found))[PAGE]
    assert len(page.encode()) < 1 << 20  # what may be committed
    assert page.count("<table") > 2 * len(workspace.rooms)
