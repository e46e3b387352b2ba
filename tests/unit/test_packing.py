"""What packing makes of a sound room: bytes, names, hashes, routes, files on disk."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from harness import packing
from harness.config import load_solution_config, load_workspace
from harness.errors import EnvironmentUnfit, PackingError, UsageError
from harness.files import PARTIAL_MARK
from harness.packing import content_sha256, pack, write
from harness.packing.official import validate
from harness.packing.python_source import parse
from tests.unit.packing_checkout import KERNEL, NATIVE_IMPORT, Checkout


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def sources(packed):
    return {source["path"]: source["content"] for source in json.loads(packed.text)["sources"]}


def packed_hash(checkout):
    return pack(checkout.workspace, checkout.room).sha256


def add_native_route(checkout):
    """kernel.py with both routes; the native one is native.py, a .cu and a header."""
    checkout.put("kernel.py", NATIVE_IMPORT + "\n\n" + KERNEL)
    native = 'def run_native():\n    return load("rows.cu")\n\n\nfrom .tiles import load\n'
    checkout.put("native.py", native)
    checkout.put("rows.cu", '#include "rows.cuh"\n#include <cuda_bf16.h>\n')
    checkout.put("rows.cuh", "// rows\n")
    checkout.put("tiles.py", "def load(name):\n    pass\n")


def test_the_official_fields_in_their_order(checkout):
    document = json.loads(pack(checkout.workspace, checkout.room).text)
    assert list(document) == ["name", "definition", "author", "spec", "sources", "description"]
    assert document["definition"] == "scale_rows_h8"
    assert document["spec"] == {
        "language": "triton",
        "target_hardware": ["cuda"],
        "entry_point": "kernel.py::run",
        "dependencies": [],
        "destination_passing_style": True,
        "binding": None,
    }


def test_files_travel_flat_and_byte_for_byte(checkout):
    text = f"# Grüße, \\N, 😀\n{KERNEL}\n\n\x0c# \u2028 no newline at the end"
    checkout.put("kernel.py", text)
    packed = pack(checkout.workspace, checkout.room)
    assert packed.text.isascii()
    assert list(sources(packed)) == ["arguments.py", "kernel.py"] == list(packed.sources)
    assert sources(packed)["kernel.py"].encode() == (checkout.folder / "kernel.py").read_bytes()


def test_the_name_is_the_room_and_eight_digits_of_the_hash(checkout):
    packed = pack(checkout.workspace, checkout.room)
    assert packed.name == f"scale_rows-{packed.sha256[:8]}"
    assert len(packed.sha256) == 64
    assert json.loads(packed.text)["name"] == packed.name


def test_the_same_files_give_the_same_bytes_elsewhere(checkout, tmp_path):
    other = Checkout(tmp_path / "elsewhere")
    (other.folder / "kernel.py").touch()
    first, second = (pack(c.workspace, c.room) for c in (checkout, other))
    assert (first.text, first.sha256) == (second.text, second.sha256)


def test_the_hash_is_that_of_the_canonical_content(checkout):
    content = {
        "definition": "scale_rows_h8",
        "destination_passing_style": True,
        "entry_point": "kernel.py::run",
        "language": "triton",
        "sources": sorted(map(list, sources(pack(checkout.workspace, checkout.room)).items())),
    }
    canonical = json.dumps(content, separators=(",", ":")).encode()
    assert packed_hash(checkout) == hashlib.sha256(canonical).hexdigest()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('author = "someone"', 'author = "somebody"'),
        ("[build]", 'description = "rows"\n\n[build]'),
        ("[build]", '[build]\ntarget_hardware = ["cuda", "cpu"]'),
    ],
)
def test_metadata_does_not_change_the_hash(checkout, old, new):
    before = pack(checkout.workspace, checkout.room)
    checkout.configure(old, new)
    after = pack(checkout.workspace, checkout.room)
    assert after.sha256 == before.sha256
    assert after.text != before.text


def test_content_changes_the_hash(checkout):
    seen = {packed_hash(checkout)}
    checkout.configure('"triton"', '"python"')
    seen.add(packed_hash(checkout))
    checkout.put("kernel.py", KERNEL.replace("def run", "def start"))
    checkout.configure("::run", "::start")
    seen.add(packed_hash(checkout))
    checkout.put("kernel.py", KERNEL.replace("def run", "def start") + "\n")
    seen.add(packed_hash(checkout))
    checkout.shelf("arguments.py", "def require(tensor):\n    return\n")
    seen.add(packed_hash(checkout))
    assert len(seen) == 5


def test_flipping_the_calling_convention_changes_the_hash(checkout):
    config = load_solution_config(checkout.folder / "config.toml")
    flipped = replace(config, destination_passing_style=False)
    assert content_sha256(config, {"k.py": "1"}) != content_sha256(flipped, {"k.py": "1"})


def test_a_character_cannot_move_between_path_and_content_unseen(checkout):
    config = load_solution_config(checkout.folder / "config.toml")
    texts = [{"ab": "c"}, {"a": "bc"}, {"ab": "c", "d": "e"}, {"ab": "cde"}, {'ab","c': ""}]
    assert len({content_sha256(config, text) for text in texts}) == len(texts)
    assert content_sha256(config, {"a": "1", "b": "2"}) == content_sha256(
        config, {"b": "2", "a": "1"}
    )


def test_binding_is_content_for_compiled_languages(checkout):
    config = replace(load_solution_config(checkout.folder / "config.toml"), language="cuda")
    hashes = {
        content_sha256(replace(config, binding=binding), {"kernel.cu": "1"})
        for binding in (None, "tvm-ffi", "torch")
    }
    assert len(hashes) == 3


# Reaching


def test_imports_are_followed_wherever_they_stand(checkout):
    head = "from . import first\nfrom .second import (\n    two as zwei,\n)\n"
    body = (
        "from .third import *\n"
        "    try:\n        from .fourth import four\n    except ValueError:\n        pass\n"
        "    if x:\n        from . import fifth, sixth as last\n"
    )
    checkout.kernel(head=head, body=body)
    for name, text in {
        "first": "from .seventh import seven\n",
        "second": "two = 2\n",
        "third": "# three\n",
        "fourth": "def four():\n    pass\n",
        "fifth": "\n",
        "sixth": "from .sixth import again\nagain = 6\n",
    }.items():
        checkout.put(f"{name}.py", text)
    checkout.shelf("seventh.py", "seven = 7\n")
    checkout.shelf("unused.py", "unused = 8\n")
    names = ["fifth", "first", "fourth", "kernel", "second", "seventh", "sixth", "third"]
    assert list(sources(pack(checkout.workspace, checkout.room))) == [f"{n}.py" for n in names]


def test_includes_are_followed_and_comments_are_not(checkout):
    checkout.kernel(body='return load(Path(__file__).with_name("rows.cu"))')
    cuda = (
        '#include <cuda_runtime.h>\n  #  include "rows.cuh"  // own\n#include "warp.cuh"\n'
        '// #include "gone.cuh"\n/*\n#include "gone.cuh"\n*/\n'
        'const char* text = "/*"; const char quote = \'"\';\n#include "late.h"\n/* */\n'
    )
    checkout.put("rows.cu", cuda)
    checkout.put("rows.cuh", "#pragma once\n")
    checkout.put("late.h", "#pragma once\n")
    checkout.shelf("warp.cuh", '#include "lanes.cuh"\n')
    checkout.shelf("lanes.cuh", "#pragma once\n")
    names = ["kernel.py", "lanes.cuh", "late.h", "rows.cu", "rows.cuh", "warp.cuh"]
    assert list(sources(pack(checkout.workspace, checkout.room))) == names


def test_cuda_text_inside_python_reaches_its_headers(checkout):
    head = 'SOURCE = """\n#include <cuda_runtime.h>\n#include "warp.cuh"\n"""\n'
    checkout.kernel(head=head)
    checkout.shelf("warp.cuh", "#pragma once\n")
    assert list(sources(pack(checkout.workspace, checkout.room))) == ["kernel.py", "warp.cuh"]


