"""Everything a report is made of, read once from the checkout. What follows is pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import dataset, roofline
from harness.compare.analysis import Comparison, OfficialScore, analyse, official_score
from harness.compare.ledger import CompareLedger
from harness.compare.plan import official_objection
from harness.compare.published import PUBLISHED, Published, read_published
from harness.compare.record import CONTROL, CompareRecord, Side, all_compare
from harness.config import Workspace
from harness.controller import archive as archive_files
from harness.controller.decision import PROMOTE
from harness.controller.index import archives
from harness.dataset import content_sha256, read_workloads
from harness.errors import HarnessError
from harness.packing import list_peers, pack_peer
from harness.profiling.record import ProfileRecord, all_profiles
from harness.records import RunRecord, TraceEntry, TraceLedger, all_latest, latest_objection, load
from harness.replay.record import ReplayRecord, all_replays
from harness.report.logs import one_line
from harness.roofline import Work
from harness.search.trajectory import Searched, read_searches

RoomData = tuple[str, str]  # a room, and the sha256 of the workload data that it was measured on
SideWorkload = tuple[str, str, str]  # a room, a side of its comparison, and a workload's UUID

DECISIONS = "results/search/*/decisions.jsonl"


@dataclass(frozen=True)
class Compared:
    """One comparison that has a side of the room itself. others: that side, called `ours`, against
    every side but the control, in the record's order. objection: why no score may be computed from
    it, or None."""

    record: CompareRecord
    ours: Side
    others: tuple[Comparison, ...]
    objection: str | None = None

    def tried(self) -> list[Comparison]:
        """Those whose other side ran, in the record's order."""
        return [other for other in self.others if self.side(other.b).state != "missing"]

    def official(self) -> OfficialScore:
        """S_d of the room on the record's device."""
        if self.objection is not None:
            return OfficialScore(None, self.objection, None)
        return official_score(self.others)

    def side(self, name: str) -> Side:
        return next(side for side in self.record.sides if side.name == name)


@dataclass(frozen=True)
class Evidence:
    """packed: content hash of each room now, None where it does not pack. packed_peers: the same
    of (room, library). latest: last full sweeps. runs: every recorded run. promoted: (room,
    content hash) pairs; None where nothing was searched. compared: by room. verdicts: the last one
    on each workload of the content that `latest` records. side_logs: what failed sides of a
    comparison printed, of the content that it records. work: bytes and flops of each workload of a
    room and data set, by UUID; without_work: why such a pair has none. published: what others
    measured on another chip, by UUID. replayed: by room. profiled: by device and room. searched:
    by room. unofficial: why a sweep of `latest` is no full official one, by (room, device)."""

    workspace: Workspace
    packed: Mapping[str, str | None]
    packed_peers: Mapping[tuple[str, str], str | None]
    latest: tuple[RunRecord, ...]
    runs: tuple[RunRecord, ...]
    promoted: frozenset[tuple[str, str]] | None
    compared: Mapping[str, Compared]
    verdicts: tuple[TraceEntry, ...]
    side_logs: Mapping[SideWorkload, str]
    work: Mapping[RoomData, Mapping[str, Work]]
    without_work: Mapping[RoomData, str]
    published: Mapping[str, Published]
    replayed: Mapping[str, ReplayRecord] = field(default_factory=dict)
    profiled: tuple[ProfileRecord, ...] = ()
    searched: tuple[Searched, ...] = ()
    unofficial: Mapping[tuple[str, str], str] = field(default_factory=dict)


def gather(
    workspace: Workspace,
    packed: Mapping[str, str | None],
    note: Callable[[str], None] = lambda line: None,
) -> Evidence:
    """Read the checkout's records and what this machine has of traces and workload data.

    note: takes a line for each room whose workload data is about to be made. Raises RecordError for
    a damaged record; missing ones are missing.
    """
    root = workspace.root
    latest = tuple(record for record in all_latest(root) if record.room in workspace.rooms)
    compared = read_compared(workspace)
    work, without_work = _count_work(workspace, latest, note)
    return Evidence(
        workspace=workspace,
        packed=packed,
        packed_peers=pack_peers(workspace),
        latest=latest,
        runs=tuple(_read_runs(workspace)),
        promoted=read_promotions(root),
        compared=compared,
        verdicts=tuple(entry for record in latest for entry in _last_verdicts(root, record)),
        side_logs={
            key: log
            for one in compared.values()
            for key, log in _read_side_logs(root, one.record).items()
        },
        work=work,
        without_work=without_work,
        published=read_published(root) if (root / PUBLISHED).exists() else {},
        replayed={record.room: record for record in all_replays(root)},
        profiled=tuple(one for one in all_profiles(root) if one.room in workspace.rooms),
        searched=tuple(one for one in read_searches(root) if one.room in workspace.rooms),
        unofficial=list_unofficial(root, latest),
    )


