"""The study's block in docs/kernels/dsa_indexer_prefill.md, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.records import load
from tests.prefill_study.record import LAUNCHES, ROOM, ROOT, Record, Size, causal_flops

TRAJECTORY_SIZE = (4096, 131_072)
MEMORY_LIMIT = 256 << 20  # of a call, beyond its arguments: tests/gpu hold it too
MIB = 1 << 20
NOTHING = "Not measured yet."
SELECTING = ("sample", "threshold", "select", "repair")


@dataclass(frozen=True)
class Version:
    """A form of the room, and its time at TRAJECTORY_SIZE. content: its packed content where an
    official record measured it."""

    name: str
    latency_us: float
    source: str
    content: str | None = None

    @property
    def flops_a_second(self) -> float:
        return causal_flops(*TRAJECTORY_SIZE) / self.latency_us * 1e6


def _official(name: str, stem: str) -> Version:
    """The version that a run of the official protocol measured."""
    run = load(ROOT / "results" / "runs" / "nvidia-h200" / ROOM / f"{stem}.json")
    (latency_us,) = (
        row.latency_us
        for row in run.workloads
        if (row.axes["num_queries"], row.axes["num_keys"]) == TRAJECTORY_SIZE
    )
    source = f"CUPTI, official record `{ROOM}/{stem}`"
    return Version(name, latency_us, source, run.solution_sha256)


VERSIONS = (
    Version("portable", 16_343.0, "graph replay, scratch run"),
    Version("two warpgroups", 10_030.0, "graph replay, scratch run"),
    _official("four warpgroups", "20261130T132630Z-3b426148"),
    _official("scores passed on under the next products", "20261130T145541Z-ca8a9b46"),
    _official("clusters of two", "20261130T164958Z-16f5a008"),
    _official("ragged unpaired, candidates held back", "20261130T203829Z-be4da696"),
    _official("candidates selected in registers", "20261130T223748Z-dac8d2ad"),
)


def trajectory(record: Record) -> list[Version]:
    """The versions with a record of their own, and the one that the study measured, where it is
    none of these and its size was measured."""
    content = record.head["solution_sha256"]
    if content in {version.content for version in VERSIONS}:
        return [*VERSIONS]
    name = f"measured, `{content[:8]}`"
    own = [
        Version(name, size.span_us, "CUPTI, this record")
        for size in record.sizes
        if (size.queries, size.keys) == TRAJECTORY_SIZE
    ]
    return [*VERSIONS, *own]


def rate(size: Size, latency_us: float) -> float:
    """Flops a second."""
    return size.flops / latency_us * 1e6


def busy_fraction(size: Size) -> float:
    """The share of a call in which it is not the filter that is waited for: all that prepares and
    makes the selection."""
    return sum(size.steps_us[name] for name in SELECTING) / sum(size.steps_us.values())


def render(record: Record, contents: Mapping[str, str]) -> str:
    """Head and tables of one device. contents: what would be measured now."""
    parts = (
        _head(record, contents),
        _trajectory_table(record),
        _peak_table(record),
        _control_table(record),
        _launch_table(record),
        _failure_table(record),
        _memory_line(record),
    )
    return "\n\n".join(parts)


def _head(record: Record, contents: Mapping[str, str]) -> str:
    head, protocol = record.head, record.head["protocol"]
    other = [
        f"{name} `{head[key][:8]}`"
        for name, key in (("room", "solution_sha256"), ("control", "control_sha256"))
        if head[key] != contents[key]
    ]
    stale = f" *Stale: measured on {' and '.join(other)}.*" if other else ""
    return (
        f"{record.device}, {head['measured_at'][:10]}, commit `{head['commit'][:8]}`; "
        f"{_clocks(head['clocks'])}. Per launch: CUPTI, L2 cold, median of "
        f"{protocol['iterations']} calls; a step is the time from the end of the launch before to "
        f"the launch's own. Graph: several calls in one, warm, median of {protocol['rounds']} "
        f"rounds. Rates: 16 384 flops for each key of each causal range; the peak is "
        f"{record.peak / 1e12:.0f} TFLOP/s, measured of one product of 8192 x 8192 x 8192, which "
        f"products without an epilogue may exceed.{stale}"
    )


def _clocks(clocks: Mapping[str, object] | None) -> str:
    if clocks is None:
        return "clocks unknown"
    throttled = f"{clocks['throttled']} of {clocks['samples']} samples throttled"
    mhz = clocks.get("sm_mhz")
    if not isinstance(mhz, list):
        return throttled
    return f"SM clock {mhz[0]} to {mhz[1]} MHz, {throttled}"


def _table(title: str, columns: str, rows: Sequence[Sequence[str]]) -> str:
    """columns: headings between bars, as in the page."""
    count = columns.count("|") - 1
    lines = [f"**{title}**", "", columns, "|" + "---|" * count]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _us(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _rates(flops_a_second: float, record: Record) -> list[str]:
    return [f"{flops_a_second / 1e12:.0f}", _share(flops_a_second / record.peak)]


def _places(size: Size) -> list[str]:
    return [str(size.queries), f"{size.keys // 1024}K"]


def _trajectory_table(record: Record) -> str:
    versions = trajectory(record)
    rows, before = [], None
    for version in versions:
        gain = f"{before.latency_us / version.latency_us:.3f} x" if before else "-"
        rows.append(
            [
                version.name,
                _us(version.latency_us),
                *_rates(version.flops_a_second, record),
                gain,
                version.source,
            ]
        )
        before = version
    return _table(
        "Trajectory at {} x {}".format(*TRAJECTORY_SIZE),
        "| version | µs | TFLOP/s | of peak | gain | measured by |",
        rows,
    )


def _peak_table(record: Record) -> str:
    rows = []
    for size in record.sizes:
        row = _places(size)
        for latency_us in (size.graph_us, size.parts_us["filter"]):
            row += [_us(latency_us), *_rates(rate(size, latency_us), record)]
        rows.append(row)
    return _table(
        "Share of the peak: the operator, and the filtering launch alone (graphs)",
        "| Q | N | operator, µs | TFLOP/s | of peak | filter, µs | TFLOP/s | of peak |",
        rows,
    )


def _control_table(record: Record) -> str:
    """Shares: of the filter, and of the operator what is not the filter."""
    rows = []
    for size in record.sizes:
        products, scores, whole = (size.parts_us[name] for name in ("products", "scores", "filter"))
        rows.append(
            [
                *_places(size),
                _us(products),
                _share(rate(size, products) / record.peak),
                _us(scores),
                _us(whole),
                _share((scores - products) / whole),
                _share((whole - scores) / whole),
                _share((size.graph_us - whole) / size.graph_us),
            ]
        )
    return _table(
        "Control: the filter with products alone, with scores of which none is kept, and whole "
        "(graphs, in turns)",
        "| Q | N | products, µs | of peak | scores, µs | filter, µs | weighing costs | "
        "candidates cost | of the operator, other launches |",
        rows,
    )


def _launch_table(record: Record) -> str:
    rows = [
        [
            *_places(size),
            *(_us(size.steps_us[name]) for name in LAUNCHES),
            _us(size.span_us),
            _share(busy_fraction(size)),
        ]
        for size in record.sizes
    ]
    return _table(
        "Launches, in µs (CUPTI)",
        f"| Q | N | {' | '.join(LAUNCHES)} | operator | all but the filter |",
        rows,
    )


def _failure_table(record: Record) -> str:
    rows = []
    for one in record.failures:
        scores = f"{one.scores}{', forced' * one.is_forced}"
        rows.append(
            [
                scores,
                str(one.queries),
                f"{one.keys // 1024}K",
                str(one.segment_overflow),
                str(one.row_overflow),
                str(one.underflow),
                _us(one.repair_us),
                _us(one.span_us),
                _share(one.repair_us / one.span_us),
            ]
        )
    return _table(
        "Rows without a certificate, and what the repair costs (CUPTI)",
        "| scores | Q | N | segment full | row full | too few | repair, µs | operator, µs | "
        "share |",
        rows,
    )


def _memory_line(record: Record) -> str:
    memory = record.memory
    is_less = memory.extra_bytes < MEMORY_LIMIT
    return (
        f"**Extra memory** at {memory.queries} x {memory.keys}: {memory.extra_bytes / MIB:.1f} MiB "
        f"beside inputs and outputs, {'under' if is_less else 'NOT UNDER'} the limit of "
        f"{MEMORY_LIMIT // MIB} MiB."
    )
