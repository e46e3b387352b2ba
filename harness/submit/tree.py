"""The files of a submission, from nothing but what was packed, and the folder that they land in."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.errors import EnvironmentUnfit, UsageError
from harness.files import expand_home
from harness.packing.folders import SHELF
from harness.records import format_us
from harness.submit.readiness import Entry

SOURCE_FOLDER = "solution"
NOT_AUDITED = "not audited (--without-audit)"


def submission_files(entries: Sequence[Entry], commit: str, single: bool) -> dict[str, bytes]:
    """Path in the tree -> bytes. The same entries and commit give the same bytes.

    single: the one entry's config.toml at the root; else one folder a definition and no config at
    the root. commit: what the tree is made from, as README.md names it.
    """
    files = {"README.md": _readme(entries, commit).encode()}
    for entry in entries:
        prefix = "" if single else f"{entry.room.definition}/"
        solution = json.loads(entry.packed.text)
        files[f"{prefix}config.toml"] = _config_text(entry).encode()
        files[f"{prefix}solution.json"] = entry.packed.text.encode()
        for source in solution["sources"]:
            path = f"{prefix}{SOURCE_FOLDER}/{entry.config.language}/{source['path']}"
            files[path] = source["content"].encode()
    return files


def origins(root: Path, entries: Sequence[Entry]) -> dict[str, bytes]:
    """Path below root -> bytes of what the entries were packed from: each source as it was packed,
    each room's config.toml, and the checkout's own."""
    files = {"config.toml": (root / "config.toml").read_bytes()}
    for entry in entries:
        folder = f"solutions/{entry.room.name}"
        files[f"{folder}/config.toml"] = (root / folder / "config.toml").read_bytes()
        for source in json.loads(entry.packed.text)["sources"]:
            in_room = f"{folder}/{source['path']}"
            path = in_room if (root / in_room).exists() else f"solutions/{SHELF}/{source['path']}"
            files[path] = source["content"].encode()
    return files


def _config_text(entry: Entry) -> str:
    """The starter kit's keys. JSON's strings and booleans are TOML's."""
    config = entry.config
    solution = {
        "name": entry.packed.name,
        "definition": config.definition,
        "author": config.author,
    }
    build: dict[str, object] = {
        "language": config.language,
        "entry_point": config.entry_point,
        "destination_passing_style": config.destination_passing_style,
    }
    if config.binding is not None:
        build["binding"] = config.binding
    lines = []
    for table, values in (("solution", solution), ("build", build)):
        lines += [
            f"[{table}]",
            *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()),
        ]
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def _readme(entries: Sequence[Entry], commit: str) -> str:
    """What an evaluator reads first: provenance, evidence and audit of each definition."""
    author = entries[0].config.author
    lines = [
        f"# Submission of {author} to the FlashInfer-Bench contest (MLSys 2026)",
        "",
        f"Made from commit {commit}. Each folder with a config.toml is one solution in the layout",
        "of the starter kit; solution.json beside it is the same solution, packed.",
        "",
        "| definition | solution | content sha256 | measured | audit |",
        "| --- | --- | --- | --- | --- |",
    ]
    for entry in entries:
        cells = (
            entry.room.definition,
            entry.packed.name,
            f"`{entry.packed.sha256}`",
            "; ".join(describe_evidence(entry)),
            describe_audit(entry),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def describe_evidence(entry: Entry) -> list[str]:
    """One line a device."""
    return [
        f"{record.device}: {record.passed}/{record.total} passed, mean "
        f"{format_us(record.mean_latency_us)} µs ({record.timer}, {record.measured_at})"
        for record in entry.evidence
    ]


def describe_audit(entry: Entry) -> str:
    if entry.audit is None:
        return NOT_AUDITED
    audit = entry.audit
    return f"{len(audit.probes)} probes passed on {audit.device} ({audit.measured_at})"


def require_free(directory: Path, checkout: Path) -> Path:
    """The folder to write. Raises UsageError for one in use, and for one inside the checkout, whose
    tree it would make dirty."""
    directory = expand_home(directory).resolve()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory}: expected a new or empty folder, got one in use")
    if directory.is_relative_to(checkout.resolve()):
        raise UsageError(
            f"{directory}: expected a folder outside the checkout, whose tree must stay clean"
        )
    return directory


def write_tree(files: Mapping[str, bytes], directory: Path) -> None:
    """Write the files into a new or empty folder, all or none. Raises EnvironmentUnfit.

    A new folder appears whole. An empty one stays the folder that it is, which may be a mount
    point or lie where nothing else may be written.
    """
    is_new = not directory.exists()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        staging = directory.parent if is_new else directory
        partial = Path(tempfile.mkdtemp(dir=staging, prefix=f".{directory.name}."))
        try:
            for name, data in files.items():
                path = partial / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            if is_new:
                partial.chmod(0o755)
                partial.rename(directory)
            else:
                for path in sorted(partial.iterdir()):
                    path.rename(directory / path.name)
                partial.rmdir()
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            if not is_new:
                _take_away(files, directory)
            raise
    except OSError as error:
        raise EnvironmentUnfit(f"{directory}: cannot be written: {error}") from error


@contextlib.contextmanager
def written_tree(files: Mapping[str, bytes], directory: Path) -> Iterator[None]:
    """write_tree, undone where the block fails: the next attempt finds the folder free again."""
    is_new = not directory.exists()
    write_tree(files, directory)
    try:
        yield
    except BaseException:
        _take_away(files, directory)
        if is_new:
            directory.rmdir()
        raise


def _take_away(files: Mapping[str, bytes], directory: Path) -> None:
    for name in {name.partition("/")[0] for name in files}:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
