"""The room's native route and its control, tests/cuda/prefill_control.cu, called without run()."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.errors import InfrastructureFailure
from harness.ranges import TOPK
from tests.nvcc import load_shelf, write_sources
from tests.prefill_study.failures import Layout, classify
from tests.prefill_study.record import CONTROL, PARTS, ROOM

CAPABILITY = (9, 0)
CONTROL_SIZE = (8, 8192)  # whole tiles, in each of which every query has keys
CONTROL_THREADS, CONTROL_TOLERANCE = 512, 0.01  # of the computing warps; FP8 sums are truncated


def build_beside_room(source: Path) -> Any:
    """A module, built from a source of the tests that includes those of the packed room."""
    with tempfile.TemporaryDirectory() as folder:
        write_sources(ROOM, Path(folder))
        shutil.copy(source, folder)
        return load_shelf("native_build", Path(folder)).load_native(source.name, CAPABILITY)


def build_control() -> Any:
    return build_beside_room(CONTROL)


def load_room(kernel: Any) -> Any:
    """The native module of the packed room whose kernel.py this is; built at the first use."""
    return sys.modules[kernel.run_native.__module__].load_native("prefill.cu", CAPABILITY)


class NativeCall:
    """A call of the room's native route with scratch that can be read afterwards."""

    def __init__(self, kernel: Any, inputs: Sequence[torch.Tensor], **changes: int) -> None:
        """kernel: the packed room's kernel.py. changes: options other than its own."""
        query, codes, scales, weights, starts, ends = inputs
        self.queries, self.keys = len(query), len(codes)
        self.options = kernel.choose_native(self.queries, self.keys) | changes
        if self.options["most_queries"] < self.queries:
            raise InfrastructureFailure(
                f"{self.queries} x {self.keys}: expected one group of launches, got groups of "
                f"{self.options['most_queries']} queries; study a smaller size"
            )
        self._module = load_room(kernel)
        self.arguments = [query.view(torch.uint8), codes.view(torch.uint8), scales, weights]
        self.arguments += [starts, ends]
        self.output = starts.new_empty((self.queries, TOPK))
        self.scratch = [
            starts.new_empty(self.options["table_words"]),
            starts.new_empty(self.options["area_bytes"], dtype=torch.uint8),
        ]

    def __call__(self) -> None:
        options = self.options["most_queries"], self.options["most_candidates"]
        self._module.select_topk(*self.arguments, self.output, *self.scratch, *options)

    def part(self, control: Any, name: str) -> Callable[[], object]:
        """The filtering launch alone, or one of its controls; thresholds are the last call's."""
        return lambda: control.launch_part(*self.arguments, *self.scratch, PARTS.index(name))

    def failures(self, kernel: Any) -> dict[str, int]:
        """Rows of the last call that went to the repair, by class."""
        layout = Layout(kernel.QUERY_BLOCK, kernel.QUERY_WARPS, kernel.CAPACITY, kernel.MOST_CTAS)
        starts, ends = (
            values.clamp(0, self.keys).cpu().numpy().astype(np.int64)
            for values in self.arguments[4:]
        )
        table = self.scratch[0].cpu().numpy()
        lengths = np.maximum(ends - starts, 0)
        return classify(table, lengths, layout, self.options["most_candidates"])


def wanted_sums(inputs: Sequence[torch.Tensor]) -> dict[str, float]:
    """What the controls' checksums add up to, where every key of every tile counts for every query.

    A thread adds one of each tile's products: of heads 0 and 2, with the keys of its first row.
    """
    query, codes, scales, weights = (values.float() for values in inputs[:4])
    products = torch.einsum("qhd,kd->qhk", query, codes)
    first_rows = torch.arange(len(codes), device=codes.device) % 16 < 8
    scores = torch.einsum("qh,qhk->qk", weights, torch.relu(products * scales))
    return {
        "products": float(products[:, [0, 2]][:, :, first_rows].double().sum()),
        "scores": float(scores.double().sum()),
    }


def check_control(kernel: Any, control: Any, inputs: Sequence[torch.Tensor]) -> None:
    """Whether the controls do the work that they are timed for, on positive inputs, which leave
    nothing to cancel. Raises InfrastructureFailure."""
    query, codes, scales, weights, starts, ends = inputs
    query, codes = (values.float().abs().to(values.dtype) for values in (query, codes))
    inputs = [query, codes, scales, weights.abs(), starts, ends]
    own, wanted = NativeCall(kernel, inputs), wanted_sums(inputs)
    own()
    for name, sum_wanted in wanted.items():
        own.scratch[1].zero_()
        own.part(control, name)()
        count = kernel.MOST_CTAS * CONTROL_THREADS
        found = float(own.scratch[1][: 4 * count].view(torch.float32).double().sum())
        if not abs(found - sum_wanted) <= CONTROL_TOLERANCE * sum_wanted:
            raise InfrastructureFailure(
                f"control, {name}: expected a checksum of {sum_wanted:.6g}, got {found:.6g}; "
                f"{CONTROL.name} leaves work out, or no longer follows score.cuh"
            )
