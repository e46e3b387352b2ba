"""The faults that are tried, what comes of each and which test holds it.

Tests are parametrised over these entries, and docs/trust.md shows them with what came of each.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """what: what happens. comes: the verdict or the end. held_by: file::test, below tests/.

    The rest is for the test: behaviour of the fake worker, or body and head of a real solution.
    """

    name: str
    what: str
    comes: str
    held_by: str
    status: str = ""
    behaviour: str = ""
    body: str = ""
    head: str = ""
    is_dps: bool = True
    reference: str = ""
    words: str = ""


SWEPT = "unit/test_faults.py::test_a_fault_costs_its_own_workload_alone"
SOLVED = "unit/test_faults_solutions.py::test_a_fault_is_its_own_verdict_and_the_next_is_well"
ON_GPU = "gpu/test_faults.py::test_a_fault_is_a_verdict_and_a_good_kernel_passes_next"
MACHINE = "unit/test_faults_machine.py::"
KILLS = "unit/test_faults_kills.py::"

RIGHT = "y.copy_(scale * x)\nlse.copy_(torch.logsumexp(x, dim=1) / 0.6931471805599453)\n"

# What becomes of the worker, in the middle of a sweep
WORKER_FAULTS = (
    Fault(
        "sigterm", "the worker gets SIGTERM", "RUNTIME_ERROR, the signal named", SWEPT,
        status="RUNTIME_ERROR", behaviour="terminates", words="SIGTERM",
    ),
    Fault(
        "sigsegv", "the worker dies of a segmentation fault", "RUNTIME_ERROR, the signal named",
        SWEPT, status="RUNTIME_ERROR", behaviour="segfault", words="SIGSEGV",
    ),
    Fault(
        "sigkill", "the kernel kills the worker for want of memory",
        "RUNTIME_ERROR, the signal named", SWEPT,
        status="RUNTIME_ERROR", behaviour="killed", words="SIGKILL",
    ),
    Fault(
        "exit", "the worker leaves with an exit code", "RUNTIME_ERROR, the code named", SWEPT,
        status="RUNTIME_ERROR", behaviour="exits", words="code 3",
    ),
    Fault(
        "hang", "the worker hangs and ignores SIGTERM", "TIMEOUT", SWEPT,
        status="TIMEOUT", behaviour="hangs", words="no answer within 3 s",
    ),
    Fault(
        "endless prints", "the solution prints without end",
        "TIMEOUT; the log keeps 64 MiB of disk", SWEPT,
        status="TIMEOUT", behaviour="prints", words="no answer within 3 s",
    ),
    Fault(
        "flooded pipe", "the solution writes without end into the judge's pipe", "RUNTIME_ERROR",
        SWEPT, status="RUNTIME_ERROR", behaviour="floods", words="no judge wrote",
    ),
    Fault(
        "forged verdict", "the solution writes a verdict into the judge's pipe", "RUNTIME_ERROR",
        SWEPT, status="RUNTIME_ERROR", behaviour="forges", words="another job",
    ),
    Fault(
        "orphan", "a child holds the worker's pipe open after its death", "RUNTIME_ERROR", SWEPT,
        status="RUNTIME_ERROR", behaviour="orphans", words="code 3",
    ),
    Fault(
        "crashing reference", "the reference kills the worker",
        "REFERENCE_ERROR, judged again on resume", SWEPT,
        status="REFERENCE_ERROR", behaviour="badreference", words="SIGSEGV",
    ),
    Fault(
        "hanging reference", "the reference hangs", "REFERENCE_ERROR, judged again on resume",
        SWEPT, status="REFERENCE_ERROR", behaviour="slowreference", words="no answer within 3 s",
    ),
)  # fmt: skip

# What a solution does in a real worker, between two that are right
SOLUTION_FAULTS = (
    Fault(
        "null pointer", "run reads address 0", "RUNTIME_ERROR, the signal named", SOLVED,
        status="RUNTIME_ERROR", head="import ctypes", body="ctypes.string_at(0)", words="SIGSEGV",
    ),
    Fault(
        "sys.exit", "run calls sys.exit(0)", "RUNTIME_ERROR", SOLVED,
        status="RUNTIME_ERROR", head="import sys", body="sys.exit(0)", words="sys.exit(0)",
    ),
    Fault(
        "os._exit", "run calls os._exit(0)", "RUNTIME_ERROR, the code named", SOLVED,
        status="RUNTIME_ERROR", head="import os", body="os._exit(0)", words="code 0",
    ),
    Fault(
        "own SIGTERM", "run sends SIGTERM to its own process", "RUNTIME_ERROR, the signal named",
        SOLVED, status="RUNTIME_ERROR", head="import os, signal",
        body="os.kill(os.getpid(), signal.SIGTERM)", words="SIGTERM",
    ),
    Fault(
        "deaf hang", "run ignores SIGTERM and sleeps", "TIMEOUT", SOLVED,
        status="TIMEOUT", head="import signal, time",
        body="signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)", words="no answer",
    ),
    Fault(
        "loud hang", "run prints without end", "TIMEOUT; the log keeps 64 MiB of disk", SOLVED,
        status="TIMEOUT", body="while True: print('x' * 65536)", words="no answer",
    ),
    Fault(
        "no memory", "run asks for more memory than the worker may have", "RUNTIME_ERROR", SOLVED,
        status="RUNTIME_ERROR", body="torch.empty(1 << 44)", words="RuntimeError",
    ),
    Fault(
        "MemoryError", "run raises MemoryError", "RUNTIME_ERROR", SOLVED,
        status="RUNTIME_ERROR", body="raise MemoryError('no more')", words="MemoryError",
    ),
    Fault(
        "wrong shape", "an output has a row too few", "INCORRECT_SHAPE", SOLVED,
        status="INCORRECT_SHAPE", is_dps=False,
        body="return scale * x[1:], torch.logsumexp(x, dim=1) / 0.6931471805599453",
    ),
    Fault(
        "wrong dtype", "an output is float64", "INCORRECT_DTYPE", SOLVED,
        status="INCORRECT_DTYPE", is_dps=False,
        body="return (scale * x).double(), torch.logsumexp(x, dim=1) / 0.6931471805599453",
    ),
    Fault(
        "NaN", "one element of an output is NaN", "INCORRECT_NUMERICAL, the element named", SOLVED,
        status="INCORRECT_NUMERICAL", body=RIGHT + "y[1, 2] = float('nan')", words="[1, 2]",
    ),
    Fault(
        "unwritten output", "one output is never written", "INCORRECT_NUMERICAL", SOLVED,
        status="INCORRECT_NUMERICAL", body="y.copy_(scale * x)", words="nan",
    ),
    Fault(
        "in-place mutation", "run doubles its input after it has read it",
        "PASSED: it had a copy; `harness audit` names it", SOLVED,
        status="PASSED", body=RIGHT + "x.mul_(2)",
    ),
    Fault(
        "raising reference", "the reference raises", "REFERENCE_ERROR, judged again on resume",
        SOLVED, status="REFERENCE_ERROR", body=RIGHT,
        reference="def run(x, scale):\n    raise ArithmeticError('of the reference')\n",
        words="ArithmeticError",
    ),
    Fault(
        "lost child", "run leaves a child in a session and an environment of its own, and hangs",
        "TIMEOUT; the child ends with the worker", SOLVED,
        status="TIMEOUT", head="import subprocess, time",
        body="subprocess.Popen(['sleep', '4711'], env={}, start_new_session=True)\n"
        "time.sleep(600)", words="no answer",
    ),
)  # fmt: skip

# What becomes of the sweep, its disk and its clock
MACHINE_FAULTS = (
    Fault(
        "kill -9", "the sweep is killed at 60 random points",
        "no verdict lost or doubled; resume judges the rest",
        KILLS + "test_a_sweep_killed_at_random_points_loses_and_doubles_nothing",
    ),
    Fault(
        "SIGTERM to the sweep", "a sweep is asked to end", "its worker ends too; resume goes on",
        KILLS + "test_a_sweep_that_is_terminated_leaves_no_worker_and_goes_on",
    ),
    Fault(
        "abandoned child", "a killed sweep leaves a child in a session of its own",
        "the next sweep ends it", MACHINE + "test_the_next_pool_ends_what_a_killed_sweep_left",
    ),
    Fault(
        "full disk", "the disk of the ledger fills up in the middle of a sweep",
        "exit 6, no half line; resume judges the rest",
        MACHINE + "test_a_disk_that_fills_up_costs_the_verdict_that_did_not_fit",
    ),
    Fault(
        "full build cache", "the disk of the build cache fills up",
        "INFRASTRUCTURE, not the solution's COMPILE_ERROR",
        "unit/test_faults_solutions.py::test_a_full_build_cache_is_no_compile_error",
    ),
    Fault(
        "read-only cache", "the build cache cannot be written",
        "exit 3 before the first workload", MACHINE + "test_a_cache_that_cannot_be_written_is_said"
        "_before_anything_is_judged",
    ),
    Fault(
        "two sweeps", "two sweeps of one room at once",
        "one waits or ends with 5; one verdict a workload",
        MACHINE + "test_two_sweeps_at_once_judge_each_workload_once",
    ),
    Fault(
        "truncated ledger", "the ledger's last line is cut at any byte",
        "that workload is judged again, the others are kept",
        MACHINE + "test_a_ledger_cut_anywhere_costs_its_last_line",
    ),
    Fault(
        "clock set back", "the clock goes back an hour in a sweep and between two",
        "the verdict written last counts", MACHINE + "test_a_clock_set_back_changes_no_verdict",
    ),
)  # fmt: skip

# What a kernel does on a GPU, followed by a good one
GPU_FAULTS = (
    Fault(
        "illegal address", "a kernel writes through a wild pointer", "RUNTIME_ERROR, a new worker",
        ON_GPU, status="RUNTIME_ERROR", behaviour="illegal_address", words="illegal",
    ),
    Fault(
        "infinite loop", "a kernel never ends", "TIMEOUT, a new worker", ON_GPU,
        status="TIMEOUT", behaviour="infinite_loop", words="no answer",
    ),
    Fault(
        "device assert", "an assertion fails on the device", "RUNTIME_ERROR, a new worker", ON_GPU,
        status="RUNTIME_ERROR", behaviour="device_assert", words="assert",
    ),
)  # fmt: skip

ALL_FAULTS = (*WORKER_FAULTS, *SOLUTION_FAULTS, *MACHINE_FAULTS, *GPU_FAULTS)
