"""Stages of dsa_attention's native kernel in cycles, and its gather alone; see run.sh.
python3 lab.py run FOLDER (of plain.so, stamped.so, gather.so) | self

Of each timed call: its CUPTI span, the clock of stamps (patch.py) and, at the end of every warp, clock and
%globaltimer, of every CTA. The chain that a table shows is that of CTA 0 of the token that ends last. What lies between
the CTAs is by %globaltimer, the rest by that SM's clock; a begin is an end less the cycles between.
    span = launch and teardown + until it begins + its stages + its other warps + the other CTAs
"""
import ctypes
import statistics
import sys
from pathlib import Path

import torch

PAGES, WORDS, CTAS, LARGEST = 8462, 72, 16, 16
CALLS, WARMUP = 60, 3
CASES = [[2], [63], [92], [337], [1044], [2048], [2048] * 8]
WARPS, HELPERS = 8, 4
# What has happened at each stamp of thread 0, with the name of the stage that ends there. "issued": not awaited.
STAGES = {
    1: "indices landed", 2: "rows of tile 0 requested", 3: "queries landed", 4: "queries' loads issued", 5: "survey read",
    6: "cluster met", 7: "rows of tile 0 landed", 8: "tile 0 scored (my half)", 9: "rows of tile 1 landed",
    10: "scored: all tiles, halves exchanged", 11: "weighed", 12: "accumulated: all, or first half (issued)", 13: "second half (issued)",
    14: "sent (issued)", 15: "factors found", 16: "sums of all landed", 17: "merged and written (issued)",
}  # fmt: skip
HELPING = {21: "survey read", 22: "cluster met", 23: "other rows requested", 24: "landed", 25: "cleared", 26: "maxima and sums sent", 27: "of all landed", 28: "factors found"}  # fmt: skip
# The brief names of the stages, over the finer ones.
GROUPS = {
    "start to indices landed": (1,), "rows requested": (2,), "queries, survey, cluster": (3, 4, 5, 6), "rows landed": (7, 9), "scored": (8, 10), "weighed": (11,),
    "accumulated": (12, 13), "sent, awaited": (14, 15, 16), "merged, written": (17,),
}  # fmt: skip
BEFORE, LAUNCH, OTHER_WARPS, OTHER_CTAS = "until CTA 0 of that token begins", "launch and teardown", "its other warps end", "other CTAs end"
# CTAs x rows of each, and tokens x entries and cluster that make them; us of another gather of such rows on an H200.
GATHERS = [
    (8, 8, [8] * 8, 1, 2.0), (16, 64, [64] * 16, 1, 3.5), (16, 128, [128] * 16, 1, 4.8), (64, 128, [128] * 64, 1, 6.7),
    (128, 64, [64] * 128, 1, 6.3), (128, 128, [128] * 128, 1, 9.7),
    (16, 64, [1024], 16, 3.5), (16, 128, [2048], 16, 4.8), (112, 128, [2048] * 7, 16, None), (128, 128, [2048] * 8, 16, 9.7),
]  # fmt: skip


def since(later, earlier):
    """Cycles between two 32-bit clocks."""
    return (later - earlier) % 2**32


def decompose(words, span_ns, ghz):
    """words: [CTA][72] of one call. Returns cycles by row; stages of thread 0 as {stamp: cycles}; helper's from its CTA's begin."""
    ctas = []
    base = words[0][44] + (words[0][56] << 32)  # float64 has no ns of %globaltimer
    for of in words:
        ends = [(of[32 + w], of[44 + w] + (of[56 + w] << 32) - base) for w in range(WARPS + HELPERS)]
        clock, now = max(ends, key=lambda end: since(end[0], of[0]))
        ctas.append((now - since(clock, of[0]) / ghz, now, since(clock, of[0])))
    first_begin, last_end = min(begin for begin, _, _ in ctas), max(end for _, end, _ in ctas)
    last_token = max(range(len(ctas)), key=lambda i: ctas[i][1]) // CTAS
    chain = last_token * CTAS
    begin, end, inside = ctas[chain]
    of = words[chain]
    there = sorted((since(of[i], of[0]), i) for i in STAGES if of[i])
    stages, at = {}, 0
    for now, i in there:
        stages[i], at = now - at, now
    rows = {LAUNCH: span_ns * ghz - (last_end - first_begin) * ghz, BEFORE: (begin - first_begin) * ghz}
    rest = {OTHER_WARPS: inside - at, OTHER_CTAS: (last_end - end) * ghz}
    helper = {i: since(of[i], of[20]) for i in HELPING if of[i]}
    return rows, stages, rest, helper


