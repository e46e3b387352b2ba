"""flashinfer-bench's own program with our rules: ``python -m harness.cli.official run …``.

Its workers are spawned: each imports this program's main module again, and so registers the same
rules. That works for a plain module only. Python leaves a package's ``__main__`` out, so that
under ``python -m harness`` the parent would know the rules and the workers would not.
"""

import sys

from harness import evaluators, rules

evaluators.register()
rules.register()

if __name__ == "__main__":
    from flashinfer_bench.cli.main import cli

    sys.argv[0] = "flashinfer-bench"
    cli()
