"""Builds, checks and timings of dsa_attention's routes; see run.sh. python3 lab.py FOLDER VERB ..."""

import functools
import statistics
import sys
import time
from pathlib import Path

import torch

from harness.config import load_workspace
from tests.oracles.dsa_attention import DIM_CKV, PAGE_SIZE, empty_outputs, oracle, random_inputs, random_rows

START = time.monotonic()
FOLDER = Path(sys.argv[1])
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PAGES = (1024 if sys.argv[2] == "check" else 8462) if DEVICE == "cuda" else 64
NAN = float("nan")
# Valid entries of the 23 official workloads.
OFFICIAL = [
    [2], [18, 11], [33, 52], [63, 9], [6, 337], [18, 19], [92, 48], [288, 4], [17, 13],
    [92, 48, 1044, 14, 411, 30, 16, 8], [18, 19, 1002, 31, 11, 316, 24, 2],
    [33, 52, 72, 17, 18, 401, 1089], [63, 9, 2048, 212, 11, 25, 6, 50], [6, 9, 9, 14, 1639, 71],
    [18, 11, 2048, 20, 25, 45, 135, 326], [19, 20, 32, 12, 25, 3],
    [288, 4, 1884, 21, 136, 2048, 42, 335], [19, 12, 2048, 21, 26, 46, 136],
    [36, 55, 75, 20, 21, 404, 1092, 1], [8, 11, 11, 16, 1641, 73, 1, 1],
    [17, 13, 1887, 16, 180, 1986, 413, 1], [142, 138, 2012, 141, 305, 538],
    [414, 130, 2010, 147, 262, 168, 461],
]  # fmt: skip
FULL = [[2048] * n for n in (1, 2, 4, 6, 7, 8)]
MANY = [[2048] * 16, [2048] * 32, [2048] * 64, [2048] * 128, [33] * 128, [100] * 40, [2048] * 1024]


def load(name):
    """(callable, module of kernel.py) of a packed solution."""
    from flashinfer_bench.compile import BuilderRegistry
    from flashinfer_bench.data import Definition, Solution

    workspace = load_workspace()
    entry = workspace.room("dsa_attention")
    path = workspace.root / "definitions" / entry.op_type / f"{entry.definition}.json"
    solution = Solution.model_validate_json((FOLDER / f"{name}.json").read_text())
    run = BuilderRegistry.get_instance().build(Definition.model_validate_json(path.read_text()), solution)
    return run, sys.modules[run._callable.__module__]


@functools.cache
def caches(pages):
    """Cache tensors of many cases, which read them only."""
    inputs = random_inputs(1, pages, 1000 + pages, DEVICE)
    return {name: inputs[name] for name in ("ckv_cache", "kpe_cache")}


def with_counts(counts, seed, pages=PAGES):
    inputs = random_inputs(len(counts), 0, seed, DEVICE) | caches(pages)
    for token, count in enumerate(counts):
        if count == 0:  # randint() refuses an empty cache, even for no index
            continue
        inputs["sparse_indices"][token, :count] = random_rows(pages, count, seed + token, DEVICE)
    return inputs


def call(run, inputs):
    outputs = empty_outputs(inputs["q_nope"].shape[0], DEVICE)
    for output in outputs:
        output.fill_(NAN)
    run(*inputs.values(), *outputs)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return outputs


def only_rows(inputs):
    """The oracle's indices: what lies outside the cache counts as padding."""
    rows = inputs["ckv_cache"].shape[0] * PAGE_SIZE
    indices = inputs["sparse_indices"]
    return {**inputs, "sparse_indices": torch.where((indices >= 0) & (indices < rows), indices, -1)}


def describe(got, want, rtol, atol, name):
    got, want = got.double().cpu(), want.double().cpu()
    bad = ~torch.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    if not bad.any():
        return []
    places = bad.nonzero()
    spans = " ".join(f"{int(c.min())}..{int(c.max())}({len(c.unique())})" for c in places.T)
    first = tuple(int(i) for i in places[0])
    text = f"{name}: {len(places)} of {bad.numel()} wrong at [token head column] {spans}"
    if name == "output":
        by_column = bad.any(0).any(0).view(-1, 32).any(1).nonzero().flatten().tolist()
        text += f", columns / 32: {by_column}"
    return [f"{text}, first {first}: {got[first]:.5g} for {want[first]:.5g}"]


def compare(label, run, inputs, pick=None):
    output, lse = call(run, inputs)
    some = {**inputs}
    if pick is not None:
        for name in ("q_nope", "q_pe", "sparse_indices"):
            some[name] = inputs[name][pick]
        output, lse = output[pick], lse[pick]
    want, want_lse = oracle(**only_rows(some))
    found = describe(output, want, 2.0**-7, 4e-3, "output") + describe(lse, want_lse, 2e-6, 5e-4, "lse")
    return [f"{label}: {text}" for text in found]


