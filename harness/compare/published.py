"""workloads/published_b200.csv: what others measured on another chip.

Shown in columns of their own and never divided by, or into, a latency of this repository: the chip
differs, and so may everything else. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import DatasetError

PUBLISHED = "workloads/published_b200.csv"
CHIP = "B200, another chip"
_HEADER = "uuid,paper_b200_us,flashinfer_b200_us"


@dataclass(frozen=True)
class Published:
    """Latencies of one workload on a B200 in µs; None where none was published.

    paper_us: the best kernel of the contest's agent-assisted entry. flashinfer_us: FlashInfer's.
    """

    paper_us: float | None
    flashinfer_us: float | None


def read_published(root: Path) -> dict[str, Published]:
    """UUID -> what was published of it. Raises DatasetError naming file and line."""
    path = root / PUBLISHED
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: no such file; restore it from git") from error
    data = [(number, line) for number, line in enumerate(lines, 1) if not line.startswith("#")]
    if not data or data[0][1] != _HEADER:
        raise DatasetError(f"{path}: expected the columns {_HEADER}; restore it from git")
    published: dict[str, Published] = {}
    for number, line in data[1:]:
        try:
            uuid, paper, flashinfer = line.split(",")
            published[uuid] = Published(_latency(paper), _latency(flashinfer))
        except ValueError as error:
            raise DatasetError(
                f"{path}:{number}: expected a UUID and two latencies, got {line!r}"
            ) from error
    return published


def _latency(text: str) -> float | None:
    """Raises ValueError unless it is above 0 or absent."""
    if not text:
        return None
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise ValueError(text)
    return value
