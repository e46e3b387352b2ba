"""Stages of moe's native kernels, by clock stamps inside (patch.py); see run.sh.
python3 lab.py run FOLDER (of plain.so, stamped.so) | limits FOLDER | self

Thread 0 of each CTA of the multiplying kernel has all of its time in some word; a table shows the mean of the CTAs, with the CTAs' own begins
and ends by %globaltimer around them. So the rows add up to the time from the first CTA's first instruction to the last one's last, and what is
left of the CUPTI span is launch and teardown.
"""
import ctypes
import re
import statistics
import sys
from pathlib import Path

from patch import CTA_WORDS, OTHERS, STRIPES, WORDS

SMS, CEILING = 132, 4.39e12  # of the build's LAB_SMS; bytes/s of a stream of reads
W1_BYTES, W2_BYTES = 4096 * 7168, 7168 * 2048  # of an expert
# Of the checkout in whose root this runs.
STREAMED = int(re.search(r'NATIVE_WAYS = \(\((\d+), "stream"\), \(\d+, "tiles"\)\)', Path("solutions/moe/kernel.py").read_text())[1])
CASES = ((1, 8, 14), (80, 8, 30), (901, 8, 30), (14107, 4, 20))  # tokens, warm-up, timed calls
WORD = {name: i for i, name in enumerate(WORDS)}
NAMES = {
    "ROUTE": "routing: own tokens, waiting for others'", "LIST": "list: packing, meeting", "UNIT": "between units",
    "W_START": "first weights landed", "R_START": "first rows landed", "W_FIRST": "product 1: waiting for weights", "R_FIRST": "product 1: waiting for rows",
    "FIRST": "product 1: multiplying", "WRITE_C": "C written, counted", "W_C": "product 2, first block: weights", "R_C": "waiting for C: first rows",
    "W_SECOND": "product 2: waiting for weights", "R_SECOND": "product 2: waiting for rows", "SECOND": "product 2: multiplying", "WRITE_OUT": "outputs written",
    "MEET": "no unit left, cluster met",
}  # fmt: skip
TILE_NAMES = {"W_FIRST": "product 1: waiting for stages", "W_SECOND": "product 2: waiting for stages", "R_C": "waiting for C: first stages"}


def way_of(tokens):
    return "stream" if tokens <= STREAMED else "tiles"


def least(word):
    """A time that may be kept inverted."""
    word &= 2**64 - 1
    return ~word & (2**64 - 1) if word >= 2**63 else word


def decompose(words, span_us, tokens):
    """words: one call's, unsigned. Returns {row: us} in order, {other: number}."""
    ctas = [words[i * CTA_WORDS : (i + 1) * CTA_WORDS] for i in range(SMS)]
    ctas = [of for of in ctas if of[WORD["BEGIN_NS"]]]
    others = []
    for kernel in range(OTHERS):
        at = SMS * CTA_WORDS + kernel * STRIPES * 4
        stripes = [words[at + 4 * i : at + 4 * i + 4] for i in range(STRIPES)]
        stripes = [of for of in stripes if of[1]]
        others.append((min(least(of[0]) for of in stripes), max(of[1] for of in stripes), min((least(of[2]) for of in stripes if of[2]), default=None)) if stripes else None)
    mean = lambda values: statistics.fmean(list(values))
    of_all = lambda name: [of[WORD[name]] for of in ctas]
    ghz = sum(e - b for b, e in zip(of_all("BEGIN"), of_all("END"), strict=True)) / sum(e - b for b, e in zip(of_all("BEGIN_NS"), of_all("END0_NS"), strict=True))
    route, pack, combine = others
    first, last = min(of_all("BEGIN_NS")), max(of_all("END_NS"))
    rows, begin = {}, first
    if route:
        begin = route[0]
        rows["route_kernel"] = route[1] - begin
        rows["pack_kernel, behind it"] = pack[1] - route[1]
        rows["until the first CTA of the tiles has waited"] = first - pack[1]
    rows["until the mean CTA begins"] = mean(b - first for b in of_all("BEGIN_NS"))
    us = {name: mean(of_all(name)) / ghz for name in NAMES}
    us["FIRST"] -= us["W_START"] + us["R_START"] + us["W_FIRST"] + us["R_FIRST"]
    us["SECOND"] -= us["W_C"] + us["R_C"] + us["W_SECOND"] + us["R_SECOND"]
    names = NAMES | (TILE_NAMES if way_of(tokens) == "tiles" else {})
    for name in NAMES:
        if us[name] or name in ("FIRST", "SECOND"):
            rows[names[name]] = us[name]
    rows["rest of the mean CTA's multiplying threads"] = mean(e - b for b, e in zip(of_all("BEGIN_NS"), of_all("END0_NS"), strict=True)) - sum(us.values())
    rows["its other warps end"] = mean(e - b for b, e in zip(of_all("END0_NS"), of_all("END_NS"), strict=True))
    rows["the last CTA ends"] = mean(last - e for e in of_all("END_NS"))
    rows["combine: until it has waited"] = combine[2] - last
    rows["combine: sums"] = combine[1] - combine[2]
    rows = {name: value / 1e3 for name, value in rows.items()}
    rows["(launch and teardown: what is left)"] = span_us - (combine[1] - begin) / 1e3
    clock = lambda name: [least(of[WORD[name]]) if of[WORD[name]] else None for of in ctas]
    since = lambda name: [(t - b) / ghz / 1e3 for t, b in zip(clock(name), of_all("BEGIN"), strict=True) if t is not None]
    extra = {"ghz": ghz}
    for name in ("T_REQUEST", "T_LANDED", "T_SECOND", "T_LAST", "T_END"):
        extra[name] = mean(since(name)) if since(name) else float("nan")
    for name in ("T_REQUEST", "T_LANDED", "T_SECOND", "T_LAST", "T_END"):
        extra["LO_" + name], extra["MID_" + name], extra["HI_" + name] = min(since(name)), statistics.median(since(name)), max(since(name))
    extra["T_LAST_MOST"], extra["T_END_MOST"] = max(since("T_LAST")), max(since("T_END"))
    extra["FEED_C"], extra["FEED_FREE"] = mean(of_all("FEED_C")) / ghz / 1e3, mean(of_all("FEED_FREE")) / ghz / 1e3
    extra["UNITS_1"], extra["UNITS_2"] = sum(of_all("UNITS_1")), sum(of_all("UNITS_2"))
    return rows, extra


