"""The study of dsa_indexer_prefill as far as it needs no GPU: record, classes of failures, page."""

import contextlib
import dataclasses
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from harness.devices import DeviceFacts
from harness.errors import EnvironmentUnfit, InfrastructureFailure, RecordError
from harness.timing import Activity, Launch
from tests.prefill_study import __main__ as command
from tests.prefill_study import figures, record, tables
from tests.prefill_study.failures import Layout, classify
from tests.prefill_study.hostile import CASES, HOSTILE, keys_of_a_warp, sampled_keys
from tests.prefill_study.launches import KERNELS, calls_of, steps_of
from tests.prefill_study.record import KEPT, LAUNCHES, PARTS, Failure, Memory, Record, Size

PAGE = (
    "Above.\n\n<!-- study: begin (python -m tests.prefill_study) -->\n\nNot measured yet.\n\n"
    "<!-- study: end -->\n\nBelow.\n"
)
STEPS = dict(zip(LAUNCHES, (200.0, 60.0, 7000.0, 250.0, 10.0), strict=True))
TIMES = dict(zip(PARTS, (6000.0, 6500.0, 7000.0), strict=True))
NOW = {"solution_sha256": "a" * 64, "control_sha256": "b" * 64}


def head(**changes):
    return {
        "room": "dsa_indexer_prefill",
        "device": "nvidia-h200",
        "environment": {"driver": "580"},
        "timer": "cupti",
        "protocol": {"warmup": 2, "iterations": 20, "rounds": 15},
        "commit": "0" * 40,
        **NOW,
        "measured_at": "2026-11-30T00:00:00Z",
        "clocks": {"samples": 24, "throttled": 3, "reasons": [], "sm_mhz": [1500, 1980]},
    } | changes


def study(**changes):
    sizes = tuple(
        Size(queries, keys, 7600.0, 7520.0, dict(STEPS), dict(TIMES))
        for queries in (4096, 512, 64)
        for keys in (65_536, 131_072)
    )
    found = (
        Failure("normal", False, 4096, 131_072, 0, 0, 0, 7520.0, 9.0),
        Failure("candidate_run=4096", False, 64, 131_072, 5, 2, 1, 900.0, 600.0),
        Failure("normal", True, 64, 131_072, 0, 64, 0, 1500.0, 1200.0),
    )
    memory = Memory(4096, 131_072, 237 << 20)
    return Record(head(**changes), memory, sizes, found)


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """A folder of records, and a page without them."""
    monkeypatch.setattr(record, "KEPT", tmp_path / "study")
    monkeypatch.setattr(command, "KEPT", tmp_path / "study")
    monkeypatch.setattr(command, "PAGES", tmp_path / "pages")
    monkeypatch.setattr(command, "contents", lambda: NOW)
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "dsa_indexer_prefill.md").write_text(PAGE)
    return tmp_path / "study"


def page():
    return (command.PAGES / "dsa_indexer_prefill.md").read_text()


# Formulas


def test_flops_are_those_of_the_causal_ranges():
    lengths = range(131_072 - 4096 + 1, 131_072 + 1)
    assert record.causal_flops(4096, 131_072) == 2 * 64 * 128 * sum(lengths)
    # 8192 tokens of themselves: the first 2048 ranges need no score.
    assert record.causal_flops(8192, 8192) == 2 * 64 * 128 * sum(range(2049, 8193))


def test_the_versions_before_are_at_the_rates_that_were_said_of_them():
    rates = [round(version.flops_a_second / 1e12) for version in tables.VERSIONS]
    assert rates == [530, 863, 1065, 1060, 1119, 1114, 1102]


def test_a_study_of_a_version_with_a_record_adds_no_row():
    record = study()
    head = record.head | {"solution_sha256": tables.VERSIONS[-1].content}
    assert tables.trajectory(dataclasses.replace(record, head=head)) == list(tables.VERSIONS)


def test_the_busy_fraction_is_all_but_the_filter():
    size = study().sizes[0]
    assert tables.busy_fraction(size) == pytest.approx(520 / 7520)


def activity(correlation, start_us, end_us, name):
    return Activity(correlation, int(start_us * 1000), int(end_us * 1000), name)


def call(first, at_us):
    """Launches that overlap, the first of 10 µs, then ends at 14, 60, 75 and 76."""
    times = [(0, 10), (8, 14), (11, 60), (13, 75), (70, 76)]
    return [
        activity(first + i, at_us + begin, at_us + end, f"void {kernel}<1>(Args)")
        for i, ((begin, end), kernel) in enumerate(zip(times, KERNELS, strict=True))
    ]


