"""docs/pitfalls.md names tests that exist; and the pitfalls that no other file holds."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from harness.audit.sanitizers import sanitizer_environment
from harness.config import load_workspace
from harness.ncu import NcuDenied, NcuUnreadable, read_csv
from tests.markdown_tables import read_tables

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
KNOWN = 76  # lines of the list that this page answers
REASON = "Cannot apply: "


def rows():
    (table,) = read_tables((ROOT / "docs" / "pitfalls.md").read_text())
    return table


@cache
def functions_of(path):
    tree = ast.parse((TESTS / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_pitfall_is_held_by_a_test_that_exists_or_says_why_not():
    assert len(rows()) == KNOWN
    for row in rows():
        held = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row["held by"])
        rest = re.sub(r"`[^`]*`", "", row["held by"]).strip()
        assert bool(held) != rest.startswith(REASON), row["id"]
        assert rest == "" or len(rest) > len(REASON) + 20, row["id"]
        for path, test in held:
            assert test in functions_of(path), f"{row['id']}: {path}::{test}"


def test_pitfalls_are_numbered_by_area_without_a_gap():
    seen = {}
    for row in rows():
        area, _, number = row["id"].rpartition("-")
        seen.setdefault(area, []).append(int(number))
    for area, numbers in seen.items():
        assert numbers == list(range(1, len(numbers) + 1)), area
    sentences = [row["what went wrong"] for row in rows()]
    assert len(set(sentences)) == KNOWN
    assert [text for text in sentences if not text.endswith(".") or len(text) > 140] == []


def names_used(path):
    return {
        getattr(node, "attr", None) or getattr(node, "id", None)
        for node in ast.walk(ast.parse(path.read_text()))
    }


def test_nothing_that_measures_sets_profiler_marks():
    measuring = [ROOT / "harness" / "timing.py", *(ROOT / "harness" / "evaluate").glob("*.py")]
    assert len(measuring) > 8
    marks = {"nvtx", "record_function", "profiler"}
    assert [path.name for path in measuring if names_used(path) & marks] == []


def test_no_kernel_tunes_itself():
    sources = [
        path
        for room in (*load_workspace().rooms, "common")
        for path in (ROOT / "solutions" / room).glob("*.py")
    ]
    assert len(sources) > 5
    tuning = {"autotune", "Autotuner", "heuristics"}
    assert [path for path in sources if names_used(path) & tuning] == []


def test_the_look_for_names_sees_them(tmp_path):
    source = tmp_path / "kernel.py"
    source.write_text("import triton\n\n@triton.autotune(configs=[])\ndef f(): pass\n")
    assert "autotune" in names_used(source)


def test_sanitizers_run_without_the_caching_allocator():
    given = {"PATH": "/bin", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    environment = sanitizer_environment(given)
    assert environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
    assert "PYTORCH_CUDA_ALLOC_CONF" not in environment and environment["PATH"] == "/bin"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("==WARNING== No kernels were profiled.\n", "No kernels were profiled"),
        ("", "it printed nothing"),
        ("==ERROR== ERR_NVGPUCTRPERM - no permission\n", "ERR_NVGPUCTRPERM"),
    ],
)
def test_a_profile_without_kernels_is_an_error(text, words):
    with pytest.raises((NcuDenied, NcuUnreadable), match=words):
        read_csv(text)
