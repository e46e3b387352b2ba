"""flashinfer-bench's build cache under packed rooms: content decides, not time or company."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from flashinfer_bench.compile import BuilderRegistry
from flashinfer_bench.data import Definition, Solution

from harness.config import load_workspace
from harness.packing import pack
from tests.small_checkout import definition_file
from tests.unit.packing_checkout import DEFINITIONS, INPUTS, OUTPUTS, Checkout

HOUR_S = 3600
PROCESSES = 8


def official_definition(name):
    """A definition with the packer checkout's signature, one row each."""
    row = {"shape": ["n"], "dtype": "float32"}
    return Definition(
        name=name,
        op_type="rows",
        axes={"n": {"type": "const", "value": 1}},
        inputs=dict.fromkeys(INPUTS, row),
        outputs=dict.fromkeys(OUTPUTS, row),
        reference="def run(x, factor):\n    return x, x\n",
    )


def test_one_byte_of_the_shelf_with_an_older_time_is_another_build(tmp_path, monkeypatch):
    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "builds"))
    monkeypatch.setattr(BuilderRegistry, "_instance", None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    checkout = Checkout(tmp_path / "checkout")
    checkout.kernel("from .arguments import VALUE\n\n\n", body="y.fill_(VALUE)")
    definition = official_definition(DEFINITIONS[checkout.room])

    def pack_and_run():
        packed = pack(checkout.workspace, checkout.room)
        solution = Solution.model_validate_json(packed.text)
        runnable = BuilderRegistry.get_instance().build(definition, solution)
        y = torch.zeros(1)
        runnable(torch.ones(1), torch.ones(1), y, torch.zeros(1))
        return packed.sha256, packed.name, solution.hash(), y.item()

    shelf = checkout.shelf("arguments.py", "VALUE = 1\n")
    before = pack_and_run()
    seconds = shelf.stat().st_mtime - HOUR_S
    checkout.shelf("arguments.py", "VALUE = 2\n")
    os.utime(shelf, (seconds, seconds))
    after = pack_and_run()
    assert before[3] == 1.0 and after[3] == 2.0
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert len(list((tmp_path / "builds" / "triton").iterdir())) == 2

    checkout.shelf("arguments.py", "VALUE = 1\n")
    assert pack_and_run() == before


# Forked after the imports: eight interpreters would spend a minute on loading torch.
BUILD_AT_ONCE = textwrap.dedent(
    """
    import os, sys, traceback
    from pathlib import Path
    from flashinfer_bench.compile import BuilderRegistry
    from flashinfer_bench.data import Definition, Solution

    definition = Definition.model_validate_json(Path(sys.argv[1]).read_text())
    solution = Solution.model_validate_json(Path(sys.argv[2]).read_text())
    gate_read, gate_write = os.pipe()
    children = []
    for _ in range(int(sys.argv[3])):
        child = os.fork()
        if child == 0:
            os.close(gate_write)
            os.read(gate_read, 1)  # until the parent closes its end
            try:
                built = BuilderRegistry.get_instance().build(definition, solution)
                module = sys.modules[built._callable.__module__]
                assert "@triton.jit" in Path(module.__file__).read_text()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    os.close(gate_write)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(codes)
    sys.exit(any(codes))
    """
)


@pytest.mark.slow
def test_processes_that_build_the_same_room_at_once_all_succeed(tmp_path):
    workspace = load_workspace()
    packed = tmp_path / "packed.json"
    packed.write_text(pack(workspace, "gdn_decode").text)
    builds = tmp_path / "builds"
    arguments = [str(definition_file(workspace, "gdn_decode")), str(packed), str(PROCESSES)]
    child = subprocess.run(
        [sys.executable, "-c", BUILD_AT_ONCE, *arguments],
        env={**os.environ, "FIB_CACHE_PATH": str(builds), "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout) == [0] * PROCESSES
    (package,) = (builds / "triton").iterdir()
    written = {path.name: path.read_text() for path in Path(package).rglob("*.py")}
    sources = json.loads(packed.read_text())["sources"]
    assert written == {source["path"]: source["content"] for source in sources}