def test_a_step_ends_with_its_launch_and_begins_with_the_end_of_the_one_before():
    span_us, steps = steps_of([call(1, 0), call(11, 500), call(21, 900)])
    assert span_us == 76.0
    assert list(steps.values()) == [10.0, 4.0, 46.0, 15.0, 1.0]
    assert list(steps) == list(LAUNCHES)


@pytest.mark.parametrize("kernels", [(), KERNELS[1:], KERNELS[:2] + KERNELS[:3]])
def test_a_call_of_other_launches_is_refused(kernels):
    work = [activity(i, i, i + 1, kernel) for i, kernel in enumerate(kernels)]
    with pytest.raises(InfrastructureFailure, match="expected the launches score_kernel, thres"):
        steps_of([work])


def test_work_belongs_to_the_window_that_launched_it_once():
    """A runtime call and the driver's below it may have one id."""
    launches = [Launch(1, 100), Launch(1, 101), Launch(2, 150), Launch(3, 300)]
    activities = [activity(3, 9, 10, "c"), activity(2, 3, 4, "b"), activity(1, 1, 2, "a")]
    found = calls_of([(100, 200), (250, 350)], launches, activities)
    assert [[one.name for one in work] for work in found] == [["a", "b"], ["c"]]


# Why rows failed

LAYOUT = Layout(block=4, segments=8, capacity=400, most_ctas=4)
LENGTHS = np.full(8, 50_000, np.int64)


def scratch(counts, shares, listed):
    """A table of 8 queries: candidates of a segment in `counts` by area, elsewhere 300. Then a row
    of one piece has 2400, between 2048 and the 3000 that fit."""
    queries = 8
    areas = np.full((queries + 16, 8), 300, np.int32)
    for area, own in counts.items():
        areas[area] = own
    failed = np.zeros(1 + queries, np.int32)
    failed[0], failed[1 : 1 + len(listed)] = len(listed), listed
    rest = np.zeros(2 * queries, np.int32)
    parts = (np.array(shares, np.int32).ravel(), areas.ravel(), rest, failed)
    return np.concatenate(parts)


def test_rows_with_the_certificate_did_not_fail():
    table = scratch({}, [(0, 1, 1), (1, 1, 1)], [])
    found = classify(table, LENGTHS, LAYOUT, 3000)
    assert found == {"segment_overflow": 0, "row_overflow": 0, "underflow": 0}


def test_each_failure_has_one_class():
    counts = {
        1: [401, *[250] * 7],  # a segment that was full, of a row that fits
        2: [401, *[500] * 7],  # too many for the row as well
        3: [255] * 8,  # 2040
        5: [0] * 8,
    }
    table = scratch(counts, [(0, 1, 1), (1, 1, 1)], [5, 3, 2, 1])
    found = classify(table, LENGTHS, LAYOUT, 3000)
    assert found == {"segment_overflow": 1, "row_overflow": 1, "underflow": 2}


def test_later_pieces_of_a_block_are_in_areas_of_their_ctas():
    """Row 6 is the third of block 1, which CTAs 1 and 3 share: 8 + 3 * 4 + 2 is its second area."""
    shares = [(0, 2, 2), (1, 2, 2)]
    areas = {**{row: [130] * 8 for row in range(8)}, **{8 + i: [130] * 8 for i in range(16)}}
    assert classify(scratch(areas, shares, []), LENGTHS, LAYOUT, 3000)["underflow"] == 0
    areas[22] = [0] * 8
    assert classify(scratch(areas, shares, [6]), LENGTHS, LAYOUT, 3000)["underflow"] == 1
    alone = [(0, 2, 1), (1, 2, 1)]  # CTAs 1 and 2: 8 + 2 * 4 + 2
    assert classify(scratch(areas, alone, []), LENGTHS, LAYOUT, 3000)["underflow"] == 0
    areas[18] = [0] * 8
    assert classify(scratch(areas, alone, [6]), LENGTHS, LAYOUT, 3000)["underflow"] == 1


def test_short_ranges_have_no_candidates():
    lengths = LENGTHS.copy()
    lengths[3] = 2048
    table = scratch({3: [-123456789] * 8}, [(0, 1, 1), (1, 1, 1)], [])
    assert classify(table, lengths, LAYOUT, 3000)["underflow"] == 0


