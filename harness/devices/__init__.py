"""What the GPU is, how fast it is clocked, and whether somebody else computes on it.

    sources   the CUDA driver and NVML, each behind a protocol that tests stand in for
    facts     DeviceFacts of a device string; library versions
    clocks    samples before and after, and which of them were throttled
    cores     the host's cores that are each GPU's
    sharing   other processes on the GPU, and one lock a GPU
    toolkit   nvcc and the other tools that native routes are built with

Nothing here sets a clock, and nothing imports torch.
"""

from harness.devices.clocks import (
    describe_throttling,
    sample_clocks,
    summarise_clocks,
    throttle_reasons,
    throttled,
)
from harness.devices.cores import own_cores, spare_cores
from harness.devices.facts import (
    JUDGING_WITHOUT,
    describe_no_gpu,
    libraries,
    load_cuda,
    read_facts,
    require_gpu,
)
from harness.devices.sharing import device_lock, other_users, require_idle
from harness.devices.sources import (
    CPU_SLUG,
    ClockSample,
    CudaDriver,
    DeviceFacts,
    GpuProcess,
    Nvml,
    slug_of,
)
from harness.devices.toolkit import OLDEST_NVCC, find_nvcc, missing_tools, nvcc_release

__all__ = [
    "CPU_SLUG",
    "JUDGING_WITHOUT",
    "OLDEST_NVCC",
    "ClockSample",
    "CudaDriver",
    "DeviceFacts",
    "GpuProcess",
    "Nvml",
    "describe_no_gpu",
    "describe_throttling",
    "device_lock",
    "find_nvcc",
    "libraries",
    "load_cuda",
    "missing_tools",
    "nvcc_release",
    "other_users",
    "own_cores",
    "read_facts",
    "require_gpu",
    "require_idle",
    "sample_clocks",
    "slug_of",
    "spare_cores",
    "summarise_clocks",
    "throttle_reasons",
    "throttled",
]
