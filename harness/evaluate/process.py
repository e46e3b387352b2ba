"""One worker process as its parent sees it: two pipes, a log file, and how it ends. No torch."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.evaluate.protocol import Stage
from harness.evaluate.secrecy import without_secrets
from harness.evaluate.strays import MARK, kill_descendants, kill_strays, make_mark

KILL_WAIT_S = 5.0
READ_BYTES = 1 << 16
MESSAGE_LIMIT_BYTES = 1 << 22
LIFE_CHECK_S = 1.0
LOG_TAIL_BYTES = 8192
LOG_LIMIT_BYTES = 64 << 20  # of the disk, a worker's log
GO = b"\n"


class WorkerGone(Exception):
    """The worker ended without an answer. returncode as subprocess gives it."""

    def __init__(self, returncode: int | None) -> None:
        super().__init__(_describe_exit(returncode))


class TooLate(Exception):
    """The deadline passed."""


class Garbled(Exception):
    """Something else than the worker wrote into its pipe."""

    def __init__(self, words: str = "the judge's pipe holds what no judge wrote") -> None:
        super().__init__(words)


class WorkerProcess:
    """One process, its two pipes and its log file.

    waits: it does nothing on the device until begin() is called.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        device: str,
        root: Path,
        waits: bool = False,
    ) -> None:
        self.stage = Stage.START
        self.is_ready = self.has_judged = False
        self._waits = waits
        self._mark = make_mark()
        self._log = tempfile.TemporaryFile(prefix="harness-worker-")  # noqa: SIM115
        child_read, self._write_fd = os.pipe()
        self._read_fd, child_write = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*argv, str(child_read), str(child_write), device],
                cwd=root,
                env={**without_secrets(environment), MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(child_read, child_write),
                start_new_session=True,  # so that one signal reaches whatever the worker started
            )
        except BaseException:
            self._log.close()
            os.close(self._write_fd)
            os.close(self._read_fd)
            raise
        finally:
            os.close(child_read)
            os.close(child_write)
        os.set_blocking(self._write_fd, False)
        self._pending = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._read_fd, selectors.EVENT_READ)

    def alive(self) -> bool:
        return self._process.poll() is None

    def begin(self) -> None:
        """Let a process that waits go on to the device; one that has gone shows it in receive."""
        if self._waits:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._write_fd, GO)
            self._waits = False

    def send(self, message: dict[str, Any], deadline: float) -> None:
        data = json.dumps(message).encode() + b"\n"
        with selectors.DefaultSelector() as writable:
            writable.register(self._write_fd, selectors.EVENT_WRITE)
            while data:
                if not writable.select(max(0.0, deadline - time.monotonic())):
                    raise TooLate
                try:
                    data = data[os.write(self._write_fd, data) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError as error:
                    raise WorkerGone(self._returncode()) from error

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next message. Raises TooLate or WorkerGone."""
        while b"\n" not in self._pending:
            left_s = deadline - time.monotonic()
            if left_s <= 0.0:
                raise TooLate
            if not self._selector.select(min(left_s, LIFE_CHECK_S)):
                if not self.alive():  # a process that it started holds the pipe open
                    raise WorkerGone(self._returncode())
                self._bound_log()
                continue
            data = os.read(self._read_fd, READ_BYTES)
            if not data:
                raise WorkerGone(self._returncode())
            self._pending += data
            if len(self._pending) > MESSAGE_LIMIT_BYTES:
                raise Garbled()
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Garbled() from error
        return message if isinstance(message, dict) else {}

    def _returncode(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_WAIT_S)
        return self._process.poll()

    def log_tail(self) -> str:
        return self._read_tail()[1].decode("utf-8", errors="replace")

    def _read_tail(self) -> tuple[int, bytes]:
        """The end of the log, and where it begins."""
        begin = max(0, os.fstat(self._log.fileno()).st_size - LOG_TAIL_BYTES)
        return begin, os.pread(self._log.fileno(), LOG_TAIL_BYTES, begin)

    def _bound_log(self) -> None:
        """Give back the disk under all but the end of a log that grows without end."""
        descriptor = self._log.fileno()
        if os.fstat(descriptor).st_blocks * 512 > LOG_LIMIT_BYTES:
            begin, tail = self._read_tail()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, tail, begin)  # the worker's own position stays: a hole before it

    def kill(self) -> None:
        """SIGKILL all that it started: a solution may ignore anything softer."""
        if self.alive():
            self._process.send_signal(signal.SIGSTOP)  # it can start nothing more
            kill_descendants(self._process.pid, KILL_WAIT_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_WAIT_S)
        kill_strays(self._mark, KILL_WAIT_S)
        self._selector.close()
        for descriptor in (self._read_fd, self._write_fd):
            os.close(descriptor)
        self._log.close()


def _describe_exit(returncode: int | None) -> str:
    if returncode is None:
        return "the worker closed its pipe"
    if returncode < 0:
        known = {each.value: each.name for each in signal.Signals}
        return f"the worker was killed by {known.get(-returncode, f'signal {-returncode}')}"
    return f"the worker exited with code {returncode}"