CORNERS = ("holes", "no pages", "one row 2048 times", "scale -0.3", "scale 0", "rows not chosen are NaN", "a chosen NaN")


def corner_case(number):
    label = CORNERS[number]
    if label == "holes":
        inputs = with_counts([0] * 6, 3)
        indices, generator = inputs["sparse_indices"], torch.Generator().manual_seed(1)
        for token, fraction in enumerate((0.5, 0.02, 0.9)):
            chosen = (torch.rand(2048, generator=generator) < fraction).to(DEVICE)
            indices[token, chosen] = random_rows(PAGES, int(chosen.sum()), 50 + token, DEVICE)
        indices[3, 2047] = 5
        indices[4, 64:70] = 7
        indices[5, 1500:1600] = random_rows(PAGES, 100, 9, DEVICE)
        indices[0, :3] = torch.tensor([-5, PAGES * PAGE_SIZE, 2**31 - 1], dtype=torch.int32)
        return inputs
    if label == "no pages":
        return with_counts([0, 0], 4, pages=0)
    if label == "one row 2048 times":
        inputs = with_counts([2048, 33], 5)
        inputs["sparse_indices"][0] = 9
        return inputs
    if label.startswith("scale"):
        return with_counts([400, 33], 9) | {"sm_scale": float(label.split()[1])}
    inputs = with_counts([200, 100, 1500], 8)
    if label == "rows not chosen are NaN":
        used = torch.zeros(PAGES * PAGE_SIZE, dtype=torch.bool, device=DEVICE)
        rows = inputs["sparse_indices"].flatten()
        used[rows[rows >= 0].long()] = True
        for name in ("ckv_cache", "kpe_cache"):
            inputs[name] = inputs[name].clone()
            inputs[name].view(PAGES * PAGE_SIZE, -1)[~used] = NAN
        return inputs
    inputs["ckv_cache"] = inputs["ckv_cache"].clone()
    inputs["ckv_cache"].view(-1, DIM_CKV)[inputs["sparse_indices"][0, 150].long(), 3] = NAN
    return inputs


SIZES = [0, 1, 8, 9, 16, 17, 32, 33, 64, 65, 80, 129, 304, 305, 1024, 1025, 1041, 1281, 2047, 2048]
MIXES = [*OFFICIAL, [2048] * 8, [100, 2048, 7] * 5, [700] * 40, [33, 500] * 40]


def all_cases():
    """(label, cluster or None, how to make the inputs, tokens to compare or None), in a fixed order."""
    for cluster in (16, 8, 2, 1):
        for count in SIZES:
            yield f"cluster {cluster}, {count} entries", cluster, functools.partial(with_counts, [count], count), None
        for number, label in enumerate(CORNERS):
            yield f"cluster {cluster}, {label}", cluster, functools.partial(corner_case, number), None
    for counts in MIXES:
        few = None if len(counts) < 9 else [0, 1, len(counts) - 1]
        yield f"counts {counts[:9]} x{len(counts)}", None, functools.partial(with_counts, counts, len(counts)), few


def check(name, part, parts):
    """Cases number `part`, `part + parts` and on: several processes share the cases of a side."""
    run, kernel = load(name)
    wrong, cases = [], 0
    chosen = kernel.choose
    for label, cluster, make, few in [*all_cases()][part::parts]:
        print(f"... {label}", flush=True)
        inputs = make()
        if cluster is not None and DEVICE == "cuda":
            kernel.choose = lambda *_, c=cluster, **__: ("native", {"cluster": c})
        wrong += compare(label, run, inputs, few)
        kernel.choose = chosen
        cases += 1
    inputs = with_counts(OFFICIAL[16], 77)
    first = [x.clone() for x in call(run, inputs)]
    for turn in range(60 if DEVICE == "cuda" else 1):
        again = call(run, inputs)
        if not all(torch.equal(a, b) for a, b in zip(first, again, strict=True)):
            wrong.append(f"call {turn} differs from the first")
            break
    print(f"{name} part {part}: {cases} cases, {len(wrong)} wrong, {time.monotonic() - START:.0f} s")
    for line in wrong[:12]:
        print("  " + line)
    return not wrong


def make_only():
    """Builds the inputs of every case, and their oracle, without a kernel."""
    for label, _, make, few in all_cases():
        inputs = make()
        if few is not None:
            for name in ("q_nope", "q_pe", "sparse_indices"):
                inputs[name] = inputs[name][few]
        output, lse = oracle(**only_rows(inputs))
        print(f"{label}: {list(output.shape)}, {int((inputs['sparse_indices'] >= 0).sum())} entries", flush=True)
    print(f"made {len([*all_cases()])} cases, {time.monotonic() - START:.0f} s")


STAMPS = ("entry", "indices", "tile 0 requested", "survey read", "queries landed", "query regs", "tile 0 landed", "q K^T", "softmax", "p ckv or sent", "tile 1 landed", "q K^T", "softmax", "p ckv, sent", "factors", "sums landed", "merged", "end")  # fmt: skip
HELPER = ("survey", "requested", "landed", "cluster there", "stats sent", "stats landed", "factors")


