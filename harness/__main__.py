"""``python -m harness``."""

from __future__ import annotations

import sys
import warnings

OLDEST, NEWEST = (3, 10), (3, 12)  # as requires-python of pyproject.toml has them

if not OLDEST <= sys.version_info[:2] <= NEWEST:  # before anything that another one cannot read
    sys.stderr.write(
        f"error: expected Python {'{}.{}'.format(*OLDEST)} to {'{}.{}'.format(*NEWEST)}, got "
        f"{sys.version.split()[0]}; make a .venv from one of them, `make PYTHON3=python3.12 test`, "
        "and use .venv/bin/python\n"
    )
    sys.exit(3)

from harness.errors import run_program  # noqa: E402

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
