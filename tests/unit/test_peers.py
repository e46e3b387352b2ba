"""Packing of peers/<room>/<library>.py: this checkout's files, and what is refused."""

from __future__ import annotations

import ast
import dataclasses
import json
import sys

import pytest

from harness.config import load_workspace
from harness.errors import ConfigError, ExitCode, HarnessError, PackingError, UsageError
from harness.packing import list_peers, pack_peer
from harness.packing.official import validate
from tests.unit.packing_checkout import Checkout

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WORKSPACE = load_workspace()
OURS = [(room, library) for room in WORKSPACE.rooms for library in list_peers(WORKSPACE, room)]
PEER = '''\
"""Calls the library."""

PACKAGE = "some-library"
PREPARED = "nothing"


def run(x, factor, y, norm):
    pass
'''
TABLE = '\n[peers.library]\npackage = "some-library"\nversion = "1.2.3"\n'


# This checkout


def test_every_official_room_has_what_its_users_would_pick():
    assert {room: list_peers(WORKSPACE, room) for room in WORKSPACE.rooms} == {
        "moe": ("flashinfer", "deep_gemm", "deep_gemm_mega", "torch_compile"),
        "dsa_indexer": ("flashinfer", "deep_gemm", "torch_compile"),
        "dsa_attention": ("flashinfer", "flash_mla", "torch_compile"),
        "gdn_decode": ("flashinfer", "fla", "torch_compile"),
        "gdn_prefill": ("flashinfer", "fla", "torch_compile"),
    }


@pytest.mark.parametrize(("room", "library"), OURS, ids=map("/".join, OURS))
def test_a_peer_packs_into_an_official_solution(room, library):
    peer = pack_peer(WORKSPACE, room, library)
    assert peer == pack_peer(WORKSPACE, room, library)
    validate(peer.packed)
    solution = json.loads(peer.packed.text)
    assert solution["name"] == f"{room}-{library}-{peer.packed.sha256[:8]}" == peer.packed.name
    assert solution["author"] == library
    assert solution["definition"] == WORKSPACE.room(room).definition
    assert solution["spec"]["entry_point"] == f"{library}.py::run"
    assert solution["spec"]["destination_passing_style"] is True
    assert solution["spec"]["dependencies"] == [f"{peer.package}=={peer.pinned}"]
    source = (WORKSPACE.root / "peers" / room / f"{library}.py").read_text()
    files = {file["path"]: file["content"] for file in solution["sources"]}
    assert files.pop(f"{library}.py") == source
    assert set(files) == ({"reference.py"} if "from .reference import" in source else set())


@pytest.mark.parametrize(("room", "library"), OURS, ids=map("/".join, OURS))
def test_a_peer_says_what_it_is_and_what_it_prepares(room, library):
    peer = pack_peer(WORKSPACE, room, library)
    pin = WORKSPACE.peers[library]
    assert (peer.package, peer.pinned) == (pin.package, pin.version)
    text = (WORKSPACE.root / "peers" / room / f"{library}.py").read_text()
    assert len(ast.get_docstring(ast.parse(text)).split()) > 20
    keeps_something = "weakref" in text
    assert (peer.prepared == "nothing") is not keeps_something or peer.prepared.startswith(
        "nothing by this file"
    )
    assert "data_ptr" not in text or "buffer_ptrs=[self.buffer.data_ptr()]" in text


def test_the_extra_installs_what_is_pinned():
    project = tomllib.loads((WORKSPACE.root / "pyproject.toml").read_text())["project"]
    pins = {f"{peer.package}=={peer.version}" for peer in WORKSPACE.peers.values()}
    assert sorted(project["optional-dependencies"]["peers"]) == sorted(pins)


def test_the_page_names_every_pin():
    page = (WORKSPACE.root / "docs" / "peers.md").read_text()
    missing = [
        peer.name
        for peer in WORKSPACE.peers.values()
        if f"`{peer.name}`" not in page or f"{peer.package} {peer.version}" not in page
    ]
    assert missing == []


# A small checkout


class PeerCheckout(Checkout):
    """With one library pinned and one peer file, to be edited by a test."""

    def __init__(self, root):
        super().__init__(root)
        config = root / "config.toml"
        config.write_text(config.read_text() + TABLE)
        self.peer(PEER)

    def peer(self, text, name="library.py"):
        return self.write(f"peers/{self.room}/{name}", text)

    def refused(self, kind=PackingError, room=None, library="library"):
        with pytest.raises(HarnessError) as caught:
            pack_peer(self.workspace, room or self.room, library)
        assert type(caught.value) is kind
        assert caught.value.exit_code == ExitCode.USAGE
        return str(caught.value)


@pytest.fixture
def checkout(tmp_path):
    return PeerCheckout(tmp_path)


def test_the_hash_is_that_of_the_content(checkout):
    first = pack_peer(checkout.workspace, checkout.room, "library")
    checkout.peer(PEER.replace("pass", "return"))
    second = pack_peer(checkout.workspace, checkout.room, "library")
    assert first.packed.sha256 != second.packed.sha256
    assert first.packed.name != second.packed.name
    checkout.write("config.toml", (checkout.root / "config.toml").read_text() + "# a comment\n")
    third = pack_peer(checkout.workspace, checkout.room, "library")
    assert third == dataclasses.replace(second, packed=third.packed)
    assert third.packed == second.packed