def stamps(name):
    """Cycles of CTA 0: thread 0, and the first helping thread; medians over calls with a cold L2."""
    run, kernel = load(name)
    native = sys.modules[kernel.run_native.__module__]
    flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.int8, device="cuda")
    print("stamps of CTA 0 in cycles from its entry (thread 0; then the first helping thread)")
    for counts in ([2], [33], [64], [100], [337], [1044], [2048]):
        inputs, seen = with_counts(counts, 5), []
        for _ in range(30):
            flush.zero_()
            call(run, inputs)
            got = torch.zeros(64, dtype=torch.int64)
            native._module(torch.device("cuda", 0)).read_stamps(got)
            seen.append(got)
        middle = torch.stack(seen[5:]).median(0).values.tolist()
        text = [f"{label} {middle[i] - middle[0]}" for i, label in enumerate(STAMPS) if middle[i]]
        more = [f"{label} {middle[32 + i] - middle[0]}" for i, label in enumerate(HELPER) if middle[32 + i]]
        print(f"{counts[0]} entries: " + " | ".join(text))
        print("    helper: " + " | ".join(more))


def time_all(limit_s, names):
    from harness.timing import CuptiTimer

    timer, sides = CuptiTimer("cuda:0"), {name: load(name) for name in names}
    labels = list(names)
    table = {}

    def left():
        return limit_s - (time.monotonic() - START)

    def measure(key, counts, clusters):
        inputs = with_counts(counts, len(counts))
        outputs = empty_outputs(len(counts), DEVICE)
        found = {}
        for _ in range(3):
            for name, (run, kernel) in sides.items():
                own = kernel.choose
                for cluster in (None, *(clusters if name != "main" else ())):
                    if cluster:
                        kernel.choose = lambda *_, c=cluster, **__: ("native", {"cluster": c})
                    label = name if not cluster else f"{name} c{cluster}"
                    got = timer.measure(lambda r=run: r(*inputs.values(), *outputs), 3, 30, estimation_calls=1)
                    found.setdefault(label, []).append(got.latency_us)
                    kernel.choose = own
        table[key] = {label: statistics.median(x) for label, x in found.items()}

    for number, counts in enumerate(OFFICIAL):
        if left() < 12:
            print(f"timing: stopped at official workload {number}, {left():.0f} s left")
            break
        measure(("official", number), counts, (8,) if len(counts) >= 6 else ())
    for counts in FULL + MANY:
        if left() < 12:
            print(f"timing: {counts[:1]} x {len(counts)} skipped, {left():.0f} s left")
            continue
        measure(("other", f"{counts[0]} x {len(counts)}"), counts, (16, 8) if len(counts) in (6, 7, 8) else ())
    show(labels, table)


def show(labels, table):
    print("\nlatency in us, L2 cold, medians of three rounds in turns; cN: clusters of N, else as chosen")
    every = sorted({label for row in table.values() for label in row}, key=lambda x: (x.split()[0] not in labels, labels.index(x.split()[0]), x))
    print(f"{'':34}" + "".join(f"{label[:11]:>12}" for label in every))
    for key, row in table.items():
        name = str(OFFICIAL[key[1]]).replace(" ", "") if key[0] == "official" else key[1]
        print(f"{name:34.34}" + "".join(f"{row[label]:12.2f}" if label in row else f"{'':12}" for label in every))
    official = {k: row for k, row in table.items() if k[0] == "official"}
    if not official:
        return
    print(f"mean of {len(official)} official" + "".join(f"  {label} {statistics.mean(row[label] for row in official.values()):.2f}" for label in labels))
    print("slowest official   " + "".join(f"  {label} {max(row[label] for row in official.values()):.2f}" for label in labels))
    for name in labels:
        if name == "main":
            continue
        for tokens in (6, 7, 8):
            rows = [row for k, row in official.items() if len(OFFICIAL[k[1]]) == tokens and f"{name} c8" in row]
            if rows:
                print(f"  {name}, {tokens} tokens: as chosen {statistics.mean(r[name] for r in rows):.2f}, clusters of 8 {statistics.mean(r[f'{name} c8'] for r in rows):.2f}")
    print("goals: mean <= 5.5, slowest <= 9, one token of 2 entries <= 3.2, 8 full <= 10.5")


def main():
    verb, rest = sys.argv[2], sys.argv[3:]
    if verb == "build":
        run, _ = load(rest[0])
        call(run, with_counts([3], 0, 4))
        print(f"{rest[0]}: built in {time.monotonic() - START:.0f} s")
    elif verb == "check":
        sys.exit(0 if check(rest[0], int(rest[1]), int(rest[2])) else 1)
    elif verb == "make":
        make_only()
    elif verb == "stamps":
        stamps(rest[0])
    else:
        time_all(float(rest[0]), rest[1:])


if __name__ == "__main__":
    main()
