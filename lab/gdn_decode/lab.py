"""Checks and timings of gdn_decode's routes; see run.sh. python3 lab.py FOLDER SECONDS."""

import statistics
import sys
import time
from pathlib import Path

import torch

from harness.config import load_workspace
from tests.oracles.gdn_decode import empty_outputs, oracle, random_inputs

START = time.monotonic()
FOLDER, LIMIT_S = Path(sys.argv[1]), float(sys.argv[2])
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OFFICIAL = {1: 10, 4: 8, 8: 7, 16: 7, 32: 7, 48: 7, 64: 8}
CLIFFS = (2, 3, 12, 24, 40, 96)
# lanes, rows, warps; "late": decay behind the sums
VARIANTS = [
    ("ours", 32, 2, 4), ("ours", 16, 2, 4), ("ours", 8, 4, 2), ("ours", 16, 4, 1), ("ours", 8, 4, 1),
    ("ours", 32, 8, 1), ("ours", 16, 8, 1), ("ours", 8, 8, 1),
    ("late", 16, 2, 4), ("late", 8, 4, 2), ("late", 8, 4, 1), ("late", 16, 8, 1),
]  # fmt: skip
ROUNDS = 5


def left():
    return LIMIT_S - (time.monotonic() - START)


class Side:
    """A packed solution, and its launch table, which variants replace."""

    def __init__(self, name):
        from flashinfer_bench.compile import BuilderRegistry
        from flashinfer_bench.data import Definition, Solution

        workspace = load_workspace()
        entry = workspace.room("gdn_decode")
        path = workspace.root / "definitions" / entry.op_type / f"{entry.definition}.json"
        solution = Solution.model_validate_json((FOLDER / f"{name}.json").read_text())
        definition = Definition.model_validate_json(path.read_text())
        self.run = BuilderRegistry.get_instance().build(definition, solution)
        self.kernel = sys.modules[self.run._callable.__module__]
        self.choose = self.kernel.choose

    def call(self, inputs, outputs, shape=None):
        """A call of the solution, of one shape or of the one that it chooses."""
        launch = shape and dict(zip(("lanes", "rows", "warps"), shape, strict=True))
        chosen = (lambda *_, **__: ("native", launch)) if launch else self.choose

        def call():
            self.kernel.choose = chosen
            self.run(*inputs.values(), *outputs)

        return call


def results(call, outputs):
    for output in outputs:
        output.fill_(float("nan"))
    call()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return [x.double().cpu() for x in outputs]


def where(name, got, want, rtol, atol):
    """None, or a sentence: how many are wrong, and in which heads, rows and columns."""
    bad = ~torch.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    if not bad.any():
        return None
    places = bad.nonzero()
    spans = [f"{int(c.min())}..{int(c.max())}({len(c.unique())})" for c in places.T]
    worst = (got - want).abs().nan_to_num(float("inf")).max().item()
    return f"{name}: {len(places)} of {bad.numel()} wrong, indices {' '.join(spans)}, worst {worst:.3g}"


def compare(label, side, inputs, wanted, shape=None):
    outputs = empty_outputs(inputs["q"].shape[0], DEVICE)
    try:
        got = results(side.call(inputs, outputs, shape), outputs)
    except Exception as error:  # the table goes on
        return [f"{label}: {type(error).__name__}: {str(error)[-600:]}"]
    said = [where("output", got[0], wanted[0], 2.0**-7, 1e-6)]
    said.append(where("state", got[1], wanted[1], 1e-5, 1e-6))
    return [f"{label}: {text}" for text in said if text]


