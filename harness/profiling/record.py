"""What was profiled of one room on one device: a row a workload, as frozen values.

results/profiles/<device>/<room>.json holds a room's profiles, one workload a line. Reading is
strict: a key too many, a wrong type or a contradiction is an error that names file and key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.files import write_atomically
from harness.ncu import COUNTS, LaunchMetrics, longest
from harness.profiling.bottleneck import CLASSES, LIMITERS, Bottleneck, CallMetrics, classify
from harness.profiling.shares import KernelShare, base_name
from harness.records import (
    SHA256,
    DatasetIdentity,
    dump_document,
    read_json,
    read_subject,
)
from harness.records.strict_json import Fields, encode
from harness.roofline import COPY, LAUNCH, READ, Floor

COMMAND = "python -m harness profile ROOM --record"
SHARE_ERROR = 1e-6  # by which the shares of a call may miss 1
MAX_SHARE = 2.0  # of a peak: NCU adds up over passes, and a little over 1 is no damage
_ROOFS = (LAUNCH, READ, COPY, "bf16", "fp8")


@dataclass(frozen=True)
class ProfileRow:
    """One workload.

    regime, regime_workloads: the group it stands for, such as "batch_size 4", and that group's
    size. latency_us: CUPTI span, cold L2, median; None where it was not measured. floor_us, roof:
    the roofline's, None on a device without one. shares: Torch Profiler's, largest first.
    launches: NCU's, in order. no_shares, no_launches: why there are none. dominant: the kernel that
    takes most of the call, dominant_share: how much, None without shares. kind, limiters, reason:
    the bottleneck as it was classified then. measured_at: UTC.
    """

    uuid: str
    axes: Mapping[str, int]
    regime: str
    regime_workloads: int
    latency_us: float | None
    floor_us: float | None
    roof: str | None
    shares: tuple[KernelShare, ...] | None
    no_shares: str | None
    launches: tuple[LaunchMetrics, ...] | None
    no_launches: str | None
    dominant: str
    dominant_share: float | None
    kind: str | None
    limiters: tuple[str, ...] | None
    reason: str
    measured_at: str

    @property
    def headroom(self) -> float | None:
        """Measured latency over the floor; None where either is unknown."""
        known = self.latency_us is not None and self.floor_us is not None
        return self.latency_us / self.floor_us if known else None  # type: ignore[operator]

    @property
    def kernel(self) -> LaunchMetrics:
        """The longest launch of the dominant kernel; what the trace says of it without NCU."""
        return find_kernel(self.dominant, self.shares, self.launches)


@dataclass(frozen=True)
class ProfileRecord:
    """One room as one solution on one device, workloads in official order.

    device: slug. hardware: its full name. libraries: name to version.
    """

    room: str
    definition: str
    device: str
    hardware: str
    driver: str | None
    libraries: Mapping[str, str]
    commit: str
    solution_name: str
    solution_sha256: str
    dataset: DatasetIdentity
    workloads: tuple[ProfileRow, ...]

    def to_json(self) -> dict[str, Any]:
        """The record as strict JSON values, keys in the committed order."""
        encoded: dict[str, Any] = encode(asdict(self))
        return encoded

    @staticmethod
    def from_json(values: Any, source: str = "profile record") -> ProfileRecord:
        """Check every key and value. Raises RecordError naming source and key."""
        return _read_record(Fields(source, "", values))


@dataclass(frozen=True)
class DeviceLimits:
    """What a class depends on besides the call. launch_us, sm_count: see CallMetrics."""

    launch_us: float | None
    sm_count: int | None


def find_dominant(
    shares: Sequence[KernelShare] | None, launches: Sequence[LaunchMetrics] | None
) -> tuple[str, float | None]:
    """Bare name of the kernel that takes most of the call, and its share where that is known.

    Without shares, by NCU's durations: no share, as they leave out what is no kernel.
    """
    if shares:
        times: dict[str, float] = {}
        for one in shares:
            times[base_name(one.name)] = times.get(base_name(one.name), 0.0) + one.share
        return max(times.items(), key=lambda item: item[1])
    durations: dict[str, float] = {}
    for launch in launches or ():
        name = base_name(launch.name)
        durations[name] = durations.get(name, 0.0) + (launch.duration_us or 0.0)
    return max(durations, key=lambda name: durations[name]), None


def find_kernel(
    dominant: str,
    shares: Sequence[KernelShare] | None,
    launches: Sequence[LaunchMetrics] | None,
) -> LaunchMetrics:
    """The longest launch of a kernel as NCU saw it, else what Torch Profiler's trace says of it."""
    found = longest([one for one in launches or () if base_name(one.name) == dominant])
    if found is not None:
        return found
    for one in shares or ():
        if base_name(one.name) == dominant:
            return LaunchMetrics(
                name=one.name,
                grid_blocks=one.grid_blocks,
                block_threads=one.block_threads,
                registers_per_thread=one.registers_per_thread,
                shared_bytes_per_block=one.shared_bytes_per_block,
            )
    return LaunchMetrics(name=dominant)


