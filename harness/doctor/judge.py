"""Checks of the judge's side: versions, evaluators, timer and settings, routes, cache and data."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from harness import dataset
from harness.config import Workspace
from harness.dataset.blobs import expected_tensors
from harness.devices import DeviceFacts, libraries, missing_tools
from harness.devices.facts import LIBRARIES
from harness.doctor.check import Check, State, fail, note, ok
from harness.errors import EnvironmentUnfit, ExitCode
from harness.evaluate.plan import Request, plan_room
from harness.evaluate.pool import build_caches
from harness.files import KEEPS_RESULTS, require_writable
from harness.packing import PORTABLE, Packed, pack
from harness.records import all_latest, settings_sha256

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HASH_CHARACTERS = 8
PINS = "constraints.txt"
NATIVE_SHELF = "solutions/common/toolkit.py"
GPU_ONLY = ("cupti-python",)
JUDGE_PACKAGE = "flashinfer-bench"
LOW_DISK_BYTES = 2 << 30
MAIN_MARK = "def resolve_eval_config"  # main's BenchmarkConfig merges layers, 0.1.2's does not


def read_pins(root: Path) -> dict[str, str]:
    """Package -> version of every exact pin of constraints.txt."""
    text = (root / PINS).read_text(encoding="utf-8")
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s#]+)", text, re.MULTILINE))


def check_versions(facts: DeviceFacts, pins: Mapping[str, str]) -> Check:
    """Installed libraries beside their pins. Only the judge's own pin must hold exactly."""
    found = libraries()
    missing = [
        name
        for name in LIBRARIES
        if name not in found and not (facts.uuid is None and name in GPU_ONLY)
    ]
    if missing:
        return fail(
            "versions",
            f"not installed: {', '.join(missing)}",
            "run `make test` once, which makes .venv",
            ExitCode.TOOL_MISSING,
        )
    words = []
    for name, version in found.items():
        pin = pins.get(name)
        same = pin is None or version.partition("+")[0] == pin
        words.append(f"{name} {version}" + ("" if same else f" (pinned {pin})"))
    line = ", ".join(words)
    return note("versions", line) if "(pinned" in line else ok("versions", line)


