"""Calls under conditions that only a device has: a busy side stream, a captured graph."""

import torch

from tests.packed import build, poison

SLOW_PRODUCER_CYCLES = 100_000_000  # about 50 ms


def run_behind_slow_producer(room, inputs, outputs, route=None):
    """Run a room on a side stream whose inputs arrive late on that very stream.

    A launch on any other stream would read zeros. Returns the outputs, synchronised.
    """
    late = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    for value in late:
        if isinstance(value, torch.Tensor):
            value.zero_()
    for output in outputs:
        poison(output)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(SLOW_PRODUCER_CYCLES)
        for value, source in zip(late, inputs, strict=True):
            if isinstance(value, torch.Tensor):
                value.copy_(source)
        build(room, route)(*late, *outputs)
    side.synchronize()
    return outputs


def replay_captured(room, inputs, outputs, replays=3, route=None):
    """Capture one call in a CUDA graph and replay it on poisoned outputs. Returns the outputs."""
    build(room, route)(*inputs, *outputs)  # compiles outside the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        build(room, route)(*inputs, *outputs)
    for _ in range(replays):
        for output in outputs:
            poison(output)
        graph.replay()
    torch.cuda.synchronize()
    return outputs
