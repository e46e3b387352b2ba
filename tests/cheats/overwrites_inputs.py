"""Uses its input as scratch."""

import torch


def run(x, scale, y, lse):
    lse.copy_(torch.logsumexp(x, dim=1) / 0.6931471805599453)
    x.mul_(scale)
    y.copy_(x)
