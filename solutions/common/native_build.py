"""Compile and load a room's CUDA sources, at their first use, through apache-tvm-ffi.

The sources lie beside this file. What is built stays on disk under TVM_FFI_CACHE_DIR, keyed by
the content of every source and the architecture: the library's own key is the names of the files,
which would take an edited header for the old one.
"""

import contextlib
import functools
import hashlib
import importlib.util
import os
import shutil
import threading
from pathlib import Path

# Compute capability to the architecture whose instructions the sources may use. The suffix is
# part of it: wgmma exists on sm_90a and not on sm_90.
ARCHITECTURES = {(9, 0): "9.0a", (10, 0): "10.0a", (10, 3): "10.3a"}
_BUILDING = threading.Lock()  # the library reads toolkit and architecture from the environment


@functools.cache
def find_cuda_home():
    """The folder of the CUDA toolkit, or None where there is no nvcc."""
    on_path = shutil.which("nvcc")
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders.append(on_path and Path(on_path).resolve().parent.parent)
    return next((str(f) for f in folders if f and Path(f, "bin", "nvcc").is_file()), None)


@functools.cache
def can_build():
    """Whether this machine has what a build needs: nvcc, ninja and apache-tvm-ffi."""
    has_binding = importlib.util.find_spec("tvm_ffi") is not None
    return has_binding and find_cuda_home() is not None and shutil.which("ninja") is not None


@functools.cache
def load_native(source, capability):
    """The module built from a source file such as "attend.cu" for a compute capability.

    capability: (major, minor), a key of ARCHITECTURES. Raises RuntimeError with the compiler's
    text where the source does not compile.
    """
    import tvm_ffi.cpp

    architecture, folder = ARCHITECTURES[capability], Path(__file__).parent
    content = hashlib.sha256(architecture.encode())
    for path in sorted([*folder.glob("*.cu"), *folder.glob("*.cuh")]):
        content.update(path.name.encode() + b"\0" + path.read_bytes())
    cache = Path(os.environ.get("TVM_FFI_CACHE_DIR", "~/.cache/tvm-ffi")).expanduser()
    name = f"{Path(source).stem}_{content.hexdigest()[:16]}"
    with _BUILDING, _environment(CUDA_HOME=find_cuda_home(), TVM_FFI_CUDA_ARCH_LIST=architecture):
        return tvm_ffi.cpp.load(
            name,
            cuda_files=[str(folder / source)],
            extra_cuda_cflags=["-O3"],
            build_directory=str(cache / name),
        )


@contextlib.contextmanager
def _environment(**values):
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
