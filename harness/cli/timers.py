"""``harness timers``: one call by CUPTI, by events around a graph, and by NCU."""

from __future__ import annotations

import shlex

import click

from harness.audit.engine import find_target
from harness.audit.timers import TimersRequest, run_timers
from harness.config import load_workspace
from harness.devices import read_facts
from harness.evaluate.progress import SweepProgress
from harness.profiling.engine import REGIME, ProfileRequest, choose_workloads
from harness.profiling.representatives import describe_regime, main_regimes


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
@click.option("--commit", metavar="SHA", help="What a record names where the tree has no .git.")
@click.option("--record", is_flag=True, help="Keep each workload in results/timers.")
@click.option(
    "--resume",
    is_flag=True,
    help="Keep complete rows of the same content, device, driver, libraries and commit: measured "
    "by NCU, too, or where the host denies its counters.",
)
def timers(
    target: str,
    workloads: tuple[str, ...],
    dataset: str | None,
    commit: str | None,
    record: bool,
    resume: bool,
) -> int:
    """Measure a ROOM as packed now, or a packed JSON file, by three timers.

    docs/trust.md says what each measures and how far they may lie apart. Exit code 1: they lie
    farther apart; 4: NCU is not installed or may not read the counters.
    """
    workspace = load_workspace()
    room, _ = find_target(workspace, target)
    facts = read_facts()
    wanted = ProfileRequest(room, workloads, dataset=dataset)
    chosen, official = choose_workloads(workspace, wanted, facts.slug)
    found = main_regimes(official)
    regimes = {uuid: describe_regime(one) for one in found for uuid in one.uuids}
    words = "" if workloads == (REGIME,) else f" --workloads {','.join(workloads)}"
    words += "" if dataset is None else f" --dataset {shlex.quote(dataset)}"
    name = f"python -m harness timers {target}{words} --record"
    request = TimersRequest(target, chosen, dataset, commit, record, resume, name, regimes)
    with SweepProgress() as progress:
        return int(run_timers(workspace, request, progress, facts))
