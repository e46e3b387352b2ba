"""gdn_prefill: every case of the new tree, then main and the new one in turns. lab.py SECONDS BUILT"""
import functools, json, os, statistics, subprocess, sys, time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, os.getcwd())
START = time.time()
import torch

from tests.oracles.gdn_prefill import (  # noqa: E402
    HEAD_SIZE, batch_of, count_wrong, empty_outputs, hard_inputs, oracle, random_inputs)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NEW = HERE / "tree" / "solutions"
sys.path.insert(0, str(HERE))
import patches  # noqa: E402

STEPS = ("fewer",)  # on the way from main to new
SIDES = {"main": Path("solutions"), "new": NEW} | {side: HERE / side / "solutions" for side in STEPS} | {side: NEW for side in patches.SIDES}
GROUPS = ("segments", "seams", "official", "hostile", "stale", "chunks", "tiny")


# ---- inputs -------------------------------------------------------------------------------------
def on(inputs):
    return {n: x.to(DEVICE) if torch.is_tensor(x) else x for n, x in inputs.items()}


def norm2(lengths, equal):
    x = batch_of(lengths, 3)
    x["k"] *= 2
    if equal:
        x["k"] = x["k"][:1].repeat(sum(lengths), 1, 1)
        x["a"].fill_(-120.0)
        x["b"].fill_(120.0)
    return x


def slow(length):
    x = batch_of([length], 5)
    x["A_log"].fill_(-9.0)
    x["dt_bias"].fill_(-2.0)
    return x


def uneven(total, count, seed):
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(count, generator=g).exp()
    ends = (w.cumsum(0) / w.sum() * (total - count)).round().long()
    return (torch.diff(ends, prepend=torch.zeros(1, dtype=torch.long)) + 1).tolist()


def clipped(cu, total):
    x = batch_of([total], 9)
    x["cu_seqlens"] = torch.tensor(cu)
    x["state"] = x["state"][:1].repeat(len(cu) - 1, 1, 1, 1)
    return x


def clip(x):
    t = x["q"].shape[0]
    cu = x["cu_seqlens"].clamp(0, t)
    return x | {"cu_seqlens": cu}


WALK, SPLIT, WHOLE = -1, 0, 1 << 20  # most_whole
CASES = {
    "tiny": [
        ("walk [6]", WALK, lambda: batch_of([6], 1)),
        ("walk [5,0,9]", WALK, lambda: batch_of([5, 0, 9], 1)),
        ("walk [61]", WALK, lambda: batch_of([61], 2)),
        ("walk [130]", WALK, lambda: batch_of([130], 2)),
        ("walk hard 80", WALK, lambda: hard_inputs([0, 80], 2)),
        ("walk norm 2 equal [16]*8", WALK, lambda: norm2([16] * 8, True)),
        ("walk norm 2 equal [16]", WALK, lambda: norm2([16], True)),
        ("walk lead 3, tail 9", WALK, lambda: random_inputs([3, 3, 20], 7, total_seq_len=29)),
    ],
    "chunks": [
        ("[1]", SPLIT, lambda: batch_of([1], 1)),
        ("[64]", SPLIT, lambda: batch_of([64], 2)),
        ("[65]", SPLIT, lambda: batch_of([65], 2)),
        ("[134]", SPLIT, lambda: batch_of([134], 3)),
        ("[134] two groups", WHOLE, lambda: batch_of([134], 3)),
        ("[70,0,1,130]", SPLIT, lambda: batch_of([70, 0, 1, 130], 3)),
        ("[70,0,1,130] two groups", WHOLE, lambda: batch_of([70, 0, 1, 130], 3)),
        ("ring wraps, 700", SPLIT, lambda: batch_of([700], 4)),
        ("ring wraps, 700, two groups", WHOLE, lambda: batch_of([700], 4)),
        ("awkward", WHOLE, lambda: batch_of([0, 1, 2, 0, 31, 63, 64, 65, 129, 0], 3)),
        ("no state, scale -0.25", SPLIT, lambda: batch_of([300, 7], 1) | {"state": None, "scale": -0.25}),
        ("scale None", WHOLE, lambda: batch_of([300, 7], 1) | {"scale": None}),
        ("lead 100, tail 70", SPLIT, lambda: random_inputs([100, 100, 400], 7, total_seq_len=470)),
        ("cu [-5,200] of 130", SPLIT, lambda: clipped([-5, 200], 130)),
    ],
    "hostile": [
        ("hard 300", SPLIT, lambda: hard_inputs([0, 300], 2)),
        ("hard 100 x 4", WHOLE, lambda: hard_inputs([0, 100, 200, 300, 400], 2)),
        ("hard 1000 x 16", WHOLE, lambda: hard_inputs([1000 * i for i in range(17)], 2)),
        ("slow decay 4096", SPLIT, lambda: slow(4096)),
        ("norm 2 [100,64]", SPLIT, lambda: norm2([100, 64], False)),
        ("[1]*200", WHOLE, lambda: batch_of([1] * 200, 1)),
        ("[0]*70+[90]", WHOLE, lambda: batch_of([0] * 70 + [90], 1)),
        ("split above 3: [64*5, 30, 500, 0, 200]", 3, lambda: batch_of([320, 30, 500, 0, 200], 1)),
        ("[1]*400, no order", 7, lambda: batch_of([1] * 400, 1)),
        ("uneven 60", 1, lambda: batch_of([37 * i % 150 for i in range(60)], 6)),
        ("[3,0]*100+[700]", WHOLE, lambda: batch_of([3, 0] * 100 + [700], 1)),
    ],
    "official": [
        (f"{t}/{n}", None, lambda t=t, n=n: batch_of(uneven(t, n, t), n))
        for t, n in [(6, 1), (35, 2), (61, 1), (76, 2), (85, 2), (134, 1), (255, 3), (832, 4), (983, 2),
                     (2107, 1), (3028, 5), (4124, 15), (5709, 2), (8192, 20), (8192, 57)]
    ],
}


