"""gdn_prefill, native route, new tree: all cases, then against the old tree. lab.py SECONDS OLD_TREE"""
import json, os, statistics, subprocess, sys, time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, os.getcwd())
START = time.time()

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


# ---- running ------------------------------------------------------------------------------------
def native():
    """The packed solution's native module, and its kernel.py."""
    from tests.packed import build
    kernel = sys.modules[build(ROOM)._callable.__module__]
    loader = sys.modules[kernel.run_native.__module__]
    return loader.load_native("prefill.cu", torch.cuda.get_device_capability()), kernel


def launch(inputs, groups, poison=True):
    """(output, new_state, scratch) with the groups given."""
    outputs = empty_outputs(inputs)
    if poison:
        for x in outputs:
            x.fill_(float("nan"))
    t, n = inputs["q"].shape[0], inputs["cu_seqlens"].shape[0] - 1
    scale = inputs["scale"] or HEAD_SIZE**-0.5
    if DEVICE == "cpu":
        sys.path.insert(0, "clones/prefill-lab3")
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



# ---- time: both trees in one process ------------------------------------------------------------
def load_tree(name, root):
    """(native module, kernel.py) of a tree's sources, flat in a package of their own."""
    import importlib
    import importlib.util
    import shutil
    folder = Path(os.environ.get("TMPDIR", "/tmp"), "prefill-flat", name)
    if not folder.exists():
        folder.mkdir(parents=True)
        for source in ("common", ROOM):
            for path in Path(root, "solutions", source).glob("*"):
                if path.suffix in (".cu", ".cuh", ".py"):
                    shutil.copy(path, folder / path.name)
        (folder / "__init__.py").touch()
    package = "tree_" + name
    spec = importlib.util.spec_from_file_location(package, folder / "__init__.py", submodule_search_locations=[str(folder)])
    sys.modules[package] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[package])
    os.environ["TVM_FFI_CACHE_DIR"] = str(folder) + ".cache"
    native_build = importlib.import_module(package + ".native_build")
    return native_build.load_native("prefill.cu", (9, 0)), importlib.import_module(package + ".kernel")


def official_rows():
    from harness.dataset.gdn import sequence_lengths
    path = next(Path("workloads").rglob("gdn_prefill*.jsonl"))
    for line in path.read_text().splitlines():
        w = json.loads(line)
        w = w.get("workload", w)
        axes = w["axes"]
        yield axes["total_seq_len"], axes["num_seqs"], sequence_lengths(w["uuid"], axes["total_seq_len"], axes["num_seqs"])


SHAPES = [(35, 1), (61, 1), (134, 1), (983, 2), (2107, 1), (3028, 5), (4124, 15), (5709, 2), (8192, 20), (8192, 57)]
GOALS = {(35, 1): 9, (983, 2): 32, (2107, 1): 50, (5709, 2): 65, (8192, 20): 52, (8192, 57): 60}


