"""The controller's pure parts on scripted histories: labels, gates, supervision, directions."""

import dataclasses
import math
from pathlib import Path

import pytest

from harness.compare.analysis import analyse
from harness.compare.record import CONTROL, load_compare
from harness.controller.decision import (
    ARCHIVE,
    CONFIRMATION,
    GATE,
    GATE_TOLERANCE,
    LABELS,
    MANY_LINES,
    PROMOTE,
    REJECT,
    REPLAY,
    SMALL_GAIN,
    SWEEP,
    Evidence,
    Result,
    decide,
    is_too_long,
    next_evidence,
    summarise,
)
from harness.controller.directions import CATALOGUE, Direction, choose_direction
from harness.controller.memory import ClosedRound, failures_in_state, is_blocked
from harness.controller.state import NEW, SAME, SIMILAR, Profile, StateMatch, match, signature
from harness.controller.supervisor import (
    PLATEAU_ROUNDS,
    STALL_ROUNDS,
    Budget,
    supervise,
)
from harness.records.strict_json import Fields
from tests.sample_compare import compare_record

ROOT = Path(__file__).resolve().parents[2]
PASSED = Result(3, 3, score=1.1, low=1.05, high=1.15, geometric_mean=1.1, ratio_of_means=1.1)
WHOLE = Evidence(0, PASSED, PASSED, PASSED, "")


def changed(stage, **changes):
    """The whole evidence, one stage of it changed."""
    result = dataclasses.replace(getattr(WHOLE, stage), **changes)
    return dataclasses.replace(WHOLE, **{stage: result})


# Labels


def test_the_gates_tolerance_is_the_pages_and_a_choice():
    """Two processes of one solution were further apart in some gate of a search; the page says by
    how much."""
    page = (ROOT / "docs" / "controller.md").read_text(encoding="utf-8")
    words = f"more than {100 * GATE_TOLERANCE:g} % slower by the geometric mean goes no further"
    assert words in " ".join(page.split()) and f"The gate's {100 * GATE_TOLERANCE:g} %" in page
    apart: dict[str, list[float]] = {}
    for path in sorted(ROOT.glob("results/search/*/records/*-gate.json")):
        control = analyse(load_compare(path), "baseline", CONTROL)
        apart.setdefault(path.parts[-3], []).append(abs(math.log(control.geometric_mean)))
    for room, found in apart.items():
        low, high = 100 * min(found), 100 * max(found)
        assert f"| {room} | {len(found)} | {low:.2f} to {high:.2f} % |" in page
    assert max(map(max, apart.values())) > GATE_TOLERANCE, f"{apart}: the records bear it now"


def test_a_confirmed_gain_on_every_workload_is_promoted():
    decision = decide(WHOLE)
    assert decision.label == PROMOTE
    assert "1.1000 [1.0500, 1.1500]" in decision.reason
    assert next_evidence(WHOLE) is None


@pytest.mark.parametrize(
    ("evidence", "label", "words"),
    [
        (changed("gate", passed=2, failure="u: INCORRECT_NUMERICAL: y"), REJECT, "gate: 2 of 3"),
        (changed("gate", slow=("u-0",)), REJECT, "gate: slower on u-0"),
        (changed("gate", geometric_mean=0.989), REJECT, "below 0.99"),
        (changed("gate", geometric_mean=None), REJECT, "0.0000, below 0.99"),
        (changed("gate", lost="u: INFRASTRUCTURE: x"), ARCHIVE, "no verdict"),
        (changed("sweep", passed=2, failure="u: TIMEOUT: y"), REJECT, "sweep: 2 of 3"),
        (changed("sweep", lost="u: INFRASTRUCTURE: x"), ARCHIVE, "incomplete"),
        (changed("sweep", low=0.9, high=0.99), REJECT, "slower over the full distribution"),
        (changed("sweep", slow=("u-0",), fast=("u-1",)), ARCHIVE, "a local win"),
        (changed("sweep", slow=("u-0",)), REJECT, "1 of 3 workloads are slower"),
        (changed("sweep", low=1.0), ARCHIVE, "includes no difference"),
        (changed("sweep", ratio_of_means=0.99), ARCHIVE, "mean latency does not improve"),
        (changed("confirmation", low=0.99), ARCHIVE, "confirmation: the interval"),
        (changed("confirmation", failure="u: TIMEOUT: y"), REJECT, "confirmation"),
        (dataclasses.replace(WHOLE, replay="3 of 200 mismatched"), ARCHIVE, "3 of 200"),
        (dataclasses.replace(WHOLE, replay=None), ARCHIVE, "no replay"),
        (dataclasses.replace(WHOLE, confirmation=None), ARCHIVE, "no confirmation"),
        (dataclasses.replace(WHOLE, sweep=None, confirmation=None), ARCHIVE, "no sweep"),
        (Evidence(), ARCHIVE, "no gate"),
    ],
)
def test_one_objection_decides(evidence, label, words):
    decision = decide(evidence)
    assert decision.label == label
    assert words in decision.reason


