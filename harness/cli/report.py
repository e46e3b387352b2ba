"""``harness report``: tables from results/, the block of the README that shows them, and the page.

The page's modules load matplotlib, jinja2 and scipy, hence only where --write asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
    read_block,
    render_summary,
    render_workloads,
    replace_block,
    without_staleness,
)

REPORT_FOLDER = "results/report"


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
@click.option("--readme", is_flag=True, help="Rewrite the results block of README.md.")
@click.option("--check", is_flag=True, help="Compare README.md with results/; 1 if they differ.")
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
    packed = packed_hashes(workspace, sorted({record.room for record in records}))
    unofficial = warn_of_unofficial(workspace, records)
    if workloads:
        tables = [render_workloads(record, packed[record.room]) for record in records]
        click.echo("\n\n".join(tables) or "not measured")
        return ExitCode.OK
    if check or readme:
        summary = render_summary(front_rooms(workspace.rooms, records), records, packed)
        if check:
            agrees = check_readme(workspace, summary, records, packed)
            return ExitCode.FAILED if unofficial else agrees
        return rewrite_readme(workspace, summary)
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


def rewrite_readme(workspace: Workspace, summary: str) -> int:
    path = workspace.root / "README.md"
    before = path.read_text(encoding="utf-8")
    after = replace_block(before, README_BLOCK, summary)
    if after != before:
        write_atomically(path, after)
    click.echo(f"{path.name}: {'unchanged' if after == before else 'results rewritten'}")
    return ExitCode.OK


def check_readme(
    workspace: Workspace,
    summary: str,
    records: Sequence[RunRecord],
    packed: dict[str, str | None],
) -> int:
    """0 where README.md shows what results/ holds. Stale evidence is named, and no failure."""
    shown = read_block((workspace.root / "README.md").read_text(encoding="utf-8"), README_BLOCK)
    for record in records:
        if is_stale(record, packed[record.room]):
            click.echo(f"{record.room} on {record.device} is stale; measure it again")
    if without_staleness(shown) != without_staleness(summary):
        click.echo("README.md differs from results/; run `python -m harness report --readme`")
        return ExitCode.FAILED
    click.echo("README.md agrees with results/")
    return ExitCode.OK
