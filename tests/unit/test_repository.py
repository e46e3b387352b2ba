"""The rules of docs/design.md and CONTRIBUTING.md that a machine can check."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from harness.cli import COMMANDS
from harness.config import load_workspace
from harness.packing import pack
from harness.packing.python_source import CHECKOUT_PACKAGES

ROOT = Path(__file__).resolve().parents[2]
OFFICIAL_NAMES = ("definitions", "workloads", "results")
GENERATED = {"blob", "traces", "dataset", "__pycache__", "failures"}

# Lower may import higher, never the reverse.
MODULE_ORDER = (
    *("errors", "files", "config", "packing", "records", "devices", "ranges", "roofline"),
    *("dataset", "timing", "evaluators", "rules", "evaluate", "replay", "ncu", "audit"),
    *("compare", "profiling", "controller", "search", "report", "cluster", "serving"),
    *("container", "submit", "doctor", "cli"),
)
HARNESS_LINES, FILE_LINES, SCRIPT_LINES = 400, 600, 70
FUNCTION_LINES, KERNEL_LINES = 60, 150
LINE_CHARACTERS = 100
MAX_FILE_BYTES = 1 << 20

NAMELESS = re.compile(
    r"(^|_)(utils?|helpers?|misc|new|old|final|better|tmp|temp|phase\d*|v\d+|\d{4,})(_|$)"
)
# Character classes keep this file free of what it forbids.
PLACES = re.compile(r"/(w[o]rk|r[o]ot|f[a]rm|h[o]me)/|/opt/p[y]pi")
HOSTS = re.compile(r"p[y]pi\.org|p[y]thonhosted\.org|download\.p[y]torch\.org|--index-[u]rl")
UNFINISHED = re.compile(r"\b(T[O]DO|FIX[M]E|X[X]X)\b")


@cache
def tracked() -> tuple[Path, ...]:
    """Files that are or would be committed. A copy without git has all but generated ones."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode == 0:
        paths = [ROOT / name for name in listing.stdout.split("\0") if name]
        return tuple(path for path in paths if path.is_file())
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            name for name in folders if name not in GENERATED and not name.startswith(".")
        ]
        found += [Path(folder) / name for name in names if name != "solution.json"]
    return tuple(found)


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def under(*folders: str, suffixes: tuple[str, ...] = (".py",)) -> list[Path]:
    """Tracked files of these folders of the root; the root's own with "."."""
    return [
        path
        for path in tracked()
        if path.suffix in suffixes
        and (path.parts[len(ROOT.parts)] in folders or ("." in folders and path.parent == ROOT))
    ]


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in tracked():
        data = path.read_bytes()
        if b"\0" not in data:
            found.append((path, data.decode("utf-8")))
    return found


