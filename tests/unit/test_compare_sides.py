"""What the two words of `compare` mean, and that revisions are packed from an archive of them."""

import json
import subprocess

import pytest

from harness.compare.revisions import find_commit
from harness.compare.sides import choose_rooms, control_of, pack_sides, read_word
from harness.errors import PackingError, UsageError
from harness.evaluate.sweep import read_commit
from harness.packing import pack, write
from tests.unit.packing_checkout import ARGUMENTS, Checkout

ROOM = "scale_rows"
LIBRARIES = ("lib", "other")
PEER_TOML = """
[peers.{0}]
package = "{0}-python"
version = "1.2"
"""
PEER = """\
\"\"\"Calls {0}.\"\"\"

PACKAGE = "{0}-python"
PREPARED = "nothing"


def run(x, factor, y, norm):
    pass
"""
IDENTITY = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")


def git(checkout, *arguments):
    done = subprocess.run(
        ["git", *IDENTITY, *arguments], cwd=checkout.root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(checkout, message):
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", message)
    return git(checkout, "rev-parse", "HEAD")


def shelve(checkout, value):
    checkout.shelf("arguments.py", f"{ARGUMENTS}\n\nVALUE = {value}\n")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Two commits, VALUE 1 and 2, and a working tree with VALUE 3.

    Of two libraries, installed as pinned, scale_rows has both and sum_rows one.
    """
    checkout = Checkout(tmp_path / "checkout")
    config = checkout.root / "config.toml"
    config.write_text(config.read_text() + "".join(PEER_TOML.format(name) for name in LIBRARIES))
    for path in ("scale_rows/lib", "scale_rows/other", "sum_rows/other"):
        checkout.write(f"peers/{path}.py", PEER.format(path.partition("/")[2]))
    git(checkout, "init", "--quiet", "--initial-branch=trunk")
    for value in (1, 2):
        shelve(checkout, value)
        commit(checkout, str(value))
    shelve(checkout, 3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.compare.sides.installed_version", lambda package: "1.2")
    return checkout


@pytest.fixture
def workspace(checkout):
    return checkout.workspace


def sides_of(workspace, a, b, *rooms):
    """The sides of each room, as compare makes them."""
    first, second = (read_word(workspace, word) for word in (a, b))
    chosen = choose_rooms(workspace, first, second, rooms)
    return pack_sides(workspace, first, second, chosen)


def value_of(side):
    """VALUE of the packed shelf file."""
    sources = {s["path"]: s["content"] for s in json.loads(side.packed.text)["sources"]}
    return int(sources["arguments.py"].rpartition("=")[2])


# Words


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("ours", "room"),
        ("scale_rows", "room"),
        ("lib", "peer"),
        ("peers", "peers"),
        ("lib,other", "peers"),
        ("HEAD", "revision"),
        ("HEAD~1", "revision"),
        ("trunk", "revision"),
    ],
)
def test_a_word_has_one_meaning(workspace, word, kind):
    assert read_word(workspace, word).kind == kind


def test_libraries_joined_by_commas_are_these_alone_in_this_order(workspace):
    sides = sides_of(workspace, "ours", "other,lib,other")
    assert {room: [one.side.name for one in of] for room, of in sides.items()} == {
        "scale_rows": ["ours", "other", "lib"]
    }
    with pytest.raises(UsageError, match=r"lib,other stands for several libraries"):
        sides_of(workspace, "lib,other", "ours", "scale_rows")


def test_a_hash_and_a_tag_are_revisions(checkout, workspace):
    head = git(checkout, "rev-parse", "HEAD")
    git(checkout, "tag", "--annotate", "--message", "x", "first", "HEAD~1")
    assert read_word(workspace, head[:8]).commit == head
    assert read_word(workspace, "first").commit == git(checkout, "rev-parse", "HEAD~1")


def test_a_hook_s_variables_do_not_lead_to_another_repository(
    checkout, workspace, tmp_path, monkeypatch
):
    head = git(checkout, "rev-parse", "HEAD")
    git(tmp_path, "init", "--quiet", "--bare", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other"))
    assert read_word(workspace, "HEAD").commit == head
    assert read_commit(workspace.root).startswith(head)


@pytest.mark.parametrize(
    "word", ["nothing", "HEAD~9", "", "-x", "a b", "scale_rows_h8", "lib,", "lib,ours"]
)
def test_an_unknown_word_is_answered_with_what_there_is(workspace, word):
    with pytest.raises(UsageError) as caught:
        read_word(workspace, word)
    message = str(caught.value)
    for known in ("ours", "peers", "scale_rows, sum_rows", "lib, other", "JSON", "git revision"):
        assert known in message
    assert repr(word) in message


def test_an_ambiguous_word_is_answered_with_its_meanings(checkout, workspace, tmp_path):
    git(checkout, "branch", "lib")
    git(checkout, "branch", "scale_rows")
    (tmp_path / "trunk").write_text("{}")
    for word, meanings in {
        "lib": ("the library", "the revision"),
        "scale_rows": ("the room as packed now", "the revision"),
        "trunk": ("the file trunk", "the revision"),
    }.items():
        with pytest.raises(UsageError) as caught:
            read_word(workspace, word)
        assert all(meaning in str(caught.value) for meaning in meanings)
        assert f"./{word}" in str(caught.value)
        assert read_word(workspace, f"refs/heads/{word}").kind == "revision"
    assert read_word(workspace, "./trunk").kind == "json"


def test_without_git_no_word_is_a_revision(workspace, monkeypatch, tmp_path):
    assert find_commit(tmp_path, "HEAD") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_commit(workspace.root, "HEAD") is None
    assert read_word(workspace, "ours").kind == "room"


# Rooms


def test_rooms_default_to_the_one_that_a_side_names(workspace):
    assert set(sides_of(workspace, "scale_rows", "HEAD")) == {ROOM}
    assert set(sides_of(workspace, "HEAD", "scale_rows")) == {ROOM}
    assert set(sides_of(workspace, "ours", "HEAD")) == {ROOM, "sum_rows"}
    assert set(sides_of(workspace, "ours", "HEAD", ROOM, ROOM)) == {ROOM}


def test_a_room_without_peers_says_what_else_it_can_meet(workspace, monkeypatch):
    monkeypatch.setattr("harness.compare.sides.list_peers", lambda *_: ())
    with pytest.raises(UsageError, match=r"scale_rows has no peers: .*compare ours HEAD scale_row"):
        sides_of(workspace, "ours", "peers", ROOM)


def test_rooms_default_to_those_that_have_the_library(workspace):
    assert set(sides_of(workspace, "ours", "lib")) == {ROOM}
    assert set(sides_of(workspace, "lib", "other")) == {ROOM}
    assert set(sides_of(workspace, "ours", "peers")) == {ROOM, "sum_rows"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("scale_rows", "ours", "sum_rows"), "belongs to the room scale_rows"),
        (("scale_rows", "sum_rows"), "cannot be compared in"),
        (("ours", "lib", "sum_rows"), "has no file for the room sum_rows; expected one of other"),
        (("other", "peers", "sum_rows"), "no other peer"),
        (("peers", "ours"), "second only"),
    ],
)
def test_a_side_that_does_not_fit_is_refused(workspace, words, message):
    with pytest.raises(UsageError, match=message):
        sides_of(workspace, *words)


# What is packed


def test_each_revision_is_its_own_tree_and_the_working_tree_is_left_alone(checkout, workspace):
    before = git(checkout, "status", "--porcelain")
    sides = sides_of(workspace, "HEAD~1", "HEAD", ROOM)[ROOM]
    assert [side.side.name for side in sides] == ["HEAD~1", "HEAD"]
    assert [value_of(side) for side in sides] == [1, 2]
    assert value_of(sides_of(workspace, "ours", "HEAD", ROOM)[ROOM][0]) == 3
    assert git(checkout, "status", "--porcelain") == before
    assert git(checkout, "stash", "list") == ""


def test_a_revision_without_the_room_is_named(checkout, workspace):
    git(checkout, "rm", "-r", "--quiet", "--cached", "solutions/sum_rows")
    git(checkout, "commit", "--quiet", "--message", "without")
    with pytest.raises(UsageError, match=r"HEAD: expected the room sum_rows, got .* scale_rows;"):
        sides_of(workspace, "ours", "HEAD", "sum_rows")
    assert sides_of(workspace, "ours", "HEAD", ROOM)


def test_a_revision_of_something_else_is_named(checkout, workspace):
    git(checkout, "checkout", "--quiet", "--orphan", "blank")
    git(checkout, "rm", "-r", "-f", "--quiet", "--cached", ".")
    checkout.write("README.md", "nothing here\n")
    git(checkout, "add", "README.md")
    git(checkout, "commit", "--quiet", "--message", "blank")
    with pytest.raises(UsageError, match=r"blank: expected a tree with config\.toml"):
        sides_of(workspace, "ours", "blank", ROOM)


def test_a_revision_that_does_not_pack_says_where(checkout, workspace):
    checkout.put("notes.txt", "x")
    commit(checkout, "broken")
    (checkout.folder / "notes.txt").unlink()
    with pytest.raises(PackingError, match="revision HEAD does not pack: solutions/scale_rows/not"):
        sides_of(workspace, "ours", "HEAD", ROOM)


def test_a_revision_with_another_definition_is_refused(checkout, workspace):
    path = checkout.root / "config.toml"
    text = path.read_text()
    path.write_text(text.replace('"scale_rows_h8"', '"sum_rows_h8"'))
    commit(checkout, "other definition")
    path.write_text(text)
    with pytest.raises(UsageError, match="its room scale_rows answers sum_rows_h8"):
        sides_of(workspace, "ours", "HEAD", ROOM)


def test_a_packed_file_has_the_content_hash_of_its_room(workspace, tmp_path):
    path = tmp_path / "mine.json"
    path.write_bytes(write(pack(workspace, ROOM)).read_bytes())
    ours, file = sides_of(workspace, "ours", str(path))[ROOM]
    assert (file.side.kind, file.side.name) == ("json", "mine.json")
    assert file.packed.sha256 == ours.packed.sha256 and file.packed.text == ours.packed.text


def test_a_foreign_file_may_leave_out_what_the_schema_supplies(workspace, tmp_path):
    values = json.loads(pack(workspace, ROOM).text)
    del values["spec"]["dependencies"], values["description"], values["spec"]["binding"]
    path = tmp_path / "foreign.json"
    path.write_text(json.dumps(values))
    assert sides_of(workspace, "ours", "./foreign.json")[ROOM][1].packed.text == path.read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"definition": "unknown_h8"}, "solves unknown_h8; expected the definition of one of"),
        ({"spec": {}}, "expected a packed solution"),
    ],
)
def test_a_file_that_fits_no_room_is_refused(workspace, tmp_path, change, message):
    values = json.loads(pack(workspace, ROOM).text)
    (tmp_path / "bad.json").write_text(json.dumps({**values, **change}))
    with pytest.raises(UsageError, match=message):
        sides_of(workspace, "ours", "bad.json")


def test_a_file_of_one_room_is_not_compared_in_another(workspace, tmp_path):
    (tmp_path / "mine.json").write_text(pack(workspace, ROOM).text)
    with pytest.raises(UsageError, match=r"mine\.json belongs to the room scale_rows"):
        sides_of(workspace, "ours", "mine.json", "sum_rows")


def test_peers_are_all_of_the_room_but_the_first_side(workspace):
    names = [side.side.name for side in sides_of(workspace, "ours", "peers", ROOM)[ROOM]]
    assert names == ["ours", "lib", "other"]
    names = [side.side.name for side in sides_of(workspace, "lib", "peers", ROOM)[ROOM]]
    assert names == ["lib", "other"]


@pytest.mark.parametrize(
    ("installed", "state"),
    [("1.2", "measured"), ("1.2+cu130", "measured"), ("1.2.1", "missing"), (None, "missing")],
)
def test_a_library_counts_only_as_pinned(workspace, monkeypatch, installed, state):
    monkeypatch.setattr("harness.compare.sides.installed_version", lambda package: installed)
    side = sides_of(workspace, "ours", "lib")[ROOM][1].side
    assert (side.state, side.installed, side.pinned) == (state, installed, "1.2")
    if state == "missing":
        hint = "pip install --no-deps 'lib-python==1.2' (docs/peers.md)"
        assert side.reason == f"lib-python: installed {installed or 'none'}, pinned 1.2; {hint}"


def test_the_same_word_twice_gives_two_names(workspace):
    first, second = sides_of(workspace, "ours", "scale_rows")[ROOM]
    assert (first.side.name, second.side.name) == ("ours", "ours again")
    assert first.packed == second.packed
    control = control_of(first)
    assert (control.side.name, control.side.kind) == ("control", "control")
    assert control.packed == first.packed


def test_the_name_of_the_control_is_taken(checkout, workspace):
    git(checkout, "branch", "control")
    with pytest.raises(UsageError, match="control is the first side measured again"):
        sides_of(workspace, "ours", "control", ROOM)
