"""Files that the packer refuses, with file and line: nothing is left behind in silence."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from harness.packing import pack
from tests.unit.packing_checkout import Checkout

ROOM = "solutions/scale_rows"
PLACES = (
    "\n{}\n",
    "def later():\n    {}\n",
    "try:\n    {}\nexcept ImportError:\n    pass\n",
)


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


# Imports


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("from .argument import require", "no argument.py in .*did you mean arguments.py"),
        ("from .Arguments import require", "no Arguments.py in .*did you mean arguments.py"),
        ("from . import tiles", "no tiles.py in solutions/scale_rows/ or common/"),
        ("from .arguments import requires", "defines no 'requires'; did you mean require"),
        ("import arguments", "sibling 'arguments' absolutely"),
        ("import torch, arguments as checks", "sibling 'arguments' absolutely"),
        ("from arguments import require", "expected `from .arguments import"),
        ("from ..common.arguments import require", "leaves the folder"),
        ("from .. import arguments", "leaves the folder"),
        ("from .common.arguments import require", "leaves the folder"),
        ("from . import *", "names no file"),
        ("import harness.config", "imports 'harness.config'"),
        ("from harness import config", "imports 'harness'"),
        ("from definitions.rows import x", "imports 'definitions.rows'"),
        ("from tests.packed import build", "imports 'tests.packed'"),
        ("import solutions.common.arguments", "imports 'solutions.common.arguments'"),
        ('import_module(".arguments", __package__)', "cannot follow import_module"),
        ("importlib.import_module(name)", "cannot follow import_module"),
        ('__import__("arguments")', "sibling 'arguments' absolutely"),
        ('importlib.import_module("harness.config")', "imports 'harness.config'"),
    ],
)
def test_imports_that_lead_nowhere(checkout, statement, words):
    for place in PLACES:
        checkout.kernel(head=place.format(statement))
        message = checkout.refusal()
        assert message.startswith(f"{ROOM}/kernel.py:2: ")
        assert re.search(words, message), message


def test_the_shelf_does_not_see_the_room(checkout):
    checkout.put("tiles.py", "rows = 8\n")
    checkout.shelf("arguments.py", "\nfrom .tiles import rows\n\nrequire = rows\n")
    message = checkout.refusal()
    assert message.startswith("solutions/common/arguments.py:2: no tiles.py in solutions/common/")
    assert "the shelf serves all rooms" in message


def test_errors_in_siblings_name_the_sibling(checkout):
    checkout.shelf("arguments.py", "def require(tensor):\n    pass\n\n\ndef broken(:\n")
    assert checkout.refusal().startswith("solutions/common/arguments.py:5: ")


def test_a_stdlib_module_is_not_taken_for_a_sibling_of_that_name(checkout):
    checkout.kernel(head="import math\nfrom .math import rows\n")
    checkout.put("math.py", "rows = 8\n")
    assert "math.py" in pack(checkout.workspace, checkout.room).sources


# Includes and named files


@pytest.mark.parametrize(
    ("directive", "words"),
    [
        ('#include "row.cuh"', "no row.cuh in .*did you mean rows.cuh"),
        ('#include "Rows.cuh"', "no Rows.cuh in .*did you mean rows.cuh"),
        ('#include "cuda_runtime.h"', "no cuda_runtime.h in .*write <cuda_runtime.h>"),
        ('#include "../common/rows.cuh"', "has a folder; own files land flat"),
        ('#include "cute/tensor.hpp"', "has a folder"),
        ("#include <rows.cuh>", 'expected #include "rows.cuh"'),
        ("#include <own/rows.cuh>", 'expected #include "rows.cuh"'),
        ("#  include ROWS_HEADER", "cannot follow `#include ROWS_HEADER`"),
    ],
)
def test_includes_that_lead_nowhere(checkout, directive, words):
    checkout.kernel(body='load("rows.cu")')
    checkout.put("rows.cu", f'#include "rows.cuh"\n/* two\nlines */\n{directive}\n')
    checkout.put("rows.cuh", "#pragma once\n")
    message = checkout.refusal()
    assert message.startswith(f"{ROOM}/rows.cu:4: ")
    assert re.search(words, message), message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"row.cu"', "no row.cu in .*did you mean rows.cu"),
        ('"native/rows.cu"', r"expected Path\(__file__\).with_name\('rows.cu'\)"),
        ('"../scale_rows/rows.cu"', "has a folder"),
        ('f"{folder}/rows.cu"', "has a folder"),
    ],
)
def test_named_files_that_lead_nowhere(checkout, text, words):
    checkout.kernel(body=f'load("rows.cu")\n    load({text})')
    checkout.put("rows.cu", "// rows\n")
    message = checkout.refusal()
    assert message.startswith(f"{ROOM}/kernel.py:3: ")
    assert re.search(words, message), message


# Files that may not lie in a room


@pytest.mark.parametrize("name", ["tiles.py", "rows.cu", "rows.cuh", "left.h", "left.cpp"])
def test_a_source_that_nobody_reaches(checkout, name):
    checkout.put(name, "#\n")
    assert checkout.refusal().startswith(f"{ROOM}/{name}: nobody reaches it")


def test_all_unreached_sources_are_named(checkout):
    for name in ("a.py", "b.cu", "c.h"):
        checkout.put(name, "#\n")
    assert "a.py: nobody reaches it (nor b.cu, c.h)" in checkout.refusal()


@pytest.mark.parametrize(
    "name",
    [
        "shapes.json",
        "solution_old.json",
        "run.log",
        "kernel.cubin",
        "kernel.ptx",
        "kernel.so",
        "kernel.py.orig",
        "kernel.py~",
        "notes.md",
        "readme.md",
        "Makefile",
        ".kernel.py.swp",
        ".DS_Store",
        ".hidden.py",
        "kernel.PY",
        "two words.py",
        "größe.py",
        "-flag.py",
    ],
)
def test_foreign_files(checkout, name):
    checkout.put(name, "x = 1\n")
    message = checkout.refusal()
    assert message.startswith(f"{ROOM}/{name}: foreign file; expected sources")


def test_companions_are_allowed(checkout):
    before = pack(checkout.workspace, checkout.room)
    for name in ("README.md", "solution.json", ".gitignore", ".gitattributes"):
        checkout.put(name, "x")
    checkout.put("__pycache__/kernel.cpython-311.pyc", b"\xff")
    assert pack(checkout.workspace, checkout.room) == before


def test_folders(checkout):
    checkout.put("native/rows.cu", "// rows\n")
    assert checkout.refusal().startswith(f"{ROOM}/native/: expected files only; sources land flat")


def test_what_is_no_regular_file(checkout):
    os.mkfifo(checkout.folder / "pipe.py")
    assert checkout.refusal() == f"{ROOM}/pipe.py: expected a regular file; remove it"


def test_a_file_that_cannot_be_read(checkout, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert checkout.refusal() == f"{ROOM}/kernel.py: cannot be read: Permission denied"


def test_a_package_marker(checkout):
    checkout.put("__init__.py", "\n")
    assert "__init__.py: the packed folder is a package without it" in checkout.refusal()


def test_foreign_files_on_the_shelf(checkout):
    checkout.shelf("README.md", "the shelf\n")
    pack(checkout.workspace, checkout.room)
    checkout.shelf("table.json", "{}")
    assert checkout.refusal().startswith("solutions/common/table.json: foreign file")


@pytest.mark.parametrize("on_shelf", [False, True])
def test_symbolic_links(checkout, on_shelf):
    target = checkout.write("elsewhere.py", "x = 1\n")
    folder = checkout.root / "solutions" / "common" if on_shelf else checkout.folder
    (folder / "linked.py").symlink_to(target)
    assert "linked.py: expected a file, got a symbolic link" in checkout.refusal()


def test_a_dangling_link_in_place_of_the_result(checkout):
    (checkout.folder / "solution.json").symlink_to("nowhere")
    assert "solution.json: expected a file, got a symbolic link" in checkout.refusal()


def test_a_linked_room(checkout):
    real = checkout.folder.rename(checkout.root / "elsewhere")
    checkout.folder.symlink_to(real)
    assert "solutions/scale_rows: expected a folder" in checkout.refusal()


def test_a_missing_room(checkout):
    checkout.folder.rename(checkout.root / "elsewhere")
    assert "python -m harness new scale_rows" in checkout.refusal()


# Clashes


@pytest.mark.parametrize("name", ["arguments.py", "Arguments.py"])
def test_a_name_in_the_room_and_on_the_shelf(checkout, name):
    checkout.put(name, "def require(tensor):\n    pass\n")
    message = checkout.refusal()
    assert message.startswith(f"{ROOM}/{name}: clashes with solutions/common/arguments.py")


def test_names_that_differ_by_case_alone(checkout):
    checkout.put("Kernel.py", "x = 1\n")
    if len(list(checkout.folder.glob("*ernel.py"))) == 1:
        pytest.skip("this file system cannot hold both")
    assert "differ by case alone" in checkout.refusal()


# Bytes


@pytest.mark.parametrize(
    ("data", "place", "words"),
    [
        (b"", "", "empty"),
        (b"\xef\xbb\xbfx = 1\n", ":1", "byte order mark"),
        (b"x = 1\ny = 2\r\n", ":2", "carriage return"),
        (b"x = 1\n\ny = 2\rz = 3\n", ":3", "carriage return"),
        (b"x = 1\n# \0\n", ":2", "NUL"),
        (b"x = 1\n\n# caf\xe9\n", ":3", "expected UTF-8, got byte 0xe9"),
        ("x = 1\n".encode("utf-16"), ":1", "NUL|UTF-8"),
    ],
)
def test_bytes_that_would_not_survive(checkout, data, place, words):
    checkout.kernel(head="from .tiles import x\n")
    checkout.put("tiles.py", data)
    message = checkout.refusal()
    assert message.startswith(f"{ROOM}/tiles.py{place}: ")
    assert re.search(words, message), message
