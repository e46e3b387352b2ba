"""Candidates from any program: it is given a prompt file and leaves a patch."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.config import Workspace
from harness.controller.directions import CATALOGUE, Direction
from harness.errors import PackingError, UsageError
from harness.files import PARTIAL_MARK
from harness.packing.folders import SHELF
from harness.search.candidates import Proposal
from harness.search.guard import checkout_unchanged
from harness.search.patches import apply_patch
from harness.search.prompt import PATCH_NAME, write_prompt
from harness.search.proposers import Plan

PROMPT_NAME = "prompt.md"
DEFAULT_TIMEOUT_S = 1800.0
LOG_CHARACTERS = 400


class CommandProposer:
    """Runs a command once a candidate, in a folder with the prompt and a copy of the sources.

    The prompt's path is the command's last argument. The folder goes away afterwards: only the
    patch counts, and it is applied to the parent anew.
    """

    def __init__(
        self, workspace: Workspace, command: str, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        self._workspace, self._timeout_s = workspace, timeout_s
        self._command = shlex.split(command)
        if not self._command:
            raise UsageError("command: expected a program and its arguments, got nothing")

    def describe(self) -> str:
        return f"command {shlex.join(self._command)}"

    @property
    def directions(self) -> Sequence[Direction]:
        return CATALOGUE

    def propose(self, plan: Plan) -> Iterator[Proposal]:
        for number in range(plan.count):
            parent, note = plan.parent.sha256, f"answer {number + 1}"
            try:
                with checkout_unchanged(self._workspace.root):
                    patch = self._ask(plan)
                sources = apply_patch(self._workspace, plan.room, plan.parent.sources, patch)
            except PackingError as error:
                yield Proposal(None, parent, note=note, refused=str(error))
            else:
                yield Proposal(sources, parent, note=note)

    def _ask(self, plan: Plan) -> str:
        """The patch that the command leaves. Raises PackingError where it leaves none."""
        with tempfile.TemporaryDirectory(prefix="harness-search-") as name:
            folder = Path(name)
            self._lay_out(plan, folder)
            prompt = folder / PROMPT_NAME
            prompt.write_text(write_prompt(plan), encoding="utf-8")
            with tempfile.TemporaryFile() as log:
                code = self._run(folder, prompt, log.fileno())
                log.seek(0)
                words = " ".join(log.read().decode(errors="replace").split())[-LOG_CHARACTERS:]
            if code != 0:
                ended = "took too long" if code is None else f"ended with code {code}"
                raise PackingError(f"the command {ended}: {words or 'it said nothing'}")
            try:
                return (folder / PATCH_NAME).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise PackingError(f"the command left no {PATCH_NAME} that can be read") from error

    def _lay_out(self, plan: Plan, folder: Path) -> None:
        room = folder / "solutions" / plan.room
        room.mkdir(parents=True)
        for name, text in plan.parent.sources.items():
            (room / name).write_bytes(text.encode())
        shelf = self._workspace.root / "solutions" / SHELF
        (folder / "solutions" / SHELF).mkdir()
        for path in shelf.iterdir() if shelf.is_dir() else ():
            if path.is_file() and PARTIAL_MARK not in path.name:
                (folder / "solutions" / SHELF / path.name).write_bytes(path.read_bytes())

    def _run(self, folder: Path, prompt: Path, log: int) -> int | None:
        """The exit code; None where the time is over. What it started ends with it."""
        try:
            process = subprocess.Popen(
                [*self._command, str(prompt)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"{self._command[0]}: cannot be started: {error.strerror}") from error
        try:
            return process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
