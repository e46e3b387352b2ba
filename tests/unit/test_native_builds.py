"""The native routes' sources compile for the architectures that they name, and spill nothing."""

import pytest

from tests.nvcc import compile_native, find_nvcc

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc of a CUDA toolkit")

# (room, source, architecture, registers that the block size leaves a thread)
BUILDS = [
    ("dsa_attention", "attend.cu", "90a", 168),
    ("dsa_attention", "attend.cu", "100a", 168),
    ("dsa_indexer", "index.cu", "90a", 128),
]


@needs_nvcc
@pytest.mark.parametrize(("room", "source", "architecture", "limit"), BUILDS)
def test_compiles_without_spills(room, source, architecture, limit, tmp_path):
    kernels = compile_native(room, source, architecture, tmp_path)
    assert kernels
    assert all(kernel.spilled_bytes == 0 for kernel in kernels)
    assert all(kernel.registers <= limit for kernel in kernels)
