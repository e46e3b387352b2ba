"""Checks and timings of moe's tiles; see run.sh. python3 lab.py FOLDER VERB ..."""
import sys, time, zlib
from pathlib import Path
START = time.monotonic(); FOLDER = Path(sys.argv[1])
import numpy as np, torch
from harness.config import load_workspace
import tests.oracles.moe as M
DEV = "cuda"

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

def ties(T): return torch.zeros(T, 256)
def odd(T):
    lg = rand(T, T); g = torch.Generator().manual_seed(T); lg[torch.rand(T, 256, generator=g) < 0.3] = float("nan"); lg[torch.rand(T, 256, generator=g) < 0.2] = -float("inf"); return lg
NONE, ALL = list(range(100, 108)), list(range(72, 80))
# name, logits, offset of the first local expert
CASES = [(f"rand {T}", lambda T=T: rand(T, T), 64) for T in (1, 16, 58, 128, 129, 200, 353, 901, 1024, 1535, 1536, 1537, 2048, 5000, 14107)]
CASES += [("none 300", lambda: M.route_to([NONE] * 300), 64), ("31 32 33", lambda: counts_to(31, 32, 33, 90), 64), ("63 64 65", lambda: counts_to(63, 64, 65), 64), ("127 128 129", lambda: counts_to(127, 128, 129, 40), 64),
    ("one with all 1000", lambda: counts_to(0, 1000, 0), 64), ("all local 1536", lambda: M.route_to([ALL] * 1536), 64), ("all local 2000", lambda: M.route_to([ALL] * 2000), 64), ("one with all 5000", lambda: counts_to(0, 5000, 0), 64),
    ("192 193 1320", lambda: counts_to(192, 193, 1320, 3), 64), ("0 to 8 experts", lambda: M.route_to([[*range(72, 72 + t % 9), *range(8 - t % 9)] for t in range(900)]), 64), ("0 to 8 experts, tiles", lambda: M.route_to([[*range(72, 72 + t % 9), *range(8 - t % 9)] for t in range(1700)]), 64),
    ("NaN 700", lambda: odd(700), 32), ("offset 240", lambda: rand(200, 10), 240), ("offset 10**6", lambda: rand(200, 10), 10**6)]

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

def bits(x): return x.view(torch.int16)
def near(out, want):
    """Largest difference, of the token's root mean square: what the other order of sums in C's products may do."""
    w = want.float(); scale = w.pow(2).mean(1, keepdim=True).sqrt() + 1e-20; return ((out.float() - w).abs() / scale).max().item() if len(w) else 0.0

def check(side):
    run, kernel = load(side); before, _ = load("base"); w = weights(); good = total = 0
    def say(name, ok, text=""):
        nonlocal good, total
        total += 1; good += ok
        print(f"{'ok  ' if ok else 'FAIL'} {name} {text}", flush=True)
    for name, make, offset in CASES:
        print("case", name, flush=True); x = M.random_inputs(make(), w, offset, seed=zlib.crc32(name.encode()) % 999, device=DEV); T = x["hidden_states"].shape[0]
        poison(); out = call(run, x); want = call(before, x); again = all(torch.equal(bits(out), bits(call(run, x))) for _ in range(2)); same = torch.equal(bits(out), bits(want)); far = near(out, want)
        ok = again and (same or (128 < T <= 1536 and far < 0.05)) and bool(torch.isfinite(out).all())
        r = ratio(out, reference(x, False)[0]) if T in (200, 901, 2048, 5000) and "rand" in name else None
        say(name, ok, f"same bits as before {same}, largest difference {far:.4f} of the rms, again {again}" + (f", matched ratio {r:.4f}" if r is not None else ""))
    for T in (17, 129, 901, 1536):
        print("graph", T, flush=True); x = M.random_inputs(rand(T, T), w, 64, seed=T, device=DEV); out = torch.empty(T, 7168, dtype=torch.bfloat16, device=DEV); poison(); call(run, x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph): run(*x.values(), out)
        oks = []
        for r in range(4):
            y = M.random_inputs(rand(T, 100 * T + r), w, 64, seed=T + r, device=DEV)
            for k in ("routing_logits", "routing_bias", "hidden_states", "hidden_states_scale"): x[k].view(torch.uint8).copy_(y[k].view(torch.uint8))
            want = call(before, x); out.fill_(float("nan")); graph.replay(); torch.cuda.synchronize(); oks.append(near(out, want) < 0.05)
            out.fill_(float("nan")); graph.replay(); graph.replay(); torch.cuda.synchronize(); oks.append(near(out, want) < 0.05)
        say(f"graph {T}", all(oks), str(oks.count(True)) + f" of {len(oks)} replays")
        del graph
    jobs = []
    for T in (1, 60, 901, 40, 16, 1536, 2000, 7):
        x = M.random_inputs(rand(T, 35), w, 32, seed=36, device=DEV); jobs.append((x, call(run, x), torch.empty(T, 7168, dtype=torch.bfloat16, device=DEV), torch.cuda.Stream()))
    print("streams", flush=True); bad = 0
    for r in range(20):
        for x, want, out, s in jobs: out.fill_(float("nan"))
        torch.cuda.synchronize()
        for _ in range(2):
            for x, want, out, s in jobs:
                with torch.cuda.stream(s): run(*x.values(), out)
        torch.cuda.synchronize(); bad += sum(not torch.equal(bits(want), bits(out)) for x, want, out, s in jobs)
    say("8 streams at once, 20 times", bad == 0, f"{bad} differ")
    for r in range(200):
        for x, want, out, s in jobs[:5]: run(*x.values(), out)
    torch.cuda.synchronize(); bad = sum(not torch.equal(bits(want), bits(out)) for x, want, out, s in jobs[:5]); say("1000 calls in a row", bad == 0)
    print(f"{side}: {good} of {total} cases, {time.monotonic() - START:.0f} s"); sys.exit(good != total)

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