def large(shift):
    x = batch_of([4096], 24)
    x["state"] *= 200.0
    x["A_log"].fill_(-9.0)
    x["dt_bias"].fill_(-2.0)
    x["b"] += shift
    return x


CUT = ([1216], [1217], [1280, 64], [4096], [2050, 0, 2046], [1408, 1344, 1344], [0, 0, 2500, 130, 0], [2560, 1, 1, 1, 1], [3072, 1, 1, 1, 1, 1],
       [6080], [6081], [6100, 4000], [10240], [8000, 8000], [2107])
CASES["segments"] = [(str(x), SPLIT, lambda x=x: batch_of(x, sum(x))) for x in CUT]
CASES["seams"] = [
    ("hard 1500", SPLIT, lambda: hard_inputs([0, 1500], 23)),
    ("hard 0, 2600, 1600", SPLIT, lambda: hard_inputs([0, 0, 2600, 4200], 23)),
    ("hard 10240", SPLIT, lambda: hard_inputs([0, 10240], 23)),
    ("slow decay 1300", SPLIT, lambda: slow(1300)),
    ("slow decay 8192", SPLIT, lambda: slow(8192)),
    ("large states, beta 0.02", SPLIT, lambda: large(-4.0)),
    ("large states, beta 0.5", SPLIT, lambda: large(0.0)),
    ("no state, scale -0.25, 1300", SPLIT, lambda: batch_of([1300, 7], 1) | {"state": None, "scale": -0.25}),
    ("lead 100, tail 70, 1300", SPLIT, lambda: random_inputs([100, 100, 1400], 7, total_seq_len=1470)),
    ("cu [-5,3000] of 2600", SPLIT, lambda: clipped([-5, 3000], 2600)),
]
STALE = (([4709, 1000], SPLIT), ([10240], SPLIT), ([2107], SPLIT), ([37 * i % 150 for i in range(60)], 1), ([64] * 60, 9),
         ([2231, 1029, 896, 839, 610, 374] + [150] * 14, 9), ([3] * 400, 7))
CASES["stale"] = [None] * len(STALE)


# ---- running --------------------------------------------------------------------------------------
def launch(inputs, groups, poison=True):
    """(output, new_state, scratch) with the groups given."""
    outputs = empty_outputs(inputs)
    if poison:
        for x in outputs:
            x.fill_(float("nan"))
    t, n = inputs["q"].shape[0], inputs["cu_seqlens"].shape[0] - 1
    scale = inputs["scale"] or HEAD_SIZE**-0.5
    module, _ = native()
    scratch = torch.full((module.count_scratch(t, n) if groups >= 0 else 0,), 255, dtype=torch.uint8, device=DEVICE)
    args = [x for name, x in inputs.items() if name != "scale"]
    module.prefill(*args, float(scale), *outputs, scratch, groups)
    torch.cuda.synchronize()
    return (*outputs, scratch)


