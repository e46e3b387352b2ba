"""workloads/blobs.sha256: what the generated blobs must hash to, in the format of sha256sum.

``sha256sum --check workloads/blobs.sha256`` in the checkout reads it too. It speaks of generated
blobs alone; the official set has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from harness.errors import DatasetError
from harness.files import atomic_file

MANIFEST = "workloads/blobs.sha256"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def read_manifest(root: Path) -> dict[str, str] | None:
    """Path relative to the root -> sha256, or None where the set has no manifest."""
    path = root / MANIFEST
    if not path.is_file():
        return None
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: expected UTF-8 text, got {error}; restore the file") from error
    hashes = {}
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise DatasetError(
                f"{path}:{number}: expected '<sha256>  <path>', got {line!r}; restore the file"
            )
        hashes[match.group(2)] = match.group(1)
    return hashes


def write_manifest(root: Path, hashes: Mapping[str, str]) -> None:
    """Write the lines in the order given, atomically."""
    text = "".join(f"{sha256}  {path}\n" for path, sha256 in hashes.items())
    with atomic_file(root / MANIFEST) as file:
        file.write(text.encode("utf-8"))
