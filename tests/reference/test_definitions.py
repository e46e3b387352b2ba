"""The definitions as files: each JSON is what its .py says, and the script notices when not."""

import json
import shutil

import pytest
from flashinfer_bench.data import Definition

from harness.config import load_workspace
from scripts import make_definitions
from tests.reference.definitions import definition, path_of

ROOMS = list(load_workspace().rooms)


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """A copy of the definitions that the script takes for its own."""
    folder = tmp_path / "definitions"
    shutil.copytree(make_definitions.DEFINITIONS, folder)
    monkeypatch.setattr(make_definitions, "DEFINITIONS", folder)
    return folder


def test_every_json_has_its_module_and_every_module_its_json():
    folder = load_workspace().root / "definitions"
    modules = {path.with_suffix("") for path in folder.glob("*/*.py")}
    texts = {path.with_suffix("") for path in folder.rglob("*.json")}
    assert texts == modules
    assert {path_of(room).with_suffix("") for room in ROOMS} <= texts


@pytest.mark.parametrize("room", ROOMS)
def test_json_is_what_the_module_says(room):
    path = path_of(room)
    text = path.read_text(encoding="utf-8")
    assert text == make_definitions.build(path.with_suffix(".py"))


@pytest.mark.parametrize("room", ROOMS)
def test_no_field_is_lost_on_the_way(room):
    """flashinfer-bench drops unknown keys in silence; a misspelt one would vanish."""
    raw = json.loads(path_of(room).read_text(encoding="utf-8"))
    assert definition(room).model_dump(mode="json", exclude_unset=True) == raw
    assert raw["name"] == load_workspace().room(room).definition
    assert raw["op_type"] == load_workspace().room(room).op_type
    assert raw["description"]


@pytest.mark.parametrize("room", ROOMS)
def test_reference_stands_alone(room):
    """One self-contained text that starts with its imports and knows no metadata."""
    text = definition(room).reference
    assert text.startswith("import ")
    assert "DEFINITION" not in text
    assert "@torch.no_grad()\ndef run(" in text


def test_check_passes_on_the_checkout(capsys):
    assert make_definitions.main(["--check"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "drift",
    [
        lambda text: text.replace("1.0 - beta", "1.0 + beta"),
        lambda text: text + "\n",
        lambda text: "",
    ],
    ids=["changed", "longer", "empty"],
)
def test_check_finds_drift_and_writes_nothing(copies, capsys, drift):
    path = next(copies.glob("gdn/gdn_decode*.json"))
    text = path.read_text(encoding="utf-8")
    path.write_text(drift(text), encoding="utf-8")
    before = {file: file.read_bytes() for file in copies.rglob("*") if file.is_file()}
    assert make_definitions.main(["--check"]) == 1
    assert before == {file: file.read_bytes() for file in copies.rglob("*") if file.is_file()}
    assert f"{path}: out of date; run scripts/make_definitions.py" in capsys.readouterr().out
    assert make_definitions.main([]) == 0
    assert path.read_text(encoding="utf-8") == text
    assert make_definitions.main(["--check"]) == 0
    assert not list(copies.rglob("*.partial"))


def test_check_notices_an_absent_json(copies):
    next(copies.glob("moe/*.json")).unlink()
    assert make_definitions.main(["--check"]) == 1


def test_module_without_metadata_is_named(copies, capsys):
    path = copies / "gdn" / "bare.py"
    path.write_text("import torch\n")
    with pytest.raises(SystemExit) as caught:
        make_definitions.main(["--check"])
    assert caught.value.code == 2
    assert f"{path}: expected `DEFINITION" in capsys.readouterr().err


def test_built_text_carries_imports_helpers_and_run(copies):
    path = copies / "gdn" / "small.py"
    path.write_text(
        '"""Not part of the reference."""\n\nimport math\n\nimport torch\n\n'
        'DEFINITION = {"name": "small", "op_type": "gdn", "axes": {}, "inputs": {},\n'
        '    "outputs": {}}\n\n\n# kept\nHALF = 0.5\n\n\ndef run():\n    return math.inf\n'
    )
    built = Definition.model_validate_json(make_definitions.build(path))
    assert built.reference == (
        "import math\nimport torch\n\n\n# kept\nHALF = 0.5\n\n\ndef run():\n    return math.inf\n"
    )
