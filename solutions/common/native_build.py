"""Compile and load a room's CUDA sources, at their first use, through apache-tvm-ffi.

The sources lie beside this file. What is built stays under TVM_FFI_CACHE_DIR, named by all that it
is made from: the content of every source, architecture, flags, compiler and binding. Where the
file is there, it is loaded, and no time of any file counts: harnesses write sources anew.
"""

import contextlib
import fcntl
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
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
FLAGS = ("-O3",)


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
        and shutil.which("ninja", path=_search_path()) is not None
        and _host_compiler() is not None
        and find_toolkit(ARCHITECTURES[capability].oldest_nvcc) is not None
    )


@functools.cache
def load_native(source, capability):
    """The module built from a source file such as "attend.cu", where can_build(capability).

    Raises RuntimeError with the compiler's text where the source does not compile, and with the
    name of the variable to set where the cache cannot be written.
    """
    import tvm_ffi

    architecture = ARCHITECTURES[capability]
    toolkit = find_toolkit(architecture.oldest_nvcc)
    folder = Path(__file__).parent
    texts = {path.name: path.read_bytes() for path in sorted(folder.glob("*.cu*"))}
    name = f"{Path(source).stem}_{_key(texts, architecture, toolkit)}"
    cache = Path(os.environ.get("TVM_FFI_CACHE_DIR", "~/.cache/tvm-ffi")).expanduser()
    built = cache / f"{name}.so"
    if not built.is_file():
        try:
            with _locked(cache):
                if not built.is_file():
                    _build(built, source, texts, architecture, toolkit)
        except OSError as error:
            raise RuntimeError(
                f"{cache}: {source} cannot be built there: {error}; set TVM_FFI_CACHE_DIR to a "
                f"folder that can be written"
            ) from error
    return tvm_ffi.load_module(str(built))


def _release_in(folder):
    """(major, minor) of a toolkit's nvcc; None where the folder holds no toolkit."""
    nvcc = folder / "bin" / "nvcc"
    if not nvcc.is_file() or not (folder / "include" / "cuda_runtime.h").is_file():
        return None
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    except OSError:  # not to be executed
        return None
    release = re.search(r"release (\d+)\.(\d+)", said)
    return release and (int(release[1]), int(release[2]))


def _search_path():
    """PATH, then the folder of this Python, where pip puts ninja."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])


def _host_compiler():
    return shutil.which("c++") or shutil.which("g++")


def _key(texts, architecture, toolkit):
    versions = (importlib.metadata.version("apache-tvm-ffi"), *map(str, toolkit.release))
    content = hashlib.sha256(repr((architecture.name, FLAGS, versions)).encode())
    for name, text in texts.items():
        content.update(f"\0{name}\0{len(text)}\0".encode() + text)
    return content.hexdigest()[:16]


@contextlib.contextmanager
def _locked(folder):
    """One builder at a time, be it a process, a thread, or another solution's copy of this file."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "native_build.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(built, source, texts, architecture, toolkit):
    """Compile a copy of the sources, which nobody writes, and put the result in place whole."""
    import tvm_ffi.cpp

    environment = {
        "CUDA_HOME": toolkit.folder,
        "TVM_FFI_CUDA_ARCH_LIST": architecture.name,
        "PATH": _search_path(),
        "CXX": os.environ.get("CXX") or _host_compiler(),
    }
    with tempfile.TemporaryDirectory(prefix="build_", dir=built.parent) as scratch:
        for name, text in texts.items():
            Path(scratch, name).write_bytes(text)
        with _environment(environment):
            path = tvm_ffi.cpp.build(
                built.stem,
                cuda_files=[str(Path(scratch, source))],
                extra_cuda_cflags=list(FLAGS),
                build_directory=str(Path(scratch, "build")),
                backend="cuda",
            )
        os.replace(path, built)


@contextlib.contextmanager
def _environment(values):
    """The binding reads its settings from the environment alone."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