def test_words_that_only_look_like_references_are_left_alone(checkout):
    head = (
        '"""Reads notes.cu.\n\n#include "gone.cuh"\n"""\nimport math, torch.nn\n'
        "from importlib import import_module\n"
        'LINE = f"#include \\"{math.pi}\\""\nHEADER = "cuda_fp16.h"\nNAME = "a/b.cuh"\n'
        'TORCH = import_module("torch")\n'
    )
    checkout.kernel(head=head)
    assert list(sources(pack(checkout.workspace, checkout.room))) == ["kernel.py"]


def test_warnings_about_style_are_not_the_packers(checkout):
    checkout.kernel(head='PATTERN = "\\d"\n')
    assert pack(checkout.workspace, checkout.room).sources == ("kernel.py",)


def test_a_compiled_room_takes_all_its_units(checkout):
    (checkout.folder / "kernel.py").unlink()
    checkout.configure('"triton"', '"cuda"')
    checkout.configure('"kernel.py::run"', '"kernel.cu::run"\nbinding = "tvm-ffi"')
    checkout.put("kernel.cu", "void run() {}\n")
    checkout.put("second.cu", "int two;\n")
    packed = pack(checkout.workspace, checkout.room)
    assert list(sources(packed)) == ["kernel.cu", "second.cu"]
    assert json.loads(packed.text)["spec"]["binding"] == "tvm-ffi"


# Routes


