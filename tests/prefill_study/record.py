"""What the study of dsa_indexer_prefill keeps: results/study/<device>/dsa_indexer_prefill.json."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.config import load_workspace
from harness.files import write_atomically
from harness.packing import pack
from harness.ranges import KEYS, QUERIES, row_ranges
from harness.records import COMMIT_OR_UNKNOWN, NAME, SHA256, read_json
from harness.records.strict_json import LONGEST_US, SHORTEST_US, Fields, dump_document
from harness.roofline import CEILINGS, prefill_indexer_work

ROOM = "dsa_indexer_prefill"
COMMAND = "python -m tests.prefill_study"
ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "results" / "study"
CONTROL = ROOT / "tests" / "cuda" / "prefill_control.cu"

# A step of a call ends where its launch does, and begins where the one before it ended.
LAUNCHES = ("sample", "threshold", "filter", "select", "repair")
STEP_SLACK = 1.05  # of a step over the span: each is a median of its own
MOST_KEYS = 1 << 20  # that the native route takes
SCORES = re.compile(r"normal|[a-z_]+=\d+( [a-z_]+=\d+)*")
# In the order of Part in the control.
PARTS = ("products", "scores", "filter")


@dataclass(frozen=True)
class Size:
    """One causal size. All times in µs.

    graph_us: a call, of several in one graph, L2 warm. span_us: a call from its first launch's
    start to its last one's end, by CUPTI, L2 cold; steps_us: what each launch adds to it.
    parts_us: the filtering launch alone and the two controls of it, of several in one graph.
    """

    queries: int
    keys: int
    graph_us: float
    span_us: float
    steps_us: dict[str, float]
    parts_us: dict[str, float]

    @property
    def flops(self) -> int:
        return causal_flops(self.queries, self.keys)


@dataclass(frozen=True)
class Failure:
    """Rows of a call that went to the repair, by why. scores: "normal" or an axis and its value.

    is_forced: a selecting CTA held no more candidates than a query keeps.
    """

    scores: str
    is_forced: bool
    queries: int
    keys: int
    segment_overflow: int
    row_overflow: int
    underflow: int
    span_us: float
    repair_us: float

    @property
    def rows(self) -> int:
        return self.segment_overflow + self.row_overflow + self.underflow


@dataclass(frozen=True)
class Memory:
    """What a call takes beyond its inputs and outputs."""

    queries: int
    keys: int
    extra_bytes: int


@dataclass(frozen=True)
class Record:
    """head: device, protocol, content and date, as measure.describe() makes it."""

    head: dict[str, Any]
    memory: Memory
    sizes: tuple[Size, ...]
    failures: tuple[Failure, ...]

    @property
    def device(self) -> str:
        return str(self.head["device"])

    @property
    def peak(self) -> float:
        return CEILINGS[self.device].flop_rates["fp8"]


def causal_flops(queries: int, keys: int) -> int:
    """What the scores of a causal chunk take: two for each head, dimension and key of a range."""
    return prefill_indexer_work(*row_ranges({QUERIES: queries, KEYS: keys}), keys).flops


def contents() -> dict[str, str]:
    """What is measured, as it is now: the packed room and the control's source."""
    return {
        "solution_sha256": pack(load_workspace(), ROOM).sha256,
        "control_sha256": hashlib.sha256(CONTROL.read_bytes()).hexdigest(),
    }


def path_of(device: str) -> Path:
    return KEPT / device / f"{ROOM}.json"


def keep(record: Record) -> Path:
    """Write a record, whole or not at all."""
    path = path_of(record.device)
    values = record.head | {
        "memory": asdict(record.memory),
        "sizes": [asdict(size) for size in record.sizes],
        "failures": [asdict(failure) for failure in record.failures],
    }
    write_atomically(path, dump_document(values, ("sizes", "failures")))
    return path


