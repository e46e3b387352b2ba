"""The chapter of replays: how often rooms were wrong on fresh trials, and how near ties came."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from harness.files import write_atomically
from harness.replay.batch import worst
from harness.replay.record import MAX_LISTED, ReplayRecord, ReplayRow, replay_path
from harness.replay.statistics import (
    CONFIDENCE,
    QUANTILES,
    clopper_pearson,
    detection_probability,
    set_passes,
    trials_needed,
)
from harness.replay.suspicion import suspicion
from harness.report.document import (
    Block,
    Bullets,
    Column,
    Figure,
    Fold,
    Kind,
    Paragraph,
    Section,
    Table,
    Value,
    axes_label,
    content_label,
)
from harness.report.evidence import Evidence
from harness.report.plots import COLOURS, MARKERS
from harness.report.svg import INK, drawing, new_figure, standalone, to_svg

MAX_DRAWN = 12  # workloads with a rate of their own in a figure
_WHAT = (
    "Many trials of fresh inputs under the official rule. A trial is wrong where the rule refuses "
    "the answer or the solution does not survive. The rate is wrong trials over trials, with "
    f"Clopper and Pearson's {CONFIDENCE:.0%} interval. A check of n trials shows a fault of rate p "
    "with probability 1 - (1 - p)^n, and a whole sweep passes all the same with the product of "
    "(1 - p)^n over its workloads. `docs/replay.md` says what is fresh and what epsilon is."
)
_SHARE = Kind.SHARE


def write_replays(evidence: Evidence) -> tuple[Section, ...]:
    """The chapter, where any room was replayed."""
    records = [evidence.replayed[room] for room in evidence.workspace.rooms
               if room in evidence.replayed]  # fmt: skip
    if not records:
        return ()
    summary = Table(
        "replays",
        "Replays. Sweep passes: the chance that a sweep of that many trials a workload shows "
        "nothing, at the observed rates.",
        (
            *(Column("room"), Column("device"), Column("content", Kind.CONTENT)),
            *(Column(name, Kind.COUNT) for name in ("workloads", "trials", "wrong")),
            *(Column("rate from", _SHARE), Column("to", _SHARE)),
            *(Column("official sweep passes", _SHARE), Column("replay passes", _SHARE)),
            Column("measured"),
        ),
        tuple(_summary_row(evidence, record) for record in records),
    )
    rooms = tuple(_room_section(record) for record in records)
    return (Section("Replays", "replays", (Paragraph(_WHAT), summary, *rooms)),)


def _summary_row(evidence: Evidence, record: ReplayRecord) -> tuple[Value, ...]:
    low, high = clopper_pearson(record.mismatches, record.judged)
    rates = [row.rate for row in record.workloads]
    return (
        *(record.room, record.device),
        content_label(
            record.solution_sha256, record.solution_sha256 != evidence.packed.get(record.room)
        ),
        *(len(record.workloads), record.judged, record.mismatches, low, high),
        set_passes(rates, record.official_trials),
        set_passes(rates, record.asked[-1]),
        record.measured_at,
    )


def _room_section(record: ReplayRecord) -> Section:
    problem = suspicion(record)
    notes = [f"Suspicious: {problem}."] if problem else ["Nothing suspicious."]
    same = sum(not row.drawn for row in record.workloads)
    if same:
        notes.append(f"{same} workloads draw no input: each of their trials has the same.")
    untested = sum(row.untested for row in record.workloads)
    if untested:
        notes.append(f"{untested} trials have a reference that is not finite and are left out.")
    blocks: list[Block] = [Bullets(tuple(notes)), draw_replay(record)]
    blocks.append(Fold(f"Replayed workloads of {record.room}", (_rates_table(record),)))
    if any(row.margins is not None for row in record.workloads):
        blocks.append(Fold(f"Boundary margins of {record.room}", (_margins_table(record),)))
    return Section(f"Replay of {record.room}", f"replay-{record.room}", tuple(blocks))


def _rates_table(record: ReplayRecord) -> Table:
    budgets = dict.fromkeys((record.official_trials, *record.asked))
    columns = (
        *(Column("workload", Kind.CODE), Column("axes"), Column("status")),
        *(Column("wrong", Kind.COUNT), Column("trials", Kind.COUNT)),
        *(Column("rate", _SHARE), Column("from", _SHARE), Column("to", _SHARE)),
        *(Column(f"shown by {n}", _SHARE) for n in budgets),
        Column(f"trials for {CONFIDENCE:.0%}", Kind.COUNT),
        *(Column("abs error", Kind.ERROR), Column("rel error", Kind.ERROR)),
    )
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (
            *(row.uuid, axes_label(row.axes), _status(row), row.mismatches, row.trials),
            *(row.rate, row.low, row.high),
            *(detection_probability(row.rate, n) for n in budgets),
            trials_needed(row.rate),
            worst(row.max_abs_error, *(found.max_abs_error for found in row.listed)),
            worst(row.max_rel_error, *(found.max_rel_error for found in row.listed)),
        )
        for row in record.workloads
    )
    caption = (
        f"{record.room} on {record.device}, seed {record.seed}. Errors: the worst of all "
        f"trials, of wrong ones the first {MAX_LISTED}."
    )
    return Table(f"replay-{record.room}", caption, columns, rows)


def _status(row: ReplayRow) -> str:
    """Of the first wrong trial; PASSED where there is none among all that were asked for."""
    if row.listed:
        return row.listed[0].status
    return "PASSED" if row.stopped is None else "incomplete"


def _margins_table(record: ReplayRecord) -> Table:
    columns = (
        *(Column("workload", Kind.CODE), Column("axes"), Column("trials", Kind.COUNT)),
        Column("least", Kind.ERROR),
        *(Column(f"{share:.1%}" if share < 0.01 else f"{share:.0%}", Kind.ERROR)
          for share in QUANTILES[1:]),
        *(Column("2 epsilon", Kind.ERROR), Column("below", Kind.COUNT)),
        *(Column("exchanged", Kind.COUNT), Column("exchanged by", Kind.ERROR)),
    )  # fmt: skip
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (
            *(row.uuid, axes_label(row.axes), margins.trials),
            *margins.quantiles,
            *(2 * margins.epsilon, margins.below, margins.exchanged, 2 * margins.exchange_gap),
        )
        for row in record.workloads
        if (margins := row.margins) is not None
    )
    caption = (
        f"Boundary margins of {record.room} on {record.device}: the last score selected less the "
        "first left out, least of a trial's sequences; their quantiles, and the trials at most 2 "
        "epsilon. Exchanged: selections that differ from the reference's and pass."
    )
    return Table(f"margins-{record.room}", caption, columns, rows)


def draw_replay(record: ReplayRecord) -> Figure:
    """Observed rates with their intervals, and what a number of trials finds."""
    name = f"replay-{record.room}"
    caption = (
        f"Left: share of wrong trials of {record.room} on {record.device} with 95 % intervals, "
        f"{_which(record)}. Right: chance that n trials show a fault, at the observed rate of the "
        "worst workload and at upper bounds; dotted, the official number of trials and the "
        "replay's."
    )
    rows = sorted(record.workloads, key=lambda row: (-row.rate, -row.high))[:MAX_DRAWN]
    with drawing():
        figure = new_figure(max(2.6, 0.9 + 0.2 * len(rows)))
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
        _draw_rates(left, record, rows)
        _draw_detection(right, record, rows[0])
        figure.legend(loc="outside upper right", ncols=3, fontsize="small")
        return Figure(name, caption, to_svg(figure, name, caption))


def keep_figure(record: ReplayRecord, root: Path) -> Path:
    """Draw a record beside it, under results/replay."""
    path = replay_path(root, record.room).with_suffix(".svg")
    write_atomically(path, standalone(draw_replay(record)))
    return path


def _which(record: ReplayRecord) -> str:
    count = len(record.workloads)
    return f"the {MAX_DRAWN} highest of {count}" if count > MAX_DRAWN else f"{count} workloads"


def _draw_rates(axes: Axes, record: ReplayRecord, rows: Sequence[ReplayRow]) -> None:
    low, high = clopper_pearson(record.mismatches, record.judged)
    overall = record.mismatches / max(1, record.judged)
    lines = [(row.uuid[:8], row.rate, row.low, row.high) for row in rows]
    lines.append(("all", overall, low, high))
    places = [-index for index in range(len(lines))]
    for place, (_, rate, least, most) in zip(places, lines, strict=True):
        colour = COLOURS[7] if rate > 0.0 else COLOURS[5]
        axes.plot([100 * least, 100 * most], [place, place], color=colour, linewidth=1.6)
        axes.plot([100 * rate], [place], color=colour, marker=MARKERS[0], markersize=4,
                  clip_on=False)  # fmt: skip
    axes.set_yticks(places, [label for label, *_ in lines])
    axes.set_ylim(places[-1] - 0.7, 0.7)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(left=0.0)
    axes.set_xlabel(f"wrong trials on {record.device} [%]")


def _draw_detection(axes: Axes, record: ReplayRecord, worst: ReplayRow) -> None:
    _, overall = clopper_pearson(record.mismatches, record.judged)
    curves = [(f"{worst.uuid[:8]}, upper bound", worst.high), ("all, upper bound", overall)]
    if worst.mismatches:
        curves.insert(0, (f"{worst.uuid[:8]}, observed", worst.rate))
    most = 10 ** max(4, len(str(record.asked[-1])))
    steps = range(20 * (len(str(most)) - 1) + 1)
    counts = sorted({round(10 ** (step / 20)) for step in steps})
    for index, (label, rate) in enumerate(curves):
        found = [100 * detection_probability(rate, count) for count in counts]
        axes.plot(counts, found, color=COLOURS[index], linewidth=1.4, label=label)
    for trials in dict.fromkeys((record.official_trials, *record.asked)):
        axes.axvline(trials, color=INK, linewidth=1.0, linestyle=":")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(0.0, 103.0)
    axes.set_xlabel("trials")
    axes.set_ylabel("chance to show it [%]")