@pytest.mark.parametrize("listed", [[], [4], [3, 4]])
def test_other_rows_than_the_device_repaired_are_no_answer(listed):
    table = scratch({3: [0] * 8}, [(0, 1, 1), (1, 1, 1)], listed)
    with pytest.raises(InfrastructureFailure, match=r"expected the 1 that .*follow select_kernel"):
        classify(table, LENGTHS, LAYOUT, 3000)


# Scores that no workload has

SOURCE = Path(__file__).parents[2] / "solutions" / "dsa_indexer_prefill" / "plan.cuh"


@pytest.mark.parametrize(("num_keys", "stretch"), [(16_384, 64), (16_385, 48), (131_072, 48)])
def test_one_key_of_each_stretch_is_sampled(num_keys, stretch):
    keys = sampled_keys(num_keys)
    assert (keys // stretch == np.arange(len(keys))).all()
    assert len(keys) >= num_keys // stretch
    assert len(np.unique(keys % stretch)) == stretch


def test_the_sample_and_the_rows_are_those_of_the_source():
    text = SOURCE.read_text()
    for words in (
        "STRETCH = 48;", "SHORT_STRETCH = 64;", "SHORT = 16384;", "TILE = 128;", "ROWS = 16;",
        "2654435761u >> 16;", "tile * TILE + static_cast<uint32_t>(row + tile * ROWS) % TILE;",
    ):  # fmt: skip
        assert words in text


def test_a_warp_has_16_rows_of_each_tile_which_move_on():
    keys = keys_of_a_warp(4096)
    assert (np.bincount(keys // 128) == 16).all()
    assert keys[:17].tolist() == [*range(16), 128 + 16]


def test_hostile_scores_have_a_name_that_a_record_takes():
    assert {name for name, *_ in CASES} == set(HOSTILE)
    for name, value, _, keys in CASES:
        assert record.SCORES.fullmatch(f"{name}={value}")
        assert HOSTILE[name](keys, value).dtype == np.float32


# What is kept


def test_a_record_reads_back_as_it_was_kept(kept):
    path = record.keep(study())
    assert path == kept / "nvidia-h200" / "dsa_indexer_prefill.json"
    assert record.load(path) == study()


def test_clocks_may_be_unknown(kept):
    path = record.keep(study(clocks=None))
    assert "clocks unknown" in tables.render(record.load(path), NOW)


def change(*keys, value):
    """A record with another value at these keys, or without it where the value is None."""

    def damage(text):
        values = json.loads(text)
        place = values
        for key in keys[:-1]:
            place = place[key]
        if value is None:
            del place[keys[-1]]
        else:
            place[keys[-1]] = value
        return json.dumps(values)

    return damage


DAMAGES = {
    "cut": (lambda text: text[:-40], "not a JSON record"),
    "another room's": (change("room", value="moe"), "room: expected"),
    "another place's": (change("device", value="nvidia-b200"), "device: expected"),
    "another timer's": (change("timer", value="events"), "timer: expected"),
    "no clocks": (change("clocks", value=None), "clocks: expected"),
    "no rounds": (change("protocol", "rounds", value=0), "protocol.rounds: expected"),
    "no content": (change("control_sha256", value="c0ffee"), "control_sha256: expected"),
    "no date": (change("measured_at", value="today"), "measured_at: expected"),
    "no sizes": (change("sizes", value=[]), "sizes: expected each once"),
    "of nothing": (change("sizes", 0, "graph_us", value=0.0), r"sizes\[0\].graph_us: expected"),
    "no launch": (change("sizes", 1, "steps_us", "select", value=None), r"steps_us.select: exp"),
    "a launch more": (change("sizes", 1, "steps_us", "x", value=1.0), r"steps_us.x: expected no"),
    "no part": (change("sizes", 0, "parts_us", "scores", value=None), r"parts_us.scores: expect"),
    "a size twice": (change("sizes", 0, "keys", value=131_072), "sizes: expected each once"),
    "no causal size": (change("sizes", 0, "keys", value=99), r"sizes\[0\].keys: expected from"),
    "a size too large": (change("sizes", 0, "keys", value=1 << 62), r"sizes\[0\].keys: expected"),
    "a call of no time": (
        change("sizes", 0, "steps_us", value=dict.fromkeys(record.LAUNCHES, 0.0)),
        r"sizes\[0\].steps_us: expected",
    ),
    "a step longer than all": (
        change("sizes", 0, "steps_us", "filter", value=1e6),
        r"sizes\[0\].steps_us: expected parts of",
    ),
    "more throttled than sampled": (
        change("clocks", "throttled", value=99),
        "clocks.throttled: expected at most",
    ),
    "one clock": (change("clocks", "sm_mhz", value=[1980]), "clocks.sm_mhz: expected"),
    "a repair longer than all": (
        change("failures", 1, "repair_us", value=1e6),
        r"failures\[1\].repair_us: expected",
    ),
    "scores of no kind": (change("failures", 0, "scores", value="a|b"), r"failures\[0\].scores: "),
    "more rows": (change("failures", 1, "underflow", value=90), r"failures\[1\].underflow: exp"),
    "a word": (change("failures", 0, "is_forced", value="no"), r"failures\[0\].is_forced: exp"),
    "no memory": (change("memory", "extra_bytes", value=-1), "memory.extra_bytes: expected"),
    "more keys": (change("note", value="x"), "note: expected no such key"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_record_is_named_and_no_page_is_written(name, kept, capsys):
    damage, words = DAMAGES[name]
    path = record.keep(study())
    path.write_text(damage(path.read_text()))
    with pytest.raises(RecordError, match=f"^{path}: .*{words}"):
        record.load(path)
    assert command.main(["--show"]) == 3
    assert command.main(["--check"]) == 3
    assert str(path) in capsys.readouterr().err
    assert page() == PAGE


def test_a_device_without_a_measured_peak_is_refused(kept):
    path = record.keep(study(device="nvidia-b200"))
    with pytest.raises(RecordError, match="device: expected one whose FP8 rate was measured"):
        record.load(path)


# What is shown


def test_a_page_without_a_record_says_so(kept, capsys):
    assert command.main(["--check"]) == 0
    assert command.main(["--show"]) == 0
    assert page() == PAGE
    assert not (command.PAGES / "plots").exists()


def test_the_page_shows_tables_and_figures(kept):
    record.keep(study())
    assert command.main(["--show"]) == 0
    text = page()
    gain = tables.VERSIONS[-1].latency_us / 7520.0
    assert text.startswith("Above.") and text.endswith("Below.\n")
    assert "stale" not in text.lower()
    assert "SM clock 1500 to 1980 MHz, 3 of 24 samples throttled" in text
    for row in (
        "| portable | 16343 | 530 | 35.3 % | - | graph replay, scratch run |",
        f"| measured, `aaaaaaaa` | 7520 | 1151 | 76.8 % | {gain:.3f} x | CUPTI, this record |",
        "| 4096 | 128K | 7600 | 1139 | 76.0 % | 7000 | 1237 | 82.5 % |",
        "| 4096 | 128K | 6000 | 96.2 % | 6500 | 7000 | 7.1 % | 7.1 % | 7.9 % |",
        "| 4096 | 128K | 200.0 | 60.0 | 7000 | 250.0 | 10.0 | 7520 | 6.9 % |",
        "| candidate_run=4096 | 64 | 128K | 5 | 2 | 1 | 600.0 | 900.0 | 66.7 % |",
        "| normal, forced | 64 | 128K | 0 | 64 | 0 | 1200 | 1500 | 80.0 % |",
        "**Extra memory** at 4096 x 131072: 237.0 MiB beside inputs and outputs, under the limit",
    ):
        assert row in text
    for name in ("trajectory", "launches", "peak"):
        link = f"plots/dsa_indexer_prefill-nvidia-h200-{name}.svg"
        assert f"]({link})" in text
        assert (command.PAGES / link).read_text().startswith("<svg")


def test_every_row_of_a_table_has_its_columns():
    text = tables.render(study(), NOW)
    for block in text.split("\n\n"):
        rows = [line for line in block.split("\n") if line.startswith("|")]
        assert len({line.count("|") for line in rows}) <= 1
    assert text.count("\n|---|") == 5


def test_more_memory_than_allowed_is_said():
    large = dataclasses.replace(study(), memory=Memory(4096, 131_072, 256 << 20))
    assert "NOT UNDER the limit of 256 MiB" in tables.render(large, NOW)


@pytest.mark.parametrize(
    ("key", "words"),
    [("solution_sha256", "room `aaaaaaaa`"), ("control_sha256", "control `bbbbbbbb`")],
)
def test_a_record_of_other_content_says_that_it_is_stale(key, words):
    text = tables.render(study(), NOW | {key: "c" * 64})
    assert f"*Stale: measured on {words}.*" in text


def test_figures_are_the_same_each_time():
    first, again = figures.files(study()), figures.files(study())
    assert first == again and len(first) == 3
    for text in first.values():
        assert "<dc:date>" not in text and text.endswith("</svg>\n")


def test_a_record_of_few_sizes_is_drawn_too():
    few = dataclasses.replace(study(), sizes=study().sizes[:1])
    assert len(figures.draw(few)) == 3
    assert len(tables.trajectory(few)) == len(tables.VERSIONS)
    odd = dataclasses.replace(few, sizes=(dataclasses.replace(few.sizes[0], queries=8),))
    assert len(figures.draw(odd)) == 2


def test_check_finds_what_differs(kept, capsys):
    record.keep(study())
    assert command.main(["--check"]) == 1
    assert "the block is not the records'" in capsys.readouterr().out
    command.main(["--show"])
    assert command.main(["--check"]) == 0
    svg = command.PAGES / "plots" / "dsa_indexer_prefill-nvidia-h200-peak.svg"
    svg.write_text("<svg></svg>\n")
    extra = svg.with_name("dsa_indexer_prefill-nvidia-h100-peak.svg")
    extra.write_text("<svg></svg>\n")
    capsys.readouterr()
    assert command.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert f"{svg}: not the record's figure" in said
    assert f"{extra}: no record has this figure" in said
    command.main(["--show"])
    assert not extra.exists()
    assert command.main(["--check"]) == 0


def test_check_finds_a_record_that_has_become_stale(kept, monkeypatch):
    record.keep(study())
    command.main(["--show"])
    monkeypatch.setattr(command, "contents", lambda: NOW | {"solution_sha256": "c" * 64})
    assert command.main(["--check"]) == 1


@pytest.mark.parametrize("text", [None, "A page without a place.\n", PAGE + PAGE])
def test_a_page_without_one_place_is_named(kept, text, capsys):
    path = command.PAGES / "dsa_indexer_prefill.md"
    path.unlink() if text is None else path.write_text(text)
    record.keep(study())
    assert command.main(["--show"]) == 2
    assert f"{path}: " in capsys.readouterr().err
    assert not (command.PAGES / "plots").exists()


def test_the_page_is_the_records():
    assert command.differences() == []


# What is asked


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--show", "--check"], "expected one of --show and --check"),
        (["--check", "--commit", "0" * 40], "--commit: expected a measurement"),
        (["--commit", "main"], "--commit: expected 7 to 40 hexadecimal digits"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused(arguments, words, capsys):
    assert command.main(arguments) == 2
    assert words in capsys.readouterr().err


def test_measuring_keeps_a_record_and_leaves_the_page(kept, monkeypatch, capsys):
    @contextlib.contextmanager
    def hold(facts):
        yield

    facts = DeviceFacts("nvidia-h200", "NVIDIA H200", "GPU-0", capability=(9, 0))
    monkeypatch.setattr(command, "read_facts", lambda _: facts)
    monkeypatch.setattr(command, "require_timer", lambda _: None)
    monkeypatch.setattr(command, "hold_device", hold)
    monkeypatch.setattr(
        "tests.prefill_study.measure.measure", lambda facts, commit: study(commit=commit)
    )
    assert command.main(["--commit", "1" * 40]) == 0
    (path,) = kept.glob("*/*")
    assert record.load(path) == study(commit="1" * 40)
    assert str(path) in capsys.readouterr().out
    assert page() == PAGE


def test_another_architecture_is_refused(monkeypatch):
    from tests.prefill_study import measure

    built = SimpleNamespace(_callable=test_another_architecture_is_refused)
    monkeypatch.setattr(measure, "build", lambda _: built)
    monkeypatch.setitem(measure.sys.modules, __name__, SimpleNamespace())
    facts = DeviceFacts("nvidia-b200", "NVIDIA B200", "GPU-1", capability=(10, 0))
    with pytest.raises(EnvironmentUnfit, match=r"NVIDIA B200: expected compute capability 9\.0"):
        measure.Study(facts)


def test_the_controls_sums_are_counted_as_its_threads_add_them():
    """One product a thread: heads 0 and 2 of each query, rows 0 to 7 of each 16."""
    import torch

    from tests.prefill_study.native import wanted_sums

    query, codes = torch.zeros(4, 64, 128), torch.ones(32, 128)
    query[:, 0], query[:, 2], query[:, 1] = 1.0, 2.0, 5.0
    inputs = [query, codes, torch.ones(32), torch.ones(4, 64)]
    found = wanted_sums(inputs)
    assert found["products"] == 16 * 4 * 128 * (1 + 2)
    assert math.isclose(found["scores"], 32 * 4 * 128 * (1 + 2 + 5))


def test_records_lie_where_the_command_looks():
    assert Path(command.ROOT, "results", "study") == KEPT
