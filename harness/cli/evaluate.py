"""``harness evaluate``: judge and time rooms on the official workloads."""

from __future__ import annotations

import click

from harness.config import Workspace, load_workspace
from harness.devices import describe_no_gpu, read_facts
from harness.errors import ExitCode
from harness.evaluate.plan import (
    FAST_ITERATIONS,
    FAST_TRIALS,
    FAST_WARMUP_RUNS,
    MOST_TRIALS,
    PROTOCOLS,
    Request,
)
from harness.evaluate.progress import SweepProgress
from harness.evaluate.sweep import run_sweep, sweep_on
from harness.records.strict_json import MAX_SEED
from harness.replay.suspicion import replay_notes
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
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    default="official",
    show_default=True,
    help=f"fast: {FAST_WARMUP_RUNS} + {FAST_ITERATIONS} calls and {FAST_TRIALS} trial of each "
    "workload, for a first look; no evidence.",
)
@click.option(
    "--trials", type=click.IntRange(1, MOST_TRIALS), help="Instead of the official number."
)
@click.option("--seed", type=click.IntRange(0, MAX_SEED), default=0, show_default=True)
@click.option("--resume", is_flag=True, help="Keep verdicts of the same solution, judge and data.")
@click.option("--route", type=click.Choice(["portable"]), help="Leave the native route out.")
@click.option("--dataset", metavar="DIR", help="An official data set, used in place.")
@click.option("--timer", type=click.Choice(TIMERS), help="Default: cupti.")
@click.option("--time-reference", is_flag=True, help="Also time the reference.")
@click.option(
    "--only-trial",
    type=click.IntRange(min=0),
    metavar="N",
    help="One trial alone, also one beyond their number: its seed depends on no other.",
)
@click.option("--dump-failures", metavar="DIR", help="Keep the inputs of failing trials there.")
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="ray: on every GPU of a cluster (docs/scale.md).",
)
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
    engine: str,
    commit: str | None,
    record: bool,
) -> int:
    """Judge ROOMs (default: the contest's) by flashinfer-bench's own builders and evaluators.

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
    workspace = load_workspace()
    if engine == "ray":
        from harness.cluster.engine import RayEngine

        with SweepProgress() as progress:
            code = sweep_on(RayEngine(workspace, progress), workspace, request, progress)
            return _note_replays(code, workspace, request, progress)
    facts = read_facts()
    with SweepProgress() as progress:
        if facts.uuid is None:
            progress.note(f"no GPU: {describe_no_gpu()}")
        code = run_sweep(workspace, request, progress, facts=facts)
        return _note_replays(code, workspace, request, progress)


def _note_replays(
    code: ExitCode, workspace: Workspace, request: Request, progress: SweepProgress
) -> int:
    """The exit code, behind what the rooms' replays say against them."""
    for note in replay_notes(workspace, request.rooms, request.route):
        progress.note(note)
    return int(code)
