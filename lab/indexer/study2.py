import sys, json, time, os
sys.path.insert(0, os.getcwd())
import torch
from harness.config import load_workspace
from harness.packing import pack
from harness.timing import CuptiTimer
from tests.oracles.dsa_indexer import random_inputs, empty_output
from flashinfer_bench.compile import BuilderRegistry
from flashinfer_bench.data import Definition, Solution
ws = load_workspace(); entry = ws.room("dsa_indexer")
D = Definition.model_validate_json((ws.root/"definitions"/entry.op_type/f"{entry.definition}.json").read_text())
def variant(name, *edits, route=None):
    s = json.loads(pack(ws, "dsa_indexer", route).text)
    for path, old, new in edits:
        hit = False
        for f in s["sources"]:
            if f["path"] == path:
                assert old in f["content"], old
                f["content"] = f["content"].replace(old, new); hit = True
        assert hit
    s["name"] += "-" + name
    return BuilderRegistry.get_instance().build(D, Solution.model_validate(s))
ONE = ("kernel.py", "(128, 31, 6)", "(128, 10**6, 6)")
TWO = ("kernel.py", "(128, 31, 6)", "(32, 31, 6)")
S16 = ("plan.cuh", "SPREAD_CLUSTER = 8", "SPREAD_CLUSTER = 16"); B16 = ("plan.cuh", "SPREAD_BATCH = 8", "SPREAD_BATCH = 16")
EARLY = ("index.cu", "  cudaTriggerProgrammaticLaunchCompletion();  // select_kernel waits for the end of this grid\n", "")
sides = {"one": variant("one", ONE), "two": variant("two", TWO), "two16": variant("two16", TWO, S16), "batch16": variant("b16", TWO, B16), "notrig": variant("nt", TWO, EARLY)}
timer = CuptiTimer("cuda:0")
def t(call, n=15):
    try: return timer.measure(call, 2, n, estimation_calls=1).latency_us
    except Exception as e:
        print("ERR", repr(e)[:300]); return float("nan")
shapes = []
for L in (2049, 2112, 3000, 4096, 5806, 8192, 8256, 10000, 12288, 16384, 24576, 32768, 65536, 131072, 163840):
    shapes.append((f"1x{L}+14", [L] + [100]*14))
for B in (1, 16, 31, 32, 48, 64, 96, 128, 256):
    shapes.append((f"B{B} 1x4096", [4096] + [150]*(B-1)))
for B in (4, 8, 16, 30, 31, 32, 48, 64, 128): shapes.append((f"B{B} all5824", [5824]*B))
for B in (8, 30, 64): shapes.append((f"B{B} all2500", [2500]*B))
for B, L in ((4, 16384), (30, 16384), (4, 131072), (8, 131072), (30, 131072), (64, 32768)): shapes.append((f"B{B} all{L}", [L]*B))
shapes.append(("B500 short wide", [100]*499 + [9000]))
start = time.time()
for name, lens in shapes:
    x = random_inputs(lens, seed=1, device="cuda"); vals = list(x.values()); row = []
    M = x["block_table"].shape[1]
    for k, f in sides.items():
        if k == "one" and M > 128: row.append(f"{k} -"); continue
        out = empty_output(len(lens), "cuda"); out.fill_(7)
        row.append(f"{k} {t(lambda: f(*vals, out)):.2f}")
    print(f"{name:16s}", "  ".join(row), f"[{time.time()-start:.0f}s]", flush=True)
