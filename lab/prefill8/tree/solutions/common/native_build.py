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
import os
import tempfile
from pathlib import Path

from .toolkit import ARCHITECTURES, find_toolkit, host_compiler, search_path

FLAGS = ("-O3",)


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
    cache = Path(os.environ.get("TVM_FFI_CACHE_DIR") or "~/.cache/tvm-ffi").expanduser()
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
        "PATH": search_path(),
        "CXX": os.environ.get("CXX") or host_compiler(),
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
