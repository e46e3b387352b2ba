"""What lies in a room and on the shelf: the listing, its rules, and the text of one file."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from harness.errors import PackingError
from harness.files import PARTIAL_MARK

UNIT_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx", ".c")  # what a compiler is called on
C_SUFFIXES = (*UNIT_SUFFIXES, ".cuh", ".h", ".hpp")
SOURCE_SUFFIXES = (".py", *C_SUFFIXES)
ROOM_COMPANIONS = ("README.md", "config.toml", "tuning.toml", "solution.json")
SHELF_COMPANIONS = ("README.md",)
SHELF = "common"
PASSED_OVER = ("__pycache__", ".gitignore", ".gitattributes", ".gitkeep")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")
_PARTIAL = f".solution.json{PARTIAL_MARK}"  # what a killed write() left behind starts so


@dataclass(frozen=True)
class Source:
    """One source file, read. label: its path in the checkout, as messages show it."""

    name: str
    label: str
    text: str
    on_shelf: bool


@dataclass(frozen=True)
class SourceTree:
    """The source files of one room and of the shelf, by file name; nothing is read yet."""

    root: Path
    room_folder: Path
    room_names: tuple[str, ...]
    shelf_names: tuple[str, ...]

    @classmethod
    def scan(cls, root: Path, room: str) -> SourceTree:
        """List both folders. Raises PackingError for foreign files, links and clashing names."""
        folder, shelf = root / "solutions" / room, root / "solutions" / SHELF
        if folder.is_symlink() or not folder.is_dir():
            raise PackingError(
                f"solutions/{room}: expected a folder, found none; start one with "
                f"`python -m harness new {room} --definition NAME`"
            )
        if shelf.is_symlink():
            raise PackingError(
                f"solutions/{SHELF}: expected a folder, got a symbolic link; git keeps the link "
                f"and not what it leads to. Put a folder with the files there"
            )
        tree = cls(
            root=root,
            room_folder=folder,
            room_names=_list_sources(root, folder, ROOM_COMPANIONS),
            shelf_names=_list_sources(root, shelf, SHELF_COMPANIONS) if shelf.is_dir() else (),
        )
        tree._refuse_clashes()
        return tree

    def path(self, name: str, on_shelf: bool) -> Path:
        return (self.root / "solutions" / SHELF if on_shelf else self.room_folder) / name

    def label(self, name: str, on_shelf: bool) -> str:
        return self.path(name, on_shelf).relative_to(self.root).as_posix()

    def find(self, name: str, from_shelf: bool) -> bool | None:
        """Where a file name leads: False the room, True the shelf, None nowhere.

        Compared with the listing and not asked of the disk, which may ignore case.
        """
        if not from_shelf and name in self.room_names:
            return False
        return True if name in self.shelf_names else None

    def names(self, from_shelf: bool) -> frozenset[str]:
        """All file names that a file of the room (or of the shelf) can reach."""
        return frozenset(self.shelf_names if from_shelf else self.room_names + self.shelf_names)

    def read(self, name: str, on_shelf: bool) -> Source:
        label = self.label(name, on_shelf)
        text = read_source(self.path(name, on_shelf), label)
        return Source(name, label, text, on_shelf)

    def _refuse_clashes(self) -> None:
        seen: dict[str, str] = {}
        for on_shelf, names in ((True, self.shelf_names), (False, self.room_names)):
            for name in names:
                other = seen.setdefault(name.casefold(), self.label(name, on_shelf))
                if other != self.label(name, on_shelf):
                    raise PackingError(
                        f"{self.label(name, on_shelf)}: clashes with {other}; files land in one "
                        f"folder, whose names may not differ by case alone. Rename one"
                    )


def _list_sources(root: Path, folder: Path, companions: tuple[str, ...]) -> tuple[str, ...]:
    names = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            label = Path(entry.path).relative_to(root).as_posix()
            if entry.is_symlink():
                raise PackingError(
                    f"{label}: expected a file, got a symbolic link; copy the file here, or put "
                    f"it into solutions/{SHELF}/"
                )
            if entry.name in PASSED_OVER:
                continue
            if entry.is_dir():
                raise PackingError(
                    f"{label}/: expected files only; sources land flat, so no folder can travel. "
                    f"Move its files up"
                )
            if not entry.is_file():
                raise PackingError(f"{label}: expected a regular file; remove it")
            if entry.name in companions or entry.name.startswith(_PARTIAL):
                continue
            _check_name(entry.name, label, companions)
            names.append(entry.name)
    return tuple(names)


def _check_name(name: str, label: str, companions: tuple[str, ...]) -> None:
    if name == "__init__.py":
        raise PackingError(
            f"{label}: the packed folder is a package without it, and code in it would run before "
            f"the entry; remove it"
        )
    if not _FILE_NAME.match(name) or Path(name).suffix not in SOURCE_SUFFIXES:
        raise PackingError(
            f"{label}: foreign file; expected sources ({' '.join(SOURCE_SUFFIXES)}) with plain "
            f"ASCII names, or {', '.join(companions)}. Logs, data and binaries cannot travel: "
            f"move it out of solutions/"
        )


def read_source(path: Path, label: str) -> str:
    """The text of one source file, exactly its bytes.

    Raises PackingError for what the schema refuses (an empty file) and for what official tools
    would alter or stumble on: other encodings, carriage returns, a byte order mark, NUL.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PackingError(f"{label}: cannot be read: {error.strerror}") from error
    if not data:
        raise PackingError(f"{label}: empty; the official schema refuses empty sources. Remove it")
    if data.startswith(b"\xef\xbb\xbf"):
        raise PackingError(
            f"{label}:1: starts with a byte order mark, on which compilers stumble; save it as "
            f"UTF-8 without BOM"
        )
    for byte, meaning in ((b"\r", "a carriage return"), (b"\0", "a NUL byte")):
        if byte in data:
            raise PackingError(
                f"{label}:{_line(data, data.index(byte))}: holds {meaning}, which official tools "
                f"would alter or refuse; save it as plain text with LF line ends"
            )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PackingError(
            f"{label}:{_line(data, error.start)}: expected UTF-8, got byte "
            f"0x{data[error.start]:02x}; save it as UTF-8"
        ) from error


def _line(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1
