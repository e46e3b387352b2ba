"""The submission's tree: what is in it, what others pack from it, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.audit.catalogue import PROBES
from harness.audit.record import ProbeResult
from harness.cli import main
from harness.cli import submit as command
from harness.config import load_workspace
from harness.errors import EnvironmentUnfit, ExitCode, SubmissionRefused, UsageError
from harness.packing import pack
from harness.packing.folders import SOURCE_SUFFIXES
from harness.records import DatasetIdentity, to_text, write_latest
from harness.submit import (
    CONTEST_DEFINITIONS,
    check_tree,
    choose_rooms,
    collect,
    prepare,
    submission_files,
    write_tree,
)
from tests.official_rooms import official_workspace
from tests.submission_checkout import (
    commit_all,
    git,
    overwrite_latest,
    submission_checkout,
    sweep,
    write_audit,
)

ROOM = "gdn_decode"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return submission_checkout(tmp_path_factory.mktemp("prepared") / "checkout")


@pytest.fixture
def checkout(prepared, tmp_path, monkeypatch):
    """A copy to change; the command line works in it."""
    shutil.copytree(prepared.root, tmp_path / "checkout")
    workspace = load_workspace(tmp_path / "checkout")
    monkeypatch.setattr(command, "load_workspace", lambda: workspace)
    return workspace


def entries_of(workspace, *rooms, **options):
    return prepare(workspace, choose_rooms(workspace, rooms), **options)


@pytest.fixture(scope="module")
def entries(prepared):
    return entries_of(prepared)


@pytest.fixture
def tree(entries, tmp_path):
    write_tree(submission_files(entries, "c" * 40, single=False), tmp_path / "tree")
    return tmp_path / "tree"


def submit(capsys, *arguments):
    """Exit code, standard output and error of `harness submit`."""
    code = main(["submit", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


# What is in the tree


def test_one_folder_a_definition_and_no_config_at_the_root(tree, entries):
    assert sorted(path.name for path in tree.iterdir()) == sorted(
        (*CONTEST_DEFINITIONS, "README.md")
    )
    for entry in entries:
        folder = tree / entry.room.definition
        assert sorted(path.name for path in folder.iterdir()) == [
            "config.toml",
            "solution",
            "solution.json",
        ]
        assert [path.name for path in (folder / "solution").iterdir()] == [entry.config.language]


def test_sources_are_the_packed_bytes(tree, entries):
    for entry in entries:
        folder = tree / entry.room.definition
        packed = json.loads(entry.packed.text)
        assert (folder / "solution.json").read_text() == entry.packed.text
        sources = folder / "solution" / entry.config.language
        found = {path.name: path.read_bytes() for path in sources.iterdir()}
        assert found == {one["path"]: one["content"].encode() for one in packed["sources"]}
        for name, data in found.items():
            origins = [
                load_workspace().root / "solutions" / place / name
                for place in (entry.room.name, "common")
            ]
            assert data in [path.read_bytes() for path in origins if path.exists()]


def test_the_single_form_has_all_of_it_at_the_root(prepared, tmp_path):
    entries = entries_of(prepared, ROOM)
    write_tree(submission_files(entries, "c" * 40, single=True), tmp_path / "tree")
    assert sorted(path.name for path in (tmp_path / "tree").iterdir()) == [
        "README.md",
        "config.toml",
        "solution",
        "solution.json",
    ]
    (one,) = check_tree(tmp_path / "tree", entries, single=True)
    assert (one.folder, one.sha256) == ("", entries[0].packed.sha256)


def test_same_state_same_bytes(entries):
    first = submission_files(entries, "c" * 40, single=False)
    assert first == submission_files(list(entries), "c" * 40, single=False)


def test_every_definition_of_the_contest_is_known_and_no_other():
    answered = [room.definition for room in choose_rooms(official_workspace(), ())]
    assert sorted(answered) == sorted(CONTEST_DEFINITIONS)


# What others pack from it


def kit_pack(folder: Path) -> dict:
    """What the starter kit's script does with a folder, in the words of its documentation."""
    from flashinfer_bench import BuildSpec
    from flashinfer_bench.agents import pack_solution_from_files

    from harness.submit.collector import tomllib

    config = tomllib.loads((folder / "config.toml").read_text())
    build, about = config["build"], config["solution"]
    assert build["language"] in ("triton", "cuda")
    spec = BuildSpec(
        language=build["language"],
        target_hardware=["cuda"],
        entry_point=build["entry_point"],
        destination_passing_style=build.get("destination_passing_style", True),
    )
    return pack_solution_from_files(
        path=str(folder / "solution" / build["language"]),
        spec=spec,
        **{key: about[key] for key in ("name", "definition", "author")},
    ).model_dump(mode="json")


