"""``harness gate``, ``sweep`` and ``promote``: one candidate, step by step to one decision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from harness.config import load_workspace
from harness.controller.archive import ATTEMPTS, DECISIONS, Archive
from harness.controller.decision import GATE, PROMOTE, REPLAY, SWEEP, Result, objection
from harness.errors import ExitCode, UsageError
from harness.evaluate.progress import SweepProgress
from harness.files import expand_home
from harness.records.strict_json import MAX_SEED, Fields
from harness.search.folder import FolderProposer
from harness.search.live import LiveEvaluator
from harness.search.loop import run_search, settings_to_resume
from harness.search.planning import Search, Settings
from harness.search.session import open_search


def _options(command: Callable[..., int]) -> Callable[..., int]:
    """What the three commands share."""
    for decorate in reversed(
        (
            click.argument("room"),
            click.argument("candidate", metavar="CANDIDATE"),
            click.option("--seed", type=click.IntRange(0, MAX_SEED), default=0, show_default=True),
            click.option("--resume", is_flag=True, help="Go on where a killed run stopped."),
            click.option("--abandon", is_flag=True, help="Give an unfinished run of the room up."),
            click.option("--commit", metavar="SHA", help="What a record names without .git."),
        )
    ):
        command = decorate(command)
    return command


@click.command()
@_options
def gate(**options: Any) -> int:
    """Measure CANDIDATE beside ROOM as it stands, on one workload of each regime.

    CANDIDATE: a packed .json or a .patch. Exit code 1: it fails a workload, or is slower.
    """
    return _judge(GATE, **options)


@click.command()
@_options
def sweep(**options: Any) -> int:
    """Gate CANDIDATE, then measure it beside ROOM on all workloads.

    CANDIDATE: a packed .json or a .patch. Exit code 1: something stands against its promotion.
    """
    return _judge(SWEEP, **options)


@click.command()
@_options
def promote(**options: Any) -> int:
    """Gate, sweep and confirm CANDIDATE; where nothing stands against it, it becomes ROOM.

    CANDIDATE: a packed .json or a .patch. Exit code 1: it was archived or rejected, and the tree is
    what it was.
    """
    return _judge(REPLAY, **options)


def _judge(
    until: str,
    room: str,
    candidate: str,
    seed: int,
    resume: bool,
    abandon: bool,
    commit: str | None,
) -> int:
    workspace = load_workspace()
    if resume and abandon:
        raise UsageError("--resume goes on with a run, --abandon gives it up; choose one")
    path = expand_home(candidate)
    if Path(path).is_dir():
        raise UsageError(f"{path}: expected one candidate; `tune --folder` takes a folder")
    proposer = FolderProposer(workspace, path)
    name = workspace.room(room).name
    settings = Settings(rounds=1, candidates=1, islands=1, seed=seed, until=until)
    if resume:
        settings = settings_to_resume(Archive(workspace.root, name), until)
    with (
        SweepProgress() as progress,
        LiveEvaluator(workspace, name, progress, seed=settings.seed, commit=commit) as evaluator,
        open_search(
            workspace, room, settings, proposer, evaluator, evaluator.facts.slug, progress.note
        ) as search,
    ):
        position = run_search(search, resume=resume, abandon=abandon)
        return int(exit_code(search, f"{position.run}/000", until))


def exit_code(search: Search, key: str, until: str) -> ExitCode:
    """Of a round that was asked to go as far as `until`."""
    decision = search.archive.lines(DECISIONS)[key]
    if decision["is_lost"]:
        return ExitCode.INCOMPLETE
    if decision["label"] == PROMOTE:
        return ExitCode.OK
    line = search.archive.lines(ATTEMPTS).get(f"{key}/{until}", {})
    values = line.get("results", {}).get(decision["candidate"])
    if values is None:
        return ExitCode.FAILED
    against = objection(until, Result.from_json(Fields(key, until, values)))
    return ExitCode.OK if against is None else ExitCode.FAILED
