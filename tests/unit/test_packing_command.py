"""pack.py's command line: output, exit codes, what is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.packing import pack
from harness.packing.command import main
from tests.unit.packing_checkout import NATIVE_IMPORT, Checkout

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


@pytest.fixture
def run(checkout, capsys):
    """Run the command line in the small checkout; returns exit code, stdout and stderr."""

    def call(*arguments):
        code = main(arguments, root=checkout.root)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def written(checkout):
    return sorted(path.parent.name for path in checkout.root.glob("solutions/*/solution.json"))


@pytest.mark.parametrize("arguments", [[], ["--all"]])
def test_all_rooms_are_packed(checkout, run, arguments):
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert written(checkout) == ["scale_rows", "sum_rows"]
    name = pack(checkout.workspace, "sum_rows").name
    assert f"{name}: 2 sources -> solutions/sum_rows/solution.json\n" in out


def test_named_rooms_alone_are_packed(checkout, run):
    assert run("sum_rows", "sum_rows")[0] == 0
    assert written(checkout) == ["sum_rows"]


def test_rooms_and_all_together_are_a_usage_error(checkout, run):
    code, _, err = run("sum_rows", "--all")
    assert code == 2
    assert err.startswith("error: expected rooms or --all")
    assert written(checkout) == []


def test_hash_prints_it_and_writes_nothing(checkout, run):
    hashes = [pack(checkout.workspace, room).sha256 for room in ("scale_rows", "sum_rows")]
    assert run("sum_rows", "--hash") == (0, f"{hashes[1]}\n", "")
    assert run("--hash") == (0, f"scale_rows {hashes[0]}\nsum_rows {hashes[1]}\n", "")
    assert written(checkout) == []


def test_hash_follows_the_route(checkout, run):
    checkout.kernel(head=NATIVE_IMPORT)
    checkout.put("native.py", "def run_native():\n    pass\n")
    full = run("scale_rows", "--hash")
    portable = run("scale_rows", "--hash", "--route", "portable")
    assert full[0] == portable[0] == 0
    assert full[1] != portable[1]


def test_check_compares_and_writes_nothing(checkout, run):
    code, out, _ = run("scale_rows", "--check")
    assert (code, "not written yet" in out) == (0, True)
    assert written(checkout) == []
    run("scale_rows")
    code, out, _ = run("scale_rows", "--check")
    assert (code, "up to date" in out) == (0, True)
    before = (checkout.folder / "solution.json").read_bytes()
    checkout.kernel(head="# edited\n")
    code, out, _ = run("scale_rows", "--check")
    assert (code, "run `python pack.py scale_rows`" in out) == (1, True)
    assert (checkout.folder / "solution.json").read_bytes() == before


def test_check_and_hash_together_are_a_usage_error(run):
    code, _, err = run("--check", "--hash")
    assert (code, "not allowed with" in err) == (2, True)


def test_a_bad_room_does_not_stop_the_others(checkout, run):
    checkout.kernel(parameters="x, factor")
    code, out, err = run()
    assert code == 2
    assert err.startswith("error: solutions/scale_rows/kernel.py:1: run has 2 parameters")
    assert "Traceback" not in err
    assert out.startswith("sum_rows-")
    assert written(checkout) == ["sum_rows"]


def test_a_damaged_workspace_is_one_message(checkout, run):
    checkout.write("config.toml", "[workspace]\n")
    code, out, err = run()
    assert (code, out) == (2, "")
    assert err.startswith("error: ")


def test_two_folders_make_two_solutions_of_their_own(checkout, run):
    run()
    documents = [
        json.loads((checkout.root / f"solutions/{room}/solution.json").read_text())
        for room in ("scale_rows", "sum_rows")
    ]
    assert [document["definition"] for document in documents] == ["scale_rows_h8", "sum_rows_h8"]
    assert len({document["name"] for document in documents}) == 2


def start(*arguments, interpreter=(sys.executable,)):
    return subprocess.run(
        [*interpreter, str(REPOSITORY / "pack.py"), *arguments],
        capture_output=True,
        text=True,
        cwd=os.sep,
        check=False,
    )


def test_the_script_works_from_any_folder_and_without_packages():
    """-S hides installed packages: the standard library must do (Python 3.11 and later)."""
    bare = (sys.executable, "-E", "-s", "-S")
    if sys.version_info < (3, 11):
        missing = start("--hash", interpreter=bare)
        assert (missing.returncode, "needs tomli" in missing.stderr) == (4, True)
        bare = (sys.executable,)
    child = start("gdn_decode", "--hash", interpreter=bare)
    assert child.returncode == 0, child.stderr
    assert child.stdout == start("gdn_decode", "--hash").stdout
    assert len(child.stdout) == 65


def test_packing_loads_no_torch():
    script = (
        "import sys; from harness.packing.command import main; main(['--hash', 'gdn_decode']);"
        "sys.exit('torch' in sys.modules)"
    )
    child = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True)
    assert child.returncode == 0
