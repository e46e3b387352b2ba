"""A check's outcome, its line, and the exit code of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from harness.errors import ExitCode, HarnessError

_NAME_WIDTH = 10


class State(Enum):
    """ok: nothing to do. note: worth knowing. fail: this machine cannot judge so."""

    OK = "ok"
    NOTE = "note"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Check:
    """One thing looked at. found: what is there. fix: what to do, for a failure.

    code: what the program ends with where this fails and nothing worse does.
    """

    name: str
    state: State
    found: str
    fix: str = ""
    code: ExitCode = ExitCode.UNFIT

    @property
    def line(self) -> str:
        text = f"{self.state.value:4}  {self.name:{_NAME_WIDTH}}  {self.found}"
        return f"{text}; {self.fix}" if self.fix else text


def ok(name: str, found: str) -> Check:
    return Check(name, State.OK, found)


def note(name: str, found: str, fix: str = "") -> Check:
    return Check(name, State.NOTE, found, fix)


def fail(name: str, found: str, fix: str, code: ExitCode = ExitCode.UNFIT) -> Check:
    return Check(name, State.FAIL, found, fix, code)


def run_checks(checks: Iterable[tuple[str, Callable[[], Check]]]) -> Iterator[Check]:
    """Run named checks one after the other. What one cannot look at is its failure, not the end."""
    for name, look in checks:
        try:
            yield look()
        except HarnessError as error:
            yield Check(name, State.FAIL, str(error), code=error.exit_code)
        except OSError as error:
            yield fail(name, f"cannot be looked at: {error}", "see who may use that path")


def exit_code(checks: Sequence[Check]) -> ExitCode:
    """0 where nothing fails; else 3, unless all that fails is a missing tool (4) or a busy GPU."""
    codes = {check.code for check in checks if check.state is State.FAIL}
    if not codes:
        return ExitCode.OK
    return codes.pop() if len(codes) == 1 else ExitCode.UNFIT
