"""gdn_prefill, native route: correct or where not, then how fast. lab.py SECONDS MAIN_CHECKOUT"""
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
        sys.path.insert(0, "clones/prefill-lab/emu")
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


# ---- variants: what binds, and what a choice costs; those marked * compute something else -------------
VARIANTS = {
    "as it is": [],
    "one term in reads, writes": [
        ("solve.cuh", "    multiply_f16(sums, terms[m].low, at_step(tile, m), m > 0);\n    multiply_f16(sums, terms[m].high, at_step(tile, m), true);",
         "    multiply_f16(sums, terms[m].high, at_step(tile, m), m > 0);"),
        ("solve.cuh", "    multiply_rows_f16(sums, terms[m].low, at_rows(keys, m), m > 0);\n    multiply_rows_f16(sums, terms[m].high, at_rows(keys, m), true);",
         "    multiply_rows_f16(sums, terms[m].high, at_rows(keys, m), m > 0);"),
    ],
    "one solving CTA an SM": [("plan.cuh", "SOLVE_CTAS = 2;", "SOLVE_CTAS = 1;")],
    "two stages": [("plan.cuh", "STAGES = 3;", "STAGES = 2;")],
    "next launch allowed last": [
        ("prefill.cu", "  allow_next_launch();\n", ""),
        ("prefill.cu", "  publish_shared();\n  sync_threads_of(1 + head, 128);  // writes and reads are there\n",
         "  publish_shared();\n  allow_next_launch();\n  sync_threads_of(1 + head, 128);\n"),
    ],
    "* no outputs in the scan": [
        ("scan.cuh", "    multiply_f16(output, state[step], at_step(queries, step % 4), step > 0);",
         "    if (step == 0) multiply_f16(output, state[step], at_step(queries, step % 4), false);"),
        ("scan.cuh", "    multiply_rows_f16(output, residual[step], at_rows(reads, step), true);",
         "    if (step == 0) multiply_rows_f16(output, residual[step], at_rows(reads, step), true);"),
    ],
    "* scan copies 16 KiB a chunk": [
        ("scan.cuh", "arrive_expecting(full, sizeof(Operands) + sizeof(Solved));", "arrive_expecting(full, 16384);"),
        ("scan.cuh", "copy_bulk(&to.operands, operands, sizeof(Operands), full);", "copy_bulk(&to.operands, operands, 8192, full);"),
        ("scan.cuh", "copy_bulk(&to.solved, solved, sizeof(Solved), full);", "copy_bulk(&to.solved, solved, 8192, full);"),
    ],
    "* solve ends when loaded": [("prefill.cu", "  float sums[32];\n  multiply_keys(", "  if (args.scale != 0.5f) { if (threadIdx.x == 0) finish_bulk_stores(); return; }\n  float sums[32];\n  multiply_keys(")],
    "* solve ends with A": [("prefill.cu", "  invert_corner(shared, head, block);\n", "  if (args.scale != 0.5f) { if (threadIdx.x == 0) finish_bulk_stores(); return; }\n  invert_corner(shared, head, block);\n")],
    "* solve ends with the inverse": [("solve.cuh", "  const float* beta = shared.beta[head] + BLOCK * block + threadIdx.x % 32 / 4;", "  if (rows[0][0] == -12345.0f) return;\n  const float* beta = shared.beta[head] + BLOCK * block + threadIdx.x % 32 / 4;"),
        ("solve.cuh", "  multiply_scores(shared.scores[head], rows, reads);", "  for (int i = 0; i < 32; ++i) reads[i] = writes[2 * i] = writes[2 * i + 1] = rows[i / 4][i % 4];"),
        ("solve.cuh", "  multiply_remaining(shared, head, rows, writes);\n", "")],
}


