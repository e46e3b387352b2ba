"""``harness evaluate``: judge and time rooms on the official workloads."""

from __future__ import annotations

import click

from harness.config import load_workspace
from harness.devices import describe_no_gpu, read_facts
from harness.evaluate.plan import PROTOCOLS, Request
from harness.evaluate.progress import SweepProgress
from harness.evaluate.sweep import run_sweep
from harness.timing import TIMERS


@click.command()
@click.argument("rooms", nargs=-1, metavar="[ROOM]...")
@click.option(
    "--workloads",
    multiple=True,
    metavar="SPEC",
    help="smoke, all, or UUID prefixes; may be repeated or comma-separated. "
    "Default: all on a GPU, smoke without one.",
)
@click.option("--protocol", type=click.Choice(PROTOCOLS), default="official", show_default=True)
@click.option("--trials", type=click.IntRange(min=1), help="Instead of the official number.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--resume", is_flag=True, help="Keep verdicts of the same solution, judge and data.")
@click.option("--route", type=click.Choice(["portable"]), help="Leave the native route out.")
@click.option("--dataset", metavar="DIR", help="An official data set, used in place.")
@click.option("--timer", type=click.Choice(TIMERS), help="Default: cupti.")
@click.option("--time-reference", is_flag=True, help="Also time the reference.")
@click.option("--only-trial", type=click.IntRange(min=0), metavar="N", help="Repeat one trial.")
@click.option("--dump-failures", metavar="DIR", help="Keep the inputs of failing trials there.")
@click.option("--commit", metavar="SHA", help="What a record names where the tree has no .git.")
@click.option("--record", is_flag=True, help="Keep a full official sweep as evidence in results/.")
def evaluate(
    rooms: tuple[str, ...],
    workloads: tuple[str, ...],
    protocol: str,
    trials: int | None,
    seed: int,
    resume: bool,
    route: str | None,
    dataset: str | None,
    timer: str | None,
    time_reference: bool,
    only_trial: int | None,
    dump_failures: str | None,
    commit: str | None,
    record: bool,
) -> int:
    """Judge ROOMs (default: all) by flashinfer-bench's own builders and evaluators.

    On a GPU every workload is also timed with CUPTI; without one the Triton interpreter runs the
    kernels and only correctness is judged.
    """
    request = Request(
        rooms=rooms,
        workloads=workloads,
        protocol=protocol,
        trials=trials,
        seed=seed,
        resume=resume,
        route=route,
        dataset=dataset,
        timer=timer,
        time_reference=time_reference,
        only_trial=only_trial,
        dump_folder=dump_failures,
        record=record,
        commit=commit,
    )
    workspace, facts = load_workspace(), read_facts()
    with SweepProgress() as progress:
        if facts.uuid is None:
            progress.note(f"no GPU: {describe_no_gpu()}")
        return int(run_sweep(workspace, request, progress, facts=facts))
