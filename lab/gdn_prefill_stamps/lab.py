"""gdn_prefill: all cases, then what one stage less or one change saves, then stamps. lab.py SECONDS BUILT"""
import functools, json, os, statistics, subprocess, sys, time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, os.getcwd())
START = time.time()
sys.path.insert(0, str(HERE))
import build as B

NAMES = list(B.VARIANTS) + (["prefill3"] if (HERE / "tree3").exists() else [])

import torch

from tests.oracles.gdn_prefill import (  # noqa: E402
    HEAD_SIZE, batch_of, count_wrong, empty_outputs, hard_inputs, oracle, random_inputs)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROOM = "gdn_prefill"


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
        ("[3,0]*100+[700]", WHOLE, lambda: batch_of([3, 0] * 100 + [700], 1)),
    ],
    "official": [
        (f"{t}/{n}", None, lambda t=t, n=n: batch_of(uneven(t, n, t), n))
        for t, n in [(6, 1), (35, 2), (61, 1), (76, 2), (85, 2), (134, 1), (255, 3), (832, 4), (983, 2),
                     (2107, 1), (3028, 5), (4124, 15), (5709, 2), (8192, 20), (8192, 57)]
    ],
}


# ---- running --------------------------------------------------------------------------------------
def launch(inputs, groups, poison=True):
    """(output, new_state, scratch) with the groups given."""
    outputs = empty_outputs(inputs)
    if poison:
        for x in outputs:
            x.fill_(float("nan"))
    t, n = inputs["q"].shape[0], inputs["cu_seqlens"].shape[0] - 1
    scale = inputs["scale"] or HEAD_SIZE**-0.5
    if DEVICE == "cpu":
        sys.path.insert(0, "clones/stamps-lab")
        import drive
        import ctypes
        scratch = torch.full((drive.L.scratch_bytes(t, n) // 2 + 64,), float("nan"), dtype=torch.float16)
        names = ("q", "k", "v", "state", "A_log", "a", "dt_bias", "b", "cu_seqlens")
        tensors = [inputs[x] for x in names] + [*outputs, scratch]
        p = (ctypes.c_void_p * 12)(*[x.data_ptr() if x is not None else None for x in tensors])
        drive.L.prefill(p, ctypes.c_float(scale), t, n, groups)
        return (*outputs, scratch.view(torch.uint8))
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
    return x.reshape(*x.shape[:-4], tiles, 64, 64).transpose(-3, -2).reshape(*x.shape[:-4], 64, tiles * 64)


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
            again = launch(inputs, groups)
            if not all(torch.equal(a, b) for a, b in zip(got[:2], again[:2])):
                rest += " NOT REPEATABLE"
        ok = all(r[0] == 0 for r in results) and not rest
        if ok:
            print(f"ok   {name} @{groups}: {results[0][1]:.0e} {results[1][1]:.0e}", flush=True)
        else:
            print(f"BAD  {name} most_whole {groups}: output {results[0][0]} wrong, worst {results[0][1]:.1e}, "
                  f"{results[0][2]} not finite; state {results[1][0]} wrong, worst {results[1][1]:.1e}, {results[1][2]} not finite{rest}", flush=True)
        if not ok and groups >= 0:
            locate(inputs, got, got[2])




def native():
    """(module, kernel.py) of the variant that is checked."""
    return load(os.environ.get("SIDE", "as it is"))


@functools.cache
def load(name):
    import tvm_ffi
    folder = BUILT / f"v{NAMES.index(name)}"
    return tvm_ffi.load_module(str(folder / "prefill.so")), load_kernel()


@functools.cache
def load_kernel():
    import importlib
    import importlib.util
    folder = BUILT / "v0"
    spec = importlib.util.spec_from_file_location("tree0", folder / "__init__.py", submodule_search_locations=[str(folder)])
    sys.modules["tree0"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["tree0"])
    return importlib.import_module("tree0.kernel")


def official_rows():
    from harness.dataset.gdn import sequence_lengths
    path = next(Path("workloads").rglob("gdn_prefill*.jsonl"))
    for line in path.read_text().splitlines():
        w = json.loads(line)
        w = w.get("workload", w)
        axes = w["axes"]
        yield axes["total_seq_len"], axes["num_seqs"], sequence_lengths(w["uuid"], axes["total_seq_len"], axes["num_seqs"])


SHAPES = [(134, 1), (2107, 1), (5709, 2), (8192, 20), (8192, 57)]


def caller(name, inputs, whole):
    module = load(name)[0]
    outputs = empty_outputs(inputs)
    t, n = inputs["q"].shape[0], inputs["cu_seqlens"].shape[0] - 1
    args = [x for key, x in inputs.items() if key != "scale"]
    scratch = torch.zeros(module.count_scratch(t, n), dtype=torch.uint8, device="cuda")
    return lambda: module.prefill(*args, HEAD_SIZE**-0.5, *outputs, scratch, whole)


def spans(timer, call, flush, repeats=9):
    """Medians: begin and end of each kernel, us, the first one's begin being 0."""
    from harness.timing import _Recording
    call()
    recording = _Recording(timer._cupti)
    with recording:
        for _ in range(repeats):
            if flush is not None:
                flush.zero_()
            torch.cuda.synchronize()
            call()
            torch.cuda.synchronize()
    work = {k: sorted((a.start_ns, a.end_ns) for a in recording.activities if k + "_kernel" in a.name) for k in ("solve", "scan")}
    pairs = list(zip(work["solve"], work["scan"]))[1:]
    mid = lambda f: statistics.median(f(a, b) for a, b in pairs) / 1e3
    return mid(lambda a, b: a[1] - a[0]), mid(lambda a, b: b[0] - a[0]), mid(lambda a, b: b[1] - a[0])


def gap(x, y):
    return (y - x) & 0xFFFFFFFF


def stamps_of(name, call, flush):
    module = load(name)[0]
    ctas, warps, rounds, marks = B.SOLVE_CTAS, 8, B.SOLVE_ROUNDS, B.SOLVE_MARKS
    solve = torch.zeros(ctas * warps * rounds * marks, dtype=torch.int32, device="cuda")
    scan = torch.zeros(B.SCAN_CTAS * 12 * B.SCAN_ROUNDS * B.SCAN_MARKS, dtype=torch.int32, device="cuda")
    cta = torch.zeros(3 * 512, dtype=torch.int64, device="cuda")
    for _ in range(2):  # the second one counts: it finds instructions where the first left them
        flush.zero_()
        torch.cuda.synchronize()
        call()
        torch.cuda.synchronize()
        module.read_stamps(solve, scan, cta)
        torch.cuda.synchronize()
    return (solve.view(ctas, warps, rounds, marks).tolist(), scan.view(B.SCAN_CTAS, 12, B.SCAN_ROUNDS, B.SCAN_MARKS).tolist(),
            cta.view(512, 3).tolist())


def show_ctas(cta, solve):
    used = [c for c in cta if c[0]]
    if not used:
        return
    zero = min(c[0] for c in used)
    per = {}
    for c in used:
        per[c[2]] = per.get(c[2], 0) + 1
    shares = {k: list(per.values()).count(k) for k in sorted(set(per.values()))}
    print(f"  {len(used)} CTAs on {len(per)} SMs (CTAs an SM: SMs {shares}); first requests done {statistics.median(c[0] - zero for c in used)/1e3:.1f} us (worst {max(c[0] for c in used)/1e3 - zero/1e3:.1f}) after the first CTA's;")
    by = {}
    for at, c in enumerate(cta[: len(solve)]):
        if c[0]:
            n = sum(1 for r in solve[at][0] if r[0])
            by.setdefault(n, []).append((c[1] - c[0]) / 1e3)
    print("  us from there to the end, by chunks (3 stands for 3 and more): " + ", ".join(f"{n}: {statistics.median(v):.1f} (worst {max(v):.1f}, {len(v)} CTAs)" for n, v in sorted(by.items())), flush=True)
    rate = []
    for at, c in enumerate(cta[: len(solve)]):
        done = [r for r in solve[at][0] if r[0] and r[26]]
        if c[0] and len(done) in (1, 2) and c[1] > c[0]:
            rate.append(gap(done[0][0], done[-1][26]) / (c[1] - c[0]) * 1e3)
    if rate:
        print(f"  clocks a us, at least {statistics.median(rate):.0f}")


def show_solve(title, columns):
    """columns: [(head, solve stamps, round)]: cycles of each stage, median over CTAs, of warps 0 and 3 (K, block 0 and 3), 4 and 7 (Q, 3 and 0)."""
    print(title + ": cycles, median over CTAs; warps 0 3 | 4 7")
    print(" " * 22 + " ".join(f"{head:^23s}" for head, _, _ in columns))
    def cell(solve, r, w, i):
        xs = [gap(c[w][r][i - 1], c[w][r][i]) for c in solve if c[w][r][0] and c[w][r][26]]
        return f"{statistics.median(xs):5.0f}" if xs else "    -"
    for i in range(1, len(B.SOLVE_NAMES)):
        print(f"  {B.SOLVE_NAMES[i]:20s} " + " ".join(" ".join(cell(s, r, w, i) for w in (0, 3, 4, 7)) for _, s, r in columns))
    def total(solve, r, w):
        xs = [gap(c[w][r][0], c[w][r][26]) for c in solve if c[w][r][0] and c[w][r][26]]
        return f"{statistics.median(xs):5.0f}" if xs else "    -"
    print(f"  {'all':20s} " + " ".join(" ".join(total(s, r, w) for w in (0, 3, 4, 7)) for _, s, r in columns), flush=True)


def show_scan(title, scan):
    print(title + f": cycles, rounds {B.FIRST_ROUND} to {B.FIRST_ROUND + 3} of CTA 0, then the median over CTAs and rounds")
    for what, warp, names in (("group 0", 0, B.SCAN_NAMES), ("group 1", 4, B.SCAN_NAMES), ("sender", 8, B.SENDER_NAMES)):
        if not scan[0][warp][0][0]:
            continue
        print(f"  {what}: round begins " + " ".join(str(gap(scan[0][warp][0][0], scan[0][warp][r][0])) for r in range(4)) + f"; sender's top {gap(scan[0][0][0][0], scan[0][8][0][0]) - (1 << 32) * (gap(scan[0][0][0][0], scan[0][8][0][0]) >> 31)} after the group's")
        for i in range(1, len(names)):
            every = [gap(c[warp][r][i - 1], c[warp][r][i]) for c in scan for r in range(4) if c[warp][r][0]]
            print(f"    {names[i]:28s} " + " ".join(f"{gap(scan[0][warp][r][i-1], scan[0][warp][r][i]):6d}" for r in range(4)) + f" | {statistics.median(every):6.0f}")
        every = [gap(c[warp][r][0], c[warp][r + 1][0]) for c in scan for r in range(3) if c[warp][r][0]]
        print(f"    {'round to round':28s} {statistics.median(every):.0f}", flush=True)


def timed(seconds):
    from harness.timing import CuptiTimer
    stop = time.time() + seconds
    timer = CuptiTimer("cuda:0")
    kernel = load_kernel()
    built = [name for i, name in enumerate(NAMES) if (BUILT / f"v{i}" / "built").exists()]
    rows, data = {}, {}
    for t, n, lengths in official_rows():
        rows.setdefault((t, n), lengths)
    for t, n in SHAPES:
        whole = kernel.choose(t, n, capability=(9, 0), can_build=True)[1]["most_whole"]
        data[t, n] = on(batch_of(rows[t, n], 1)), SPLIT if whole is None else whole
    flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.int8, device="cuda")
    # Stamps first: they say most.
    two, one, scans = "stamps of solve", "stamps of solve, 1 CTA", "stamps of scan"
    try:
        if scans in built:
            inputs, _ = data[2107, 1]
            for title, whole in (("scan, 2107/1, split", SPLIT), ("scan, 2107/1, whole", WHOLE)):
                show_scan(title, stamps_of(scans, caller(scans, inputs, whole), flush)[1])
        if two in built and one in built:
            at = {}
            for name, shape in ((two, (2107, 1)), (two, (8192, 20)), (one, (8192, 20))):
                at[name, shape] = stamps_of(name, caller(name, *data[shape]), flush)
                print(f"{name}, {shape}")
                show_ctas(at[name, shape][2], at[name, shape][0])
            a, b, c = at[two, (2107, 1)][0], at[one, (8192, 20)][0], at[two, (8192, 20)][0]
            show_solve("solve", [("2107/1, only chunk", a, 0), ("1 CTA an SM, first", b, 0), ("second", b, 1), ("third", b, 2)])
            show_solve("solve", [("2 CTAs an SM, first", c, 0), ("second", c, 1), ("third", c, 2)])
    except Exception as error:  # the times are worth having without
        print(f"STAMPS FAILED: {error!r}", flush=True)
    print("us: solve takes, scan begins-ends. " + ", ".join(f"{t}/{n}@{data[t, n][1]}" for t, n in SHAPES), flush=True)
    lines = [("as it is, L2 hot", "as it is", None)] + [(name, name, flush) for name in built] + [("as it is again", "as it is", flush)]
    for title, name, to in lines:
        if time.time() > stop:
            print("skipped the rest from " + title)
            break
        texts = []
        for shape in SHAPES:
            x = spans(timer, caller(name, *data[shape]), to)
            texts.append(f"{x[0]:5.1f} {x[1]:4.1f}-{x[2]:5.1f}")
        print(f"  {title:34s} " + " | ".join(texts), flush=True)


def start(name, seconds, side="as it is"):
    out = Path(os.environ.get("TMPDIR", "/tmp"), "prefill-stamps-" + name + "-" + str(NAMES.index(side)))
    with out.open("w") as to:
        command = [sys.executable, __file__, "step", str(BUILT), name, str(seconds)]
        return subprocess.Popen(command, stdout=to, stderr=subprocess.STDOUT, env=dict(os.environ, SIDE=side)), out


def finish(child, out, limit):
    try:
        code = child.wait(timeout=max(limit, 1))
    except subprocess.TimeoutExpired:
        child.kill()
        code = "HANGS OR TOO SLOW"
    return code, out.read_text()


def wait_for(path, limit):
    until = time.time() + limit
    while not path.exists() and time.time() < until:
        time.sleep(0.2)
    return path.exists()


GROUP_LIMIT = 30  # s, of a group of cases


def main(seconds):
    end, lines = START + seconds, []
    left = lambda: end - time.time()

    def say(text):
        lines.append(text)
        print(text, flush=True)

    wait_for(BUILT / "done", left() - 25)
    say(f"built after {time.time() - START:.0f} s\n" + (BUILT / "log").read_text())
    sides = [name for name in ("as it is", "prefill3") if name in NAMES and (BUILT / f"v{NAMES.index(name)}" / "built").exists()]
    checks = {(side, name): start(name, 0, side) for side in sides for name in CASES}
    right, total, begin = 0, 0, time.time()
    for (side, name), (child, out) in checks.items():
        code, text = finish(child, out, begin + GROUP_LIMIT * len(sides) - time.time())
        kept = [x for x in text.splitlines() if not x.startswith(("CASE", "ok")) or (code != 0 and x.startswith("CASE"))]
        good = text.count("\nok ")
        right, total = right + good, total + len(CASES[name])
        say(f"{side}, {name}: exit {code}, {good} of {len(CASES[name])} right, {time.time() - START:.0f} s" + "".join("\n" + x for x in kept[-30:] if x))
    child, out = start("time", max(left() - 4, 12))
    code, text = finish(child, out, max(left() - 1, 20))
    say(f"time: exit {code}\n{text[-10200:]}")
    say(f"SUMMARY {right} of {total} cases right, {time.time() - START:.0f} s")
    if os.environ.get("OUT"):
        Path(os.environ["OUT"], "gdn_prefill_stamps.txt").write_text("\n".join(lines[:-2] + [text] + lines[-1:]))
    sys.exit(0 if right == total else 1)


def step(name, seconds):
    if name == "time":
        timed(seconds)
    else:
        print("", flush=True)
        check(name)


if __name__ == "__main__":
    if sys.argv[1] == "step":
        BUILT = Path(sys.argv[2])
        step(sys.argv[3], float(sys.argv[4]))
    else:
        BUILT = Path(sys.argv[2])
        main(float(sys.argv[1]))
