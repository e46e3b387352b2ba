"""`harness report --write`: every file of a report, each whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from harness.errors import UsageError
from harness.files import PARTIAL_MARK, write_atomically
from harness.report.document import Document, figures_of, tables_of
from harness.report.evidence import Evidence
from harness.report.failed import write_failures
from harness.report.figures import write_figures
from harness.report.head import write_head
from harness.report.page import GENERATOR, to_document_markdown, to_html
from harness.report.profiles import write_profiles
from harness.report.replays import write_replays
from harness.report.rooms import write_rooms
from harness.report.scored import write_scores
from harness.report.searches import write_searches
from harness.report.svg import standalone
from harness.report.tables import to_csv, to_json

PAGE = "report.html"
_OWNED = ("tables/*.csv", "tables/*.json", "plots/*.svg")
_UNFINISHED = f"""<!doctype html>
<meta charset="utf-8"><meta name="generator" content="{GENERATOR}"><title>Unfinished</title>
<p>This report is being written. If nobody writes it, that was interrupted: its files are of
different reports; run the command again.</p>
"""


def compose(evidence: Evidence) -> Document:
    """The report's chapters in their order. Pure."""
    return Document(
        f"{evidence.workspace.name}: measurements",
        (
            write_head(evidence),
            write_scores(evidence),
            write_rooms(evidence),
            write_figures(evidence),
            *write_profiles(evidence),
            *write_searches(evidence),
            *write_replays(evidence),
            write_failures(evidence),
        ),
    )


def render(document: Document) -> dict[str, str]:
    """Text of each file by its path below the report's folder. Pure."""
    files = {}
    for table in tables_of(document.sections):
        files[f"tables/{table.name}.csv"] = to_csv(table)
        files[f"tables/{table.name}.json"] = to_json(table)
    for figure in figures_of(document.sections):
        files[f"plots/{figure.name}.svg"] = standalone(figure)
    files["report.md"] = to_document_markdown(document)
    files[PAGE] = to_html(document)
    return files


def check_folder(folder: Path) -> None:
    """Raise UsageError unless the folder is new, empty or holds an earlier report, and its place
    can be written to. Changes nothing."""
    page = folder / PAGE
    is_report = page.is_file() and f'content="{GENERATOR}"'.encode() in page.read_bytes()
    if folder.exists() and not is_report and (not folder.is_dir() or _has_others(folder)):
        raise UsageError(
            f"{folder}: expected a new or empty folder or an earlier report, got other files; "
            f"name another folder"
        )
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise UsageError(f"{folder}: {place} is no folder that you may write to; name another one")


def _has_others(folder: Path) -> bool:
    """Whether a folder holds more than what a report that was killed has left of its first file."""
    return any(PARTIAL_MARK not in path.name for path in folder.iterdir())


def write_report(files: dict[str, str], folder: Path) -> None:
    """Write the files; tables and plots that an earlier report left and this one lacks go.

    The page marks the folder as a report's and says so until all else is there, itself comes last.
    Raises UsageError as check_folder does.
    """
    check_folder(folder)
    write_atomically(folder / PAGE, _UNFINISHED)
    for name in sorted(files, key=lambda name: name == PAGE):
        write_atomically(folder / name, files[name])
    for pattern in _OWNED:
        for path in folder.glob(pattern):
            if path.relative_to(folder).as_posix() not in files:
                path.unlink(missing_ok=True)  # another report may write here too
