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
    └── InfrastructureFailure       6   a run could not be completed; no verdict on the kernel

Exit code 0 means all well, 130 interrupted by the user.
"""

from __future__ import annotations

from enum import IntEnum


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


class InfrastructureFailure(HarnessError):
    """The run broke for a reason that says nothing about the solution."""

    exit_code = ExitCode.INCOMPLETE
