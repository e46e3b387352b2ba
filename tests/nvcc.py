"""Compiles, without a GPU, the CUDA sources of a room as its native route would build them."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from harness.config import load_workspace
from harness.packing import pack

SHELF = Path(__file__).parents[1] / "solutions" / "common"
_PACKAGES = itertools.count()


@dataclass(frozen=True)
class Kernel:
    """What ptxas says of one kernel."""

    name: str
    registers: int
    spilled_bytes: int


def load_shelf(name: str, folder: Path = SHELF) -> ModuleType:
    """A module of the shelf, or of a folder with copies of it, that has cached nothing yet."""
    package = ModuleType(f"shelf_{next(_PACKAGES)}")
    package.__path__ = [str(folder)]
    sys.modules[package.__name__] = package
    return importlib.import_module(f"{package.__name__}.{name}")


def make_toolkit(folder: Path, release: str = "13.0") -> str:
    """A toolkit that only says which release it is."""
    (folder / "bin").mkdir(parents=True)
    (folder / "include").mkdir()
    (folder / "include" / "cuda_runtime.h").touch()
    nvcc = folder / "bin" / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho Cuda compilation tools, release {release}, V{release}.1\n")
    nvcc.chmod(0o755)
    return str(folder)


def find_nvcc(architecture: str = "90a") -> str | None:
    """The compiler that a native route for "90a", "100a" or "103a" would take."""
    module = load_shelf("toolkit")
    known = {found.name.replace(".", ""): found for found in module.ARCHITECTURES.values()}
    toolkit = module.find_toolkit(known[architecture].oldest_nvcc)
    return toolkit and str(Path(toolkit.folder, "bin", "nvcc"))


def write_sources(room: str, folder: Path) -> None:
    """The files of a packed room."""
    for source_file in json.loads(pack(load_workspace(), room).text)["sources"]:
        (folder / source_file["path"]).write_text(source_file["content"], encoding="utf-8")


def compile_native(room: str, source: str, architecture: str, folder: Path) -> list[Kernel]:
    """Compile a packed source file, such as "attend.cu", in a folder that holds nothing but what
    the room lacks.

    Raises RuntimeError with the compiler's text.
    """
    import tvm_ffi.libinfo

    write_sources(room, folder)
    nvcc = find_nvcc(architecture)
    assert nvcc is not None, "callers skip where there is no nvcc"
    done = subprocess.run(
        [
            nvcc,
            "-std=c++17",
            "-O3",
            f"-gencode=arch=compute_{architecture},code=sm_{architecture}",
            f"-I{tvm_ffi.libinfo.find_include_path()}",
            f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}",
            "-Xptxas=-v",
            "-Werror=all-warnings",
            "-cubin",
            "-o",
            "native.cubin",
            source,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{source} does not compile for sm_{architecture}:\n{done.stderr}")
    return _read_kernels(done.stderr)


def _read_kernels(report: str) -> list[Kernel]:
    pattern = re.compile(
        r"Compiling entry function '(?P<name>\w+)'.*?(?P<stores>\d+) bytes spill stores, "
        r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers",
        re.DOTALL,
    )
    return [
        Kernel(found["name"], int(found["registers"]), int(found["stores"]) + int(found["loads"]))
        for found in pattern.finditer(report)
    ]
