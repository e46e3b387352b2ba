"""Where the time of gdn_decode's step goes: kernels that stop after a stage, by CUPTI, L2 cold, in turns.

python3 stages.py: a table for B = 1, 4, 16, 32, 64. Run in a repository root.
"""
import importlib.util, re, statistics, sys
from pathlib import Path
import torch
sys.path.insert(0, ".")
from harness.timing import select_timer
from tests.oracles.gdn_decode import empty_outputs, random_inputs
from tests.packed import build

run = build("gdn_decode")
module = sys.modules[run._callable.__module__]
source = Path(module.__file__).read_text()
folder = Path(module.__file__).parent
head, tail = source.split('    g = decay(a, dt_bias, a_log)\n')
body, rest = tail.split('\n\n\n', 1)
ALL = "    every = tl.sum(tl.sum(state, axis=1) + v, axis=0) + tl.sum(q * k, axis=0) + a + b + a_log + dt_bias\n"
NEVER = "    tl.store(output_ptr + rows, tl.zeros([BLOCK_V], tl.bfloat16), mask=rows * 0.0 + every == 1.2345678e33)\n"
VARIANTS = {
    # a grid of the same size that loads nothing
    "launch": (head.split("    # The state is read once")[0] + "    tl.store(output_ptr + rows, tl.zeros([BLOCK_V], tl.bfloat16), mask=rows < -1)\n"),
    # every load is issued and awaited
    "loads": head + ALL + NEVER,
    # and all arithmetic, without the new state
    "arithmetic": head + "    g = decay(a, dt_bias, a_log)\n" + body.replace(
        "    tl.store(new_state_ptr + offs_state, state + delta[:, None] * k[None, :])\n",
        "    every = tl.sum(tl.sum(state + delta[:, None] * k[None, :], axis=1), axis=0)\n").replace(
        "    tl.store(output_ptr + rows, (out * scale)", NEVER.replace("tl.zeros([BLOCK_V], tl.bfloat16)", "(out * scale).to(tl.bfloat16)") + "    #"),
    # loads and stores of the state alone
    "copy": head + "    tl.store(new_state_ptr + offs_state, state)\n    tl.store(output_ptr + rows, (v + tl.sum(q * k, axis=0) + a + b + a_log + dt_bias).to(tl.bfloat16))\n",
    "whole": None,
}
calls = {}
for name, text in VARIANTS.items():
    if text is None:
        calls[name] = run
        continue
    path = folder / f"stage_{name}.py"
    path.write_text(text + "\n\n\n" + rest)
    package = module.__name__.rpartition(".")[0]
    spec = importlib.util.spec_from_file_location(f"{package}.stage_{name}" if package else f"stage_{name}", path)
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    calls[name] = made.run
timer = select_timer("cupti", "cuda:0")
print("CUPTI, L2 cold, 100 calls, median of 5 passes, us")
print("| B | launch | + loads | + arithmetic | + stores = whole | copy alone |")
for B in (1, 4, 8, 16, 32, 48, 64):
    inputs, outputs = random_inputs(B, seed=B, device="cuda:0"), empty_outputs(B, "cuda:0")
    found = {name: [] for name in calls}
    for _ in range(5):
        for name, call in calls.items():
            found[name].append(timer.measure(lambda: call(*inputs.values(), *outputs), 5, 100).latency_us)
    t = {name: statistics.median(v) for name, v in found.items()}
    print(f"| {B} | {t['launch']:.3f} | {t['loads']:.3f} | {t['arithmetic']:.3f} | {t['whole']:.3f} | {t['copy']:.3f} |", flush=True)