def list_unofficial(root: Path, records: Sequence[RunRecord]) -> dict[tuple[str, str], str]:
    """Why a latest sweep is no full official one of today, by (room, device)."""
    found = {(one.room, one.device): latest_objection(one, root) for one in records}
    return {key: objection for key, objection in found.items() if objection is not None}


def read_promotions(root: Path) -> frozenset[tuple[str, str]] | None:
    """(room, content hash) of every promotion of a search; None where nothing was searched."""
    lines = [
        (archive.room, line)
        for archive in archives(root)
        for line in archive.lines(archive_files.DECISIONS).values()
    ]
    found = {(room, str(line["sha256"])) for room, line in lines if line["label"] == PROMOTE}
    return frozenset(found) if lines else None


def pair_with_others(record: CompareRecord, objection: str | None = None) -> Compared | None:
    """None where the room itself was no side."""
    ours = next((side for side in record.sides if side.kind == "room"), None)
    if ours is None:
        return None
    names = [side.name for side in record.sides if side.name not in (ours.name, CONTROL)]
    others = tuple(analyse(record, ours.name, name) for name in names)
    return Compared(record, ours, others, objection)


def read_compared(workspace: Workspace) -> dict[str, Compared]:
    """The recorded comparison of each room that was a side of it itself. Raises RecordError."""
    return {
        record.room: found
        for record in all_compare(workspace.root)
        if record.room in workspace.rooms
        and (found := pair_with_others(record, official_objection(workspace, record))) is not None
    }


def pack_peers(workspace: Workspace) -> dict[tuple[str, str], str | None]:
    """Content hash of every peer file as it packs now; None where it does not."""
    hashes: dict[tuple[str, str], str | None] = {}
    for room in workspace.rooms:
        for library in list_peers(workspace, room):
            try:
                hashes[room, library] = pack_peer(workspace, room, library).packed.sha256
            except HarnessError:
                hashes[room, library] = None
    return hashes


def _read_runs(workspace: Workspace) -> list[RunRecord]:
    paths = sorted((workspace.root / "results" / "runs").glob("*/*/*.json"))
    return [load(path) for path in paths if path.parent.name in workspace.rooms]


def _last_verdicts(root: Path, record: RunRecord) -> list[TraceEntry]:
    """The newest trace of each workload of the content that `record` was measured on, in the
    record's order; nothing where this machine keeps no traces of it."""
    last = {
        entry.uuid: entry
        for entry in TraceLedger.of(root, record.device, record.room).entries()
        if entry.solution_sha256 == record.solution_sha256
    }
    return [last[row.uuid] for row in record.workloads if row.uuid in last]


def _read_side_logs(root: Path, record: CompareRecord) -> dict[SideWorkload, str]:
    """The newest log of each failed side and workload; nothing where this machine keeps none."""
    contents = {side.name: side.solution_sha256 for side in record.sides}
    return {
        (record.room, name, entry.key.uuid): log
        for entry in CompareLedger.of(root, record.device, record.room).entries()
        for name, log in entry.logs.items()
        if log and dict(entry.key.sides)[name] == contents.get(name)
    }


def _count_work(
    workspace: Workspace, records: Sequence[RunRecord], note: Callable[[str], None]
) -> tuple[dict[RoomData, dict[str, Work]], dict[RoomData, str]]:
    """Work of every workload of the measured rooms, and why a room has none.

    Counted from the very data that was measured: another set's tensors are other work. A checkout
    makes those that it lacks, so that its report is the same with and without them before.
    """
    counted: dict[RoomData, dict[str, Work]] = {}
    reasons: dict[RoomData, str] = {}
    for name, sha256 in dict.fromkeys((record.room, record.dataset.sha256) for record in records):
        room = workspace.room(name)
        try:
            source = dataset.locate(workspace)
            if content_sha256(source, room) != sha256:
                reasons[name, sha256] = "measured on other workload data than this machine holds"
                continue
            rows = read_workloads(source, room)
            if roofline.needs_data(room.definition):
                absent = sum(
                    not (source / path).is_file() for row in rows for path in row.blob_paths
                )
                if absent and dataset.is_checkout(source):
                    note(
                        f"{name}: {absent} files of workload data are missing and made in "
                        f"{source / 'blob'}: the roofline counts from them"
                    )
                dataset.ensure_blobs(source, room, rows)
            counted[name, sha256] = {
                row.uuid: roofline.count_work(
                    room.definition,
                    row.axes,
                    roofline.read_data(room.definition, row.inputs, source),
                )
                for row in rows
            }
        except HarnessError as error:
            reasons[name, sha256] = one_line(str(error))
    return counted, reasons
