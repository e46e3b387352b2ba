"""workloads/facts.csv: what is known of each workload's tensors beyond the official files.

The generators need it: sequence lengths, counts of valid indices, local experts hit. The head of
the file says where each comes from.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from harness.errors import DatasetError

FACTS = "workloads/facts.csv"

Facts = Mapping[str, tuple[int, ...]]


def read_facts(root: Path) -> dict[str, dict[str, tuple[int, ...]]]:
    """UUID -> name of the fact -> its whole numbers. Raises DatasetError."""
    path = root / FACTS
    facts: dict[str, dict[str, tuple[int, ...]]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = (line for line in file if not line.startswith("#"))
            for row in csv.DictReader(lines, strict=True):
                values = tuple(int(value) for value in row["values"].split())
                facts.setdefault(row["uuid"], {})[row["fact"]] = values
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: no such file; restore it from git") from error
    except (csv.Error, KeyError, ValueError, AttributeError) as error:
        raise DatasetError(f"{path}: expected uuid,fact,values lines, got {error!r}") from error
    return facts
