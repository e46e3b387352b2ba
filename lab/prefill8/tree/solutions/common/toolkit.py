"""Toolkit, host compiler and ninja of a native build, and whether a machine has them."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Architecture(NamedTuple):
    """What sources are compiled for.

    name: the suffix is part of it, as wgmma exists on sm_90a and not on sm_90.
    oldest_nvcc: the first release that knows it.
    """

    name: str
    oldest_nvcc: tuple[int, int]


class Toolkit(NamedTuple):
    """A CUDA toolkit: its folder, and the release of its nvcc."""

    folder: str
    release: tuple[int, int]


# By compute capability.
ARCHITECTURES = {
    (9, 0): Architecture("9.0a", (12, 1)),
    (10, 0): Architecture("10.0a", (12, 8)),
    (10, 3): Architecture("10.3a", (12, 9)),
}
USUAL_TOOLKIT = "/usr/local/cuda"
ANSWER_LIMIT_S = 10.0


@functools.cache
def find_toolkit(oldest_nvcc):
    """The first toolkit whose nvcc is of that release or a later one; None where there is none.

    Looked at: CUDA_HOME, CUDA_PATH, the folder of the nvcc on PATH, the usual folder. One without
    headers is none: what lies on PATH may be a script that calls the compiler of another folder.
    """
    on_path = shutil.which("nvcc")
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    folders += [on_path and Path(on_path).resolve().parent.parent, USUAL_TOOLKIT]
    for folder in folders:
        release = _release_in(Path(folder)) if folder else None
        if release is not None and release >= oldest_nvcc:
            return Toolkit(str(folder), release)
    return None


@functools.cache
def can_build(capability):
    """Whether this machine has what a build for a compute capability needs.

    capability: (major, minor), or None without a device. Needed are a toolkit that knows its
    architecture, a host compiler, ninja and apache-tvm-ffi.
    """
    return (
        capability in ARCHITECTURES
        and importlib.util.find_spec("tvm_ffi") is not None
        and shutil.which("ninja", path=search_path()) is not None
        and host_compiler() is not None
        and find_toolkit(ARCHITECTURES[capability].oldest_nvcc) is not None
    )


def _release_in(folder):
    """(major, minor) of a toolkit's nvcc; None where the folder holds no toolkit."""
    nvcc = folder / "bin" / "nvcc"
    if not nvcc.is_file() or not (folder / "include" / "cuda_runtime.h").is_file():
        return None
    try:
        said = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, timeout=ANSWER_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired):  # not to be executed, or it hangs
        return None
    release = re.search(r"release (\d+)\.(\d+)", said.stdout)
    return release and (int(release[1]), int(release[2]))


def search_path():
    """PATH, then the folder of this Python, where pip puts ninja."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])


def host_compiler():
    """The path of c++ or g++, or None."""
    return shutil.which("c++") or shutil.which("g++")