def timed(seconds, old):
    from harness.timing import CuptiTimer, _Recording
    stop = time.time() + seconds
    trees = {"new": load_tree("new", "."), "old": load_tree("old", old)}
    timer = CuptiTimer("cuda:0")

    def span(call, n=15):
        return timer.measure(call, 2, n, estimation_calls=1).latency_us

    def pick(tree, t, n):
        whole = trees[tree][1].choose(t, n, capability=(9, 0), can_build=True)[1]["most_whole"]
        return WALK if whole is None else whole

    def direct(tree, inputs, groups):
        module = trees[tree][0]
        outputs = empty_outputs(inputs)
        t, n = inputs["q"].shape[0], inputs["cu_seqlens"].shape[0] - 1
        args = [x for name, x in inputs.items() if name != "scale"]

        def call():
            scratch = torch.empty(module.count_scratch(t, n) if groups >= 0 else 0, dtype=torch.uint8, device="cuda")
            module.prefill(*args, HEAD_SIZE**-0.5, *outputs, scratch, groups)
        return call

    rows = {}
    for t, n, lengths in official_rows():
        rows.setdefault((t, n), []).append(lengths)
    print("tokens/seqs longest @new @old | new us  old us  goal | kernels of new, begin-end", flush=True)
    for t, n in SHAPES:
        if time.time() > stop:
            print("skipped the rest of the shapes")
            break
        inputs = on(batch_of(rows[t, n][0], 1))
        calls = {tree: direct(tree, inputs, pick(tree, t, n)) for tree in trees}
        best = {tree: [] for tree in trees}
        for _ in range(2):
            for tree, call in calls.items():
                best[tree].append(span(call))
        flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.int8, device="cuda")
        texts = []
        for tree in ("new", "old") if (t, n) == (2107, 1) else ("new",):
            spans = {}
            for _ in range(7):
                flush.zero_()
                torch.cuda.synchronize()
                recording = _Recording(timer._cupti)
                with recording:
                    calls[tree]()
                    torch.cuda.synchronize()
                work = [a for a in recording.activities if "kernel" in a.name and "elementwise" not in a.name]
                first = min(a.start_ns for a in work)
                for a in work:
                    key = next((k for k in ("solve", "scan", "walk") if k in a.name), a.name[:30])
                    spans.setdefault(key, []).append(((a.start_ns - first) / 1e3, (a.end_ns - first) / 1e3))
            texts.append(tree + " " + ", ".join(f"{k} {statistics.median(x[0] for x in v):.1f}-{statistics.median(x[1] for x in v):.1f}" for k, v in spans.items()))
        print(f"{t:5d}/{n:<3d} {max(rows[t, n][0]):5d} @{pick('new', t, n)} @{pick('old', t, n)} | {min(best['new']):7.2f} {min(best['old']):7.2f} {GOALS.get((t, n), ''):>4} | {'; '.join(texts)}", flush=True)
    last = {}
    for t in (640, 1280, 2560):
        if time.time() > stop:
            break
        inputs = on(batch_of([t], 1))
        for tree in trees:
            us = span(direct(tree, inputs, SPLIT), 9)
            if tree in last:
                print(f"slope {tree} {t}: {us:.1f} us, {(us - last[tree][1]) / (t - last[tree][0]) * 64:.3f} us a chunk", flush=True)
            last[tree] = (t, us)
    print("new, recurrence / chunks us: " if time.time() < stop else "skipped: thresholds", flush=True)
    for lengths in ([8], [32], [64], [96], [128], [160], [192], [256], [64, 64], [130, 118], [85, 85, 85]):
        if time.time() > stop:
            break
        inputs = on(batch_of(lengths, 1))
        print(f"  {lengths} {span(direct('new', inputs, WALK), 9):.1f} / {span(direct('new', inputs, SPLIT), 9):.1f}", flush=True)
    print("new, 8192: whole / above 1/8, 1/16, 1/32 of all split / all split", flush=True)
    for n in (20, 32, 57):
        if time.time() > stop:
            break
        inputs, chunks = on(batch_of(rows[8192, n][0], 1)), 128 + n
        print(f"  {n}: " + " ".join(f"{span(direct('new', inputs, x), 9):.1f}" for x in (WHOLE, chunks // 8, chunks // 16, chunks // 32, SPLIT)), flush=True)
    sums, count = 0.0, 0
    for (t, n), many in sorted(rows.items(), key=lambda row: (row[0][0] * 7919) % 97):
        for lengths in many:
            if time.time() < stop:
                sums, count = sums + span(direct("new", on(batch_of(lengths, 1)), pick("new", t, n)), 5), count + 1
    print(f"MEAN of {count} official workloads, new {sums / max(count, 1):.2f} us (of 100; old 31.1, goal 27)", flush=True)


def start(name, seconds, old):
    out = Path(os.environ.get("TMPDIR", "/tmp"), "prefill-step-" + name)
    with out.open("w") as to:
        command = [sys.executable, __file__, "step", name, str(seconds), old]
        return subprocess.Popen(command, stdout=to, stderr=subprocess.STDOUT), out


def finish(child, out, limit):
    try:
        code = child.wait(timeout=max(limit, 1))
    except subprocess.TimeoutExpired:
        child.kill()
        code = "HANGS OR TOO SLOW"
    return code, out.read_text()


def main():
    seconds, old = float(sys.argv[1]), sys.argv[2]
    end, lines = START + seconds, []
    left = lambda: end - time.time()

    def say(text):
        lines.append(text)
        print(text, flush=True)

    builds = {name: start(name, 0, old) for name in ("build", "build:new", "build:old")}
    for name, (child, out) in builds.items():
        code, text = finish(child, out, left() - 5)
        if code != 0:
            say(f"{name}: exit {code}\n{text[-2500:]}")
    say(f"built after {time.time() - START:.0f} s")
    checks = {name: start(name, 0, old) for name in CASES}
    right = total = 0
    for name, (child, out) in checks.items():
        code, text = finish(child, out, left() - 18)
        kept = [x for x in text.splitlines() if not x.startswith(("CASE", "ok")) or (code != 0 and x.startswith("CASE"))]
        good = text.count("\nok ")
        right, total = right + good, total + len(CASES[name])
        say(f"{name}: exit {code}, {good} of {len(CASES[name])} right, {time.time() - START:.0f} s" + "".join("\n" + x for x in kept[-40:]))
    if left() > 8:
        child, out = start("time", left() - 6, old)
        code, text = finish(child, out, left() - 1)
        say(f"time: exit {code}\n{text[-7000:]}")
    else:
        say("skipped: time")
    say(f"SUMMARY {right} of {total} cases right, {time.time() - START:.0f} s")
    if os.environ.get("OUT"):
        Path(os.environ["OUT"], "gdn_prefill_new.txt").write_text("\n".join(lines))
    sys.exit(0 if right == total else 1)


def step(name, seconds, old):
    if name == "build":
        if DEVICE == "cuda":
            native()
    elif name.startswith("build:"):
        load_tree(name[6:], "." if name == "build:new" else old)
    elif name == "time":
        timed(seconds, old)
    else:
        print("", flush=True)
        check(name)


if __name__ == "__main__":
    if sys.argv[1] == "step":
        step(sys.argv[2], float(sys.argv[3]), sys.argv[4])
    else:
        main()
