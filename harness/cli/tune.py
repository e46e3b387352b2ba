"""``harness tune``: rounds of candidates until the supervisor stops them."""

from __future__ import annotations

from pathlib import Path

import click

from harness.config import Workspace, load_workspace
from harness.controller.archive import Archive
from harness.devices import read_facts
from harness.errors import ExitCode, UsageError
from harness.evaluate.progress import SweepProgress
from harness.records.strict_json import MAX_SEED
from harness.search.command import DEFAULT_TIMEOUT_S, CommandProposer
from harness.search.folder import FolderProposer
from harness.search.live import LiveEvaluator
from harness.search.loop import run_search, settings_to_resume
from harness.search.planning import Settings
from harness.search.proposers import Proposer
from harness.search.session import open_search, parameter_proposer

DEFAULTS = Settings()


@click.command()
@click.argument("room")
@click.option(
    "--command", metavar="PROGRAM", help="Candidates from a program (docs/controller.md)."
)
@click.option(
    "--command-limit-s",
    type=click.FloatRange(min=1.0),
    default=DEFAULT_TIMEOUT_S,
    show_default=True,
    help="For one answer of the program.",
)
@click.option(
    "--folder", metavar="DIR", help="Candidates from a folder: packed .json files and .patch files."
)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=DEFAULTS.rounds, show_default=True,
    help="At most.",
)  # fmt: skip
@click.option(
    "--candidates",
    type=click.IntRange(min=1),
    default=DEFAULTS.candidates,
    show_default=True,
    help="New ones a round, all measured at once, each in a worker of its own.",
)
@click.option(
    "--sweeps",
    type=click.IntRange(min=1),
    default=DEFAULTS.sweeps,
    show_default=True,
    help="The most candidates of a round that all workloads are measured for.",
)
@click.option("--islands", type=click.IntRange(min=1), default=DEFAULTS.islands, show_default=True)
@click.option("--seed", type=click.IntRange(0, MAX_SEED), default=DEFAULTS.seed, show_default=True)
@click.option(
    "--budget-s",
    type=click.FloatRange(min=0.0),
    metavar="S",
    help="Begin no round after S seconds of measuring.",
)
@click.option("--resume", is_flag=True, help="Go on with the room's unfinished run.")
@click.option("--abandon", is_flag=True, help="Give an unfinished run up and start another.")
@click.option("--commit", metavar="SHA", help="What a record names where the tree has no .git.")
def tune(
    room: str,
    command: str | None,
    command_limit_s: float,
    folder: str | None,
    rounds: int,
    candidates: int,
    sweeps: int,
    islands: int,
    seed: int,
    budget_s: float | None,
    resume: bool,
    abandon: bool,
    commit: str | None,
) -> int:
    """Search for a faster ROOM on this machine's GPU.

    By default candidates are the room's declared constants, changed within their bounds
    (solutions/ROOM/tuning.toml). A promoted candidate replaces the room's sources; everything that
    was tried is kept in results/search/ROOM. Exit code 0: the run ended, whatever it found; 6: the
    machine failed, --resume goes on.
    """
    workspace = load_workspace()
    if resume and abandon:
        raise UsageError("tune: --resume goes on with a run, --abandon gives it up; choose one")
    facts = read_facts()
    proposer = _proposer(
        workspace, workspace.room(room).name, command, command_limit_s, folder, facts.capability
    )
    settings = Settings(rounds, candidates, sweeps, islands, seed, budget_s)
    if resume:
        settings = settings_to_resume(Archive(workspace.root, room), settings.until)
    with (
        SweepProgress() as progress,
        LiveEvaluator(
            workspace, room, progress, seed=settings.seed, commit=commit, facts=facts
        ) as evaluator,
        open_search(
            workspace, room, settings, proposer, evaluator, evaluator.facts.slug, progress.note
        ) as search,
    ):
        run_search(search, resume=resume, abandon=abandon)
    return int(ExitCode.OK)


def _proposer(
    workspace: Workspace,
    room: str,
    command: str | None,
    limit_s: float,
    folder: str | None,
    capability: tuple[int, int] | None,
) -> Proposer:
    if command is not None and folder is not None:
        raise UsageError("tune: --command and --folder both propose; choose one")
    if command is not None:
        return CommandProposer(workspace, command, limit_s)
    if folder is not None:
        return FolderProposer(workspace, Path(folder))
    return parameter_proposer(workspace, room, capability)