def complete(row: ProfileRow, limits: DeviceLimits) -> ProfileRow:
    """The row with its dominant kernel and bottleneck found anew from its evidence."""
    dominant, share = find_dominant(row.shares, row.launches)
    metrics = CallMetrics(
        latency_us=row.latency_us,
        busy_us=sum(one.time_us for one in row.shares) if row.shares else None,
        launches=sum(one.launches for one in row.shares) if row.shares else None,
        launch_us=limits.launch_us,
        sm_count=limits.sm_count,
        kernel=find_kernel(dominant, row.shares, row.launches),
    )
    has_floor = row.floor_us is not None and row.roof is not None
    floor = Floor(row.floor_us, row.roof) if has_floor else None  # type: ignore[arg-type]
    found: Bottleneck = classify(metrics, floor)
    return replace(
        row,
        dominant=dominant,
        dominant_share=share,
        kind=found.kind,
        limiters=found.limiters,
        reason=found.reason,
    )


def merge(
    old: ProfileRecord | None, new: ProfileRecord, order: Sequence[str], limits: DeviceLimits
) -> ProfileRecord:
    """`new`, with the workloads that only `old` has, and with `old`'s evidence where `new` lacks
    one kind of it. Nothing is kept of another solution, device or data set.

    order: the room's workloads. Where `new` names no driver, it was imported, and `old` says what
    the machine was.
    """
    if old is None or _identity(old) != _identity(new):
        return new
    rows = {row.uuid: row for row in old.workloads}
    for row in new.workloads:
        before = rows.get(row.uuid)
        rows[row.uuid] = row if before is None else complete(_fill(row, before), limits)
    ordered = tuple(rows[uuid] for uuid in order if uuid in rows)
    return replace(old if new.driver is None else new, workloads=ordered)


def _identity(record: ProfileRecord) -> tuple[str, ...]:
    return record.room, record.device, record.solution_sha256, record.dataset.sha256


def _fill(row: ProfileRow, before: ProfileRow) -> ProfileRow:
    if row.shares is None and before.shares is not None:
        row = replace(row, shares=before.shares, no_shares=None)
    if row.launches is None and before.launches is not None:
        row = replace(row, launches=before.launches, no_launches=None)
    if row.latency_us is None:
        row = replace(row, latency_us=before.latency_us)
    return row


def profile_path(root: Path, device: str, room: str) -> Path:
    return root / "results" / "profiles" / device / f"{room}.json"


def load_profile(path: Path) -> ProfileRecord:
    """Read one record. Raises RecordError naming file and key."""
    record = ProfileRecord.from_json(read_json(path, COMMAND), str(path))
    if (record.device, record.room) != (path.parent.name, path.stem):
        raise RecordError(
            f"{path}: holds {record.room} on {record.device}; expected what its path says"
        )
    return record


def find_profile(root: Path, device: str, room: str) -> ProfileRecord | None:
    """A room's profiles on a device, or None where there are none. Raises RecordError."""
    path = profile_path(root, device, room)
    return load_profile(path) if path.exists() else None


def all_profiles(root: Path) -> list[ProfileRecord]:
    """Every record under results/profiles, sorted by path. Raises RecordError."""
    return [load_profile(path) for path in sorted((root / "results/profiles").glob("*/*.json"))]


def write_profile(record: ProfileRecord, root: Path) -> Path:
    """Replace a room's profiles on its device. Raises RecordError if it contradicts itself."""
    path = profile_path(root, record.device, record.room)
    checked = ProfileRecord.from_json(record.to_json(), str(path))
    write_atomically(path, dump_document(checked.to_json(), ("workloads",)))
    return path


def _read_record(table: Fields) -> ProfileRecord:
    dataset = table.object("dataset")
    record = ProfileRecord(
        **read_subject(table),
        hardware=table.text("hardware"),
        dataset=DatasetIdentity(dataset.text("name"), dataset.text("sha256", SHA256)),
        workloads=tuple(
            _read_row(Fields(table.source, f"workloads[{index}]", values))
            for index, values in enumerate(table.take("workloads", list))
        ),
    )
    dataset.done()
    table.done()
    uuids = [row.uuid for row in record.workloads]
    if not uuids or len(set(uuids)) < len(uuids):
        raise table.fail("workloads", "at least one, each once", uuids)
    return record