def median_of(dicts):
    keys = dict.fromkeys(key for one in dicts for key in one)
    return {key: statistics.median([one[key] for one in dicts if key in one]) for key in keys}


def show(tokens, experts, packed, plain_us, stamped_us, parts):
    rows, extra = (median_of([part[i] for part in parts]) for i in range(2))
    span = statistics.median(stamped_us)
    print(f"\nT = {tokens}, {experts} experts, {packed} packed rows: {plain_us:.2f} us as it is; {span:.2f} with stamps ({span / plain_us - 1:+.1%}), {extra['ghz']:.3f} GHz")
    at = 0
    for name, value in rows.items():
        at += value
        print(f"  {name:46} {value:9.2f} {value / span:7.1%} {at:9.2f}")
    known = sum(value for name, value in rows.items() if not name.startswith("("))
    print(f"  {'stages / span':46} {known:9.2f} {known / span:7.1%}" + ("" if 0.9 <= known / span <= 1.02 else "   NOT 90 %"))
    print(f"  units {extra['UNITS_1']:.0f} + {extra['UNITS_2']:.0f}; in a mean CTA: rows wait {extra['FEED_C']:.2f} us for C, weights {extra['FEED_FREE']:.2f} for free stages")
    w1, w2 = experts * W1_BYTES, experts * W2_BYTES
    phases = [("W1: first request to first of product 2", w1, extra["T_SECOND"] - extra["T_REQUEST"]), ("W2: from there to the last landed", w2, extra["T_END"] - extra["T_SECOND"]),
              ("both: first request to the last landed", w1 + w2, extra["T_END"] - extra["T_REQUEST"]), ("both, to the last CTA's last", w1 + w2, extra["T_END_MOST"] - extra["T_REQUEST"])]  # fmt: skip
    print(f"  mean CTA, us from its begin: first request {extra['T_REQUEST']:.2f}, first landed {extra['T_LANDED']:.2f}, first of product 2 requested {extra['T_SECOND']:.2f}, last requested {extra['T_LAST']:.2f}, last landed {extra['T_END']:.2f}")
    print("  spread: " + "; ".join(f"{n} {extra['LO_' + n]:.2f} {extra['MID_' + n]:.2f} {extra['HI_' + n]:.2f}" for n in ("T_REQUEST", "T_LANDED", "T_SECOND", "T_LAST", "T_END")))
    for name, size, us in phases:
        print(f"  {name:46} {size / 1e6:9.1f} MB {us:9.2f} us {size / us / 1e6:6.2f} TB/s {size / us * 1e6 / CEILING:6.1%} of 4.39")
    return rows | {"stages / span": known / span * 100}


def summary(table):
    print("\nus a stage (| a row of the page's table)")
    labels = list(table)
    print("| stage | " + " | ".join(f"T = {label}" for label in labels) + " |\n|---|" + "---|" * len(labels))
    for name in dict.fromkeys(name for rows in table.values() for name in rows):
        print(f"| {name} | " + " | ".join(f"{table[label][name]:.1f}" if name in table[label] else "" for label in labels) + " |")


