"""Lines of an archive as a round writes them, with what a test changes."""

from __future__ import annotations

from typing import Any

NOW = "2026-01-01T00:00:00Z"
NAME, CONTENT = "gdn_decode-aaaaaaaa", "a" * 64
RESULT: dict[str, Any] = {
    "workloads": 3,
    "passed": 3,
    "failure": None,
    "lost": None,
    "score": 1.1,
    "low": 1.0,
    "high": 1.2,
    "geometric_mean": 1.1,
    "ratio_of_means": 1.1,
    "fast": [],
    "slow": [],
}
PROPOSAL: dict[str, Any] = {
    "name": NAME,
    "sha256": CONTENT,
    "parent": None,
    "island": 0,
    "edits": {},
    "note": "",
    "lines_added": 0,
    "patch": "",
    "refused": None,
}
HEAD = {"direction": "a", "baseline_sha256": "0" * 64, "made_at": NOW, "device_s": 0.0}
MATRIX = [["901e5104", 2.04, 1.9, 1.07, "FAST"]]


def proposal_line(round_: str = "r001/000", **changes: Any) -> dict[str, Any]:
    own = {"hypothesis": "why", "parent": None, "known": 0, "proposals": [PROPOSAL]}
    head = {"round": round_, "stage": "proposal", **HEAD, "results": {}, "record": None}
    return {"key": f"{round_}/proposal", **head, **own, **changes}


def measured_line(round_: str = "r001/000", stage: str = "gate", **changes: Any) -> dict[str, Any]:
    head = {"round": round_, "stage": stage, **HEAD, "record": "results/search/x.json"}
    return {"key": f"{round_}/{stage}", **head, "results": {NAME: RESULT}, **changes}


def replay_line(round_: str = "r001/000", **changes: Any) -> dict[str, Any]:
    own = {"results": {}, "record": None, "candidate": NAME, "objection": ""}
    return measured_line(round_, "replay", **{**own, **changes})


def decision_line(round_: str = "r001/000", **changes: Any) -> dict[str, Any]:
    values = {
        "key": round_,
        "round": round_,
        "candidate": NAME,
        "sha256": CONTENT,
        "label": "archive only",
        "reason": "why",
        "is_lost": False,
        "gain": 0.1,
        "lines_added": 0,
        "record": None,
        "confirmation": None,
        "profile": {},
        "proposal": f"{round_}/proposal",
        "matrix": MATRIX,
        "decided_at": NOW,
    }
    return {**values, **changes}
