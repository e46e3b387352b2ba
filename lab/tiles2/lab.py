"""Checks and timings of moe's tiles; see run.sh. python3 lab.py FOLDER VERB ..."""
import sys, time, zlib
from pathlib import Path
START = time.monotonic(); FOLDER = Path(sys.argv[1])
import numpy as np, torch
from harness.config import load_workspace
import tests.oracles.moe as M
DEV = "cuda"; TILES = (4, 128)

def load(name):
    from flashinfer_bench.compile import BuilderRegistry
    from flashinfer_bench.data import Definition, Solution
    ws = load_workspace(); entry = ws.room("moe")
    path = ws.root / "definitions" / entry.op_type / f"{entry.definition}.json"
    run = BuilderRegistry.get_instance().build(Definition.model_validate_json(path.read_text()), Solution.model_validate_json((FOLDER / f"{name}.json").read_text()))
    return run, sys.modules[run._callable.__module__]

def weights():
    w = M.zero_weights(DEV); g = torch.Generator(DEV).manual_seed(1)
    for e in range(32): M.fill_expert(w, e, g)
    return w

def rand(T, seed): return torch.randn(T, 256, generator=torch.Generator().manual_seed(seed))
def counts_to(*counts):
    """Rows of local experts 0, 6, 31 (of offset 64), then tokens without one."""
    rows = []
    for e, n in zip((64, 70, 95), counts): rows += [[e, *range(7)]] * n
    return M.route_to(rows + [list(range(100, 108))] * (counts[3] if len(counts) > 3 else 0))

CASES = [("one row", lambda: counts_to(0, 1, 0, 2)), ("none", lambda: counts_to(0, 0, 0, 5)), ("3 experts, 1 row", lambda: counts_to(1, 1, 1)),
    ("63 64 65", lambda: counts_to(63, 64, 65)), ("127 128 129", lambda: counts_to(127, 128, 129, 40)), ("255 256 257", lambda: counts_to(255, 256, 257)),
    ("192 193 320", lambda: counts_to(192, 193, 320, 3)), ("one with all", lambda: counts_to(0, 1000, 0)), ("all slots local", lambda: M.route_to([list(range(72, 80))] * 300)),
    ("rand 40", lambda: rand(40, 1)), ("rand 901", lambda: rand(901, 2)), ("rand 1537", lambda: rand(1537, 3)), ("rand 2048", lambda: rand(2048, 4)),
    ("all slots local 2000", lambda: M.route_to([list(range(72, 80))] * 2000)), ("one with all 5000", lambda: counts_to(0, 5000, 0)),
    ("rand 5000", lambda: rand(5000, 5)), ("rand 15872", lambda: rand(15872, 6))]

def reference(x, quantise=True):
    """fp32, C as one e4m3 plane where `quantise`; the oracle's routing."""
    chosen = M.select(x["routing_logits"], x["routing_bias"]); weight = M.weigh(x["routing_logits"], chosen, x["routed_scaling_factor"])
    a = (x["hidden_states"].float().unflatten(1, (-1, 128)) * x["hidden_states_scale"].T[:, :, None]).flatten(1); outs = []
    for q in ((False, True) if quantise else (False,)):
        out = torch.zeros(len(chosen), 7168, device=DEV)
        for e in range(32):
            tok, slot = np.nonzero(chosen == e + x["local_expert_offset"])
            if not len(tok): continue
            t = torch.from_numpy(tok).to(DEV)
            w1 = (x["gemm1_weights"][e].float().view(32, 128, 56, 128) * x["gemm1_weights_scale"][e][:, None, :, None]).view(4096, 7168)
            up, gate = (a[t] @ w1.T).chunk(2, 1); c = torch.nn.functional.silu(gate) * up
            if q:
                c = c.unflatten(1, (16, 128)); s = (c.abs().amax(2, keepdim=True) / 448).clamp(min=1.18e-38)
                c = ((c / s).to(torch.float8_e4m3fn).float() * s).flatten(1)
            w2 = (x["gemm2_weights"][e].float().view(56, 128, 16, 128) * x["gemm2_weights_scale"][e][:, None, :, None]).view(7168, 2048)
            out[t] += (c @ w2.T).bfloat16().float() * torch.from_numpy(weight[tok, slot]).float().to(DEV)[:, None]
        outs.append(out)
    return outs

def ratio(got, want):
    if want.numel() == 0: return 1.0
    e = (got.float() - want.float()).abs(); return 1 - ((e > 1) & (e / (want.float().abs() + 1e-8) > 0.3)).float().mean().item()

def poison():
    torch.cuda.synchronize(); torch.cuda.empty_cache(); junk = torch.full((2**32,), 0xFF, dtype=torch.uint8, device=DEV); del junk

def call(run, x):
    out = torch.full((x["hidden_states"].shape[0], 7168), float("nan"), dtype=torch.bfloat16, device=DEV); run(*x.values(), out); torch.cuda.synchronize(); return out

