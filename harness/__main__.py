"""``python -m harness``."""

import sys

from harness.errors import ExitCode


def start() -> int:
    """Run the command line; a library that is not installed is one message, not a traceback."""
    try:
        from harness.cli import main

        return main()
    except ModuleNotFoundError as error:
        if (error.name or "harness").split(".")[0] == "harness":
            raise
        print(
            f"error: {error.name} is not installed; run `make test` once and use .venv/bin/python, "
            "or install the dependencies of pyproject.toml",
            file=sys.stderr,
        )
        return int(ExitCode.TOOL_MISSING)


if __name__ == "__main__":
    sys.exit(start())
