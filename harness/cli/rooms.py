"""``harness new`` starts a room, ``harness clean`` removes what can be made again."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.caches import Cache, find_caches, format_age, format_size
from harness.cli.room_skeleton import CONFIG_TABLE, skeleton
from harness.config import Workspace, load_workspace
from harness.errors import ExitCode, HarnessError, UsageError


@click.command()
@click.argument("room")
@click.option("--definition", required=True, metavar="NAME", help="The definition it answers.")
def new(room: str, definition: str) -> int:
    """Start ROOM: config.toml, README.md, a kernel.py that checks its arguments, a test, a page.

    The definition must lie in definitions/. The kernel itself is yours to write: until then the
    entry checks its arguments and raises an error that says so.
    """
    workspace = load_workspace()
    for path in start_room(workspace, room, definition):
        click.echo(f"made {path.relative_to(workspace.root).as_posix()}")
    if room not in workspace.rooms:
        click.echo("\nAdd this to config.toml at the root, and choose the smoke workloads:\n")
        click.echo(config_table(workspace, room, definition))
    click.echo(f"Next: write the kernel, then `python -m harness evaluate {room}`")
    return ExitCode.OK


def start_room(workspace: Workspace, room: str, definition: str) -> list[Path]:
    """Write the files of a new room and return their paths; nothing that exists is touched.

    Raises UsageError for a bad or taken name and an unknown definition.
    """
    source = find_definition(workspace, definition)
    known = workspace.rooms.get(room)
    if known is not None and known.definition != definition:
        raise UsageError(
            f"room: {room!r} is in config.toml with the definition {known.definition!r}; "
            f"expected that one, or another name"
        )
    files = skeleton(workspace, room, source)
    taken = [path for path in files if path.exists()]
    if (workspace.root / "solutions" / room).exists() or taken:
        where = taken[0].relative_to(workspace.root).as_posix() if taken else f"solutions/{room}"
        raise UsageError(f"room: {where} exists already; expected a new name, got {room!r}")
    made: list[Path] = []
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            made.append(path)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        for path in made:
            path.unlink(missing_ok=True)
        raise HarnessError(f"{error.filename}: cannot be written: {error.strerror}") from error
    return made


def find_definition(workspace: Workspace, name: str) -> Path:
    """The definition's JSON file. Raises UsageError that lists what there is instead."""
    paths = sorted((workspace.root / "definitions").glob("*/*.json"))
    for path in paths:
        if path.stem == name:
            return path
    tracked = [room.definition for room in workspace.rooms.values() if room.track == name]
    if tracked:
        raise UsageError(
            f"definition: {name!r} is a track; expected one of its definitions: "
            f"{', '.join(tracked)}"
        )
    raise UsageError(
        f"definition: expected one of {', '.join(path.stem for path in paths)}; got {name!r}. "
        f"A new one starts as definitions/<op_type>/<name>.py (scripts/make_definitions.py)"
    )


def config_table(workspace: Workspace, room: str, definition: str) -> str:
    """The table that makes a room known, with the contest's usual settings."""
    op_type = find_definition(workspace, definition).parent.name
    tracks = [other.track for other in workspace.rooms.values() if other.op_type == op_type]
    track = tracks[0] if tracks else op_type
    return CONFIG_TABLE.format(room=room, definition=definition, op_type=op_type, track=track)


@click.command()
@click.option("--dry-run", is_flag=True, help="List them and remove nothing.")
@click.option("--keep-traces", is_flag=True, help="Keep the verdicts that --resume goes on from.")
def clean(dry_run: bool, keep_traces: bool) -> int:
    """Remove caches that this project made: packed solutions, traces, builds, stale locks.

    Results, workload tensors and everybody else's files stay. A lock file that a live process
    holds is shown with its age, and it and its build are left alone.
    """
    workspace = load_workspace()
    caches = find_caches(workspace)
    if keep_traces:
        caches = [cache for cache in caches if cache.kind != "traces"]
    freed_bytes = 0
    failed = False
    for cache in caches:
        if cache.is_held:
            click.echo(f"in use        {describe(workspace, cache)}")
            continue
        try:
            if not dry_run:
                cache.remove()
        except OSError as error:
            click.echo(f"error: {cache.path}: cannot be removed: {error}", err=True)
            failed = True
            continue
        freed_bytes += cache.size_bytes
        click.echo(f"{'would remove' if dry_run else 'removed':14}{describe(workspace, cache)}")
    click.echo(f"{format_size(freed_bytes)} {'to free' if dry_run else 'freed'}")
    return ExitCode.FAILED if failed else ExitCode.OK


def describe(workspace: Workspace, cache: Cache) -> str:
    """One line: kind, size, age and path."""
    path = cache.path
    if path.is_relative_to(workspace.root):
        path = path.relative_to(workspace.root)
    size, age = format_size(cache.size_bytes), format_age(cache.age_s)
    return f"{cache.kind:10} {size:>9}  {age:>6}  {path}"
