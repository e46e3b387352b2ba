"""Tuning constants: where they stand, exact and reversible replacement, bounds, mutations."""

import pytest

from harness.config import load_workspace
from harness.controller.directions import Direction
from harness.dataset import read_workloads
from harness.errors import ConfigError, PackingError
from harness.search.candidates import read_room
from harness.search.constants import limits, locate, replace
from harness.search.declaration import FILE_NAME, load_declaration
from harness.search.parameters import ParameterProposer
from harness.search.proposers import Parent, Plan
from tests.unit.search_room import KERNEL, ROOM, TUNING, SearchRoom

PYTHON = '''"""µµµ: two bytes a character."""
import math

class Launch:
    """Two fields."""
    route: str
    stages: int

PLAIN = 80
BLOCK = {"BLOCK_V": 4, "µ": 2}
ROWS = (
    (128, Launch("µ", 6)),  # µ
    (512, Launch("tiled", stages=7)),
    (math.inf, {"BLOCK_V": 8}),
)
CLUSTERS = ((8, 16), (64, 31, 4), (math.inf, 1))
'''
CUDA = """struct Other {
  static constexpr int TILE = 1;
};
struct Tuning {
  static constexpr int TILE = 64;     // µ
  static constexpr float SPREAD = 48.0f;
};
constexpr int TILE = Tuning::TILE;
"""


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("PLAIN", 80),
        ("BLOCK.BLOCK_V", 4),
        ("ROWS[0].limit", 128),
        ("ROWS[0].stages", 6),
        ("ROWS[1].stages", 7),
        ("ROWS[2].BLOCK_V", 8),
        ("CLUSTERS[0].value", 16),
        ("CLUSTERS[1].value", 4),
        ("CLUSTERS[2].value", 1),
    ],
)
def test_a_python_constant_is_replaced_alone_and_back_byte_for_byte(place, value):
    span = locate(PYTHON, place, "here")
    assert span.value == value
    changed = replace(PYTHON, span, 12345)
    assert changed == PYTHON[: span.start] + "12345" + PYTHON[span.stop :]
    again = locate(changed, place, "here")
    assert again.value == 12345
    assert replace(changed, again, value).encode() == PYTHON.encode()


def test_a_cuda_constant_is_that_of_its_struct():
    span = locate(CUDA, "Tuning::TILE", "here")
    assert span.value == 64
    changed = replace(CUDA, span, 32)
    assert "TILE = 1;" in changed and "TILE = 32;     // µ" in changed
    assert replace(changed, locate(changed, "Tuning::TILE", "here"), 64) == CUDA


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (PYTHON, "MISSING", "one assignment of MISSING, found 0"),
        (PYTHON + "PLAIN = 3\n", "PLAIN", "found 2"),
        (PYTHON, "ROWS[3].limit", "has 3 rows"),
        (PYTHON, "ROWS[2].limit", "integer literal, got math.inf"),
        (PYTHON, "ROWS[0].warps", "no 'warps' there"),
        (PYTHON, "ROWS[0].route", "integer literal"),
        (PYTHON, "PLAIN[0].limit", "tuple of rows"),
        (PYTHON, "ROWS[x].limit", "expected NAME"),
        ("A = 0x40\n", "A", "plain digits"),
        ("A = 1_024\n", "A", "plain digits"),
        ("A = True\n", "A", "integer literal"),
        (CUDA, "Nothing::TILE", "no struct Nothing"),
        (CUDA, "Tuning::SPREAD", "expected one `constexpr int SPREAD"),
    ],
)
def test_what_is_no_plain_integer_in_one_place_is_refused(text, place, words):
    with pytest.raises(ConfigError) as caught:
        locate(text, place, "here")
    assert words in str(caught.value)


def test_limits_of_a_table_are_its_integers():
    assert limits(PYTHON, "ROWS", "here") == [128, 512]
    assert limits(PYTHON, "CLUSTERS", "here") == [8, 64]


# Declarations


@pytest.fixture
def room(tmp_path):
    return SearchRoom(tmp_path / "checkout")


