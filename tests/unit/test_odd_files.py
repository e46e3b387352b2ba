"""Folders, pipes, foreign bytes and endless names in a file's place: a code, no traceback."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import main
from harness.cli import report as report_command
from harness.compare.revisions import find_commit, pack_revision
from harness.compare.sides import read_word
from harness.config import load_workspace
from harness.dataset.workloads import pinned_hashes
from harness.errors import DatasetError, ExitCode, InfrastructureFailure, RecordError, UsageError
from harness.records import all_latest
from harness.records.lines import append_line, read_lines
from harness.report.document import Column, Kind, Table
from harness.report.tables import to_csv
from tests.small_checkout import small_checkout

ROOT = Path(__file__).resolve().parents[2]
LONG = "x" * 300


def put(path, kind):
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_a_folder_or_a_pipe_in_place_of_a_ledger_is_refused(tmp_path, kind):
    path = tmp_path / "traces" / "room.jsonl"
    put(path, kind)
    with pytest.raises(RecordError, match="expected a file of JSON lines"):
        read_lines(path, lambda value, source: value)
    with pytest.raises(InfrastructureFailure, match="cannot append"):
        append_line(path, {"a": 1})


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_a_folder_or_a_pipe_in_place_of_a_record_is_refused(tmp_path, kind):
    put(tmp_path / "results" / "latest" / "nvidia-h200" / "moe.json", kind)
    with pytest.raises(RecordError, match=r"moe\.json"):
        all_latest(tmp_path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["folder", "pipe", "bytes"])
def test_a_manifest_that_is_no_text_is_refused(tmp_path, kind):
    root = small_checkout(tmp_path / "checkout").root
    manifest = root / "workloads" / "blobs.sha256"
    manifest.unlink()
    if kind == "bytes":
        manifest.write_bytes(b"\xff\xfe\x00")
    else:
        put(manifest, kind)
    with pytest.raises(DatasetError, match=r"blobs\.sha256"):
        pinned_hashes(root)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["evaluate", LONG], ExitCode.USAGE),
        (["evaluate", "gdn_decode", "--workloads", LONG], ExitCode.USAGE),
        (["evaluate", "gdn_decode", "--dataset", LONG], ExitCode.UNFIT),
        (["dataset", "verify", "--dataset", LONG], ExitCode.UNFIT),
        (["dataset", "export", LONG], ExitCode.UNFIT),
        (["report", "--write", LONG], ExitCode.UNFIT),
        (["report", "--device", LONG], ExitCode.USAGE),
        (["score", LONG], ExitCode.USAGE),
    ],
    ids=lambda value: " ".join(value[:2])[:20] if isinstance(value, list) else "",
)
def test_a_name_longer_than_any_file_has_a_code(capsys, arguments, code):
    assert main(arguments) == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_side_longer_than_any_file_is_a_usage_error_that_is_cut():
    with pytest.raises(UsageError, match=r"xxx\.\.\. \(300 characters\)"):
        read_word(load_workspace(), LONG)


# Report


def test_a_device_without_records_is_a_usage_error(capsys):
    assert main(["report", "--device", "nope"]) == ExitCode.USAGE
    assert "expected one of nvidia-h200" in capsys.readouterr().err


def test_a_room_is_no_folder_to_write_into(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report_command, "write_folder", lambda workspace, folder: 0)
    assert main(["report", "--write", "moe"]) == ExitCode.USAGE
    assert "./moe" in capsys.readouterr().err
    assert main(["report", "--write", "./moe"]) == ExitCode.OK
    assert not (tmp_path / "moe").exists()


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-x", "@sum", "\tx"])
def test_no_cell_of_a_table_is_a_formula(text):
    table = Table("t", "caption", (Column("name", Kind.TEXT), Column("us", Kind.RATIO)), ())
    rows = ((text, -1.5), ("plain", 2.0))
    written = list(csv.reader(io.StringIO(to_csv(Table("t", "c", table.columns, rows)))))
    assert written[1][0] == f"'{text}" and float(written[1][1]) == -1.5
    assert written[2] == ["plain", "2.0"]


# Git


def git(folder, *arguments):
    names = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    done = subprocess.run(["git", *names, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """The packable part of this checkout, committed, with a link out of the tree."""
    root = tmp_path / "repository"
    root.mkdir()
    shutil.copy(ROOT / "config.toml", root)
    for folder in ("definitions", "solutions"):
        shutil.copytree(ROOT / folder, root / folder)
    (root / "solutions" / "gdn_decode" / "link.py").symlink_to("/etc/hostname")
    git(root, "init", "-q")
    git(root, "add", "-A", "-f")
    git(root, "commit", "-q", "-m", "first")
    return root


def test_a_link_out_of_a_revision_is_a_usage_error(repository):
    workspace = load_workspace(repository)
    with pytest.raises(UsageError, match="revision HEAD: holds what cannot be laid out here"):
        pack_revision(workspace, "HEAD", git(repository, "rev-parse", "HEAD"), ["gdn_decode"])


def test_a_repository_of_another_owner_has_commits_too(repository, monkeypatch):
    head = git(repository, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    refused = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True
    )
    assert "dubious ownership" in refused.stderr
    assert find_commit(repository, "HEAD") == head


# Packing


def test_a_disk_that_takes_nothing_is_the_machines_fault(tmp_path):
    root = tmp_path / "checkout"
    root.mkdir()
    for name in ("config.toml", "pack.py"):
        shutil.copy(ROOT / name, root)
    for folder in ("definitions", "solutions", "harness"):
        shutil.copytree(ROOT / folder, root / folder)
    command = f"ulimit -f 0; exec '{sys.executable}' pack.py moe"  # no file may grow
    child = subprocess.run(["bash", "-c", command], cwd=root, capture_output=True, text=True)
    assert child.returncode == ExitCode.UNFIT, child.stderr
    assert "cannot be written" in child.stderr and "Traceback" not in child.stderr
