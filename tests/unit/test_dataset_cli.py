"""`python -m harness dataset …`: what it prints and its exit codes."""

from __future__ import annotations

import re

import pytest

from harness import dataset
from harness.cli import dataset as commands
from harness.cli import main
from harness.dataset import read_workloads
from harness.errors import ExitCode
from tests.official_rooms import official_workspace
from tests.small_checkout import SMALL, small_checkout

BLOBS = sum(len(positions) for positions in SMALL.values())


@pytest.fixture
def small(tmp_path, monkeypatch):
    workspace = small_checkout(tmp_path / "checkout")
    monkeypatch.setattr(commands, "load_workspace", lambda: workspace)
    monkeypatch.delenv("FIB_DATASET_PATH", raising=False)
    return workspace


def run(capsys, *arguments):
    code = main(["dataset", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_make_then_verify(small, capsys):
    code, out, err = run(capsys, "make", "--jobs", "1")
    assert code == ExitCode.OK
    assert re.fullmatch(rf"made {BLOBS} blobs \(.* MB\), kept 0 \(0\.0 MB\)\n", out)
    assert len(err.splitlines()) == len(small.rooms) < BLOBS
    code, out, _ = run(capsys, "verify")
    assert code == ExitCode.OK
    assert f"{BLOBS} blobs checked, {BLOBS} with their hash" in out


def test_make_of_one_room_and_one_workload(small, capsys):
    code, out, err = run(capsys, "make", "moe", "gdn_decode", "--workloads", "901e5104,e05c6c03")
    assert (code, out.split(" blobs")[0]) == (ExitCode.OK, "made 2")
    assert {line.split(":")[0] for line in err.splitlines()} == {"moe", "gdn_decode"}
    assert len(list(small.root.glob("blob/workloads/*/*/*"))) == 2


def test_verify_lists_each_fault_and_ends_with_3(small, capsys):
    run(capsys, "make", "moe")
    rows = read_workloads(small.root, small.room("moe"))
    (small.root / rows[0].blob_paths[0]).unlink()
    code, out, err = run(capsys, "verify", "moe")
    assert code == ExitCode.UNFIT
    assert out.splitlines()[0].startswith(str(small.root / rows[0].blob_paths[0]))
    assert ": missing: " in out
    assert "1 of 2 blobs are unfit" in err and "dataset make" in err
    code, _, _ = run(capsys, "verify", "moe", "--workloads", rows[1].uuid)
    assert code == ExitCode.OK


def test_verify_of_an_empty_checkout_is_a_few_lines_and_the_next_step(small, capsys):
    code, out, err = run(capsys, "verify")
    assert code == ExitCode.UNFIT
    lines = out.splitlines()
    assert [": missing: no such file" in line for line in lines] == [True, True, True, False]
    assert lines[-1] == f"and {BLOBS - 3} more: missing"
    assert f"{BLOBS} of {BLOBS} blobs are unfit; run `python -m harness dataset make`" in err


def test_only_blobs_that_were_read_count_as_compared(small):
    dataset.make(small.root, small.rooms, jobs=1)
    rows = read_workloads(small.root, small.room("moe"))
    missing, other = (small.root / row.blob_paths[0] for row in rows)
    missing.unlink()
    content = bytearray(other.read_bytes())
    content[-1] ^= 1
    other.write_bytes(content)
    verdict = dataset.verify(small.root, small.rooms.values())
    assert (len(verdict.faults), verdict.checked, verdict.hashed) == (2, BLOBS, BLOBS - 1)


def test_the_rare_fault_is_not_lost_among_many(small, capsys):
    run(capsys, "make", "moe")
    path = small.root / read_workloads(small.root, small.room("moe"))[0].blob_paths[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    _, out, err = run(capsys, "verify")
    assert f"{path}: wrong hash: " in out
    assert "dataset make --remake`" in err


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_checkout_without_a_readable_manifest_is_unfit(small, capsys, content):
    manifest = small.root / "workloads" / "blobs.sha256"
    if content is None:
        manifest.unlink()
    else:
        manifest.write_bytes(content)
    for command in ("make", "verify"):
        code, _, err = run(capsys, command)
        assert code == ExitCode.UNFIT
        assert err.startswith(f"error: {manifest}: ") and err.count("\n") == 1
    assert not (small.root / "blob").exists()


@pytest.mark.parametrize("command", ["verify --dataset", "fetch", "export"])
def test_the_home_of_nobody_is_a_usage_error(small, capsys, command):
    code, _, err = run(capsys, *command.split(), "~nosuchuser")
    assert code == ExitCode.USAGE and "~nosuchuser: no such user" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("make", "fused_moe"), "expected one of moe"),
        (("make", "--workloads", "zz"), "no UUID starts with"),
        (("make", "--workloads", "9"), "ambiguous"),
        (("make", "--jobs", "0"), "--jobs"),
        (("export",), "DIRECTORY"),
        (("remake",), "remake"),
    ],
)
def test_usage_errors_end_with_2(small, capsys, arguments, words):
    code, _, err = run(capsys, *arguments)
    assert code == ExitCode.USAGE
    assert words in err
    assert not (small.root / "blob").exists()


def test_a_data_set_that_is_not_one_ends_with_3(small, capsys, monkeypatch, tmp_path):
    code, _, err = run(capsys, "verify", "--dataset", str(tmp_path))
    assert code == ExitCode.UNFIT and "no definitions/" in err
    monkeypatch.setenv("FIB_DATASET_PATH", str(tmp_path / "absent"))
    code, _, err = run(capsys, "verify")
    assert code == ExitCode.UNFIT and "FIB_DATASET_PATH" in err


def test_fetch_without_the_library_ends_with_4(small, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    code, _, err = run(capsys, "fetch", str(tmp_path / "official"))
    assert code == ExitCode.TOOL_MISSING and "-m pip install" in err
    assert not (tmp_path / "official").exists()


def test_a_fetched_set_is_verified(small, capsys, monkeypatch, tmp_path):
    run(capsys, "make")
    monkeypatch.setattr(dataset, "fetch", lambda workspace, directory: (small.root, "f" * 40))
    code, out, _ = run(capsys, "fetch", str(tmp_path / "official"))
    assert code == ExitCode.OK and f"FIB_DATASET_PATH={small.root}" in out
    rows = read_workloads(small.root, small.room("moe"))
    pointer = b"version https://git-lfs.github.com/spec/v1\n"
    (small.root / rows[0].blob_paths[0]).write_bytes(pointer)
    code, out, err = run(capsys, "fetch", str(tmp_path / "official"))
    assert code == ExitCode.UNFIT and "Git-LFS pointer" in out and "1 of 11" in err


def test_export_reports_and_refuses_a_folder_in_use(small, capsys, monkeypatch, tmp_path):
    export = dataset.export

    def pack_from_the_checkout(workspace, source, directory, spec, progress):
        return export(official_workspace(), source, directory, spec, progress)

    monkeypatch.setattr(dataset, "export", pack_from_the_checkout)
    uuids = [row.uuid for row in dataset.read_workloads(small.root, small.room("gdn_decode"))]
    choice = ("--workloads", ",".join(uuids))
    code, out, _ = run(capsys, "export", str(tmp_path / "out"), *choice)
    assert code == ExitCode.OK
    assert "1 definitions, 2 workloads, 1 solutions, 2 blobs" in out
    code, _, err = run(capsys, "export", str(tmp_path / "out"), *choice)
    assert code == ExitCode.USAGE and "new or empty" in err
