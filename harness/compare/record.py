"""One comparison of one room: every side's rounds on every workload, as frozen values and as JSON.

results/compare/<room>.json holds the last full comparison of a room, one side and one workload a
line. Reading is strict: a key too many, a wrong type or a contradiction is an error that names
file and key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.files import write_atomically
from harness.records import (
    COMMIT_OR_UNKNOWN,
    NAME,
    SHA256,
    STATUSES,
    DatasetIdentity,
    RunRecord,
    dump_document,
    read_json,
)
from harness.records.strict_json import Fields, encode

KINDS = ("room", "peer", "json", "revision", "control")
STATES = ("measured", "failed", "missing")
CONTROL = "control"  # the first side again, in a process of its own
MIN_ROUNDS = 3


@dataclass(frozen=True)
class CompareProtocol:
    """How the sides were judged and timed.

    rounds: visits of each workload, every side once a visit. warmup, iterations: calls of a visit.
    """

    correctness_trials: int
    atol: float
    rtol: float
    required_matched_ratio: float
    rounds: int
    warmup: int
    iterations: int


@dataclass(frozen=True)
class Side:
    """One thing that was measured.

    kind: one of KINDS. state: "measured" where every workload passed, "failed" where one did not,
    "missing" where the side could not be tried. reason: one line unless measured. package, pinned,
    installed, prepared: of a peer; None where they do not apply. stands_in: what was measured where
    the library's own kernels for the definition do not run on the device. caveat: what a reader of
    its latencies must know. Both None where there is nothing to say.
    """

    name: str
    kind: str
    solution_name: str
    solution_sha256: str
    package: str | None = None
    pinned: str | None = None
    installed: str | None = None
    prepared: str | None = None
    stands_in: str | None = None
    caveat: str | None = None
    state: str = "measured"
    reason: str | None = None

    @property
    def label(self) -> str:
        """The name, and in brackets what was measured in its kernels' place."""
        return f"{self.name} ({self.stands_in})" if self.stands_in else self.name


@dataclass(frozen=True)
class SideResult:
    """One side on one workload. rounds_us: the median latency of each round in µs, in order;
    empty unless it passed. detail: one line on a failure, else empty."""

    status: str
    detail: str
    rounds_us: tuple[float, ...]


@dataclass(frozen=True)
class CompareRow:
    """One workload. floor_us is None where nobody measured the device's ceilings."""

    uuid: str
    axes: Mapping[str, int]
    floor_us: float | None
    sides: Mapping[str, SideResult]


