"""What a sweep shows: a live bar on a terminal, one plain line per finished workload elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from harness.evaluate.protocol import Outcome, Stage, Status
from harness.records import format_us
from harness.records.printable import printable

SLOW_S = 30.0  # from here on a workload is named before it has finished


class _Console(Console):
    """Raises BrokenPipeError where rich would end the program with 1, which is a verdict here."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("standard output: its reader left before the end")


class SweepProgress:
    """Prints a sweep as it goes. Whether `stream` is a terminal decides the form, not the
    environment: FORCE_COLOR in a CI log must not bring control codes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = stream or sys.stdout
        self._live = stream.isatty()
        self.console = _Console(
            file=stream, force_terminal=self._live, no_color=None if self._live else True,
            highlight=False, soft_wrap=True,
        )  # fmt: skip
        self._bar: Progress | None = None
        self._tasks: dict[str, Any] = {}
        self._room = ""
        self._totals: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._label = ""
        self._slow: threading.Timer | None = None

    def __enter__(self) -> SweepProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._slow is not None:
            self._slow.cancel()
        self._stop_bar()

    def note(self, text: str) -> None:
        """One line that is not about a workload. It may name what others chose."""
        self.console.print(printable(text).replace("\n", " "), markup=False)

    def room_started(self, room: str, total: int, reused: int, solution: str) -> None:
        self._room, self._totals[room], self._done[room] = room, total, 0
        again = f", {reused} already judged" if reused else ""
        workloads = "1 workload" if total == 1 else f"{total} workloads"
        self.note(f"{room}: {workloads}{again}, solution {solution}")
        if self._live:
            if self._bar is None:
                self._bar = Progress(
                    TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                    TimeElapsedColumn(), console=self.console, transient=True,
                )  # fmt: skip
                self._bar.start()
            self._tasks[room] = self._bar.add_task(room, total=total)

    def focus(self, room: str) -> None:
        """The room, started before, that the next workload belongs to."""
        self._room = room

    def workload_started(self, uuid: str, timeout_s: int) -> None:
        self._label = f"{self._room} {uuid[:8]} (limit {timeout_s} s)"
        if not self._live:
            self._slow = threading.Timer(SLOW_S, self._note_slow, [self._label])
            self._slow.daemon = True
            self._slow.start()

    def _note_slow(self, label: str) -> None:
        with contextlib.suppress(OSError):  # the sweep's own next line meets the same error
            self.note(f"{label} still runs after {SLOW_S:.0f} s")

    def stage(self, stage: Stage) -> None:
        if self._bar is not None:
            self._bar.update(self._tasks[self._room], description=f"{self._label} {stage.value}")

    def workload_finished(self, uuid: str, axes: str, outcome: Outcome, reused: bool) -> None:
        latency = f"  {format_us(outcome.latency_us)} us" if outcome.latency_us else ""
        if outcome.reference_latency_us:
            latency += f" (reference {format_us(outcome.reference_latency_us)} us)"
        notes = [outcome.detail] if outcome.detail else []
        if outcome.status is not Status.PASSED:
            notes += [f"| {text}" for text in outcome.log.strip().splitlines()[-6:]]
        self.row_finished(uuid, f"{axes}  {outcome.status.value}{latency}", notes, reused)

    def row_finished(self, uuid: str, text: str, notes: Sequence[str], reused: bool) -> None:
        """The line of one workload, and what explains it below."""
        room = self._room
        self._done[room] += 1
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
        again = "  (reused)" if reused else ""
        self.note(f"{room} {self._done[room]}/{self._totals[room]} {uuid[:8]} {text}{again}")
        for line in notes:
            self.note(f"    {line}")
        if self._bar is not None:
            is_last = self._done[room] == self._totals[room]
            self._bar.update(self._tasks[room], advance=1, description=room, visible=not is_last)

    def summary(self, rows: list[tuple[str, ...]], note: str) -> None:
        """The last thing printed: one row a room."""
        self._stop_bar()
        table = Table("room", "passed", "mean us", "median us", "p95 us", "solution", box=None)
        for row in rows:
            table.add_row(*row)
        self.console.print(table)
        self.console.print(note, markup=False)

    def _stop_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
