"""What one source file says about another."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reference:
    """A file name that a source mentions, to be looked up beside it.

    symbols: names that the target must define. is_optional: a missing target is caught there.
    advice: what a message adds when the name leads nowhere.
    """

    file_name: str
    line: int
    symbols: tuple[str, ...] = ()
    is_optional: bool = False
    advice: str = ""