def make_variant(name, folder):
    """The sources of a variant in a folder of their own; returns the module of its native_build."""
    import importlib.util
    import shutil
    source, kernel = native_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for path in source.glob("*"):
        if path.suffix in (".cu", ".cuh", ".py"):
            shutil.copy(path, folder / path.name)
    for file, old, new in VARIANTS[name]:
        text = (folder / file).read_text()
        assert text.count(old) == 1, (name, file, text.count(old), old)
        (folder / file).write_text(text.replace(old, new))
    (folder / "__init__.py").touch()
    package = "variant_" + str(list(VARIANTS).index(name))
    spec = importlib.util.spec_from_file_location(package, folder / "__init__.py", submodule_search_locations=[str(folder)])
    module = importlib.util.module_from_spec(spec)
    sys.modules[package] = module
    spec.loader.exec_module(module)
    return importlib.import_module(package + ".native_build")


def native_folder():
    from tests.packed import build
    kernel = sys.modules[build(ROOM)._callable.__module__]
    return Path(sys.modules[kernel.run_native.__module__].__file__).parent, kernel


def variant_folder(name):
    return Path(os.environ.get("TMPDIR", "/tmp"), "prefill-variants", str(list(VARIANTS).index(name)))


def build_variant(name):
    import shutil
    shutil.rmtree(variant_folder(name), ignore_errors=True)
    os.environ["TVM_FFI_CACHE_DIR"] = str(variant_folder(name).with_suffix(".cache"))
    make_variant(name, variant_folder(name)).load_native("prefill.cu", (9, 0))


