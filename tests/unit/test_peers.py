"""Packing of peers/<room>/<library>.py: this checkout's files, and what is refused."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import sys
from collections import Counter

import pytest

from harness.config import load_workspace
from harness.errors import ConfigError, ExitCode, HarnessError, PackingError, UsageError
from harness.packing import list_peers, pack_peer
from harness.packing.official import validate
from tests.official_rooms import OFFICIAL_ROOMS
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
    assert {room: list_peers(WORKSPACE, room) for room in OFFICIAL_ROOMS} == {
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
    pins = ((peer.package, peer.pinned), *peer.requires)
    assert solution["spec"]["dependencies"] == [f"{name}=={version}" for name, version in pins]
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
    assert "data_ptr" not in text or text.count("buffer_ptrs=[buffer.data_ptr()]") == 1
    assert (peer.stands_in != "") == ("STANDS_IN" in text)
    assert (peer.caveat != "") == ("CAVEAT" in text)


def test_the_peers_that_stand_in_for_the_official_baseline_say_so():
    """Of the libraries that the definitions' fi_api names, this release runs two there."""
    packed = {room: pack_peer(WORKSPACE, room, "flashinfer") for room in OFFICIAL_ROOMS}
    assert {room: peer.stands_in.partition(" ")[0] for room, peer in packed.items()} == {
        "moe": "cutlass_fused_moe",
        "dsa_indexer": "top_k_page_table_transform",
        "dsa_attention": "BatchMLAPagedAttentionWrapper",
        "gdn_decode": "",
        "gdn_prefill": "",
    }
    others = [pair for pair in OURS if pair[1] != "flashinfer"]
    assert [pair for pair in others if pack_peer(WORKSPACE, *pair).stands_in] == []


def test_the_room_outside_the_contest_has_what_its_users_would_pick():
    assert list_peers(WORKSPACE, "dsa_indexer_prefill") == ("deep_gemm",)
    peer = pack_peer(WORKSPACE, "dsa_indexer_prefill", "deep_gemm")
    flashinfer = WORKSPACE.peers["flashinfer"]
    assert peer.requires == ((flashinfer.package, flashinfer.version),)


def test_what_compiles_a_kernel_is_pinned_too():
    peer = pack_peer(WORKSPACE, "gdn_decode", "flashinfer")
    assert [name for name, _ in peer.requires] == ["nvidia-cutlass-dsl"]
    assert "copy of the state" in peer.caveat


def command_lines(text):
    """Each indented command of a page, continued lines joined."""
    return [
        line.strip() for line in re.sub(r"\\\n\s*", "", text).split("\n") if line[:4] == " " * 4
    ]


def test_readme_page_and_extra_give_one_recipe():
    """Libraries without their requirements; the extra has what they need besides each other, and no
    torch."""
    root = WORKSPACE.root
    peers = [peer for peer in WORKSPACE.peers.values() if peer.package != "torch"]
    libraries = {f"{peer.package}=={peer.version}" for peer in peers}
    required = {f"{name}=={pin}" for peer in peers for name, pin in peer.requires.items()}
    expected = None
    for name in ("README.md", "docs/peers.md"):
        lines = command_lines((root / name).read_text())
        (bare,) = [line for line in lines if "--no-deps" in line]
        assert set(re.findall(r"\S+==\S+", bare)) == libraries
        recipe = [line for line in lines if ".[peers]" in line or line == bare]
        assert len(recipe) == 2 and recipe == (expected or recipe)
        expected = recipe
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["peers"]
    assert {line for line in extra if "==" in line} == required - libraries
    pinned = {peer.package: peer.version for peer in peers}
    assert all(
        pinned.get(name, pin) == pin for peer in peers for name, pin in peer.requires.items()
    )
    names = {re.split(r"[=<>]", line)[0] for line in extra}
    assert not names & {peer.package for peer in WORKSPACE.peers.values()}


def defined_functions():
    """(name, peer, AST without positions) of every function at a peer's top level but `run`."""
    found = []
    for room, library in OURS:
        path = WORKSPACE.root / "peers" / room / f"{library}.py"
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name != "run":
                found.append((node.name, f"{room}/{library}", ast.dump(node)))
    return found


def test_functions_of_one_name_are_one_function():
    """A peer is one file, so that peers repeat functions; a mended one is mended everywhere."""
    names = Counter(name for name, _, _ in defined_functions())
    bodies = Counter(name for name, body in {(name, b) for name, _, b in defined_functions()})
    repeated = {name: count for name, count in names.items() if count > 1}
    assert repeated == {"route": 3, "gates": 2, "remember": 4, "is_same": 4}
    assert {name: bodies[name] for name in repeated} == dict.fromkeys(repeated, 1)


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
        ("\n\n\ndef", "\nSTANDS_IN = 3\n\n\ndef", "library.py:5: expected STANDS_IN = "),
        ("\n\n\ndef", "\nCAVEAT = ''\n\n\ndef", "library.py:5: expected CAVEAT = "),
        ("\n\n\ndef", "\nREQUIRES = 'x'\n\n\ndef", "library.py:5: expected REQUIRES = "),
        ("\n\n\ndef", "\nREQUIRES = (f(),)\n\n\ndef", "or another tuple of names, got None"),
        ("\n\n\ndef", "\nREQUIRES = ('x',)\n\n\ndef", "REQUIRES names 'x', but requires of"),
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


def test_what_a_peer_may_say_of_itself(checkout):
    peer = pack_peer(checkout.workspace, checkout.room, "library")
    assert (peer.stands_in, peer.caveat, peer.requires) == ("", "", ())
    config = checkout.root / "config.toml"
    config.write_text(config.read_text() + 'requires = { compiler = "4.5.6", other = "1.0" }\n')
    said = 'STANDS_IN = "a_call"\nCAVEAT = (\n    "one "\n    "two"\n)\nREQUIRES = ("compiler",)\n'
    checkout.peer(PEER.replace("\n\n\ndef", f"\n{said}\n\ndef"))
    peer = pack_peer(checkout.workspace, checkout.room, "library")
    assert (peer.stands_in, peer.caveat) == ("a_call", "one two")
    assert peer.requires == (("compiler", "4.5.6"),)
    dependencies = json.loads(peer.packed.text)["spec"]["dependencies"]
    assert dependencies == ["some-library==1.2.3", "compiler==4.5.6"]


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
        ("package", "requires = { dsl = 4 }\npackage", "dsl: expected str, got 4"),
        ("package", 'requires = { dsl = ">=4" }\npackage', "requires.dsl: expected one exact"),
        ("package", 'requires = { DSL = "4" }\npackage', "requires: expected a distribution's"),
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
