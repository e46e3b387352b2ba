"""``python -m harness``.

The official CLI's spawned workers import this module again under another name. The DSA rules are
therefore registered here, at module level, and only when that CLI was asked for.
"""

import sys

from harness.cli import main

# In the parent the first argument says so; its spawned children inherit the sys.argv that
# harness.cli.fib handed to the official program.
if "fib" in sys.argv[1:2] or sys.argv[:1] == ["flashinfer-bench"]:
    from harness.evaluators import register

    register()

if __name__ == "__main__":
    sys.exit(main())