def variants(seconds):
    from harness.timing import CuptiTimer
    stop = time.time() + seconds
    names = list(VARIANTS)
    builders = [subprocess.Popen([sys.executable, __file__, "step", f"variant:{name}", "0", "x"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for name in names]
    timer = CuptiTimer("cuda:0")
    modules = {}
    for name, builder in zip(names, builders):
        said = builder.communicate()[0]
        if builder.returncode:
            print(f"variant {name} does not build: {said[-400:]}")
            continue
        os.environ["TVM_FFI_CACHE_DIR"] = str(variant_folder(name).with_suffix(".cache"))
        modules[name] = make_variant(name, variant_folder(name)).load_native("prefill.cu", (9, 0))
    rows = {}
    for t, n, lengths in official_rows():
        rows.setdefault((t, n), lengths)
    shapes = [((134, 1), 0), ((2107, 1), 0), ((4124, 15), 4), ((8192, 20), 9), ((8192, 57), 11), ((8192, 57), WHOLE)]
    print("variant, us of " + ", ".join(f"{t}/{n}@{w}" for (t, n), w in shapes), flush=True)
    data = [(on(batch_of(rows[shape], 1)), w) for shape, w in shapes]
    for name, module in modules.items():
        if time.time() > stop:
            print("skipped the rest of the variants")
            break
        line = []
        for inputs, w in data:
            t, n = inputs["q"].shape[0], inputs["cu_seqlens"].shape[0] - 1
            outputs = empty_outputs(inputs)
            args = [x for key, x in inputs.items() if key != "scale"]

            def call():
                scratch = torch.empty(module.count_scratch(t, n), dtype=torch.uint8, device="cuda")
                module.prefill(*args, HEAD_SIZE**-0.5, *outputs, scratch, w)
            line.append(timer.measure(call, 2, 11, estimation_calls=1).latency_us)
        print(f"  {name:32s} " + " ".join(f"{x:7.2f}" for x in line), flush=True)


# ---- time ---------------------------------------------------------------------------------------
def official_rows():
    from harness.dataset.gdn import sequence_lengths
    path = next(Path("workloads").rglob("gdn_prefill*.jsonl"))
    for line in path.read_text().splitlines():
        w = json.loads(line)
        w = w.get("workload", w)
        axes = w["axes"]
        yield axes["total_seq_len"], axes["num_seqs"], sequence_lengths(w["uuid"], axes["total_seq_len"], axes["num_seqs"])


def timed(seconds, main):
    from flashinfer_bench.compile import BuilderRegistry
    from flashinfer_bench.data import Definition, Solution
    from harness.timing import CuptiTimer
    from tests.packed import build
    stop = time.time() + seconds
    timer = CuptiTimer("cuda:0")
    ours = build(ROOM)
    code = ("from harness.config import load_workspace; from harness.packing import pack; "
            f"print(pack(load_workspace(), '{ROOM}').text)")
    env = dict(os.environ, PYTHONPATH=main + ":" + os.environ.get("PYTHONPATH", ""))
    packed = subprocess.run([sys.executable, "-c", code], cwd=main, env=env, capture_output=True, text=True, check=True).stdout
    definition = Definition.model_validate_json(next(Path("definitions").rglob("gdn_prefill*.json")).read_text())
    solution = Solution.model_validate_json(packed)
    theirs = BuilderRegistry.get_instance().build(definition, solution.model_copy(update={"name": "main_route"}))
    module, kernel = native()

    def span(call, n=15):
        return timer.measure(call, 2, n, estimation_calls=1).latency_us

    def direct(inputs, groups):
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
    lines = []

    def note(text):
        print(text, flush=True)
        lines.append(text)

    note("tokens/seqs longest   new us  main us")
    for t, n in [(6, 1), (16, 1), (35, 1), (61, 1), (76, 2), (134, 1), (255, 3), (574, 2), (983, 2), (2107, 1), (3028, 5),
                 (4124, 15), (5709, 2), (8192, 20), (8192, 32), (8192, 57)]:
        if time.time() > stop:
            note("skipped the rest of the goal table")
            break
        lengths = rows[t, n][0]
        inputs = on(batch_of(lengths, 1))
        outputs = empty_outputs(inputs)
        new, old = [], []
        for _ in range(2):
            new.append(span(lambda: ours(*inputs.values(), *outputs)))
            old.append(span(lambda: theirs(*inputs.values(), *outputs)))
        note(f"{t:6d}/{n:<4d} {max(lengths):7d} {min(new):8.2f} {min(old):8.2f}")
    note("kernels alone, us (start of the first = 0): begin-end")
    from harness.timing import _Recording
    for t, n, groups in [(134, 1, 0), (2107, 1, 0), (5709, 2, 0), (8192, 20, 9), (8192, 20, WHOLE), (8192, 57, 11), (8192, 57, WHOLE)]:
        if time.time() > stop:
            break
        call = direct(on(batch_of(rows[t, n][0], 1)), groups)
        flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.int8, device="cuda")
        call()
        spans = {}
        for _ in range(9):
            flush.zero_()
            torch.cuda.synchronize()
            recording = _Recording(timer._cupti)
            with recording:
                call()
                torch.cuda.synchronize()
            work = [a for a in recording.activities if "kernel" in a.name and "elementwise" not in a.name]
            first = min(a.start_ns for a in work)
            for a in work:
                key = "solve" if "solve" in a.name else "scan" if "scan" in a.name else a.name[:30]
                spans.setdefault(key, []).append(((a.start_ns - first) / 1e3, (a.end_ns - first) / 1e3))
        text = ", ".join(f"{k} {statistics.median(x[0] for x in v):.1f}-{statistics.median(x[1] for x in v):.1f}" for k, v in spans.items())
        note(f"  {t}/{n} most_whole {groups}: {text}")
    note("one sequence: tokens, recurrence / chunks us")
    for t in (8, 16, 32, 48, 64, 80, 96, 128, 192, 256):
        if time.time() > stop:
            break
        inputs = on(batch_of([t], 1))
        note(f"  {t:5d} {span(direct(inputs, WALK)):7.2f} {span(direct(inputs, SPLIT)):7.2f}")
    note("chain: tokens of one sequence, us (slope is a chunk)")
    last = None
    for t in (640, 1280, 2560, 5120, 65536):
        if time.time() > stop:
            break
        us = span(direct(on(batch_of([t], 1)), SPLIT), 9)
        note(f"  {t:6d} {us:8.2f}" + (f"   {(us - last[1]) / (t - last[0]) * 64:6.3f} us a chunk" if last else ""))
        last = (t, us)
    note("uneven sequences, us: none split / chunks above 1/8, 1/16, 1/32 of all / all split")
    for t, n in ((983, 2), (4124, 15), (8192, 4), (8192, 8), (8192, 12), (8192, 20), (8192, 32), (8192, 57)):
        if time.time() > stop:
            break
        lengths = rows[t, n][0] if (t, n) in rows else uneven(t, n, 1)
        inputs, chunks = on(batch_of(lengths, 1)), t // 64 + n
        times = [span(direct(inputs, x)) for x in (WHOLE, chunks // 8, chunks // 16, chunks // 32, SPLIT)]
        note(f"  {t}/{n} longest {max(lengths)}: " + " ".join(f"{x:7.2f}" for x in times))
    if time.time() < stop - 15:
        sums, count = 0.0, 0
        table = []
        for (t, n), many in sorted(rows.items()):
            if time.time() > stop:
                note(f"mean is of {count} workloads only")
                break
            for lengths in many:
                inputs = on(batch_of(lengths, 1))
                outputs = empty_outputs(inputs)
                us = span(lambda: ours(*inputs.values(), *outputs), 9)
                sums, count = sums + us, count + 1
                table.append(f"{t}/{n} {us:.1f}")
        note(f"MEAN of {count} official workloads {sums / max(count, 1):.2f} us; goal 27")
        note("  " + ", ".join(table))
    else:
        note("skipped: mean of the official workloads")
    out = os.environ.get("OUT")
    if out:
        Path(out, "gdn_prefill_times.txt").write_text("\n".join(lines))


def main():
    seconds, checkout = float(sys.argv[1]), sys.argv[2]
    report = []
    print(torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU stand-in", flush=True)
    for step in ("build", *CASES, "time", "variants"):
        left = seconds - (time.time() - START)
        if left < 20 and DEVICE == "cuda":
            report.append(f"SKIPPED {step}: no time left")
            continue
        limit = {"build": 150, "time": max(left - 75, 60), "variants": left - 3}.get(step, 100)
        limit = min(limit, left - 3)
        begin = time.time()
        command = [sys.executable, __file__, "step", step, str(limit - 12), checkout]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
            text, code = done.stdout + ("" if done.returncode == 0 else done.stderr[-2500:]), done.returncode
        except subprocess.TimeoutExpired as late:
            text = (late.stdout or b"").decode() + "\nHANGS OR TOO SLOW in the CASE above\n" + (late.stderr or b"").decode()[-500:]
            code = "timeout"
        kept = [x for x in text.splitlines() if not x.startswith("CASE") or code != 0]
        report.append(f"== {step}: exit {code}, {time.time() - begin:.0f} s\n" + "\n".join(kept[-60:]))
        print(report[-1], flush=True)
        if step == "build" and code != 0:
            break
    out = os.environ.get("OUT")
    if out:
        Path(out, "gdn_prefill_report.txt").write_text("\n".join(report))
    text = "\n".join(report)
    print("SUMMARY", text.count("\nok "), "ok,", text.count("\nBAD "), "BAD,", text.count("HANGS"), "hang")


def step(name, seconds, checkout):
    if name == "build":
        if DEVICE == "cuda":
            module, kernel = native()
            print("built; count_scratch(64, 1) =", module.count_scratch(64, 1))
    elif name.startswith("variant:"):
        build_variant(name[8:])
    elif name == "variants":
        if DEVICE == "cuda":
            variants(seconds)
    elif name == "time":
        if DEVICE == "cuda":
            timed(seconds, checkout)
    else:
        check(name)


if __name__ == "__main__":
    if sys.argv[1] == "step":
        step(sys.argv[2], float(sys.argv[3]), sys.argv[4])
    else:
        main()