def imports(path: Path) -> list[tuple[int, str]]:
    """Absolute imports at any depth, as (line, dotted name); `from a import b` gives a.b."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


# Sizes


def test_files_stay_readable():
    limits = [(path, HARNESS_LINES) for path in under("harness", ".")]
    limits += [(path, SCRIPT_LINES) for path in under("scripts", suffixes=(".py", ".sh"))]
    code = (".py", ".cu", ".cuh", ".cpp", ".h")
    limits += [(path, FILE_LINES) for path in under(*os.listdir(ROOT), suffixes=code)]
    counts = {(label(path), limit): len(lines(path)) - 1 for path, limit in limits}
    assert len(counts) > 50
    assert {key: count for key, count in counts.items() if count > key[1]} == {}


def is_device_code(node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(ast.unparse(decorator).startswith("triton.jit") for decorator in decorators)


def test_python_functions_stay_short():
    long = []
    for path in under(*os.listdir(ROOT), "."):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = node.end_lineno - node.lineno + 1
                if count > (KERNEL_LINES if is_device_code(node) else FUNCTION_LINES):
                    long.append(f"{label(path)}:{node.lineno}: {node.name} has {count} lines")
    assert long == []


def cuda_functions(text: str) -> list[tuple[int, bool, int]]:
    """(first line, is a kernel, lines) of each CUDA function that has a body."""
    found = []
    for match in re.finditer(r"^[^\n/]*\b__(global|device)__\b[^;{]*\{", text, re.MULTILINE):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        first = text.count("\n", 0, match.start()) + 1
        found.append((first, match[1] == "global", text.count("\n", match.start(), end) + 1))
    return found


def test_cuda_functions_stay_short():
    long = []
    for path in under("solutions", suffixes=(".cu", ".cuh", ".h")):
        text = path.read_text(encoding="utf-8")
        for line, is_kernel, count in cuda_functions(text):
            if count > (KERNEL_LINES if is_kernel else FUNCTION_LINES):
                long.append(f"{label(path)}:{line}: {count} lines")
        wide = [n for n, line in enumerate(lines(path), 1) if len(line) > LINE_CHARACTERS]
        long += [f"{label(path)}:{n}: over {LINE_CHARACTERS} characters" for n in wide]
    assert long == []


def test_the_cuda_line_count_counts():
    text = "// x\n__global__ void f(\n    int a) {\n  if (a) {\n  }\n}\n__device__ int g();\n"
    assert cuda_functions(text) == [(2, True, 5)]
    assert cuda_functions("__device__ __forceinline__ int h() { return 1; }") == [(1, False, 1)]


def test_no_tracked_file_is_large():
    assert [label(path) for path in tracked() if path.stat().st_size > MAX_FILE_BYTES] == []


# Names


def test_names_say_what_a_file_is():
    """Names that others chose are theirs: official definitions, and runs by their time."""
    chosen = [label(path) for path in tracked()]
    chosen = [name for name in chosen if name.split("/")[0] not in OFFICIAL_NAMES]
    assert [name for name in chosen if NAMELESS.search(Path(name).stem.lower())] == []


@pytest.mark.parametrize("stem", ["utils", "gdn_helpers", "kernel_v2", "bench_final", "run_2026"])
def test_the_name_rule_bites(stem):
    assert NAMELESS.search(stem)


def test_no_standard_module_is_hidden_by_the_root():
    roots = {path.stem for path in ROOT.glob("*.py")} | {path.parent.name for path in under("x")}
    roots |= {path.parts[len(ROOT.parts)] for path in under(*os.listdir(ROOT))}
    assert roots & set(sys.stdlib_module_names) == set()


# Who imports whom


OWN_COMMANDS = [command for command in COMMANDS if command != "fib"]  # the official CLI's own


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], *([command, "--help"] for command in OWN_COMMANDS)]
)
def test_help_loads_no_torch(arguments):
    script = (
        "import sys, harness\n"
        f"arguments = {arguments!r}\n"
        "if arguments:\n"
        "    from harness.cli import main\n"
        "    code = main(arguments)\n"
        "    assert code == 0, code\n"
        "sys.exit(f'loaded {sys.modules[\"torch\"]}' if 'torch' in sys.modules else 0)\n"
    )
    child = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    assert bool(child.stdout) == bool(arguments)


def module_of(dotted: str) -> str:
    return dotted.split(".")[1]


def test_every_module_of_the_harness_has_its_place():
    modules = {path.relative_to(ROOT / "harness").parts[0] for path in under("harness")}
    names = {name.removesuffix(".py") for name in modules} - {"__init__", "__main__"}
    assert names == set(MODULE_ORDER)


def test_the_harness_imports_in_one_direction():
    against, seen = [], 0
    for path in under("harness"):
        own = path.relative_to(ROOT / "harness").parts[0].removesuffix(".py")
        if own == "__main__":
            continue
        for line, dotted in imports(path):
            if dotted.split(".")[0] != "harness":
                continue
            other = module_of(dotted)
            seen += 1
            if own == "__init__" or MODULE_ORDER.index(other) > MODULE_ORDER.index(own):
                against.append(f"{label(path)}:{line}: {own} imports {other}")
    assert seen > 50
    assert against == []


def test_nobody_imports_a_solution():
    guilty = [
        f"{label(path)}:{line}"
        for path in under(*os.listdir(ROOT), ".")
        for line, dotted in imports(path)
        if dotted.split(".")[0] == "solutions"
    ]
    assert guilty == []


def test_the_judge_imports_no_test_and_no_script():
    guilty = [
        f"{label(path)}:{line}: {dotted}"
        for path in under("harness", "definitions", "scripts", ".")
        for line, dotted in imports(path)
        if dotted.split(".")[0] in CHECKOUT_PACKAGES - {"harness"}
    ]
    assert guilty == []


def test_definitions_stand_alone():
    """They are embedded in JSON files: only torch and the standard library exist there."""
    guilty = [
        f"{label(path)}:{line}: {dotted}"
        for path in under("definitions")
        for line, dotted in imports(path)
        if dotted.split(".")[0] not in {"torch", *sys.stdlib_module_names}
    ]
    assert guilty == []


# Text


def test_assembly_stays_on_the_shelf():
    assembly = re.compile(r"\basm\b\s*(volatile|__volatile__)?\s*\(|\binline_asm_elementwise\b")
    guilty = [
        label(path)
        for path in under("solutions", suffixes=(".py", ".cu", ".cuh", ".cpp", ".h"))
        if path.parent.name != "common" and assembly.search(path.read_text(encoding="utf-8"))
    ]
    assert guilty == []


@pytest.mark.parametrize(
    "pattern", [PLACES, HOSTS, UNFINISHED], ids=["paths", "hosts", "unfinished"]
)
def test_text_that_belongs_to_no_repository(pattern):
    guilty = [
        f"{label(path)}:{number}: {line.strip()[:80]}"
        for path, text in texts()
        for number, line in enumerate(text.split("\n"), 1)
        if pattern.search(line)
    ]
    assert guilty == []


def test_text_files_are_plain():
    """LF, no byte order mark, no trailing blanks, one newline at the end."""
    guilty = []
    for path, text in texts():
        is_clean = "\r" not in text and not text.startswith("\ufeff")
        if path.suffix != ".md":
            is_clean = is_clean and not re.search(r"[ \t]$", text, re.MULTILINE)
        if text and not (is_clean and text.endswith("\n") and not text.endswith("\n\n")):
            guilty.append(label(path))
    assert guilty == []


def test_links_between_documents_lead_somewhere():
    broken = [
        f"{label(path)}: {target}"
        for path, text in texts()
        if path.suffix == ".md"
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
        if not (path.parent / target).exists()
    ]
    assert broken == []


def _ragged_rows(text):
    """Lines of Markdown tables with other than their head's number of cells."""
    lines, ragged, cells = text.split("\n"), [], 0
    for number, line in enumerate(lines):
        bars = re.sub(r"`[^`]*`|\\\|", "", line).count("|")
        if not line.startswith("|"):
            cells = 0
        elif cells == 0:
            cells = bars
        elif bars != cells:
            ragged.append(number + 1)
    return ragged


