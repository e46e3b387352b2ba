"""The official command line, with the DSA acceptance rules registered in every process."""

from __future__ import annotations

import os
import sys

import click

from harness.devices import JUDGING_WITHOUT, describe_no_gpu, load_cuda
from harness.errors import EnvironmentUnfit


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def fib(arguments: tuple[str, ...]) -> None:
    """flashinfer-bench's own CLI, for example: fib run --local . --use-isolated-runner"""
    is_run = arguments[:1] == ("run",) and not {"-h", "--help"} & set(arguments)
    if is_run and load_cuda() is None:  # the official program ends in a traceback
        raise EnvironmentUnfit(
            f"fib run: expected a GPU, but {describe_no_gpu()}; {JUDGING_WITHOUT}"
        )
    # A program of its own: see harness/cli/official.py for why.
    os.execv(sys.executable, [sys.executable, "-m", "harness.cli.official", *arguments])
