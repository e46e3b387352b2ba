"""``harness report``: tables from results/, the blocks of pages that show them, and the page.

The page's modules load matplotlib and jinja2, hence only where --write asks for them; comparisons
load scipy, hence only where blocks do, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.config import Workspace, load_workspace
from harness.errors import ExitCode, HarnessError, UsageError
from harness.files import expand_home, write_atomically
from harness.packing import pack
from harness.records import RunRecord, all_latest, latest_objection
from harness.report import (
    README_BLOCK,
    front_rooms,
    is_stale,
    place_block,
    render_summary,
    render_workloads,
    without_staleness,
)

if TYPE_CHECKING:
    from harness.report.glance import Standing

REPORT_FOLDER = "results/report"
TO_RENDER = "python -m harness report --readme"


@click.command()
@click.argument("rooms", nargs=-1)
@click.option("--device", metavar="SLUG", help="Only this device, such as nvidia-h200.")
@click.option("--workloads", is_flag=True, help="One table a room, one row a workload.")
@click.option(
    "--write",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help=f"Write page, Markdown, tables and plots. Default: {REPORT_FOLDER} of the checkout.",
)
@click.option(
    "--readme",
    is_flag=True,
    help="Rewrite the results block of README.md and the block under the title of each measured "
    "room's page in docs/kernels.",
)
@click.option("--check", is_flag=True, help="Compare these blocks with results/; 1 if they differ.")
def report(
    rooms: tuple[str, ...],
    device: str | None,
    workloads: bool,
    write: str | None,
    readme: bool,
    check: bool,
) -> int:
    """Print the latest recorded sweep of each room as Markdown, or write the whole report."""
    workspace = load_workspace()
    names = [workspace.room(room).name for room in rooms] or list(workspace.rooms)
    whole = [readme, check, write is not None]
    if any(whole) and (sum(whole) > 1 or rooms or device or workloads):
        raise UsageError(
            "--write, --readme and --check: expected one of them and nothing else; each holds all "
            "rooms"
        )
    if write in workspace.rooms:
        raise UsageError(
            f"--write: expected a folder, got the room {write}; --write holds all rooms, "
            f"./{write} names a folder"
        )
    if write is not None:
        return write_folder(
            workspace, expand_home(write) if write else workspace.root / REPORT_FOLDER
        )
    recorded = all_latest(workspace.root)
    devices = sorted({record.device for record in recorded})
    if device is not None and device not in devices:
        raise UsageError(
            f"--device: expected one of {', '.join(devices) or 'none, nothing is recorded'}; "
            f"got {device!r}"
        )
    records = [
        record for record in recorded if record.room in names and device in (None, record.device)
    ]
    unofficial = warn_of_unofficial(workspace, records)
    if check or readme:
        standing = read_standing(workspace, records)
        blocks = compose_blocks(workspace, standing)
        if check:
            agrees = check_blocks(workspace, blocks, standing)
            return ExitCode.FAILED if unofficial else agrees
        return rewrite_blocks(workspace, blocks)
    packed = packed_hashes(workspace, sorted({record.room for record in records}))
    if workloads:
        tables = [render_workloads(record, packed[record.room]) for record in records]
        click.echo("\n\n".join(tables) or "not measured")
        return ExitCode.OK
    click.echo(render_summary(names, records, packed))
    return ExitCode.OK


def write_folder(workspace: Workspace, folder: Path) -> int:
    """Write the report of everything recorded."""
    from harness.report.evidence import gather
    from harness.report.publish import PAGE, check_folder, compose, render, write_report

    check_folder(folder)
    packed = packed_hashes(workspace, list(workspace.rooms))
    evidence = gather(workspace, packed, lambda line: click.echo(line, err=True))
    files = render(compose(evidence))
    write_report(files, folder)
    click.echo(f"{folder / PAGE}: {len(files)} files written")
    return ExitCode.OK


def warn_of_unofficial(workspace: Workspace, records: Sequence[RunRecord]) -> int:
    """Say on stderr which records are no full official sweeps. How many they are."""
    found = 0
    for record in records:
        objection = latest_objection(record, workspace.root)
        if objection is not None:
            click.echo(
                f"warning: results/latest/{record.device}/{record.room}.json: no full official "
                f"sweep: {objection}; run `python -m harness evaluate {record.room} --workloads "
                "all --record`",
                err=True,
            )
            found += 1
    return found


def packed_hashes(workspace: Workspace, rooms: Sequence[str]) -> dict[str, str | None]:
    """Content hash of each room as it packs now; None where it does not pack."""
    hashes: dict[str, str | None] = {}
    for room in rooms:
        try:
            hashes[room] = pack(workspace, room).sha256
        except HarnessError as error:
            click.echo(f"{room} does not pack: {error}", err=True)
            hashes[room] = None
    return hashes


@dataclass(frozen=True)
class Block:
    """What stands between the markers of a name in a page."""

    page: Path
    name: str
    body: str


def read_standing(workspace: Workspace, records: Sequence[RunRecord]) -> Standing:
    """The latest sweeps and comparisons, and what rooms and peers pack to. Raises RecordError."""
    from harness.report.evidence import pack_peers, read_compared
    from harness.report.glance import Standing

    compared = read_compared(workspace)
    rooms = sorted({*compared, *(record.room for record in records)})
    return Standing(records, compared, packed_hashes(workspace, rooms), pack_peers(workspace))


def compose_blocks(workspace: Workspace, standing: Standing) -> list[Block]:
    """The block of README.md, and one for the page of each room that has a row in it."""
    from harness.report.glance import GLANCE_BLOCK, render_front, render_glance

    rooms = front_rooms(workspace.rooms, standing.latest)
    front = Block(workspace.root / "README.md", README_BLOCK, render_front(rooms, standing))
    pages = workspace.root / "docs" / "kernels"
    glances = (render_glance(room, standing) for room in rooms)
    return [
        front,
        *(
            Block(pages / f"{room}.md", GLANCE_BLOCK, glance)
            for room, glance in zip(rooms, glances, strict=True)
        ),
    ]


def rewrite_blocks(workspace: Workspace, blocks: Sequence[Block]) -> int:
    """Write every block into its page, or none where a page has no place for its own."""
    texts = {}
    for block in blocks:
        before = _read_page(block.page)
        texts[block] = before, place_block(before, block.name, TO_RENDER, block.body)
    for block, (before, after) in texts.items():
        if after != before:
            write_atomically(block.page, after)
        label = block.page.relative_to(workspace.root)
        click.echo(f"{label}: {'unchanged' if after == before else f'{block.name} rewritten'}")
    return ExitCode.OK


def check_blocks(workspace: Workspace, blocks: Sequence[Block], standing: Standing) -> int:
    """0 where the pages show what results/ holds. Stale evidence is named, and no failure."""
    for record in standing.latest:
        if is_stale(record, standing.packed[record.room]):
            click.echo(f"{record.room} on {record.device} is stale; measure it again")
    for room, found in standing.compared.items():
        if found.ours.solution_sha256 != standing.packed[room]:
            click.echo(f"{room}: the comparison is stale; compare it again")
    differing = 0
    for block in blocks:
        text, label = _read_page(block.page), block.page.relative_to(workspace.root)
        placed = place_block(text, block.name, TO_RENDER, block.body)
        if without_staleness(placed) != without_staleness(text):
            differing += 1
            click.echo(f"{label} differs from results/; run `{TO_RENDER}`")
        elif placed != text:
            click.echo(f"{label}: what is stale has changed; run `{TO_RENDER}`")
    if not differing:
        click.echo(f"README.md and {len(blocks) - 1} pages agree with results/")
    return ExitCode.FAILED if differing else ExitCode.OK


def _read_page(page: Path) -> str:
    try:
        return page.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{page}: expected the room's page, got no such file; write it") from None
