"""``python -m harness``."""

import sys

from harness.errors import run_program


def start() -> int:
    """Run the command line; a library that is not installed is one message, not a traceback."""
    from harness.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(run_program(start))
