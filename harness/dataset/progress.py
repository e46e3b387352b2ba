"""Progress of long dataset commands: a bar on a terminal, a plain line per item elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TextIO

from harness.dataset.generation import Made, Progress


def describe(made: Made) -> str:
    """One line: position, room, UUID, size and time."""
    return (
        f"[{made.index}/{made.total}] {made.room} {made.uuid} "
        f"{made.size_bytes / 1e6:.1f} MB in {made.seconds:.1f} s"
    )


@contextlib.contextmanager
def show_progress(stream: TextIO | None = None) -> Iterator[Progress]:
    """A callback for `make`, `ensure_blobs` and `export` that writes to ``stream`` (stderr)."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield lambda made: print(describe(made), file=stream, flush=True)
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
