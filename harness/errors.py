"""The exception tree. Every error a user can meet carries the exit code of its kind.

    HarnessError                    1
    ├── UsageError                  2   the command line asks for something that is not there
    ├── ConfigError                 2   a config.toml is wrong
    ├── PackingError                2   a room does not pack into a valid solution
    ├── EnvironmentUnfit            3   this machine lacks something (GPU, driver, cache, CUPTI)
    ├── DatasetError                3   definitions, workloads or blobs are missing or damaged
    ├── RecordError                 3   a recorded run is damaged or may not be kept where asked
    ├── ToolMissing                 4   a program or optional library is not installed
    ├── DeviceBusy                  5   somebody else computes on the GPU
    ├── SubmissionRefused           1   what would be submitted is not what was proven
    └── InfrastructureFailure       6   a run could not be completed; no verdict on the kernel

Exit code 0 means all well, 130 interrupted by the user. `run_program` turns each error into its
message and code, and whatever else is raised: the system's refusals are code 3, and an exception
that nobody foresaw is 6, because 1 is a verdict on a kernel.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from enum import IntEnum
from typing import TextIO

_SHOWN_CHARACTERS = 200  # of a path in a message


class ExitCode(IntEnum):
    """Process exit codes of ``python -m harness`` and ``pack.py``."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNFIT = 3
    TOOL_MISSING = 4
    BUSY = 5
    INCOMPLETE = 6
    INTERRUPTED = 130


class HarnessError(Exception):
    """Base of all errors that are reported as one message, without a traceback."""

    exit_code = ExitCode.FAILED


class UsageError(HarnessError):
    """The command line names something that does not exist or is ambiguous."""

    exit_code = ExitCode.USAGE


class ConfigError(HarnessError):
    """A config.toml has a missing, unknown or ill-typed key."""

    exit_code = ExitCode.USAGE


class PackingError(HarnessError):
    """A room's files cannot become one valid solution."""

    exit_code = ExitCode.USAGE


class EnvironmentUnfit(HarnessError):
    """The machine lacks what the command needs."""

    exit_code = ExitCode.UNFIT


class DatasetError(HarnessError):
    """A definition, workload file or blob is missing, damaged or of another shape."""

    exit_code = ExitCode.UNFIT


class RecordError(HarnessError):
    """A recorded run is damaged, contradicts itself or may not be recorded where asked."""

    exit_code = ExitCode.UNFIT


class ToolMissing(HarnessError):
    """An external program or optional library is not installed."""

    exit_code = ExitCode.TOOL_MISSING


class DeviceBusy(HarnessError):
    """Another process holds or loads the GPU."""

    exit_code = ExitCode.BUSY


class SubmissionRefused(HarnessError):
    """The evidence does not carry what would be submitted, or the tree is not what was judged."""


class InfrastructureFailure(HarnessError):
    """The run broke for a reason that says nothing about the solution."""

    exit_code = ExitCode.INCOMPLETE


def run_program(body: Callable[[], int]) -> int:
    """Run a command line's body and return its exit code. Never raises.

    Every error becomes one message on stderr; an unforeseen one keeps its traceback.
    """
    if sys.stdout is None or sys.stderr is None:  # the first files opened would take their place
        return _report(
            EnvironmentUnfit(
                "standard output or error is closed; expected both, such as >/dev/null"
            )
        )
    try:
        code = body()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        code = _report(error)
    try:
        sys.stdout.flush()
    except OSError as error:
        _abandon(sys.stdout)
        code = code or _report(error)
    return code


def _report(error: BaseException) -> int:
    """Say on stderr what happened; its exit code."""
    if isinstance(error, SystemExit):  # argparse has said it
        return error.code if isinstance(error.code, int) else int(ExitCode.OK)
    if isinstance(error, BrokenPipeError):
        _abandon(sys.stdout)
    message, code = _explain(error)
    if sys.stderr is None:
        return int(code)
    try:
        if message is None:
            traceback.print_exception(error)
            message = (
                f"error: {type(error).__name__} was not foreseen: a fault of this program, "
                "no verdict on a kernel; report it with the lines above"
            )
        print(message, file=sys.stderr, flush=True)
    except OSError:  # nobody reads it
        _abandon(sys.stderr)
    return int(code)


def _explain(error: BaseException) -> tuple[str | None, ExitCode]:
    """The message, None where only a traceback can tell, and the exit code."""
    if isinstance(error, HarnessError):
        return f"error: {error}", error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", ExitCode.INTERRUPTED
    if isinstance(error, ModuleNotFoundError) and _is_foreign(error.name):
        return (
            f"error: {error.name} is not installed; run `make test` once and use "
            ".venv/bin/python, or install the dependencies of pyproject.toml"
        ), ExitCode.TOOL_MISSING
    if isinstance(error, UnicodeDecodeError):
        shown = ascii(error.object[max(0, error.start - 20) : error.end + 20])
        return (
            f"error: a file that was read holds bytes that are not UTF-8, near {shown}; restore it"
        ), ExitCode.UNFIT
    if isinstance(error, UnicodeEncodeError):
        text = ascii(error.object[error.start : error.end])
        return (
            f"error: standard output: its encoding, {error.encoding}, has no {text}; "
            "set PYTHONIOENCODING=utf-8:backslashreplace"
        ), ExitCode.UNFIT
    if isinstance(error, BrokenPipeError):
        return "error: standard output: its reader left before the end", ExitCode.UNFIT
    if isinstance(error, OSError):
        return f"error: {_describe(error)}", ExitCode.UNFIT
    return None, ExitCode.INCOMPLETE


def _is_foreign(module: str | None) -> bool:
    return module is not None and module.split(".")[0] != "harness"


def _describe(error: OSError) -> str:
    if error.filename is None:
        return f"{error}; check the disk, and who may write there"
    path = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else str(error.filename)
    if len(path) > _SHOWN_CHARACTERS:
        path = f"{path[:_SHOWN_CHARACTERS]}... ({len(path)} characters)"
    return f"{path}: {error.strerror}; check this path, and who may use it"


def _abandon(stream: TextIO) -> None:
    """Let what is still buffered vanish: written at the interpreter's end it would fail again."""
    with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
