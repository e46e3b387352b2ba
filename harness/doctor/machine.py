"""Checks of the GPU, of what drives it and of what compiles for it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from harness.devices import (
    OLDEST_NVCC,
    DeviceFacts,
    Nvml,
    describe_no_gpu,
    describe_throttling,
    find_nvcc,
    missing_tools,
    nvcc_release,
    other_users,
    sample_clocks,
    throttled,
)
from harness.doctor.check import Check, fail, note, ok
from harness.doctor.probe import TorchFacts
from harness.errors import ExitCode, HarnessError
from harness.timing import require_timer

NO_GPU = "no GPU to look at"
HOW_TO_INSTALL = {
    "c++": "install a host compiler, such as g++",
    "ninja": "pip install ninja",
    "apache-tvm-ffi": "pip install apache-tvm-ffi",
}
ARCHITECTURE_VARIABLES = ("TVM_FFI_CUDA_ARCH_LIST", "TORCH_CUDA_ARCH_LIST")
COUNTERS = Path("/proc/driver/nvidia/params")


def check_gpu(facts: DeviceFacts) -> Check:
    if facts.uuid is None:
        return fail(
            "gpu",
            f"none: {describe_no_gpu()}",
            "measure on a machine with an NVIDIA GPU; correctness is judged here too",
        )
    major, minor = facts.capability or (0, 0)
    return ok(
        "gpu",
        f"{facts.name}, compute capability {major}.{minor}, {facts.sm_count} SMs, "
        f"{(facts.memory_bytes or 0) / 1e9:.0f} GB, L2 {(facts.l2_bytes or 0) >> 20} MiB",
    )


def check_driver(facts: DeviceFacts, torch: TorchFacts) -> Check:
    """Driver and torch must agree on CUDA, and torch must compute."""
    if facts.uuid is None:
        return note("driver", NO_GPU)
    found = f"{facts.driver or 'unknown'}, CUDA {facts.cuda}; torch for CUDA {torch.cuda}"
    if torch.cuda is None:
        return fail("driver", found, "install a torch that is built for CUDA")
    if _numbers(torch.cuda) > _numbers(facts.cuda or "0"):
        return fail("driver", found, f"update the driver, or install a torch for {facts.cuda}")
    if not torch.sees_gpu:
        why = torch.problems.get("gpu") or torch.problems.get("torch") or "it says no more"
        return fail("driver", f"{found}; torch does not compute: {why}", "restart the machine")
    return ok("driver", found)


def check_sharing(facts: DeviceFacts, nvml: Nvml | None = None) -> Check:
    if facts.uuid is None:
        return note("sharing", NO_GPU)
    others = other_users(facts, nvml=nvml)
    if others:
        pids = ", ".join(str(process.pid) for process in others)
        fix = "wait for them, or choose another GPU with CUDA_VISIBLE_DEVICES"
        return fail("sharing", f"also computing: pid {pids}", fix, ExitCode.BUSY)
    return ok("sharing", "nobody else computes")


def check_clocks(facts: DeviceFacts, nvml: Nvml | None = None) -> Check:
    """Clocks and what slows them now. An idle GPU is clocked low by itself."""
    if facts.uuid is None:
        return note("clocks", NO_GPU)
    sample = sample_clocks(facts, nvml)
    if sample.sm_mhz is None:
        return note("clocks", "NVML says nothing", "install nvidia-ml-py to have them recorded")
    found = f"SM {sample.sm_mhz} MHz, memory {sample.memory_mhz} MHz, {sample.temperature_c} C"
    if any(throttled([sample])):
        fix = "let the GPU cool, and see its power limit"
        return fail("clocks", f"{found}; {describe_throttling([sample])}", fix)
    return ok("clocks", found)


def check_cupti(facts: DeviceFacts, torch: TorchFacts) -> Check:
    """The only timer whose numbers are results must be there and see a kernel."""
    if facts.uuid is None:
        return note("cupti", NO_GPU)
    try:
        require_timer("cupti")
    except HarnessError as error:
        return fail("cupti", str(error).partition(";")[0], "install cupti-python>=13")
    if torch.cupti_us is None:
        why = torch.problems.get("cupti") or "torch does not compute"
        fix = "end other profilers, and see that driver and cupti-python fit each other"
        return fail("cupti", f"a kernel could not be measured: {why}", fix)
    return ok("cupti", f"a kernel of 1024 elements takes {torch.cupti_us:.4g} us")


def check_counters(
    facts: DeviceFacts, params: Path = COUNTERS, is_root: bool | None = None
) -> Check:
    """Whether ncu may read performance counters: a setting of the host."""
    if facts.uuid is None:
        return note("counters", NO_GPU)
    is_root = os.geteuid() == 0 if is_root is None else is_root
    try:
        text = params.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return note("counters", "the driver does not say who may read them")
    if re.search(r"^RmProfilingAdminOnly:\s*1\b", text, re.MULTILINE) and not is_root:
        return note(
            "counters",
            "administrators only: ncu will end with ERR_NVGPUCTRPERM, a setting of the host",
            "ask for NVreg_RestrictProfilingToAdminUsers=0; the Torch profiler works without",
        )
    return ok("counters", "ncu may read them")


def check_compiler(facts: DeviceFacts, native: Sequence[str]) -> Check:
    """nvcc, and the architectures that it is asked for. native: rooms that need it."""
    nvcc = find_nvcc(facts.capability)
    needed = f"needed by the native route of {', '.join(native)}" if native else "no room needs it"
    if nvcc is None:
        oldest = OLDEST_NVCC.get(facts.capability) if facts.capability else None
        none = "none from release {}.{} on found".format(*oldest) if oldest else "none found"
        if not native:
            return note("nvcc", f"{none}; {needed}, some peers do")
        fix = "install the CUDA toolkit, and set CUDA_HOME or put its bin folder on PATH"
        return fail("nvcc", f"{none}; {needed}", fix, ExitCode.TOOL_MISSING)
    missing = missing_tools(facts.capability)
    if native and missing:
        found, fix = f"{nvcc}, but no {', '.join(missing)}; {needed}", HOW_TO_INSTALL[missing[0]]
        return fail("nvcc", found, fix, ExitCode.TOOL_MISSING)
    found = f"{nvcc_release(nvcc) or 'of no known release'}, {nvcc}; {needed}"
    for name in ARCHITECTURE_VARIABLES:
        if os.environ.get(name):
            found += f"; {name}={os.environ[name]!r}"
    if facts.capability is None:
        return ok("nvcc", f"{found}; {NO_GPU}")
    wanted = "{}.{}".format(*facts.capability)
    for name in ARCHITECTURE_VARIABLES:
        listed = re.split(r"[\s;,]+", os.environ.get(name, "").strip())
        if listed != [""] and not any(one.rstrip("af+PTX") == wanted for one in listed):
            return fail("nvcc", found, f"unset {name}, or add {wanted}a to it")
    return ok("nvcc", f"{found}; flags for this GPU: sm_{wanted.replace('.', '')}a")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
