"""A worker that answers each job at once, in the place of harness.evaluate.pool.Pool."""

from typing import ClassVar

from harness.evaluate.protocol import Outcome, Status


class FakePool:
    """answer: what it says of every job."""

    answer: ClassVar = {"verdict": "PASSED", "detail": ""}

    def __init__(self, device, root, command):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, job):
        return Outcome(Status.PASSED, evaluation=self.answer)