def _read_row(table: Fields) -> ProfileRow:
    limiters = None if table.is_null("limiters") else tuple(table.take("limiters", list))
    row = ProfileRow(
        uuid=table.text("uuid"),
        axes=table.take("axes", dict),
        regime=table.text("regime"),
        regime_workloads=table.count("regime_workloads", 1),
        latency_us=table.positive("latency_us"),
        floor_us=table.positive("floor_us"),
        roof=_optional_text(table, "roof"),
        shares=_read_list(table, "shares", _read_share),
        no_shares=_optional_text(table, "no_shares"),
        launches=_read_list(table, "launches", _read_launch),
        no_launches=_optional_text(table, "no_launches"),
        dominant=table.text("dominant"),
        dominant_share=_optional_number(table, "dominant_share", 1.0 + SHARE_ERROR),
        kind=_optional_text(table, "kind"),
        limiters=limiters,
        reason=table.text("reason"),
        measured_at=table.moment("measured_at"),
    )
    table.done()
    _require_consistent(table, row)
    return row


def _require_consistent(table: Fields, row: ProfileRow) -> None:
    if not all(type(size) is int and size >= 0 for size in row.axes.values()):
        raise table.fail("axes", "sizes", row.axes)
    if row.kind is not None and row.kind not in CLASSES:
        raise table.fail("kind", f"one of {', '.join(CLASSES)}, or null", row.kind)
    if any(name not in LIMITERS for name in row.limiters or ()):
        raise table.fail("limiters", f"some of {', '.join(LIMITERS)}, or null", row.limiters)
    if (row.floor_us is None) != (row.roof is None) or row.roof not in (None, *_ROOFS):
        raise table.fail("roof", f"one of {', '.join(_ROOFS)} beside a floor", row.roof)
    for key, found, missing in (
        ("no_shares", row.shares, row.no_shares),
        ("no_launches", row.launches, row.no_launches),
    ):
        if (found is None) != (missing is not None):
            raise table.fail(key, "a reason where nothing was measured, and only there", missing)
    if row.shares is None and row.launches is None:
        raise table.fail("shares", "shares or launches", None)
    total = sum(one.share for one in row.shares or ())
    if row.shares is not None and abs(total - 1.0) > SHARE_ERROR:
        raise table.fail("shares", "shares that add up to 1", total)
    if (row.dominant, row.dominant_share) != find_dominant(row.shares, row.launches):
        raise table.fail("dominant", "the kernel that takes most of the call", row.dominant)


def _read_share(table: Fields) -> KernelShare:
    share = KernelShare(
        name=table.text("name"),
        launches=table.count("launches", 1),
        time_us=table.number("time_us", 0.0),
        share=table.number("share", 0.0, 1.0),
        grid_blocks=_optional_count(table, "grid_blocks"),
        block_threads=_optional_count(table, "block_threads"),
        registers_per_thread=_optional_count(table, "registers_per_thread"),
        shared_bytes_per_block=_optional_count(table, "shared_bytes_per_block"),
    )
    table.done()
    return share


def _read_launch(table: Fields) -> LaunchMetrics:
    values: dict[str, Any] = {"name": table.text("name")}
    for field in fields(LaunchMetrics):
        if field.name in COUNTS:
            values[field.name] = _optional_count(table, field.name)
        elif field.name in ("duration_us", "waves_per_sm"):
            values[field.name] = _optional_number(table, field.name)
        elif field.name != "name":
            values[field.name] = _optional_number(table, field.name, MAX_SHARE)
    table.done()
    return LaunchMetrics(**values)


def _read_list(table: Fields, key: str, read: Any) -> Any:
    if table.is_null(key):
        return None
    values = table.take(key, list)
    if not values:
        raise table.fail(key, "at least one, or null", values)
    return tuple(
        read(Fields(table.source, f"{table.label}.{key}[{index}]", one))
        for index, one in enumerate(values)
    )


def _optional_text(table: Fields, key: str) -> str | None:
    return None if table.is_null(key) else table.text(key)


def _optional_count(table: Fields, key: str) -> int | None:
    return None if table.is_null(key) else table.count(key)


def _optional_number(table: Fields, key: str, high: float = float("inf")) -> float | None:
    return None if table.is_null(key) else table.number(key, 0.0, high)