def test_only_a_broken_machine_teaches_nothing():
    assert decide(changed("sweep", lost="x")).is_lost
    assert not decide(changed("sweep", failure="x")).is_lost
    assert not decide(WHOLE).is_lost


def test_what_two_processes_differ_by_passes_the_gate_and_proves_nothing():
    level = dataclasses.replace(PASSED, score=0.995, low=0.98, high=1.01, geometric_mean=0.995)
    assert next_evidence(Evidence(0, level)) == SWEEP
    assert decide(Evidence(0, level, level)).label == ARCHIVE


def test_every_label_is_one_of_three():
    assert LABELS == ("archive only", "promote globally", "reject and restore")


def test_evidence_is_gathered_in_order_and_no_further_than_it_can_matter():
    assert next_evidence(Evidence()) == GATE
    assert next_evidence(Evidence(0, PASSED)) == SWEEP
    assert next_evidence(Evidence(0, PASSED, PASSED)) == CONFIRMATION
    assert next_evidence(Evidence(0, PASSED, PASSED, PASSED)) == REPLAY
    slower = dataclasses.replace(PASSED, low=0.8, high=0.9)
    assert next_evidence(Evidence(0, PASSED, slower)) is None
    assert next_evidence(Evidence(0, dataclasses.replace(PASSED, failure="x"))) is None


def test_a_small_gain_does_not_pay_for_many_lines():
    small = dataclasses.replace(PASSED, score=1.019, low=1.01, high=1.03)
    evidence = Evidence(MANY_LINES + 1, PASSED, small, small, "")
    assert decide(evidence).label == REJECT and "21 more lines" in decide(evidence).reason
    assert next_evidence(dataclasses.replace(evidence, confirmation=None)) is None
    assert decide(dataclasses.replace(evidence, lines_added=MANY_LINES)).label == PROMOTE
    unproven = dataclasses.replace(small, score=1.004, low=0.99, high=1.02)
    refused = decide(Evidence(MANY_LINES + 1, PASSED, unproven))
    assert refused.label == REJECT and "0.4 % for 21 more lines" in refused.reason
    assert decide(Evidence(MANY_LINES, PASSED, unproven)).label == ARCHIVE
    local = dataclasses.replace(unproven, fast=("u-0",), slow=("u-1",))
    assert decide(Evidence(MANY_LINES + 1, PASSED, local)).label == REJECT
    large = dataclasses.replace(small, score=1.0 + SMALL_GAIN)
    assert decide(Evidence(500, PASSED, large, large, "")).label == PROMOTE
    assert is_too_long(0.0199, 21) and not is_too_long(0.0199, 20) and not is_too_long(0.02, 21)


def test_a_comparison_becomes_a_result():
    record = compare_record({"baseline": 1.3})
    result = summarise(analyse(record, "ours", "baseline"))
    assert (result.workloads, result.passed, result.failure, result.lost) == (3, 3, None, None)
    assert result.score == pytest.approx(1.3, abs=0.01) and result.low > 1.25
    assert result.gain == pytest.approx(0.3, abs=0.01)
    assert result.fast == ("u-0", "u-1", "u-2") and result.slow == ()
    assert summarise(analyse(record, "ours", "baseline"), "strangers").lost == "strangers"


@pytest.mark.parametrize(
    ("side", "status", "lost"),
    [
        ("ours", "INCORRECT_NUMERICAL", False),
        ("ours", "INFRASTRUCTURE", True),
        ("baseline", "RUNTIME_ERROR", True),
    ],
)
def test_a_failing_baseline_is_no_verdict_on_the_candidate(side, status, lost):
    record = compare_record({"baseline": 1.3}, failing={side: (1, status, "broke")})
    result = summarise(analyse(record, "ours", "baseline"))
    assert result.lost == (f"u-1: {status}: broke" if lost else None)
    assert result.failure == (None if lost else f"u-1: {status}: broke")
    assert result.score is None and result.passed == (3 if side == "baseline" else 2)


def test_a_result_survives_its_json():
    result = dataclasses.replace(PASSED, fast=("u-0",), lost="x", geometric_mean=None)
    assert Result.from_json(
        Fields("here", "", result.to_json() | {"fast": ["u-0"], "slow": []})
    ) == (result)


