"""The files of a submission, from nothing but what was packed, and the folder that they land in."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import EnvironmentUnfit, UsageError
from harness.files import expand_home
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
    """Write the files into a new or empty folder, which appears whole or not at all."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}."))
        try:
            for name, data in files.items():
                path = partial / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            partial.chmod(0o755)
            if directory.is_dir():
                directory.rmdir()
            partial.rename(directory)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except OSError as error:
        raise EnvironmentUnfit(f"{directory}: cannot be written: {error}") from error
