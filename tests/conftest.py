"""Without CUDA the kernels run in the Triton interpreter, which must be chosen before import."""

import os
from pathlib import Path

import pytest


def _has_cuda() -> bool:
    return Path("/dev/nvidiactl").exists()


if not _has_cuda():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_configure(config):
    """Asked for GPU tests alone (`make gpu`): that all of them were left out is no success."""
    if config.option.markexpr == "gpu" and not _has_cuda():
        pytest.exit("no GPU: expected /dev/nvidiactl; run `make gpu` on a GPU machine", 3)


def pytest_collection_modifyitems(config, items):
    """A GPU test that cannot run is left out by name, never reported as passed."""
    if _has_cuda():
        return
    skip = pytest.mark.skip(reason="no CUDA device: run `make gpu` on a GPU machine")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