def test_the_official_helper_packs_the_same_solution(tree, entries, tmp_path):
    """Extracted elsewhere, packed by flashinfer-bench's own helper as the starter kit calls it."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tree, elsewhere)
    for entry in entries:
        theirs, ours = kit_pack(elsewhere / entry.room.definition), json.loads(entry.packed.text)
        for solution in (theirs, ours):
            solution["sources"] = {one["path"]: one["content"] for one in solution["sources"]}
        assert theirs == ours


def test_collecting_gives_the_content_hash_of_each_room(tree, entries):
    found = {one.definition: one for one in collect(tree)}
    assert {name: one.sha256 for name, one in found.items()} == {
        entry.room.definition: entry.packed.sha256 for entry in entries
    }
    assert [one.dropped for one in found.values()] == [()] * len(entries)


def test_the_official_packer_takes_the_same_endings():
    from flashinfer_bench.agents.solution_handler import VALID_SOURCE_EXTENSIONS

    assert set(SOURCE_SUFFIXES) == VALID_SOURCE_EXTENSIONS


def test_the_official_program_loads_what_is_packed_beside_the_config(tree):
    from flashinfer_bench.data import Solution

    for path in tree.glob("*/solution.json"):
        assert Solution.model_validate_json(path.read_text()).definition == path.parent.name


def add_root_config(tree):
    (tree / "config.toml").write_text("[workspace]\nname = 'x'\n")


def add_second_config(tree):
    shutil.copytree(tree / CONTEST_DEFINITIONS[0], tree / "another")


def rename_folder(tree):
    (tree / CONTEST_DEFINITIONS[3]).rename(tree / "gdn")


def change_a_byte(tree):
    path = tree / CONTEST_DEFINITIONS[3] / "solution" / "triton" / "kernel.py"
    path.write_text(path.read_text() + "\n")


def add_dropped_file(tree):
    (tree / CONTEST_DEFINITIONS[3] / "solution" / "triton" / "table.inl").write_text("1")


def remove_source_folder(tree):
    shutil.rmtree(tree / CONTEST_DEFINITIONS[3] / "solution")


def name_a_track(tree):
    path = tree / CONTEST_DEFINITIONS[3] / "config.toml"
    path.write_text(path.read_text().replace(CONTEST_DEFINITIONS[3], "gated_delta_net"))


def change_the_packed_file(tree):
    path = tree / CONTEST_DEFINITIONS[3] / "solution.json"
    path.write_text(path.read_text().replace("contest-kernels", "somebody"))


def flip_calling_style(tree):
    path = tree / CONTEST_DEFINITIONS[3] / "config.toml"
    path.write_text(path.read_text().replace("style = true", "style = false"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (add_root_config, "config.toml: expected [solution] and [build]"),
        (add_second_config, "expected one config.toml, collected 2"),
        (rename_folder, f"expected in {CONTEST_DEFINITIONS[3]}, found in gdn"),
        (change_a_byte, "other bytes"),
        (add_dropped_file, "left behind when packed: table.inl"),
        (remove_source_folder, "expected the folder solution/triton beside it, got none"),
        (name_a_track, "'gated_delta_net' is not to be submitted"),
        (change_the_packed_file, "expected solution.json beside it"),
        (flip_calling_style, "other bytes"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_topology_check_sees(tree, entries, damage, words):
    assert len(check_tree(tree, entries, single=False)) == 5
    damage(tree)
    with pytest.raises(SubmissionRefused) as caught:
        check_tree(tree, entries, single=False)
    assert words in str(caught.value)


# What is refused


def refused(workspace, *rooms, **options):
    with pytest.raises(SubmissionRefused) as caught:
        entries_of(workspace, *rooms, **options)
    return str(caught.value)


def fail_audit(workspace):
    first, *others = PROBES
    failed = ProbeResult(first.name, first.claim, "FAILED", "it is")
    passed = [ProbeResult(probe.name, probe.claim, "PASSED", "") for probe in others]
    write_audit(workspace, ROOM, probes=(failed, *passed))


def test_evidence_of_other_bytes_is_refused(checkout):
    path = checkout.root / "solutions" / ROOM / "kernel.py"
    path.write_text(path.read_text() + "\n# later\n")
    text = refused(checkout, ROOM)
    assert "2 objections" in text  # sweep and audit
    assert f"expected a sweep of {pack(checkout, ROOM).name}, got gdn_decode-" in text
    assert "expected an audit of" in text
    assert len(entries_of(checkout, "moe")) == 1


def test_a_room_that_was_never_measured_is_refused(checkout):
    (checkout.root / "results" / "latest" / "nvidia-h200" / f"{ROOM}.json").unlink()
    assert "got none; run `python -m harness evaluate gdn_decode" in refused(checkout, ROOM)


def test_a_failing_sweep_is_refused(checkout):
    record = sweep(checkout, ROOM)
    failed = replace(record.workloads[1], status="INCORRECT_NUMERICAL", latency_us=None)
    write_latest(replace(record, workloads=(record.workloads[0], failed)), checkout.root)
    text = refused(checkout, ROOM)
    assert "expected 2 workloads passed, got 1" in text
    assert f"{failed.uuid[:8]} INCORRECT_NUMERICAL" in text


def test_a_failure_of_these_bytes_on_any_device_is_refused(checkout):
    record = sweep(checkout, ROOM, device="nvidia-b200")
    failed = replace(record.workloads[0], status="RUNTIME_ERROR", latency_us=None)
    write_latest(replace(record, workloads=(failed, record.workloads[1])), checkout.root)
    assert "results/latest/nvidia-b200/gdn_decode.json: expected 2" in refused(checkout, ROOM)


def test_an_incomplete_sweep_is_refused(checkout):
    record = sweep(checkout, ROOM)
    overwrite_latest(checkout, replace(record, workloads=record.workloads[:1]))
    assert "expected the 2 official workloads in order, got 1" in refused(checkout, ROOM)


def test_a_sweep_with_other_settings_is_refused(checkout):
    record = sweep(checkout, ROOM)
    overwrite_latest(checkout, replace(record, protocol=replace(record.protocol, trials=1)))
    assert "protocol.trials: expected the official 3, got 1" in refused(checkout, ROOM)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"judge_sha256": "0" * 64}, "judged by another judge: expected "),
        ({"dataset": DatasetIdentity("generated", "0" * 64)}, "judged on other data: expected "),
        ({"definition": "gdn_prefill_qk4_v8_d128_k_last"}, "definition: expected gdn_decode_qk4"),
        ({"clocks": {"samples": 2, "throttled": 3}}, "clocks: 3 of 2 samples throttled"),
        ({"measured_at": "2999-01-01T00:00:00Z"}, "measured_at: expected a time before 2"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_record_that_today_contradicts_is_refused(checkout, change, words):
    overwrite_latest(checkout, replace(sweep(checkout, ROOM), **change))
    text = refused(checkout, ROOM)
    assert "1 objection:" in text
    assert f"results/latest/nvidia-h200/gdn_decode.json: {words}" in text
    assert "; run `python -m harness evaluate gdn_decode --workloads all --record`" in text


def test_a_record_of_other_axes_is_refused(checkout):
    record = sweep(checkout, ROOM)
    first, *others = record.workloads
    other = replace(first, axes={"batch_size": 4096})
    overwrite_latest(checkout, replace(record, workloads=(other, *others)))
    text = refused(checkout, ROOM)
    expected = f"{first.uuid[:8]}.axes: expected {dict(first.axes)}, got {{'batch_size': 4096}}"
    assert f"{expected}; run `python -m harness evaluate" in text


def test_a_judge_that_changed_since_asks_for_a_new_sweep(checkout):
    path = checkout.root / "harness" / "timing.py"
    path.write_text(path.read_text() + "\n")
    text = refused(checkout)
    assert "5 objections" in text
    assert text.count("judged by another judge") == 5


def test_a_shelf_that_is_a_link_is_refused(checkout):
    shelf = checkout.root / "solutions" / "common"
    shelf.rename(checkout.root / "elsewhere")
    shelf.symlink_to("../elsewhere")
    assert "solutions/common: expected a folder, got a symbolic link" in refused(checkout, "moe")


def test_a_failed_audit_is_refused_whatever_is_asked(checkout):
    fail_audit(checkout)
    for options in ({}, {"without_audit": True}):
        text = refused(checkout, ROOM, **options)
        assert f"the audit of these bytes did not pass ({PROBES[0].name} FAILED)" in text


@pytest.mark.parametrize("case", ["missing", "of other bytes"])
def test_a_missing_audit_is_refused_unless_left_out_on_purpose(checkout, case):
    path = write_audit(checkout, ROOM, solution_sha256="0" * 64, solution_name="gdn_decode-0")
    if case == "missing":
        path.unlink()
    got = "none;" if case == "missing" else "gdn_decode-0;"
    assert f"expected an audit of gdn_decode-{pack(checkout, ROOM).sha256[:8]}, got {got}" in (
        refused(checkout, ROOM)
    )
    (entry,) = entries_of(checkout, ROOM, without_audit=True)
    readme = submission_files([entry], "c" * 40, single=True)["README.md"].decode()
    assert "not audited (--without-audit)" in readme


def test_all_objections_come_at_once(checkout):
    shutil.rmtree(checkout.root / "results")
    assert "10 objections" in refused(checkout)


def test_a_definition_that_the_contest_does_not_know_is_refused(checkout):
    path = checkout.root / "config.toml"
    path.write_text(path.read_text().replace("gdn_decode_qk4_v8_d128_k_last", "gdn_decode_long"))
    workspace = load_workspace(checkout.root)
    with pytest.raises(UsageError, match="expected one of the contest's definitions"):
        choose_rooms(workspace, [ROOM])
    with pytest.raises(UsageError, match=f"Leave {ROOM} out"):
        choose_rooms(workspace, ())


def test_two_rooms_of_one_definition_must_be_chosen_between(checkout):
    rooms = dict(checkout.rooms) | {"second": replace(checkout.rooms[ROOM], name="second")}
    workspace = replace(checkout, rooms=rooms)
    with pytest.raises(UsageError, match="expected one room, got gdn_decode and second"):
        choose_rooms(workspace, ())
    assert [room.name for room in choose_rooms(workspace, ["second"])] == ["second"]


# The command


def test_an_audit_from_before_a_probe_was_added_is_refused(checkout):
    first, *others = PROBES
    passed = [ProbeResult(probe.name, probe.claim, "PASSED", "") for probe in others]
    write_audit(checkout, ROOM, probes=tuple(passed))
    assert f"({first.name} not asked)" in refused(checkout, ROOM)


def test_the_command_prints_what_an_evaluator_sees_and_tags_nothing(checkout, tmp_path, capsys):
    before = git(checkout.root, "rev-parse", "HEAD")
    code, out, err = submit(capsys, tmp_path / "out")
    assert (code, err) == (ExitCode.OK, "")
    for room in checkout.rooms:
        packed = pack(checkout, room)
        assert packed.sha256 in out
        assert f"{packed.name} by contest-kernels, triton, kernel.py::run" in out
    assert "nvidia-h200: 2/2 passed, mean 2.187 µs (cupti" in out
    assert f"{len(PROBES)} probes passed on nvidia-h200 (2026-02-01T00:00:00Z)" in out
    assert "not tagged" in out
    assert f"made from commit {before.strip()}" in out
    assert git(checkout.root, "tag", "--list") == ""
    assert git(checkout.root, "status", "--porcelain") == ""
    assert len(list((tmp_path / "out").glob("*/config.toml"))) == 5


def test_a_placeholder_for_the_author_is_warned_of_and_nothing_else_changes(
    checkout, tmp_path, capsys
):
    code, out, _ = submit(capsys, tmp_path / "out")
    assert code == ExitCode.OK
    every = ", ".join(checkout.rooms)
    assert out.count("warning:") == 1
    assert f"warning: the author 'contest-kernels' of {every} is a placeholder" in out
    for room in checkout.rooms:
        path = checkout.root / "solutions" / room / "config.toml"
        before = pack(checkout, room).sha256
        author = '"Your-Team-Name"' if room == ROOM else '"the-fast-ones"'
        path.write_text(path.read_text().replace('"contest-kernels"', author))
        assert pack(checkout, room).sha256 == before
    commit_all(checkout)
    code, out, err = submit(capsys, tmp_path / "other")
    assert code == ExitCode.OK, err
    assert f"warning: the author 'Your-Team-Name' of {ROOM} is a placeholder" in out


@pytest.mark.parametrize("change", ["modified", "untracked"])
def test_a_dirty_tree_is_refused_and_nothing_is_written(checkout, tmp_path, capsys, change):
    name = "config.toml" if change == "modified" else "notes.txt"
    with (checkout.root / name).open("a") as file:
        file.write("\n")
    code, out, err = submit(capsys, tmp_path / "out")
    assert (code, out) == (ExitCode.FAILED, "")
    assert f"expected a clean working tree, got changes in {name}; commit them first" in err
    assert not (tmp_path / "out").exists()


def test_a_refusal_writes_nothing(checkout, tmp_path, capsys):
    fail_audit(checkout)
    commit_all(checkout)
    code, _, err = submit(capsys, tmp_path / "out")
    assert code == ExitCode.FAILED
    assert "not submitted, 1 objection:\ngdn_decode: results/audit/gdn_decode.json" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkout"]


def test_the_folder_must_be_free_and_outside(checkout, tmp_path, capsys):
    assert submit(capsys, checkout.root)[0] == ExitCode.USAGE
    code, _, err = submit(capsys, checkout.root / "out")
    assert (code, "outside the checkout" in err) == (ExitCode.USAGE, True)
    (tmp_path / "out").mkdir()
    assert submit(capsys, tmp_path / "out", ROOM)[0] == ExitCode.OK
    code, _, err = submit(capsys, tmp_path / "out", ROOM)
    assert (code, "got one in use" in err) == (ExitCode.USAGE, True)


def test_an_empty_folder_stays_the_folder_that_it_is(tmp_path):
    """It may be a mount point, which nothing can be renamed over."""
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    before = folder.stat()
    write_tree({"README.md": b"1", "a/b": b"2"}, folder)
    after = folder.stat()
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["README.md", "a", "b", "out"]


@pytest.mark.parametrize("existed", [False, True], ids=["new folder", "empty folder"])
def test_a_tree_that_cannot_be_written_whole_leaves_nothing(tmp_path, existed):
    folder = tmp_path / "out"
    if existed:
        folder.mkdir()
    with pytest.raises(EnvironmentUnfit, match="cannot be written"):
        write_tree({"a": b"1", "a/b": b"2"}, folder)
    assert sorted(tmp_path.rglob("*")) == [folder] * existed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--push"], "--push: expected --tag"),
        (["--per-definition", "--tag"], "--per-definition: expected --single and --tag"),
        (["--single"], "--single: expected one room, got moe, dsa_indexer"),
        (["--tag", "--push", "nowhere"], "it has none"),
        (["gdn_decod"], "expected one of moe"),
    ],
)
def test_options_that_do_not_fit_are_usage(checkout, tmp_path, capsys, arguments, words):
    code, _, err = submit(capsys, tmp_path / "out", *arguments)
    assert (code, words in err) == (ExitCode.USAGE, True), err
    assert not (tmp_path / "out").exists()


def test_a_record_that_lies_about_its_room_is_refused(checkout):
    path = checkout.root / "results" / "latest" / "nvidia-h200" / "moe.json"
    path.write_text(to_text(sweep(checkout, ROOM)))
    with pytest.raises(Exception, match="expected what its path says"):
        entries_of(checkout, ROOM)
