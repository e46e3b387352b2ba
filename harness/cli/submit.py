"""``harness submit``: build what the contest collects, check it, and tag it where asked."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from harness.config import Workspace, load_workspace
from harness.errors import ExitCode, UsageError
from harness.submit.collector import KIT_LANGUAGES, Collected, check_tree
from harness.submit.contest import choose_rooms
from harness.submit.readiness import Entry, prepare
from harness.submit.tags import (
    Tag,
    commit_tree,
    extract,
    make_tag,
    next_tag,
    push_tag,
    remote_url,
    require_clean,
    require_committed,
    require_remote,
)
from harness.submit.tree import (
    describe_audit,
    describe_evidence,
    origins,
    require_free,
    submission_files,
    write_tree,
    written_tree,
)

DEFAULT_REMOTE = "origin"
NO_REMOTE_NAMED = ""
# Of this repository as it is published, and of the starter kit: nobody's own.
PLACEHOLDER_AUTHORS = ("contest-kernels", "your-team-name", "your_team_name", "team-name", "author")


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("rooms", nargs=-1, metavar="[ROOM]...")
@click.option("--single", is_flag=True, help="One room, its config.toml and JSON at the root.")
@click.option("--without-audit", is_flag=True, help="Accept bytes that no audit has seen.")
@click.option("--tag", "tagged", is_flag=True, help="Tag it submission-v<N>, the next number.")
@click.option(
    "--per-definition",
    is_flag=True,
    help="With --single --tag: submission-<definition>-v<N>, numbered by itself.",
)
@click.option(
    "--push",
    "remote",
    is_flag=False,
    flag_value=NO_REMOTE_NAMED,
    metavar="[REMOTE]",
    help=f"With --tag: push that tag and nothing else. Without a name: to {DEFAULT_REMOTE}.",
)
def submit(
    directory: Path,
    rooms: tuple[str, ...],
    single: bool,
    without_audit: bool,
    tagged: bool,
    per_definition: bool,
    remote: str | None,
) -> int:
    """Build the submission of ROOMs (default: the contest's) in the new folder DIRECTORY.

    Without --tag nothing else happens. Refused are a dirty tree, rooms whose recorded sweep is of
    other bytes or by another judge, incomplete or failing, and a failed or missing audit; then
    nothing is written.
    """
    workspace = load_workspace()
    is_default = remote == NO_REMOTE_NAMED
    remote = DEFAULT_REMOTE if is_default else remote
    _check_options(workspace, single, tagged, per_definition, remote)
    chosen = choose_rooms(workspace, rooms, single)
    target = require_free(directory, workspace.root)
    commit = require_clean(workspace.root)
    entries = prepare(workspace, chosen, without_audit)
    require_committed(workspace.root, commit, origins(workspace.root, entries))
    files = submission_files(entries, commit, single)
    found = _try_out(files, entries, single)
    definition = entries[0].room.definition if per_definition else None
    name = next_tag(workspace.root, definition, remote) if tagged else None
    with written_tree(files, target):
        tag = _tag(workspace, files, entries, single, commit, name) if name else None
    click.echo(f"{target}: {len(files)} files, made from commit {commit}\n")
    click.echo(describe(entries, found))
    for line in warn_of_authors(entries):
        click.echo(line)
    if tag is None:
        click.echo("not tagged; --tag makes submission-v<N> of it")
        return ExitCode.OK
    click.echo(f"tagged {tag.name}: commit {tag.commit}, whose tree is {target}")
    if remote is None:
        click.echo(f"not pushed; `git push REMOTE refs/tags/{tag.name}` submits it")
        return ExitCode.OK
    place = f"{remote} ({remote_url(workspace.root, remote)})"
    if is_default:
        click.echo(f"pushing to {place}, as no remote was named; --push REMOTE names another")
    push_tag(workspace.root, tag, remote)
    click.echo(f"pushed {tag.name} to {place}")
    return ExitCode.OK


def _check_options(
    workspace: Workspace, single: bool, tagged: bool, per_definition: bool, remote: str | None
) -> None:
    if remote is not None and not tagged:
        raise UsageError("--push: expected --tag with it; there is nothing to push without a tag")
    if per_definition and not (single and tagged):
        raise UsageError("--per-definition: expected --single and --tag with it")
    if remote is not None:
        require_remote(workspace.root, remote)


def _try_out(files: dict[str, bytes], entries: Sequence[Entry], single: bool) -> list[Collected]:
    """Collect a copy of the tree before anything is written where the user asked."""
    with tempfile.TemporaryDirectory(prefix="harness-submit-") as folder:
        write_tree(files, Path(folder) / "tree")
        return check_tree(Path(folder) / "tree", entries, single)


def _tag(
    workspace: Workspace,
    files: dict[str, bytes],
    entries: Sequence[Entry],
    single: bool,
    parent: str,
    name: str,
) -> Tag:
    """Commit the tree, collect what a checkout of that commit holds, then tag it."""
    message = f"{name}\n\n{files['README.md'].decode()}"
    commit = commit_tree(workspace.root, files, parent, message)
    with tempfile.TemporaryDirectory(prefix="harness-submit-") as folder:
        extract(workspace.root, commit, Path(folder))
        check_tree(Path(folder), entries, single)
    tag = Tag(name, commit)
    make_tag(workspace.root, tag, message)
    return tag


def warn_of_authors(entries: Sequence[Entry]) -> list[str]:
    """A line for each author's name that is only there to be replaced."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        if entry.config.author.strip().lower() in PLACEHOLDER_AUTHORS:
            found.setdefault(entry.config.author, []).append(entry.room.name)
    return [
        f"warning: the author {author!r} of {', '.join(rooms)} is a placeholder; put your team's "
        "name into author of solutions/<room>/config.toml and of config.toml, which changes no "
        "content hash"
        for author, rooms in found.items()
    ]


def describe(entries: Sequence[Entry], found: Sequence[Collected]) -> str:
    """What an evaluator will see, one paragraph a definition."""
    by_definition = {entry.room.definition: entry for entry in entries}
    parts = ["What an evaluator will see:"]
    for one in found:
        entry = by_definition[one.definition]
        size = sum(len(text.encode()) for text in one.texts.values())
        lines = [
            one.definition,
            f"  config     {one.folder + '/' if one.folder else ''}config.toml",
            f"  solution   {one.name} by {one.author}, {one.language}, {one.entry_point}",
            f"  content    {one.sha256}",
            f"  sources    {len(one.texts)} files, {size} bytes: {', '.join(one.texts)}",
            *(f"  measured   {line}" for line in describe_evidence(entry)),
            f"  audit      {describe_audit(entry)}",
        ]
        if one.language not in KIT_LANGUAGES:
            lines.append(f"  note       the starter kit's own script packs no {one.language!r}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
