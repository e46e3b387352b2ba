"""The worker process of a replay: `evaluate`'s, answering batches of trials instead of jobs.

python -m harness.replay.worker READ_FD WRITE_FD DEVICE
"""

from __future__ import annotations

import sys

from harness.evaluate.answering import answer_jobs
from harness.replay.trials import Replayer

if __name__ == "__main__":
    answer_jobs(Replayer().answer, *sys.argv[1:])
