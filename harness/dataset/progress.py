"""Progress of long dataset commands: a bar on a terminal, a plain line a room elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TextIO

from harness.dataset.generation import Made, Progress

STILL_HERE_S = 30.0  # a line at least so often while blobs are made


@dataclass
class _Tally:
    """What was made so far, by room."""

    stream: TextIO
    rooms: dict[str, list[Made]] = field(default_factory=dict)
    said_s: float = field(default_factory=time.monotonic)

    def count(self, made: Made) -> None:
        self.rooms.setdefault(made.room, []).append(made)
        now = time.monotonic()
        if now - self.said_s >= STILL_HERE_S and made.index < made.total:
            self.said_s = now
            self._say(f"{made.index} of {made.total} blobs")

    def conclude(self) -> None:
        for room, blobs in self.rooms.items():
            size_mb = sum(one.size_bytes for one in blobs) / 1e6
            seconds = sum(one.seconds for one in blobs)
            count = "1 blob" if len(blobs) == 1 else f"{len(blobs)} blobs"
            self._say(f"{room}: {count} made, {size_mb:.1f} MB, {seconds:.1f} s of one core")

    def _say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


@contextlib.contextmanager
def show_progress(stream: TextIO | None = None) -> Iterator[Progress]:
    """A callback for `make` and `export` that writes to ``stream`` (stderr).

    Off a terminal each room has one line when all is made, or was interrupted.
    """
    stream = stream or sys.stderr
    if not stream.isatty():
        tally = _Tally(stream)
        try:
            yield tally.count
        finally:
            tally.conclude()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, TimeRemainingColumn(), console=Console(file=stream)) as bar:
        task = bar.add_task("blobs", total=None)

        def advance(made: Made) -> None:
            description = f"{made.room} {made.uuid[:8]}"
            bar.update(task, completed=made.index, total=made.total, description=description)

        yield advance
