"""Tables of sizes between the official ones: the line, the cliffs, what is kept and shown."""

import contextlib
import json
import sys
from types import SimpleNamespace

import pytest
import torch

from harness.devices import DeviceFacts
from harness.errors import InfrastructureFailure, RecordError, ToolMissing
from tests import shapes
from tests.cuda_constants import constants_of
from tests.packed import build, device
from tests.shape_families import FAMILIES, Family
from tests.shapes import KEPT, Row, cliffs, describe, interpolate, keep, load, ratio_of, render

FAMILY = Family("sizes", (1, 4, 8), (2, 6, 16), lambda size, device: ([], []))
TIMES = {1: 2.0, 2: 3.0, 4: 5.0, 6: 9.3, 8: 11.0, 16: 12.6}
ROWS = [Row("sizes", size, us, {}) for size, us in TIMES.items()]
FACTS = DeviceFacts("nvidia-h200", "NVIDIA H200", "GPU-0")
PAGE = (
    "Above.\n\n<!-- shapes: begin (python -m tests.shapes) -->\n\n<!-- shapes: end -->\n\nBelow.\n"
)


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """A folder of records, of rooms whose one family is FAMILY."""
    monkeypatch.setattr(shapes, "KEPT", tmp_path / "shapes")
    for room in ("gdn_decode", "gdn_prefill"):
        monkeypatch.setitem(FAMILIES, room, (FAMILY,))
    return tmp_path / "shapes"


@pytest.fixture
def pages(monkeypatch, tmp_path):
    """Pages of these rooms, without a table yet."""
    folder = tmp_path / "pages"
    folder.mkdir()
    monkeypatch.setattr(shapes, "PAGES", folder)
    for room in ("gdn_decode", "gdn_prefill"):
        (folder / f"{room}.md").write_text(PAGE)
    return folder


@pytest.fixture
def gpu(monkeypatch):
    """A GPU, as far as the command looks at it itself. Records how often it was held."""
    holds = []

    @contextlib.contextmanager
    def hold(facts):
        holds.append(facts)
        yield

    monkeypatch.setattr(shapes, "read_facts", lambda _: FACTS)
    monkeypatch.setattr(shapes, "require_timer", lambda _: None)
    monkeypatch.setattr(shapes, "hold_device", hold)
    return holds


def record(room="gdn_decode", facts=FACTS, rows=ROWS):
    return keep(describe(room, facts, "0" * 40), rows)


def test_the_line_runs_through_the_anchors_beside_a_size():
    anchors = {1: 2.0, 4: 5.0, 8: 11.0}
    wanted = {0: 2.0, 1: 2.0, 2: 3.0, 4: 5.0, 6: 8.0, 8: 11.0, 16: 11.0}
    assert {size: interpolate(anchors, size) for size in wanted} == wanted


def test_only_what_lies_between_anchors_has_a_ratio():
    assert ratio_of(FAMILY, ROWS, 4) is None
    assert ratio_of(FAMILY, ROWS, 2) == 1.0
    assert ratio_of(FAMILY, ROWS, 16) == pytest.approx(12.6 / 11)


