"""python lab.py build TREE OUT NAME | check OUT | time OUT NAME... | one OUT NAME Q N: see run.sh."""
import json, os, subprocess, sys, threading, time
from pathlib import Path

SUB = sys.argv[1]
ROOM, TOPK = "dsa_indexer_prefill", 2048
NAMES = ("q_index_fp8", "k_index_fp8", "k_scale", "weights", "row_starts", "row_ends")
DEADLINE = time.time() + float(os.environ.get("LAB_SECONDS", "300"))
left = lambda: DEADLINE - time.time()


def replace(text, old, new):
    assert text.count(old) == 1, f"not once in the source: {old!r}"
    return text.replace(old, new)


def debug(f):
    """The filtering launch also stores every score: args.debug [Q, N], set by set_debug()."""
    f["plan.cuh"] = replace(f["plan.cuh"], "slots, most_candidates;\n", "slots, most_candidates;\n  float* debug;\n")
    s = replace(f["sinks.cuh"], "  uint32_t place, limit;", "  float* debug;\n  uint32_t place, limit;")
    s = replace(s, "    limit = place + ties(rows) + ROWS;\n", "    limit = place + ties(rows) + ROWS;\n"
                "    debug = args.debug + static_cast<int64_t>(max(rows.row[own_query()], 0)) * args.num_keys;\n")
    f["sinks.cuh"] = replace(s, "    const bool passes = range.holds(key) &&", "    if (range.holds(key)) debug[key] = score;\n    const bool passes = range.holds(key) &&")
    s = replace(f["prefill.cu"], "// Shapes and dtypes are checked by the caller; all tensors",
                "float* debug_scores = nullptr;\nvoid set_debug(tvm::ffi::TensorView x) { debug_scores = static_cast<float*>(x.data_ptr()); }\n\n"
                "// Shapes and dtypes are checked by the caller; all tensors")
    s = replace(s, "    args.map = map;\n", "    args.map = map;\n    args.debug = debug_scores + first * num_keys;\n")
    f["prefill.cu"] = s + "TVM_FFI_DLL_EXPORT_TYPED_FUNC(set_debug, set_debug)\n"


def nostore(f):
    """Candidates are counted, none is stored."""
    f["sinks.cuh"] = replace(f["sinks.cuh"], "    if (passes && at < limit) candidates[at] = make_uint2(__float_as_uint(score), key);\n", "    asm volatile(\"\" ::\"r\"(at), \"f\"(score), \"r\"(key));\n")


def chains(f):
    """Four chains of two products a query, not two of four."""
    s = replace(f["score.cuh"], "  float sums[2][4] = {};\n", "  float sums[2][4] = {}, more[2][4] = {};\n")
    s = replace(s, "      multiply_f16(sums[query], positive, weight[0], weight[1]);\n", "      multiply_f16(group % 2 ? more[query] : sums[query], positive, weight[0], weight[1]);\n")
    f["score.cuh"] = replace(s, "  const bool is_second_query = threadIdx.x % 2;\n", "#pragma unroll\n  for (int i = 0; i < 8; ++i) sums[i / 4][i % 4] += more[i / 4][i % 4];\n  const bool is_second_query = threadIdx.x % 2;\n")


def unmeasured(f):
    """Nobody looks at how large codes are."""
    f["feed.cuh"] = replace(f["feed.cuh"], "    if (!is_last) measure_queries(shared, buffer.at());\n", "")
    f["score.cuh"] = replace(f["score.cuh"], "(large.x | large.y | large.z | large.w) != 0", "false")


VARIANTS = {"base": lambda f: None, **{v.__name__: v for v in (debug, nostore, chains, unmeasured)}}


def build(tree, out, name):
    import tvm_ffi.cpp

    files = [*Path(tree, "solutions", ROOM).glob("*.cu*"), *Path(tree, "solutions/common").glob("*.cuh")]
    files = {p.name: p.read_text() for p in files}
    VARIANTS[name.split("_")[-1]](files)
    folder = Path(out, name)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text)
    os.environ.setdefault("TVM_FFI_CUDA_ARCH_LIST", "9.0a"), os.environ.setdefault("CUDA_HOME", "/usr/local/cuda")
    path = tvm_ffi.cpp.build(f"prefill_{name}", cuda_files=[str(folder / "prefill.cu")], extra_cuda_cflags=["-O3", "-Xptxas=-v"],
                             build_directory=str(folder / "build"), backend="cuda")
    (folder / "path").write_text(str(path))


if SUB == "build":
    build(*sys.argv[2:5])
    sys.exit()