def test_tables_have_as_many_cells_as_their_heads():
    assert _ragged_rows("| a | b |\n|---|\n| 1 | `x | y` |\n| 1 |\n\n| c |\n|---|") == [2, 4]
    pages = {label(path): _ragged_rows(text) for path, text in texts() if path.suffix == ".md"}
    assert {page: rows for page, rows in pages.items() if rows} == {}


# Tools


def test_ruff_is_pinned_alike_everywhere():
    pyproject = (ROOT / "pyproject.toml").read_text()
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    pinned = re.findall(r'"ruff==([\d.]+)"', pyproject)
    assert pinned == re.findall(r"ruff-pre-commit\n\s+rev: v([\d.]+)\n", hooks)
    assert len(pinned) == 1


def test_packages_to_install_are_all_listed():
    listed = re.search(
        r"^packages = (\[.*?\])$", (ROOT / "pyproject.toml").read_text(), re.M | re.S
    )
    folders = {label(path.parent).replace("/", ".") for path in under("harness")}
    assert set(ast.literal_eval(listed[1])) == folders


def replaced_names():
    """What tests put stand-ins for by its dotted name, those of tests/gpu among them."""
    pattern = re.compile(r'(?:setattr|patch)\(\s*"(harness\.[\w.]+)"')
    return {
        (name, label(path))
        for path in under("tests")
        for name in pattern.findall(path.read_text(encoding="utf-8"))
    }


def test_what_tests_replace_exists():
    """A GPU test that replaces what was moved fails only on a GPU."""
    lost = []
    for name, path in sorted(replaced_names()):
        if "create=True" not in (ROOT / path).read_text() and not exists(name):
            lost.append(f"{path}: {name}")
    assert len({path for _, path in replaced_names() if "gpu/" in path}) > 2
    assert lost == []


def exists(dotted):
    """Whether a module, or an attribute of one, has this name."""
    found = importlib.import_module("harness")
    for part in dotted.split(".")[1:]:
        if not hasattr(found, part):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except (AttributeError, ModuleNotFoundError):
                return False
        found = getattr(found, part)
    return True


def test_the_look_for_names_tells_them_apart():
    assert exists("harness.evaluate.alone.require_idle")
    assert not exists("harness.audit.engine.require_idle")
    assert not exists("harness.no_such_module.name")


def test_ci_calls_what_people_call():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"^\s*- run: (.*)$", workflow, re.MULTILINE) == [
        ".ci/run",
        "make test-slow",
    ]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert os.access(ROOT / "scripts" / "make_venv.sh", os.X_OK)
    targets = re.search(r"for target in (.*);", (ROOT / ".ci" / "run").read_text())[1].split()
    assert targets == ["check", "test"]


