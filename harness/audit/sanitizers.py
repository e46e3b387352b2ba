"""compute-sanitizer on one call of a packed solution, judged by its summary.

Inputs are made and kernels compiled in an ordinary worker first; under the sanitizer a script
loads the inputs, builds the solution and calls it. PyTorch's caching allocator is off there, or
it would own the bytes beside a tensor, and a write to them would be no error.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.audit.engine import (
    PoolFactory,
    jobs_of,
    make_ready,
    plan_target,
    read_answer,
    worker_command,
)
from harness.config import Workspace
from harness.devices import DeviceFacts, read_facts, require_gpu
from harness.errors import (
    ExitCode,
    InfrastructureFailure,
    ToolMissing,
    UsageError,
)
from harness.evaluate.alone import hold_device
from harness.evaluate.plan import torch_device
from harness.evaluate.pool import Pool, build_caches, worker_environment
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Job
from harness.evaluate.secrecy import without_secrets
from harness.evaluate.strays import MARK, make_mark

PROGRAM = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
PLACES = ("bin", "compute-sanitizer")  # below a CUDA folder
SHOWN_ERRORS = 3
TIME_LIMIT_S, LEAST_LIMIT_S, MOST_LIMIT_S = 1800.0, 1.0, 86_400.0
VERSION_LIMIT_S = 30.0
JOB_VARIABLE = "HARNESS_SINGLE_CALL"
FINISHED = "the call under the sanitizer has ended"
# What a tool cannot follow is built otherwise for it, in a folder of its own; docs/trust.md.
# racecheck: a lane arrives for its warp, a team meets at a barrier by number, and some threads of
# a CTA await the cluster for the others.
# initcheck: words count only with a call's number.
BUILT_WITH = {
    "racecheck": ("EVERY_LANE_ARRIVES", "TEAMS_MEET", "ALL_AWAIT_CLUSTER"),
    "initcheck": ("TOLD_IS_CLEARED",),
}
_SUMMARIES = (
    re.compile(r"^=+ ERROR SUMMARY: (?P<errors>\d{1,15}) errors?"),
    re.compile(
        r"^=+ RACECHECK SUMMARY: \d{1,15} hazards? displayed "
        r"\((?P<errors>\d{1,15}) errors?, (?P<warnings>\d{1,15}) warnings?\)"
    ),
)
# The first line of a report: its details are indented, the tool's own lines are named here.
_REPORT = re.compile(
    r"^=+ (?!COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY)(?P<text>\S.*)"
)
# (command, environment, folder), and limit_s by name where one is asked for.
Runner = Callable[..., tuple[int, str]]


@dataclass(frozen=True)
class Finding:
    """What a tool's own words say. errors: as its summary counts them; reports: the first lines
    of the first ones. Race warnings count as errors."""

    errors: int
    reports: tuple[str, ...]


class TookTooLong(InfrastructureFailure):
    """A command did not end within its limit."""


def find_program(environment: Mapping[str, str] | None = None) -> str:
    """The sanitizer's path. Raises ToolMissing naming where it was looked for."""
    environment = os.environ if environment is None else environment
    found = shutil.which(PROGRAM, path=environment.get("PATH"))
    folders = [environment.get("CUDA_HOME"), environment.get("CUDA_PATH"), "/usr/local/cuda"]
    for folder in filter(None, folders):
        for place in PLACES:
            path = Path(folder) / place / PROGRAM
            if found is None and path.is_file() and os.access(path, os.X_OK):
                found = str(path)
    if found is None:
        raise ToolMissing(
            f"{PROGRAM} ({', '.join(TOOLS)}): not on PATH, nor in CUDA_HOME, CUDA_PATH or "
            "/usr/local/cuda; it is a part of the CUDA toolkit"
        )
    return found


def read_version(program: str) -> str | None:
    """The sanitizer's version, "2025.3.1.0"; None where it does not say. What racecheck follows
    differs by it."""
    try:
        said = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"Version (\d+(?:\.\d+)+)", said.stdout)
    return found.group(1) if found else None


