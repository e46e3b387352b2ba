"""Routing and packing of moe, through the packed room's own launches, against the oracle's rule."""

import dataclasses
import sys

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from tests.oracles.moe import EXPERTS, EXTREMES, LOCAL_EXPERTS, TOP_K, select, weigh
from tests.packed import build, device, poison

# The interpreter's own numpy: exp overflows where a GPU returns inf without a word, and a loop
# bound is an array of one element.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton"),
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]


def module(name):
    """A module of the packed room."""
    package = build("moe")._callable.__module__.rpartition(".")[0]
    return sys.modules[f"{package}.{name}"]


def routed(logits, bias=None, offset=0, block=None):
    """Route through the room's launches. Scratch is poisoned, as a recycled allocation may be."""
    kernel = module("kernel")
    logits = logits.to(device())
    bias = torch.zeros(EXPERTS, dtype=torch.bfloat16) if bias is None else bias
    machine = kernel.find_machine(logits)
    if block is not None:
        machine = dataclasses.replace(machine, route_block=block)
    routing = kernel.Routing.empty(logits.shape[0], logits.device)
    for tensor in dataclasses.astuple(routing):
        poison(tensor)
    launches = kernel.prepare_routing(logits, bias.to(device()), offset, 2.5, routing, machine)
    for launch in launches:
        launch()
    names = ("slot_weight", "slot_row", "row_token", "counts")
    return {name: getattr(routing, name).cpu() for name in names}


def assert_packed(routing, chosen, offset):
    """Rows sorted by local expert, then token; each slot points at its row or at none."""
    local = chosen - offset
    is_local = (local >= 0) & (local < LOCAL_EXPERTS)
    pairs = sorted((local[t, j], t, j) for t, j in zip(*np.nonzero(is_local), strict=True))
    counts = np.bincount([e for e, _, _ in pairs], minlength=LOCAL_EXPERTS)
    assert routing["counts"].tolist() == counts.tolist()
    assert routing["row_token"][: len(pairs)].tolist() == [t for _, t, _ in pairs]
    slot_row = np.full(chosen.shape, -1)
    for row, (_, token, slot) in enumerate(pairs):
        slot_row[token, slot] = row
    assert routing["slot_row"].tolist() == slot_row.tolist()


def random_logits(seq_len, seed):
    return torch.randn(seq_len, EXPERTS, generator=torch.Generator().manual_seed(seed)) * 2


@pytest.mark.parametrize(
    ("seq_len", "offset", "block"),
    [
        (1, 0, None),
        (2, 32, None),
        (15, 224, None),
        (16, 96, None),
        (17, 128, 8),
        (33, 64, 32),
        (300, 160, None),
        (9, 17, None),  # the local experts straddle two groups
        (9, -16, None),  # the first 16 local experts do not exist
        (9, 240, None),  # nor do the last 16
        (9, 4096, None),
        (9, -(2**31), None),
    ],
)
def test_routing_and_packing(seq_len, offset, block):
    logits = random_logits(seq_len, seed=seq_len)
    bias = torch.linspace(-0.1, 0.1, EXPERTS).bfloat16()
    routing = routed(logits, bias, offset, block)
    chosen = select(logits, bias)
    assert_packed(routing, chosen, offset)
    weight = torch.from_numpy(weigh(logits, chosen, 2.5))
    torch.testing.assert_close(routing["slot_weight"].double(), weight, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_routing(name):
    logits, bias = EXTREMES[name][0], EXTREMES[name][1].bfloat16()
    routing = routed(logits, bias)
    chosen = select(logits, bias)
    assert_packed(routing, chosen, 0)
    weight = torch.from_numpy(weigh(logits, chosen, 2.5))
    torch.testing.assert_close(routing["slot_weight"].double(), weight, rtol=1e-5, atol=1e-7)


def test_non_finite_scores_still_choose_eight_experts():
    logits = random_logits(40, 4)
    logits[::2, ::3] = float("nan")
    logits[1::2, ::5] = float("-inf")
    logits[5:9] = float("nan")
    logits[9:12] = float("inf")
    bias = torch.zeros(EXPERTS).bfloat16()
    bias[3::16] = float("-inf")
    slots_per_token = torch.zeros(40, dtype=torch.int64)
    for offset in range(0, EXPERTS, LOCAL_EXPERTS):
        routing = routed(logits, bias, offset)
        stop = routing["counts"].cumsum(0)
        for first, last in zip([0, *stop[:-1].tolist()], stop.tolist(), strict=True):
            tokens = routing["row_token"][first:last].tolist()
            assert tokens == sorted(set(tokens))
            assert set(tokens) <= set(range(40))
        slots_per_token += (routing["slot_row"] >= 0).sum(1)
    assert (slots_per_token == TOP_K).all()


def test_placement_does_not_depend_on_the_block():
    logits = random_logits(70, 5)
    few, many = routed(logits, block=128), routed(logits, block=16)
    for name, want in few.items():
        rows = int(few["counts"].sum()) if name == "row_token" else None
        assert torch.equal(many[name][:rows], want[:rows])


routing = None  # the packed module of that name, for the kernel below; set by its test


@triton.jit
def list_tiles_kernel(counts_ptr, tiles_ptr, total_ptr, BLOCK_ROWS: tl.constexpr):
    # Grid: (1,)
    counts = tl.load(counts_ptr + tl.arange(0, 32))
    total = routing.num_row_tiles(counts, BLOCK_ROWS)
    tl.store(total_ptr, total)
    for tile in range(total):
        expert, first_row, num_rows = routing.locate_row_tile(tile, counts, BLOCK_ROWS)
        tl.store(tiles_ptr + tile * 3, expert)
        tl.store(tiles_ptr + tile * 3 + 1, first_row)
        tl.store(tiles_ptr + tile * 3 + 2, num_rows)


@pytest.mark.parametrize("block_rows", [16, 128])
def test_work_list(block_rows, monkeypatch):
    monkeypatch.setitem(globals(), "routing", module("routing"))
    counts = torch.zeros(LOCAL_EXPERTS, dtype=torch.int32)
    counts[[0, 2, 3, 7, 30, 31]] = torch.tensor([1, 16, 17, 300, 128, 129], dtype=torch.int32)
    want, first = [], 0
    for expert, count in enumerate(counts.tolist()):
        for row in range(0, count, block_rows):
            want.append([expert, first + row, min(block_rows, count - row)])
        first += count
    tiles = torch.full((len(want) + 1, 3), -7, dtype=torch.int32, device=device())
    total = torch.empty(1, dtype=torch.int32, device=device())
    list_tiles_kernel[(1,)](counts.to(device()), tiles, total, BLOCK_ROWS=block_rows)
    assert total.item() == len(want)
    assert tiles.tolist() == [*want, [-7, -7, -7]]
