"""The device that a run is measured on, and the libraries that it is measured with."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
from dataclasses import replace

from harness.devices.sources import (
    CPU_SLUG,
    CudaDriver,
    DeviceFacts,
    LibCuda,
    Nvml,
    load_nvml,
)
from harness.errors import EnvironmentUnfit, UsageError

LIBRARIES = (
    "torch",
    "triton",
    "flashinfer-bench",
    "cupti-python",
    "apache-tvm-ffi",
    "numpy",
)


def cpu_facts() -> DeviceFacts:
    return DeviceFacts(CPU_SLUG, platform.processor() or platform.machine())


def load_cuda() -> CudaDriver | None:
    """The CUDA driver, or None where there is none or no device is visible."""
    try:
        driver = LibCuda()
        return driver if driver.count() > 0 else None
    except OSError:
        return None


def read_facts(
    device: str | None = None, cuda: CudaDriver | None = None, nvml: Nvml | None = None
) -> DeviceFacts:
    """Facts of a torch device string: "cpu", "cuda", "cuda:1"; None: the first GPU, else the CPU.

    CUDA_VISIBLE_DEVICES holds: "cuda:0" is the first visible one.
    Raises UsageError, EnvironmentUnfit.
    """
    if device == "cpu":
        return cpu_facts()
    if device is not None and not re.fullmatch(r"cuda(:\d+)?", device):
        raise UsageError(f'device: expected "cpu" or "cuda:0", got {device!r}')
    cuda = cuda or load_cuda()
    ordinal = int((device or "cuda:0").partition(":")[2] or 0)
    visible = cuda.count() if cuda is not None else 0
    if cuda is None or ordinal >= visible:
        if device is None:
            return cpu_facts()
        setting = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise EnvironmentUnfit(
            f"{device}: expected a visible GPU, got {visible} "
            f"(CUDA_VISIBLE_DEVICES is {'not set' if setting is None else repr(setting)}); "
            "check the driver with nvidia-smi"
        )
    facts = cuda.facts(ordinal)
    return replace(facts, driver=(nvml or load_nvml()).driver_version())


def libraries() -> dict[str, str]:
    """Versions of what decides a result, from package metadata; absent ones are left out.

    flashinfer_bench.__version__ says 0.0.0.dev0 in the 0.1.2 wheel, hence the metadata.
    """
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
