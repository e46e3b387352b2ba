"""Where facts about GPUs come from: the CUDA driver and NVML.

The CUDA driver (libcuda through ctypes; no context is made) says which device CUDA ordinal n is.
It applies CUDA_VISIBLE_DEVICES, in either spelling, and CUDA's own device order, which NVML knows
nothing of; the UUID carries the choice over to NVML. NVML (nvidia-ml-py) says clocks, throttle
reasons and processes. Where it is missing these are unknown, never wrong.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

CPU_SLUG = "cpu"
WORD_BITS = 64  # of a mask of cores
# CUdevice_attribute codes
_ATTRIBUTES = {"sm_count": 16, "l2_bytes": 38, "major": 75, "minor": 76}


@dataclass(frozen=True)
class DeviceFacts:
    """One device. slug: "nvidia-h200", or "cpu" where there is no GPU and the rest is None.

    uuid: the physical GPU, "GPU-…". cuda: what the driver supports, "13.0". capability: (9, 0).
    """

    slug: str
    name: str
    uuid: str | None = None
    driver: str | None = None
    cuda: str | None = None
    capability: tuple[int, int] | None = None
    sm_count: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class ClockSample:
    """What NVML says at one moment; None where it does not say. reasons: a bit mask."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    reasons: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None


@dataclass(frozen=True)
class GpuProcess:
    """A process with a CUDA context on the GPU. pid is the host's, also inside a container."""

    pid: int
    memory_bytes: int | None


class CudaDriver(Protocol):
    """Devices as CUDA numbers them."""

    def count(self) -> int:
        """Number of visible devices."""

    def facts(self, ordinal: int) -> DeviceFacts:
        """Everything but the driver's version."""


class Nvml(Protocol):
    """GPUs by UUID."""

    def driver_version(self) -> str | None:
        """Such as "580.65.06"."""

    def sample(self, uuid: str) -> ClockSample:
        """Clocks of this moment."""

    def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        """Compute processes of this moment."""

    def near_cores(self) -> dict[str, tuple[int, ...]]:
        """By UUID, in NVML's order, the host's cores that are nearest to each of its GPUs."""


class LibCuda:
    """The CUDA driver API. Raises OSError where libcuda is missing or sees no device."""

    def __init__(self, library: Any = None) -> None:
        self._library = library or ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)

    def count(self) -> int:
        return self._integer("cuDeviceGetCount")

    def facts(self, ordinal: int) -> DeviceFacts:
        device = self._integer("cuDeviceGet", ordinal)
        name, raw_uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
        memory = ctypes.c_size_t()
        self._call("cuDeviceGetName", name, len(name), device)
        self._call("cuDeviceGetUuid", raw_uuid, device)
        self._call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        attribute = {
            key: self._integer("cuDeviceGetAttribute", code, device)
            for key, code in _ATTRIBUTES.items()
        }
        version = self._integer("cuDriverGetVersion")
        full_name = name.value.decode()
        return DeviceFacts(
            slug=slug_of(full_name),
            name=full_name,
            uuid=f"GPU-{uuid.UUID(bytes=raw_uuid.raw)}",
            cuda=f"{version // 1000}.{version % 1000 // 10}",
            capability=(attribute["major"], attribute["minor"]),
            sm_count=attribute["sm_count"],
            l2_bytes=attribute["l2_bytes"],
            memory_bytes=memory.value,
        )

    def _integer(self, function: str, *arguments: Any) -> int:
        value = ctypes.c_int()
        self._call(function, ctypes.byref(value), *arguments)
        return value.value

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code != 0:
            raise OSError(f"{function} failed with CUDA error {code}")


class PyNvml:
    """NVML through nvidia-ml-py. Whatever it cannot say is None or empty, never an exception."""

    def __init__(self) -> None:
        self._nvml: Any = None
        try:
            import pynvml
        except ImportError:
            return
        with contextlib.suppress(pynvml.NVMLError):  # no library, no driver, no permission
            pynvml.nvmlInit()
            self._nvml = pynvml

    def driver_version(self) -> str | None:
        version = self._ask(lambda nvml: nvml.nvmlSystemGetDriverVersion())
        return str(version) if version is not None else None

    def sample(self, uuid: str) -> ClockSample:
        milliwatts = self._ask(lambda n: n.nvmlDeviceGetPowerUsage(self._handle(uuid)))
        return ClockSample(
            sm_mhz=self._ask(
                lambda n: n.nvmlDeviceGetClockInfo(self._handle(uuid), n.NVML_CLOCK_SM)
            ),
            memory_mhz=self._ask(
                lambda n: n.nvmlDeviceGetClockInfo(self._handle(uuid), n.NVML_CLOCK_MEM)
            ),
            reasons=self._ask(
                lambda n: n.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle(uuid))
            ),
            power_w=None if milliwatts is None else milliwatts / 1e3,
            temperature_c=self._ask(
                lambda n: n.nvmlDeviceGetTemperature(self._handle(uuid), n.NVML_TEMPERATURE_GPU)
            ),
        )

    def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        running = self._ask(lambda n: n.nvmlDeviceGetComputeRunningProcesses(self._handle(uuid)))
        return tuple(GpuProcess(process.pid, process.usedGpuMemory) for process in running or ())

    def near_cores(self) -> dict[str, tuple[int, ...]]:
        return self._ask(_near_cores) or {}

    def _handle(self, uuid: str) -> Any:
        return self._nvml.nvmlDeviceGetHandleByUUID(uuid)

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        if self._nvml is None:
            return None
        try:
            return question(self._nvml)
        except self._nvml.NVMLError:
            return None


def _near_cores(nvml: Any) -> dict[str, tuple[int, ...]]:
    """A GPU that does not answer keeps its place, so that the others keep their numbers."""
    words = max(os.sched_getaffinity(0)) // WORD_BITS + 1
    near = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        uuid, masks = f"number {index}", list[int]()
        with contextlib.suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = str(nvml.nvmlDeviceGetUUID(handle))
            masks = nvml.nvmlDeviceGetCpuAffinity(handle, words)
        near[uuid] = tuple(
            word * WORD_BITS + bit
            for word, mask in enumerate(masks)
            for bit in range(WORD_BITS)
            if mask >> bit & 1
        )
    return near


def slug_of(name: str) -> str:
    """ "NVIDIA H200" is nvidia-h200: the name of a results folder."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or CPU_SLUG


@functools.cache
def load_nvml() -> Nvml:
    """NVML, initialised once a process."""
    return PyNvml()
