"""`harness new` and `harness clean`."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli import main, rooms
from harness.cli.caches import find_caches
from harness.cli.room_skeleton import USUAL
from harness.cli.rooms import config_table, planned_room, start_room
from harness.config import load_workspace
from harness.dataset import read_workloads
from harness.errors import ConfigError, UsageError
from harness.packing import pack
from harness.packing.official import validate
from tests.official_rooms import OFFICIAL_ROOMS
from tests.small_checkout import small_checkout, workload_file

REPOSITORY = Path(__file__).resolve().parents[2]
ATTENTION = "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A small checkout with the real shelf, which the commands take for their own."""
    workspace = small_checkout(tmp_path / "checkout")
    shelf = workspace.root / "solutions" / "common"
    shelf.mkdir(parents=True)
    source = REPOSITORY / "solutions" / "common" / "arguments.py"
    (shelf / "arguments.py").write_text(source.read_text())
    monkeypatch.setattr(rooms, "load_workspace", lambda: load_workspace(workspace.root))
    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "fib"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return workspace


def files(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


# new


@pytest.mark.parametrize("room", OFFICIAL_ROOMS)
def test_a_new_room_packs_and_is_well_formed(checkout, room):
    definition = checkout.room(room).definition
    made = start_room(checkout, room, definition)
    assert sorted(path.relative_to(checkout.root).as_posix() for path in made) == [
        f"docs/kernels/{room}.md",
        f"solutions/{room}/README.md",
        f"solutions/{room}/config.toml",
        f"solutions/{room}/kernel.py",
        f"tests/unit/test_{room}.py",
    ]
    assert validate(pack(checkout, room))
    python = [str(path) for path in made if path.suffix == ".py"]
    for command in (["format", "--check", "--diff"], ["check", "--ignore", "I001"]):
        settings = ["--config", str(REPOSITORY / "pyproject.toml"), "--no-cache"]
        ruff = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *settings, *python],
            capture_output=True,
            text=True,
        )
        assert ruff.returncode == 0, ruff.stdout


def load_kernel(checkout, room):
    """The packed kernel module, imported as a package."""
    package = checkout.root / f"built_{room}"
    package.mkdir()
    for source in json.loads(pack(checkout, room).text)["sources"]:
        (package / source["path"]).write_text(source["content"])
    sys.path.insert(0, str(checkout.root))
    try:
        importlib.invalidate_caches()
        return importlib.import_module(f"{package.name}.kernel")
    finally:
        sys.path.remove(str(checkout.root))


def test_the_skeleton_checks_its_arguments_and_never_passes(checkout):
    import torch

    start_room(checkout, "dsa_attention", ATTENTION)
    run = load_kernel(checkout, "dsa_attention").run

    def arguments(tokens=2, pages=3, **changed):
        shapes = {
            "q_nope": torch.empty(tokens, 16, 512, dtype=torch.bfloat16),
            "q_pe": torch.empty(tokens, 16, 64, dtype=torch.bfloat16),
            "ckv_cache": torch.empty(pages, 64, 512, dtype=torch.bfloat16),
            "kpe_cache": torch.empty(pages, 64, 64, dtype=torch.bfloat16),
            "sparse_indices": torch.empty(tokens, 2048, dtype=torch.int32),
            "sm_scale": 1.0,
            "output": torch.empty(tokens, 16, 512, dtype=torch.bfloat16),
            "lse": torch.empty(tokens, 16),
        }
        return list({**shapes, **changed}.values())

    with pytest.raises(RuntimeError, match="dsa_attention: no kernel is launched yet"):
        run(*arguments())
    run(*arguments(tokens=0))
    wrong = {
        "q_pe": (ValueError, torch.empty(3, 16, 64, dtype=torch.bfloat16)),
        "kpe_cache": (ValueError, torch.empty(4, 64, 64, dtype=torch.bfloat16)),
        "sparse_indices": (TypeError, torch.empty(2, 2048, dtype=torch.int64)),
        "sm_scale": (TypeError, "1"),
        "lse": (TypeError, None),
    }
    for name, (error, value) in wrong.items():
        with pytest.raises(error, match=name):
            run(*arguments(**{name: value}))
    query = torch.empty(2, 16, 512, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"output: .*overlap with q_nope"):
        run(*arguments(q_nope=query, output=query))


@pytest.mark.parametrize(
    "name",
    [
        *("", "Room", "2rooms", "a-b", "a b", "../evil", "a/b", "_a", "a__b", "class", "common"),
        *("attention_v2", "utils", "gdn_new", "decode_helpers", "x" * 65),
    ],
)
def test_bad_names_are_refused(checkout, name):
    with pytest.raises(UsageError, match="room: expected a short noun"):
        start_room(checkout, name, ATTENTION)
    assert not (checkout.root / "tests").exists()


