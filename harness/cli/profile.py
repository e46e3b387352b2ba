"""``harness profile``: what bounds a room's kernels, by Torch Profiler and NCU."""

from __future__ import annotations

import click

from harness.cli.report import packed_hashes
from harness.config import Workspace, load_workspace
from harness.errors import ExitCode, UsageError
from harness.evaluate.progress import SweepProgress
from harness.files import expand_home
from harness.profiling.engine import TOOLS, ProfileRequest, run_profile
from harness.profiling.record import COMMAND, all_profiles


@click.command()
@click.argument("rooms", nargs=-1, metavar="[ROOM]...")
@click.option(
    "--workloads",
    multiple=True,
    metavar="SPEC",
    help="regime (one workload that stands for each), smoke, all, or UUID prefixes; may be "
    "repeated or comma-separated. Default: regime.",
)
@click.option("--tool", type=click.Choice(TOOLS), default="both", show_default=True)
@click.option("--record", is_flag=True, help="Keep each workload in results/profiles.")
@click.option(
    "--import",
    "imported",
    metavar="FILE",
    help="Read one workload's NCU table, made elsewhere, instead of measuring.",
)
@click.option("--device", metavar="SLUG", help="Whose the table is, or only this device's rows.")
@click.option("--table", is_flag=True, help="Print what is recorded, one row a regime; no GPU.")
@click.option("--dataset", metavar="DIR", help="An official data set, used in place.")
@click.option("--commit", metavar="SHA", help="What a record names where the tree has no .git.")
def profile(
    rooms: tuple[str, ...],
    workloads: tuple[str, ...],
    tool: str,
    record: bool,
    imported: str | None,
    device: str | None,
    table: bool,
    dataset: str | None,
    commit: str | None,
) -> int:
    """Profile ROOMs as packed now: kernels and their shares, what bounds the call, what limits it.

    docs/profiling.md says what the numbers are. Exit code 1: a workload fails its judge; 4: NCU is
    not installed or may not read the counters, what Torch Profiler gave is kept; 6: a profiler gave
    nothing.
    """
    workspace = load_workspace()
    names = tuple(workspace.room(room).name for room in dict.fromkeys(rooms))
    if table:
        if workloads or record or imported:
            raise UsageError("--table prints records; expected ROOMs and --device with it at most")
        click.echo(render_table(workspace, names, device))
        return ExitCode.OK
    if not names or (imported is not None and len(names) > 1):
        raise UsageError(f"profile: expected {'one ROOM' if imported else 'a ROOM'}; got {names}")
    codes = []
    with SweepProgress() as progress:
        for name in names:
            request = ProfileRequest(
                room=name,
                workloads=workloads,
                tool=tool,
                record=record,
                imported=expand_home(imported) if imported else None,
                device=device,
                dataset=dataset,
                commit=commit,
            )
            codes.append(run_profile(workspace, request, progress))
    return max(codes)


def render_table(workspace: Workspace, rooms: tuple[str, ...], device: str | None) -> str:
    """The recorded profiles as Markdown; all rooms where none is named."""
    from harness.report.profiles import WHAT, profiles_table
    from harness.report.tables import markdown_text, to_markdown

    wanted = rooms or tuple(workspace.rooms)
    found = [
        one
        for one in all_profiles(workspace.root)
        if one.room in wanted and device in (None, one.device)
    ]
    if not found:
        return f"nothing is recorded; run `{COMMAND}`"
    packed = packed_hashes(workspace, sorted({one.room for one in found}))
    found.sort(key=lambda one: (one.device, wanted.index(one.room)))
    return f"{markdown_text(WHAT)}\n\n{to_markdown(profiles_table(found, packed))}"
