"""Why dsa_indexer_prefill takes the time it takes: a study on a GPU, kept and shown.

    python -m tests.prefill_study [--commit SHA]   # measure on the GPU and keep the record
    python -m tests.prefill_study --show           # tables and figures of what is kept
    python -m tests.prefill_study --check          # whether page and figures are these

    record     what is kept                  native     the room's launches and the control's
    launches   what is timed, and how        measure    all sizes and scores, in order
    failures   why rows were repaired        tables, figures   what the page shows
    hostile    scores that no workload has

Measured are the launches of a call, the filter beside two controls that leave out its epilogue, the
share of the FP8 peak, why rows of hostile scores are repaired and what that costs, and scratch. A
record lies in results/study/<device>/, its tables and figures in the room's page. Measuring takes a
minute, the builds included, and nothing but the record is written: neither --show nor --check
needs a GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.devices import read_facts
from harness.errors import run_program
from harness.evaluate.alone import hold_device
from harness.evaluate.sweep import require_commit
from harness.files import write_atomically
from harness.report.blocks import read_page_block, replace_block
from harness.timing import require_timer
from tests.prefill_study import figures, tables
from tests.prefill_study.record import COMMAND, KEPT, ROOM, ROOT, Record, contents, keep, load

PAGES = ROOT / "docs" / "kernels"
BLOCK = "study"


def records() -> list[Record]:
    """Of all devices. Raises RecordError."""
    return [load(path) for path in sorted(KEPT.glob(f"*/{ROOM}.json"))]


def compose(found: Sequence[Record]) -> tuple[str, dict[Path, str]]:
    """The page's block, and the figures' files."""
    now = contents() if found else {}
    parts = [f"{tables.render(record, now)}\n\n{figures.links(record)}" for record in found]
    files = {PAGES / name: text for record in found for name, text in figures.files(record).items()}
    return "\n\n".join(parts) or tables.NOTHING, files


def shown() -> str:
    """What the page's block holds. Raises UsageError naming the page."""
    return read_page_block(PAGES / f"{ROOM}.md", BLOCK, COMMAND)


def show() -> list[Path]:
    """Write figures and block; figures of a record that is gone go too. Returns what it wrote."""
    block, files = compose(records())
    shown()
    for path in _drawn() - files.keys():
        path.unlink()
    for path, text in files.items():
        write_atomically(path, text)
    page = PAGES / f"{ROOM}.md"
    write_atomically(page, replace_block(page.read_text(encoding="utf-8"), BLOCK, block))
    return [*files, page]


def differences() -> list[str]:
    """What --show would change, one text each."""
    block, files = compose(records())
    found = [] if shown() == block else [f"{PAGES / ROOM}.md: the block is not the records'"]
    for path in sorted(_drawn() | files.keys()):
        if path not in files:
            found.append(f"{path}: no record has this figure")
        elif not path.is_file() or path.read_text(encoding="utf-8") != files[path]:
            found.append(f"{path}: not the record's figure")
    return found


def _drawn() -> set[Path]:
    return set((PAGES / figures.FOLDER).glob(f"{ROOM}-*.svg"))


def _measure(commit: str | None) -> None:
    # Whatever would make the run useless is said before the GPU is used.
    require_commit(commit)
    facts = read_facts("cuda:0")
    require_timer("cupti")
    from tests.prefill_study.measure import measure  # torch and flashinfer-bench

    with hold_device(facts):
        path = keep(measure(facts, commit))
    print(f"kept in {path}; `{COMMAND} --show` shows it")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND)
    parser.add_argument("--show", action="store_true", help="write the page; run nothing")
    parser.add_argument("--check", action="store_true", help="exit 1 where the page is another one")
    parser.add_argument("--commit", metavar="SHA", help="what the record names without a .git")
    options = parser.parse_args(arguments)
    if options.show and options.check:
        parser.error("expected one of --show and --check")
    if (options.show or options.check) and options.commit:
        parser.error("--commit: expected a measurement, got --show or --check, which keep nothing")
    return options


def _run(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    if options.show:
        print("\n".join(f"{path} written" for path in show()))
        return 0
    if options.check:
        found = differences()
        print("\n".join(found) or "page and figures are the records'")
        return 1 if found else 0
    _measure(options.commit)
    return 0


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 where --check finds another page, else as harness.errors says."""
    return run_program(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
