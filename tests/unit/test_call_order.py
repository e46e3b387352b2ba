"""What a call does never depends on the call before: dense then strided inputs, and the reverse.

Each order runs in a package that was imported afresh, so that nothing which a first call left in
a module can serve the second order.
"""

import sys

import pytest
import torch
from flashinfer_bench.compile import BuilderRegistry

from tests.oracles import gdn_decode, moe
from tests.packed import build, device, poison

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy's, in the interpreter
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Builds a room as if this process had never imported it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = dict(sys.modules)
    count = 0

    def run(room):
        nonlocal count
        count += 1
        monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / f"builds{count}"))
        monkeypatch.setattr(BuilderRegistry, "_instance", None)
        for name in [name for name in sys.modules if name.startswith("fib_triton_")]:
            del sys.modules[name]
        return build.__wrapped__(room)

    yield run
    for name in [name for name in sys.modules if name.startswith("fib_triton_")]:
        del sys.modules[name]
    sys.modules.update({name: known[name] for name in known if name not in sys.modules})


def strided(tensor):
    """The same values with a gap after each row: the shape fits, the strides do not."""
    *rows, columns = tensor.shape
    row_bytes = 2 * columns * tensor.element_size()
    gaps = torch.zeros(*rows, row_bytes, dtype=torch.uint8, device=tensor.device)
    view = gaps.view(tensor.dtype)[..., :columns]
    view.copy_(tensor)
    return view


def outcome(runnable, inputs, outputs):
    """The bytes of the outputs, or the error."""
    for output in outputs:
        poison(output)
    try:
        runnable(*inputs.values(), *outputs)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    assert all(torch.isfinite(output).all() for output in outputs), "poison was left"
    return tuple(output.cpu().view(torch.uint8).numpy().tobytes() for output in outputs)


def assert_order_does_not_matter(fresh, room, inputs, name, make_outputs):
    """Dense then strided in one package; strided then dense in another."""
    loose = inputs | {name: strided(inputs[name])}
    assert torch.equal(loose[name].float(), inputs[name].float())
    first, second = fresh(room), fresh(room)
    assert first._callable is not second._callable, "the second order met the first one's module"
    dense, refused = (outcome(first, values, make_outputs()) for values in (inputs, loose))
    assert outcome(second, loose, make_outputs()) == refused
    assert outcome(second, inputs, make_outputs()) == dense
    kind, text = refused
    assert kind is ValueError
    assert f"{name}:" in text and "contiguous" in text and "strides" in text


@pytest.mark.parametrize("name", ["q", pytest.param("state", marks=pytest.mark.slow)])
def test_gdn_decode_takes_dense_and_refuses_strided_inputs_in_any_order(fresh, name):
    inputs = gdn_decode.random_inputs(1, seed=21, device=device())
    assert_order_does_not_matter(
        fresh, "gdn_decode", inputs, name, lambda: gdn_decode.empty_outputs(1, device())
    )


@pytest.fixture(scope="module")
def weights():
    return moe.zero_weights(device())


@pytest.mark.parametrize(
    "name",
    [
        "hidden_states",
        pytest.param("routing_logits", marks=pytest.mark.slow),
        pytest.param("gemm2_weights_scale", marks=pytest.mark.slow),
    ],
)
def test_moe_takes_dense_and_refuses_strided_inputs_in_any_order(fresh, weights, name):
    """Tokens whose experts live elsewhere: the output is zero and the products cost nothing."""
    logits = torch.zeros(2, moe.EXPERTS)
    inputs = moe.random_inputs(logits, weights, 32, seed=22, device=device())

    def outputs():
        return [torch.empty(2, moe.HIDDEN, dtype=torch.bfloat16, device=device())]

    assert_order_does_not_matter(fresh, "moe", inputs, name, outputs)
