"""``harness timers``: one call by CUPTI, by events around a graph, and by NCU."""

from __future__ import annotations

import click

from harness.audit.timers import run_timers
from harness.config import load_workspace
from harness.evaluate.progress import SweepProgress


@click.command()
@click.argument("target", metavar="ROOM|JSON")
@click.option(
    "--workloads",
    multiple=True,
    metavar="SPEC",
    help="smoke, all, or UUID prefixes; may be repeated or comma-separated. Default: smoke.",
)
@click.option("--dataset", metavar="DIR", help="An official data set, used in place.")
def timers(target: str, workloads: tuple[str, ...], dataset: str | None) -> int:
    """Measure a ROOM as packed now, or a packed JSON file, by three timers.

    docs/trust.md says what each measures and how far they may lie apart. Exit code 1: they lie
    farther apart; 4: NCU is not installed or may not read the counters.
    """
    with SweepProgress() as progress:
        return int(run_timers(load_workspace(), target, workloads, progress, dataset))
