"""What programs printed, made fit to stand on a page: short, printable, without this machine."""

from __future__ import annotations

import re

from harness.records.printable import CONTROLS, ESCAPES, printable

LINE_CHARACTERS, DETAIL_CHARACTERS = 160, 240
HEAD_LINES, TAIL_LINES = 4, 24  # an exception's own words come last
_PACKAGES = re.compile(r"(?:/[^\s/:\"']+)+/(?=(?:site|dist)-packages/)")
_FOLDERS = re.compile(r"(?<![\w.\u2026/-])/(?:[^\s/:\"'<>]+/)+")  # of an absolute path


def shorten_log(text: str, root: str) -> str:
    """The first and last lines of a log, each cut, control characters gone.

    root: the checkout; paths below it start at it, those of libraries at site-packages, and of
    others the file's name alone is left.
    """
    text = printable(text.replace("\r\n", "\n").replace("\r", "\n")).expandtabs(4)
    text = _PACKAGES.sub("", text).replace(root.rstrip("/") + "/", "")
    lines = [_cut(line.rstrip(), LINE_CHARACTERS) for line in _FOLDERS.sub("…/", text).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    left_out = len(lines) - HEAD_LINES - TAIL_LINES
    if left_out > 1:
        lines[HEAD_LINES:-TAIL_LINES] = [f"… {left_out} lines left out …"]
    return "\n".join(lines)


def one_line(text: str, characters: int = DETAIL_CHARACTERS) -> str:
    """Text on one line, cut, with the last names of its absolute paths."""
    line = " ".join(CONTROLS.sub(" ", ESCAPES.sub("", text)).split())
    return _cut(_FOLDERS.sub("…/", _PACKAGES.sub("", line)), characters)


def _cut(line: str, characters: int) -> str:
    return line if len(line) <= characters else f"{line[: characters - 1]}…"
