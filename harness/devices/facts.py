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
JUDGING_WITHOUT = "`python -m harness evaluate` judges small workloads without one"
HIDES_ALL = ("", "-1", "NoDevFiles")  # of CUDA_VISIBLE_DEVICES; the last is Slurm's


def describe_no_gpu() -> str:
    """Why no GPU is visible, as far as the environment and the driver say."""
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting in HIDES_ALL:
        return f"CUDA_VISIBLE_DEVICES is {setting!r}, which hides every GPU"
    try:
        LibCuda()
    except OSError as error:
        return f"the CUDA driver says: {error}{_setting()}"
    return f"the CUDA driver sees no GPU{_setting()}"


def require_gpu(facts: DeviceFacts, what: str, otherwise: str = JUDGING_WITHOUT) -> None:
    """Raise EnvironmentUnfit where the facts are the CPU's.

    what: needs the GPU. otherwise: what can be done without one.
    """
    if facts.uuid is None:
        raise EnvironmentUnfit(f"{what}: expected a GPU, but {describe_no_gpu()}; {otherwise}")


def _setting() -> str:
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if setting is None else f", and CUDA_VISIBLE_DEVICES is {setting!r}"


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

    CUDA_VISIBLE_DEVICES holds: "cuda:0" is the first visible one. Where it names GPUs and none
    of them is there, the CPU is no answer. Raises UsageError, EnvironmentUnfit.
    """
    if device == "cpu":
        return cpu_facts()
    if device is not None and not re.fullmatch(r"cuda(:\d+)?", device):
        raise UsageError(f'device: expected "cpu" or "cuda:0", got {device!r}')
    cuda = cuda or load_cuda()
    ordinal = int((device or "cuda:0").partition(":")[2] or 0)
    visible = cuda.count() if cuda is not None else 0
    if cuda is None or ordinal >= visible:
        setting = os.environ.get("CUDA_VISIBLE_DEVICES")
        if device is None and (setting is None or setting in HIDES_ALL):
            return cpu_facts()
        found = f"only {visible} visible{_setting()}" if visible else describe_no_gpu()
        raise EnvironmentUnfit(
            f"device: expected {device or 'a GPU'}, but {found}; nvidia-smi lists what there is"
            + ("" if device else ", CUDA_VISIBLE_DEVICES= means the CPU")
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
