"""One round: state, direction, candidates, gate, sweep, confirmation, decision, memory.

Every step is a line of the archive before the next one begins, and a step whose line is there is
not done again. So a run that is killed anywhere, and resumed, does each step once and ends as an
unbroken one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from harness.compare.analysis import Comparison, analyse
from harness.compare.record import CompareRecord
from harness.controller.archive import ATTEMPTS, DECISIONS, MEMORY
from harness.controller.decision import (
    ARCHIVE,
    CONFIRMATION,
    GATE,
    PROMOTE,
    PROPOSAL,
    REPLAY,
    STAGES,
    SWEEP,
    Decision,
    Evidence,
    Result,
    decide,
    next_evidence,
    objection,
    summarise,
)
from harness.controller.memory import ClosedRound
from harness.errors import InfrastructureFailure
from harness.packing import Packed
from harness.records.strict_json import Fields
from harness.search.evaluator import BASELINE
from harness.search.planning import Brief, Position, Search, begin, propose
from harness.search.population import MIGRATION_ROUNDS, Member
from harness.search.promotion import promote


def run_round(search: Search, position: Position) -> Position:
    """The position after one more round, or the same one with a reason to stop. Raises
    HarnessError where nothing can be measured; the round then goes on when the run is resumed."""
    brief = begin(search, position)
    if isinstance(brief, str):
        return replace(position, stop=brief)
    direction = brief.choice.direction.name
    search.note(f"{brief.key}: {direction} ({brief.choice.why}); state {brief.matched.kind}")
    for finding in brief.told.findings:
        search.note(f"{brief.key}: {finding}")
    proposed = propose(search, position, brief)
    round_ = _Round(search, position, brief, proposed)
    decision = round_.decide()
    search.note(f"{brief.key}: {decision['label']}: {decision['reason']}")
    if decision["label"] == PROMOTE:
        before = search.store.sources(position.baseline_sha256)
        after = search.store.sources(decision["sha256"])
        promote(search.workspace, search.room, before, after, decision["sha256"])
    closed = search.archive.step(MEMORY, brief.key, lambda: round_.close(decision).to_json())
    return round_.advance(decision, closed)


class _Round:
    """The measurements of one round, and what they come to."""

    def __init__(
        self, search: Search, position: Position, brief: Brief, proposed: Mapping[str, Any]
    ) -> None:
        self.search, self.position, self.brief, self.proposed = search, position, brief, proposed
        self.candidates = {
            str(one["name"]): one for one in proposed["proposals"] if one["refused"] is None
        }
        self.lines: dict[str, dict[str, Any]] = {}
        self.comparisons: dict[tuple[str, str], Comparison] = {}

    def decide(self) -> dict[str, Any]:
        """The round's one decision, as its line. Measures what that needs."""
        if not self.candidates:
            decision = Decision(ARCHIVE, "nothing new was proposed")
            return self._write(None, Evidence(), decision)
        names = list(self.candidates)
        self._measure(GATE, names, self.search.regimes.representatives)
        passed = [name for name in names if self._passes_gate(name)]
        passed.sort(key=lambda name: (-(self._mean(name) or 0.0), name))
        best = passed[0] if passed else max(names, key=lambda name: (self._mean(name) or 0.0, name))
        if passed and self._may(SWEEP):
            swept = passed[: self.search.settings.sweeps]
            self._measure(SWEEP, swept, None)
            best = max(swept, key=self._rank)
        wanted = next_evidence(self._evidence(best))
        if wanted == CONFIRMATION and self._may(CONFIRMATION):
            self._measure(CONFIRMATION, [best], None)
            wanted = next_evidence(self._evidence(best))
        if wanted == REPLAY and self._may(REPLAY):
            self._replay(best)
        evidence = self._evidence(best)
        return self._write(best, evidence, decide(evidence))

    def close(self, decision: Mapping[str, Any]) -> ClosedRound:
        brief, proposals = self.brief, self.proposed["proposals"]
        return ClosedRound(
            run=self.position.run,
            round=self.position.next_round,
            state=brief.state,
            match=brief.matched.kind,
            direction=brief.choice.direction.name,
            why=brief.choice.why,
            baseline_sha256=self.position.baseline_sha256,
            candidates=tuple(self.candidates),
            known=self.proposed["known"],
            refused=sum(one["refused"] is not None for one in proposals),
            passed_gate=sum(self._passes_gate(name) for name in self.candidates),
            best=decision["candidate"],
            label=decision["label"],
            reason=decision["reason"],
            is_lost=decision["is_lost"],
            gain=decision["gain"],
            device_s=round(sum(line["device_s"] for line in self.lines.values()), 3),
            findings=brief.told.findings,
            blocked=brief.told.blocked,
            recommended=brief.told.recommended,
            closed_at=self.search.clock(),
        )

    def advance(self, decision: Mapping[str, Any], closed: Mapping[str, Any]) -> Position:
        """The position of the next round."""
        position, population = self.position, self.position.population
        for name, one in self.candidates.items():
            result = self._result(GATE, name)
            if result and result.geometric_mean and not (result.failure or result.lost):
                fitness = round(position.speedup * result.geometric_mean, 6)
                member = Member(
                    one["sha256"], name, one["island"], fitness, one["parent"], closed["key"]
                )
                population = population.add(member)
        if (position.next_round + 1) % MIGRATION_ROUNDS == 0:
            population = population.migrate()
        is_promoted = decision["label"] == PROMOTE
        return replace(
            position,
            next_round=position.next_round + 1,
            baseline_sha256=decision["sha256"] if is_promoted else position.baseline_sha256,
            speedup=position.speedup * (1.0 + decision["gain"] if is_promoted else 1.0),
            population=population,
        )

    def _may(self, stage: str) -> bool:
        return STAGES.index(stage) <= STAGES.index(self.search.settings.until)

    def _measure(self, stage: str, names: Sequence[str], uuids: Sequence[str] | None) -> None:
        key = f"{self.brief.key}/{stage}"
        search = self.search

        def make() -> dict[str, Any]:
            search.note(f"{self.brief.key}: {stage} of {', '.join(names)}")
            baseline = search.store.get(self.position.baseline_sha256)
            packed = [search.store.get(self.candidates[name]["sha256"]) for name in names]
            measured = search.evaluator.measure(stage, baseline, packed, uuids)
            _require_sides(key, measured.record, packed)
            for name in names:
                self.comparisons[stage, name] = analyse(measured.record, name, BASELINE)
            results = {
                name: summarise(self.comparisons[stage, name], measured.distrust).to_json()
                for name in names
            }
            return {
                **self._head(stage),
                "results": results,
                "record": search.archive.write_record(key, measured.record),
                "device_s": measured.device_s,
            }

        self.lines[stage] = search.archive.step(ATTEMPTS, key, make)
        for name in names:
            search.note(f"  {name} {_describe_result(self._result(stage, name))}")

    def _replay(self, name: str) -> None:
        def make() -> dict[str, Any]:
            packed = self.search.store.get(self.candidates[name]["sha256"])
            found = self.search.evaluator.replay(packed)
            head = {**self._head(REPLAY), "results": {}, "record": None}
            return {
                **head,
                "device_s": found.device_s,
                "candidate": name,
                "objection": found.objection,
            }

        self.lines[REPLAY] = self.search.archive.step(ATTEMPTS, f"{self.brief.key}/{REPLAY}", make)

    def _head(self, stage: str) -> dict[str, Any]:
        return {
            "round": self.brief.key,
            "stage": stage,
            "direction": self.brief.choice.direction.name,
            "baseline_sha256": self.position.baseline_sha256,
            "made_at": self.search.clock(),
        }

    def _result(self, stage: str, name: str) -> Result | None:
        values = self.lines.get(stage, {}).get("results", {}).get(name)
        return None if values is None else Result.from_json(Fields(stage, name, values))

    def _evidence(self, name: str) -> Evidence:
        replayed = self.lines.get(REPLAY, {})
        return Evidence(
            lines_added=self.candidates[name]["lines_added"],
            gate=self._result(GATE, name),
            sweep=self._result(SWEEP, name),
            confirmation=self._result(CONFIRMATION, name),
            replay=replayed.get("objection") if replayed.get("candidate") == name else None,
        )

    def _passes_gate(self, name: str) -> bool:
        result = self._result(GATE, name)
        return result is not None and objection(GATE, result) is None

    def _mean(self, name: str) -> float | None:
        result = self._result(GATE, name)
        return None if result is None else result.geometric_mean

    def _rank(self, name: str) -> tuple[bool, bool, float, str]:
        """Of swept candidates: those that nothing stands against, then correct ones, then fast."""
        evidence = self._evidence(name)
        sweep = evidence.sweep
        is_open = next_evidence(evidence) is not None
        is_right = sweep is not None and sweep.failure is None and sweep.lost is None
        return is_open, is_right, (sweep.score if sweep else None) or 0.0, name

    def _write(self, name: str | None, evidence: Evidence, decision: Decision) -> dict[str, Any]:
        search, stage = self.search, SWEEP if SWEEP in self.lines else GATE
        best = evidence.sweep.gain if evidence.sweep else None
        if best is None and evidence.gate and evidence.gate.geometric_mean:
            best = evidence.gate.geometric_mean - 1.0
        values = {
            "round": self.brief.key,
            "candidate": name,
            "sha256": None if name is None else self.candidates[name]["sha256"],
            **asdict(decision),
            "gain": best,
            "lines_added": evidence.lines_added,
            "record": self._record_label(stage),
            "confirmation": self._record_label(CONFIRMATION),
            "profile": asdict(search.profile),
            "proposal": f"{self.brief.key}/{PROPOSAL}",
            "matrix": [] if name is None else self._matrix(name, stage),
            "decided_at": search.clock(),
        }
        return search.archive.step(DECISIONS, self.brief.key, lambda: values)

    def _record_label(self, stage: str) -> str | None:
        label: str | None = self.lines.get(stage, {}).get("record")
        return label

    def _matrix(self, name: str, stage: str) -> list[list[Any]]:
        """Each workload that was measured: UUID, both medians in µs, ratio and word."""
        comparison = self.comparisons.get((stage, name))
        if comparison is None:  # measured before the run was resumed
            label = self._record_label(stage)
            assert label is not None
            comparison = analyse(self.search.archive.load_record(label), name, BASELINE)
        return [
            [
                row.uuid[:8],
                _rounded(row.b_us),
                _rounded(row.a_us),
                _rounded(row.interval.value if row.interval else None),
                row.word,
            ]
            for row in comparison.rows
        ]


def _require_sides(key: str, record: CompareRecord, packed: Sequence[Packed]) -> None:
    found = {side.name: side.solution_sha256 for side in record.sides}
    wrong = [one.name for one in packed if found.get(one.name) != one.sha256]
    if wrong or BASELINE not in found:
        raise InfrastructureFailure(
            f"{key}: expected results of {', '.join([BASELINE, *(one.name for one in packed)])}, "
            f"got {', '.join(found)}"
        )


def _describe_result(result: Result | None) -> str:
    if result is None:
        return "not measured"
    if result.failure or result.lost:
        return f"{result.passed}/{result.workloads}: {result.failure or result.lost}"
    if result.score is None:
        return f"{result.passed}/{result.workloads}, no ratio"
    return (
        f"{result.passed}/{result.workloads}, mean ratio {result.score:.4f} "
        f"[{result.low:.4f}, {result.high:.4f}], geometric {result.geometric_mean or 0:.4f}"
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
