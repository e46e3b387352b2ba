"""``python -m harness``: each command is imported when asked for, so --help loads no torch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from harness.errors import ExitCode, run_program

PROGRAM = "python -m harness"

# command -> (module, attribute, one line for --help)
COMMANDS = {
    "evaluate": ("harness.cli.evaluate", "evaluate", "Judge and time rooms on the official set."),
    "compare": ("harness.cli.compare", "compare", "Measure two sides in turns on one GPU."),
    "replay": ("harness.cli.replay", "replay", "Judge a room on many fresh trials."),
    "audit": ("harness.cli.audit", "audit", "Probe a solution for cheats and impurities."),
    "sanitize": ("harness.cli.sanitize", "sanitize", "Memory errors and races, one call."),
    "timers": ("harness.cli.timers", "timers", "One call by CUPTI, graph events and NCU."),
    "fib": ("harness.cli.fib", "fib", "flashinfer-bench's own CLI with the DSA rules added."),
    "dataset": ("harness.cli.dataset", "dataset", "Make, verify, fetch or export workload data."),
    "score": ("harness.cli.score", "score", "The contest's score from recorded comparisons."),
    "roofline": ("harness.cli.roofline", "roofline", "Bytes, flops and floors beside ours."),
    "profile": ("harness.cli.profile", "profile", "What bounds a room's kernels, by regime."),
    "gate": ("harness.cli.promote", "gate", "A candidate on one workload of each regime."),
    "sweep": ("harness.cli.promote", "sweep", "A candidate beside its room, all workloads."),
    "promote": ("harness.cli.promote", "promote", "Prove a candidate; then it is the room."),
    "tune": ("harness.cli.tune", "tune", "Search for a faster room, round by round."),
    "history": ("harness.cli.history", "history", "What searches tried, decided and block."),
    "explain": ("harness.cli.history", "explain_command", "One attempt or round in full."),
    "report": ("harness.cli.report", "report", "Render tables from recorded runs."),
    "submit": ("harness.cli.submit", "submit", "Build, check and tag what the contest collects."),
    "doctor": ("harness.cli.doctor", "doctor", "Say what this machine lacks for judging."),
    "new": ("harness.cli.rooms", "new", "Start a room."),
    "clean": ("harness.cli.rooms", "clean", "Remove packed solutions; caches where named."),
}


class _LazyGroup(click.Group):
    """A group that knows its commands' names and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Judge, time and compare kernels for the FlashInfer-Bench contest.

    Exit codes: 0 all well, 1 a workload failed, 2 usage or configuration, 3 environment or
    dataset unfit, 4 a tool is missing, 5 GPU busy, 6 incomplete, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors become one message on stderr."""
    return run_program(lambda: _run(list(sys.argv[1:] if arguments is None else arguments)))


def _run(arguments: list[str]) -> int:
    # Not click's own main: it ends with 1 where the reader of stdout has left.
    try:
        with cli.make_context(PROGRAM, arguments) as context:
            result = cli.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show(file=sys.stderr)
        return int(ExitCode.USAGE)
    return int(result) if isinstance(result, int) else int(ExitCode.OK)
