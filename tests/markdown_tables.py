"""Markdown tables as a reader sees them."""

from __future__ import annotations


def read_tables(text: str) -> list[list[dict[str, str]]]:
    """Every table of a text as its rows, each a mapping from column to cell."""
    found: list[list[dict[str, str]]] = []
    block: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            block.append([cell.strip() for cell in line.strip("|").split("|")])
        elif block:
            found.append([dict(zip(block[0], cells, strict=True)) for cells in block[2:]])
            block = []
    return found
