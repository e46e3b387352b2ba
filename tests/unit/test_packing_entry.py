"""The entry function: its kind and its parameters under both calling conventions."""

from __future__ import annotations

import pytest

from harness.packing import pack
from tests.unit.packing_checkout import INPUTS, OUTPUTS, Checkout

ROOM = "solutions/scale_rows"


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("def start(x, factor, y, norm):\n    pass\n", "'run' is not defined"),
        ("class A:\n    def run(x, factor, y, norm):\n        pass\n", "'run' is not defined"),
        ("from .arguments import require as run\n", "bound otherwise"),
        ("run = lambda x, factor, y, norm: None\n", "bound otherwise"),
        ("async def run(x, factor, y, norm):\n    pass\n", ":1: run is async"),
        ("@triton.jit\ndef run(x, factor, y, norm):\n    pass\n", ":2: run is a device kernel"),
        ("def run(x, factor, y, norm) -> None:\n    pass\n", ":1: run has the return annotation"),
        ("def run(x, factor, y, norm) -> 'tuple':\n    pass\n", "annotation `'tuple'`"),
        ("def run(factor, x, y, norm):\n    pass\n", "parameter 1 is 'factor', but 'x' is passed"),
        ("if x:\n    def run(x, factor, y):\n        pass\n", ":2: run has 3 parameters"),
    ],
)
def test_entries_that_cannot_be_called(checkout, kernel, words):
    checkout.put("kernel.py", kernel)
    message = checkout.refusal()
    assert message.startswith(f"{ROOM}/kernel.py:")
    assert words in message


def test_other_parameter_names_and_positional_only_are_fine(checkout):
    for parameters in ("a, b, c, d", "x, factor, out, norms, /", "x, k, y, norm"):
        checkout.kernel(parameters=parameters)
        pack(checkout.workspace, checkout.room)


def test_a_compiled_entry_must_occur_in_its_file(checkout):
    (checkout.folder / "kernel.py").unlink()
    checkout.configure('"triton"', '"cuda"')
    checkout.configure('"kernel.py::run"', '"kernel.cu::run"')
    checkout.put("kernel.cu", "void runner() {}\n")
    assert "expected 'run' in it" in checkout.refusal()


ALONE = ", ".join(INPUTS)
BOTH = ", ".join(INPUTS + OUTPUTS)


@pytest.mark.parametrize(
    ("parameters", "flag", "words"),
    [
        (ALONE, True, "If it returns its outputs, set destination_passing_style = false"),
        (ALONE, False, None),
        (BOTH, True, None),
        (BOTH, False, "If it writes y, norm in place, set destination_passing_style = true"),
        ("*args", True, "run has *args"),
        ("*args", False, "run has *args"),
        (f"{ALONE}, *outputs", True, "run has *outputs"),
        (f"{BOTH}, stream=None", True, "run has a default for stream"),
        (f"{ALONE}, stream=None", False, "run has a default for stream"),
        ("x, factor, y=None, norm=None", True, "run has a default for y, a default for norm"),
        ("x, factor, y=None, norm=None", False, "run has a default for y, a default for norm"),
        (f"{BOTH}, *, stream", True, "run has keyword-only stream"),
        (f"{ALONE}, *, stream=None", False, "run has keyword-only stream"),
        (f"{BOTH}, **options", True, "run has **options"),
        ("x", True, "run has 1 parameters"),
        (f"{BOTH}, workspace", False, "run has 5 parameters"),
        ("", False, "run has 0 parameters"),
    ],
)
def test_arity_under_both_calling_conventions(checkout, parameters, flag, words):
    checkout.configure("= true", f"= {str(flag).lower()}")
    checkout.kernel(head="\n\n", parameters=parameters)
    if words is None:
        pack(checkout.workspace, checkout.room)
        return
    message = checkout.refusal()
    expected = BOTH if flag else ALONE
    count = len(expected.split())
    assert message.startswith(f"{ROOM}/kernel.py:3: run has ")
    assert words in message
    setting = f"[build] destination_passing_style = {str(flag).lower()} in {ROOM}/config.toml"
    assert f"under {setting} expected {count} positional: {expected}" in message
