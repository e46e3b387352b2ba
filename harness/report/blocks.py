"""The block of a page that is rendered: what stands between two marker lines."""

from __future__ import annotations

import re
from pathlib import Path

from harness.errors import UsageError

README_BLOCK = "results"


def replace_block(text: str, name: str, body: str) -> str:
    """`text` with what stands between the markers of block `name` replaced by `body`.

    Markers are the lines "<!-- name: begin … -->" and "<!-- name: end -->". Raises UsageError
    unless each occurs once, in that order.
    """
    begin, end = _find_block(text, name)
    return f"{text[:begin]}\n{body}\n\n{text[end:]}"  # blank lines, or Markdown sees no table


def place_block(text: str, name: str, command: str, body: str) -> str:
    """As replace_block; a page that has no marker of the block yet gets it under its title.

    command: renders the block, and stands in its first marker. Raises UsageError where the first
    line is no title.
    """
    if not re.search(rf"^<!-- {re.escape(name)}: (begin|end)\b", text, re.MULTILINE):
        title, _, rest = text.partition("\n")
        if not title.startswith("# "):
            raise UsageError(f'block {name}: expected a title, "# …", as first line, got {title!r}')
        markers = f"<!-- {name}: begin ({command}) -->\n<!-- {name}: end -->"
        text = f"{title}\n\n{markers}\n\n{rest.lstrip(chr(10))}"
    return replace_block(text, name, body)


def read_block(text: str, name: str) -> str:
    """What stands between the markers of block `name`. Raises UsageError."""
    begin, end = _find_block(text, name)
    return text[begin:end].strip("\n")


def read_page_block(page: Path, name: str, command: str) -> str:
    """What block `name` of a page holds, which `command` renders. Raises UsageError naming the
    page."""
    try:
        return read_block(page.read_text(encoding="utf-8"), name)
    except FileNotFoundError:
        raise UsageError(f"{page}: expected the room's page, got no such file; write it") from None
    except UsageError as error:
        raise UsageError(
            f"{page}: {error}; add both, the first as <!-- {name}: begin ({command}) -->"
        ) from None


def _find_block(text: str, name: str) -> tuple[int, int]:
    begins = list(re.finditer(rf"^<!-- {re.escape(name)}: begin\b.*-->\n", text, re.MULTILINE))
    ends = list(re.finditer(rf"^<!-- {re.escape(name)}: end -->$", text, re.MULTILINE))
    if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
        raise UsageError(
            f'block {name}: expected one line "<!-- {name}: begin -->" before one line '
            f'"<!-- {name}: end -->", got {len(begins)} and {len(ends)}'
        )
    return begins[0].end(), ends[0].start()
