"""Compiles, without a GPU, every Triton launch that a room would make on given inputs.

    python -m tests.aot FOLDER 90      (child process: reads the arguments and sources in FOLDER)

The child imports the packed sources with the interpreter off, replaces Triton's launch by one
that compiles the bound signature ahead of time for the wanted compute capability, and calls
run() on CPU tensors. Kernel choice, constants and options are therefore the room's own.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARGUMENTS = "arguments.pt"


def launches_compile(room: str, arguments, capability: int, route: str | None = None) -> list[dict]:
    """Compile what `run(*arguments)` launches; arguments are CPU tensors and scalars.

    capability: 90 or 100. Returns one dict a launch: name, registers are not known to Triton
    ahead of time, so `shared_bytes`, `cubin_bytes`, `num_warps`. Raises RuntimeError with the
    compiler's text, or naming a kernel that the compiler gave up on.
    """
    import torch

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
        torch.save(arguments, Path(folder) / ARGUMENTS)  # plain pickle knows no fp8 storage
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
        _refuse_trap(self.__name__, kernel)
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


def _refuse_trap(name: str, kernel) -> None:
    """Refuse a kernel that was compiled to a single trap, as Triton does without a word where
    one needs more tensor memory than sm_100 has.

    Size does not tell: for sm_90 and sm_100 a kernel without a statement has 4.3 and 7.0 kB of
    cubin, that trap 8.5 kB, and a right kernel of a few loads and one store 7.6 and 11.0 kB.
    """
    if "ret;" not in kernel.asm["ptx"]:
        tensor_memory = getattr(kernel.metadata, "tmem_size", None)
        raise RuntimeError(
            f"{name}: expected machine code, got a kernel that never returns (tensor memory: "
            f"{tensor_memory} columns, an SM has 512); choose smaller blocks"
        )


class _NoLaunch:
    """What `warmup` returns here: launching it does nothing."""

    def __getitem__(self, grid):
        return lambda *args: None


def main(folder: str, capability: str) -> None:
    import torch
    from triton.runtime.jit import JITFunction

    done: list[dict] = []
    JITFunction.run = _compiling_run(int(capability), done)
    sys.path.insert(0, folder)
    arguments = torch.load(Path(folder) / ARGUMENTS, weights_only=False)  # our own file
    importlib.import_module("room_under_test.kernel").run(*arguments)
    print(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
