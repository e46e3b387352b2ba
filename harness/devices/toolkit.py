"""The CUDA toolkit that native routes are compiled with, and the other tools of a build.

solutions/common/toolkit.py finds the same: a solution is packed without the harness.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

USUAL_TOOLKIT = "/usr/local/cuda"
ANSWER_LIMIT_S = 10.0

# By compute capability, the first release of nvcc that knows it.
OLDEST_NVCC = {(9, 0): (12, 1), (10, 0): (12, 8), (10, 3): (12, 9)}


def find_nvcc(capability: tuple[int, int] | None = None) -> str | None:
    """The nvcc that a native route for a compute capability is built with; None where there is
    none. For a capability without native routes, and for None, any release will do.

    Looked at: CUDA_HOME, CUDA_PATH, the folder of the nvcc on PATH, the usual folder. One without
    headers is no toolkit.
    """
    oldest = OLDEST_NVCC.get(capability, (0, 0)) if capability else (0, 0)
    on_path = shutil.which("nvcc")
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    folders += [on_path and str(Path(on_path).resolve().parent.parent), USUAL_TOOLKIT]
    for folder in folders:
        if not folder or not Path(folder, "include", "cuda_runtime.h").is_file():
            continue
        nvcc = str(Path(folder, "bin", "nvcc"))
        release = nvcc_release(nvcc)
        if release is not None and _numbers(release) >= oldest:
            return nvcc
    return None


def nvcc_release(nvcc: str) -> str | None:
    """Such as "13.0"; None where it does not say."""
    try:
        said = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, check=False, timeout=ANSWER_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"release (\d+\.\d+)", said.stdout)
    return found[1] if found else None


def missing_tools(capability: tuple[int, int] | None = None) -> list[str]:
    """What a native build lacks here: nvcc as find_nvcc() finds it, c++ or g++, ninja on PATH or
    beside this Python, apache-tvm-ffi."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    there = {
        "nvcc": find_nvcc(capability) is not None,
        "c++": shutil.which("c++") is not None or shutil.which("g++") is not None,
        "ninja": shutil.which("ninja", path=path) is not None,
        "apache-tvm-ffi": importlib.util.find_spec("tvm_ffi") is not None,
    }
    return [name for name, is_there in there.items() if not is_there]


def _numbers(release: str) -> tuple[int, int]:
    major, minor = release.split(".")
    return int(major), int(minor)
