"""The worker process of a replay: `evaluate`'s, answering batches of trials instead of jobs.

python -m harness.replay.worker READ_FD WRITE_FD DEVICE
"""

from __future__ import annotations

import sys

from harness.evaluate import judge, start
from harness.replay.trials import Replayer


def main(read_fd: str, write_fd: str, device: str) -> None:
    judge.judge_and_keep = Replayer().judge_and_keep  # in this process only
    start.main(read_fd, write_fd, device)


if __name__ == "__main__":
    main(*sys.argv[1:])