# States


PROFILE = Profile("gdn_decode", "batch_size 64", "latency", "step_kernel", 1.0, "grid", 0.8, 1.4)


def test_profiles_that_differ_by_noise_are_one_state():
    again = dataclasses.replace(PROFILE, occupancy=0.83, headroom=1.45, dominant_share=0.97)
    assert signature(again) == signature(PROFILE)
    other = dataclasses.replace(PROFILE, headroom=2.6)
    assert signature(other).key != signature(PROFILE).key
    assert signature(PROFILE).key == (
        "gdn_decode / batch_size 64 / latency / grid / step_kernel / occupancy high / "
        "headroom near the floor"
    )


def test_a_state_is_matched_with_what_memory_knows():
    state = signature(PROFILE)
    near = signature(dataclasses.replace(PROFILE, regime="batch_size 1", occupancy=0.1))
    far = signature(dataclasses.replace(PROFILE, bottleneck="memory"))
    assert match(state, [far]) == StateMatch(NEW)
    assert match(state, [far, near]) == StateMatch(SIMILAR, near.key)
    assert match(state, [state, near]) == StateMatch(SAME, state.key)
    bare = signature(Profile("gdn_decode", "batch_size 64"))
    assert match(bare, [signature(Profile("gdn_decode", "batch_size 1"))]) == StateMatch(NEW)


# Histories


STATE = signature(PROFILE)
BUDGET = Budget(rounds=20)
NAMES = ("a", "b", "c")


def closed(direction="a", label=REJECT, *, number=0, run="run", state=STATE, **changes):
    values = {
        "match": "new",
        "why": "not tried",
        "baseline_sha256": "0" * 64,
        "candidates": ("x",),
        "known": 0,
        "refused": 0,
        "passed_gate": 1,
        "best": "x",
        "reason": "measured",
        "is_lost": False,
        "gain": 0.0,
        "device_s": 10.0,
        "findings": (),
        "blocked": (),
        "recommended": (),
        "closed_at": "2026-01-01T00:00:00Z",
    }
    return ClosedRound(
        run, number, state, direction=direction, label=label, **{**values, **changes}
    )


def told(history, budget=BUDGET, names=NAMES):
    directions = [Direction(name, "why") for name in names]
    return supervise(history, "run", STATE.key, directions, budget)


def kinds(history):
    return [text.partition(":")[0] for text in told(history).findings]


def test_a_direction_that_failed_twice_in_a_state_is_blocked_there_in_every_run():
    history = [closed("a", run="before"), closed("b")]
    assert told(history).blocked == ()
    history.append(closed("a", ARCHIVE))
    assert told(history).blocked == ("a",)
    elsewhere = signature(dataclasses.replace(PROFILE, bottleneck="memory"))
    assert not is_blocked(history, elsewhere.key, "a")


def test_neither_a_lost_round_nor_a_success_counts_as_a_failure():
    assert told([closed("a"), closed("a", ARCHIVE, is_lost=True)]).blocked == ()
    history = [closed("a"), closed("a", PROMOTE), closed("a")]
    assert failures_in_state(history, STATE.key, "a") == 1
    assert told(history).blocked == ()
    assert told([closed("a"), closed("a", candidates=(), best=None)]).blocked == ("a",)


def test_stalling_is_rounds_without_a_candidate_past_the_gate():
    assert "stalling" not in kinds([closed(passed_gate=0)] * (STALL_ROUNDS - 1))
    assert "stalling" in kinds([closed(passed_gate=0)] * STALL_ROUNDS)
    assert "stalling" not in kinds([closed(passed_gate=0), closed(passed_gate=1)])


@pytest.mark.parametrize(
    ("names", "is_cycle"),
    [("abab", True), ("abcabc", True), ("aaaa", False), ("abca", False), ("aba", False)],
)
def test_a_cycle_is_the_same_directions_twice_in_a_row(names, is_cycle):
    assert ("cycle" in kinds([closed(name) for name in names])) == is_cycle


def test_a_promotion_ends_a_cycle():
    history = [closed(name) for name in "aba"] + [closed("b", PROMOTE)]
    assert "cycle" not in kinds(history)


def test_regressions_are_bests_that_were_slower():
    slower = closed(gain=-0.01)
    assert "regressions" in kinds([slower, closed(gain=0.01), slower])
    assert "regressions" not in kinds([slower, closed(gain=0.01), closed(gain=0.0)])
    assert "regressions" not in kinds([slower, slower, closed(), closed(), closed()])