def median_of(dicts):
    keys = dict.fromkeys(key for one in dicts for key in one)
    return {key: statistics.median([one[key] for one in dicts if key in one]) for key in keys if sum(key in one for one in dicts) * 2 > len(dicts)}


def show(label, spans_us, plain_us, ghz, parts):
    rows, stages, rest, helper = (median_of([part[i] for part in parts]) for i in range(4))
    span = statistics.median(spans_us) * 1e3 * ghz
    print(f"\n{label}: {plain_us:.2f} us as it is; {statistics.median(spans_us):.2f} us with stamps = {span:.0f} cycles at {ghz:.3f} GHz")
    lines = [(name, value) for name, value in rows.items()] + [(STAGES[i], value) for i, value in stages.items()] + list(rest.items())
    at = 0
    for name, value in lines:
        at += value
        print(f"  {name:42} {value:7.0f} {value / span:6.1%} {at:8.0f}")
    share = sum(value for _, value in lines) / span
    print(f"  {'sum of the medians':42} {sum(value for _, value in lines):7.0f} {share:6.1%}" + ("" if 0.9 <= share <= 1.1 else "   NOT 90 to 110 %"))
    inside = sum(stages.values())
    print(f"  helper, from its entry: " + " | ".join(f"{HELPING[i]} {value:.0f}" for i, value in helper.items()))
    return {**rows, **{name: sum(stages.get(i, 0) for i in of) for name, of in GROUPS.items()}, **rest, "sum": sum(value for _, value in lines), "span": span, "inside": inside}


def summary(table):
    print("\nmedian cycles a stage (| a row of the page's table)")
    labels = list(table)
    print("| stage | " + " | ".join(labels) + " |\n|---|" + "---|" * len(labels))
    for name in next(iter(table.values())):
        if name != "inside":
            print(f"| {name} | " + " | ".join(f"{table[label][name]:.0f}" for label in labels) + " |")
    print("| sum / span | " + " | ".join(f"{table[label]['sum'] / table[label]['span']:.1%}" for label in labels) + " |")


