"""dsa_prefill: ranges, draws and workloads, and the rule on right and wrong answers."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flashinfer_bench.bench.evaluators.registry import resolve_evaluator
from flashinfer_bench.data import Definition

from harness import rules
from harness.config import DSA_PREFILL, load_workspace
from harness.dataset import WorkloadRow, content_sha256, read_workloads
from harness.devices import DeviceFacts
from harness.errors import UsageError
from harness.evaluate.plan import JUDGE_SOURCES, Request, judge_sources, plan_room
from harness.evaluate.pool import Pool, WorkerCommand, worker_environment
from harness.evaluate.protocol import Status
from harness.evaluate.start import describe_values
from harness.evaluators import compare_sorted_scores
from harness.packing import Packed
from harness.ranges import SCORES, row_ranges, score_pattern
from harness.roofline import count_work
from harness.rules.prefill_inputs import draw_inputs
from harness.rules.prefill_selection import PrefillSelectionEvaluator, find_bad_id, scores_of
from scripts import make_prefill_workloads
from tests.gpu.references import reference
from tests.official_rooms import OFFICIAL_ROOMS
from tests.oracles.dsa_indexer_prefill import TOPK, inputs_with_scores, oracle, random_inputs
from tests.unit.test_answering import JUDGING

ROOM = "dsa_indexer_prefill"
WORKSPACE = load_workspace()
ROOT = WORKSPACE.root
RULE = SimpleNamespace(atol=0.5, rtol=0.01, required_matched_ratio=1.0)
SIZES = {"num_queries": 3, "num_keys": 6000}
NAMES = ("q_index_fp8", "k_index_fp8", "k_scale", "weights", "row_starts", "row_ends")


def draw(seed=1, **more):
    """Inputs by name."""
    torch.manual_seed(seed)
    return dict(zip(NAMES, draw_inputs({**SIZES, **more}, "cpu"), strict=True))


def definition():
    folder = WORKSPACE.root / "definitions" / "dsa_prefill"
    return Definition.model_validate_json((folder / f"{DSA_PREFILL}.json").read_text())


def compare(inputs, got, want):
    """The rule's verdict: None, or why it refuses."""
    (found,) = PrefillSelectionEvaluator.compare(
        definition(), list(inputs.values()), [got], [want], RULE
    )
    return found.detail if found.exceeds_tolerance else None


# Ranges


def test_causal_queries_see_all_up_to_themselves():
    starts, ends = row_ranges({"num_queries": 4, "num_keys": 10})
    assert starts.tolist() == [0] * 4 and ends.tolist() == [7, 8, 9, 10]
    assert starts.dtype == ends.dtype == np.int32
    with pytest.raises(UsageError, match="num_queries <= num_keys, got 11 and 10"):
        row_ranges({"num_queries": 11, "num_keys": 10})


@pytest.mark.parametrize("num_keys", [100, 2048, 32768, 163840])
def test_ragged_ranges_have_every_kind_of_length_and_stay_inside(num_keys):
    starts, ends = row_ranges({"num_queries": 512, "num_keys": num_keys, "ragged_ranges": 1})
    lengths = ends - starts
    assert (starts >= 0).all() and (lengths >= 0).all() and (ends <= num_keys).all()
    assert (lengths == 0).any() and (starts % 16 != 0).any()
    if num_keys > 4096:
        assert {1, 2048, 2049} <= set(lengths.tolist())
        assert len(set(lengths.tolist())) > 300 and lengths.max() > num_keys // 2


def test_an_axis_that_nobody_knows_and_two_patterns_are_refused():
    assert score_pattern(SIZES) is None
    assert score_pattern({**SIZES, "score_levels": 3}) == ("score_levels", 3)
    with pytest.raises(UsageError, match="got outlier_kys"):
        score_pattern({**SIZES, "outlier_kys": 3})
    with pytest.raises(UsageError, match="got score_levels, outlier_keys"):
        score_pattern({**SIZES, "score_levels": 3, "outlier_keys": 3})


