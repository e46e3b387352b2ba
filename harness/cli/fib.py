"""The official command line, with the DSA acceptance rules registered in every process.

harness/__main__.py registers them at import when the first argument is ``fib``: the spawned
workers of flashinfer-bench import it again and so know the same rules.
"""

from __future__ import annotations

import sys

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def fib(arguments: tuple[str, ...]) -> None:
    """flashinfer-bench's own CLI, for example: fib run --local . --use-isolated-runner"""
    from flashinfer_bench.cli.main import cli as official

    sys.argv = ["flashinfer-bench", *arguments]
    official()