OUT = sys.argv[2]
LAST = os.environ["LAST"]
sys.path.insert(0, os.getcwd())
import numpy as np
import torch
import tvm_ffi
from harness.rules.prefill_inputs import draw_inputs
from tests.oracles import dsa_indexer_prefill as O

_space = {"math": __import__("math"), "TOPK": TOPK}
_text = Path("solutions", ROOM, "kernel.py").read_text()
exec(_text[_text.index("NATIVE_CAPABILITY ="):_text.index("def choose(\n")], _space)
_modules = {}


def module(name):
    if name not in _modules:
        _modules[name] = tvm_ffi.load_module(Path(OUT, name, "path").read_text())
    return _modules[name]


class Call:
    def __init__(self, inputs, name, **changes):
        self.inputs, self.name = inputs, name
        self.Q, self.N = len(inputs["row_starts"]), len(inputs["k_scale"])
        self.o = _space["choose_native"](self.Q, self.N) | changes
        self.table = torch.full((max(self.o["table_words"], 1),), -123456789, dtype=torch.int32, device="cuda")
        self.area = torch.full((max(self.o["area_bytes"], 1),), 0xCD, dtype=torch.uint8, device="cuda")
        self.out = torch.full((self.Q, TOPK), 0x7FFFFFFF, dtype=torch.int32, device="cuda")
        self.args = [inputs[n].view(torch.uint8) if "fp8" in n else inputs[n] for n in NAMES]

    def __call__(self):
        module(self.name).select_topk(*self.args, self.out, self.table, self.area, self.o["most_queries"], self.o["most_candidates"])
        return self.out

    def failed(self):
        if self.N <= TOPK:
            return 0
        Q = (self.Q - 1) % self.o["most_queries"] + 1
        return int(self.table[2 * -(-Q // 4) + (Q + 528) * 8 + Q])


def drawn(seed=1, **axes):
    torch.manual_seed(seed)
    return dict(zip(NAMES, draw_inputs(axes, "cuda")))


def enlarge(inputs, seed=3):
    """Queries quantised to the full range of e4m3, as servers do."""
    q = torch.randn(inputs["q_index_fp8"].shape, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
    scale = q.abs().amax(dim=2, keepdim=True) / 448
    inputs["q_index_fp8"] = (q / scale).to(torch.float8_e4m3fn)
    inputs["weights"] = inputs["weights"] * scale[:, :, 0] * 1e-3
    return inputs


def own_scores(inputs):
    call = Call(inputs, f"{LAST}_debug")
    scores = torch.full((call.Q, call.N), float("nan"), device="cuda")
    module(f"{LAST}_debug").set_debug(scores)
    call()
    torch.cuda.synchronize()
    return scores


def prove(name, inputs, scores=None, **changes):
    begin = time.time()
    scores = own_scores(inputs) if scores is None else scores
    call = Call(inputs, f"{LAST}_base", **changes)
    first, again = call().clone(), call().clone()
    torch.cuda.synchronize()
    starts, ends = (inputs[n].clamp(0, call.N) for n in ("row_starts", "row_ends"))
    verdict = "exact"
    for label, ids in (("", first), ("again ", again)):
        try:
            for row in range(0, call.Q, 64):
                rows = slice(row, min(row + 64, call.Q))
                O.check_block(ids[rows], scores[rows], starts[rows], ends[rows])
        except AssertionError as error:
            verdict = f"{label}WRONG {str(error)[:160]}"
    worst = 0.0
    for r in np.unique(np.linspace(0, call.Q - 1, 5).astype(int)):
        if int(ends[r] - starts[r]) > TOPK and "hostile" not in name:
            q, k = inputs["q_index_fp8"][r].double(), inputs["k_index_fp8"].double()
            want = (inputs["weights"][r].double() @ torch.relu(q @ k.T * inputs["k_scale"].double()))[starts[r]:ends[r]]
            worst = max(worst, float((scores[r, starts[r]:ends[r]].double() - want).abs().max() / want.std()))
    print(f"check {name}: {verdict}; fp64 error {worst:.5f} of deviation{'' if worst < 0.01 else ' WRONG'}; failed {call.failed()} of {call.Q}; {time.time() - begin:.1f} s", flush=True)


def check():
    prove("5 x 2300", O.random_inputs([(0, 2300), (5, 2200), (0, 100), (100, 2300), (17, 2270)], 2300, seed=1, device="cuda"))
    inputs = O.random_inputs([(0, 9001)] * 6, 9001, seed=2, device="cuda")
    inputs["k_scale"][::3].neg_()
    prove("6 x 9001, negative scales", inputs)
    for Q, N, ragged in ((37, 20000, 1), (8, 131072, 0), (64, 131072, 0), (64, 131072, 1), (512, 32768, 1), (512, 131072, 0), (4096, 16384, 0), (4096, 8192, 0), (8192, 16384, 1), (4096, 65536, 0), (4096, 131072, 0)):
        if left() > 20:
            prove(f"{Q} x {N}{' ragged' * ragged}", drawn(num_queries=Q, num_keys=N, **({"ragged_ranges": 1} if ragged else {})))
            torch.cuda.empty_cache()
    for Q, N in ((64, 40000), (4096, 8192), (512, 131072)):
        if left() > 20:
            prove(f"{Q} x {N} large codes", enlarge(drawn(num_queries=Q, num_keys=N)))
    inputs = drawn(num_queries=9, num_keys=30000)
    mixed = enlarge(drawn(num_queries=9, num_keys=30000))
    for n in ("q_index_fp8", "weights"):
        inputs[n].view(torch.uint8)[::3] = mixed[n].view(torch.uint8)[::3]
    inputs["k_scale"][::7].neg_()
    prove("9 x 30000 some large codes, some scales negative", inputs)
    inputs = drawn(num_queries=9, num_keys=30000)
    inputs["weights"] *= (10.0 ** torch.linspace(-36, 36, 9, device="cuda"))[:, None]
    inputs["k_scale"] *= 1e-3
    prove("9 x 30000 tiny and huge weights", inputs)
    inputs = drawn(num_queries=8, num_keys=30000)
    codes = inputs["q_index_fp8"].view(torch.uint8)
    codes[1], codes[6, 5, 7] = 0x7F, 0x7F
    prove("8 x 30000 no-numbers in queries 1 and 6", inputs)
    for Q, N in ((4, 131072), (64, 131072), (600, 32768)):
        if left() > 15:
            prove(f"forced repair {Q} x {N}", drawn(num_queries=Q, num_keys=N), most_candidates=TOPK)
    for kind in O.HOSTILE_KINDS:  # thresholds by warps, of more samples than a warp holds
        if left() > 12:
            scores = O.hostile_scores(kind, 60000)
            inputs = O.inputs_with_scores(scores, [(0, 60000), (2000, 60000), (0, 59999), (5, 9000)] * 257, device="cuda")
            prove(f"hostile {kind} 60000, 1028 queries", inputs, torch.as_tensor(scores, dtype=torch.float32).cuda().expand(1028, -1))
    for count in (2049, 8193, 131072):
        for kind in O.HOSTILE_KINDS:
            if left() < 10:
                print("hostile: out of time")
                return
            scores = O.hostile_scores(kind, count)
            ranges = [(0, count)] * 9 + [(count // 3, count), (0, count - 1)]
            inputs = O.inputs_with_scores(scores, ranges, device="cuda")
            own = torch.as_tensor(scores, dtype=torch.float32).cuda().expand(len(ranges), -1)
            prove(f"hostile {kind} {count}", inputs, own)


def per_kernel(call, reps):
    """us of each kernel by CUPTI, mean of `reps` calls, and of a call from first start to last end."""
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for _ in range(reps):
            call()
        torch.cuda.synchronize()
    events = sorted((e for e in p.profiler.kineto_results.events() if "_kernel" in e.name()), key=lambda e: e.start_ns())
    label = lambda n: ("sample", "filter", "repair")[int(n[n.index("Mode)") + 5])] if "score_kernel" in n else "threshold" if "threshold" in n else "select"
    found, spans, count = {}, [], len(events) // reps
    for i in range(0, len(events) - count + 1, count):
        group = events[i:i + count]
        for e in group:
            found.setdefault(label(e.name()), []).append(e.duration_ns() / 1e3)
        spans.append((max(e.start_ns() + e.duration_ns() for e in group) - group[0].start_ns()) / 1e3)
    median = lambda x: sorted(x)[len(x) // 2]
    return median(spans), {k: median(v) for k, v in found.items()}


class Board:
    """The device's energy counter (mJ) by NVML, and its clock and power by nvidia-smi, 20 times a second."""

    def __init__(self):
        self.nvml, uuid = None, "0"
        try:
            import ctypes

            uuid = "GPU-" + str(torch.cuda.get_device_properties(0).uuid)

            nvml, self.handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
            here = ctypes.byref(self.handle)
            if nvml.nvmlInit_v2() == 0 and (nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), here) == 0 or nvml.nvmlDeviceGetHandleByIndex_v2(0, here) == 0):
                self.nvml, self.count = nvml, ctypes.c_ulonglong()
        except Exception as error:
            print("no NVML:", str(error)[:100])
        self.samples = []
        self.smi = subprocess.Popen(["nvidia-smi", "-i", uuid, "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "-lms", "50"],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.smi.stdout:
            try:
                self.samples.append((time.time(), *(float(x) for x in line.split(","))))
            except ValueError:
                pass

    def millijoules(self):
        if self.nvml is None:
            return None
        import ctypes

        return self.count.value if self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle, ctypes.byref(self.count)) == 0 else None

    def run(self, graph, count, seconds):
        """us, J by the counter, W and MHz (median of the samples of the second half) of a call."""
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        begin, before, replays = time.time(), self.millijoules(), 0
        while time.time() - begin < seconds:
            for _ in range(4):
                graph.replay()
            torch.cuda.synchronize()
            replays += 4
        end, after = time.time(), self.millijoules()
        window = [s for s in list(self.samples) if begin + (end - begin) * 0.4 < s[0] < end]
        median = lambda x: sorted(x)[len(x) // 2] if x else float("nan")
        calls = replays * count
        joules = (after - before) / 1e3 / calls if before is not None and after is not None else float("nan")
        return (end - begin) * 1e6 / calls, joules, median([s[2] for s in window]), median([s[1] for s in window])


def energy(board, Q, N, graphs, count):
    """Sides in turns, twice."""
    found = {n: [] for n in graphs}
    for turn in range(2):
        for n in graphs if turn == 0 else reversed(list(graphs)):
            found[n].append(board.run(graphs[n], count, 0.9))
    for n, runs in found.items():
        print(f"energy {Q} x {N} {n}: " + "; ".join(f"{us:.1f} us, {j:.4f} J by the counter, {w * us / 1e6:.4f} J by {w:.0f} W, {mhz:.0f} MHz" for us, j, w, mhz in runs), flush=True)


def graph_of(call, count):
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def timing(names):
    """Per call, of graphs of several calls; the sides take turns, so that all meet the same clocks."""
    print("nvidia-smi", subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip())
    board = Board()
    for Q, N, goal, old in ((4096, 16384, 922, 978), (4096, 131072, 7992, 8171), (4096, -16384, 0, 0), (4096, -131072, 0, 0), (8, 131072, 48, 46.6), (512, 131072, 987, 943), (64, 131072, 179, 156), (4096, 8192, 0, 0), (4096, 163840, 9850, 10098), (4096, 65536, 3906, 3918)):
        if left() < 6:
            print("time: out of time")
            break
        inputs = drawn(num_queries=Q, num_keys=abs(N))
        if N < 0:
            inputs, N = enlarge(inputs), -N
            print("large codes:")
        long = N * Q > 1 << 27
        chosen = [n for n in names if n.endswith("_base") or (Q, N) in ((4096, 16384), (4096, 131072))]
        calls, found, kernels = {n: Call(inputs, n) for n in chosen}, {n: [] for n in chosen}, {}
        for n in chosen if (Q, N) not in ((4096, 65536), (64, 131072), (4096, 163840)) else ():
            try:
                kernels[n] = per_kernel(calls[n], 3 if long else 15)
            except Exception as error:
                print(f"time {Q} x {N} {n}: {type(error).__name__} {str(error)[:200]}", flush=True)
        count = 3 if long else 10 if N > 8192 else 20
        graphs = {n: graph_of(calls[n], count) for n in chosen}
        for _ in range(5 if long else 15):
            for n in chosen:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record(), graphs[n].replay(), end.record()
                torch.cuda.synchronize()
                found[n].append(begin.elapsed_time(end) * 1e3 / count)
        for n in chosen:
            f = sorted(found[n])
            span, parts = kernels.get(n, (0, {}))
            print(f"time {Q} x {N} {n}: graph {f[len(f) // 2]:.1f} us, {f[0]:.1f} to {f[-1]:.1f} (goal {goal}; recorded {old}), span {span:.1f}; "
                  + ", ".join(f"{k} {v:.1f}" for k, v in parts.items()) + f"; failed {calls[n].failed()}", flush=True)
        if Q == 4096 and N >= 16384 and left() > 2.2 * len(graphs) + 6:
            energy(board, Q, N, {n: graphs[n] for n in chosen if n.endswith("_base")}, count)
        del calls, graphs
        torch.cuda.empty_cache()
    board.smi.terminate()


if SUB == "check":
    check()
elif SUB == "time":
    timing(sys.argv[3:])
elif SUB == "one":  # for ncu: three calls
    name, Q, N = sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    call = Call(drawn(num_queries=Q, num_keys=N), name)
    for _ in range(3):
        call()
    torch.cuda.synchronize()
