"""docs/measuring.md against the tests that prove what it says."""

from __future__ import annotations

import re
from pathlib import Path

from harness.records import all_latest
from tests.unit import test_diagnosis

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "measuring.md"


def test_the_table_of_elements_is_the_tested_one():
    rows = re.findall(
        r"^\| (\S+) \| (\S+) \| (right|wrong)\b[^|]*\|$", DOCUMENT.read_text(), re.MULTILINE
    )
    documented = [(float(got), float(want), word == "right") for got, want, word in rows]
    (mark,) = test_diagnosis.test_one_element.pytestmark
    # repr, because NaN differs from itself
    assert repr(documented) == repr([tuple(map(float, row[:2])) + row[2:] for row in mark.args[1]])
    assert len(documented) == 12


def test_the_versions_of_records_and_of_the_environment_are_told_apart():
    root, text = DOCUMENT.parents[1], " ".join(DOCUMENT.read_text().split())
    recorded = {record.libraries["torch"] for record in all_latest(root)}
    (pinned,) = re.findall(r"^torch==(\S+)$", (root / "constraints.txt").read_text(), re.MULTILINE)
    assert f"the recorded sweeps are of torch {' and '.join(sorted(recorded))}" in text
    assert f"constraints.txt makes an environment of torch {pinned}." in text