TARGETS = ["evaluate", "test", "test-slow", "gpu", "check", "pack", "clean"]


def dry_make(*arguments):
    """What make would run. Variables of an outer make are not for this one."""
    environment = {key: os.environ[key] for key in ("PATH",)}
    listing = subprocess.run(
        ["make", "--dry-run", "--always-make", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert listing.returncode == 0, listing.stderr
    return listing.stdout


@pytest.mark.parametrize("target", TARGETS, ids="make-{}".format)
def test_targets_set_up_their_environment_or_none(target):
    made = dry_make(target)
    assert "scripts/make_venv.sh .venv python3" in made
    assert ".venv/bin/python" in made
    bare = dry_make("PYTHON=python9", "VENV=none", target)
    assert "make_venv.sh" not in bare
    assert ".venv" not in bare
    assert "python9 " in bare


def test_an_interpreter_without_the_tools_is_one_line(tmp_path):
    """-S hides installed packages."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    for target, names in {"test": "pytest, xdist", "gpu": "pytest, ", "check": "ruff, "}.items():
        made = subprocess.run(
            ["make", f"PYTHON={bare}", "VENV=none", target],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert made.returncode != 0
        assert f"error: {bare}: expected the modules {names}" in made.stderr
        assert "install the extra dev of pyproject.toml, or leave VENV=none out" in made.stderr
        assert "No module named" not in made.stderr
    assert (
        subprocess.run(["make", "modules", f"PYTHON={bare}", "VENV=none"], cwd=ROOT).returncode == 0
    )


def test_help_names_every_target():
    listing = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True)
    assert re.findall(r"^  make ([a-z-]+) ", listing.stdout, re.MULTILINE)[1:] == TARGETS


# The checkout as others see it


def test_no_config_at_the_root_is_taken_for_a_solution():
    """The contest collects config.toml of the root and of its immediate folders."""
    collected = [path for path in (*ROOT.glob("config.toml"), *ROOT.glob("*/config.toml"))]
    assert [label(path) for path in collected] == ["config.toml"]
    tables = re.findall(r"^\[([\w.]+)\]", (ROOT / "config.toml").read_text(), re.MULTILINE)
    assert not {"solution", "build"} & set(tables)


def test_nothing_else_in_the_trace_set_is_json():
    """The official loader reads every .json below these folders, hidden ones too."""
    for path in (ROOT / "definitions").rglob("*.json"):
        assert path.with_suffix(".py").is_file(), f"{path}: no reference beside it"
        assert json.loads(path.read_text())["name"] == path.stem
    strays = [path for path in (ROOT / "solutions").rglob("*.json") if path.name != "solution.json"]
    assert [label(path) for path in strays] == []
    depths = {len(path.relative_to(ROOT).parts) for path in ROOT.glob("solutions/**/solution.json")}
    assert depths <= {3}


def test_the_packed_checkout_is_an_official_trace_set(tmp_path):
    from flashinfer_bench.data import TraceSet

    workspace = load_workspace()
    for folder in ("definitions", "workloads"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    packed = [pack(workspace, room) for room in workspace.rooms]
    for solution in packed:
        path = tmp_path / solution.path.relative_to(ROOT)
        path.parent.mkdir(parents=True)
        path.write_text(solution.text)
    loaded = TraceSet.from_path(str(tmp_path))
    assert set(loaded.definitions) == {room.definition for room in workspace.rooms.values()}
    official = [room.definition for room in workspace.contest_rooms.values()]
    assert sum(len(loaded.workloads[definition]) for definition in official) == 324
    found = {s.name: s.definition for group in loaded.solutions.values() for s in group}
    definitions = [room.definition for room in workspace.rooms.values()]
    assert found == dict(zip([s.name for s in packed], definitions, strict=True))


def test_every_room_is_whole():
    workspace = load_workspace()
    expected = [
        path
        for room in workspace.rooms
        for path in (
            f"solutions/{room}/config.toml",
            f"solutions/{room}/kernel.py",
            f"solutions/{room}/README.md",
            f"tests/unit/test_{room}.py",
            f"docs/kernels/{room}.md",
        )
    ]
    assert [path for path in expected if not (ROOT / path).is_file()] == []
    folders = {path.parent.name for path in ROOT.glob("solutions/*/config.toml")}
    strays = [f"{name} has no table in config.toml" for name in folders - set(workspace.rooms)]
    assert not strays, "; ".join(sorted(strays))
