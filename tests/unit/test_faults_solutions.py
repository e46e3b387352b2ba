"""Solutions that crash, hang, exhaust or lie, in a real worker between two that are right."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.evaluate.pool import Pool, WorkerCommand, worker_environment
from harness.evaluate.protocol import Status
from tests.unit.fault_registry import SOLUTION_FAULTS
from tests.unit.judge_room import REFERENCE, RIGHT, make_job, module

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HANG_S, GRACE_S = 3, 5.0
ADDRESS_SPACE_BYTES = 64 << 30
WORKER = (sys.executable, "-m", "harness.evaluate.worker")


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """One worker for the file, which may have 64 GiB of addresses."""
    cache = tmp_path_factory.mktemp("builds")
    environment = {**worker_environment("cpu", ROOT), "FIB_CACHE_PATH": str(cache)}
    limited = (
        sys.executable, "-c",
        "import os, resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({ADDRESS_SPACE_BYTES},) * 2)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])",
        *WORKER[1:],
    )  # fmt: skip
    with Pool("cpu", ROOT, WorkerCommand(limited, environment)) as pool:
        yield pool


def good(pool, folder):
    outcome = pool.run(make_job(folder, module(RIGHT)))
    assert outcome.status is Status.PASSED, (outcome.detail, outcome.log)
    return outcome


@pytest.mark.parametrize("fault", SOLUTION_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_its_own_verdict_and_the_next_is_well(fault, pool, tmp_path, record_property):
    before = good(pool, tmp_path)
    timeout_s = HANG_S if fault.status == "TIMEOUT" else 60
    job = make_job(
        tmp_path,
        module(fault.body, fault.is_dps, fault.head),
        is_dps=fault.is_dps,
        reference=fault.reference or REFERENCE,
        trials=2,
        timeout_s=timeout_s,
    )
    outcome = pool.run(job)
    record_property("verdict", outcome.status.value)
    assert outcome.status.value == fault.status, (outcome.detail, outcome.log)
    assert fault.words in outcome.detail + outcome.log
    assert outcome.stages_s["total"] < timeout_s + GRACE_S
    after = good(pool, tmp_path)
    assert after.max_abs_error == before.max_abs_error
    assert not is_running(b"sleep\x004711\x00"), "left by the lost child"


def is_running(command_line):
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # ended meanwhile
            if path.read_bytes() == command_line:
                return True
    return False


def has_tmpfs(folder):
    """Mount a disk of 16 KiB there, where this user may."""
    options = ["-t", "tmpfs", "-o", "size=16k,mode=755", "tmpfs"]
    return subprocess.run(["mount", *options, str(folder)], capture_output=True).returncode == 0


def test_a_full_build_cache_is_no_compile_error(tmp_path):
    """Neither the reference nor the solution is to blame, whichever is built first."""
    cache = tmp_path / "builds"
    cache.mkdir()
    if not has_tmpfs(cache):
        pytest.skip("mounting a small tmpfs needs root")
    try:
        environment = {**worker_environment("cpu", ROOT), "FIB_CACHE_PATH": str(cache)}
        job = make_job(tmp_path / "set", module(RIGHT))
        with Pool("cpu", ROOT, WorkerCommand(environment=environment)) as pool:
            fill(cache)
            first = pool.run(job)
            (cache / "full").unlink()
            assert pool.run(job).status is Status.PASSED
            fill(cache)
            second = pool.run(make_job(tmp_path / "set", module(RIGHT + "# another")))
        for outcome in (first, second):
            assert outcome.status is Status.INFRASTRUCTURE
            assert "build cache cannot be written" in outcome.detail
    finally:
        subprocess.run(["umount", "-l", str(cache)], check=True)


def fill(folder):
    with pytest.raises(OSError, match="No space"), open(folder / "full", "wb", 0) as full:
        while True:
            full.write(os.urandom(1 << 12))
