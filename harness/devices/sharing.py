"""Who else computes on the GPU: strangers are refused, other runs of this harness wait."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from harness.devices.sources import DeviceFacts, GpuProcess, Nvml, load_nvml
from harness.errors import DeviceBusy, EnvironmentUnfit
from harness.files import hold_lock

APPLICATION = "flashinfer-contest-kernels"


def other_users(
    facts: DeviceFacts, own_pids: Collection[int] = (), nvml: Nvml | None = None
) -> tuple[GpuProcess, ...]:
    """Compute processes of others on the GPU.

    own_pids: processes to leave out besides this one. Inside a container NVML gives host pids
    (or none), so ask before the first worker starts.
    """
    if facts.uuid is None:
        return ()
    ours = {os.getpid(), *own_pids}
    return tuple(p for p in (nvml or load_nvml()).processes(facts.uuid) if p.pid not in ours)


def require_idle(
    facts: DeviceFacts, own_pids: Collection[int] = (), nvml: Nvml | None = None
) -> None:
    """Raises DeviceBusy naming the other processes: a latency measured beside them is none."""
    others = other_users(facts, own_pids, nvml)
    if others:
        names = ", ".join(
            f"pid {p.pid}" + ("" if p.memory_bytes is None else f" ({p.memory_bytes >> 20} MiB)")
            for p in others
        )
        raise DeviceBusy(
            f"{facts.name} {facts.uuid}: expected an idle GPU, got {names}; wait for them or "
            "choose another GPU with CUDA_VISIBLE_DEVICES"
        )


def lock_folder() -> Path:
    """Where this user's locks lie: XDG_RUNTIME_DIR, else XDG_CACHE_HOME, else ~/.cache."""
    for variable in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME"):
        folder = os.environ.get(variable)
        if folder and Path(folder).is_dir():
            return Path(folder) / APPLICATION
    return Path.home() / ".cache" / APPLICATION


@contextlib.contextmanager
def device_lock(uuid: str, wait_s: float = 0.0) -> Iterator[None]:
    """Hold a GPU against other runs of this harness; the system frees it if the process dies.

    wait_s: how long to wait for the present holder. Raises DeviceBusy naming its pid.
    """
    path = lock_folder() / f"{uuid}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - kept open while locked
    except OSError as error:
        raise EnvironmentUnfit(
            f"{path}: cannot make the GPU's lock file: {error}; set XDG_CACHE_HOME to a folder "
            "that can be written"
        ) from error
    with file, hold_lock(file, wait_s, f"GPU {uuid}"):
        yield
