"""Skills: every command, option and path in them exists, and their rules are the code's."""

import re
import shlex
import sys

import pytest

from harness.controller.decision import GATE_TOLERANCE, LABELS, MANY_LINES, SMALL_GAIN
from harness.controller.memory import FAILURES_THAT_BLOCK
from harness.profiling.bottleneck import CLASSES, LIMITERS
from harness.profiling.display import NOTHING, UNKNOWN
from harness.search.command import CommandProposer
from harness.search.planning import Settings
from tests.markdown_tables import read_tables
from tests.skill_pages import FENCE, ROOT, fenced_commands, objections
from tests.unit.search_room import ROOM, SearchRoom, analyse_once
from tests.unit.test_search_proposers import plan

SKILLS = ("contest-optimizer", "kernel-optimizer", "optimization-controller", "submission")
PAGES = sorted((ROOT / "skills").rglob("*.md"))
CONTROLLER = ROOT / "skills" / "optimization-controller"
DECISION = (CONTROLLER / "references" / "decision.md").read_text()


def tables(text: str) -> list[list[list[str]]]:
    """The cells of each row of each table of a page."""
    return [[list(row.values()) for row in table] for table in read_tables(text)]


# Commands and paths


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_option_and_path_of_a_skill_exists(page):
    assert objections(page.read_text()) == []


def test_skills_hold_commands_to_check():
    counts = {name: 0 for name in SKILLS}
    for page in PAGES:
        name = page.relative_to(ROOT / "skills").parts[0]
        counts[name] += len(list(fenced_commands(page.read_text())))
    assert min(counts.values()) > 8, counts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```sh\npython -m harness tunes ROOM\n```", "no command tunes"),
        ("```sh\npython -m harness tune ROOM --round 3\n```", "No such option"),
        ("```sh\npython -m harness tune ROOM --rounds none\n```", "not a valid integer"),
        ("```sh\npython -m harness tune\n```", "Missing argument"),
        ("```sh\npython -m harness gate gdn_encode x.patch\n```", "no room gdn_encode"),
        ("```sh\npython -m harness dataset mend\n```", "No such command"),
        ("```sh\npython -m harness sanitize ROOM --tool x\n```", "is not one of"),
        ("```sh\npython pack.py --hush\n```", "unrecognized arguments: --hush"),
        ("```sh\npython pack.py nowhere\n```", "no room nowhere"),
        ("```sh\nmake everything\n```", "no target everything"),
        ("```sh\npython -m pytest tests/unit/test_nothing.py\n```", "no tests/unit/test_nothing"),
        ("```sh\ngit add nowhere\n```", "no nowhere"),
        ("```sh\nnvprof x\n```", "does not know"),
        ("  ```sh\n  python -m harness tunes ROOM\n  ```", "no command tunes"),
        ("`python -m harness tunes`", "no command tunes"),
        ("`tune ROOM --commands x`", "no option --commands"),
        ("`--without-audits`", "no command has this option"),
        ("`solutions/<room>/tuning.json`", "no such path"),
        ("`harness/controllers/`", "no such path"),
        ("`results/search/<room>/attempt.jsonl`", "not made"),
        ("`results/profile/<device>/<room>.json`", "not made"),
        ("`decision.jsonl`", "no such file"),
    ],
)
def test_what_does_not_exist_is_found(text, words):
    (found,) = objections(text)
    assert words in found


@pytest.mark.parametrize(
    "text",
    [
        "```sh\npython -m harness tune ROOM --rounds 3  # three\n```",
        "```text\nnvprof x\n```",
        "`harness/controller/decision.py` `solutions/<room>/tuning.toml` `memory.jsonl` `r001/000`",
    ],
)
def test_what_exists_is_not_complained_of(text):
    assert objections(text) == []


# Form


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_says_in_its_head_what_it_is_for(name):
    text = (ROOT / "skills" / name / "SKILL.md").read_text()
    head = re.match(r"---\nname: (\S+)\ndescription: ([^\n]{40,400})\n---\n\n# ", text)
    assert head and head[1] == name
    assert "## Hard gates" in text
    references = sorted((ROOT / "skills" / name / "references").glob("*.md"))
    assert references and all(f"references/{path.name}" in text for path in references)


def test_the_four_skills_are_all_there_is():
    assert sorted(path.parent.name for path in (ROOT / "skills").glob("*/SKILL.md")) == list(SKILLS)


# Rules


def test_the_decision_page_has_the_labels_and_numbers_of_the_code():
    rules, _ = tables(DECISION)
    labels = set(re.findall(r"\*([a-z ]+)\*", " ".join(row[2] for row in rules)))
    assert labels == set(LABELS)
    for words in (
        f"below {1 - GATE_TOLERANCE:g}",
        f"below {100 * SMALL_GAIN:g} % adds more than {MANY_LINES} lines",
        f"After {FAILURES_THAT_BLOCK} the direction",
    ):
        assert words in DECISION


def test_the_decision_page_lists_what_a_decision_holds(tmp_path, monkeypatch):
    analyse_once(monkeypatch)
    room = SearchRoom(tmp_path, settings=Settings(rounds=1, candidates=2))
    room.run()
    (line,) = room.archive.lines("decisions").values()
    _, table = tables(DECISION)
    listed = {key for row in table for key in row[0].split(", ")}
    assert listed == set(line) - {"key", "decided_at"}


def test_the_controller_page_names_every_finding_of_the_supervisor():
    (advice,) = tables((CONTROLLER / "SKILL.md").read_text())
    source = (ROOT / "harness" / "controller" / "supervisor.py").read_text()
    findings = source.partition("def _stalling(")[2].partition("def _recommend(")[0]
    kinds = set(re.findall(r'f?"([a-z ]+): ', findings))
    assert len(kinds) == 5 and kinds <= {row[0] for row in advice}


def test_the_bottleneck_page_has_every_class_and_every_limit():
    page = ROOT / "skills" / "kernel-optimizer" / "references" / "bottlenecks.md"
    classes, limits, _ = tables(page.read_text())
    assert [row[0] for row in classes] == [
        *("launch", "latency", "memory", "tensor", "mixed"),
        UNKNOWN,
    ]
    assert set(CLASSES) <= {row[0] for row in classes}
    named = {name for row in limits for name in row[0].split(", ")}
    assert named == {*LIMITERS, NOTHING}


def test_the_program_of_the_proposer_page_makes_a_candidate(tmp_path, monkeypatch):
    text = (CONTROLLER / "references" / "proposers.md").read_text()
    (body,) = [body for language, body in FENCE.findall(text) if language == "text"]
    room = SearchRoom(tmp_path / "checkout")
    editor = tmp_path / "my-editor"
    editor.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\n"
        "assert 'Hard gates' in pathlib.Path(sys.argv[2]).read_text()\n"
        "path = pathlib.Path(sys.argv[3])\n"
        "path.write_text(path.read_text().replace('LIMIT = 4', 'LIMIT = 5'))\n"
        "path.with_name('more.py').write_text('MORE = 1\\n')\n"
    )
    editor.chmod(0o755)
    script = tmp_path / "propose.sh"
    script.write_text(body.replace("my-editor", shlex.quote(str(editor))))
    (proposal,) = CommandProposer(room.workspace, f"sh {script}").propose(plan(count=1))
    assert proposal.refused is None
    assert "LIMIT = 5" in proposal.sources["kernel.py"] and ROOM in body
    assert proposal.sources["more.py"] == "MORE = 1\n"
