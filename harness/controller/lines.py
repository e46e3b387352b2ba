"""What each line of attempts.jsonl and of decisions.jsonl holds, checked whenever one is read.

The writers are harness.search.planning and harness.search.rounds; every reader may then take each
key as it stands here.
"""

from __future__ import annotations

from typing import Any

from harness.controller.decision import LABELS, PROMOTE, PROPOSAL, REPLAY, STAGES, Result
from harness.records.strict_json import Fields

MATRIX_ROW = "a row of UUID, two latencies in µs, their ratio and a word"


def check_attempt(table: Fields) -> None:
    """Raises RecordError naming source and key."""
    key, round_, stage = table.text("key"), table.text("round"), table.text("stage")
    if stage not in (PROPOSAL, *STAGES):
        raise table.fail("stage", f"one of {', '.join((PROPOSAL, *STAGES))}", stage)
    if key != f"{round_}/{stage}":
        raise table.fail("key", f"{round_}/{stage}, its round and stage", key)
    for name in ("direction", "baseline_sha256", "made_at"):
        table.text(name)
    table.number("device_s", 0.0)
    table.optional_text("record")
    results = table.object("results")
    for name in list(results.values):
        Result.from_json(results.object(name))
    if stage == PROPOSAL:
        table.take("hypothesis", str)
        table.optional_text("parent")
        table.count("known")
        for index, one in enumerate(table.take("proposals", list)):
            _check_proposal(Fields(table.source, f"proposals[{index}]", one))
    if stage == REPLAY:
        table.text("candidate")
        table.take("objection", str)
    table.done()


def check_decision(table: Fields) -> None:
    """Raises RecordError naming source and key."""
    key, round_ = table.text("key"), table.text("round")
    if key != round_:
        raise table.fail("key", f"{round_}, its round", key)
    label = table.text("label")
    if label not in LABELS:
        raise table.fail("label", f"one of {', '.join(LABELS)}", label)
    for name in ("reason", "proposal", "decided_at"):
        table.text(name)
    is_promotion = label == PROMOTE
    if is_promotion or not table.is_null("gain"):
        table.number("gain", 0.0 if is_promotion else -1.0)
    for name in ("candidate", "sha256"):
        table.text(name) if is_promotion else table.optional_text(name)
    for name in ("record", "confirmation"):
        table.optional_text(name)
    table.take("is_lost", bool)
    table.count("lines_added")
    table.take("profile", dict)
    for index, row in enumerate(table.take("matrix", list)):
        if not _is_matrix_row(row):
            raise table.fail(f"matrix[{index}]", MATRIX_ROW, row)
    table.done()


def _check_proposal(table: Fields) -> None:
    """A candidate has name and content; what was refused has neither."""
    is_refused = table.optional_text("refused") is not None
    for name in ("name", "sha256"):
        if (table.optional_text(name) is None) != is_refused:
            raise table.fail(name, "text, or null beside a refusal", None)
    table.optional_text("parent")
    table.count("island")
    table.count("lines_added")
    table.take("edits", dict)
    table.take("note", str)
    table.take("patch", str)
    table.done()


def _is_matrix_row(row: Any) -> bool:
    if not isinstance(row, list) or len(row) != 5:
        return False
    uuid, *numbers, word = row
    are_numbers = all(one is None or (type(one) in (int, float) and one > 0) for one in numbers)
    return isinstance(uuid, str) and are_numbers and isinstance(word, str | None)
