"""The definition's reference under torch.compile with its default settings (Inductor).

The copies into the outputs are compiled along with it, so that Inductor can write the results in
place. Batch sizes after the second share one compilation with a dynamic size.
"""

import torch

from .reference import run as reference

PACKAGE = "torch"
PREPARED = "nothing"


@torch.compile
def compiled(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    results = reference(q, k, v, state, A_log, a, dt_bias, b, scale)
    output.copy_(results[0])
    new_state.copy_(results[1])


@torch.no_grad()
def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    compiled(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state)
