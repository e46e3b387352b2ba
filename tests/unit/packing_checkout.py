"""A checkout of a few files for the packer: two rooms of one track, a shelf, two definitions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.config import Workspace, load_workspace
from harness.errors import ExitCode, HarnessError, PackingError
from harness.packing import pack

TRACK = "row_track"
DEFINITIONS = {"scale_rows": "scale_rows_h8", "sum_rows": "sum_rows_h8"}
INPUTS, OUTPUTS = ("x", "factor"), ("y", "norm")

WORKSPACE_TOML = """\
[workspace]
name = "tiny"
author = "someone"
team = "someone"

[dataset]
name = "tiny"
repository = "example/tiny"
revision = "0"
"""
ROOM_TOML = """
[rooms.{room}]
definition = "{definition}"
op_type = "rows"
track = "row_track"
smoke = []
smoke_cpu = []

[rooms.{room}.evaluation]
warmup_runs = 1
iterations = 1
trials = 1
atol = 0.01
rtol = 0.01
required_matched_ratio = 1.0
timeout_s = 300
"""
SOLUTION_TOML = """\
[solution]
name = "{room}"
definition = "{definition}"
author = "someone"

[build]
language = "triton"
entry_point = "kernel.py::run"
destination_passing_style = true
"""
KERNEL = """\
from .arguments import require


def run(x, factor, y, norm):
    require(x)
"""
ARGUMENTS = "def require(tensor):\n    pass\n"
NATIVE_IMPORT = """\
try:
    from .native import run_native
except ModuleNotFoundError:  # packed with --route portable
    run_native = None
"""


class Checkout:
    """The checkout's files, to be edited by a test; `room` is the one under test."""

    room = "scale_rows"

    def __init__(self, root: Path) -> None:
        self.root = root
        rooms = [ROOM_TOML.format(room=r, definition=d) for r, d in DEFINITIONS.items()]
        self.write("config.toml", WORKSPACE_TOML + "".join(rooms))
        for room, definition in DEFINITIONS.items():
            document = {
                "name": definition,
                "inputs": {name: {} for name in INPUTS},
                "outputs": {name: {} for name in OUTPUTS},
            }
            self.write(f"definitions/rows/{definition}.json", json.dumps(document))
            text = SOLUTION_TOML.format(room=room, definition=definition)
            self.write(f"solutions/{room}/config.toml", text)
            self.write(f"solutions/{room}/kernel.py", KERNEL)
        self.shelf("arguments.py", ARGUMENTS)

    @property
    def workspace(self) -> Workspace:
        return load_workspace(self.root)

    @property
    def folder(self) -> Path:
        return self.root / "solutions" / self.room

    def write(self, path: str, content: str | bytes) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        return target

    def put(self, name: str, content: str | bytes) -> Path:
        """Write a file of the room."""
        return self.write(f"solutions/{self.room}/{name}", content)

    def shelf(self, name: str, content: str | bytes) -> Path:
        return self.write(f"solutions/common/{name}", content)

    def configure(self, old: str, new: str) -> None:
        """Replace text in the room's config.toml."""
        path = self.folder / "config.toml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def kernel(self, head: str = "", parameters: str = "x, factor, y, norm", body: str = "pass"):
        """Write a kernel.py whose entry starts at the line after `head`."""
        return self.put("kernel.py", f"{head}def run({parameters}):\n    {body}\n")

    def refusal(self, kind: type[HarnessError] = PackingError) -> str:
        """The message with which the room is refused; all refusals exit with 2."""
        with pytest.raises(HarnessError) as caught:
            pack(self.workspace, self.room)
        assert type(caught.value) is kind
        assert caught.value.exit_code == ExitCode.USAGE
        return str(caught.value)