class Side:
    """One build, called with inputs by name."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(str(path))
        self.lib.lab_scratch_bytes.restype = ctypes.c_int64
        self.lib.lab_scratch_bytes.argtypes = [ctypes.c_int64]

    def __call__(self, inputs, output, way=None, stamps=0):
        import torch

        tokens = output.shape[0]
        scratch = torch.empty(self.lib.lab_scratch_bytes(tokens), dtype=torch.uint8, device="cuda")
        pointers = [ctypes.c_void_p(x.data_ptr()) for x in (*list(inputs.values())[:8], output, scratch)]
        error = self.lib.lab_moe(*pointers, tokens, inputs["local_expert_offset"], ctypes.c_float(inputs["routed_scaling_factor"]), SMS, (way or way_of(tokens)) == "tiles", ctypes.c_void_p(stamps), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        assert error == 0, f"lab_moe: {error}"


def setup():
    import torch

    from tests.oracles.moe import EXPERTS, LOCAL_EXPERTS, fill_expert, random_inputs, route_to, select, zero_weights

    assert torch.cuda.get_device_properties(0).multi_processor_count == SMS, "the build counts 132 SMs"
    weights = zero_weights("cuda")
    generator = torch.Generator("cuda").manual_seed(1)
    for expert in range(LOCAL_EXPERTS):
        fill_expert(weights, expert, generator)

    def make(tokens):
        """About one local slot a token; two experts of one token's."""
        if tokens == 1:
            logits = route_to([[40, 50, *range(6)]])
        else:
            logits = torch.randn(tokens, EXPERTS, generator=torch.Generator().manual_seed(tokens))
        inputs = random_inputs(logits, weights, 32, seed=2, device="cuda")
        local = select(logits, inputs["routing_bias"].cpu()) - 32
        local = local[(local >= 0) & (local < LOCAL_EXPERTS)]
        return inputs, len(set(local.tolist())), len(local)

    return torch, make


def run(folder):
    from harness.timing import CuptiTimer

    torch, make = setup()
    sides = {name: Side(folder / f"{name}.so") for name in ("plain", "stamped")}
    timer = CuptiTimer("cuda:0")
    wrong, table = False, {}
    for tokens, warmup, calls in CASES:
        inputs, experts, packed = make(tokens)
        output, stamped = (torch.full((tokens, 7168), float("nan"), dtype=torch.bfloat16, device="cuda") for _ in range(2))
        stamps = torch.zeros((1 + 1 + warmup + calls, SMS * CTA_WORDS + OTHERS * STRIPES * 4), dtype=torch.int64, device="cuda")
        call = iter(range(len(stamps)))
        plain = timer.measure(lambda: sides["plain"](inputs, output), warmup, calls, estimation_calls=1)
        with_stamps = timer.measure(lambda: sides["stamped"](inputs, stamped, None, stamps[next(call)].data_ptr()), warmup, calls, estimation_calls=1)
        if not torch.equal(output, stamped) or not torch.isfinite(output).all():
            wrong = True
            print(f"T = {tokens}: WRONG, the build with stamps gives other outputs")
        words = [[word & (2**64 - 1) for word in of] for of in stamps[-calls:].tolist()]
        parts = [decompose(of, us, tokens) for of, us in zip(words, with_stamps.samples_us, strict=True)]
        table[tokens] = show(tokens, experts, packed, plain.latency_us, with_stamps.samples_us, parts)
    summary(table)
    return 1 if wrong else 0


MOST_STREAMED = re.search(r"MOST_STREAMED = (\w+);", Path("solutions/moe/plan.cuh").read_text())[1]
MOST_STREAMED = 16 if MOST_STREAMED == "UNIT_ROWS" else int(MOST_STREAMED)
LIMITS, WAYS = tuple(tokens for tokens in (8, 12, 16, 24, 32, 48, 64, 80) if tokens <= MOST_STREAMED), ("stream", "tiles")
TURNS, SECONDS = 9, 18  # turns there are no more of than fit these seconds; at least two


