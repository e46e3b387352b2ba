"""Landscape of dsa_indexer: routes and clusters over shapes; peers on full batches."""
import sys, json, time, os
sys.path.insert(0, os.getcwd())
import torch
from harness.config import load_workspace
from harness.packing import pack
from harness.timing import CuptiTimer
from tests.oracles.dsa_indexer import random_inputs, empty_output, oracle, check, error_bounds
from flashinfer_bench.compile import BuilderRegistry
from flashinfer_bench.data import Definition, Solution
ws = load_workspace(); entry = ws.room("dsa_indexer")
D = Definition.model_validate_json((ws.root/"definitions"/entry.op_type/f"{entry.definition}.json").read_text())
OLD = 'NATIVE_CLUSTERS = ((TOPK // PAGE_SIZE, math.inf, 0), (128, 31, 4))'
def variant(clusters, most):
    s = json.loads(pack(ws, "dsa_indexer").text)
    for f in s["sources"]:
        if f["path"] == "kernel.py":
            assert OLD in f["content"]
            f["content"] = f["content"].replace(OLD, f'NATIVE_CLUSTERS = ((TOPK // PAGE_SIZE, math.inf, 0), (128, {most}, {clusters}))')
    s["name"] += f"-c{clusters}-{most}"
    return BuilderRegistry.get_instance().build(D, Solution.model_validate(s))
def peer(path):
    ns = {}
    exec(compile(open(path).read(), path, "exec"), ns)
    return ns["run"]
sides = {"c1": variant(1, 10**6), "c4": variant(4, 10**6), "c6": variant(6, 10**6), "c7": variant(7, 10**6), "port": variant(4, 0)}
timer = CuptiTimer("cuda:0")
def t(call, n=12):
    try: return timer.measure(call, 2, n, estimation_calls=1).latency_us
    except Exception as e: return float("nan") if print("ERR", repr(e)[:200]) is None else 0
shapes = []
for L in (2049, 2112, 2500, 3000, 3500, 4096, 4600, 5200, 5806, 7000, 8192, 8256, 12288, 16384, 24576, 32768):
    shapes.append((f"1x{L}+14", [L] + [100]*14))
for B in (1, 2, 4, 5, 8, 16, 17, 24, 31, 32, 33, 48, 64, 96, 128):
    shapes.append((f"B{B} 1x4096", [4096] + [150]*(B-1)))
for B in (4, 8, 12, 16, 20, 24, 30, 31, 32, 64):
    shapes.append((f"B{B} all5824", [5824]*B))
for B in (8, 16, 30, 64):
    shapes.append((f"B{B} all2500", [2500]*B))
shapes.append(("B30 half3000", [3000 if i % 2 else 500 for i in range(30)]))
start = time.time()
for name, lens in shapes:
    x = random_inputs(lens, seed=1, device="cuda")
    vals = list(x.values()); row = []
    M = x["block_table"].shape[1]
    for k, f in sides.items():
        if k != "port" and M > 128: row.append(f"{k} -"); continue
        out = empty_output(len(lens), "cuda"); out.fill_(7)
        row.append(f"{k} {t(lambda: f(*vals, out)):.2f}")
    print(f"{name:16s}", "  ".join(row), f"[{time.time()-start:.0f}s]", flush=True)
try:
    p = peer("peers/dsa_indexer/deep_gemm.py")
    for name, lens in (("B30 all5824", [5824]*30), ("B4 all131072", [131072]*4), ("1x16384+14", [16384]+[100]*14), ("B64 all5824", [5824]*64)):
        x = random_inputs(lens, seed=1, device="cuda", unused="best"); vals = list(x.values())
        out = empty_output(len(lens), "cuda")
        row = [f"deep_gemm {t(lambda: p(*vals, out)):.2f}"]
        for k in ("c4", "c7", "port"):
            f = sides[k]; row.append(f"{k} {t(lambda: f(*vals, out)):.2f}")
        print(f"{name:16s}", "  ".join(row), f"[{time.time()-start:.0f}s]", flush=True)
except Exception as e:
    import traceback; traceback.print_exc()