def test_the_reference_travels_where_it_is_imported(checkout):
    definition = checkout.root / "definitions/rows/scale_rows_h8.json"
    document = json.loads(definition.read_text()) | {"reference": "def run(x, factor): ...\n"}
    definition.write_text(json.dumps(document))
    checkout.peer(PEER.replace("\nPACK", "\nfrom .reference import run as r\n\nPACK"))
    peer = pack_peer(checkout.workspace, checkout.room, "library")
    files = {file["path"]: file["content"] for file in json.loads(peer.packed.text)["sources"]}
    assert files["reference.py"] == "def run(x, factor): ...\n"
    assert peer.packed.sources == ("library.py", "reference.py")


def test_a_definition_without_a_reference(checkout):
    checkout.peer(PEER.replace("\nPACK", "\nfrom .reference import run as r\n\nPACK"))
    assert "expected the text of a reference, got None" in checkout.refused()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"""Calls the library."""\n', "", "library.py:1: expected a docstring"),
        ('PACKAGE = "some-library"\n', "", "library.py:1: expected PACKAGE = 'some-library'"),
        ('PREPARED = "nothing"\n', "", "library.py:1: expected PREPARED = 'nothing'"),
        ('"nothing"', "3", "library.py:4: expected PREPARED = 'nothing' or another string"),
        ('"nothing"', '" "', "library.py:4: expected PREPARED"),
        ('"some-library"', '"other"', "library.py:3: PACKAGE is 'other', but [peers.library]"),
        ("def run", "def go", "'run' is not defined; expected `def run(...)` at its top level"),
        (", norm)", ")", "library.py:7: run has 3 parameters; expected 4 positional: x, factor"),
        ("factor, y", "y, factor", "parameter 2 is 'y', but 'factor' is passed there"),
        ("norm):", "norm=None):", "run has a default for norm"),
        ("):", ") -> None:", "has the return annotation"),
        ("    pass", "    from .other import x", "library.py:8: reaches other.py; a peer is one"),
        ("    pass", "    import harness", "library.py:8: imports 'harness'"),
        ("    pass", "    (", "library.py:8:"),
    ],
)
def test_what_is_refused(checkout, old, new, words):
    assert old in PEER
    checkout.peer(PEER.replace(old, new))
    message = checkout.refused()
    assert message.startswith("peers/scale_rows/library.py:")
    assert words in message


def test_an_empty_file(checkout):
    checkout.peer("")
    assert "library.py: empty" in checkout.refused()


def test_an_unknown_library_and_one_without_a_file(checkout):
    message = checkout.refused(UsageError, library="nowhere")
    assert "'nowhere' is no library of config.toml for the room scale_rows" in message
    assert "expected one of library" in message
    message = checkout.refused(UsageError, room="sum_rows")
    assert "'library' has no file for the room sum_rows; expected one of none" in message


def test_an_unknown_room(checkout):
    message = checkout.refused(ConfigError, room="nowhere")
    assert "expected one of scale_rows, sum_rows; got 'nowhere'" in message


def test_a_file_of_no_library(checkout):
    checkout.peer(PEER, "stray.py")
    message = checkout.refused()
    assert message.startswith("peers/scale_rows/stray.py: expected <library>.py, one of library")


def test_a_room_and_a_checkout_without_peers(checkout):
    assert list_peers(checkout.workspace, "sum_rows") == ()
    config = checkout.root / "config.toml"
    config.write_text(config.read_text().replace(TABLE, ""))
    assert checkout.workspace.peers == {}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"1.2.3"', '">=1.2.3"', "[peers.library] version: expected one exact release"),
        ('"1.2.3"', '"1.*"', "[peers.library] version: expected one exact release"),
        ('"1.2.3"', '"latest"', "[peers.library] version: expected one exact release"),
        ('"1.2.3"', "1", "[peers.library] version: expected str, got 1"),
        ('"some-library"', '"Some Library"', "package: expected a distribution's name"),
        ("version", "release", "[peers.library] lacks 'version' (str)"),
        ("package", 'extra = "x"\npackage', "unknown key 'extra'"),
        ("peers.library", 'peers."Other-Lib"', "expected a library's short name"),
    ],
)
def test_pins_that_are_none(checkout, old, new, words):
    config = checkout.root / "config.toml"
    config.write_text(config.read_text().replace(TABLE, TABLE.replace(old, new, 1)))
    with pytest.raises(ConfigError) as caught:
        load_workspace(checkout.root)
    assert words in str(caught.value)


IMPORTED = {
    "flashinfer": "flashinfer",
    "fla": "fla",
    "flash_mla": "flash_mla",
    "deep_gemm": "deep_gemm",
    "deep_gemm_mega": "deep_gemm",
}


@pytest.mark.parametrize(
    ("room", "library"), [(room, library) for room, library in OURS if library in IMPORTED]
)
def test_a_library_that_is_absent_is_named(room, library, monkeypatch):
    from flashinfer_bench.compile import BuilderRegistry, BuildError
    from flashinfer_bench.data import Definition, Solution

    monkeypatch.setitem(sys.modules, IMPORTED[library], None)
    entry = WORKSPACE.room(room)
    path = WORKSPACE.root / "definitions" / entry.op_type / f"{entry.definition}.json"
    solution = Solution.model_validate_json(pack_peer(WORKSPACE, room, library).packed.text)
    registry = BuilderRegistry.get_instance()
    with pytest.raises(BuildError, match=rf"(import of|No module named).*{IMPORTED[library]}\b"):
        registry.build(Definition.model_validate_json(path.read_text()), solution)
