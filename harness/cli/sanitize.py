"""``harness sanitize``: compute-sanitizer on one call of a packed solution."""

from __future__ import annotations

import click

from harness.audit.sanitizers import TIME_LIMIT_S, TOOLS, run_sanitizers
from harness.config import load_workspace
from harness.evaluate.progress import SweepProgress


@click.command()
@click.argument("target", metavar="ROOM|JSON")
@click.option(
    "--tool",
    type=click.Choice((*TOOLS, "all")),
    default="all",
    show_default=True,
    help="Which errors to look for.",
)
@click.option(
    "--workloads",
    multiple=True,
    metavar="SPEC",
    help="smoke, all, or UUID prefixes; may be repeated or comma-separated. Default: smoke.",
)
@click.option("--dataset", metavar="DIR", help="An official data set, used in place.")
@click.option(
    "--limit",
    type=float,
    metavar="SECONDS",
    help=f"How long a tool may take on a workload. Default: {TIME_LIMIT_S:g}.",
)
def sanitize(
    target: str, tool: str, workloads: tuple[str, ...], dataset: str | None, limit: float | None
) -> int:
    """Run one call of a ROOM as packed now, or of a packed JSON file, under compute-sanitizer.

    The tool's error summary decides, not its exit code. Exit code 1: it reports errors; 4: it is
    not installed; 6: it did not finish.
    """
    tools = TOOLS if tool == "all" else (tool,)
    with SweepProgress() as progress:
        code = run_sanitizers(
            load_workspace(), target, tools, workloads, progress, dataset, limit_s=limit
        )
    return int(code)
