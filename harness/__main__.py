"""``python -m harness``."""

import sys
import warnings

from harness.errors import run_program

_format_foreign = warnings.formatwarning


def start() -> int:
    """Run the command line; a library that is not installed is one message, not a traceback."""
    from harness.cli import main

    warnings.formatwarning = format_warning
    return main()


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int,
    line: str | None = None,
) -> str:  # fmt: skip
    """One line where the harness warns its user: what matters is in the text, not in our code."""
    if category.__module__.startswith("harness."):
        return f"warning: {message}\n"
    return _format_foreign(message, category, filename, lineno, line)


if __name__ == "__main__":
    sys.exit(run_program(start))