@dataclass(frozen=True)
class CompareRecord:
    """One comparison on one device, workloads in official order.

    device: slug such as "nvidia-h200". hardware: its full name. libraries: name to version.
    clocks: what was seen of the GPU's clocks, or None. measured_at: UTC, "2026-01-31T23:59:59Z".
    """

    room: str
    definition: str
    device: str
    hardware: str
    driver: str | None
    libraries: Mapping[str, str]
    clocks: Mapping[str, Any] | None
    timer: str
    commit: str
    judge_sha256: str
    dataset: DatasetIdentity
    seed: int
    protocol: CompareProtocol
    sides: tuple[Side, ...]
    workloads: tuple[CompareRow, ...]
    measured_at: str

    def side(self, name: str) -> Side | None:
        """The side called `name`, or None."""
        return next((side for side in self.sides if side.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """The record as strict JSON values, keys in the committed order."""
        encoded: dict[str, Any] = encode(asdict(self))
        return encoded

    @staticmethod
    def from_json(values: Any, source: str = "compare record") -> CompareRecord:
        """Check every key and value. Raises RecordError naming source and key."""
        return _read_record(Fields(source, "", values))


def to_text(record: CompareRecord) -> str:
    """The record as JSON text: one key a line, and within them one side and one workload a line."""
    return dump_document(record.to_json(), ("sides", "workloads"))


def compare_path(root: Path, room: str) -> Path:
    return root / "results" / "compare" / f"{room}.json"


def load_compare(path: Path) -> CompareRecord:
    """Read one record. Raises RecordError naming file and key."""
    values = read_json(path, "python -m harness compare ours peers --record")
    return CompareRecord.from_json(values, str(path))


def all_compare(root: Path) -> list[CompareRecord]:
    """Every record under results/compare, sorted by path. Raises RecordError for one that lies
    under another room's name."""
    records = []
    for path in sorted((root / "results" / "compare").glob("*.json")):
        record = load_compare(path)
        if record.room != path.stem:
            raise RecordError(f"{path}: expected a record of {path.stem}, got {record.room}")
        records.append(record)
    return records


def write_compare(record: CompareRecord, root: Path) -> Path:
    """Make `record` its room's comparison. Raises RecordError if it contradicts itself."""
    path = compare_path(root, record.room)
    text = to_text(CompareRecord.from_json(record.to_json(), str(path)))
    write_atomically(path, text)
    return path


def difference(a: CompareRecord | RunRecord, b: CompareRecord | RunRecord) -> str | None:
    """The first fact in which two records differ, if that keeps their latencies apart, or None.

    Of one room: definition, device, workload data, timer and tolerances. Of two rooms, whose
    definitions, data and tolerances are their own: device, timer and the data set's name.
    """
    facts: dict[str, tuple[object, object]] = {
        "device": (a.device, b.device),
        "timer": (a.timer, b.timer),
        "data set": (a.dataset.name, b.dataset.name),
    }
    if a.room == b.room:
        del facts["data set"]  # the hash says more than the name
        facts |= {
            "definition": (a.definition, b.definition),
            "data set's sha256": (a.dataset.sha256, b.dataset.sha256),
            "atol": (a.protocol.atol, b.protocol.atol),
            "rtol": (a.protocol.rtol, b.protocol.rtol),
            "required_matched_ratio": (
                a.protocol.required_matched_ratio,
                b.protocol.required_matched_ratio,
            ),
        }
    for fact, (one, other) in facts.items():
        if one != other:
            return f"{fact} is {one} in {a.room} and {other} in {b.room}"
    return None


def _read_record(table: Fields) -> CompareRecord:
    protocol = _read_protocol(table.object("protocol"))
    sides = tuple(
        _read_side(Fields(table.source, f"sides[{index}]", values))
        for index, values in enumerate(table.take("sides", list))
    )
    _check_sides(table, sides)
    rows = tuple(
        _read_row(Fields(table.source, f"workloads[{index}]", values), sides, protocol.rounds)
        for index, values in enumerate(table.take("workloads", list))
    )
    _check_rows(table, rows, sides)
    dataset = table.object("dataset")
    record = CompareRecord(
        room=table.text("room", NAME),
        definition=table.text("definition"),
        device=table.text("device", NAME),
        hardware=table.text("hardware"),
        driver=_optional_text(table, "driver"),
        libraries=table.texts("libraries"),
        clocks=table.clocks("clocks"),
        timer=table.text("timer"),
        commit=table.text("commit", COMMIT_OR_UNKNOWN),
        judge_sha256=table.text("judge_sha256", SHA256),
        dataset=DatasetIdentity(dataset.text("name"), dataset.text("sha256", SHA256)),
        seed=table.count("seed"),
        protocol=protocol,
        sides=sides,
        workloads=rows,
        measured_at=table.moment("measured_at"),
    )
    dataset.done()
    table.done()
    return record


def _read_protocol(table: Fields) -> CompareProtocol:
    protocol = CompareProtocol(
        correctness_trials=table.count("correctness_trials", 1),
        atol=table.number("atol", 0.0),
        rtol=table.number("rtol", 0.0),
        required_matched_ratio=table.number("required_matched_ratio", 0.0, 1.0),
        rounds=table.count("rounds", MIN_ROUNDS),
        warmup=table.count("warmup"),
        iterations=table.count("iterations", 1),
    )
    table.done()
    return protocol


def _read_side(table: Fields) -> Side:
    side = Side(
        name=table.text("name"),
        kind=table.text("kind"),
        solution_name=table.text("solution_name"),
        solution_sha256=table.text("solution_sha256", SHA256),
        package=_optional_text(table, "package"),
        pinned=_optional_text(table, "pinned"),
        installed=_optional_text(table, "installed"),
        prepared=_optional_text(table, "prepared"),
        stands_in=_optional_text(table, "stands_in"),
        caveat=_optional_text(table, "caveat"),
        state=table.text("state"),
        reason=_optional_text(table, "reason"),
    )
    table.done()
    for key, value, known in (("kind", side.kind, KINDS), ("state", side.state, STATES)):
        if value not in known:
            raise table.fail(key, f"one of {', '.join(known)}", value)
    if (side.reason is None) != (side.state == "measured"):
        expected = "null where measured, else text"
        raise table.fail("reason", expected, side.reason)
    if (side.name == CONTROL) != (side.kind == CONTROL):
        raise table.fail("kind", f"{CONTROL} for the side of that name and no other", side.kind)
    return side


def _check_sides(table: Fields, sides: tuple[Side, ...]) -> None:
    names = [side.name for side in sides]
    if not sides or sides[0].kind == CONTROL:
        raise table.fail("sides", "at least one, the first of them no control", names)
    if len(set(names)) < len(names):
        raise table.fail("sides", "each name once", max(names, key=names.count))
    for index, side in enumerate(sides):
        if side.kind == CONTROL and side.solution_sha256 != sides[0].solution_sha256:
            raise table.fail(
                f"sides[{index}].solution_sha256",
                f"that of {names[0]}, which it repeats",
                side.solution_sha256,
            )


def _read_row(table: Fields, sides: tuple[Side, ...], rounds: int) -> CompareRow:
    fields = table.object("sides")
    tried = [side.name for side in sides if side.state != "missing"]
    for name in fields.values:
        if name not in tried:
            raise fields.fail(name, f"one of the sides that ran: {', '.join(tried)}", name)
    results = {name: read_result(fields.object(name)) for name in list(fields.values)}
    for name, result in results.items():
        if len(result.rounds_us) > rounds:
            raise table.fail(f"sides.{name}.rounds_us", f"at most {rounds}", len(result.rounds_us))
    row = CompareRow(
        uuid=table.text("uuid"),
        axes=table.take("axes", dict),
        floor_us=table.positive("floor_us"),
        sides=results,
    )
    table.done()
    if not all(type(size) is int and size >= 0 for size in row.axes.values()):
        raise table.fail("axes", "sizes", row.axes)
    return row


def read_result(table: Fields) -> SideResult:
    """One side on one workload, as records and ledgers hold it. Raises RecordError."""
    status = table.text("status")
    detail: str = table.take("detail", str)
    rounds_us = table.take("rounds_us", list)
    table.done()
    if status not in STATUSES:
        raise table.fail("status", f"one of {', '.join(STATUSES)}", status)
    if status != "PASSED" and rounds_us:
        raise table.fail("rounds_us", f"none beside {status}", rounds_us)
    if status == "PASSED" and len(rounds_us) < MIN_ROUNDS:
        raise table.fail("rounds_us", f"at least {MIN_ROUNDS} rounds", len(rounds_us))
    return SideResult(
        status, detail, tuple(_read_latency(table, index, us) for index, us in enumerate(rounds_us))
    )


def _read_latency(table: Fields, index: int, latency_us: Any) -> float:
    value = Fields(table.source, table.label, {f"rounds_us[{index}]": latency_us}).positive(
        f"rounds_us[{index}]"
    )
    if value is None:
        raise table.fail(f"rounds_us[{index}]", "a number above 0", None)
    return value


def _check_rows(table: Fields, rows: tuple[CompareRow, ...], sides: tuple[Side, ...]) -> None:
    """The states of the sides follow from their results."""
    uuids = [row.uuid for row in rows]
    if not rows:
        raise table.fail("workloads", "at least one", [])
    if len(set(uuids)) < len(uuids):
        raise table.fail("workloads", "each UUID once", max(uuids, key=uuids.count))
    for index, side in enumerate(sides):
        if side.state == "missing":
            continue
        results = [row.sides.get(side.name) for row in rows]
        passed = sum(result is not None and result.status == "PASSED" for result in results)
        state = "measured" if passed == len(rows) else "failed"
        if side.state != state:
            raise table.fail(
                f"sides[{index}].state", f"{state}, {passed} of {len(rows)} passed", side.state
            )


def _optional_text(table: Fields, key: str) -> str | None:
    return None if table.is_null(key) else table.text(key)