def load(path: Path) -> Record:
    """Raises RecordError naming file and key."""
    values = read_json(path, COMMAND)
    table = Fields(str(path), "", values)
    memory = table.object("memory")
    extra = Memory(memory.count("queries", 1), memory.count("keys", 1), memory.count("extra_bytes"))
    memory.done()
    sizes = tuple(_read_size(one) for one in _items(table, "sizes"))
    _require_distinct(table, "sizes", [(size.queries, size.keys) for size in sizes])
    failures = tuple(_read_failure(one) for one in _items(table, "failures"))
    _require_distinct(
        table, "failures", [(one.scores, one.is_forced, one.queries, one.keys) for one in failures]
    )
    head = {key: values[key] for key in values if key not in ("memory", "sizes", "failures")}
    _check_head(table, path)
    return Record(head, extra, sizes, failures)


def _items(table: Fields, key: str) -> list[Fields]:
    found = table.take(key, list)
    return [Fields(table.source, f"{key}[{index}]", one) for index, one in enumerate(found)]


def _require_distinct(table: Fields, key: str, names: Sequence[object]) -> None:
    if len(set(names)) != len(names) or not names:
        raise table.fail(key, "each once, and one at least", len(names))


def _check_head(table: Fields, path: Path) -> None:
    for key, wanted in (("room", path.stem), ("device", path.parent.name), ("timer", "cupti")):
        found = table.text(key, NAME)
        if found != wanted:
            raise table.fail(key, f"{wanted!r}, as its place says", found)
    if path.parent.name not in CEILINGS:
        known = ", ".join(CEILINGS)
        raise table.fail("device", f"one whose FP8 rate was measured: {known}", path.parent.name)
    table.texts("environment")
    clocks = table.clocks("clocks") or {"samples": 0, "throttled": 0}
    if clocks["throttled"] > clocks["samples"]:
        raise table.fail("clocks.throttled", f"at most {clocks['samples']}", clocks["throttled"])
    mhz = clocks.get("sm_mhz")
    if mhz is not None and not (isinstance(mhz, list) and len(mhz) == 2):
        raise table.fail("clocks.sm_mhz", "the least and the most", mhz)
    protocol = table.object("protocol")
    protocol.count("warmup"), protocol.count("iterations", 1), protocol.count("rounds", 1)
    protocol.done()
    table.text("commit", COMMIT_OR_UNKNOWN)
    table.text("solution_sha256", SHA256), table.text("control_sha256", SHA256)
    table.moment("measured_at")
    table.done()


def _read_times(table: Fields, names: Sequence[str], least: float) -> dict[str, float]:
    found = {name: table.number(name, least, LONGEST_US) for name in names}
    table.done()
    return found


def _read_size(table: Fields) -> Size:
    size = Size(
        table.count("queries", 1),
        table.count("keys", 1),
        table.number("graph_us", SHORTEST_US, LONGEST_US),
        table.number("span_us", SHORTEST_US, LONGEST_US),
        _read_times(table.object("steps_us"), LAUNCHES, 0.0),
        _read_times(table.object("parts_us"), PARTS, SHORTEST_US),
    )
    _check_shape(table, size.queries, size.keys)
    if size.steps_us["filter"] <= 0:
        raise table.fail("steps_us", "a filter that takes time", size.steps_us)
    if max(size.steps_us.values()) > STEP_SLACK * size.span_us:
        raise table.fail("steps_us", f"parts of {size.span_us} µs", size.steps_us)
    table.done()
    return size


def _check_shape(table: Fields, queries: int, keys: int) -> None:
    if not queries <= keys <= MOST_KEYS:
        raise table.fail("keys", f"from the {queries} queries to {MOST_KEYS}", keys)


def _read_failure(table: Fields) -> Failure:
    failure = Failure(
        table.text("scores", SCORES),
        table.take("is_forced", bool),
        table.count("queries", 1),
        table.count("keys", 1),
        table.count("segment_overflow"),
        table.count("row_overflow"),
        table.count("underflow"),
        table.number("span_us", SHORTEST_US, LONGEST_US),
        table.number("repair_us", 0.0, LONGEST_US),
    )
    _check_shape(table, failure.queries, failure.keys)
    if failure.repair_us > failure.span_us:
        raise table.fail("repair_us", f"a part of {failure.span_us}", failure.repair_us)
    if failure.rows > failure.queries:
        raise table.fail("underflow", f"at most {failure.queries} failed rows", failure.rows)
    table.done()
    return failure
