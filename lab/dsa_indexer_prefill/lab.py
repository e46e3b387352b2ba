"""python lab.py SUBCOMMAND TREE OUT [options]: layout, check, hostile, time. Prints compact lines."""

import json
import os
import sys
import time
from pathlib import Path

SUB, TREE, OUT = sys.argv[1:4]
OPTIONS = sys.argv[4:]
sys.path.insert(0, TREE)
os.chdir(TREE)

import numpy as np
import torch

from harness.ranges import row_ranges
from harness.rules.prefill_inputs import draw_inputs
from tests.oracles import dsa_indexer_prefill as O

ROOM, TOPK, STRETCH = "dsa_indexer_prefill", 2048, 48
NAMES = ("q_index_fp8", "k_index_fp8", "k_scale", "weights", "row_starts", "row_ends")
DEADLINE = time.time() + float(os.environ.get("LAB_SECONDS", "300"))


def left():
    return DEADLINE - time.time()


_modules = {}


def module(variant="base"):
    import tvm_ffi

    if variant not in _modules:
        _modules[variant] = tvm_ffi.load_module(Path(OUT, variant, "path").read_text())
    return _modules[variant]


_choose = {}


def choose_native(Q, N):
    if not _choose:
        text = Path(TREE, "solutions", ROOM, "kernel.py").read_text()
        space = {"math": __import__("math"), "TOPK": TOPK}
        exec(text[text.index("NATIVE_CAPABILITY ="):text.index("def choose(\n")], space)
        _choose.update(space)
    return _choose["choose_native"](Q, N)


