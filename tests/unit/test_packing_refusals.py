"""What the packer refuses, each with file and line: nothing wrong travels in silence."""

from __future__ import annotations

import pytest
from harness.errors import ConfigError, ExitCode, HarnessError, PackingError, UsageError
from harness.packing import pack
from tests.unit.packing_checkout import KERNEL, Checkout

ROOM = "solutions/scale_rows"


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def refusal(checkout, kind=PackingError):
    """The message of the refusal; all of them exit with 2."""
    with pytest.raises(HarnessError) as caught:
        pack(checkout.workspace, checkout.room)
    assert type(caught.value) is kind
    assert caught.value.exit_code == ExitCode.USAGE
    return str(caught.value)


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
@pytest.mark.parametrize("place", ["top", "function", "try"])
def test_imports_that_lead_nowhere(checkout, statement, words, place):
    if place == "top":
        checkout.kernel(head=f"import math\n{statement}\n")
    elif place == "function":
        checkout.kernel(head="import math\n", parameters="x, factor,\n        y, norm", body=statement)
    else:
        head = f"try:\n    {statement}\nexcept ImportError:\n    pass\n"
        checkout.kernel(head=head)
    if place == "function" and "*" in statement:
        pytest.skip("not Python inside a function")
    message = refusal(checkout)
    line = 4 if place == "function" else 2
    assert message.startswith(f"{ROOM}/kernel.py:{line}: ")
    pytest.raises(AssertionError) if not words else None
    import re

    assert re.search(words, message), message
