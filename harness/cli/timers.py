"""``harness timers``: one call by CUPTI, by events around a graph, and by NCU."""

from __future__ import annotations

import click

from harness import dataset as sets
from harness.audit.engine import find_target
from harness.audit.timers import run_timers
from harness.config import Workspace, load_workspace
from harness.evaluate.progress import SweepProgress
from harness.profiling.representatives import main_regimes, representative

REGIME = "regime"  # of --workloads: one of each


@click.command()
@click.argument("target", metavar="ROOM|JSON")
@click.option(
    "--workloads",
    multiple=True,
    default=(REGIME,),
    metavar="SPEC",
    help="regime (one of each range of the main axis), smoke, all, or UUID prefixes; may be "
    "repeated or comma-separated. Default: regime.",
)
@click.option("--dataset", metavar="DIR", help="An official data set, used in place.")
def timers(target: str, workloads: tuple[str, ...], dataset: str | None) -> int:
    """Measure a ROOM as packed now, or a packed JSON file, by three timers.

    docs/trust.md says what each measures and how far they may lie apart. Exit code 1: they lie
    farther apart; 4: NCU is not installed or may not read the counters.
    """
    workspace = load_workspace()
    words = [word for spec in workloads for word in spec.split(",")]
    chosen = tuple(
        uuid
        for word in words
        for uuid in (one_of_each_regime(workspace, target, dataset) if word == REGIME else [word])
    )
    with SweepProgress() as progress:
        return int(run_timers(workspace, target, chosen, progress, dataset))


def one_of_each_regime(workspace: Workspace, target: str, dataset: str | None) -> list[str]:
    """The workload in the middle of each range of the axis that splits the room's most."""
    room, _ = find_target(workspace, target)
    rows = sets.read_workloads(sets.locate(workspace, dataset), workspace.room(room))
    return [representative(regime, {}) for regime in main_regimes(rows)]