def test_the_portable_route_leaves_out_what_only_native_reaches(checkout):
    add_native_route(checkout)
    full = pack(checkout.workspace, checkout.room)
    portable = pack(checkout.workspace, checkout.room, "portable")
    native = ["arguments.py", "kernel.py", "native.py", "rows.cu", "rows.cuh", "tiles.py"]
    assert list(full.sources) == native
    assert list(portable.sources) == ["arguments.py", "kernel.py"]
    assert full.sha256 != portable.sha256


@pytest.mark.parametrize(("route", "expected"), [(None, "native"), ("portable", "portable")])
def test_the_documented_form_runs_with_and_without_native(checkout, tmp_path, route, expected):
    entry = "def run(x, factor, y, norm):\n    return run_native() if run_native else 'portable'\n"
    checkout.put("kernel.py", f"{NATIVE_IMPORT}\n\n{entry}")
    checkout.put("native.py", "def run_native():\n    return 'native'\n")
    package = tmp_path / "place" / "built"
    package.mkdir(parents=True)
    for name, text in sources(pack(checkout.workspace, checkout.room, route)).items():
        (package / name).write_text(text)
    script = "from built.kernel import run; print(run(1, 2, 3, 4))"
    child = subprocess.run(
        [sys.executable, "-c", script], cwd=package.parent, capture_output=True, text=True
    )
    assert child.stdout.strip() == expected, child.stderr


def test_the_documented_form_is_the_one_in_the_docstring():
    assert NATIVE_IMPORT.splitlines()[1].strip() in packing.__doc__
    indented = "".join(f"    {line}\n" for line in NATIVE_IMPORT.splitlines())
    assert indented in packing.__doc__


def test_a_room_without_native_is_the_same_on_both_routes(checkout):
    full, portable = (pack(checkout.workspace, checkout.room, r) for r in (None, "portable"))
    assert full == portable


@pytest.mark.parametrize(
    "head",
    [
        "from .native import run_native\n",
        "from . import native\n",
        "try:\n    from . import native\nexcept ModuleNotFoundError:\n    native = None\n",
        "try:\n    from .native import run_native\nexcept OSError:\n    run_native = None\n",
        "try:\n    pass\nexcept ImportError:\n    from .native import run_native\n",
    ],
)
def test_native_must_be_allowed_to_be_missing(checkout, head):
    checkout.kernel(head=head)
    checkout.put("native.py", "def run_native():\n    pass\n")
    with pytest.raises(PackingError, match=r"kernel\.py:\d+: the native route may be left out"):
        pack(checkout.workspace, checkout.room)


def test_an_unknown_route_is_a_usage_error(checkout):
    with pytest.raises(UsageError, match="'portable' or none, got 'fast'"):
        pack(checkout.workspace, checkout.room, "fast")


# Writing


def test_write_replaces_the_file_and_leaves_nothing_else(checkout):
    packed = pack(checkout.workspace, checkout.room)
    checkout.put("solution.json", "old")
    assert write(packed) == packed.path == checkout.folder / "solution.json"
    assert packed.path.read_text() == packed.text
    assert sorted(p.name for p in checkout.folder.iterdir()) == [
        "config.toml",
        "kernel.py",
        "solution.json",
    ]
    assert pack(checkout.workspace, checkout.room) == packed


def test_a_failed_write_keeps_the_old_file(checkout, monkeypatch):
    packed = pack(checkout.workspace, checkout.room)
    checkout.put("solution.json", "old")

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr("harness.files.os.fsync", fail)
    with pytest.raises(EnvironmentUnfit, match="disk full"):
        write(packed)
    assert packed.path.read_text() == "old"
    assert not list(checkout.folder.glob("*partial*"))


def test_what_a_killed_write_left_does_not_stop_packing(checkout):
    before = pack(checkout.workspace, checkout.room)
    checkout.put(f".solution.json{PARTIAL_MARK}x1", "{")
    assert pack(checkout.workspace, checkout.room) == before


# The rooms of this repository


def test_the_rooms_pack_fast_and_the_official_schema_takes_them():
    workspace = load_workspace()
    parse.cache_clear()  # another test of this process may have packed them
    started = time.process_time()
    packed = [pack(workspace, room) for room in workspace.rooms]
    elapsed_s = time.process_time() - started
    assert elapsed_s < 1.0
    assert len({solution.name for solution in packed}) == len(workspace.rooms)
    for solution in packed:
        assert validate(solution)


def test_the_official_schema_objects_aloud(checkout):
    packed = pack(checkout.workspace, checkout.room)
    assert validate(packed)
    document = json.loads(packed.text)
    document["spec"]["compile_flags"] = ["-O3"]  # the schema would drop it in silence
    with pytest.raises(PackingError, match="keeps other fields"):
        validate(replace(packed, text=json.dumps(document)))
    document["sources"] = []
    with pytest.raises(PackingError, match="flashinfer-bench refuses it"):
        validate(replace(packed, text=json.dumps(document)))
