"""solutions/<room>/config.toml, room names and definitions: what the packer refuses."""

from __future__ import annotations

import pytest

from harness.config import load_workspace
from harness.errors import ConfigError, UsageError
from harness.packing import pack
from tests.unit.packing_checkout import DEFINITIONS, KERNEL, TRACK, Checkout

ROOM = "solutions/scale_rows"


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


@pytest.mark.parametrize("name", ["", ".", "..", "../evil", "a/b", "a b", "a\\\\b", "ä", "n" * 200])
@pytest.mark.parametrize("key", ["name", "author"])
def test_names_that_are_unsafe_as_paths(checkout, key, name):
    old = 'name = "scale_rows"' if key == "name" else 'author = "someone"'
    checkout.configure(old, f'{key} = "{name}"')
    message = checkout.refusal(ConfigError)
    line = 2 if key == "name" else 4
    assert message.startswith(f"{ROOM}/config.toml:{line}: [solution] {key}: expected 1 to 128")


def test_a_name_that_is_not_the_rooms(checkout):
    checkout.configure('name = "scale_rows"', 'name = "fastest"')
    assert "expected the room's name 'scale_rows'" in checkout.refusal(ConfigError)


def test_a_track_in_place_of_a_definition(checkout):
    checkout.configure("scale_rows_h8", TRACK)
    message = checkout.refusal(ConfigError)
    assert message.startswith(f"{ROOM}/config.toml:3: [solution] definition: {TRACK!r} is a track")
    assert all(definition in message for definition in DEFINITIONS.values())


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ("sum_rows_h8", "belongs to another room"),
        ("scale_rows", "expected one of scale_rows_h8, sum_rows_h8"),
    ],
)
def test_a_wrong_definition(checkout, definition, words):
    checkout.configure("scale_rows_h8", definition)
    assert words in checkout.refusal(ConfigError)


def test_each_official_track_gets_its_definitions(tmp_path):
    real = load_workspace()
    checkout = Checkout(tmp_path)
    checkout.write("config.toml", (real.root / "config.toml").read_text())
    checkout.room = "dsa_attention"
    for track in {room.track for room in real.contest_rooms.values()}:
        text = (tmp_path / "solutions/scale_rows/config.toml").read_text()
        text = text.replace("scale_rows_h8", track).replace("scale_rows", "dsa_attention")
        checkout.put("config.toml", text)
        checkout.put("kernel.py", KERNEL)
        message = checkout.refusal(ConfigError)
        for room in real.contest_rooms.values():
            assert (room.definition in message) == (room.track == track)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"triton"', '"cute_dsl"', "language: expected one of python, triton"),
        ('"triton"', '"Triton"', "language: expected one of python, triton"),
        ("[build]", '[build]\nbinding = "torch"', "binding: has no effect"),
        ("[build]", "[build]\ntarget_hardware = []", "target_hardware: expected one name"),
        ("[build]", '[build]\ndependencies = [""]', "dependencies: expected no empty name"),
        ("[build]", '[build]\ncompile_flags = ["-O3"]', "unknown key 'compile_flags'"),
        ("[build]", '[build]\nnvcc_flags = "-O3"', "unknown key 'nvcc_flags'"),
        ("[build]", '[flags]\ncuda = "-O3"\n[build]', "unknown key 'flags'"),
        ("[solution]", '[solution]\nlicence = "free"', "unknown key 'licence'"),
    ],
)
def test_keys_that_cannot_travel(checkout, old, new, words):
    checkout.configure(old, new)
    message = checkout.refusal(ConfigError)
    assert f"{ROOM}/config.toml" in message
    assert words in message


def test_an_unknown_binding_of_a_compiled_room(checkout):
    checkout.configure('"triton"', '"cuda"\nbinding = "pybind"')
    assert "binding: expected one of tvm-ffi, torch" in checkout.refusal(ConfigError)


@pytest.mark.parametrize(
    "entry",
    [
        *("kernel", "kernel.py", "run", "kernel.py:run", "kernel.py::", "::run"),
        *("kernel.py::a::b", "kernel.py::a.b", "../kernel.py::run", "a/kernel.py::run"),
        *("my.kernel.py::run", "kernel.cu::run"),
    ],
)
def test_an_entry_point_of_another_form(checkout, entry):
    checkout.configure('"kernel.py::run"', f'"{entry}"')
    message = checkout.refusal(ConfigError)
    assert message.startswith(f"{ROOM}/config.toml:8: [build] entry_point: expected file::function")
    assert "'kernel.py::run'" in message


@pytest.mark.parametrize("entry", ["main.py::run", "Kernel.py::run", "arguments.py::run"])
def test_an_entry_file_that_is_not_there(checkout, entry):
    checkout.configure('"kernel.py::run"', f'"{entry}"')
    assert f"no {entry.split('::')[0]} in {ROOM}/" in checkout.refusal(ConfigError)


def test_rooms_are_not_called_by_definition_or_track(checkout):
    for name, words in {
        "scale_rows_h8": "its room is scale_rows",
        TRACK: "its room is scale_rows or sum_rows",
    }.items():
        with pytest.raises(UsageError, match=words):
            pack(checkout.workspace, name)
    with pytest.raises(ConfigError, match="expected one of scale_rows, sum_rows"):
        pack(checkout.workspace, "../scale_rows")


# Definitions


def test_a_definition_that_is_missing_or_damaged(checkout):
    path = checkout.root / "definitions/rows/scale_rows_h8.json"
    for text in ("{", '{"inputs": {}}', '{"inputs": 3, "outputs": 4}', "[]"):
        path.write_text(text)
        assert "expected a definition with inputs and outputs" in checkout.refusal()
    path.unlink()
    assert "scale_rows_h8.json: no such file" in checkout.refusal()
