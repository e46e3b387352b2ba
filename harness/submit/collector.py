"""An imitation of the organisers' collection, and a tree checked against it.

What is public: config.toml lies at the root, or in a top-level folder named after its definition;
the language decides the folder, solution/<language>; that folder is packed flat by
flashinfer-bench's own rule. Files of other endings and sub-folders are passed over there in
silence, and so are keys that the starter kit does not know: this module refuses them instead.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config import SolutionConfig
from harness.errors import SubmissionRefused
from harness.packing import content_sha256
from harness.packing.folders import SOURCE_SUFFIXES
from harness.submit.contest import CONTEST_DEFINITIONS
from harness.submit.readiness import Entry, refusal
from harness.submit.tree import SOURCE_FOLDER

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG, PACKED = "config.toml", "solution.json"
KIT_LANGUAGES = ("triton", "cuda")  # what the starter kit's own script packs


@dataclass(frozen=True)
class Collected:
    """One solution as the organisers would pack it. folder: "" for the root. texts: file name ->
    content. dropped: what lies in the source folder and would be left behind."""

    folder: str
    name: str
    definition: str
    author: str
    language: str
    entry_point: str
    destination_passing_style: bool
    texts: Mapping[str, str]
    dropped: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """The content hash that this project gives to what they packed."""
        config = SolutionConfig(
            path=Path(CONFIG),
            name=self.name,
            definition=self.definition,
            author=self.author,
            language=self.language,
            entry_point=self.entry_point,
            destination_passing_style=self.destination_passing_style,
        )
        return content_sha256(config, self.texts)


def collect(root: Path) -> list[Collected]:
    """Pack every config.toml of the root and of its immediate sub-folders, root first, by name.

    Raises SubmissionRefused where the organisers' program would stumble.
    """
    folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    return [_pack_folder(root, path) for path in folders if (path / CONFIG).is_file()]


def _pack_folder(root: Path, folder: Path) -> Collected:
    label = "" if folder == root else folder.name
    place = f"{label}/{CONFIG}".lstrip("/")
    try:
        document: dict[str, Any] = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
        solution, build = document["solution"], document["build"]
        name, definition, author = (str(solution[k]) for k in ("name", "definition", "author"))
        language, entry_point = str(build["language"]), str(build["entry_point"])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise SubmissionRefused(
            f"{place}: expected [solution] and [build] with the starter kit's keys, got {error!r}; "
            "every config.toml of the root and its sub-folders is taken for a solution"
        ) from error
    sources = folder / SOURCE_FOLDER / language
    if not sources.is_dir():
        raise SubmissionRefused(
            f"{place}: language {language!r}: expected the folder {SOURCE_FOLDER}/{language} "
            "beside it, got none"
        )
    here = sorted(sources.iterdir())
    packed = [p for p in here if p.is_file() and p.suffix.lower() in SOURCE_SUFFIXES]
    try:
        texts = {path.name: path.read_text(encoding="utf-8") for path in packed}
    except UnicodeDecodeError as error:
        raise SubmissionRefused(f"{place}: a source beside it is not UTF-8: {error}") from error
    return Collected(
        folder=label,
        name=name,
        definition=definition,
        author=author,
        language=language,
        entry_point=entry_point,
        destination_passing_style=bool(build.get("destination_passing_style", True)),
        texts=texts,
        dropped=tuple(path.name for path in here if path not in packed),
    )


def check_tree(root: Path, entries: Sequence[Entry], single: bool) -> list[Collected]:
    """Collect a tree and compare it with what was to be submitted.

    Raises SubmissionRefused with every difference: a config too many or too few, an unknown
    definition, a wrong folder, a file left behind, other bytes.
    """
    found = collect(root)
    wanted = {entry.room.definition: entry for entry in entries}
    objections = []
    for definition in wanted:
        count = sum(one.definition == definition for one in found)
        if count != 1:
            objections.append(f"{definition}: expected one config.toml, collected {count}")
    for one in found:
        place = f"{one.folder}/{CONFIG}".lstrip("/")
        entry = wanted.get(one.definition)
        if entry is None or one.definition not in CONTEST_DEFINITIONS:
            objections.append(f"{place}: {one.definition!r} is not to be submitted")
            continue
        objections += [f"{place}: {text}" for text in _differences(one, entry, single)]
        beside = root / one.folder / PACKED
        if not beside.is_file() or beside.read_bytes() != entry.packed.text.encode():
            objections.append(f"{place}: expected {PACKED} beside it, with what pack.py packs")
    if objections:
        raise SubmissionRefused(refusal(objections))
    return found


def _differences(one: Collected, entry: Entry, single: bool) -> list[str]:
    texts = []
    folder = "" if single else entry.room.definition
    if one.folder != folder:
        texts.append(f"expected in {folder or 'the root'}, found in {one.folder or 'the root'}")
    if one.dropped:
        texts.append(f"left behind when packed: {', '.join(one.dropped)}")
    if one.sha256 != entry.packed.sha256:
        texts.append(
            f"packs to {one.sha256}, expected {entry.packed.sha256}: other bytes, or keys such as "
            "binding that the starter kit drops"
        )
    if one.name != entry.packed.name:
        texts.append(f"name: expected {entry.packed.name}, got {one.name}")
    return texts
