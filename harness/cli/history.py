"""``harness history`` and ``harness explain``: what a search tried, decided and remembers."""

from __future__ import annotations

from pathlib import Path

import click

from harness.config import load_workspace
from harness.controller.archive import Archive
from harness.errors import ExitCode, UsageError
from harness.files import write_atomically
from harness.search.history import describe_history, explain


@click.command()
@click.argument("rooms", nargs=-1, metavar="[ROOM]...")
@click.option(
    "--figures", metavar="DIR", help="Draw each room's trajectory and regimes there, as SVG files."
)
def history(rooms: tuple[str, ...], figures: str | None) -> int:
    """List the rounds of every search, or of these ROOMs, from results/search."""
    workspace = load_workspace()
    if figures == "":
        raise UsageError("--figures: expected a folder, got an empty name; . is this folder")
    names = [workspace.room(name).name for name in dict.fromkeys(rooms)]
    for line in describe_history(workspace.root, names):
        click.echo(line)
    if figures is not None:
        from harness.report.searches import draw_search
        from harness.report.svg import standalone
        from harness.search.trajectory import read_search

        for name in names or list(workspace.rooms):
            for figure in draw_search(read_search(Archive(workspace.root, name))):
                path = Path(figures) / f"{figure.name}.svg"
                write_atomically(path, standalone(figure))
                click.echo(f"{path}: {figure.caption}")
    return int(ExitCode.OK)


@click.command(name="explain")
@click.argument("attempt")
def explain_command(attempt: str) -> int:
    """Everything about ATTEMPT: a round such as r001/003, or a candidate by name or hash.

    `python -m harness history` lists rounds; a round names its candidates. Where several rooms were
    searched, write gdn_decode/r001/003.
    """
    for line in explain(load_workspace().root, attempt):
        click.echo(line)
    return int(ExitCode.OK)
