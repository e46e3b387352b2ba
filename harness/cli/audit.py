"""``harness audit``: probes for cheats and impurities on one packed solution."""

from __future__ import annotations

import click

from harness.audit.engine import AuditRequest, run_audit
from harness.config import load_workspace
from harness.devices import describe_no_gpu, read_facts
from harness.evaluate.progress import SweepProgress
from harness.records.strict_json import MAX_SEED


@click.command()
@click.argument("target", metavar="ROOM|JSON")
@click.option(
    "--workloads",
    multiple=True,
    metavar="SPEC",
    help="smoke, all, or UUID prefixes; may be repeated or comma-separated. Default: smoke.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, MAX_SEED),
    help="Of the inputs that a solution cannot know. Default: drawn and printed.",
)
@click.option("--dataset", metavar="DIR", help="An official data set, used in place.")
@click.option("--commit", metavar="SHA", help="What a record names where the tree has no .git.")
@click.option("--record", is_flag=True, help="Keep the result in results/audit, if all probes ran.")
def audit(
    target: str,
    workloads: tuple[str, ...],
    seed: int | None,
    dataset: str | None,
    commit: str | None,
    record: bool,
) -> int:
    """Probe a ROOM as packed now, or a packed JSON file, for what a judge of outputs cannot see.

    Each probe runs in a process of its own. A candidate is untrusted code: probes find known
    tricks and contain none. Exit code 1: a probe found something; 6: one could not run, as those
    that need a GPU where there is none.
    """
    request = AuditRequest(target, workloads, seed, dataset, commit, record)
    facts = read_facts()
    with SweepProgress() as progress:
        if facts.uuid is None:
            progress.note(f"no GPU: {describe_no_gpu()}")
        return int(run_audit(load_workspace(), request, progress, facts))
