"""``harness new`` starts a room, ``harness clean`` removes what can be made again."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click

from harness.cli.caches import Cache, find_caches, format_age, format_size
from harness.cli.room_skeleton import CONFIG_TABLE, USUAL, skeleton
from harness.config import Room, Workspace, load_workspace
from harness.dataset import read_workloads
from harness.errors import EnvironmentUnfit, ExitCode, UsageError
from harness.submit.contest import CONTEST_DEFINITIONS

UUID_DIGITS = 8


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
    entry = planned_room(workspace, room, definition)
    if room not in workspace.rooms:
        click.echo("\nAdd this to config.toml at the root:\n")
        click.echo(config_table(entry))
        for line in _left_out(workspace, entry):
            click.echo(line)
    click.echo(f"Then write solutions/{room}/kernel.py, and")
    click.echo(f"    python pack.py {room}")
    if entry.smoke:
        click.echo(f"    python -m harness evaluate {room} --workloads {entry.smoke[0]}")
    else:
        click.echo(f"    (workloads/{entry.op_type}/{definition}.jsonl comes first: none is there)")
    click.echo(f"    python -m harness evaluate {room}")
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
        raise EnvironmentUnfit(f"{error.filename}: cannot be written: {error.strerror}") from error
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


def planned_room(workspace: Workspace, name: str, definition: str) -> Room:
    """The room as config.toml has it, else as another room of the same definition is judged but
    for the track, else with the contest's usual settings and the definition's first workload for
    smoke. A definition that is not the contest's has no track."""
    if name in workspace.rooms:
        return workspace.rooms[name]
    for other in workspace.rooms.values():
        if other.definition == definition:  # a second answer cannot be submitted
            return replace(other, name=name, track=None)
    op_type = find_definition(workspace, definition).parent.name
    track = None
    if definition in CONTEST_DEFINITIONS:
        tracks = [other.track for other in workspace.rooms.values() if other.op_type == op_type]
        track = (*tracks, op_type)[0]
    room = Room(name, definition, op_type, track, USUAL, (), ())
    if not (workspace.root / "workloads" / op_type / f"{definition}.jsonl").is_file():
        return room
    first = (read_workloads(workspace.root, room)[0].uuid[:UUID_DIGITS],)
    return replace(room, smoke=first, smoke_cpu=first)


def _left_out(workspace: Workspace, room: Room) -> list[str]:
    """Why a room of a contest's definition has no track, and how it gets one."""
    if room.in_contest:
        return []
    return [
        f"{other.name} is in the contest with this definition, so {room.name} is judged where it\n"
        f'is named. With `track = "{other.track}"` both are in; `submit` asks for one of them.\n'
        for other in workspace.contest_rooms.values()
        if other.definition == room.definition
    ]


def config_table(room: Room) -> str:
    """The table of config.toml that makes a room known."""
    settings = asdict(room.evaluation).items()
    return CONFIG_TABLE.format(
        room=room.name,
        definition=room.definition,
        op_type=room.op_type,
        track="" if room.track is None else f'track = "{room.track}"\n',
        smoke=json.dumps(room.smoke),
        smoke_cpu=json.dumps(room.smoke_cpu),
        evaluation="\n".join(f"{key} = {value}" for key, value in settings),
    )


@click.command()
@click.option("--dry-run", is_flag=True, help="List them and remove nothing.")
@click.option("--traces", is_flag=True, help="Also the verdicts that --resume goes on from.")
@click.option(
    "--shared",
    is_flag=True,
    help="Also this project's builds and stale locks in the caches that all checkouts share.",
)
def clean(dry_run: bool, traces: bool, shared: bool) -> int:
    """Remove this checkout's packed solutions, what killed writers have left of files and, where
    named, its traces and shared caches.

    Results, workload tensors and everybody else's files stay. What was not named is listed with
    its option. A lock file that a live process holds is shown with its age, and it and its build
    are left alone.
    """
    workspace = load_workspace()
    named = {None, *(["traces"] if traces else []), *(["shared"] if shared else [])}
    caches = find_caches(workspace)
    for option in ("traces", "shared"):
        left = [cache for cache in caches if cache.option == option and option not in named]
        for group in _by_kind(left):
            click.echo(f"{describe('left', group, workspace.root)}  (--{option})")
    caches = [cache for cache in caches if cache.option in named]
    for cache in caches:
        if cache.is_held:
            click.echo(describe("in use", [cache], workspace.root))
    free = [cache for cache in caches if not cache.is_held]
    gone = free if dry_run else [cache for cache in free if _remove(cache)]
    for group in _by_kind(gone):
        click.echo(describe("would remove" if dry_run else "removed", group, workspace.root))
    freed_bytes = sum(cache.size_bytes for cache in gone)
    click.echo(f"{format_size(freed_bytes)} {'to free' if dry_run else 'freed'}")
    return ExitCode.OK if len(gone) == len(free) else ExitCode.UNFIT


def _by_kind(caches: Sequence[Cache]) -> list[list[Cache]]:
    kinds = dict.fromkeys(cache.kind for cache in caches)
    return [[cache for cache in caches if cache.kind == kind] for kind in kinds]


def _remove(cache: Cache) -> bool:
    try:
        cache.remove()
    except OSError as error:
        click.echo(f"error: {cache.path}: cannot be removed: {error}", err=True)
        return False
    return True


def describe(verb: str, caches: Sequence[Cache], root: Path) -> str:
    """One line for caches of one kind: how many, size, age of the oldest, where they lie."""
    path = Path(os.path.commonpath([cache.path for cache in caches]))
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    size = format_size(sum(cache.size_bytes for cache in caches))
    age = format_age(max(cache.age_s for cache in caches))
    return f"{verb:12}  {caches[0].kind:8} {len(caches):>5} {size:>9} {age:>6}  {shown}"
