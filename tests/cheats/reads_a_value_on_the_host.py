"""Decides on the host by a value that the GPU holds: it waits, and no graph can hold it."""

import torch


def run(x, scale, y, lse):
    if x.abs().max().item() >= 0.0:
        y.copy_(scale * x)
    lse.copy_(torch.logsumexp(x, dim=1) / 0.6931471805599453)
