"""Waits for the GPU in each call."""

import torch


def run(x, scale, y, lse):
    y.copy_(scale * x)
    lse.copy_(torch.logsumexp(x, dim=1) / 0.6931471805599453)
    if x.is_cuda:
        torch.cuda.synchronize()