def compare(got, want):
    d = (got.double() - want).abs()
    bad = ~torch.isfinite(got)
    return count_wrong(got, want), (d[~bad].max().item() if (~bad).any() else float("nan")), int(bad.sum())


# ---- where it is wrong --------------------------------------------------------------------------
def untile(raw, tiles):
    """[..., tiles * 8192] bytes -> [..., 64, tiles * 64] fp16 values, chunks put back in order."""
    x = raw.reshape(*raw.shape[:-1], tiles, 64, 8, 16)
    rows = torch.arange(64, device=raw.device)[:, None]
    order = torch.arange(8, device=raw.device)[None] ^ (rows % 8)
    x = x[..., rows, order, :].contiguous()
    x = x.view(torch.float16)  # [..., tiles, 64, 8, 8]
    x = x.reshape(*x.shape[:-4], tiles, 64, 64).transpose(-3, -2).reshape(*x.shape[:-4], 64, tiles * 64)
    if tiles == 2:  # keys: of every 16 the even pairs first
        at = torch.arange(128, device=x.device)
        x = x[..., at // 16 * 16 + at % 4 // 2 * 8 + at % 16 // 4 * 2 + at % 2]
    return x


def locate(inputs, got, scratch):
    """Prints which of solve's results differ, then where outputs do."""
    x = {n: (v.cpu() if torch.is_tensor(v) else v) for n, v in inputs.items()}
    scratch = scratch.cpu()
    t, cu = x["q"].shape[0], x["cu_seqlens"].clamp(0, x["q"].shape[0]).tolist()
    n = len(cu) - 1
    slots, ops, sol = t // 64 + n, 32768, 24832
    operands = scratch[: slots * 4 * ops].view(slots, 4, ops)
    solved = scratch[slots * 4 * ops : slots * (4 * ops + 8 * sol)].view(slots, 8, sol)
    rate, bias = x["A_log"].double().exp(), x["dt_bias"].double()
    logg = (-rate * torch.nn.functional.softplus(x["a"].double() + bias)).clamp_min(-1e4)
    beta = torch.sigmoid(x["b"].double())
    scale = x["scale"] or HEAD_SIZE**-0.5
    seen = 0
    for s in range(n):
        for c in range(-(-(cu[s + 1] - cu[s]) // 64)):
            slot, lo = cu[s] // 64 + s + c, cu[s] + 64 * c
            hi = min(lo + 64, cu[s + 1])
            m, worst = hi - lo, {}
            for h in range(8):
                k, q = x["k"][lo:hi, h // 2].double(), x["q"][lo:hi, h // 2].double()
                g = logg[lo:hi, h].cumsum(0)
                d = torch.exp(g[:, None] - g[None]).tril()
                a = (beta[lo:hi, h][:, None] * (k @ k.T) * d).tril(-1)
                tm = torch.linalg.solve_triangular(torch.eye(m).double() + a, torch.diag(beta[lo:hi, h]), upper=False)
                w = (torch.exp(g[-1] - g)[:, None] * tm).T @ k
                r = (scale * (q @ k.T) * d @ tm).T
                parts = {
                    "keys": (untile(operands[slot, h // 2, :16384], 2)[:m], k),
                    "queries": (untile(operands[slot, h // 2, 16384:], 2)[:m], q),
                    "writes": (untile(solved[slot, h, :16384], 2)[:m], w),
                    "reads": (untile(solved[slot, h, 16384:24576], 1)[:m, :m], r),
                    "carry": (solved[slot, h, 24576:].contiguous().view(torch.float32)[:m], torch.exp(g)),
                }
                for name, (have, want) in parts.items():
                    e = (have.double() - want).abs()
                    e = torch.where(torch.isfinite(have.double()), e, torch.full_like(e, float("inf")))
                    size = want.abs().max().item() + 1e-9
                    if e.max().item() / size > 4e-3:
                        rows = [f"{e[i:i+16].max().item():.1e}" for i in range(0, m, 16)]
                        worst.setdefault(name, []).append(f"head {h} by 16 rows {rows} of {size:.1e}")
            for name, lines in worst.items():
                print(f"    seq {s} chunk {c} slot {slot}: {name} differs in {len(lines)} heads: {lines[0]}")
            seen += bool(worst)
            if seen > 3:
                return
    if not seen:
        print("    solve's results are all right: the scan is wrong")
    want, want_state = oracle(**clip(x))
    for name, have, ref in (("output", got[0].cpu(), want), ("state", got[1].cpu(), want_state)):
        e = (have.double() - ref).abs()
        e = torch.where(torch.isfinite(have.double()), e, torch.full_like(e, float("inf")))
        if name == "output":
            for s in range(n):
                for c in range(min(3, -(-(cu[s + 1] - cu[s]) // 64))):
                    lo, hi = cu[s] + 64 * c, min(cu[s] + 64 * c + 64, cu[s + 1])
                    b = e[lo:hi]
                    heads = [f"{v:.0e}" for v in b.amax((0, 2)).tolist()]
                    cols = [f"{v:.0e}" for v in b.amax((0, 1)).view(8, 16).amax(1).tolist()]
                    toks = [f"{b[i:i+8].max().item():.0e}" for i in range(0, hi - lo, 8)]
                    print(f"    output seq {s} chunk {c}: heads {heads} 16 values {cols} 8 tokens {toks}")
                if s > 2:
                    break
        else:
            rows = [f"{v:.0e}" for v in e.amax((0, 1, 3)).view(8, 16).amax(1).tolist()]
            cols = [f"{v:.0e}" for v in e.amax((0, 1, 2)).view(8, 16).amax(1).tolist()]
            print(f"    state: 16 values {rows}, 16 keys {cols}, heads {[f'{v:.0e}' for v in e.amax((0, 2, 3)).tolist()]}")


def check(group):
    for name, groups, make in CASES[group]:
        print(f"CASE {name}", flush=True)
        inputs = on(make())
        if DEVICE == "cpu" and inputs["q"].shape[0] > 1500:
            continue
        t, n = inputs["q"].shape[0], inputs["cu_seqlens"].shape[0] - 1
        if groups is None:
            if DEVICE == "cpu" and t > 140:
                continue
            _, kernel = native() if DEVICE == "cuda" else (None, None)
            groups = kernel.choose(t, n, capability=(9, 0), can_build=True)[1]["most_whole"] if kernel else 9
            groups = WALK if groups is None else groups
        got = launch(inputs, groups)
        want = oracle(**clip(inputs))
        results = [compare(a, b) for a, b in zip(got[:2], want)]
        empty = torch.diff(inputs["cu_seqlens"].clamp(0, t)) <= 0
        rest = "" if not got[1][empty].any() else " EMPTY SEQUENCE NOT ZERO"
        if DEVICE == "cuda":
            again = [launch(inputs, groups) for _ in range(8 if group in ("segments", "seams") else 1)]
            if not all(torch.equal(a, b) for x in again for a, b in zip(got[:2], x[:2])):
                rest += " NOT REPEATABLE"
            if name.startswith("hard") and not torch.equal(got[1][~empty][:, 3], inputs["state"][~empty][:, 3]):
                rest += " g = 1, beta = 0 NOT EXACT"
        ok = all(r[0] == 0 for r in results) and not rest
        if ok:
            print(f"ok   {name} @{groups}: {results[0][1]:.0e} {results[1][1]:.0e}", flush=True)
        else:
            print(f"BAD  {name} most_whole {groups}: output {results[0][0]} wrong, worst {results[0][1]:.1e}, "
                  f"{results[0][2]} not finite; state {results[1][0]} wrong, worst {results[1][1]:.1e}, {results[1][2]} not finite{rest}", flush=True)
        if not ok and groups >= 0:
            locate(inputs, got, got[2])




def check_stale():
    """Two batches in turns in one scratch: counts and chunks of the one before are there."""
    for lengths, whole in STALE:
        print(f"CASE stale {len(lengths)}", flush=True)
        module, batches = load(os.environ.get("SIDE", "new")), [on(batch_of(lengths, seed)) for seed in (20, 21)]
        scratch = torch.full((module.count_scratch(sum(lengths), len(lengths)),), 2, dtype=torch.uint8, device=DEVICE)
        def run(x):
            out = empty_outputs(x)
            module.prefill(*[v for n, v in x.items() if n != "scale"], HEAD_SIZE**-0.5, *out, scratch, whole)
            return out
        wants, bad = [run(x) for x in batches], 0
        for _ in range(30):
            for x, want in zip(batches, wants):
                bad += not all(torch.equal(a, b) for a, b in zip(run(x), want))
        torch.cuda.synchronize()
        wrong = sum(count_wrong(a, b) for x, want in zip(batches, wants) for a, b in zip(want, oracle(**x)))
        print(f"{'BAD ' if bad or wrong else 'ok  '} stale {len(lengths)}: {bad} of 60 calls differ, {wrong} wrong", flush=True)


def build(side):
    """prefill.so of a side, by nvcc alone; tvm_ffi has no part in it."""
    import re, shutil, tvm_ffi.libinfo as info
    begin, folder = time.time(), BUILT / side
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("common/*.cuh", "gdn_prefill/*.cu*"):
        for f in SIDES[side].glob(pattern):
            shutil.copy(f, folder)
    if side not in ("main", "new", *STEPS):
        patches.apply(side, folder)
    nvcc = next(p for p in (shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc", "/usr/local/cuda-13.0/bin/nvcc") if p and Path(p).exists())
    lib = str(Path(info.find_libtvm_ffi()).parent)
    done = subprocess.run([nvcc, "-gencode=arch=compute_90a,code=sm_90a", "-O3", "-std=c++17", "-Xptxas", "-v",
                           "-I" + info.find_include_path(), "-I" + info.find_dlpack_include_path(), "prefill.cu", "-shared", "-cudart", "shared",
                           "-Xcompiler", "-fPIC", "-o", "prefill.so", "-L" + lib, "-ltvm_ffi", "-Xlinker", "-rpath=" + lib],
                          cwd=folder, capture_output=True, text=True)
    text = done.stdout + done.stderr
    lines = [x for x in text.splitlines() if re.search("error|C75|[1-9][0-9]* bytes spill", x)]
    used = re.findall(r"Used (\d+) registers", text)
    print(f"build {side}: exit {done.returncode}, {time.time() - begin:.0f} s, registers {used}, {misread(folder)}" + "".join("\n  " + x[:150] for x in lines), flush=True)


def misread(folder):
    """Instructions with a descriptor in an odd uniform register: what the assembler makes of cp.async with a cache hint in a loop."""
    import re, shutil, sysconfig
    dump = shutil.which("cuobjdump") or next(iter(Path(sysconfig.get_paths()["purelib"]).glob("triton/backends/nvidia/bin/cuobjdump")), None)
    if dump is None:
        return "no cuobjdump"
    env = os.environ | {"PATH": f"{Path(dump).parent}:{os.environ['PATH']}"}
    text = subprocess.run([str(dump), "--dump-sass", "prefill.so"], cwd=folder, capture_output=True, text=True, env=env).stdout
    odd = len(re.findall(r"desc\[UR\d*[13579]\]", text))
    return f"{odd} misread descriptors" if text.count("LDGSTS") else "no listing"


@functools.cache
def load(side):
    import tvm_ffi
    return tvm_ffi.load_module(str(BUILT / side / "prefill.so"))


@functools.cache
def load_kernel():
    """kernel.py, for choose()."""
    import importlib, importlib.util, shutil
    folder = BUILT / "py"
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").touch()
    for pattern in ("common/*.py", "gdn_prefill/*.py"):
        for f in SIDES["new"].glob(pattern):
            shutil.copy(f, folder)
    spec = importlib.util.spec_from_file_location("room", folder / "__init__.py", submodule_search_locations=[str(folder)])
    sys.modules["room"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["room"])
    return importlib.import_module("room.kernel")


def native():
    return load(os.environ.get("SIDE", "new")), load_kernel()


def official_rows():
    from harness.dataset.gdn import sequence_lengths
    path = next(Path("workloads").rglob("gdn_prefill*.jsonl"))
    for line in path.read_text().splitlines():
        w = json.loads(line)
        w = w.get("workload", w)
        axes = w["axes"]
        yield axes["total_seq_len"], axes["num_seqs"], sequence_lengths(w["uuid"], axes["total_seq_len"], axes["num_seqs"])


SHAPES = [(5709, 2), (3028, 5), (3271, 2), (2107, 1), (4096, 1), (8192, 20), (8192, 57), (8192, 32), (983, 2), (832, 4), (1377, 1), (2857, 3), (4096, 3),
          (65536, 1), (8192, 1), (8192, 2), (2040, 2), (1800, 3), (134, 1)]
LENGTHS = {(4096, 3): [1366, 1365, 1365], (8192, 2): [4096, 4096]}
VARIANTS = {(5709, 2): ("nocut", "three", "four", "ahead0", "ahead8", "begin_late", "x_single"), (2107, 1): ("nocut", "three", "ahead0", "ahead8", "begin_late", "x_single"),
            (3028, 5): ("nocut",), (3271, 2): ("nocut", "three"), (4096, 1): ("two", "three", "four", "ahead8"), (65536, 1): ("two", "nocut"), (8192, 1): ("two", "four"),
            (8192, 2): ("nocut", "four"), (4096, 3): ("nocut",), (983, 2): ("nocut",), (832, 4): ("nocut",)}


def lengths_of(rows, t, n):
    return rows.get((t, n)) or LENGTHS.get((t, n)) or uneven(t, n, t)


def caller(side, inputs, whole):
    module, outputs = load(side), empty_outputs(inputs)
    t, n = inputs["q"].shape[0], inputs["cu_seqlens"].shape[0] - 1
    args = [x for key, x in inputs.items() if key != "scale"]
    make = lambda: torch.empty(module.count_scratch(t, n) if whole >= 0 else 0, dtype=torch.uint8, device="cuda")
    scratch = make()
    return lambda: module.prefill(*args, HEAD_SIZE**-0.5, *outputs, scratch, whole)


def spans(timer, call, flush, repeats=15):
    """us, medians: the whole call; of each kernel begin and end from the call's begin."""
    from harness.timing import _Recording
    call()
    recording = _Recording(timer._cupti)
    with recording:
        for _ in range(repeats):
            flush.zero_()
            torch.cuda.synchronize()
            call()
            torch.cuda.synchronize()
    work = sorted((a.start_ns, a.end_ns, k) for a in recording.activities for k in ("walk", "solve", "scan") if k + "_kernel" in a.name)
    calls = []
    for begin, end, kind in work:
        if kind != "scan" or not calls or len(calls[-1]) != 1 or calls[-1][0][2] != "solve":
            calls.append([])
        calls[-1].append((begin, end, kind))
    calls = calls[1:]
    total = statistics.median(max(e for _, e, _ in c) - c[0][0] for c in calls) / 1e3
    parts = []
    for i in range(len(calls[0])):
        begin, end = (statistics.median(c[i][j] - c[0][0] for c in calls) / 1e3 for j in (0, 1))
        parts.append(f"{calls[0][i][2]} {begin:.1f}-{end:.1f}")
    return total, ", ".join(parts)


def timed(seconds):
    from harness.timing import CuptiTimer
    stop, timer, kernel = time.time() + seconds, CuptiTimer("cuda:0"), load_kernel()
    flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.int8, device="cuda")
    rows = {}
    for t, n, lengths in official_rows():
        rows.setdefault((t, n), lengths)
    for t, n in SHAPES:
        if time.time() > stop:
            print(f"skipped from {t}/{n} on")
            break
        chosen = kernel.choose(t, n, capability=(9, 0), can_build=True)[1]["most_whole"]
        lengths = lengths_of(rows, t, n)
        inputs = on(batch_of(lengths, 1))
        sides = ["main", *STEPS, "new", *VARIANTS.get((t, n), ())]
        calls = {side: caller(side, inputs, chosen) for side in sides}
        seen = {side: [] for side in sides}
        for _ in range(3):
            for side in sides:
                seen[side].append(spans(timer, calls[side], flush, 11 if t < 20000 else 5))
        print(f"  {t}/{n}: chunks {sorted((-(-x // 64) for x in lengths), reverse=True)[:8]}")
        for side in sides:
            total = statistics.median(x[0] for x in seen[side])
            print(f"  {t:5d}/{n:<3d} {side:10s} {total:6.2f} us ({min(x[0] for x in seen[side]):.2f} to {max(x[0] for x in seen[side]):.2f})  {seen[side][1][1]}", flush=True)


def quantiles(values):
    values = sorted(values)
    return " ".join(f"{values[min(int(len(values) * q), len(values) - 1)]:6.1f}" for q in (0, 0.1, 0.5, 0.9, 0.9999)) if values else "none"


KINDS = {0: "outputs", 1: "later outputs", 2: "first states", 3: "later states", 4: "transition"}


def stamped():
    """When CTAs and units begin and end, us from the first CTA of the call; cycles of a chunk's stages, by kind of unit."""
    rows, kernel = {}, load_kernel()
    for t, n, lengths in official_rows():
        rows.setdefault((t, n), lengths)
    flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.int8, device="cuda")
    module = load("stamps")
    size = (patches.CTAS, 12, patches.ROUNDS, patches.MARKS)
    for t, n in ((5709, 2), (2107, 1), (3271, 2), (3028, 5), (4096, 1), (65536, 1)):
        whole = kernel.choose(t, n, capability=(9, 0), can_build=True)[1]["most_whole"]
        call = caller("stamps", on(batch_of(lengths_of(rows, t, n), 1)), whole)
        kept, logs, ctas = [], [], None
        for i in range(6):
            flush.zero_()
            torch.cuda.synchronize()
            call()
            scan, cta = torch.zeros(size, dtype=torch.int32, device="cuda"), torch.zeros((2, 160, 4), dtype=torch.int64, device="cuda")
            log = torch.zeros((160, 96, 3), dtype=torch.int64, device="cuda")
            module.read_log(log)
            module.read_stamps(scan, cta, torch.zeros((2, 160, 16, 4, 16), dtype=torch.int32, device="cuda"))
            if i > 1:
                kept.append(scan.cpu().long() & 0xffffffff)
                logs.append(log.cpu())
            ctas = cta.cpu()
        print(f"stamps {t}/{n}")
        began = ctas[1, :, 0][ctas[1, :, 0] > 0].min().item()
        for k, kind in ((1, "solve"), (0, "scan")):
            c = ctas[k][ctas[k, :, 0] > 0]
            print(f"  {kind}: {len(c)} CTAs, us: begin {quantiles(((c[:, 0] - began) / 1e3).tolist())}, end {quantiles(((c[:, 1] - began) / 1e3).tolist())}")
        log = logs[-1].reshape(-1, 3)
        log = log[log[:, 2] > 0]
        what, start, end = log[:, 0], (log[:, 1] - began) / 1e3, (log[:, 2] - began) / 1e3
        for kind in range(5):
            for later in range(4):
                of = (what % 16 == kind) & (what // 16 % 16 == later)
                if of.any():
                    chunks = (what[of] // 65536 % 65536).tolist()
                    print(f"  {KINDS[kind]:13s} of segment {later} (0: first ones): {int(of.sum())} units of {min(chunks)} to {max(chunks)} chunks, us: begin {quantiles(start[of].tolist())}, "
                          f"end {quantiles(end[of].tolist())}, takes {quantiles((end[of] - start[of]).tolist())}")
        for kind in (2, 3, 4):
            lines, whole_chunk = [[] for _ in range(9)], []
            for scan, log in zip(kept, logs):
                first = log[: patches.CTAS, 1, 0]  # a CTA's first unit: later ones take the places of its chunks
                second = log[: patches.CTAS, 2, 0]
                of = (log[: patches.CTAS, 1, 2] > 0) & (first % 16 == kind) & ~((log[: patches.CTAS, 2, 2] > 0) & (second % 16 >= 2))
                x = scan[of][:, 0, 3:, :10].reshape(-1, patches.ROUNDS - 3, 10)
                good = (x[..., 0] > 0) & (x[..., 9] > 0)
                d = (x[..., 1:] - x[..., :-1]) & 0xffffffff
                for i in range(9):
                    lines[i] += d[..., i][good].tolist()
                both = good[:, :-1] & good[:, 1:] & (((x[:, 1:, 0] - x[:, :-1, 0]) & 0xffffffff) < 20000)
                whole_chunk += ((x[:, 1:, 0] - x[:, :-1, 0]) & 0xffffffff)[both].tolist()
            if whole_chunk:
                print(f"  a chunk of {KINDS[kind]}: {statistics.median(whole_chunk):.0f} cycles (mean {statistics.mean(whole_chunk):.0f}): "
                      + ", ".join(f"{a} {statistics.median(b):.0f}/{statistics.mean(b):.0f}" for a, b in zip(patches.STATE_NAMES, lines)))


def diagnose():
    """Which kernel and which warps a call dies in: runs that grow, each in a process of its own; the places outlive the context."""
    import collections, ctypes
    lengths, whole = json.loads(os.environ["LENGTHS"]), int(os.environ["WHOLE"])
    module, inputs = load("crumbs"), on(batch_of(lengths, 1))
    at = module.arm_crumbs()
    t, n = sum(lengths), len(lengths)
    scratch, out = torch.full((module.count_scratch(t, n),), 2, dtype=torch.uint8, device=DEVICE), empty_outputs(inputs)
    torch.cuda.synchronize()
    error = "runs"
    try:
        module.prefill(*[v for k, v in inputs.items() if k != "scale"], HEAD_SIZE**-0.5, *out, scratch, whole)
        torch.cuda.synchronize()
    except Exception as e:
        error = str(e).splitlines()[0][:100]
    print(f"  {t} tokens, {n} sequences, most whole {whole}, {4 * sum(-(-x // 64) for x in lengths)} tasks: {error}", flush=True)
    if error == "runs":
        return
    words = (ctypes.c_uint32 * (2 * 160 * 16)).from_address(at)
    for kernel, name, warps in ((1, "solve", 16), (0, "scan", 12)):
        for warp in range(warps):
            seen = collections.Counter(words[(kernel * 160 + cta) * 16 + warp] for cta in range(160))
            seen.pop(0, None)
            if seen:
                print(f"    {name} warp {warp:2d}: " + ", ".join(f"{patches.PLACES.get(k, k)} {c}" for k, c in seen.most_common(6)), flush=True)


def say_where(say):
    """Sizes that end in the first that fails: few tasks, one more than a round of 232, many units."""
    for lengths, whole in (([64] * 2, 0), ([1216], 0), ([1217], 0), ([2107], 0), ([4709, 1000], 0), ([6100], 0), ([10240], 0), ([64] * 60, 1 << 20)):
        os.environ["LENGTHS"], os.environ["WHOLE"] = json.dumps(lengths), str(whole)
        code, text = finish(*start("where", 0), 20)
        say(text.rstrip() if code == 0 else f"{text.rstrip()}\n  {len(lengths)} sequences: exit {code}")
        if code != 0 or "warp" in text:
            break


def start(name, seconds):
    out = Path(BUILT, "out-" + name)
    with out.open("w") as to:
        return subprocess.Popen([sys.executable, __file__, "step", str(BUILT), name, str(seconds)], stdout=to, stderr=subprocess.STDOUT), out


def finish(child, out, limit):
    try:
        code = child.wait(timeout=max(limit, 1))
    except subprocess.TimeoutExpired:
        child.kill()
        code = "HANGS OR TOO SLOW"
    return code, out.read_text()


GROUP_LIMIT = 90  # s, of the groups of cases, all at once


def main(seconds):
    lines = []

    def say(text):
        lines.append(text)
        print(text, flush=True)

    builds = {side: start("build-" + side, 0) for side in sorted(SIDES, key=("new", "main").__contains__, reverse=True)}
    say(finish(*builds.pop("new"), 60)[1].rstrip())
    running = {name: start(name, 0) for name in GROUPS}  # at once: most of their time is the oracle's
    right = total = 0
    is_dead, begun = False, time.time()
    for name in GROUPS:
        code, text = finish(*running[name], begun + GROUP_LIMIT - time.time())
        fine = [x[5:].split(" @")[0].split(":")[0] for x in text.splitlines() if x.startswith("ok ")]
        kept = [x for x in text.splitlines() if not x.startswith(("CASE", "ok"))]
        tried = [x[5:] for x in text.splitlines() if x.startswith("CASE")]
        right, total = right + len(fine), total + len(CASES[name])
        say(f"{name}: exit {code}, {len(fine)} of {len(CASES[name])} right ({', '.join(fine)}), {time.time() - START:.0f} s" + (f"; last tried {tried[-1:]}" if code != 0 else "")
            + "".join("\n" + x for x in kept[-12:] if x))
        is_dead |= code != 0
    say(f"CASES {right} of {total} right")
    for child, out in builds.values():
        say(finish(child, out, 90)[1].rstrip())
    if is_dead:
        say("where it dies (last place of each warp, and of how many CTAs):")
        say_where(say)
    if not is_dead:
        code, text = finish(*start("stamps", 0), 30)
        say(f"stamps: exit {code}\n{text[-20000:]}")
        code, text = finish(*start("time", max(START + seconds - time.time() - 4, 15)), max(START + seconds - time.time(), 20))
        say(f"time: exit {code}\n{text[-15000:]}")
    say(f"SUMMARY {right} of {total} cases right, {time.time() - START:.0f} s")
    if os.environ.get("OUT"):
        Path(os.environ["OUT"], "prefill8.txt").write_text("\n".join(lines))
    sys.exit(0 if right == total else 1)


def step(name, seconds):
    if name == "time":
        timed(seconds)
    elif name == "stamps":
        stamped()
    elif name == "where":
        diagnose()
    elif name.startswith("build-"):
        build(name[6:])
    else:
        print("", flush=True)
        check_stale() if name == "stale" else check(name)


if __name__ == "__main__":
    BUILT = Path(sys.argv[2])
    if sys.argv[1] == "step":
        step(sys.argv[3], float(sys.argv[4]))
    else:
        main(float(sys.argv[1]))
