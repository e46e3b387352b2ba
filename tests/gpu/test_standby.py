"""A process on standby, beside a worker that measures, leaves the GPU alone."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.evaluate.pool import Pool
from harness.evaluate.protocol import Status
from tests.unit.judge_room import RIGHT, make_job, module
from tests.unit.test_judge_worker import wait_until

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]


def holds_a_gpu(process: Path) -> bool:
    """Whether it has opened a device file of the driver, as every CUDA context does."""
    opened = [os.readlink(descriptor) for descriptor in (process / "fd").iterdir()]
    return any(name.startswith("/dev/nvidia") for name in opened)


def test_a_process_on_standby_opens_no_gpu_until_its_go(tmp_path, monkeypatch):
    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "builds"))
    with Pool("cuda:0", ROOT) as pool:
        pool.stand_by()
        process = Path("/proc") / str(pool._standby._process.pid)
        wait_until(lambda: "libtriton" in (process / "maps").read_text(), 60.0)
        time.sleep(1.0)  # the rest of its imports
        assert not holds_a_gpu(process)
        pool.renew()
        job = make_job(tmp_path / "set", module(RIGHT))
        settings = replace(job.settings, timer="cupti")
        outcome = pool.run(replace(job, device="cuda:0", settings=settings))
        assert outcome.status is Status.PASSED, (outcome.detail, outcome.log)
        assert holds_a_gpu(process)
