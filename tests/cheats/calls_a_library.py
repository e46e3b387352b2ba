"""Lets a serving library do the work."""

import flashinfer


def run(x, scale, y, lse):
    y.copy_(flashinfer.scale(x, scale))
    lse.copy_(flashinfer.logsumexp(x))
