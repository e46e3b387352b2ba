"""gdn_prefill: every case of the new tree, then main and the new one in turns. lab.py SECONDS BUILT"""
import functools, json, os, signal, statistics, subprocess, sys, time
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
import stages  # noqa: E402

STEPS = ()  # on the way from main to new
SIDES = {"main": Path("solutions"), "new": NEW} | {side: HERE / side / "solutions" for side in STEPS} | {side: NEW for side in patches.SIDES} | {"mainstamps": Path("solutions")}
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


CUT = ([1216], [1217], [1280, 64], [4096], [1280, 2560], [1281, 2560], [2050, 0, 2046], [1408, 1344, 1344], [0, 0, 2500, 130, 0], [2560, 1, 1, 1, 1],
       [3072, 1, 1, 1, 1, 1], [3008], [3009], [6100, 2000], [10176], [10177], [8000, 4000], [2107])
CASES["segments"] = [(str(x), SPLIT, lambda x=x: batch_of(x, sum(x))) for x in CUT]
CASES["seams"] = [
    ("hard 1500", SPLIT, lambda: hard_inputs([0, 1500], 23)),
    ("hard 0, 2600, 1200", SPLIT, lambda: hard_inputs([0, 0, 2600, 3800], 23)),
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


ASKED = [(5709, 2), (2107, 1), (3028, 5), (3271, 2), (8192, 2)]
# on both sides of where the recurrence ends: by the route of choose() and as "walk", "chunks"
WALKED = [(50, 16), (134, 16)]
SHAPES = [*ASKED, (8192, 20), (8192, 57), (4096, 1), (65536, 1), (134, 1), (983, 2), (4800, 16), *WALKED]
LENGTHS = {(8192, 2): [4096, 4096]} | {(t, n): [t // n + (i < t % n) for i in range(n)] for t, n in [*WALKED, (134, 1), (4800, 16)]}
VARIANTS = {(5709, 2): ("nocut", "ahead0"), (2107, 1): ("nocut", "three"), (3028, 5): ("nocut",), (3271, 2): ("nocut", "any"), (8192, 2): ("nocut", "any"),
            (4096, 1): ("two", "four"), (65536, 1): ("two", "three"), (983, 2): ("nocut",)} | {shape: ("walk", "chunks") for shape in WALKED}
ROUTES = {"walk": WALK, "chunks": None}  # the new side by a route of its own; None: chunks, as choose() has them


def lengths_of(rows, t, n):
    return rows.get((t, n)) or LENGTHS.get((t, n)) or uneven(t, n, t)


def caller(side, inputs, whole):
    module, outputs = load("new" if side in ROUTES else side), empty_outputs(inputs)
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


def whole_of(t, n, side="new"):
    """most_whole of a call, by the route of the side."""
    kernel = load_kernel()
    if side == "chunks":  # as choose() has it where it does not take the recurrence
        shares, chunks = next(count for limit, count in kernel.SHARES if n <= limit), kernel.bound_chunks(t, n)
        return int(chunks / shares) if shares else chunks
    chosen = WALK if side == "walk" else kernel.choose(t, n, capability=(9, 0), can_build=True)[1]["most_whole"]
    return WALK if chosen is None else chosen


def timed(seconds):
    from harness.timing import CuptiTimer
    stop, timer = time.time() + seconds, CuptiTimer("cuda:0")
    flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.int8, device="cuda")
    rows = {}
    for t, n, lengths in official_rows():
        rows.setdefault((t, n), lengths)
    for t, n in SHAPES:
        lengths = lengths_of(rows, t, n)
        inputs = on(batch_of(lengths, 1))
        sides = ["main", *STEPS, "new", *VARIANTS.get((t, n), ())]
        sides = [side for side in sides if side in ROUTES or (BUILT / side / "prefill.so").exists()]
        calls = {side: caller(side, inputs, whole_of(t, n, side)) for side in sides}
        seen = {side: [] for side in sides}
        for turn in range(5 if (t, n) in ASKED else 3):
            if time.time() > stop:
                break
            for side in sides if turn % 2 == 0 else sides[::-1]:
                seen[side].append(spans(timer, calls[side], flush, 11 if t < 20000 else 5))
        if not all(seen.values()):
            print(f"  time is up: skipped from {t}/{n} on, {len(SHAPES) - SHAPES.index((t, n))} shapes", flush=True)
            return
        print(f"  {t}/{n}: chunks {sorted((-(-x // 64) for x in lengths), reverse=True)[:8]}, most_whole {whole_of(t, n)}")
        for side in sides:
            total = statistics.median(x[0] for x in seen[side])
            ratio = statistics.median(x[0] / y[0] for x, y in zip(seen[side], seen["new"]))
            print(f"  {t:5d}/{n:<3d} {side:10s} {total:6.2f} us ({min(x[0] for x in seen[side]):.2f} to {max(x[0] for x in seen[side]):.2f}), {ratio:.3f} of new  {seen[side][0][1]}", flush=True)


def quantiles(values):
    values = sorted(values)
    return " ".join(f"{values[min(int(len(values) * q), len(values) - 1)]:6.1f}" for q in (0, 0.1, 0.5, 0.9, 0.9999)) if values else "none"


KINDS = {0: "outputs", 1: "later outputs", 2: "first states", 3: "later states", 4: "transition"}


def stamped(seconds):
    """When CTAs and units begin and end, us from the first CTA of the call; the way along its dependencies; cycles of a chunk's stages, by kind of unit."""
    rows, stop = {}, time.time() + seconds
    for t, n, lengths in official_rows():
        rows.setdefault((t, n), lengths)
    flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.int8, device="cuda")
    module = load("stamps")
    size = (patches.CTAS, 12, patches.ROUNDS, patches.MARKS)
    for t, n in ((5709, 2), (2107, 1), (8192, 20), (8192, 57), (3028, 5), (4096, 1), (134, 1), (983, 2)):
        if time.time() > stop:
            print(f"stamps: time is up before {t}/{n}")
            return
        call = caller("stamps", on(batch_of(lengths_of(rows, t, n), 1)), whole_of(t, n))
        kept = []
        for i in range(7):
            flush.zero_()
            torch.cuda.synchronize()
            call()
            scan, cta = torch.zeros(size, dtype=torch.int32, device="cuda"), torch.zeros((2, 160, 8), dtype=torch.int64, device="cuda")
            log = torch.zeros((160, 96, patches.FIELDS), dtype=torch.int64, device="cuda")
            module.read_log(log)
            module.read_stamps(scan, cta, torch.zeros((2, 160, 20, 4, 16), dtype=torch.int32, device="cuda"))
            if i > 1:
                kept.append((cta[:, :, 1].max().item() - cta[1, :, 0][cta[1, :, 0] > 0].min().item(), scan.cpu().long() & 0xffffffff, log.cpu(), cta.cpu()))
        kept.sort(key=lambda x: x[0])
        span, _, log, ctas = kept[len(kept) // 2]
        print(f"stamps {t}/{n}: {span / 1e3:.2f} us from the first CTA's begin to the last one's end ({kept[0][0] / 1e3:.2f} to {kept[-1][0] / 1e3:.2f})")
        began = ctas[1, :, 0][ctas[1, :, 0] > 0].min().item()
        for k, kind in ((1, "solve"), (0, "scan")):
            c = ctas[k][ctas[k, :, 0] > 0]
            print(f"  {kind}_kernel: {len(c)} CTAs, us: begin {quantiles(((c[:, 0] - began) / 1e3).tolist())}, end {quantiles(((c[:, 1] - began) / 1e3).tolist())}")
        c = ctas[1][ctas[1, :, 0] > 0]
        teams = [(((c[:, 4 + i] - began) / 1e3)[c[:, 2 + i] > 0], ((c[:, 6 + i] - began) / 1e3)[c[:, 2 + i] > 0], c[:, 2 + i][c[:, 2 + i] > 0], ((c[:, 1] - began) / 1e3)[c[:, 2 + i] > 0]) for i in (0, 1)]
        begun, first, count, end = (torch.cat([x[i] for x in teams]) for i in range(4))
        print(f"  solve's tasks: {int(count.sum())} of {len(count)} teams, {int(count.min())} to {int(count.max())} a team, us: first begun {quantiles(begun.tolist())}, first solved {quantiles(first.tolist())}"
              + (f", each further one takes {quantiles(((end - first) / (count - 1))[count > 1].tolist())}" if (count > 1).any() else ""))
        units = stages.read_units(log.tolist(), began)
        for kind in range(5):
            for later in range(-1, 3):
                of = [u for u in units if u["kind"] == kind and u["later"] == later]
                if of:
                    print(f"  {KINDS[kind]:13s} of segment {later + 1} (0: first ones): {len(of)} units of {min(u['chunks'] for u in of)} to {max(u['chunks'] for u in of)} chunks, us: begin {quantiles([u['begun'] for u in of])}, "
                          f"end {quantiles([u['left'] for u in of])}, takes {quantiles([u['left'] - u['begun'] for u in of])}, of it waits for its first chunk {quantiles([u['there'] - u['begun'] for u in of if u['there']])}"
                          + (f", a chunk {quantiles([(u['chained'] - u['there']) / u['chunks'] for u in of if u['there'] and u['chained'] and u['chunks']])}" if kind > 1 else "")
                          + (f", seam there behind its chain {quantiles([u['seam'] - u['chained'] for u in of if u['seam']])}, merged in {quantiles([u['merged'] - u['seam'] for u in of if u['seam']])}" if kind == 3 else ""))
        begins = {i: (ctas[0, i, 0].item() - began) / 1e3 for i in range(160)}
        print("  along the dependencies, back from the end:")
        print("\n".join(stages.table(stages.walk(units, begins, span / 1e3), span / 1e3)), flush=True)
        for kind in (2, 3, 4):
            lines, whole_chunk = [[] for _ in range(9)], []
            for _, scan, log, _ in kept:
                first = log[: patches.CTAS, 1, 0]  # a CTA's first unit: later ones take the places of its chunks
                second = log[: patches.CTAS, 2, 0]
                is_apart = (log[..., 0] % 16 < 2).logical_and(log[..., 6] > 0).any()  # outputs found elsewhere: a CTA has one chain
                of = (log[: patches.CTAS, 1, 6] > 0) & (first % 16 == kind)
                of &= ~((log[: patches.CTAS, 2, 6] > 0) & (second % 16 >= 2)) if is_apart else True
                x = scan[of][:, 0, 3:, :10].reshape(-1, patches.ROUNDS - 3, 10)
                good = (x[..., 0] > 0) & (x[..., 9] > 0)
                d = (x[..., 1:] - x[..., :-1]) & 0xffffffff
                good &= (d < 200000).all(-1)
                for i in range(9):
                    lines[i] += d[..., i][good].tolist()
                both = good[:, :-1] & good[:, 1:] & (((x[:, 1:, 0] - x[:, :-1, 0]) & 0xffffffff) < 20000)
                whole_chunk += ((x[:, 1:, 0] - x[:, :-1, 0]) & 0xffffffff)[both].tolist()
            if whole_chunk:
                names = patches.STATE_NAMES if is_apart else patches.CHUNK_NAMES
                mean = statistics.mean(whole_chunk)
                print(f"  a chunk of {KINDS[kind]}: {statistics.median(whole_chunk):.0f} cycles (mean {mean:.0f}), median/mean: " + ", ".join(f"{a} {statistics.median(b):.0f}/{statistics.mean(b):.0f}" for a, b in zip(names, lines))
                      + f"; together {100 * sum(statistics.mean(b) for b in lines) / mean:.0f} %", flush=True)


def solve_stages(seconds):
    """Median cycles (and 9 of 10) between a task's places in solve_kernel, first and further tasks apart: the present sources, then the new ones."""
    rows, stop = {}, time.time() + seconds
    for t, n, lengths in official_rows():
        rows.setdefault((t, n), lengths)
    flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.int8, device="cuda")
    for t, n in ((134, 1), (8192, 57), (5709, 2)):
        for side, names in (("mainstamps", patches.MAIN_TASK_NAMES), ("stamps", patches.TASK_NAMES)):
            if time.time() > stop or not (BUILT / side / "prefill.so").exists():
                print(f"solve's stages: {side} left out at {t}/{n}")
                continue
            module, call, seen = load(side), caller(side, on(batch_of(lengths_of(rows, t, n), 1)), whole_of(t, n)), []
            for i in range(6):
                flush.zero_()
                torch.cuda.synchronize()
                call()
                solve = torch.zeros((2, 160, 20, 4, 16), dtype=torch.int32, device="cuda")
                module.read_stamps(torch.zeros((patches.CTAS, 12, patches.ROUNDS, patches.MARKS), dtype=torch.int32, device="cuda"), torch.zeros((2, 160, 8), dtype=torch.int64, device="cuda"), solve)
                if i > 0:
                    seen.append(solve[0].cpu().long() & 0xffffffff)
            x = torch.stack(seen)  # [call, CTA, warp, task, place]
            parts = [("A's warps", [0, 1, 2, 3, 8, 9, 10, 11], names), ("scores' warps", [4, 5, 6, 7, 12, 13, 14, 15], names)]
            if side == "stamps":
                parts += [("first feeding warps", [16, 17], patches.FEED_NAMES), ("second ones", [18, 19], patches.FEED_NAMES)]
            for what, tasks in (("first task", [0]), ("further ones", [1, 2, 3])):
                for who, warps, of in parts:
                    y = x[:, :, warps][:, :, :, tasks][..., : len(of) + 1].reshape(-1, len(of) + 1)
                    y = y[(y[:, 0] > 0) & (y[:, 1] > 0)]
                    if not len(y):
                        continue
                    line, last = [], 0
                    for i, name in enumerate(of, 1):
                        good = (y[:, i] > 0) & (y[:, last] > 0)
                        d = ((y[:, i] - y[:, last]) & 0xffffffff)[good]
                        d = d[d < 200000].tolist()
                        if len(d) * 2 > len(y):
                            line.append(f"{name} {statistics.median(d):.0f} ({sorted(d)[int(len(d) * 0.9)]:.0f})")
                            last = i
                    whole = ((y[:, last] - y[:, 0]) & 0xffffffff).tolist()
                    print(f"  {t}/{n} {side:10s} {what}, {who}: {statistics.median(whole):.0f} cycles of {len(y)} warps and tasks: " + ", ".join(line), flush=True)


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
    words = (ctypes.c_uint32 * (2 * 160 * 20)).from_address(at)
    for kernel, name, warps in ((1, "solve", 20), (0, "scan", 12)):
        for warp in range(warps):
            seen = collections.Counter(words[(kernel * 160 + cta) * 20 + warp] for cta in range(160))
            seen.pop(0, None)
            if seen:
                print(f"    {name} warp {warp:2d}: " + ", ".join(f"{patches.PLACES.get(k, k)} {c}" for k, c in seen.most_common(6)), flush=True)


def say_where(say, stop):
    """Sizes that end in the first that fails: few tasks, one more than a round of 232, many units."""
    for lengths, whole in (([64] * 2, 0), ([1216], 0), ([1217], 0), ([2107], 0), ([4709, 1000], 0), ([6100], 0), ([10240], 0), ([64] * 60, 1 << 20)):
        if time.time() > stop:
            return say("  time is up")
        os.environ["LENGTHS"], os.environ["WHOLE"] = json.dumps(lengths), str(whole)
        code, text = finish(*start("where", 0), min(20, stop - time.time()))
        say(text.rstrip() if code == 0 else f"{text.rstrip()}\n  {len(lengths)} sequences: exit {code}")
        if code != 0 or "warp" in text:
            break


def start(name, seconds):
    out = Path(BUILT, "out-" + name)
    with out.open("w") as to:  # a group of its own: nvcc's children end with it
        return subprocess.Popen([sys.executable, __file__, "step", str(BUILT), name, str(seconds)], stdout=to, stderr=subprocess.STDOUT, start_new_session=True), out


def finish(child, out, limit):
    try:
        code = child.wait(timeout=max(limit, 0.1))
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        code = "HANGS OR TOO SLOW"
    return code, out.read_text()


STAGE_LIMIT = 14
GROUP_LIMIT, BUILD_LIMIT, STAMP_LIMIT = 90, 60, 20  # s: the groups of cases, all at once; the builds, all at once; stamps
FIRST = ("new", "main", "stamps", "mainstamps", "nocut", *STEPS)  # built before the others


def main(seconds, has_cases):
    lines, stop = [], START + seconds - 2

    def say(text):
        lines.append(text)
        print(text, flush=True)
        if os.environ.get("OUT"):  # what is known so far, whatever comes
            Path(os.environ["OUT"], "prefill8.txt").write_text("\n".join(lines))

    def left(limit):
        return min(limit, stop - time.time())

    order = [*FIRST, *(side for side in SIDES if side not in FIRST)]
    builds = {side: start("build-" + side, 0) for side in order}
    say(finish(*builds.pop("new"), left(BUILD_LIMIT))[1].rstrip())
    groups = GROUPS if has_cases else ()
    running = {name: start(name, 0) for name in groups}  # at once: most of their time is the oracle's
    right = total = 0
    is_dead, begun = False, time.time()
    for name in groups:
        code, text = finish(*running[name], left(begun + GROUP_LIMIT - time.time()))
        fine = [x[5:].split(" @")[0].split(":")[0] for x in text.splitlines() if x.startswith("ok ")]
        kept = [x for x in text.splitlines() if not x.startswith(("CASE", "ok"))]
        tried = [x[5:] for x in text.splitlines() if x.startswith("CASE")]
        right, total = right + len(fine), total + len(CASES[name])
        say(f"{name}: exit {code}, {len(fine)} of {len(CASES[name])} right ({', '.join(fine)}), {time.time() - START:.0f} s" + (f"; last tried {tried[-1:]}" if code != 0 else "")
            + "".join("\n" + x for x in kept[-12:] if x))
        is_dead |= code not in (0, "HANGS OR TOO SLOW") or code != 0 and stop - time.time() > 5
    say(f"CASES {right} of {total} right")
    for child, out in builds.values():
        say(finish(child, out, left(BUILD_LIMIT))[1].rstrip())
    if is_dead:
        say("where it dies (last place of each warp, and of how many CTAs):")
        say_where(say, stop)
    for name, most in (("stages", STAGE_LIMIT), ("stamps", STAMP_LIMIT), ("time", seconds)):
        rest = left(most)
        if is_dead or rest < 8:
            say(f"{name}: left out, {rest:.0f} s left")
            continue
        code, text = finish(*start(name, rest - 5), rest)
        say(f"{name}: exit {code}\n{text[-25000:]}")
    say(f"SUMMARY {right} of {total} cases right, {time.time() - START:.0f} s")
    sys.exit(0 if right == total else 1)


def step(name, seconds):
    if name == "time":
        timed(seconds)
    elif name == "stamps":
        stamped(seconds)
    elif name == "stages":
        solve_stages(seconds)
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
        main(float(sys.argv[1]), sys.argv[3:] != ["times"])
