"""Quoted includes of C, C++ and CUDA text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.errors import PackingError
from harness.packing.folders import Source
from harness.packing.references import Reference

# Strings and character literals come along so that a // or /* inside them opens no comment.
_COMMENT_OR_LITERAL = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL
)
_INCLUDE = re.compile(r"[ \t]*#[ \t]*include\b[ \t]*(?P<target>.*?)[ \t]*\Z")
_QUOTED = re.compile(r'"(?P<name>[^"]+)"\Z')
_ANGLED = re.compile(r"<(?P<name>[^>]+)>\Z")


def c_references(source: Source, siblings: frozenset[str]) -> list[Reference]:
    """The includes of a C++ or CUDA file that lead to files of the checkout.

    siblings: the file names that the file can reach. Raises PackingError for an include that
    cannot be followed.
    """
    found = []
    for line, target in _directives(source.text):
        place = f"{source.label}:{line}"
        quoted, angled = _QUOTED.match(target), _ANGLED.match(target)
        if quoted:
            name = quoted["name"]
            if "/" in name or "\\" in name:
                raise PackingError(
                    f'{place}: #include "{name}" has a folder; own files land flat, so expected '
                    f"the bare file name, and <...> for headers of the toolkit"
                )
            found.append(_own_file(name, line))
        elif angled is None:
            raise PackingError(
                f"{place}: cannot follow `#include {target}`; name the file in quotes"
            )
        elif (name := angled["name"].split("/")[-1]) in siblings:
            raise PackingError(
                f"{place}: <{angled['name']}> names a file of the checkout; expected "
                f'#include "{name}", which travels along'
            )
    return found


def embedded_includes(text: str, first_line: int) -> list[Reference]:
    """Quoted includes in C++ text that a Python string constant at `first_line` holds.

    Such text may be a fragment, so what is no whole quoted name is left to the compiler.
    """
    directives = _directives(text, first_line)
    names = [(_QUOTED.match(target), line) for line, target in directives]
    return [_own_file(match["name"], line) for match, line in names if match]


def _own_file(name: str, line: int) -> Reference:
    return Reference(name, line, advice=f"For a header of the toolkit write <{name}>")


def _directives(text: str, first_line: int = 1) -> Iterator[tuple[int, str]]:
    """Line number and target of every #include outside comments."""

    def blank(match: re.Match[str]) -> str:
        return " " + "\n" * match[0].count("\n") if match["comment"] else match[0]

    lines = _COMMENT_OR_LITERAL.sub(blank, text).split("\n")
    for line, content in enumerate(lines, first_line):
        directive = _INCLUDE.match(content)
        if directive:
            yield line, directive["target"]
