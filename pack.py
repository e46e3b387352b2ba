"""Packs rooms into solutions/<room>/solution.json: `python pack.py --help`.

A thin door to harness/packing, for the interpreter at hand: Python 3.10 or later, nothing
installed (3.10 itself needs tomli, its standard library reads no TOML).
"""

from __future__ import annotations

import sys


def main() -> int:
    if sys.version_info < (3, 10):  # noqa: UP036, told apart before newer syntax is imported
        sys.stderr.write(f"error: expected Python 3.10 or later, got {sys.version.split()[0]}\n")
        return 4
    try:
        from harness.packing.command import main as run
    except ModuleNotFoundError as error:
        if error.name != "tomli":
            raise
        sys.stderr.write("error: Python 3.10 needs tomli: python -m pip install tomli\n")
        return 4
    return run()


if __name__ == "__main__":
    sys.exit(main())