def test_a_cliff_is_more_than_15_percent_above_the_line(monkeypatch):
    monkeypatch.setitem(FAMILIES, "gdn_decode", (FAMILY,))
    assert cliffs("gdn_decode", ROWS[:3] + ROWS[4:5] + [Row("sizes", 6, 9.1, {}), ROWS[5]]) == []
    assert cliffs("gdn_decode", ROWS) == ["gdn_decode, sizes: 6 takes 1.16 of its neighbours"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("room", FAMILIES)
def test_the_smallest_size_of_a_family_runs_and_writes_all(room):
    for family in FAMILIES[room]:
        if family.sizes[0] > 100:
            continue  # minutes in the interpreter
        call = family.make(family.sizes[0], device())
        shapes.require_written(build(room), call, f"{family.name}: {family.sizes[0]}")


# What is measured


class Timer:
    """Calls once and gives the next of a side's latencies."""

    def __init__(self, latencies):
        self.latencies, self.order = latencies, []

    def measure(self, call, warmup_runs, iterations):
        side, size = call()
        self.order.append((side, size))
        return SimpleNamespace(latency_us=self.latencies[side, size].pop(0))


def writes(side):
    def run(given, output):
        output.copy_(given)
        return side, len(given)

    return run


@pytest.fixture
def two_sides(monkeypatch):
    """Two sizes of a family, a library beside the larger one."""

    def make(size, _):
        return [torch.zeros(size)], [torch.empty(size)]

    family = Family("sizes", (1, 2), (), make, ("library",), (2,))
    monkeypatch.setitem(FAMILIES, "gdn_decode", (family,))
    monkeypatch.setattr("tests.packed.build", lambda _: writes("room"))
    monkeypatch.setattr("tests.packed.build_peer", lambda _, library: writes(library))


def test_sizes_take_turns_and_the_median_of_the_passes_counts(monkeypatch, two_sides):
    timer = Timer({("room", 1): [5, 3, 4], ("room", 2): [9, 9, 1], ("library", 2): [7, 8, 70]})
    monkeypatch.setattr("harness.timing.select_timer", lambda *_: timer)
    assert shapes.measure("gdn_decode") == [
        Row("sizes", 1, 4, {}),
        Row("sizes", 2, 9, {"library": 8}),
    ]
    assert timer.order == [("room", 1), ("room", 2), ("library", 2)] * 3


def test_what_leaves_an_output_unwritten_is_not_timed(monkeypatch, two_sides):
    monkeypatch.setattr("harness.timing.select_timer", lambda *_: Timer({}))
    monkeypatch.setattr(
        "tests.packed.build_peer", lambda *_: lambda given, output: output[:1].fill_(0.0)
    )
    with pytest.raises(InfrastructureFailure, match=r"gdn_decode, library, sizes: 2.* got 1 of 2"):
        shapes.measure("gdn_decode")


def test_a_missing_id_is_seen_in_integers():
    output = torch.empty(2, dtype=torch.int32)
    shapes.require_written(lambda out: out.fill_(-1), ([], [output]), "ids")
    with pytest.raises(InfrastructureFailure, match="got 2 of 2"):
        shapes.require_written(lambda out: None, ([], [output]), "ids")


def test_a_library_that_does_not_build_is_named(monkeypatch, two_sides):
    def refuse(*_):
        raise RuntimeError("no module named library")

    monkeypatch.setattr("harness.timing.select_timer", lambda *_: Timer({}))
    monkeypatch.setattr("tests.packed.build_peer", refuse)
    with pytest.raises(ToolMissing, match=r"gdn_decode: library: .*no module.*docs/peers.md"):
        shapes.measure("gdn_decode")


# What is kept


def test_a_record_reads_back_as_it_was_kept(kept):
    head, rows = load(record())
    assert rows == ROWS
    assert head == describe("gdn_decode", FACTS, "0" * 40) | {"measured_at": head["measured_at"]}


def test_a_record_names_what_was_packed_before_it_was_measured(monkeypatch, kept, pages, gpu):
    monkeypatch.setattr(shapes, "pack", lambda *_: SimpleNamespace(sha256="a" * 64))

    def measure(room):  # somebody edits the room meanwhile
        monkeypatch.setattr(shapes, "pack", lambda *_: SimpleNamespace(sha256="b" * 64))
        return ROWS

    monkeypatch.setattr(shapes, "measure", measure)
    shapes.main(["gdn_decode"])
    assert load(kept / "nvidia-h200" / "gdn_decode.json")[0]["solution_sha256"] == "a" * 64
    assert (
        "*stale: measured on `aaaaaaaa`, packed now `bbbbbbbb`*"
        in (pages / "gdn_decode.md").read_text()
    )


DAMAGES = {
    "cut": (lambda text: text[:-40], "not a JSON record"),
    "another room's": (lambda text: text.replace('"gdn_decode"', '"spare"'), "room: expected"),
    "another device's": (lambda text: text.replace("nvidia-h200", "nvidia-b200"), "device: exp"),
    "another timer's": (lambda text: text.replace('"cupti"', '"events"'), "timer: expected"),
    "no content": (lambda text: text.replace("solution_sha256", "hash"), "solution_sha256: exp"),
    "no date": (lambda text: text.replace("measured_at", "date"), "measured_at: expected"),
    "no latency": (lambda text: text.replace("9.3", "null"), r"rows\[3\].latency_us: expected"),
    "of nothing": (lambda text: text.replace("9.3", "0.0"), r"rows\[3\].latency_us: expected"),
    "a size twice": (lambda text: text.replace('"size": 6', '"size": 8'), "rows: expected each"),
    "no rows": (lambda text: json.dumps(json.loads(text) | {"rows": []}), "rows: expected each"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_record_is_named_and_no_page_is_written(name, kept, pages, capsys):
    damage, words = DAMAGES[name]
    record("gdn_prefill")
    path = record()
    path.write_text(damage(path.read_text()))
    with pytest.raises(RecordError, match=f"^{path}: {words}"):
        load(path)
    assert shapes.main(["--show"]) == 3
    assert str(path) in capsys.readouterr().err
    assert {page.read_text() for page in pages.iterdir()} == {PAGE}


def test_a_damaged_record_can_be_measured_anew(monkeypatch, kept, pages, gpu):
    record().write_text("{")
    monkeypatch.setattr(shapes, "measure", lambda room: ROWS)
    assert shapes.main(["gdn_decode"]) == 1  # ROWS have a cliff
    assert load(kept / "nvidia-h200" / "gdn_decode.json")[1] == ROWS


def test_a_record_of_a_room_without_families_is_named(kept, pages, capsys):
    path = record()
    path.rename(path.with_name("spare.json"))
    assert shapes.main(["--show"]) == 3
    assert "spare.json: expected a record of" in capsys.readouterr().err


def test_an_interrupted_run_loses_the_room_it_was_in(monkeypatch, kept, pages, gpu, capsys):
    def measure(room):
        if room == "gdn_prefill":
            raise KeyboardInterrupt
        return ROWS

    monkeypatch.setattr(shapes, "measure", measure)
    assert shapes.main(["gdn_decode", "gdn_prefill"]) == 130
    assert [path.name for path in kept.glob("*/*")] == ["gdn_decode.json"]
    assert "| sizes | 6 |" in (pages / "gdn_decode.md").read_text()
    assert (pages / "gdn_prefill.md").read_text() == PAGE
    assert len(gpu) == 1  # once a room, this process would be a stranger from the second on


# What is asked


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected ROOMs to measure, or one of --show and --check"),
        (["--show", "gdn_decode"], "expected ROOMs to measure, or one of --show and --check"),
        (["--show", "--check"], "expected ROOMs to measure, or one of --show and --check"),
        (["--check", "gdn_decode"], "expected ROOMs to measure, or one of --show and --check"),
        (["--show", "--commit", "0" * 40], "--commit: expected ROOMs, got --show or --check"),
        (["spare"], f"expected one of {', '.join(FAMILIES)}, got 'spare'"),
        (["gdn_decode", "gdn_decode"], "expected each once, got gdn_decode 2 times"),
        (["gdn_decode", "--commit", "main"], "--commit: expected 7 to 40 hexadecimal digits"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused(arguments, words, capsys):
    assert shapes.main(arguments) == 2
    assert words in capsys.readouterr().err


def test_without_a_gpu_nothing_is_measured(monkeypatch, kept, pages, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("harness.devices.facts.load_cuda", lambda: None)
    assert shapes.main(["gdn_decode"]) == 3
    assert "expected cuda:0, but CUDA_VISIBLE_DEVICES is ''" in capsys.readouterr().err
    assert not kept.exists()


@pytest.mark.parametrize("text", [None, "A page without a place.\n", PAGE + PAGE])
def test_a_page_without_one_place_for_the_table_is_said_before_measuring(
    monkeypatch, kept, pages, gpu, capsys, text
):
    page = pages / "gdn_prefill.md"
    page.unlink() if text is None else page.write_text(text)
    monkeypatch.setattr(shapes, "measure", pytest.fail)
    assert shapes.main(["gdn_decode", "gdn_prefill"]) == 2
    assert f"{page}: " in capsys.readouterr().err


# What is shown


def test_a_table_names_its_content_and_that_it_is_stale(monkeypatch):
    monkeypatch.setitem(FAMILIES, "gdn_decode", (FAMILY,))
    head = {
        "device": "nvidia-h200",
        "solution_sha256": "a" * 64,
        "protocol": {"iterations": 50, "passes": 3},
        "measured_at": "2026-11-30T00:00:00Z",
    }
    caption = "nvidia-h200, CUPTI, L2 cold, 50 calls, median of 3 passes, 2026-11-30, "
    fresh = render("gdn_decode", head, ROWS, "a" * 64)
    assert fresh.startswith(f"{caption}content `aaaaaaaa`.\n") and "stale" not in fresh
    table = render("gdn_decode", head, ROWS, "b" * 64)
    assert table.startswith(f"{caption}*stale: measured on `aaaaaaaa`, packed now `bbbbbbbb`*.\n")
    assert "| sizes | 6 | 9.30 | 8.00 | 1.16 | - |" in table
    assert "Not measured" not in table


def test_rates_are_a_line_below_the_table(monkeypatch):
    """Of measured sizes alone, a library's beside the room's; none without rates."""
    family = Family("tokens", (1024, 4096), (2048,), FAMILY.make, rates=(1024, 2048, 4096))
    monkeypatch.setitem(FAMILIES, "gdn_decode", (FAMILY, family))
    head = {
        "device": "nvidia-h200",
        "solution_sha256": "a" * 64,
        "protocol": {"iterations": 50, "passes": 3},
        "measured_at": "2026-11-30T00:00:00Z",
    }
    rows = [*ROWS, Row("tokens", 1024, 20.0, {}), Row("tokens", 4096, 60.0, {"library": 100.0})]
    lines = render("gdn_decode", head, rows, "a" * 64).splitlines()
    assert "µs per 1024 tokens: 20.00 at 1024; 15.00, 25.00 library at 4096." in lines
    assert sum(line.startswith("µs per") for line in lines) == 1
    assert "µs per" not in render("gdn_decode", head, ROWS, "a" * 64)


def test_a_long_sequence_of_prefill_is_held_against_a_library_and_linearity():
    one, *more = FAMILIES["gdn_prefill"]
    assert one.rates == (8192, 16384, 65536) and one.sizes[-2:] == one.rates[-2:]
    assert (one.peers, one.against) == (("fla",), (65536,))
    assert 16384 in one.between  # on the line through 8192 and 65536, or a cliff
    assert all(not (family.peers or family.rates) for family in more)


def both_sides(limits):
    return {size for limit in limits for size in (limit, limit + 1)}


def test_borders_of_prefills_choice_have_a_size_on_both_sides():
    kernel = sys.modules[build("gdn_prefill")._callable.__module__]
    plan = constants_of("gdn_prefill", "plan.cuh")
    for family, num_seqs in zip(FAMILIES["gdn_prefill"], (1, 3, 16), strict=True):
        most = kernel.WALK_TOKENS + kernel.WALK_TOKENS_A_SEQUENCE * num_seqs
        limits = [min(most, kernel.MOST_WALK_TOKENS)]
        if num_seqs == 1:
            limits += [(plan[name] - 1) * plan["CHUNK"] for name in ("SECOND", "THIRD", "FOURTH")]
        assert both_sides(limits) <= {*family.sizes}


def test_borders_of_moes_choice_have_a_size_on_both_sides():
    kernel = sys.modules[build("moe")._callable.__module__]
    plan = constants_of("moe", "plan.cuh")
    limits = [plan[name] for name in ("MOST_FEW", "MOST_IN_PLANES", "MOST_ROUTED")]
    in_turns, routed = FAMILIES["moe"]
    assert both_sides([kernel.NATIVE_WAYS[0][0], *limits]) <= {*in_turns.sizes}
    assert both_sides(limits[1:]) <= {*routed.sizes}
    assert kernel.NATIVE_WAYS[1][0] in routed.sizes


@pytest.mark.parametrize("room", FAMILIES)
def test_libraries_and_rates_are_of_sizes_that_are_measured(room):
    for family in FAMILIES[room]:
        assert {*family.against, *family.rates} <= {*family.sizes}
        assert bool(family.peers) == bool(family.against)
        assert all((shapes.ROOT / "peers" / room / f"{x}.py").is_file() for x in family.peers)


def test_a_page_shows_the_tables_of_every_device(kept, pages):
    record()
    record(facts=DeviceFacts("nvidia-b200", "NVIDIA B200", "GPU-1"), rows=ROWS[:2] + ROWS[2:])
    assert shapes.main(["--show"]) == 0
    text = (pages / "gdn_decode.md").read_text()
    assert text.count("| sizes | 6 | 9.30 |") == 2
    assert text.index("nvidia-b200, CUPTI") < text.index("nvidia-h200, CUPTI")
    assert text.startswith("Above.") and text.endswith("Below.\n")


def test_check_finds_what_a_page_shows_of_other_records_and_writes_nothing(kept, pages, capsys):
    record("gdn_decode"), record("gdn_prefill")
    assert shapes.main(["--show"]) == 0
    capsys.readouterr()
    assert shapes.main(["--check"]) == 0
    assert capsys.readouterr().out == "the pages show the records\n"
    page = pages / "gdn_decode.md"
    edited = page.read_text().replace("9.30", "9.31")
    page.write_text(edited)
    assert shapes.main(["--check"]) == 1
    said = f"{page}: not the table of the records; run `python -m tests.shapes --show`\n"
    assert capsys.readouterr().out == said
    assert page.read_text() == edited
    page.write_text("no block\n")
    assert shapes.main(["--check"]) == 2


def test_families_that_changed_since_are_said_and_cost_no_other_row(kept, pages):
    """The line through an anchor that nobody measured would be another one."""
    record(rows=[row for row in ROWS if row.size != 8] + [Row("gone", 3, 1.0, {})])
    assert shapes.main(["--show"]) == 0
    text = (pages / "gdn_decode.md").read_text()
    assert "| sizes | 6 | 9.30 | - | - | - |" in text
    assert "Not measured yet: sizes: 8." in text
    assert "No longer a size: gone: 3." in text


@pytest.mark.parametrize("room", sorted({path.stem for path in KEPT.glob("*/*.json")}))
def test_a_page_shows_its_records(room):
    assert shapes.shown(room) == shapes.tables()[room], f"run `{shapes.COMMAND} --show`"