def check(side):
    run, kernel = load(side); portable, _ = load("portable"); w = weights(); good = 0
    kernel.NATIVE_UNITS = ((15872, TILES),)
    for name, make in CASES:
        print("case", name, flush=True); x = M.random_inputs(make(), w, 64, seed=zlib.crc32(name.encode()) % 999, device=DEV)
        poison(); out = call(run, x); other = call(portable, x) if len(out) > 1536 else None; same = all(torch.equal(out.view(torch.int16), call(run, x).view(torch.int16)) for _ in range(3))
        want, q = reference(x); nz = (want != 0).any(1); rms = want.pow(2).mean(1, keepdim=True).sqrt() + 1e-30
        err = ((out.float() - q).abs() / rms).nan_to_num(9e9)[nz]; worst = err.max().item() if nz.any() else 0.0; mean = err.mean().item() if nz.any() else 0.0
        exact = ""
        if len(out) <= 64: exact = f" fp64 oracle {ratio(out.cpu()[nz.cpu()], M.oracle(**{k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in x.items()})[0][nz.cpu()]):.4f}"
        ok = bool(torch.isfinite(out).all()) and same and bool((out[~nz] == 0).all()) and worst < 0.3 and mean < 0.004 and ratio(out[nz], want[nz]) > 0.94
        good += ok
        print(f"{'ok  ' if ok else 'FAIL'} {name}: rows {nz.sum().item()} of {len(out)}, ratio {ratio(out[nz], want[nz]):.4f} (all {ratio(out, want):.4f}, Triton {ratio(other[nz], want[nz]) if other is not None else 0:.4f}){exact}, to quantised max {worst:.4f} mean {mean:.5f}, same bits {same}", flush=True)
        if not ok and nz.any():
            full = ((out.float() - q).abs() / rms).nan_to_num(9e9)
            print("   worst blocks of 32 columns", full.unflatten(1, (-1, 32)).amax(2).amax(0).argsort(descending=True)[:8].tolist(), "rows", full.amax(1).argsort(descending=True)[:8].tolist())
    print(f"{side}: {good} of {len(CASES)} cases, {time.monotonic() - START:.0f} s"); sys.exit(good != len(CASES))

def workload(T, w):
    """Official inputs where there are some, else random routing."""
    from harness.dataset import facts, workloads
    from harness.dataset.routing import moe_tensors
    ws = load_workspace(); room = ws.room("moe"); known = facts.read_facts(Path(ws.root))
    for row in workloads.read_workloads(Path(ws.root), room):
        if row.axes["seq_len"] != T: continue
        t = moe_tensors(row, known[row.uuid]); lg = torch.from_numpy(np.array(t["routing_logits"].values, dtype=np.float32)).view(-1, 256)
        x = M.random_inputs(lg, w, int(row.inputs["local_expert_offset"]["value"]), seed=5, device=DEV)
        bias = np.array(t["routing_bias"].values).view(np.uint16).astype(np.int32)
        x["routing_bias"] = torch.from_numpy(bias.astype(np.int16)).view(torch.bfloat16).to(DEV); return x
    return M.random_inputs(rand(T, T), w, 64, seed=5, device=DEV)

LENGTHS = (14107, 11948, 1536, 901, 2048, 4096, 5000)
def timing(budget, sides):
    """Cold calls of all sides in turns; then durations of each kernel."""
    from harness.timing import CuptiTimer, _Recording
    from cupti import cupti
    timer = CuptiTimer("cuda:0"); w = weights(); runs = {s: load(s) for s in sides}; flush = torch.empty(2**27, dtype=torch.int8, device=DEV)
    for T in LENGTHS:
        if time.monotonic() - START > budget: print("out of time before T =", T); return
        x = workload(T, w); out = torch.empty(T, 7168, dtype=torch.bfloat16, device=DEV); here = [s for s in sides if s in ("main", "tiles2") or T == 14107]
        rows = int((M.select(x["routing_logits"], x["routing_bias"]) // 32 == x["local_expert_offset"] // 32).sum())
        if T in (1536, 901): runs["tiles2"][1].NATIVE_UNITS = ((15872, TILES),)
        else: runs["tiles2"][1].NATIVE_UNITS = ((128, (1, 16)), (1536, (4, 64)), (15872, TILES))
        best = {s: [] for s in here}
        for _ in range(2):
            for s in here:
                m = timer.measure(lambda: runs[s][0](*x.values(), out), 2, 8, estimation_calls=1); best[s].append(m.latency_us)
        print(f"T={T} rows {rows}: " + " ".join(f"{s} {min(v):.0f}/{max(v):.0f} us {rows * 88.08e-6 / min(v) * 1e6:.0f} TFLOP/s;" for s, v in best.items()), flush=True)
        for s in here:
            for _ in range(2): runs[s][0](*x.values(), out)
            torch.cuda.synchronize(); rec = _Recording(cupti)
            with rec:
                flush.zero_(); torch.cuda.synchronize(); runs[s][0](*x.values(), out); torch.cuda.synchronize()
            acts = sorted([a for a in rec.activities if not any(k in a.name for k in ("Fill", "memset", "elementwise"))], key=lambda a: a.start_ns)
            print(f"   {s}: " + "; ".join(f"{a.name.split('(')[0].split('::')[-1][:24]} {(a.start_ns - acts[0].start_ns) / 1e3:.0f}..{(a.end_ns - acts[0].start_ns) / 1e3:.0f}" for a in acts), flush=True)
        if T >= 11948:
            r = {s: ratio(call(runs[s][0], x), reference(x, False)[0]) for s in here if s in ("main", "tiles2")}
            print("   matched ratio, all rows:", {s: round(v, 4) for s, v in r.items()}, flush=True)

def one(side, T):
    run, kernel = load(side); kernel.NATIVE_UNITS = ((15872, TILES),); w = weights(); x = workload(T, w)
    for _ in range(3): call(run, x)

verb, *rest = sys.argv[2:]
if verb == "build":
    run, kernel = load(rest[0])
    if kernel.run_native is not None:
        native = sys.modules[kernel.__name__.rpartition(".")[0] + ".native"]; print("built", native.load_native("moe.cu", (9, 0)).count_scratch_bytes(901))
elif verb == "check": check(rest[0])
elif verb == "time": timing(float(rest[0]), rest[1:])
elif verb == "one": one(rest[0], int(rest[1]))
