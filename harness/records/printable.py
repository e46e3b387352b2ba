"""Text that others chose, such as a packed solution's name, made fit for a terminal or a page."""

from __future__ import annotations

import re

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    """Text without control characters and lone surrogates, which HTML and XML refuse."""
    return CONTROLS.sub("\ufffd", ESCAPES.sub("", text))
