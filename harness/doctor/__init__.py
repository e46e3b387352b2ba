"""What this machine lacks for judging, and by which judge it judges: one line a check.

    check     a check's outcome, its line and the exit code of several
    machine   GPU, driver, strangers, clocks, CUPTI, compiler, counters
    judge     versions, evaluators, timer and settings, routes, cache, ledgers, data set
    probe     what only torch can say, asked in a child process

Nothing here changes anything, and nothing but the probe imports torch.
"""

from harness.doctor.check import Check, State, exit_code, run_checks

__all__ = ["Check", "State", "exit_code", "run_checks"]