def declare(room, text=TUNING):
    (room.folder / FILE_NAME).write_text(text)
    return load_declaration(room.root, ROOM, read_room(room.workspace, ROOM))


def test_edits_change_what_they_name_and_are_undone_by_their_opposites(room):
    sources = {"kernel.py": KERNEL}
    declaration = declare(room)
    before = declaration.read(sources)
    edits = {"kernel.py:LAUNCHES[0].BLOCK_V": 8, "kernel.py:LAUNCHES[1].BLOCK_V": 16}
    changed = declaration.apply(sources, edits)
    assert declaration.read(changed) == before | edits
    assert declaration.apply(changed, {name: before[name] for name in edits}) == sources


@pytest.mark.parametrize("edits", [{"kernel.py:LAUNCHES[0].BLOCK_V": 3}, {"kernel.py:LIMIT": 4}])
def test_nothing_beyond_the_declared_bounds_is_written(room, edits):
    with pytest.raises(ConfigError, match="expected one of"):
        declare(room).apply({"kernel.py": KERNEL}, edits)


def test_limits_must_rise(room):
    text = (
        TUNING
        + '"kernel.py:LAUNCHES[0].limit" = [1, 4, 9]\n"kernel.py:LAUNCHES[1].limit" = [8, 9]\n'
    )
    kernel = KERNEL.replace("(math.inf, {", "(8, {")
    (room.folder / "kernel.py").write_text(kernel)
    declaration = declare(room, text)
    declaration.apply({"kernel.py": kernel}, {"kernel.py:LAUNCHES[0].limit": 4})
    with pytest.raises(ConfigError, match="must rise"):
        declaration.apply({"kernel.py": kernel}, {"kernel.py:LAUNCHES[0].limit": 9})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at least one table"),
        ("x", "not valid TOML"),
        (TUNING.replace('answers = ["latency"]', ""), "hypothesis, answers and constants"),
        (TUNING.replace("answers", 'not_on = ["Hopper"]\nanswers', 1), "not_on: expected compute"),
        (TUNING.replace("answers", "not_on = 9.0\nanswers", 1), "not_on: expected compute"),
        (TUNING.replace('["latency"]', '["luck"]'), "answers: expected some of"),
        (TUNING.replace('["latency"]', "[[]]"), "answers: expected some of"),
        (TUNING.replace('["latency"]', "[{}]"), "answers: expected some of"),
        (TUNING.replace("[1, 2, 4, 8]", "[2]"), "at least two values"),
        (TUNING.replace("[1, 2, 4, 8]", '["2", "4"]'), "integers"),
        (TUNING.replace("[1, 2, 4, 8]", "[1, 4, 8]"), "stands at 2; expected that among"),
        (
            TUNING.replace("kernel.py:LAUNCHES[0].BLOCK_V", "other.py:LAUNCHES[0].BLOCK_V"),
            "no such",
        ),
        (TUNING.replace("LAUNCHES[0].BLOCK_V", "LAUNCHES[7].BLOCK_V"), "has 2 rows"),
    ],
)
def test_a_wrong_declaration_says_what_is_wrong(room, text, words):
    with pytest.raises(ConfigError) as caught:
        declare(room, text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line"), [(KERNEL + "x = (\n", KERNEL.count("\n") + 1), ("x y\n" + KERNEL, 1)]
)
def test_a_source_that_is_not_python_is_named_with_its_line(room, text, line):
    with pytest.raises(PackingError, match=rf"^solutions/{ROOM}/kernel\.py:{line}: "):
        load_declaration(room.root, ROOM, {"kernel.py": text})


def test_directions_of_code_that_does_not_run_there_are_left_out(room):
    declaration = declare(room, TUNING.replace("answers", 'not_on = ["9.0"]\nanswers', 1))
    assert [one.direction.name for one in declaration.on((9, 0)).directions] == ["warps"]
    assert declaration.on((10, 0)).directions == declaration.on(None).directions
    assert len(declaration.on(None).directions) == 2


def test_a_declaration_of_which_nothing_runs_there_says_what_to_do(room):
    declaration = declare(room, TUNING.replace("answers", 'not_on = ["9.0"]\nanswers'))
    with pytest.raises(ConfigError, match=r"compute capability 9\.0, got none; .*--command"):
        declaration.on((9, 0))


def test_every_real_room_has_constants_that_run_on_hopper():
    workspace = load_workspace()
    for room in workspace.rooms:
        if (workspace.root / "solutions" / room / FILE_NAME).exists():
            declaration = load_declaration(workspace.root, room, read_room(workspace, room))
            assert len(declaration.on((9, 0)).constants) >= 2


def test_a_room_without_a_declaration_says_what_to_do(room):
    (room.folder / FILE_NAME).unlink()
    with pytest.raises(ConfigError, match="--command or --folder"):
        load_declaration(room.root, ROOM, {"kernel.py": KERNEL})


def test_every_declared_constant_of_the_real_rooms_stands_where_it_is_said_to():
    workspace, checked = load_workspace(), 0
    for room in workspace.rooms:
        if (workspace.root / "solutions" / room / FILE_NAME).exists():
            declaration = load_declaration(workspace.root, room, read_room(workspace, room))
            assert len(declaration.constants) >= 5
            checked += 1
    assert checked >= 2


@pytest.mark.parametrize(
    ("room", "axis", "constant"),
    [
        ("dsa_attention", "num_tokens", "kernel.py:NATIVE_CLUSTERS[0].limit"),
        ("dsa_attention", "num_tokens", "kernel.py:NATIVE_CLUSTERS[1].limit"),
        ("gdn_prefill", "num_seqs", "kernel.py:SHARES[0].limit"),
        ("moe", "seq_len", "kernel.py:NATIVE_WAYS[0].limit"),
    ],
)
def test_no_two_declared_limits_are_the_same_for_all_official_workloads(room, axis, constant):
    workspace = load_workspace()
    declared = load_declaration(workspace.root, room, read_room(workspace, room)).constants
    sizes = {row.axes[axis] for row in read_workloads(workspace.root, workspace.room(room))}
    within = [sum(size <= limit for size in sizes) for limit in declared[constant]]
    assert len(set(within)) == len(within), dict(zip(declared[constant], within, strict=True))


# Mutations


def propose(room, direction="block_v", seed="0", sources=None):
    sources = sources or {"kernel.py": KERNEL}
    parent = Parent("p" * 64, sources)
    plan = Plan(ROOM, "r001/000", Direction(direction, "why"), 0, 8, parent, sources, seed)
    return list(ParameterProposer(declare(room)).propose(plan))


def test_single_mutations_of_the_direction_come_first_and_the_nearest_of_them_before_far_ones(room):
    proposals = propose(room)
    singles = [one.edits for one in proposals if len(one.edits) == 1]
    assert proposals[: len(singles)] == [one for one in proposals if len(one.edits) == 1]
    assert {next(iter(edits)) for edits in singles} == {
        "kernel.py:LAUNCHES[0].BLOCK_V",
        "kernel.py:LAUNCHES[1].BLOCK_V",
    }
    assert len(singles) == 6
    first = {next(iter(edits.values())) for edits in singles[:2]}
    assert first <= {1, 4, 16}, "one step from 2 and from 8"


def test_pairs_change_two_constants(room):
    pairs = [one.edits for one in propose(room) if len(one.edits) == 2]
    assert pairs and all(len(set(edits)) == 2 for edits in pairs)


def test_the_seed_decides(room):
    assert propose(room) == propose(room)
    assert [one.edits for one in propose(room)] != [one.edits for one in propose(room, seed="1")]


def test_a_proposal_says_what_it_changes_and_from_whom_it_comes(room):
    one = propose(room, "warps")[0]
    assert one.parent == "p" * 64
    assert "num_warps 1 -> 2" in one.note
    assert one.sources["kernel.py"].count('"num_warps": 2') == 1