class Side:
    """One build, called with inputs by name."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(str(path))

    def __call__(self, inputs, outputs, cluster, stamps=0):
        pointers = [ctypes.c_void_p(x.data_ptr()) for x in (*list(inputs.values())[:5], *outputs)]
        tokens, rows = inputs["q_nope"].shape[0], inputs["ckv_cache"].shape[0] * inputs["ckv_cache"].shape[1]
        scale = ctypes.c_float(inputs["sm_scale"] * 1.4426950408889634)
        error = self.lib.lab_attend(*pointers, scale, rows, tokens, cluster, ctypes.c_void_p(stamps), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        assert error == 0, f"lab_attend: {error}"


def run(folder):
    from harness.timing import CuptiTimer
    from tests.oracles.dsa_attention import empty_outputs, oracle, random_inputs, random_rows

    sides = {name: Side(folder / f"{name}.so") for name in ("plain", "stamped", "gather")}
    timer = CuptiTimer("cuda:0")
    cache = {name: value for name, value in random_inputs(1, PAGES, 1, "cuda").items() if "cache" in name}

    def make(counts):
        inputs = random_inputs(len(counts), 0, 2, "cuda") | cache
        for token, count in enumerate(counts):
            inputs["sparse_indices"][token, :count] = random_rows(PAGES, count, 5 + token, "cuda")
        return inputs

    def clock():
        """GHz, of cycles over %globaltimer in 200 us of one SM; with it, the device is as busy as between timed calls."""
        to = torch.zeros(2, dtype=torch.int64, device="cuda")
        found = []
        for _ in range(5):
            sides["plain"].lib.lab_spin(ctypes.c_void_p(to.data_ptr()), 400_000, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
            cycles, ns = to.tolist()
            found.append(cycles / ns)
        return statistics.median(found)

    wrong, table = False, {}
    for counts in CASES:
        inputs = make(counts)
        outputs, stamped = empty_outputs(len(counts), "cuda"), empty_outputs(len(counts), "cuda")
        for tensor in (*outputs, *stamped):
            tensor.fill_(float("nan"))
        stamps = torch.zeros((1 + CALLS + WARMUP + 1, len(counts) * CTAS, WORDS), dtype=torch.int32, device="cuda")
        call = iter(range(len(stamps)))
        sides["plain"](inputs, outputs, LARGEST)
        with_stamps = timer.measure(lambda: sides["stamped"](inputs, stamped, LARGEST, stamps[next(call)].data_ptr()), WARMUP, CALLS, estimation_calls=1)
        ghz = clock()
        plain = timer.measure(lambda: sides["plain"](inputs, outputs, LARGEST), WARMUP, CALLS, estimation_calls=1)
        same = all(torch.equal(a, b) for a, b in zip(outputs, stamped, strict=True))
        label = f"{counts[0]}" + (f" x {len(counts)}" if len(counts) > 1 else "")
        if not same:
            wrong = True
            print(f"{label}: WRONG, the build with stamps gives other outputs")
        if len(counts) == 1:
            want, want_lse = oracle(**inputs)
            error, lse_error = (outputs[0].double().cpu() - want).abs().max().item(), (outputs[1].double().cpu() - want_lse).abs().max().item()
            if not (error < 0.04 and lse_error < 1e-3):
                wrong = True
                print(f"{label}: WRONG, {error:.3g} and {lse_error:.3g} off the oracle")
        words = (stamps[-CALLS:].cpu().to(torch.int64) & 0xFFFFFFFF).tolist()
        parts = [decompose(of, us * 1e3, ghz) for of, us in zip(words, with_stamps.samples_us, strict=True)]
        table[label] = show(label + " entries", with_stamps.samples_us, plain.latency_us, ghz, parts)
    summary(table)

    print("\ngather: the kernel until its rows have landed, queries (18 KB a CTA) with them, L2 cold; beside it another kernel's gather of such rows")
    print("| CTAs x rows | as | us | other | MB | TB/s |\n|---|---|---|---|---|---|")
    for ctas, rows, counts, cluster, other in GATHERS:
        inputs, lse = make(counts), torch.zeros(max(len(counts) * 16, ctas), device="cuda")
        outputs = (empty_outputs(len(counts), "cuda")[0], lse)
        found = statistics.median([timer.measure(lambda: sides["gather"](inputs, outputs, cluster), 2, 40, estimation_calls=1).latency_us for _ in range(3)])
        size = ctas * rows * 1152
        print(f"| {ctas} x {rows} | {len(counts)} x {counts[0]}, clusters of {cluster} | {found:.2f} | {other or ''} | {size / 1e6:.2f} | {size / found / 1e6:.2f} |")
    return 1 if wrong else 0


def self_check():
    """decompose() and show() on a made call of two tokens, whose parts are known."""
    parts, spans = [], []
    for _ in range(3):
        words = []
        for cta in range(32):
            of = [0] * WORDS
            begin = 2**32 - 500 + 77 * cta  # clocks wrap, and differ by SM
            token = cta // 16
            for i, cycles in {0: 0, 1: 1000, 2: 1400, 3: 1500, 4: 1550, 5: 1700, 6: 1800, 7: 3000, 8: 3600, 9: 4000, 10: 4600, 11: 5200, 12: 5900, 13: 6200, 14: 6300, 15: 6400, 16: 6600, 17: 7000}.items():
                of[i] = (begin + cycles) % 2**32
            of[20] = of[0]
            for i in HELPING:
                of[i] = (begin + 100 * i) % 2**32
            start_ns = 17 * 10**17 + 200 + (4000 if token else 0) + (10 if cta % 16 else 0)
            for w in range(12):
                cycles = 7000 + (60 if w == 5 else 0)
                now = start_ns + cycles // 2 + (20 if cta % 16 == 7 else 0)
                of[32 + w], of[44 + w], of[56 + w] = (begin + cycles) % 2**32, now % 2**32, now >> 32
            words.append(of)
        spans.append((4000 + 3530 + 30 + 1000) / 1e3)
        parts.append(decompose(words, spans[-1] * 1e3, 2.0))
    rows, stages, rest, helper = parts[0]
    assert (rows, rest) == ({LAUNCH: 2000.0, BEFORE: 8000.0}, {OTHER_WARPS: 60, OTHER_CTAS: 60.0}), (rows, rest)
    assert sum(stages.values()) == 7000 and stages[7] == 1200 and helper[21] == 2100
    made = show("made", spans, 8.0, 2.0, parts)
    assert abs(made["sum"] - made["span"]) < 1
    summary({"made": made, "again": made})
    assert sorted(i for of in GROUPS.values() for i in of) == sorted(STAGES)
    print("self check passed")
    return 0


if __name__ == "__main__":
    sys.exit(self_check() if sys.argv[1] == "self" else run(Path(sys.argv[2])))
