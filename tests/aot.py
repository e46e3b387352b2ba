"""Compiles, without a GPU, every Triton launch that a room would make on given inputs.

    python -m tests.aot gdn_decode 90      (child process: reads a pickled list of inputs)

The child imports the packed sources with the interpreter off, replaces Triton's launch by one
that compiles the bound signature ahead of time for the wanted compute capability, and calls
run() on CPU tensors. Kernel choice, constants and options are therefore the room's own.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path


def launches_compile(room: str, arguments, capability: int, route: str | None = None) -> list[dict]:
    """Compile what `run(*arguments)` launches; arguments are CPU tensors and scalars.

    capability: 90 or 100. Returns one dict a launch: name, registers are not known to Triton
    ahead of time, so `shared_bytes`, `cubin_bytes`, `num_warps`. Raises RuntimeError with the
    compiler's text.
    """
    from harness.config import load_workspace
    from harness.packing import pack

    workspace = load_workspace()
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "room_under_test"
        package.mkdir()
        for source in json.loads(pack(workspace, room, route).text)["sources"]:
            path = package / source["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source["content"], encoding="utf-8")
        (package / "__init__.py").touch()
        request = Path(folder) / "arguments.pickle"
        request.write_bytes(pickle.dumps(arguments))
        environment = {**os.environ, "PYTHONPATH": str(workspace.root)}
        environment.pop("TRITON_INTERPRET", None)
        child = subprocess.run(
            [sys.executable, "-m", "tests.aot", folder, str(capability)],
            env=environment,
            cwd=workspace.root,
            capture_output=True,
            text=True,
            check=False,
        )
    if child.returncode:
        raise RuntimeError(f"{room} does not compile for sm_{capability}:\n{child.stderr[-4000:]}")
    return json.loads(child.stdout.splitlines()[-1])


def _specialize(value):
    """Triton's type string of one runtime argument, as a launch would infer it."""
    import torch

    names = {
        torch.float32: "fp32",
        torch.bfloat16: "bf16",
        torch.float16: "fp16",
        torch.float8_e4m3fn: "fp8e4nv",
        torch.int64: "i64",
        torch.int32: "i32",
        torch.int8: "i8",
        torch.uint8: "u8",
        torch.bool: "i1",
    }
    if isinstance(value, torch.Tensor):
        return "*" + names[value.dtype]
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    if isinstance(value, float):
        return "fp32"
    raise TypeError(f"no Triton type for {value!r}")


def _compiling_run(capability: int, done: list[dict]):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    options_known = {"num_warps", "num_stages", "num_ctas", "maxnreg"}

    def run(self, *args, grid, warmup, **kwargs):
        options = {key: value for key, value in kwargs.items() if key in options_known}
        given = {key: value for key, value in kwargs.items() if key in self.arg_names}
        unknown = set(kwargs) - set(options) - set(given) - {"launch_pdl"}
        if unknown:
            raise TypeError(f"{self.__name__}: unknown launch options {sorted(unknown)}")
        bound = {**dict(zip(self.arg_names, args, strict=False)), **given}
        signature, constants, attributes = {}, {}, {}
        for index, parameter in enumerate(self.params):
            value = bound.get(parameter.name, parameter.default)
            if parameter.is_constexpr or value is None:
                signature[parameter.name] = "constexpr"
                constants[(index,)] = value
            elif type(value) is int and value == 1:
                signature[parameter.name] = "constexpr"
                constants[(index,)] = 1
            else:
                signature[parameter.name] = _specialize(value)
                if hasattr(value, "data_ptr") and value.data_ptr() % 16 == 0:
                    attributes[(index,)] = [["tt.divisibility", 16]]
        source = ASTSource(self, signature, constants, attributes)
        kernel = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        done.append(
            {
                "name": self.__name__,
                "shared_bytes": kernel.metadata.shared,
                "num_warps": kernel.metadata.num_warps,
                "cubin_bytes": len(kernel.asm["cubin"]),
                "global_scratch_bytes": kernel.metadata.global_scratch_size,
            }
        )
        return _NoLaunch()

    return run


class _NoLaunch:
    """What `warmup` returns here: launching it does nothing."""

    def __getitem__(self, grid):
        return lambda *args: None


def main(folder: str, capability: str) -> None:
    from triton.runtime.jit import JITFunction

    done: list[dict] = []
    JITFunction.run = _compiling_run(int(capability), done)
    sys.path.insert(0, folder)
    arguments = pickle.loads((Path(folder) / "arguments.pickle").read_bytes())
    importlib.import_module("room_under_test.kernel").run(*arguments)
    print(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