def hostile():
    """(label, inputs) of the contract's corners."""
    base = random_inputs(4, 5, DEVICE)  # four rows: the last is what the corners change

    def change(**values):
        return {**{n: x.clone() if torch.is_tensor(x) else x for n, x in base.items()}, **values}

    yield "closed gates", change(a=torch.full_like(base["a"], -120.0), b=torch.full_like(base["b"], -120.0))
    opened = {"a": torch.full_like(base["a"], 120.0), "b": torch.full_like(base["b"], 120.0)}
    yield "open gates, huge state", change(**opened, A_log=torch.ones_like(base["A_log"]), state=base["state"] * 1e30)
    yield "scale None", change(scale=None)
    yield "scale 0", change(scale=0)
    yield "scale -0.25", change(scale=-0.25)
    yield "no state", change(state=None)
    tamed = {"a": torch.full_like(base["a"], 5.0), "b": torch.full_like(base["b"], -2.0)}
    tamed |= {"A_log": torch.zeros_like(base["A_log"]), "dt_bias": torch.zeros_like(base["dt_bias"])}
    tamed |= {"state": torch.full_like(base["state"], 2e38), "k": torch.full_like(base["k"], 0.088)}
    yield "decay tames a huge state", change(**tamed)
    for name, index in [("state", (3, 5, 77, 3)), ("v", (3, 0, 5, 77)), ("k", (3, 0, 2, 9)), ("q", (3, 0, 2, 9)), ("a", (3, 0, 5)), ("b", (3, 0, 5)), ("A_log", (5,))]:
        for bad in (float("nan"), float("inf")):
            inputs = change()
            inputs[name][index] = bad
            yield f"{name} {bad}", inputs


def check(sides):
    wrong, count = [], 0
    for batch_size in (1, 2, 3, 4, 8, 9, 16, 17, 32, 48, 64, 96) if DEVICE == "cuda" else (1, 2):
        inputs = random_inputs(batch_size, batch_size, DEVICE)
        wanted = oracle(**inputs)
        for name, side in sides.items():
            wrong += compare(f"{name} B={batch_size}", side, inputs, wanted)
            count += 1
    inputs = random_inputs(3, 7, DEVICE)
    wanted = oracle(**inputs)
    for name in ("ours", "late"):
        for lanes, rows in [(8, 4), (8, 8), (16, 2), (16, 4), (16, 8), (32, 2), (32, 4), (32, 8)]:
            for warps in (1, 2, 4):
                if DEVICE == "cuda":
                    wrong += compare(f"{name} shape {lanes},{rows},{warps}", sides[name], inputs, wanted, (lanes, rows, warps))
                    count += 1
    for label, inputs in hostile():
        wanted = oracle(**inputs)
        for name, side in sides.items():
            outputs = empty_outputs(4, DEVICE)
            got = results(side.call(inputs, outputs), outputs)
            for part, one, want in zip(("output", "state"), got, wanted, strict=True):
                count += 1
                if not torch.equal(torch.isfinite(one), torch.isfinite(want)):
                    wrong.append(f"{name} {label}: {part} is not finite in {(~torch.isfinite(one)).sum()}, expected {(~torch.isfinite(want)).sum()}")
                    continue
                fine = torch.isfinite(want)
                said = where(part, one[fine], want[fine], 2.0**-7 if part == "output" else 1e-5, 1e-6 * max(1.0, want[fine].abs().max().item() * 1e-2))
                wrong += [f"{name} {label}: {said}"] if said else []
    print(f"checks: {count}, wrong: {len(wrong)}")
    for line in wrong[:30]:
        print("  " + line)


def errors(sides):
    """Largest error of the state against fp64, as a multiple of the fp32 reference's."""
    from flashinfer_bench.compile import BuilderRegistry
    from flashinfer_bench.data import Definition

    workspace = load_workspace()
    entry = workspace.room("gdn_decode")
    path = workspace.root / "definitions" / entry.op_type / f"{entry.definition}.json"
    reference = BuilderRegistry.get_instance().build_reference(Definition.model_validate_json(path.read_text()))
    for batch_size in (8, 64) if DEVICE == "cuda" else (1,):
        inputs = random_inputs(batch_size, 300 + batch_size, DEVICE)
        want = oracle(**inputs)[1]
        known = (reference(*inputs.values())[1].double().cpu() - want).abs()
        line = []
        for name, side in sides.items():
            outputs = empty_outputs(batch_size, DEVICE)
            found = (results(side.call(inputs, outputs), outputs)[1] - want).abs()
            line.append(f"{name} {found.max() / known.max():.2f} (rms {found.square().mean().sqrt() / known.square().mean().sqrt():.2f})")
        print(f"error of new_state over the reference's own, B={batch_size}: " + "  ".join(line))


