"""The command line judges each room on the device: packed, built, refused or passed, and timed."""

import json
import shutil
from pathlib import Path

import pytest

from harness.cli import evaluate as command
from harness.cli import main
from harness.config import load_workspace
from harness.devices import read_facts
from harness.errors import ExitCode
from harness.packing import pack
from harness.records import TraceLedger, all_latest

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
ROOMS = list(load_workspace().rooms)
FACTOR = 2.0  # at most, between a latency now and the recorded one: same kind of device
LEFT_OUT = (".*", "blob", "traces", "results", "__pycache__", "peers", "docs", "tests")
# Behind a room's own run: its first output holds something else in one element of its last row.
WRONG = """

right = run


def run({parameters}):
    right({parameters})
    {output}.view({output}.shape[0], -1)[-1, 0] += 64
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A copy of this checkout, with its blobs, for the command line to work in."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*LEFT_OUT))
    (ROOT / "blob").mkdir(exist_ok=True)
    (root / "blob").symlink_to(ROOT / "blob")
    workspace = load_workspace(root)
    monkeypatch.setattr(command, "load_workspace", lambda: workspace)
    # Inside a container NVML cannot tell this process's context from a stranger's.
    monkeypatch.setattr("harness.evaluate.alone.require_idle", lambda *_: None)
    return workspace


def evaluate(workspace, room, capsys):
    """Exit code, the ledger's only line and what was printed, of the room's first smoke
    workload."""
    uuid = workspace.room(room).smoke[0]
    code = main(["evaluate", room, "--workloads", uuid, "--commit", "0" * 40])
    shown = capsys.readouterr()
    ledger = TraceLedger.of(workspace.root, read_facts().slug, room)
    (entry,) = ledger.entries()
    assert entry.uuid.startswith(uuid), shown.err
    return code, entry, shown.out


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_passes_as_it_is_recorded(checkout, room, capsys):
    code, entry, out = evaluate(checkout, room, capsys)
    assert (code, entry.status) == (ExitCode.OK, "PASSED"), out
    assert entry.solution_sha256 == pack(load_workspace(), room).sha256, "what is packed here"
    assert entry.evaluation["status"] == "PASSED"
    assert len(entry.measurement["trial_latencies_us"]) == checkout.room(room).evaluation.trials
    assert entry.measurement["activities"], "GPU work that CUPTI saw"
    for record in all_latest(ROOT):
        same = record.solution_sha256 == entry.solution_sha256
        if (record.room, record.device) == (room, entry.device) and same:
            (row,) = [row for row in record.workloads if row.uuid == entry.uuid]
            assert row.status == entry.status
            assert row.latency_us / FACTOR < entry.latency_us < row.latency_us * FACTOR, out


@pytest.mark.parametrize("room", ["gdn_decode", "dsa_indexer"])
def test_a_room_that_is_wrong_in_one_element_is_refused(checkout, room, capsys):
    kernel = checkout.root / "solutions" / room / "kernel.py"
    parameters, output = signature(kernel)
    kernel.write_text(kernel.read_text() + WRONG.format(parameters=parameters, output=output))
    code, entry, out = evaluate(checkout, room, capsys)
    assert (code, entry.status) == (ExitCode.FAILED, "INCORRECT_NUMERICAL"), out
    assert entry.latency_us is None and entry.detail in out


def signature(kernel):
    """The parameters of run as text, and the first output's name, by its definition."""
    workspace = load_workspace()
    room = workspace.room(kernel.parent.name)
    path = ROOT / "definitions" / room.op_type / f"{room.definition}.json"
    definition = json.loads(path.read_text())
    outputs = list(definition["outputs"])
    return ", ".join([*definition["inputs"], *outputs]), outputs[0]
