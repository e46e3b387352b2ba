"""The CUDA toolkit that native routes are compiled with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

USUAL_TOOLKIT = "/usr/local/cuda"
ANSWER_LIMIT_S = 10.0


def find_nvcc() -> str | None:
    """Where builds look for it: CUDA_HOME, CUDA_PATH, the usual folder, then PATH."""
    folders = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), USUAL_TOOLKIT)
    paths = [Path(folder, "bin", "nvcc") for folder in folders if folder]
    found = next((str(path) for path in paths if path.is_file()), None)
    return found or shutil.which("nvcc")


def nvcc_release(nvcc: str) -> str | None:
    """Such as "13.0"; None where it does not say."""
    try:
        said = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, check=False, timeout=ANSWER_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"release ([\d.]+)", said.stdout)
    return found[1] if found else None