def test_nothing_that_exists_is_touched(checkout):
    start_room(checkout, "dsa_attention", ATTENTION)
    before = {name: (checkout.root / name).read_bytes() for name in files(checkout.root)}
    with pytest.raises(UsageError, match="exists already"):
        start_room(checkout, "dsa_attention", ATTENTION)
    page = checkout.root / "docs" / "kernels" / "sparse.md"
    page.write_text("mine")
    with pytest.raises(UsageError, match=r"docs/kernels/sparse\.md exists already"):
        start_room(checkout, "sparse", ATTENTION)
    page.unlink()
    assert {name: (checkout.root / name).read_bytes() for name in files(checkout.root)} == before


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ("sparse_attention", "is a track; expected .*dsa_topk_indexer.*, dsa_sparse_attention"),
        ("softmax", "expected one of .*gdn_decode_qk4_v8_d128_k_last.*; got 'softmax'"),
    ],
)
def test_unknown_definitions_are_refused(checkout, definition, words):
    with pytest.raises(UsageError, match=words):
        start_room(checkout, "sparse", definition)


def test_a_known_room_keeps_its_definition(checkout):
    with pytest.raises(UsageError, match=r"config\.toml with the definition 'gdn_decode"):
        start_room(checkout, "gdn_decode", ATTENTION)


def test_a_failed_start_leaves_nothing(checkout, monkeypatch, capsys):
    write_text = Path.write_text

    def fail(path, *arguments, **options):
        if path.suffix == ".md":
            raise OSError(28, "No space left on device", str(path))
        return write_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", fail)
    before = files(checkout.root)
    assert main(["new", "sparse", "--definition", ATTENTION]) == 3
    assert "No space left" in capsys.readouterr().err
    assert files(checkout.root) == before


def test_the_command_says_what_to_add(checkout, capsys):
    assert main(["new", "sparse", "--definition", ATTENTION]) == 0
    out = capsys.readouterr().out
    table = config_table(planned_room(checkout, "sparse", ATTENTION))
    assert table in out
    smoke = checkout.room("dsa_attention").smoke[0]
    assert out.endswith(
        "    python pack.py sparse\n"
        f"    python -m harness evaluate sparse --workloads {smoke}\n"
        "    python -m harness evaluate sparse\n"
    )
    path = checkout.root / "config.toml"
    path.write_text(f"{path.read_text()}\n{table}")
    room = load_workspace(checkout.root).room("sparse")
    assert room == replace(checkout.room("dsa_attention"), name="sparse", track=None)


def test_a_started_room_without_its_table_is_told_so(checkout):
    start_room(checkout, "sparse", ATTENTION)
    words = (
        r"solutions/sparse exists, but config\.toml has no \[rooms\.sparse\]; add the table that "
        "`python -m harness new` printed"
    )
    for ask in (checkout.room, lambda room: pack(checkout, room)):
        with pytest.raises(ConfigError, match=words):
            ask("sparse")
    for other in ("sparsely", "common", "", ".", "../solutions/sparse"):
        with pytest.raises(ConfigError, match="room: expected one of moe"):
            checkout.room(other)


@pytest.mark.parametrize("room", OFFICIAL_ROOMS)
def test_a_second_room_is_judged_as_the_first_of_its_definition(checkout, room):
    """moe's tolerances and gdn_prefill's number of calls are not the usual ones."""
    first = checkout.room(room)
    second = planned_room(checkout, "second", first.definition)
    path = checkout.root / "config.toml"
    path.write_text(f"{path.read_text()}\n{config_table(second)}")
    workspace = load_workspace(checkout.root)
    assert workspace.room("second") == replace(first, name="second", track=None)
    assert workspace.contest_rooms == checkout.contest_rooms


def test_a_second_room_is_told_how_it_enters_the_contest(checkout, capsys):
    assert main(["new", "sparse", "--definition", ATTENTION]) == 0
    out = capsys.readouterr().out
    assert "dsa_attention is in the contest with this definition, so sparse is judged" in out
    assert 'With `track = "sparse_attention"` both are in' in out


def test_a_room_of_a_new_definition_starts_with_its_first_workload(checkout):
    alone = replace(checkout, rooms={"moe": checkout.room("moe")})
    room = planned_room(alone, "sparse", ATTENTION)
    first = read_workloads(checkout.root, checkout.room("dsa_attention"))[0].uuid[:8]
    assert (room.smoke, room.smoke_cpu) == ((first,), (first,))
    assert (room.op_type, room.track, room.evaluation) == ("dsa_paged", "dsa_paged", USUAL)


def test_without_workloads_the_command_says_which_file_comes_first(checkout, capsys):
    path = checkout.root / "config.toml"
    text = path.read_text()
    path.write_text(text[: text.index("[rooms.dsa_attention]")])
    workload_file(checkout, "dsa_attention").unlink()
    assert main(["new", "sparse", "--definition", ATTENTION]) == 0
    out = capsys.readouterr().out
    assert f"workloads/dsa_paged/{ATTENTION}.jsonl comes first" in out
    assert "--workloads" not in out


# clean

EVERYTHING = ("--traces", "--shared")


