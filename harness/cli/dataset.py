"""`python -m harness dataset`: make, verify, fetch and export workload tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness import dataset as sets
from harness.config import Room, Workspace, load_workspace
from harness.dataset import WorkloadRow
from harness.errors import DatasetError

if TYPE_CHECKING:
    from harness.dataset.verification import Verdict

SHOWN_FAULTS = 3  # of each kind; the rest are counted
_FOLDER = click.Path(path_type=Path)
_rooms_argument = click.argument("rooms", nargs=-1, metavar="[ROOM]...")
_workloads_option = click.option(
    "--workloads", "spec", default="all", show_default=True, help="all, smoke or UUID prefixes."
)
_dataset_option = click.option(
    "--dataset", "override", type=_FOLDER, help="A data set elsewhere (also FIB_DATASET_PATH)."
)


def _chosen(workspace: Workspace, names: Sequence[str]) -> dict[str, Room]:
    return {name: workspace.room(name) for name in names or workspace.contest_rooms}


def _rows(root: Path, rooms: Mapping[str, Room], spec: str) -> dict[str, list[WorkloadRow]]:
    rows = {name: sets.read_workloads(root, room) for name, room in rooms.items()}
    return sets.select_rooms(rows, rooms, spec)


def _refuse_faults(root: Path, verdict: Verdict, step: str) -> None:
    """List the faults, the first few of each kind. Raises DatasetError with the next step."""
    kinds: dict[str, list[str]] = {}
    for fault in verdict.faults:
        kinds.setdefault(fault.kind.value, []).append(str(fault))
    for kind, lines in kinds.items():
        for line in lines[:SHOWN_FAULTS]:
            click.echo(line)
        if len(lines) > SHOWN_FAULTS:
            click.echo(f"and {len(lines) - SHOWN_FAULTS} more: {kind}")
    if verdict.faults:
        raise DatasetError(
            f"{root}: {len(verdict.faults)} of {verdict.checked} blobs are unfit; {step}"
        )


@click.group("dataset")
def dataset() -> None:
    """Make, verify, fetch and export the tensors that workloads take from files."""


@dataset.command("make")
@_rooms_argument
@_workloads_option
@click.option("--jobs", type=click.IntRange(min=1), help="Processes (default: usable cores).")
@click.option("--remake", is_flag=True, help="Replace blobs that differ from the manifest.")
@click.option(
    "--update-manifest",
    is_flag=True,
    help="Maintainers: make anew and record the hashes instead of checking them.",
)
def make_command(
    rooms: tuple[str, ...], spec: str, jobs: int | None, remake: bool, update_manifest: bool
) -> None:
    """Make the blobs that this checkout lacks, each checked against workloads/blobs.sha256."""
    from harness.dataset.progress import show_progress

    workspace = load_workspace()
    rows = _rows(workspace.root, _chosen(workspace, rooms), spec)
    with show_progress() as progress:
        report = sets.make(
            workspace.root, workspace.rooms, rows, jobs, progress, remake, update_manifest
        )
    click.echo(
        f"made {report.made} blobs ({report.made_bytes / 1e6:.1f} MB), "
        f"kept {report.kept} ({report.kept_bytes / 1e6:.1f} MB)"
    )


@dataset.command("verify")
@_rooms_argument
@_workloads_option
@_dataset_option
def verify_command(rooms: tuple[str, ...], spec: str, override: Path | None) -> None:
    """Look for missing, truncated, damaged, wrongly shaped and Git-LFS-pointer blobs.

    In the checkout, and in an export of it, hashes are compared with the manifest as well.
    """
    workspace = load_workspace()
    root = sets.locate(workspace, override)
    chosen = _chosen(workspace, rooms)
    verdict = sets.verify(root, chosen.values(), _rows(root, chosen, spec))
    _refuse_faults(root, verdict, sets.repair_step(root, verdict.faults))
    click.echo(f"{root}: {verdict.checked} blobs checked, {verdict.hashed} with their hash")


@dataset.command("fetch")
@click.argument("directory", type=_FOLDER)
def fetch_command(directory: Path) -> None:
    """Download the official data set, at the revision pinned in config.toml, into DIRECTORY."""
    workspace = load_workspace()
    folder, revision = sets.fetch(workspace, directory)
    click.echo(f"{folder}: {workspace.dataset_repository} at {revision}")
    verdict = sets.verify(folder, workspace.contest_rooms.values())
    _refuse_faults(folder, verdict, "run the command again, and see docs/dataset.md")
    click.echo(f"{verdict.checked} blobs are whole; use them with FIB_DATASET_PATH={folder}")


@dataset.command("export")
@click.argument("directory", type=_FOLDER)
@_workloads_option
@_dataset_option
def export_command(directory: Path, spec: str, override: Path | None) -> None:
    """Write definitions, workloads, packed solutions and blobs in the official layout."""
    from harness.dataset.progress import show_progress

    workspace = load_workspace()
    root = sets.locate(workspace, override)
    with show_progress() as progress:
        report = sets.export(workspace, root, directory, spec, progress)
    click.echo(
        f"{report.directory}: {report.definitions} definitions, {report.workloads} workloads, "
        f"{report.solutions} solutions, {report.blobs} blobs, {report.size_bytes / 1e6:.1f} MB"
    )