class Call:
    """One native call with scratch that can be looked at."""

    def __init__(self, inputs, variant="base"):
        self.inputs, self.variant = inputs, variant
        self.Q, self.N = len(inputs["row_starts"]), len(inputs["k_scale"])
        self.o = choose_native(self.Q, self.N)
        device = inputs["row_starts"].device
        self.table = torch.full((max(self.o["table_words"], 1),), -123456789, dtype=torch.int32, device=device)
        self.area = torch.full((max(self.o["area_bytes"], 1),), 0xCD, dtype=torch.uint8, device=device)
        self.out = torch.full((self.Q, TOPK), 0x7FFFFFFF, dtype=torch.int32, device=device)
        self.args = [inputs[n].view(torch.uint8) if "fp8" in n else inputs[n] for n in NAMES]

    def __call__(self):
        o = self.o
        module(self.variant).select_topk(*self.args, self.out, self.table, self.area, o["most_queries"], o["most_candidates"])
        return self.out

    def parts(self):
        """Of the last group of launches: shares, counts, thresholds, failed."""
        o, Q = self.o, (self.Q - 1) % self.o["most_queries"] + 1
        blocks, at, found = -(-Q // 4), 0, {}
        table = self.table.cpu().numpy()
        for name, size in (("shares", 2 * blocks), ("counts", (Q + 528) * 8), ("thresholds", Q), ("failed", 1 + Q)):
            found[name], at = table[at:at + size], at + size
        found["shares"], found["counts"] = found["shares"].reshape(blocks, 2), found["counts"].reshape(-1, 8)
        found["thresholds"] = found["thresholds"].view(np.float32)
        return found

    def counts(self, p, row):
        """[pieces, 8] of a query of the last group."""
        first, pieces = p["shares"][row // 4]
        Q = len(p["thresholds"])
        return np.stack([p["counts"][row if k == 0 else Q + 4 * (first + k) + row % 4] for k in range(pieces)])

    def failures(self):
        """Class of each failed query, as a string of counts; candidates per query."""
        if self.N <= TOPK:
            return "", np.zeros(1)
        p, classes = self.parts(), {"few": 0, "many": 0, "dropped": 0}
        for row in p["failed"][1:1 + p["failed"][0]]:
            counts = self.counts(p, row)
            total = int(counts.sum())
            classes["dropped" if counts.max() > 832 else "few" if total < TOPK else "many"] += 1
        starts, ends = (self.inputs[n].clamp(0, self.N).cpu().numpy() for n in ("row_starts", "row_ends"))
        last = (self.Q - 1) // self.o["most_queries"] * self.o["most_queries"]
        lengths = (ends - starts)[last:]
        long = np.nonzero(lengths > TOPK)[0]
        some = long[:: max(1, len(long) // 256)]
        totals = np.array([self.counts(p, r).sum() for r in some]) if len(some) else np.zeros(1)
        return f"failed {p['failed'][0]} of {len(lengths)} (few {classes['few']}, many {classes['many']}, dropped {classes['dropped']})", totals


def own_scores(inputs):
    """[Q, N] of the filtering launch itself, by the debug build; NaN where nothing was scored."""
    variant = os.environ.get("LAB_DEBUG", "debug")
    call = Call(inputs, variant)
    scores = torch.full((call.Q, call.N), float("nan"), device="cuda")
    module(variant).set_debug(scores)
    call()
    torch.cuda.synchronize()
    return scores, call


def causal(Q, N, seed=1):
    torch.manual_seed(seed)
    return dict(zip(NAMES, draw_inputs({"num_queries": Q, "num_keys": N}, "cuda")))


def axes_inputs(axes, seed=1):
    torch.manual_seed(seed)
    return dict(zip(NAMES, draw_inputs(axes, "cuda")))


def fp64(inputs, row):
    q, k = inputs["q_index_fp8"][row].double(), inputs["k_index_fp8"].double()
    return inputs["weights"][row].double() @ torch.relu(q @ k.T * inputs["k_scale"].double())


def layout():
    """Scores of the debug build against fp64, where they differ, and one-hot probes."""
    N = 2304
    for name in ("normal", "negative scales"):
        inputs = O.random_inputs([(0, N)] * 6, N, seed=3, device="cuda")
        if name != "normal":
            inputs["k_scale"][::3].neg_()
        scores, _ = own_scores(inputs)
        want = torch.stack([fp64(inputs, r) for r in range(6)])
        error = (scores.double() - want).abs()
        deviation = float(want.std())
        worst = float(error.nan_to_num(1e9).max()) / deviation
        print(f"layout {name}: worst error {worst:.5f} of the deviation {deviation:.1f}; NaN {int(scores.isnan().sum())}  {'ok' if worst < 0.01 else 'WRONG'}", flush=True)
        if worst >= 0.01:
            bad = error.nan_to_num(1e9) > 0.01 * deviation
            print("  wrong share by query", bad.float().mean(1).cpu().numpy().round(3))
            t = bad.float().reshape(6, N // 128, 128)
            print("  by tile", t.mean((0, 2)).cpu().numpy().round(2))
            print("  by key of the tile / 16", t.mean((0, 1)).reshape(8, 16).mean(1).cpu().numpy().round(2))
            print("  by key % 16", t.mean((0, 1)).reshape(8, 16).mean(0).cpu().numpy().round(2))
            print("  got ", scores[0, :8].cpu().numpy(), "\n  want", want[0, :8].cpu().numpy())
            got = scores[:4].double().nan_to_num(0.0)
            g, w = got[0] - got[0].mean(), want[:4] - want[:4].mean(1, keepdim=True)
            best = torch.fft.ifft(torch.fft.fft(g).conj() * torch.fft.fft(w[0])).real
            print("  correlation with itself", [round(float(torch.corrcoef(torch.stack([got[0], want[i]]))[0, 1]), 3) for i in range(4)], "best shift", int(best.argmax()))
            probes()


def probes():
    """One head and one dimension at a time: which of them arrive where."""
    N = 2304
    for head in (0, 1, 2, 8, 9, 33, 63):
        inputs = O.random_inputs([(0, N)] * 4, N, seed=4, device="cuda")
        q = torch.zeros(4, 64, 128, device="cuda")
        q[:, head] = 1.0
        k = torch.ones(N, 128, device="cuda")
        inputs["q_index_fp8"], inputs["k_index_fp8"] = q.to(torch.float8_e4m3fn), k.to(torch.float8_e4m3fn)
        inputs["k_scale"].fill_(1.0)
        inputs["weights"] = torch.arange(1.0, 65.0, device="cuda").repeat(4, 1)
        scores, _ = own_scores(inputs)
        values = scores.unique().cpu().numpy()[:6] / 128
        print(f"  head {head}: weight met {values} (want {head + 1})")
    for dim in (0, 1, 15, 16, 31, 32, 64, 127):
        inputs = O.random_inputs([(0, N)] * 4, N, seed=4, device="cuda")
        q = torch.zeros(4, 64, 128, device="cuda")
        q[:, 0] = torch.arange(128.0, device="cuda") % 16 + 1
        k = torch.zeros(N, 128, device="cuda")
        k[:, dim] = 1.0
        inputs["q_index_fp8"], inputs["k_index_fp8"] = q.to(torch.float8_e4m3fn), k.to(torch.float8_e4m3fn)
        inputs["k_scale"].fill_(1.0)
        inputs["weights"] = torch.zeros(4, 64, device="cuda")
        inputs["weights"][:, 0] = 1.0
        scores, _ = own_scores(inputs)
        print(f"  dimension {dim}: met {scores.unique().cpu().numpy()[:6]} (want {dim % 16 + 1})")


def prove(name, inputs, packed=True):
    """Every row of the product's output by the scores of the debug build."""
    begin = time.time()
    scores, debug_call = own_scores(inputs)
    call = Call(inputs)
    out = call().clone()
    again = call().clone()
    torch.cuda.synchronize()
    starts, ends = (inputs[n].clamp(0, call.N) for n in ("row_starts", "row_ends"))
    verdicts = []
    outs = {"native": out, "debug": debug_call.out}
    if packed:
        from tests.packed import call as packed_call

        outs["packed"] = packed_call(ROOM, list(inputs.values()), [O.empty_output(call.Q, "cuda")])[0]
    step = max(1, min(256, (1 << 26) // max(call.N, 1)))
    for label, ids in outs.items():
        try:
            for first in range(0, call.Q, step):
                rows = slice(first, min(first + step, call.Q))
                O.check_block(ids[rows], scores[rows], starts[rows], ends[rows])
            verdicts.append(f"{label} exact")
        except AssertionError as error:
            verdicts.append(f"{label} WRONG ({error})")
    same = torch.equal(out.sort(1).values, again.sort(1).values)
    rows = [r for r in np.unique(np.linspace(0, call.Q - 1, 6).astype(int)) if int(ends[r] - starts[r]) > TOPK]
    worst = 0.0
    for r in rows:
        want = fp64(inputs, int(r))[starts[r]:ends[r]]
        worst = max(worst, float((scores[r, starts[r]:ends[r]].double() - want).abs().max() / want.std()))
    failed, totals = call.failures()
    print(f"check {name}: {', '.join(verdicts)}; repeat {'same' if same else 'DIFFERS'}; fp64 error {worst:.5f} of deviation"
          f"{'' if worst < 0.01 else ' WRONG'}; {failed}; candidates {totals.min():.0f}..{np.median(totals):.0f}..{totals.max():.0f}; {time.time() - begin:.1f} s", flush=True)
    if any("WRONG" in v for v in verdicts):
        where(inputs, call, scores)


def where(inputs, call, scores):
    """Which stage is wrong: thresholds by the sample's scores, counts by the scores, then ids."""
    p = call.parts()
    starts, ends = (inputs[n].clamp(0, call.N).cpu().numpy() for n in ("row_starts", "row_ends"))
    last = (call.Q - 1) // call.o["most_queries"] * call.o["most_queries"]
    shown = 0
    for i in range(len(p["thresholds"])):
        row = last + i
        if ends[row] - starts[row] <= TOPK or shown >= 4:
            continue
        shown += 1
        tau = p["thresholds"][i]
        own = scores[row, starts[row]:ends[row]]
        reach = int((~(own < float(tau))).sum())
        counts = call.counts(p, i)
        chosen = call.out[row]
        print(f"  row {row}: threshold {tau} is reached by {reach}, counted {int(counts.sum())} in {len(counts)} pieces; unscored {int(own.isnan().sum())};"
              f" ids {int(chosen.min())}..{int(chosen.max())}, distinct {chosen.unique().numel()}")
        print(f"    share {p['shares'][i // 4].tolist()} counts {counts[:3].tolist()}")
    print("  failed", p["failed"][:8])


def check():
    torch.cuda.init()
    prove("5 x 2300", O.random_inputs([(0, 2300), (5, 2200), (0, 100), (100, 2300), (17, 2270)], 2300, seed=1, device="cuda"))
    prove("1 x 9000", O.random_inputs([(0, 9000)], 9000, seed=2, device="cuda"))
    for axes in ({"num_queries": 37, "num_keys": 20000, "ragged_ranges": 1}, {"num_queries": 8, "num_keys": 131072}, {"num_queries": 64, "num_keys": 131072},
                 {"num_queries": 64, "num_keys": 131072, "ragged_ranges": 1}, {"num_queries": 512, "num_keys": 32768, "ragged_ranges": 1},
                 {"num_queries": 512, "num_keys": 131072}, {"num_queries": 4096, "num_keys": 16384}, {"num_queries": 4096, "num_keys": 8192},
                 {"num_queries": 8192, "num_keys": 16384, "ragged_ranges": 1}, {"num_queries": 4096, "num_keys": 65536}, {"num_queries": 4096, "num_keys": 131072},
                 {"num_queries": 4096, "num_keys": 163840}):
        if left() < 25:
            print(f"check {axes}: skipped, out of time")
            continue
        name = " ".join(f"{k.replace('num_', '')} {v}" for k, v in axes.items())
        prove(name, axes_inputs(axes), packed=axes["num_keys"] * axes["num_queries"] < 1 << 27)
        torch.cuda.empty_cache()


def known(name, scores, ranges):
    """inputs_with_scores: every kernel computes these to the bit."""
    inputs = O.inputs_with_scores(scores, ranges, device="cuda")
    call = Call(inputs)
    out = call()
    torch.cuda.synchronize()
    own = torch.as_tensor(scores, dtype=torch.float32).cuda()
    try:
        O.check(out, inputs, iter([own[max(a, 0):max(b, 0)] for a, b in ranges]))
        verdict = "exact"
    except AssertionError as error:
        verdict = f"WRONG {error}"
    return verdict, call


def timed(call, reps=3):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    begin.record()
    for _ in range(reps):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / reps * 1e3


def hostile():
    for count in (2049, 8193, 131072):
        lines = []
        for kind in O.HOSTILE_KINDS:
            if left() < 20:
                lines.append(f"{kind}: skipped")
                continue
            scores = O.hostile_scores(kind, count)
            verdict, call = known(kind, scores, [(0, count)] * 9 + [(count // 3, count), (0, count - 1)])
            failed, _ = call.failures()
            lines.append(f"{kind} {verdict} {failed} {timed(call):.0f} us")
        print(f"hostile {count}: " + "; ".join(lines), flush=True)
    scores = np.random.default_rng(5).standard_normal(20000).astype(np.float32)
    scores[[3, 900, 19999]], scores[[4, 2053]] = np.nan, np.inf
    print("hostile NaN and inf:", known("nan", scores, [(0, 20000)])[0])
    for Q, N in ((4, 131072), (64, 131072), (600, 32768)):  # whatever few candidates are too many
        if left() < 20:
            print(f"hostile repair of {Q} x {N}: skipped, out of time")
            continue
        inputs = causal(Q, N)
        scores, _ = own_scores(inputs)
        call = Call(inputs)
        usual = timed(call)
        call.o = call.o | {"most_candidates": TOPK}
        ids = call().clone()
        torch.cuda.synchronize()
        starts, ends = (inputs[n].clamp(0, N) for n in ("row_starts", "row_ends"))
        try:
            for first in range(0, Q, 128):
                O.check_block(ids[first:first + 128], scores[first:first + 128], starts[first:first + 128], ends[first:first + 128])
            verdict = "exact"
        except AssertionError as error:
            verdict = f"WRONG {error}"
        print(f"hostile forced repair {Q} x {N}: {verdict}; {call.failures()[0]}; {usual:.0f} us without, {timed(call):.0f} us with", flush=True)
    rows = [json.loads(line)["workload"]["axes"] for line in next(Path("workloads/dsa_prefill").glob("*.jsonl")).read_text().splitlines()]
    rows = [axes for axes in rows if set(axes) - {"num_queries", "num_keys", "ragged_ranges"}]
    for axes in sorted(rows, key=lambda a: a["num_queries"]):
        if left() < 20:
            print(f"hostile {axes}: skipped, out of time")
            continue
        inputs = axes_inputs(axes)
        scores, _ = own_scores(inputs)
        call = Call(inputs)
        ids = call().clone()
        torch.cuda.synchronize()
        starts, ends = (inputs[n].clamp(0, call.N) for n in ("row_starts", "row_ends"))
        try:
            for first in range(0, call.Q, 256):
                rows_ = slice(first, min(first + 256, call.Q))
                O.check_block(ids[rows_], scores[rows_], starts[rows_], ends[rows_])
            verdict = "exact"
        except AssertionError as error:
            verdict = f"WRONG {error}"
        failed, totals = call.failures()
        name = " ".join(f"{k.replace('num_', '')} {v}" for k, v in axes.items())
        print(f"hostile {name}: {verdict}; {failed}; candidates {totals.min():.0f}..{totals.max():.0f}; {timed(call):.0f} us", flush=True)
        del inputs, scores, call
        torch.cuda.empty_cache()


GOALS = {(4096, 16384): 922, (4096, 65536): 3906, (4096, 131072): 7992, (4096, 163840): 9850, (512, 131072): 987, (64, 131072): 179, (8, 131072): 48}


def flops(inputs, N):
    lengths = (inputs["row_ends"].clamp(0, N) - inputs["row_starts"].clamp(0, N)).clamp(min=0).double()
    return float(lengths[lengths > TOPK].sum()) * 16384


def graph_time(call, min_us=60_000, most=200):
    """Median of rounds of graph replays, us a replay, warm."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            call()
        graph.replay()
        stream.synchronize()

        def once(n):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(n):
                graph.replay()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) / n * 1e3

        us = once(3)
        n = int(max(3, min(most, min_us / us)))
        return float(np.median([once(n) for _ in range(5)]))


def kernel_times(call):
    """Median us of each kernel of a call, by CUPTI, L2 cold; and the span."""
    from cupti import cupti
    from harness.timing import _flush_buffer, _Recording

    flush, rounds = _flush_buffer("cuda:0"), 7
    for _ in range(2):
        flush.zero_()
        call()
    torch.cuda.synchronize()
    recording = _Recording(cupti)
    with recording:
        for _ in range(rounds):
            flush.zero_()
            call()
            torch.cuda.synchronize()
    work = sorted((a for a in recording.activities if "prefill" in a.name or "score_kernel" in a.name or "select_kernel" in a.name or "threshold" in a.name), key=lambda a: a.start_ns)
    each = len(work) // rounds
    spans, durations = [], {}
    for r in range(rounds):
        group = work[r * each:(r + 1) * each]
        spans.append((max(a.end_ns for a in group) - group[0].start_ns) / 1e3)
        for i, a in enumerate(group):
            durations.setdefault(i, []).append((a.end_ns - a.start_ns) / 1e3)
    return float(np.median(spans)), [float(np.median(durations[i])) for i in range(each)]


def clock():
    import subprocess

    try:
        text = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader"], capture_output=True, text=True, timeout=5).stdout
        return text.strip().splitlines()[0]
    except Exception as error:  # a lab without nvidia-smi still times
        return repr(error)


def times():
    from tests.packed import build

    variants = [v for v in ("base", "wide", "unordered", "stages4", "lag4", "weigh", "math") if Path(OUT, v, "path").is_file()]
    table = []
    for (Q, N), goal in GOALS.items():
        if left() < 20:
            print(f"time {Q} x {N}: skipped, out of time")
            continue
        inputs = causal(Q, N)
        work, found = flops(inputs, N), {}
        for variant in variants:
            if variant not in ("base", "math") and (Q, N) not in ((4096, 131072), (4096, 16384), (64, 131072), (8, 131072)):
                continue
            call = Call(inputs, variant)
            found[variant] = graph_time(call)
        out = O.empty_output(Q, "cuda")
        runnable = build(ROOM)
        found["packed"] = graph_time(lambda: runnable(*inputs.values(), out))
        parts = ""
        try:
            span, each = kernel_times(Call(inputs))
            parts = f"cold span {span:.0f} us; kernels " + " ".join(f"{x:.1f}" for x in each)
        except Exception as error:
            parts = f"no CUPTI: {error!r}"
        if Q <= 64 or (left() > 60 and (Q, N) in ((4096, 16384), (512, 131072), (4096, 131072))):
            portable = build(ROOM, "portable")
            found["main's route"] = graph_time(lambda: portable(*inputs.values(), out), min_us=20_000)
        us = found["base"]
        line = f"time {Q} x {N}: {us:.1f} us (goal {goal}: {'met' if us <= goal else 'MISSED'}), {work / us / 1e6:.0f} TFLOP/s; packed {found['packed']:.1f}; "
        line += ", ".join(f"{k} {v:.1f}" for k, v in found.items() if k not in ("base", "packed")) + f"; {parts}; {clock()}"
        print(line, flush=True)
        table.append({"Q": Q, "N": N, "us": found, "goal": goal, "tflops": work / us / 1e6, "parts": parts})
        torch.cuda.empty_cache()
    if os.environ.get("RESULTS"):
        Path(os.environ["RESULTS"], "time.json").write_text(json.dumps(table, indent=1))
    memory()


def memory():
    from tests.packed import build

    if left() < 10:
        return
    inputs = causal(4096, 131072)
    out, runnable = O.empty_output(4096, "cuda"), build(ROOM)
    runnable(*inputs.values(), out)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    runnable(*inputs.values(), out)
    torch.cuda.synchronize()
    print(f"memory 4096 x 131072: {(torch.cuda.max_memory_allocated() - before) / 2**20:.1f} MiB beyond arguments (limit 256)")


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    {"layout": layout, "check": check, "hostile": hostile, "time": times}[SUB]()