def test_work_of_ranges():
    """16384 flops a score of long ranges; keys that several hold count once."""
    causal = count_work(DSA_PREFILL, {"num_queries": 2, "num_keys": 3000}, {})
    assert causal.flops == (2999 + 3000) * 16384 and causal.operands == "fp8"
    assert causal.bytes_read == 3000 * 132 + 2 * (8192 + 256) + 2 * 8
    assert causal.bytes_written == 2 * 8192
    short = count_work(DSA_PREFILL, {"num_queries": 2, "num_keys": 2048}, {})
    assert (short.flops, short.bytes_read) == (0, 16)
    axes = {"num_queries": 64, "num_keys": 9000, "ragged_ranges": 1}
    starts, ends = row_ranges(axes)
    held = {j for a, b in zip(starts, ends, strict=True) if b - a > TOPK for j in range(a, b)}
    long = int((ends - starts > TOPK).sum())
    assert count_work(DSA_PREFILL, axes, {}).bytes_read == len(held) * 132 + long * 8448 + 64 * 8


# Draws


def test_the_same_seed_draws_the_same_and_another_one_others():
    first, again, other = draw(1), draw(1), draw(2)
    for name in NAMES:
        assert torch.equal(first[name].float(), again[name].float())
    assert not torch.equal(first["k_scale"], other["k_scale"])


def test_normal_inputs_have_the_indexers_statistics():
    inputs = draw()
    assert inputs["q_index_fp8"].float().abs().max() == 2.0
    keys = inputs["k_index_fp8"].float()
    assert (keys.abs().amax(dim=1) >= 440).all() and keys.abs().max() <= 448
    assert 0.9 < (keys * inputs["k_scale"][:, None]).std() < 1.1


@pytest.mark.parametrize(
    "page", ["docs/kernels/dsa_indexer_prefill.md", f"solutions/{ROOM}/README.md"]
)
def test_the_pages_say_by_how_much_scores_of_normal_inputs_deviate(page):
    """What the rule's atol is 1 % of."""
    inputs = draw(num_queries=200, num_keys=2248)
    rows = [scores.std() for scores in oracle(inputs)]
    (said,) = re.findall(
        r"scores?\s+(?:of\s+normal\s+inputs\s+)?deviate by (\d+)", (ROOT / page).read_text()
    )
    assert float(torch.stack(rows).mean()) == pytest.approx(float(said), rel=0.03)
    assert WORKSPACE.room(ROOM).evaluation.atol == 0.01 * float(said)


def distinct(scores):
    return len(scores.unique())


@pytest.mark.parametrize(
    ("pattern", "holds"),
    [
        ({"score_levels": 1}, lambda s, best: distinct(s) == 1),
        ({"score_levels": 16}, lambda s, best: distinct(s) == 16),
        ({"keys_above_tie": 1000}, lambda s, best: (s == s.max()).sum() <= 1000 < TOPK),
        ({"ascending_scores": 1}, lambda s, best: (s.diff() > 0).all()),
        ({"descending_scores": 1}, lambda s, best: (s.diff() < 0).all()),
        ({"outlier_keys": 5}, lambda s, best: (s.abs() > 1e5).sum() == 5),
        ({"candidate_run": 3000}, lambda s, best: best.max() - best.min() < 3000),
        ({"candidate_stride": 32}, lambda s, best: (best % 32 < 16).all()),
    ],
    ids=lambda value: "".join(value) if isinstance(value, dict) else "holds",
)
def test_hostile_scores_are_what_they_are_called(pattern, holds):
    inputs = draw(**pattern)
    for scores in oracle(inputs):
        assert holds(scores, scores.topk(TOPK).indices)
    if "outlier_keys" in pattern:
        return
    exact = torch.stack([s[:5000] for s in oracle(inputs)])
    ids = torch.arange(5000).expand(3, -1)
    assert torch.equal(scores_of(ids, inputs).double(), exact), "some score rounds"
    gaps = exact[0].unique().diff()
    assert not len(gaps) or gaps.min() >= 16