def limits(folder):
    """Both ways to serve a call near their limit, in turns."""
    import time

    from harness.timing import CuptiTimer

    start = time.monotonic()
    torch, make = setup()
    plain, timer = Side(folder / "plain.so"), CuptiTimer("cuda:0")
    cases = {tokens: make(tokens) for tokens in LIMITS}
    keys = [(tokens, way) for tokens in LIMITS for way in WAYS]
    outputs = {(tokens, way): torch.full((tokens, 7168), float("nan"), dtype=torch.bfloat16, device="cuda") for tokens, way in keys}
    found, turns, longest = {key: [] for key in keys}, 0, 0.0
    print(f"setup {time.monotonic() - start:.1f} s")
    while turns < TURNS and (turns < 2 or time.monotonic() - start + longest < SECONDS):
        since = time.monotonic()
        for tokens in LIMITS:
            for way in WAYS if turns % 2 else WAYS[::-1]:
                inputs, output = cases[tokens][0], outputs[tokens, way]
                found[tokens, way].append(timer.measure(lambda: plain(inputs, output, way), 1, 12, estimation_calls=1).latency_us)
        turns, longest = turns + 1, max(longest, time.monotonic() - since)
    print(f"us, medians of {turns} turns (least to most); kernel.py has the stream to {STREAMED}\n| T (experts hit) | way | us | | of the least |\n|---|---|---|---|---|")
    for tokens in LIMITS:
        least = min(statistics.median(found[tokens, way]) for way in WAYS)
        for way in WAYS:
            us = found[tokens, way]
            a, b = outputs[tokens, WAYS[0]].float(), outputs[tokens, way].float()
            miss = ((a - b).abs() > 1 + 0.3 * a.abs()).float().mean().item()
            print(f"| {tokens} ({cases[tokens][1]}) | {way} | {statistics.median(us):.1f} | {min(us):.1f} to {max(us):.1f} | {statistics.median(us) / least:.3f} |" + (f"   WRONG: {miss:.1%} differ" if not miss < 0.06 or not torch.isfinite(b).all() else ""))
    print(f"{time.monotonic() - start:.1f} s")
    return 0


def self_check():
    """decompose() and show() on a made call, whose parts are known."""
    for tokens, has_launches in ((80, False), (14107, True)):
        words, t0 = [0] * (SMS * CTA_WORDS + OTHERS * STRIPES * 4), 17 * 10**17
        begin = t0 + (9000 if has_launches else 0)
        for cta in range(SMS):
            of, clock = cta * CTA_WORDS, 10**9 + 12345 * cta
            put = lambda name, value, of=of: words.__setitem__(of + WORD[name], value)
            late = 100 * (cta % 2)
            parts = {"ROUTE": 4000, "LIST": 2000, "UNIT": 1000, "FIRST": 60000, "WRITE_C": 2000, "SECOND": 30000, "WRITE_OUT": 1000, "MEET": 0}
            for name, value in (parts | {"W_START": 3000, "R_START": 500, "W_FIRST": 20000, "R_FIRST": 100, "W_C": 10, "R_C": 5000, "W_SECOND": 9000, "R_SECOND": 90, "FEED_C": 6000, "FEED_FREE": 80000}).items():
                put(name, value)
            inside = sum(parts.values())
            put("BEGIN_NS", begin + late), put("BEGIN", clock), put("END", clock + inside), put("END0_NS", begin + late + inside // 2), put("END_NS", begin + late + inside // 2 + 50)
            put("T_REQUEST", 2**64 - 1 - (clock + 5000) if has_launches else clock + 5000)
            put("T_SECOND", 2**64 - 1 - (clock + 60000) if has_launches else clock + 60000)
            put("T_LANDED", clock + 9000), put("T_LAST", clock + 90000), put("T_END", clock + 99000), put("UNITS_1", 3), put("UNITS_2", 5)
        end = begin + 100 + 50000 + 50
        for kernel, of in enumerate([(t0, t0 + 5000, None), (t0 + 3000, t0 + 8500, t0 + 5100)] if has_launches else [None, None]):
            for i in range(STRIPES if of else 0):
                at = SMS * CTA_WORDS + (kernel * STRIPES + i) * 4
                words[at], words[at + 1], words[at + 2] = 2**64 - 1 - (of[0] + i), of[1] - i, 2**64 - 1 - of[2] if of[2] else 0
        for i in range(40):
            at = SMS * CTA_WORDS + (2 * STRIPES + i) * 4
            words[at], words[at + 1], words[at + 2] = 2**64 - 1 - (begin + 500), end + 4000 - i, 2**64 - 1 - (end + 1000 + i)
        span = (end + 4000 - t0) / 1e3 + 2
        rows, extra = decompose(words, span, tokens)
        assert abs(sum(rows.values()) - span) < 1e-3, (sum(rows.values()), span)
        assert abs(rows["(launch and teardown: what is left)"] - 2) < 1e-3 and abs(extra["ghz"] - 2) < 1e-6
        assert abs(rows["product 1: multiplying"] - (60000 - 23600) / 2e3) < 1e-3 and abs(extra["T_REQUEST"] - 2.5) < 1e-3, rows
        summary({tokens: show(tokens, 30, 80, span, [span], [(rows, extra)])})
    print("self check passed")
    return 0


if __name__ == "__main__":
    sys.exit(self_check() if sys.argv[1] == "self" else {"run": run, "limits": limits}[sys.argv[1]](Path(sys.argv[2])))
