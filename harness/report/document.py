"""What a report consists of, before it is Markdown or HTML: sections, tables, figures, logs.

A table keeps values, not text: floats with every digit, None where nothing is known. The kind of
a column says how a value is written, so that Markdown, HTML, CSV and JSON show the same table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from harness.compare.statistics import Interval
from harness.records import ABSENT, HASH_CHARACTERS, format_digits, format_us

RATIO_DIGITS = 3
SPEEDUP_DIGITS = 4  # of two sides: a margin of 1 % must show
SHARE_DIGITS = 2
ERROR_DIGITS = 2
DASH = "-"  # from one bound to the other
STALE = "stale, measured on "
UNDEFINED = "undefined"

Value = str | int | float | tuple[float, float] | None


class Kind(Enum):
    """How a column's values are written.

    CODE: hashes and UUIDs. CONTENT: a short hash, after STALE where the room packs to other
    content now. US: µs, four digits. RATIO: to a floor, three digits. SPEEDUP: to another side,
    four digits. SCORE: a speed-up that may be undefined. INTERVAL: (low, high) of a speed-up.
    SHARE: a fraction, in percent.
    """

    TEXT = "text"
    CODE = "code"
    CONTENT = "content"
    COUNT = "count"
    US = "us"
    SCORE = "score"
    RATIO = "ratio"
    SPEEDUP = "speedup"
    INTERVAL = "interval"
    SHARE = "share"
    ERROR = "error"
    WORD = "word"

    @property
    def is_number(self) -> bool:
        return self in _NUMBERS


_NUMBERS = (
    *(Kind.COUNT, Kind.US, Kind.RATIO, Kind.SPEEDUP, Kind.SCORE, Kind.INTERVAL, Kind.SHARE),
    Kind.ERROR,
)


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind = Kind.TEXT


@dataclass(frozen=True)
class Table:
    """name: also its file name. Raises ValueError for a row of another length."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.name}: expected {len(self.columns)} values, got {len(row)}: {row}"
                )


@dataclass(frozen=True)
class Paragraph:
    """text, here and in Bullets: what stands between backticks is code."""

    text: str


@dataclass(frozen=True)
class Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True)
class Figure:
    """name: also its file name. caption: what is drawn, and of which device. svg: one element."""

    name: str
    caption: str
    svg: str


@dataclass(frozen=True)
class Log:
    """What a program printed, verbatim but for its length."""

    title: str
    text: str


@dataclass(frozen=True)
class Fold:
    """Blocks that are closed on a screen until asked for, and open on paper."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Section:
    """anchor: unique in its document. blocks may hold sections of the next level."""

    title: str
    anchor: str
    blocks: tuple[Block, ...]


Block = Paragraph | Bullets | Table | Figure | Log | Fold | Section


@dataclass(frozen=True)
class Document:
    """Raises ValueError where two tables or two figures share a name, or two sections an anchor."""

    title: str
    sections: tuple[Section, ...]

    def __post_init__(self) -> None:
        blocks = _walk(self.sections)
        for kind, key in ((Table, "name"), (Figure, "name"), (Section, "anchor")):
            names = [getattr(block, key) for block in blocks if isinstance(block, kind)]
            if len(set(names)) < len(names):
                raise ValueError(f"{kind.__name__} {max(names, key=names.count)!r} occurs twice")


def tables_of(blocks: Sequence[Block]) -> list[Table]:
    """Every table in reading order."""
    return [block for block in _walk(blocks) if isinstance(block, Table)]


def figures_of(blocks: Sequence[Block]) -> list[Figure]:
    """Every figure in reading order."""
    return [block for block in _walk(blocks) if isinstance(block, Figure)]


def _walk(blocks: Sequence[Block]) -> list[Block]:
    found: list[Block] = []
    for block in blocks:
        found.append(block)
        if isinstance(block, (Fold, Section)):
            found += _walk(block.blocks)
    return found


def format_value(kind: Kind, value: Value) -> str:
    """A value as people read it; text stays as it is. A dash where nothing is known."""
    if value is None:
        return UNDEFINED if kind is Kind.SCORE else ABSENT
    if isinstance(value, tuple):
        return DASH.join(format_digits(bound, SPEEDUP_DIGITS) for bound in value)
    if isinstance(value, str):
        return value
    if kind is Kind.US:
        return format_us(value)
    if kind is Kind.RATIO:
        return format_digits(value, RATIO_DIGITS)
    if kind in (Kind.SPEEDUP, Kind.SCORE):
        return format_digits(value, SPEEDUP_DIGITS)
    if kind is Kind.SHARE:
        return f"{format_digits(100 * value, SHARE_DIGITS)} %"
    if kind is Kind.ERROR:
        return f"{value:.{ERROR_DIGITS}g}"
    return str(value)


def bounds(interval: Interval | None) -> tuple[float, float] | None:
    """A value of an INTERVAL column."""
    return (interval.low, interval.high) if interval else None


def content_label(sha256: str, is_stale: bool) -> str:
    """A value of a CONTENT column."""
    return f"{STALE if is_stale else ''}{sha256[:HASH_CHARACTERS]}"


def split_axes(workloads: Sequence[Mapping[str, int]]) -> tuple[list[str], str]:
    """The axes of each workload that tell it from another, and what they all share as
    ", name=size throughout". Where all are alike, each has all of its axes."""
    shared = {
        axis: size
        for axis, size in (workloads[0] if workloads else {}).items()
        if all(axes.get(axis) == size for axes in workloads)
    }
    rest = [{axis: size for axis, size in axes.items() if axis not in shared} for axes in workloads]
    if not shared or not any(rest):
        return [axes_label(axes) for axes in workloads], ""
    return [axes_label(axes) for axes in rest], f", {axes_label(shared)} throughout"


def axes_label(axes: Mapping[str, int]) -> str:
    """Axes as `name=size name=size`."""
    return " ".join(f"{axis}={size}" for axis, size in axes.items())