def read_dependencies(root: Path) -> list[str]:
    """Names of the distributions that pyproject.toml says everything here needs."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = []
    for requirement in project["dependencies"]:
        name = re.match(r"[A-Za-z0-9_.-]+", requirement)
        is_for_older = ";" in requirement  # the one marker there: Python below 3.11
        if name and (not is_for_older or sys.version_info < (3, 11)):
            found.append(name[0])
    return found


def check_packages(names: Sequence[str]) -> Check:
    """Whether all that the commands import is installed; this one needs the least of it."""
    missing = []
    for name in names:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return fail(
            "packages",
            f"not installed: {', '.join(missing)}",
            "run `make test` once and use .venv/bin/python, or pip install them",
            ExitCode.TOOL_MISSING,
        )
    return ok("packages", f"all {len(names)} that pyproject.toml asks for")


def check_peers(workspace: Workspace) -> Check:
    """Which libraries to compare with are installed as pinned."""
    fitting = []
    for peer in workspace.peers.values():
        try:
            version = importlib.metadata.version(peer.package)
        except importlib.metadata.PackageNotFoundError:
            continue
        if version.partition("+")[0] == peer.version:
            fitting.append(peer.name)
    found = f"{len(fitting)} of {len(workspace.peers)} installed as pinned"
    if len(fitting) == len(workspace.peers):
        return ok("peers", found)
    return note("peers", found, "docs/peers.md says how; `compare` names the missing ones")


def package_folder() -> Path | None:
    """Where flashinfer-bench lies, without importing it."""
    spec = importlib.util.find_spec("flashinfer_bench")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def check_evaluator(folder: Path | None, pin: str) -> Check:
    """The generation of flashinfer-bench, told by its interfaces, and a hash of its evaluators."""
    fix = f"pip install --no-deps {JUDGE_PACKAGE}=={pin}"
    if folder is None:
        return fail("evaluator", f"{JUDGE_PACKAGE} is not installed", fix, ExitCode.TOOL_MISSING)
    version = libraries().get(JUDGE_PACKAGE, "unknown")
    config = folder / "bench" / "config.py"
    is_main = MAIN_MARK in config.read_text(encoding="utf-8")
    sources = sorted((folder / "bench" / "evaluators").glob("*.py"))
    sources += [folder / "bench" / "utils.py"]
    label = f"{version}, evaluators {_digest(sources)}"
    if is_main:
        return note("evaluator", f"main: {label}, its own DSA rules; the pin is {pin}", fix)
    if version != pin:
        return fail("evaluator", f"{label}; the pin is {pin}", fix)
    return ok("evaluator", f"{label}; DSA rules and CUPTI timer of main are added here")


def check_identity(workspace: Workspace) -> Check:
    """Hashes of the added rules, of the timer and of the settings: equal ones judge alike."""
    root = workspace.root
    settings = {name: asdict(room.evaluation) for name, room in workspace.rooms.items()}
    return ok(
        "judge",
        f"added rules {_digest([root / 'harness/evaluators.py'])}, "
        f"timer {_digest([root / 'harness/timing.py'])}, "
        f"settings {settings_sha256(settings)[:HASH_CHARACTERS]}",
    )


def check_evidence(workspace: Workspace, facts: DeviceFacts) -> Check:
    """Whether results/latest was judged by this judge."""
    gpu = DeviceFacts(facts.slug, facts.name, facts.uuid or "none")
    root = dataset.locate(workspace)
    records = [record for record in all_latest(workspace.root) if record.room in workspace.rooms]
    drifted = []
    for record in records:
        packed = Packed(record.solution_name, record.solution_sha256, "", root)
        plan = plan_room(workspace, record.room, packed, (), Request(), root, gpu)
        if plan.judge_sha256 != record.judge_sha256:
            here, there = plan.judge_sha256[:HASH_CHARACTERS], record.judge_sha256
            drifted.append(f"{record.room} {here} (recorded {there[:HASH_CHARACTERS]})")
    if not records:
        return note("evidence", "none in results/latest")
    if drifted:
        fix = "numbers of other judges do not compare; `evaluate --record` measures anew"
        return note("evidence", f"judged by another judge: {', '.join(drifted)}", fix)
    return ok("evidence", f"{len(records)} latest records are of this judge")


def native_rooms(workspace: Workspace) -> list[str]:
    """Rooms whose native route adds files to the portable one."""
    return [
        room
        for room in workspace.rooms
        if pack(workspace, room).sources != pack(workspace, room, PORTABLE).sources
    ]


def native_capabilities(workspace: Workspace, room: str) -> set[tuple[int, int]]:
    """The compute capabilities that a room's native route is built for, as its text says: one that
    it names itself, else those of the shelf."""
    entry = workspace.root / "solutions" / room / "kernel.py"
    text = entry.read_text(encoding="utf-8") if entry.is_file() else ""
    own = re.search(r"^NATIVE_CAPABILITY = \((\d+), (\d+)\)", text, re.M)
    if own:
        return {(int(own[1]), int(own[2]))}
    path = workspace.root / NATIVE_SHELF
    if not path.is_file():
        return set()
    table = re.search(r"^ARCHITECTURES = \{(.*?)\}", path.read_text(encoding="utf-8"), re.M | re.S)
    pairs = re.findall(r"\((\d+), (\d+)\):", table[1] if table else "")
    return {(int(major), int(minor)) for major, minor in pairs}


def check_routes(workspace: Workspace, facts: DeviceFacts) -> Check:
    """The route that each room takes on this machine."""
    native = native_rooms(workspace)
    if facts.uuid is None:
        return note("routes", f"{', '.join(workspace.rooms)}: portable, in Triton's interpreter")
    missing = missing_tools(facts.capability)
    known = [room for room in native if facts.capability in native_capabilities(workspace, room)]
    chosen = [] if missing else known
    words = [
        f"{room} {'native (CUDA)' if room in chosen else 'portable (Triton)'}"
        for room in workspace.rooms
    ]
    found = ", ".join(words)
    if native and not chosen:
        why = f"no {', '.join(missing)}" if known else "no native route for this compute capability"
        return note("routes", f"{found}; {why}")
    return ok("routes", found)


def check_cache() -> Check:
    """The builders' cache; that of the native routes only where it cannot be written."""
    folder, native = build_caches()
    found = _check_folder("cache", native, "free it, or set TVM_FFI_CACHE_DIR to another disk")
    if found.state is State.FAIL:
        return found
    return _check_folder("cache", folder, "free it, or set FIB_CACHE_PATH to another disk")


def check_ledgers(workspace: Workspace) -> Check:
    folder = workspace.root / "traces"
    return _check_folder("traces", folder, KEEPS_RESULTS)


def check_dataset(workspace: Workspace) -> Check:
    """Workloads and the files that they name; `dataset verify` reads the files as well."""
    root = dataset.locate(workspace)
    workloads = blobs = missing = 0
    for room in workspace.contest_rooms.values():
        definition = dataset.read_definition(root, room)
        rows = dataset.read_workloads(root, room)
        paths = [path for row in rows for path in expected_tensors(definition, row)]
        workloads, blobs = workloads + len(rows), blobs + len(paths)
        missing += sum(not (root / path).is_file() for path in paths)
    found = f"{root}: {workloads} workloads, {blobs - missing} of {blobs} blobs"
    if missing == 0:
        return ok("dataset", found)
    if dataset.is_checkout(root):
        return note("dataset", found, "the rest is made when it is needed, or by `dataset make`")
    return fail("dataset", found, f"complete it with `python -m harness dataset fetch {root}`")


def _check_folder(name: str, folder: Path, fix: str) -> Check:
    try:
        require_writable(folder, advice=fix)
    except EnvironmentUnfit as error:
        return Check(name, State.FAIL, str(error))
    free_bytes = shutil.disk_usage(folder).free
    found = f"{folder}: can be written, {free_bytes / 2**30:.4g} GiB free"
    return ok(name, found) if free_bytes >= LOW_DISK_BYTES else fail(name, found, fix)


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:HASH_CHARACTERS]