def test_outliers_are_exact_and_far_from_every_other_score():
    """A score a million times larger has errors of that size too: near the threshold, of all 4096
    rows, none may lie, and no rounding may be left to the order of sums."""
    axes = {"num_queries": 4096, "num_keys": 4096 + TOPK, "outlier_keys": 5}
    inputs, normal = draw(**axes), draw(**{**axes, "outlier_keys": 0})
    changed = inputs["k_scale"] != normal["k_scale"]
    outliers = changed.nonzero().flatten()
    assert len(outliers) == 5
    scores = scores_of(outliers.expand(4096, -1), inputs)
    keys = inputs["k_index_fp8"][outliers].double() * inputs["k_scale"][outliers, None].double()
    assert ((keys != 0).sum(dim=1) == 1).all()
    products = torch.relu(inputs["q_index_fp8"].double() @ keys.T)
    assert ((products != 0).sum(dim=1) == 1).all()
    exact = (products * inputs["weights"].double()[:, :, None]).sum(dim=1)
    assert torch.equal(scores, exact.float()), "some score is not the exact one, rounded once"
    assert scores.abs().min() > 1e5
    share = (scores > 0).double().mean(dim=0)
    assert share.min() > 0.4 and share.max() < 0.6
    assert torch.equal(inputs["k_scale"][~changed], normal["k_scale"][~changed])
    rest = next(oracle(inputs, rows=[4095]))[~changed]
    assert rest.abs().max() < 1e3 and rest.std() > 40


