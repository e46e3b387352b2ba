"""A search as a command opens it: its archive, its regimes, its state, its proposer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.config import Workspace
from harness.controller.archive import Archive
from harness.controller.regimes import Regimes, freeze_regimes
from harness.controller.state import UNPROFILED, Profile
from harness.errors import RecordError
from harness.evaluate.verdicts import utc_now
from harness.files import KEEPS_RESULTS, require_writable
from harness.packing import pack
from harness.profiling.record import ProfileRow, find_profile, profile_path
from harness.records import RunRecord, latest, sole_writer
from harness.search.candidates import CandidateStore, read_room
from harness.search.declaration import load_declaration
from harness.search.evaluator import Evaluator
from harness.search.parameters import ParameterProposer
from harness.search.planning import Search, Settings
from harness.search.proposers import Proposer


@contextlib.contextmanager
def open_search(
    workspace: Workspace,
    room: str,
    settings: Settings,
    proposer: Proposer,
    evaluator: Evaluator,
    device: str,
    note: Callable[[str], None],
) -> Iterator[Search]:
    """Holds the room's archive. device: slug, of the recorded run that regimes come from.

    Raises HarnessError, DeviceBusy where another run holds the archive.
    """
    archive = Archive(workspace.root, room)
    require_writable(archive.folder, archive.lock.parent, advice=KEEPS_RESULTS)
    with sole_writer(archive.lock):
        run = _recorded_run(workspace, room, device)
        for text in stale_evidence(workspace, room, run):
            note(f"{room}: {text}")
        regimes = freeze_regimes(workspace.root, run)
        yield Search(
            workspace=workspace,
            room=room,
            settings=settings,
            proposer=proposer,
            evaluator=evaluator,
            profile=read_state(workspace.root, run, regimes),
            regimes=regimes,
            archive=archive,
            store=CandidateStore(workspace, room),
            clock=utc_now,
            note=note,
        )


def stale_evidence(workspace: Workspace, room: str, run: RunRecord) -> list[str]:
    """What a search starts from that was measured on other content than the room has now."""
    sha256 = pack(workspace, room).sha256
    profile = find_profile(workspace.root, run.device, room)
    measured = {"recorded sweep": run.solution_sha256}
    if profile is not None:
        measured["profile"] = profile.solution_sha256
    return [
        f"the {what} is of {found[:8]}, the room packs to {sha256[:8]}: it may have changed"
        for what, found in measured.items()
        if found != sha256
    ]


def parameter_proposer(
    workspace: Workspace, room: str, capability: tuple[int, int] | None
) -> ParameterProposer:
    """Of what runs on the device of the room's tuning.toml. Raises ConfigError and PackingError."""
    declaration = load_declaration(workspace.root, room, read_room(workspace, room))
    return ParameterProposer(declaration.on(capability))


def read_state(root: Path, run: RunRecord, regimes: Regimes) -> Profile:
    """The profile of the regime that most time is spent in; what the recorded run alone tells
    where there is no profile."""
    record = find_profile(root, run.device, run.room)
    rows = [row for row in record.workloads if row.latency_us is not None] if record else []
    if rows:
        row = max(rows, key=lambda row: (row.latency_us or 0.0) * row.regime_workloads)
        path = profile_path(root, run.device, run.room).relative_to(root)
        return _of_row(run.room, row, path.as_posix())
    heaviest = regimes.heaviest
    known = {row.uuid: row for row in run.workloads}
    row_us = [
        (found.latency_us, found.floor_us)
        for uuid in heaviest.uuids
        if (found := known.get(uuid)) and found.latency_us and found.floor_us
    ]
    floor_us = sum(floor for _, floor in row_us)
    headroom = sum(latency for latency, _ in row_us) / floor_us if floor_us else None
    return Profile(run.room, heaviest.label, headroom=headroom)


def _of_row(room: str, row: ProfileRow, source: str) -> Profile:
    return Profile(
        room=room,
        regime=row.regime,
        bottleneck=row.kind or UNPROFILED,
        dominant_kernel=row.dominant,
        dominant_share=row.dominant_share,
        limiting_resource=", ".join(row.limiters) if row.limiters else None,
        occupancy=row.kernel.achieved_occupancy,
        headroom=row.headroom,
        source=source,
    )


def _recorded_run(workspace: Workspace, room: str, device: str) -> RunRecord:
    record = latest(workspace.root, device, workspace.room(room).name)
    if record is None:
        raise RecordError(
            f"{room}: no recorded run on {device}, from which regimes and representatives come; "
            f"run `python -m harness evaluate {room} --record`"
        )
    return record
