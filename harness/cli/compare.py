"""``harness compare``: two sides, or one and all of its peers, in turns on one GPU."""

from __future__ import annotations

import click

from harness.compare.engine import run_compare
from harness.compare.plan import DEFAULT_ITERATIONS, MIN_RECORD_ROUNDS, CompareRequest
from harness.compare.record import MIN_ROUNDS
from harness.compare.statistics import DEFAULT_MARGIN, DEFAULT_ROUNDS
from harness.config import load_workspace
from harness.evaluate.plan import MOST_TRIALS
from harness.evaluate.progress import SweepProgress
from harness.records.strict_json import MAX_SEED


@click.command()
@click.argument("a")
@click.argument("b")
@click.argument("rooms", nargs=-1, metavar="[ROOM]...")
@click.option(
    "--workloads",
    multiple=True,
    metavar="SPEC",
    help="smoke, all, or UUID prefixes; may be repeated or comma-separated. Default: all.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=MIN_ROUNDS),
    help="How often the sides take turns on a workload. Default: the first multiple of the number "
    f"of processes from {DEFAULT_ROUNDS} on.",
)
@click.option(
    "--iterations",
    type=click.IntRange(min=1),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    help="Timed calls of one turn.",
)
@click.option(
    "--trials",
    type=click.IntRange(1, MOST_TRIALS),
    help="Correctness trials. Default: the official number.",
)
@click.option("--seed", type=click.IntRange(0, MAX_SEED), default=0, show_default=True)
@click.option(
    "--margin",
    type=click.FloatRange(min=0.0, max=1.0, max_open=True),
    default=DEFAULT_MARGIN,
    show_default=True,
    help="The fraction of latency that makes no difference.",
)
@click.option("--resume", is_flag=True, help="Keep workloads of the same sides, judge and machine.")
@click.option(
    "--record",
    is_flag=True,
    help="Keep a full official comparison in results/compare. It needs the default iterations and "
    f"at least {MIN_RECORD_ROUNDS} rounds.",
)
@click.option("--commit", metavar="SHA", help="What a record names where the tree has no .git.")
@click.option("--exit-zero", is_flag=True, help="0 also where A fails or is slower.")
@click.option("--dataset", metavar="DIR", help="An official data set, used in place.")
def compare(
    a: str,
    b: str,
    rooms: tuple[str, ...],
    workloads: tuple[str, ...],
    rounds: int | None,
    iterations: int,
    trials: int | None,
    seed: int,
    margin: float,
    resume: bool,
    record: bool,
    commit: str | None,
    exit_zero: bool,
    dataset: str | None,
) -> int:
    """Measure A against B in turns on one GPU, workload by workload.

    A and B: "ours" or a room's name (as packed now), a library of peers/ by its short name, a
    packed JSON file, or a git revision; B also several libraries, joined by commas, or "peers",
    all of a room's. ROOMs: by default the one that a side names, else all that have the
    libraries. A is measured twice, in two processes, to show what two equal things differ by.

    Exit code 1: A fails a workload or is SLOW against B in one; 4: a room has no B that passes a
    workload, or none is installed as pinned; 6: the machine failed, or somebody else used the GPU.
    """
    request = CompareRequest(
        a=a,
        b=b,
        rooms=rooms,
        workloads=workloads,
        rounds=rounds,
        iterations=iterations,
        trials=trials,
        seed=seed,
        margin=margin,
        resume=resume,
        record=record,
        commit=commit,
        exit_zero=exit_zero,
        dataset=dataset,
    )
    with SweepProgress() as progress:
        return int(run_compare(load_workspace(), request, progress))