@pytest.fixture
def littered(checkout, tmp_path):
    """The checkout with every kind of cache, and files beside them that are not ours."""
    ours = [
        "checkout/solutions/moe/solution.json",
        "checkout/solutions/moe/solution.json.77.partial",
        "checkout/traces/cpu/moe.jsonl",
        "fib/triton/fib_triton_moe_0123abcd_aaaaaa/pkg/kernel.py",
        f"fib/python/fib_python_{ATTENTION}__reference_bbbbbb/pkg/main.py",
        "fib/build_locks/aaaaaa0000.lock",
        "flashinfer-contest-kernels/GPU-1.lock",
    ]
    others = [
        "checkout/results/latest/nvidia-h200/moe.json",
        "checkout/blob/workloads/x.safetensors",
        "fib/triton/fib_triton_moe_theirs_cccccc/pkg/kernel.py",
        "fib/triton/fib_triton_their_moe_0123abcd/pkg/kernel.py",
        "fib/python/fib_python_softmax__reference_dddddd/pkg/main.py",
        "fib/build_locks/cccccc0000.lock",
    ]
    for name in ours + others:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 1000)
    return [tmp_path / name for name in ours], [tmp_path / name for name in others]


def test_clean_removes_ours_alone(littered, checkout, capsys):
    ours, others = littered
    kept = [path for path in files(checkout.root) if not path.startswith(("traces", "solutions/m"))]
    assert main(["clean", *EVERYTHING]) == 0
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in others)
    assert files(checkout.root) == kept
    assert "freed" in capsys.readouterr().out
    assert find_caches(checkout) == []


def test_clean_removes_what_killed_writers_have_left(checkout, capsys):
    names = ("solutions/moe/.solution.json.partial-a1", "results/latest/h/.moe.json.partial-b2")
    for name in (*names, "results/plots/.x.svg.partial-now"):
        path = checkout.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{")
    for name in names:
        os.utime(checkout.root / name, (0, 0))
    assert main(["clean"]) == 0
    assert not any((checkout.root / name).exists() for name in names)
    assert (checkout.root / "results/plots/.x.svg.partial-now").exists()  # somebody may write it
    assert "in use" in capsys.readouterr().out


def test_a_dry_run_lists_and_removes_nothing(littered, capsys):
    ours, others = littered
    assert main(["clean", *EVERYTHING, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert all(path.exists() for path in ours + others)
    lines = [line.split() for line in out.splitlines()]
    assert [(line[2], line[3]) for line in lines[:-1]] == [
        ("solution", "2"),
        ("traces", "1"),
        ("build", "2"),
        ("lock", "2"),
    ]
    assert [line[-1] for line in lines[:2]] == ["solutions/moe", "traces"]
    assert "to free" in out


@pytest.mark.parametrize(
    ("options", "gone", "left"),
    [
        ([], 2, ["traces  (--traces)", "(--shared)", "(--shared)"]),
        (["--traces"], 3, ["(--shared)", "(--shared)"]),
        (["--shared"], 6, ["traces  (--traces)"]),
    ],
)
def test_traces_and_shared_caches_go_only_when_named(littered, capsys, options, gone, left):
    assert main(["clean", *options]) == 0
    assert [path.exists() for path in littered[0]].count(False) == gone
    assert not littered[0][0].exists()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left")]
    assert len(lines) == len(left)
    assert all(line.endswith(end) for line, end in zip(lines, left, strict=True))


@pytest.mark.parametrize("lock", ["build_locks/aaaaaa0000.lock", "triton/{build}/lock"])
def test_a_held_lock_and_its_build_are_left_and_shown_with_age(littered, tmp_path, lock, capsys):
    build = tmp_path / "fib" / "triton" / "fib_triton_moe_0123abcd_aaaaaa"
    path = tmp_path / "fib" / lock.format(build=build.name)
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        hours_ago = path.stat().st_mtime - 7200
        for file in (path, *build.rglob("*"), build):
            os.utime(file, (hours_ago, hours_ago))
        assert main(["clean", "--shared"]) == 0
    out = capsys.readouterr().out
    assert path.exists()
    assert build.exists()
    held = [line for line in out.splitlines() if line.startswith("in use")]
    assert f"2 h  {build}" in "\n".join(held)
    assert main(["clean", "--shared"]) == 0
    assert not path.exists()
    assert not build.exists()


def test_the_ledger_of_a_run_that_writes_is_left(littered, checkout, capsys):
    ledger = littered[0][2]
    lock = ledger.with_name("moe.jsonl.lock")
    with lock.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert main(["clean", "--traces"]) == 0
        assert ledger.exists() and lock.exists()
    held = [line for line in capsys.readouterr().out.splitlines() if line.startswith("in use")]
    assert any("traces" in line for line in held)
    assert main(["clean", "--traces"]) == 0
    assert not ledger.exists()


def test_what_cannot_be_removed_is_an_error(littered, monkeypatch, capsys):
    def refuse(path, *arguments):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("harness.cli.caches.shutil.rmtree", refuse)
    assert main(["clean", "--shared"]) == 3
    captured = capsys.readouterr()
    assert "cannot be removed" in captured.err
    assert not littered[0][0].exists()
    assert "removed       lock         2 " in captured.out
    assert "build" not in captured.out