def test_every_pattern_has_workloads_and_every_workload_a_pattern():
    rows = read_workloads(WORKSPACE.root, WORKSPACE.room(ROOM))
    found = {pattern[0] for row in rows if (pattern := score_pattern(row.axes))}
    assert found == set(SCORES)
    sizes = {(row.axes["num_queries"], row.axes["num_keys"] // 1024) for row in rows}
    assert sizes >= {(q, n) for q in (8, 64, 512, 4096, 8192) for n in (8, 16, 32, 64, 128, 160)}
    assert sum("ragged_ranges" in row.axes for row in rows) == 4
    assert all(not row.blob_paths for row in rows), "something is stored"


def test_the_workload_file_is_what_the_script_writes():
    assert make_prefill_workloads.PATH.read_text() == make_prefill_workloads.render()


def test_the_script_refuses_arguments_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(make_prefill_workloads, "ROOT", tmp_path)
    monkeypatch.setattr(make_prefill_workloads, "PATH", tmp_path / "written.jsonl")
    with pytest.raises(SystemExit, match="2"):
        make_prefill_workloads.main(["--check"])
    assert list(tmp_path.iterdir()) == []
    make_prefill_workloads.main([])
    assert (tmp_path / "written.jsonl").read_text() == make_prefill_workloads.render()


# The rule


def judge(body, command=None, root=WORKSPACE.root):
    """The outcome of a solution in a worker as every sweep starts it, or as `command` does: what
    `body` makes of the reference's answer `ids` to two causal queries over 2100 keys."""
    text = definition().reference + (
        "\n\ndef changed(q_index_fp8, k_index_fp8, k_scale, weights, row_starts, row_ends):\n"
        "    (ids,) = run(q_index_fp8, k_index_fp8, k_scale, weights, row_starts, row_ends)\n"
        f"    return {body}\n"
    )
    solution = {
        "name": "changed",
        "definition": DSA_PREFILL,
        "author": "someone",
        "spec": {
            "language": "python",
            "target_hardware": ["cuda"],
            "entry_point": "main.py::changed",
            "destination_passing_style": False,
        },
        "sources": [{"path": "main.py", "content": text}],
    }
    axes = {"num_queries": 2, "num_keys": 2100}
    row = WorkloadRow("0" * 32, axes, {name: {"type": "random"} for name in NAMES}, ())
    packed = Packed("changed", "c" * 64, json.dumps(solution), root / "changed.json")
    cpu = DeviceFacts("cpu", "cpu", None)
    plan = plan_room(WORKSPACE, ROOM, packed, (row,), Request(), root, cpu)
    with Pool("cpu", root, command) as pool:
        return pool.run(plan.job(row, "cpu", Request()))


def test_a_worker_judges_by_the_rule():
    outcome = judge("ids.flip(1)")
    assert outcome.status is Status.PASSED, outcome.detail
    outcome = judge("ids.clamp(max=2090)")
    assert outcome.status is Status.INCORRECT_NUMERICAL
    assert "duplicate id 2090 in row" in outcome.detail
    assert "elements wrong" not in outcome.detail, "ids were compared by their places"


def test_whoever_asks_a_worker_something_else_has_the_rule_too():
    answering = WorkerCommand((sys.executable, "-c", JUDGING), worker_environment("cpu", ROOT))
    outcome = judge("ids.flip(1)", answering)
    assert outcome.status is Status.PASSED, outcome.detail


def test_the_official_program_has_the_rule_too():
    text = (
        "import harness.cli.official\n"
        "from types import SimpleNamespace\n"
        "from flashinfer_bench.bench.evaluators.registry import resolve_evaluator\n"
        f"print(resolve_evaluator(SimpleNamespace(name={DSA_PREFILL!r})).__name__)\n"
    )
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [PrefillSelectionEvaluator.__name__]


def test_the_rule_belongs_to_this_definition_alone():
    rules.register()
    rules.register()
    assert resolve_evaluator(definition()) is PrefillSelectionEvaluator
    for room in OFFICIAL_ROOMS:
        name = WORKSPACE.room(room).definition
        assert not PrefillSelectionEvaluator.can_evaluate(SimpleNamespace(name=name))
        assert judge_sources(name) == JUDGE_SOURCES


def test_its_files_are_part_of_this_definitions_judge():
    sources = judge_sources(DSA_PREFILL)
    assert sources[: len(JUDGE_SOURCES)] == JUDGE_SOURCES
    folder = WORKSPACE.root / "harness" / "rules"
    assert {f"harness/rules/{path.name}" for path in folder.glob("*.py")} <= set(sources)
    assert "harness/ranges.py" in sources
    assert all((WORKSPACE.root / source).is_file() for source in sources)


def test_an_axis_is_part_of_what_is_judged_on(tmp_path):
    room = WORKSPACE.room(ROOM)
    for kind, suffix in (("definitions", "json"), ("workloads", "jsonl")):
        path = tmp_path / kind / room.op_type / f"{room.definition}.{suffix}"
        path.parent.mkdir(parents=True)
        path.write_text((WORKSPACE.root / path.relative_to(tmp_path)).read_text())
    before = content_sha256(tmp_path, room)
    lines = path.read_text().splitlines()
    last = json.loads(lines[-1])
    last["workload"]["axes"]["candidate_stride"] = 64
    path.write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    assert content_sha256(tmp_path, room) != before


def test_wrong_ids_are_described_by_the_rule_alone():
    """They are compared by their scores: which places differ says nothing."""
    ids, floats = torch.tensor([1, 2]), torch.tensor([1.0, 2.0])
    assert describe_values("topk_indices", ids, ids.flip(0), 0.5, 0.01, 1.0) is None
    assert "2 of 2 elements wrong" in describe_values("y", floats, floats.flip(0), 0.5, 0.01, 1.0)


def test_order_and_ties_are_free():
    inputs = inputs_with_scores(torch.arange(2200.0).clamp(max=1000.0), [(0, 2200), (10, 60)])
    want = reference(ROOM)(*inputs.values())
    got = want.flip(1)
    assert compare(inputs, got, want) is None
    got[0] = torch.arange(152, 2200).int()
    assert compare(inputs, got, want) is None


@pytest.mark.parametrize(
    "pattern",
    [
        {"score_levels": 16},
        {"keys_above_tie": 1000},
        {"ascending_scores": 1},
        {"descending_scores": 1},
        {"candidate_run": 3000},
        {"candidate_stride": 32},
    ],
    ids=lambda pattern: next(iter(pattern)),
)
def test_among_hostile_scores_the_least_exchange_is_refused(pattern):
    """Of a key by the next worse one that was left out: no tolerance reaches that far."""
    inputs = draw(**pattern)
    want = reference(ROOM)(*inputs.values())
    for row, scores in enumerate(oracle(inputs)):
        left_out = torch.ones(len(scores), dtype=torch.bool)
        left_out[want[row].long()] = False
        best = scores.where(left_out, -torch.inf).argmax()
        better = scores[want[row].long()]
        worst = better.where(better > scores[best], torch.inf).argmin()
        got = want.clone()
        got[row, worst] = best
        assert "sorted scores wrong" in compare(inputs, got, want)


def exact_patterns():
    """Axes of the workloads whose hostile scores are exact, unless all are equal."""
    for row in read_workloads(WORKSPACE.root, WORKSPACE.room(ROOM)):
        pattern = score_pattern(row.axes)
        if pattern and pattern[0] != "outlier_keys" and pattern != ("score_levels", 1):
            yield pytest.param(row.axes, id=f"{pattern[0]}-{row.axes['num_queries']}")


@pytest.mark.parametrize("axes", list(exact_patterns()))
def test_in_hostile_workloads_of_full_size_the_least_exchange_is_refused(axes):
    """The first and the last row have the thresholds that are farthest from 0."""
    inputs, last = draw(**axes), axes["num_queries"] - 1
    for row in (0, last // 3, last // 2, last):
        scores = inputs["k_scale"][: inputs["row_ends"][row]] * inputs["weights"][row, 0]
        ordered = scores.sort(descending=True).values
        above = int((ordered > ordered[TOPK]).sum())
        exchanges = [(rank, ordered < ordered[rank]) for rank in {above - 1, TOPK - 1} - {-1}]
        exchanges = [(rank, ordered[worse][0]) for rank, worse in exchanges if worse.any()]
        assert exchanges
        for rank, worse in exchanges:
            got = ordered[:TOPK].clone()
            got[rank] = worse
            assert compare_sorted_scores(got[None], ordered[None, :TOPK], RULE).exceeds_tolerance


def test_scores_that_differ_by_rounding_may_exchange_keys():
    """At the threshold and no further: a key 0.4 worse passes, one 2 worse does not."""
    scores = torch.cat([torch.full((2047,), 90.0), torch.tensor([0.5, 0.1, -1.5])])
    inputs = inputs_with_scores(scores, [(0, 2050)])
    want = reference(ROOM)(*inputs.values())
    assert compare(inputs, want.where(want != 2047, 2048), want) is None
    refusal = compare(inputs, want.where(want != 2047, 2049), want)
    assert "rank 2047" in refusal and "expected 0.5, got -1.5" in refusal


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ((0, 3), 5000, "out-of-range id 5000 in row 0: its range is [0, 2300)"),
        ((1, 4), 9, "out-of-range id 9 in row 1: its range is [10, 60)"),
        ((1, 4), 60, "out-of-range id 60 in row 1: its range is [10, 60)"),
        ((1, 4), "the first", "duplicate id"),
        ((1, 4), -1, "sorted scores wrong"),
        ((1, 50), 70, "out-of-range id 70 in row 1"),
    ],
    ids=str,
)
def test_wrong_ids_are_refused(place, value, words):
    inputs = random_inputs([(0, 2300), (10, 60)], 2300, seed=6)
    want = reference(ROOM)(*inputs.values())
    got = want.clone()
    got[place] = int(got[1, 0]) if value == "the first" else value
    assert words in compare(inputs, got, want)
    assert compare(inputs, want, want) is None


def test_a_range_beyond_the_keys_reaches_none_of_them():
    inputs = random_inputs([(-5, 3000), (70, 40)], 60, seed=9)
    want = reference(ROOM)(*inputs.values())
    assert compare(inputs, want.flip(1), want) is None
    got = want.clone()
    got[0, 3] = 60
    assert "out-of-range id 60 in row 0: its range is [0, 60)" in compare(inputs, got, want)
    got[0, 3], got[1, 0] = want[0, 3], 50
    assert "out-of-range id 50 in row 1" in compare(inputs, got, want)


def test_a_missing_winner_is_refused():
    inputs = random_inputs([(0, 4000)], 4000, seed=7)
    want = reference(ROOM)(*inputs.values())
    (scores,) = oracle(inputs)
    got = want.clone()
    got[0, 0] = int(scores.argmin())
    assert "sorted scores wrong" in compare(inputs, got, want)


def test_scores_of_ids_are_the_references():
    inputs = random_inputs([(0, 300)] * 40, 300, seed=8)
    ids = torch.arange(300).repeat(40, 1)
    ids[3, 7] = -1
    scores = scores_of(ids, inputs)
    assert scores[3, 7] == -torch.inf
    ids[3, 7] = 7
    want = torch.stack(list(oracle(inputs))).float()
    torch.testing.assert_close(scores_of(ids, inputs), want, rtol=1e-4, atol=1e-3)
    assert find_bad_id(ids, inputs) is None
