"""Records to text, pages and plots.

    document    sections, tables, figures and logs, before they are text
    tables      one table as Markdown, CSV or JSON
    logs        what programs printed, made fit to stand on a page
    summary     run records to tables
    blocks      what stands between two markers of a page
    evidence    everything a report is made of, read from the checkout
    glance      what stands at the top of a room's page, and the front page's block
    head, scored, rooms, figures, profiles, searches, replays, failed    the chapters
    plots, svg  numbers to figures, figures to SVG
    page        the document as one HTML file or as Markdown
    publish     all files of a report, written

Only the first five load with the package: plots need matplotlib, pages jinja2, comparisons scipy.
"""

from harness.report.blocks import README_BLOCK, place_block, read_block, replace_block
from harness.report.document import STALE
from harness.report.summary import (
    NOT_MEASURED,
    front_rooms,
    is_stale,
    render_summary,
    render_workloads,
    without_staleness,
)

__all__ = [
    "NOT_MEASURED",
    "README_BLOCK",
    "STALE",
    "front_rooms",
    "is_stale",
    "place_block",
    "read_block",
    "render_summary",
    "render_workloads",
    "replace_block",
    "without_staleness",
]
