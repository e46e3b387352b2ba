"""Each peer whose library is installed as pinned, judged as the official evaluator judges it.

One smoke workload of each room, one trial, in a worker process of its own. The first run compiles:
allow minutes for each.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace

import pytest

from harness import dataset
from harness.config import load_workspace
from harness.devices import read_facts
from harness.evaluate.plan import Request, choose_workloads, plan_room
from harness.evaluate.pool import Pool
from harness.evaluate.protocol import Status
from harness.packing import list_peers, pack_peer

pytestmark = pytest.mark.gpu

WORKSPACE = load_workspace()
PEERS = [(room, library) for room in WORKSPACE.rooms for library in list_peers(WORKSPACE, room)]
TIMEOUT_S = 600
NEEDS_A_BUILD = "is not compiled here"  # FlashInfer's MoE for sm_90, tens of minutes of nvcc


def skip_unless_installed(package, pinned):
    try:
        installed = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed; pinned {pinned}")
    if pinned not in (installed, installed.partition("+")[0]):
        pytest.skip(f"{package} {installed} is installed; pinned {pinned}")


@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize(("room", "library"), PEERS, ids=map("/".join, PEERS))
def test_passes_the_official_rule(room, library):
    peer = pack_peer(WORKSPACE, room, library)
    for package, pinned in ((peer.package, peer.pinned), *peer.requires):
        skip_unless_installed(package, pinned)
    facts = read_facts()
    prefix = WORKSPACE.room(room).smoke[-1]
    request = Request(rooms=(room,), workloads=(prefix,), trials=1)
    root = dataset.locate(WORKSPACE, None)
    (rows,) = choose_workloads(WORKSPACE, request, root, on_cpu=False).values()
    dataset.ensure_blobs(root, WORKSPACE.room(room), list(rows))
    plan = plan_room(WORKSPACE, room, peer.packed, rows, request, root, facts)
    job = replace(plan.job(rows[0], "cuda:0", request), keep=True)
    job = replace(job, settings=replace(job.settings, timeout_s=TIMEOUT_S))
    with Pool("cuda:0", WORKSPACE.root) as pool:
        outcome = pool.run(job)
    if NEEDS_A_BUILD in outcome.detail:
        pytest.skip(outcome.detail)
    assert outcome.status is Status.PASSED, f"{outcome.detail}\n{outcome.log}"