LENGTHS = (901, 14107, 200, 1536, 11948, 2048, 80, 1, 15)
TILE_ONLY = ("turns", "math", "feedonly", "first")   # variants of tiles alone
STREAM_ONLY = ("pairs", "tiles", "noc", "short")      # of the stream to 1536 tokens
def is_here(side, T): return T > 128 and (T > 1536 if side.rpartition("_")[2] in TILE_ONLY else T <= 1536) if "_" in side else True
KERNELS = ("route_and_pack", "route_kernel", "pack_kernel", "tile_scales", "tile_kernel", "stream_kernel", "combine", "gate_up", "down")
def short(name): return next((k for k in KERNELS if k in name), name[:24])

def stages(run, x, out, flush, cupti, Recording):
    """Begin and end of each kernel of a cold call, us from the first one's begin; medians of five calls."""
    calls = []
    for _ in range(5):
        rec = Recording(cupti)
        with rec:
            flush.zero_(); torch.cuda.synchronize(); run(*x.values(), out); torch.cuda.synchronize()
        acts = sorted([a for a in rec.activities if any(k in a.name for k in KERNELS)], key=lambda a: a.start_ns)
        if acts: calls.append([(short(a.name), a.start_ns - acts[0].start_ns, a.end_ns - acts[0].start_ns) for a in acts])
    if not calls: return "no kernels recorded"
    many = max(len(c) for c in calls); calls = [c for c in calls if len(c) == many]; med = lambda v: sorted(v)[len(v) // 2] / 1e3
    return "; ".join(f"{calls[0][k][0]} {med([c[k][1] for c in calls]):.1f}..{med([c[k][2] for c in calls]):.1f}" for k in range(many))

def timing(budget, sides):
    """Cold calls of all sides in turns; then begin and end of each kernel."""
    from harness.timing import CuptiTimer, _Recording
    from cupti import cupti
    timer = CuptiTimer("cuda:0"); w = weights(); runs = {s: load(s) for s in sides}; flush = torch.empty(2**27, dtype=torch.int8, device=DEV)
    for T in LENGTHS:
        if time.monotonic() - START > budget: print("out of time before T =", T); return
        x = workload(T, w); out = torch.empty(T, 7168, dtype=torch.bfloat16, device=DEV)
        here = [s for s in sides if is_here(s, T)]
        rows = int((M.select(x["routing_logits"], x["routing_bias"]) // 32 == x["local_expert_offset"] // 32).sum())
        best = {s: [] for s in here}
        for _ in range(3):
            for s in here:
                m = timer.measure(lambda: runs[s][0](*x.values(), out), 1, 12 if T < 5000 else 6, estimation_calls=1); best[s].append(m.latency_us)
        print(f"T={T} rows {rows}: " + " ".join(f"{s} {min(v):.1f}/{sorted(v)[1]:.1f}/{max(v):.1f}" for s, v in best.items()), flush=True)
        for s in here: print(f"   {s}: {stages(runs[s][0], x, out, flush, cupti, _Recording)}", flush=True)
        if T in (901, 14107): print("   matched ratio, all rows:", {s: round(ratio(call(runs[s][0], x), reference(x, False)[0]), 4) for s in here if "_" not in s}, flush=True)

verb, *rest = sys.argv[2:]
if verb == "build":
    run, kernel = load(rest[0])
    if kernel.run_native is not None:
        native = sys.modules[kernel.__name__.rpartition(".")[0] + ".native"]; print("built", native.load_native("moe.cu", (9, 0)).count_scratch_bytes(901))
elif verb == "check": check(rest[0])
elif verb == "time": timing(float(rest[0]), rest[1:])