def test_a_plateau_is_rounds_without_a_promotion():
    assert "plateau" in kinds([closed()] * PLATEAU_ROUNDS)
    assert "plateau" not in kinds([closed()] * (PLATEAU_ROUNDS - 1))
    assert "plateau" not in kinds([closed(label=PROMOTE)] + [closed()] * (PLATEAU_ROUNDS - 1))
    assert "plateau" not in kinds([closed(is_lost=True)] * PLATEAU_ROUNDS)
    assert "plateau" not in kinds([closed(run="before")] * PLATEAU_ROUNDS)


def test_returns_diminish_when_promotions_bring_little():
    small = closed(label=PROMOTE, gain=0.004)
    assert "diminishing returns" in kinds([small, closed(), small])
    assert "diminishing returns" not in kinds([small, closed(label=PROMOTE, gain=0.1)])


def test_trouble_recommends_what_was_not_tried_and_then_what_was_promising():
    assert told([closed("a"), closed("b")]).recommended == (), "no trouble yet"
    stalled = [closed("a", passed_gate=0), closed("b", passed_gate=0)]
    assert told(stalled).recommended == ("c",)
    tried = [*stalled, closed("c", ARCHIVE, passed_gate=0, gain=0.006)]
    assert told(tried).recommended == ("c",)
    blocked = [*tried, closed("c", passed_gate=0)]
    assert told(blocked).recommended == ()


def test_the_budget_ends_a_run():
    history = [closed(), closed("b")]
    assert told(history).stop is None
    assert told(history, Budget(2)).stop == "budget: 2 rounds are done"
    assert "20 s of measuring, of 20" in told(history, Budget(9, 20.0)).stop
    assert told(history, Budget(9, 20.1)).stop is None
    others = [closed(run="before"), closed("b", run="before")]
    assert told(others, Budget(2)).stop is None


def test_a_run_ends_where_every_direction_is_blocked():
    history = [closed(name) for name in "abcabc"]
    assert "every direction is blocked" in told(history).stop
    assert told(history[:-1]).stop is None


def test_what_is_measured_as_it_was_given_is_never_blocked():
    history = [closed("a"), closed("a"), closed("a")]
    given = Direction("a", "why", is_hypothesis=False)
    assert supervise(history, "run", STATE.key, [given], BUDGET).blocked == ()


def test_a_run_ends_where_nothing_new_is_proposed():
    empty = closed("c", candidates=(), best=None, is_lost=True)
    assert told([empty] * 2).stop is None, "three directions are open"
    assert told([empty] * 3).stop == "nothing new was proposed in 3 rounds"
    assert told([empty] * 2, names=("c",)).stop == "nothing new was proposed in 2 rounds"
    assert told([empty, closed("b", label=PROMOTE), empty]).stop is None


def test_supervision_is_pure():
    history = [closed(name) for name in "abab"]
    assert told(history) == told(list(history))


# Directions


A, B, C = (
    Direction("a", "first", ("memory",)),
    Direction("b", "second", ("latency",)),
    Direction("c", "third"),
)


def chosen(history=(), blocked=(), recommended=(), matched=None):
    choice = choose_direction(
        (A, B, C), STATE, matched or StateMatch(NEW), list(history), blocked, recommended
    )
    return choice and choice.direction.name


def test_a_direction_answers_the_bottleneck():
    assert chosen() == "b"
    assert chosen(blocked=("b",)) == "c"
    assert chosen(recommended=("a",)) == "a"
    assert chosen(blocked=NAMES) is None


def test_what_failed_in_the_state_comes_later_and_what_was_promoted_first():
    assert chosen([closed("b")]) == "c"
    assert chosen([closed("b"), closed("c")]) == "b"
    assert chosen([closed("b"), closed("c", PROMOTE)]) == "c"


def test_a_similar_state_lends_its_experience():
    near = signature(dataclasses.replace(PROFILE, regime="batch_size 1"))
    history = [closed("b", state=near)]
    assert chosen(history) == "b"
    assert chosen(history, matched=StateMatch(SIMILAR, near.key)) == "c"


def test_the_reason_says_what_decided():
    choice = choose_direction((A, B), STATE, StateMatch(NEW), [closed("b")], (), ("b",))
    assert choice.why == "recommended, answers latency, tried 1 times in this state, 1 failed"


def test_the_catalogue_answers_every_bottleneck():
    for bottleneck in ("launch", "latency", "memory", "tensor", "mixed"):
        assert sum(direction.fits(bottleneck) for direction in CATALOGUE) >= 2
    assert len({direction.name for direction in CATALOGUE}) == len(CATALOGUE)
