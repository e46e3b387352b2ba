"""``harness replay``: many seeded trials of a room, and what they say about rare failures."""

from __future__ import annotations

import click

from harness.config import Workspace, load_workspace
from harness.errors import ExitCode, UsageError
from harness.evaluate.progress import SweepProgress
from harness.records.strict_json import MAX_SEED
from harness.replay.engine import BATCH_TRIALS, MAX_TRIALS, ReplayRequest, run_replay
from harness.replay.record import load_replay, replay_path


@click.command()
@click.argument("room")
@click.option(
    "--workloads",
    multiple=True,
    metavar="SPEC",
    help="smoke, all, or UUID prefixes; may be repeated or comma-separated. "
    "Default: all on a GPU, smoke without one.",
)
@click.option(
    "--trials",
    type=click.IntRange(1, MAX_TRIALS),
    default=BATCH_TRIALS,
    show_default=True,
    help="Of each workload, each with fresh inputs.",
)
@click.option("--seed", type=click.IntRange(0, MAX_SEED), default=0, show_default=True)
@click.option(
    "--trial",
    type=click.IntRange(0, MAX_TRIALS - 1),
    metavar="K",
    help="Only trial K, shown and not kept.",
)
@click.option("--resume", is_flag=True, help="Keep trials of the same solution, judge and machine.")
@click.option("--record", is_flag=True, help="Keep the replay and its figure in results/replay.")
@click.option("--draw", is_flag=True, help="Draw what is recorded anew and run nothing; no GPU.")
@click.option("--exit-zero", is_flag=True, help="0 also where trials are wrong.")
@click.option(
    "--limit-s",
    type=click.FloatRange(min=0.0),
    metavar="S",
    help="Begin no batch after S seconds; what is missing makes the exit code 6.",
)
@click.option("--dataset", metavar="DIR", help="An official data set, used in place.")
@click.option("--commit", metavar="SHA", help="What a record names where the tree has no .git.")
def replay(
    room: str,
    workloads: tuple[str, ...],
    trials: int,
    seed: int,
    trial: int | None,
    resume: bool,
    record: bool,
    draw: bool,
    exit_zero: bool,
    limit_s: float | None,
    dataset: str | None,
    commit: str | None,
) -> int:
    """Judge ROOM by the official rule on many trials of fresh inputs.

    Prints each workload's wrong trials with their seeds, their rate with its 95 % interval, what
    the official trials would show of it and, for dsa_indexer, how near a tie it came. Exit
    code 1: a trial was wrong; 6: trials are missing, --resume goes on.
    """
    workspace = load_workspace()
    if draw:
        _refuse_other_options(click.get_current_context())
        _draw(workspace, workspace.room(room).name)
        return ExitCode.OK
    request = ReplayRequest(
        room=room,
        workloads=workloads,
        trials=trials,
        seed=seed,
        only_trial=trial,
        resume=resume,
        record=record,
        exit_zero=exit_zero,
        limit_s=limit_s,
        dataset=dataset,
        commit=commit,
    )
    with SweepProgress() as progress:
        code = run_replay(workspace, request, progress)
    if record:
        _draw(workspace, request.room)
    return int(code)


def _refuse_other_options(context: click.Context) -> None:
    """Raise UsageError for whatever stands beside ROOM and --draw on the command line."""
    given = click.core.ParameterSource.COMMANDLINE
    others = [
        f"--{name.replace('_', '-')}"
        for name in context.params
        if name not in ("room", "draw") and context.get_parameter_source(name) is given
    ]
    if others:
        raise UsageError(f"--draw runs nothing: expected it alone, got {', '.join(others)} as well")


def _draw(workspace: Workspace, room: str) -> None:
    """Write the figure of a room's record. Raises RecordError where there is none."""
    from harness.report.replays import keep_figure  # loads matplotlib

    path = keep_figure(load_replay(replay_path(workspace.root, room)), workspace.root)
    click.echo(f"{room}: drawn in {path.relative_to(workspace.root)}", err=True)