def read_log(text: str) -> Finding | None:
    """What a sanitizer's log says, or None where it has no summary: the tool did not finish."""
    errors = None
    for line in text.splitlines():
        for summary in _SUMMARIES:
            match = summary.match(line)
            if match:
                warnings = match.groupdict().get("warnings") or "0"
                errors = (errors or 0) + int(match["errors"]) + int(warnings)
    if errors is None:
        return None
    return Finding(errors, tuple(_reports(text)[:SHOWN_ERRORS]) if errors else ())


def _reports(text: str) -> list[str]:
    """First lines of all reports in a log."""
    return [match["text"] for match in map(_REPORT.match, text.splitlines()) if match]


def sanitizer_command(program: str, tool: str, log: Path, job: Path) -> list[str]:
    """The command line of one tool on one job. log: where it writes; job: see single_call."""
    return [
        program,
        *("--tool", tool),
        *("--target-processes", "application-only"),
        *("--log-file", str(log)),
        *("--print-limit", "100"),
        *(sys.executable, "-m", "harness.audit.single_call", str(job)),
    ]


def sanitizer_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the caching allocator, whose blocks hide writes beside a tensor."""
    values = {**environment, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        values.pop(name, None)
    return values


def build_for(tool: str, solution: str) -> str:
    """The tool whose build a packed solution needs under it; "", the judged one, where no source
    names a macro of the tool."""
    return tool if any(macro in solution for macro in BUILT_WITH.get(tool, ())) else ""


def build_environment(tool: str, environment: Mapping[str, str]) -> dict[str, str]:
    """With the macros that native routes are built with for this tool, kept apart from others.

    tool: "" for the judged build.
    """
    values = dict(environment)
    macros = BUILT_WITH.get(tool)
    if macros is not None:
        flags = [values.get("NVCC_APPEND_FLAGS", ""), *(f"-D{macro}" for macro in macros)]
        values["NVCC_APPEND_FLAGS"] = " ".join(filter(None, flags))
        _, native = build_caches()
        values["TVM_FFI_CACHE_DIR"] = str(native / f"for-{tool}")
    return values


def run_process(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    limit_s: float | None = None,
) -> tuple[int, str]:
    """Exit code and output of a command in a session of its own; all of it ends with us.

    The command runs a solution: it gets no secret of the environment, and the mark by which the
    next run finds what it leaves. limit_s: TIME_LIMIT_S where None.

    Raises TookTooLong.
    """
    limit_s = TIME_LIMIT_S if limit_s is None else limit_s
    # A file, not a pipe: a child that outlives the command would keep a pipe open.
    with tempfile.TemporaryFile() as said:
        with subprocess.Popen(
            command,
            cwd=folder,
            env={**without_secrets(environment), MARK: make_mark()},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired as error:
                raise TookTooLong(
                    f"{command[0]}: no end within {limit_s:g} s; name smaller workloads"
                ) from error
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        said.seek(0)
        return process.returncode, said.read().decode(errors="replace")


def run_sanitizers(
    workspace: Workspace,
    target: str,
    tools: Sequence[str],
    workloads: tuple[str, ...],
    progress: SweepProgress,
    dataset: str | None = None,
    facts: DeviceFacts | None = None,
    make_pool: PoolFactory = Pool,
    run: Runner = run_process,
    limit_s: float | None = None,
) -> ExitCode:
    """Each tool on each workload; print as it goes. Returns the exit code.

    1: a tool reported an error, or the solution failed; 6: a tool did not finish.
    limit_s: for one tool on one workload. Raises UsageError, ToolMissing, EnvironmentUnfit without
    a GPU.
    """
    if limit_s is not None:
        if not LEAST_LIMIT_S <= limit_s <= MOST_LIMIT_S:  # no number is within no bounds
            raise UsageError(
                f"--limit: expected {LEAST_LIMIT_S:g} to {MOST_LIMIT_S:g} seconds, got {limit_s:g}"
            )
        run = partial(run, limit_s=limit_s)
    unknown = [tool for tool in tools if tool not in TOOLS]
    if unknown:
        raise UsageError(f"tool: expected one of {', '.join(TOOLS)}, got {unknown[0]!r}")
    facts = facts or read_facts()
    plan = plan_target(workspace, target, workloads, dataset, facts)
    require_gpu(facts, "sanitize")
    program = find_program()
    make_ready(plan)
    named = f"{program} {read_version(program) or 'of unknown version'}"
    progress.note(f"{plan.room.name}: solution {plan.packed.name}, device {facts.name}, {named}")
    codes = []
    environment = worker_environment(torch_device(facts), workspace.root)
    with hold_device(facts), tempfile.TemporaryDirectory(prefix="sanitize-") as scratch:
        for job in jobs_of(plan, facts):
            label = f"{plan.room.name} {job.uuid[:8]}"
            calls: dict[str, tuple[Path, str | None]] = {}
            for tool in tools:
                build = build_for(tool, job.solution)
                built = build_environment(build, environment)
                began = time.monotonic()
                if build not in calls:
                    calls[build] = prepare_call(workspace, job, Path(scratch), built, make_pool)
                    progress.note(f"{label}{_describe(build, calls[build][1])}{_since(began)}")
                path, failure = calls[build]
                if failure is not None:
                    codes.append(ExitCode.FAILED)
                    continue
                began = time.monotonic()
                under = sanitizer_environment(built)
                verdict, line = run_tool(run, program, tool, path, under, workspace.root)
                codes.append(verdict)
                progress.note(f"{label} {line}{_since(began)}")
            for path, _ in calls.values():
                path.unlink(missing_ok=True)
    return ExitCode.FAILED if ExitCode.FAILED in codes else max(codes, default=ExitCode.OK)


def prepare_call(
    workspace: Workspace,
    job: Job,
    scratch: Path,
    environment: Mapping[str, str],
    make_pool: PoolFactory,
) -> tuple[Path, str | None]:
    """The file that single_call reads, and why there is none where the solution itself fails.

    environment: of the worker, which also compiles the kernels. Raises InfrastructureFailure.
    """
    path = scratch / f"{job.uuid}.pt"
    command = worker_command("single_call:prepare", 0, {**environment, JOB_VARIABLE: str(path)})
    with make_pool(job.device, workspace.root, command) as pool:
        verdict, detail = read_answer(pool.run(job))
    if verdict == "NOT_RUN":
        raise InfrastructureFailure(f"{job.uuid}: the inputs could not be made: {detail}")
    return path, detail if verdict == "FAILED" else None


def run_tool(
    run: Runner, program: str, tool: str, job: Path, environment: Mapping[str, str], folder: Path
) -> tuple[ExitCode, str]:
    """Exit code and line of one tool on the call in a file; one that does not end says so."""
    log = job.with_name(f"{tool}.log")
    ended: tuple[int, str] | str
    try:
        ended = run(sanitizer_command(program, tool, log, job), environment, folder)
    except TookTooLong as error:
        ended = str(error)
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    log.unlink(missing_ok=True)
    if isinstance(ended, str):
        reports = _reports(text)
        first = "; ".join(dict.fromkeys(reports[:SHOWN_ERRORS])) or _last_words(text)
        return ExitCode.INCOMPLETE, f"{tool}: {ended}; {len(reports)} reports so far: {first}"
    return _judge(tool, *ended, text)


def _describe(build: str, failure: str | None) -> str:
    """What the call without a sanitizer has shown, of a build for one tool or of the judged one."""
    built = f", built for {build}," if build else ""
    if failure is None:
        return f"{built} is right without a sanitizer"
    return f"{built} fails without a sanitizer: {failure}"


def _since(began: float) -> str:
    return f" [{time.monotonic() - began:.0f} s]"


def _last_words(text: str) -> str:
    last = [line.strip() for line in text.splitlines() if line.strip()]
    return last[-1][:300] if last else "it printed nothing"


def _judge(tool: str, code: int, output: str, log: str) -> tuple[ExitCode, str]:
    """Exit code and line of one tool's run. The summary decides, not the tool's exit code."""
    finding = read_log(log or output)
    if finding is None:
        why = _last_words(log + "\n" + output)
        return ExitCode.INCOMPLETE, f"{tool}: no summary, exit code {code}: {why}"
    if finding.errors:
        reports = "; ".join(dict.fromkeys(finding.reports))
        return ExitCode.FAILED, f"{tool}: {finding.errors} errors: {reports}"
    if code or FINISHED not in output:
        why = _last_words(output)
        return ExitCode.INCOMPLETE, f"{tool}: 0 errors, but the call did not end: {why}"
    return ExitCode.OK, f"{tool}: 0 errors"
