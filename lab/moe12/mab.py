"""The stream of several trees in turns: python3 mab.py build NAME TREE FOLDER (host: nvcc through toolkit) | run SECONDS FOLDER NAME...
In a repository root with `. .gpu/setup` sourced. Outputs are held against the first one's and an fp64-free check of finiteness."""
import os, statistics, subprocess, sys, time
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parent)); sys.path.insert(0, os.getcwd())

def build(name, tree, folder):
    from patch import patch
    sys.path.insert(0, str(tree / "solutions/common")); import toolkit
    patch(tree, folder / name, "plain")
    nvcc = str(Path(toolkit.find_toolkit((12, 1)).folder) / "bin/nvcc")
    subprocess.run([nvcc, "-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-ccbin", toolkit.host_compiler(), "-Xcompiler", "-fPIC", "-shared", str(folder / name / "moe.cu"), "-o", str(folder / f"{name}.so")], check=True)

def run(seconds, folder, names):
    import torch, lab
    from harness.timing import CuptiTimer
    from tests.oracles.moe import EXPERTS, LOCAL_EXPERTS, fill_expert, random_inputs, route_to, zero_weights
    weights, g = zero_weights("cuda"), torch.Generator("cuda").manual_seed(1)
    for e in range(LOCAL_EXPERTS): fill_expert(weights, e, g)
    O = 32
    def spread(tokens, hit):  # tokens of one local expert each, over `hit` experts; two for the lone token of two
        if tokens == 1: return [[*(O + 8 + 10 * i for i in range(hit)), *range(8 - hit)]]
        return [[O + (5 * (t % hit)) % 32, *range(7)] for t in range(tokens)]
    cases = {f"{t} ({h})": random_inputs(route_to(spread(t, h)), weights, O, seed=2, device="cuda") for t, h in ((1, 1), (1, 2), (2, 2), (3, 3), (7, 7), (15, 5), (16, 15), (16, 1))}
    cases |= {f"{t} rand": random_inputs(torch.randn(t, EXPERTS, generator=torch.Generator().manual_seed(t)), weights, O, seed=2, device="cuda") for t in (17, 32, 56, 80, 300, 901, 2500, 5000, 11948, 14107)}
    names = [n for n in names if (folder / f"{n}.so").is_file()]
    sides = {n: lab.Side(folder / f"{n}.so") for n in names}; timer = CuptiTimer("cuda:0"); taken, outs = {}, {}
    start, turns = time.monotonic(), 0
    while turns < 9 and time.monotonic() - start < seconds:
        for c, inputs in cases.items():
            T = inputs["routing_logits"].shape[0]
            for n in (names if turns % 2 == 0 else names[::-1]):
                out = torch.full((T, 7168), float("nan"), dtype=torch.bfloat16, device="cuda")
                taken.setdefault((c, n), []).append(timer.measure(lambda: sides[n](inputs, out), 1, 12 if T < 4000 else 5, estimation_calls=1).latency_us)
                outs[c, n] = out
        turns += 1
    print("turns", turns, "\ncase     " + "".join(f"{n:>18}" for n in names))
    for c in cases:
        base = statistics.median(taken[c, names[0]]); row = f"{c:9}"
        for n in names:
            m = statistics.median(taken[c, n]); a, b = outs[c, names[0]].float(), outs[c, n].float()
            off = ((a - b).norm() / a.norm()).item()
            row += f"{m:9.2f} {(m / base - 1) * 100:+5.1f}%" + (" !" if not off < 2e-3 else "  ")
        print(row)

if sys.argv[1] == "build": build(sys.argv[2], Path(sys.argv[3]).resolve(), Path(sys.argv[4]).resolve())
else: run(float(sys.argv[2]), Path(sys.argv[3]).resolve(), sys.argv[4:])
