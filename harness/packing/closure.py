"""Which files a room's entry reaches, and the refusal of the rest."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from harness.errors import PackingError
from harness.packing.cuda_source import c_references
from harness.packing.folders import SHELF, Source, SourceTree
from harness.packing.python_source import bound_names, python_references
from harness.packing.references import Reference

NATIVE = "native.py"


def reach(
    tree: SourceTree, starts: Sequence[str], without_native: bool = False
) -> dict[str, Source]:
    """Every source that the files `starts` of the room reach, themselves included, by file name.

    without_native: do not follow the optional import of native.py.
    Raises PackingError with file and line for a name that leads nowhere.
    """
    found = {name: tree.read(name, on_shelf=False) for name in starts}
    waiting = list(found.values())
    while waiting:
        source = waiting.pop()
        for reference in _references(tree, source):
            on_shelf = _resolve(tree, source, reference)
            is_native = reference.file_name == NATIVE and not on_shelf
            if is_native and not reference.is_optional:
                raise PackingError(
                    f"{source.label}:{reference.line}: the native route may be left out; expected "
                    f"its import inside `try: ... except ModuleNotFoundError: ...` (CONTRIBUTING)"
                )
            if is_native and without_native:
                continue
            target = found.get(reference.file_name)
            if target is None:
                target = tree.read(reference.file_name, on_shelf)
                found[target.name] = target
                waiting.append(target)
            _check_symbols(source, reference, target)
    return found


def refuse_unreached(tree: SourceTree, reached: Mapping[str, Source], entry_file: str) -> None:
    """Raises PackingError if a source of the room would silently stay behind."""
    left = [name for name in tree.room_names if name not in reached]
    if left:
        more = f" (nor {', '.join(left[1:])})" if left[1:] else ""
        raise PackingError(
            f"{tree.label(left[0], False)}: nobody reaches it{more} from {entry_file}; import it "
            f"with one dot, include it in quotes or name it in a string, or remove it"
        )


def _references(tree: SourceTree, source: Source) -> list[Reference]:
    siblings = tree.names(source.on_shelf)
    if source.name.endswith(".py"):
        return python_references(source, siblings)
    return c_references(source, siblings)


def _resolve(tree: SourceTree, source: Source, reference: Reference) -> bool:
    """True where the reference leads to the shelf, False where it leads into the room."""
    on_shelf = tree.find(reference.file_name, source.on_shelf)
    if on_shelf is not None:
        return on_shelf
    names = tree.names(source.on_shelf)
    folder = tree.room_folder.name
    places = f"solutions/{SHELF}/" if source.on_shelf else f"solutions/{folder}/ or {SHELF}/"
    message = f"{source.label}:{reference.line}: no {reference.file_name} in {places}"
    if source.on_shelf and reference.file_name in tree.room_names:
        message += f"; it lies in solutions/{folder}/, but the shelf serves all rooms and sees none"
        raise PackingError(message)
    same = [name for name in names if name.casefold() == reference.file_name.casefold()]
    near = same or difflib.get_close_matches(reference.file_name, sorted(names), n=1)
    if near:
        message += f"; did you mean {near[0]}?"
    raise PackingError(f"{message} {reference.advice}".rstrip())


def _check_symbols(source: Source, reference: Reference, target: Source) -> None:
    if not reference.symbols:
        return
    bound = bound_names(target)
    for symbol in reference.symbols:
        if bound is not None and symbol not in bound:
            near = difflib.get_close_matches(symbol, sorted(bound), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise PackingError(
                f"{source.label}:{reference.line}: {target.label} defines no {symbol!r}{hint}"
            )
