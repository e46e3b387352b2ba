"""Integer constants of a room's CUDA sources, as their text says."""

import re
from pathlib import Path

SOLUTIONS = Path(__file__).parents[1] / "solutions"
STATEMENT = re.compile(r"^ *(?:static )?constexpr int ([^;]+);", re.MULTILINE)
VALUE = re.compile(r"[\w+\-*/() ]+")  # of names and numbers


def read_constants(text: str) -> dict[str, int]:
    """Every `constexpr int NAME = VALUE` whose value is made of numbers and of such names."""
    found: dict[str, int] = {}
    for statement in STATEMENT.findall(text):
        for declared in statement.split(","):
            name, _, value = (part.strip() for part in declared.partition("="))
            names = re.findall(r"[A-Za-z_]\w*", value)
            if VALUE.fullmatch(value) and all(one in found for one in names):
                found[name] = eval(value.replace("/", "//"), {"__builtins__": {}}, dict(found))
    return found


def constants_of(room: str, *files: str) -> dict[str, int]:
    """Those of some of a room's files, each after the ones that it includes."""
    return read_constants("\n".join((SOLUTIONS / room / file).read_text() for file in files))
