"""Decodes one token of gated delta rule with the packed kernel, twice: through apply, and alone.

    PYTHONPATH=. python examples/serve_gdn_decode.py [BATCH_SIZE]

A serving process would keep its own function, decorated with flashinfer-bench's `apply`. Where
apply is enabled and knows a solution for the definition, the call goes there; everywhere else the
function itself runs. The second way needs no data set: `harness.load` gives the kernel as a plain
function, which torch.compile and CUDA graphs take.

Without a GPU, for a try: PYTHONPATH=. TRITON_INTERPRET=1 python examples/serve_gdn_decode.py 1
"""

import math
import sys
import tempfile
from pathlib import Path

try:
    import torch
    from flashinfer_bench import ApplyConfig, apply, enable_apply
    from torch.nn.functional import normalize

    import harness
    from harness.config import load_workspace
    from harness.errors import run_program
    from harness.serving import write_apply_set
except ModuleNotFoundError as error:
    steps = {"harness": "in the checkout's root, export PYTHONPATH=$PWD"}
    step = steps.get(error.name, "`make test` makes .venv with it, then use .venv/bin/python")
    sys.stderr.write(f"error: {error.name}: expected on Python's path, got none; {step}\n")
    sys.exit(4)

ROOM, DEFINITION = "gdn_decode", "gdn_decode_qk4_v8_d128_k_last"


@apply(DEFINITION)
def decode(q, k, v, state, A_log, a, dt_bias, b, scale):
    """What the serving process had before; here it only shows that nobody came instead."""
    raise RuntimeError("apply knows no solution for these sizes")


def random_inputs(batch_size, device):
    """One decode step of `batch_size` sequences, by the definition's names and in its order."""

    def normal(*shape, dtype=torch.float32):
        return torch.randn(*shape, device=device).to(dtype)

    half = torch.bfloat16
    return {
        "q": normalize(normal(batch_size, 1, 4, 128), dim=-1).to(half),
        "k": normalize(normal(batch_size, 1, 4, 128), dim=-1).to(half),
        "v": normal(batch_size, 1, 8, 128, dtype=half),
        "state": normal(batch_size, 8, 128, 128) / 32,
        "A_log": normal(8),
        "a": normal(batch_size, 1, 8, dtype=half),
        "dt_bias": normal(8),
        "b": normal(batch_size, 1, 8, dtype=half),
        "scale": 128**-0.5,
    }


def main():
    batch_size = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    kernel = harness.load(ROOM)  # first: without a device it says what to do
    inputs = random_inputs(batch_size, "cuda" if torch.cuda.is_available() else "cpu")
    # The judge accepted the recorded errors, so apply's own bounds need not choose again. A size
    # that was never judged gets the same solution.
    config = ApplyConfig(max_atol=math.inf, max_rtol=math.inf, on_miss_policy="use_def_best")
    with tempfile.TemporaryDirectory() as folder:
        packed = write_apply_set(load_workspace(), ROOM, Path(folder))
        with enable_apply(folder, config):
            applied = decode(*inputs.values())
    output, new_state = kernel(**inputs)
    assert torch.equal(output, applied[0]) and torch.equal(new_state, applied[1])
    print(
        f"{packed.name}: output {list(output.shape)}, new_state {list(new_state.shape)}, both alike"
    )
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
