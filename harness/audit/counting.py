"""NCU's durations of several calls at once: a process costs more than all calls that it looks at.

Workers leave files of calls in a folder; `count` asks for all that have gathered there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.audit.sanitizers import Runner
from harness.ncu import (
    ABSENT,
    DURATION,
    LaunchMetrics,
    NcuDenied,
    NcuUnreadable,
    durations_us,
    find_ncu,
    ncu_command,
    read_csv,
    read_log,
)

CALLS = "harness.audit.counted_calls"
CALLS_VARIABLE = "HARNESS_TIMED_CALLS"  # the folder that a worker leaves its calls in
MARKER = "spin_kernel"  # what torch.cuda._sleep launches
MOST_GATHERED_BYTES = 4 << 30  # on the disk; moe's weights are 1.4 GB a call


class CallCounter:
    """missing: why NCU is asked no more, None while it is: it is not installed, the host denied the
    counters, or its table could not be read, as it would be the next time."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], root: Path, run: Runner
    ) -> None:
        self._folder, self._environment, self._root, self._run = folder, environment, root, run
        self._program = find_ncu()
        self._calls: list[str] = []
        self.missing = None if self._program else ABSENT

    def gather(self, uuid: str) -> bool:
        """Note that a worker has left `<uuid>.pt`. Whether it is time to count."""
        self._calls.append(uuid)
        if self.missing is not None:
            return True
        sizes = (path.stat().st_size for path in self._folder.glob("*.pt"))
        return sum(sizes) >= MOST_GATHERED_BYTES

    def count(self) -> dict[str, tuple[float, ...] | str]:
        """What has gathered: durations in µs of each call's kernels, or why there are none."""
        calls, self._calls = sorted(self._calls), []
        found: dict[str, tuple[float, ...] | str] = {}
        if calls and self._program is not None and self.missing is None:
            try:
                found.update(zip(calls, self._ask(self._program, len(calls)), strict=False))
                if len(found) < len(calls):
                    self.missing = f"NCU saw {len(found)} of {len(calls)} calls"
            except (NcuDenied, NcuUnreadable) as error:
                self.missing = str(error)
        for path in self._folder.glob("*.pt"):
            path.unlink()
        return {uuid: found.get(uuid, self.missing or ABSENT) for uuid in calls}

    def _ask(self, program: str, count: int) -> list[tuple[float, ...]]:
        log = self._folder / "ncu.log"
        command = ncu_command(program, log, CALLS, self._folder, (DURATION,))
        text = read_log(lambda: self._run(command, self._environment, self._root)[1], log)
        return [durations_us(call) for call in split_calls(read_csv(text), count)]


def split_calls(launches: Sequence[LaunchMetrics], count: int) -> list[list[LaunchMetrics]]:
    """The launches of each call, between the markers. Of fewer than `count` calls the last one is
    left out: its program ended in it. Raises NcuUnreadable where a call launches nothing."""
    calls: list[list[LaunchMetrics]] = []
    for launch in launches:
        if MARKER in launch.name:
            calls.append([])
        elif calls:
            calls[-1].append(launch)
        else:
            raise NcuUnreadable(f"ncu: expected the marker {MARKER} first, got {launch.name}")
    if len(calls) > count:
        raise NcuUnreadable(f"ncu: expected {count} markers at most, got {len(calls)}")
    whole = calls if len(calls) == count else calls[:-1]
    if not all(whole):
        raise NcuUnreadable("ncu: no kernel was profiled behind a marker")
    return whole