def time_all(sides):
    from harness.timing import CuptiTimer

    timer = CuptiTimer("cuda:0")
    names = ["main"] + [f"{v[0]} {v[1]},{v[2]},{v[3]}" for v in VARIANTS] + ["ours chosen", "late chosen"]
    table = {}
    for batch_size in [*OFFICIAL, *CLIFFS]:
        if left() < 15:
            print(f"timing: stopped in front of B={batch_size}, {left():.0f} s left")
            break
        inputs = random_inputs(batch_size, batch_size, DEVICE)
        outputs = empty_outputs(batch_size, DEVICE)
        calls = {"main": sides["main"].call(inputs, outputs)}
        if batch_size in OFFICIAL:
            calls |= {n: sides[v[0]].call(inputs, outputs, v[1:]) for n, v in zip(names[1:], VARIANTS, strict=False)}
        calls |= {f"{n} chosen": sides[n].call(inputs, outputs) for n in ("ours", "late")}
        found = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                found[name].append(timer.measure(call, 3, 40, estimation_calls=1).latency_us)
        table[batch_size] = {name: statistics.median(x) for name, x in found.items()}
        spread = max((max(x) - min(x)) / min(x) for x in found.values())
        print(f"timed B={batch_size}: spread over rounds up to {spread:.1%}, {left():.0f} s left", flush=True)
    return names, table


def show(names, table):
    batches = [b for b in OFFICIAL if b in table]
    weights = sum(OFFICIAL[b] for b in batches)

    def mean(pick):
        return sum(OFFICIAL[b] * pick(table[b]) for b in batches) / weights

    print("\nlatency in us, L2 cold; columns: B, then the mean over the official batches")
    print(f"{'':18}" + "".join(f"{b:8}" for b in batches) + "    mean")
    for name in names:
        row = "".join(f"{table[b][name]:8.2f}" for b in batches)
        print(f"{name:18}{row}{mean(lambda t, n=name: t[n]):8.3f}")
    for side in ("ours", "late"):
        best = {b: min((t, n) for n, t in table[b].items() if n.startswith(side) and "chosen" not in n) for b in batches}
        print(f"best {side:13}" + "".join(f"{best[b][0]:8.2f}" for b in batches) + f"{sum(OFFICIAL[b] * best[b][0] for b in batches) / weights:8.3f}")
        print("   by " + "  ".join(f"B={b}: {best[b][1].split()[1]}" for b in batches))
    known = sorted(table)
    for b in CLIFFS:
        below, above = [x for x in known if x < b and x in OFFICIAL], [x for x in known if x > b and x in OFFICIAL]
        if b not in table or not below:
            continue
        row = table[b]
        text = f"B={b}: main {row['main']:.2f}"
        for n in ("ours chosen", "late chosen"):
            low = below[-1]
            if above:
                high = above[0]
                expected = table[low][n] + (table[high][n] - table[low][n]) * (b - low) / (high - low)
            else:
                expected = table[low][n] + 0.239 * (b - low)
            text += f"   {n} {row[n]:.2f} = {row[n] / expected:.3f} of the line through its neighbours"
        print(text)
    print("goals: mean <= 7.4, B=1 <= 2.2, 16 <= 5.6, 64 <= 17.5, cliffs <= 1.15")


def main():
    began = time.monotonic()
    sides = {name: Side(name) for name in ("main", "ours", "late")}
    inputs = random_inputs(1, 0, DEVICE)
    for side in sides.values():
        side.call(inputs, empty_outputs(1, DEVICE))()
    print(f"built in {time.monotonic() - began:.0f} s")
    check(sides)
    errors(sides)
    if DEVICE == "cuda":
        show(*time_all(sides))


main()
