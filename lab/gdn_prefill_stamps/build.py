"""Sources of each variant: patched copies, all strings must occur once; built by nvcc alone, side by side.

build.py ROOT OUT JOBS [--cubin]   (ROOT: tree with solutions/; writes OUT/<i>/prefill.so, OUT/log)
"""
import os, re, shutil, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent

# ---- stamps --------------------------------------------------------------------------------------
SOLVE_CTAS, SOLVE_ROUNDS, SOLVE_MARKS = 264, 3, 32   # [cta][warp 8][round][mark]
SCAN_CTAS, SCAN_ROUNDS, SCAN_MARKS = 32, 4, 16       # [cta][warp 12][round][mark]
FIRST_ROUND = 12                                     # of the scan: a steady one
HELPERS = f'''
__device__ unsigned solve_stamps[{SOLVE_CTAS} * 8 * {SOLVE_ROUNDS} * {SOLVE_MARKS}];
__device__ unsigned scan_stamps[{SCAN_CTAS} * 12 * {SCAN_ROUNDS} * {SCAN_MARKS}];
__device__ unsigned long long cta_stamps[3 * 512];
// No branch: products are in flight. One lane a warp; at < 0: none.
__device__ __forceinline__ void mark(unsigned* base, int at, int i) {{
  asm volatile("{{\\n.reg .pred p;\\n.reg .u32 t;\\n.reg .u64 a;\\nsetp.ge.s32 p, %1, 0;\\nmad.wide.s32 a, %1, 4, %0;\\n"
               "mov.u32 t, %%clock;\\n@p st.global.u32 [a + %2], t;\\n}}" ::"l"(base), "r"(at), "n"(0) : "memory");
}}
template <int I>
__device__ __forceinline__ void mark_solve(int at) {{
  asm volatile("{{\\n.reg .pred p;\\n.reg .u32 t;\\n.reg .u64 a;\\nsetp.ge.s32 p, %1, 0;\\nmad.wide.s32 a, %1, 4, %0;\\n"
               "mov.u32 t, %%clock;\\n@p st.global.u32 [a + %2], t;\\n}}" ::"l"(solve_stamps), "r"(at), "n"(4 * I) : "memory");
}}
template <int I>
__device__ __forceinline__ void mark_scan(int at) {{
  asm volatile("{{\\n.reg .pred p;\\n.reg .u32 t;\\n.reg .u64 a;\\nsetp.ge.s32 p, %1, 0;\\nmad.wide.s32 a, %1, 4, %0;\\n"
               "mov.u32 t, %%clock;\\n@p st.global.u32 [a + %2], t;\\n}}" ::"l"(scan_stamps), "r"(at), "n"(4 * I) : "memory");
}}
__device__ __forceinline__ int solve_mark(int round) {{
  const bool on = threadIdx.x % 32 == 0 && round < {SOLVE_ROUNDS} && blockIdx.x < {SOLVE_CTAS};
  return on ? ((blockIdx.x * 8 + threadIdx.x / 32) * {SOLVE_ROUNDS} + round) * {SOLVE_MARKS} : -1;
}}
__device__ __forceinline__ int scan_mark(int chunk) {{
  const int round = chunk - {FIRST_ROUND};
  const bool on = threadIdx.x % 32 == 0 && round >= 0 && round < {SCAN_ROUNDS} && blockIdx.x < {SCAN_CTAS};
  return on ? ((blockIdx.x * 12 + threadIdx.x / 32) * {SCAN_ROUNDS} + round) * {SCAN_MARKS} : -1;
}}
__device__ __forceinline__ void mark_cta(int i) {{
  unsigned long long t; unsigned sm;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0 && blockIdx.x < 512) cta_stamps[3 * blockIdx.x + i] = t, cta_stamps[3 * blockIdx.x + 2] = sm;
}}
'''
HELPERS = HELPERS[:HELPERS.index("// No branch")] + "// No branch: products are in flight. One lane a warp; at < 0: none.\n" + HELPERS[HELPERS.index("template <int I>"):]
PLAN = ("plan.cuh", "struct Args {\n", HELPERS + "\nstruct Args {\n")
READER = ("prefill.cu", "TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_scratch, count_scratch)", '''namespace {
template <typename T> void to_host(tvm::ffi::TensorView to, const T& symbol) {
  check_error(cudaMemcpyFromSymbol(to.data_ptr(), symbol, sizeof(symbol), 0, cudaMemcpyDeviceToDevice), "stamps");
}
void read_stamps(tvm::ffi::TensorView solve, tvm::ffi::TensorView scan, tvm::ffi::TensorView ctas) {
  to_host(solve, solve_stamps); to_host(scan, scan_stamps); to_host(ctas, cta_stamps);
  void* at = nullptr;
  cudaGetSymbolAddress(&at, solve_stamps); cudaMemset(at, 0, sizeof(solve_stamps));
  cudaGetSymbolAddress(&at, scan_stamps); cudaMemset(at, 0, sizeof(scan_stamps));
  cudaGetSymbolAddress(&at, cta_stamps); cudaMemset(at, 0, sizeof(cta_stamps));
}
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(read_stamps, read_stamps)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_scratch, count_scratch)''')


def m(i):
    return f"  mark_solve<{i}>(at);\n"


def s(i):
    return f"  mark_scan<{i}>(at_mark);\n"


SOLVE_NAMES = ["top", "convert rows", "gates", "sync", "find next chunk", "request it", "publish + sync", "store issue",
               "K K^T / Q K^T", "queries stored + sync", "fade", "publish + sync", "invert corner", "sync", "merge corners",
               "times beta", "scores product", "sync", "store reads", "times remaining", "keys product 0", "store 0",
               "keys product 1", "store 1", "publish + sync", "store + its reads", "sync"]
SOLVE_STAMPS = [
    ("prefill.cu", "  request();\n#pragma unroll 1\n  while", "  request();\n  int round = 0;\n  mark_cta(0);\n#pragma unroll 1\n  while"),
    ("prefill.cu", "    convert_rows(shared);\n", "    const int at = solve_mark(round++);\n" + m(0) + "    convert_rows(shared);\n" + m(1)),
    ("prefill.cu", "    __syncthreads();  // slot and chunk have been read\n", m(2) + "    __syncthreads();  // slot and chunk have been read\n" + m(3)),
    ("prefill.cu", "    request();  // on its way while this chunk is solved\n", m(4) + "    request();  // on its way while this chunk is solved\n" + m(5)),
    ("prefill.cu", "    __syncthreads();  // keys, queries and gates are there\n", "    __syncthreads();  // keys, queries and gates are there\n" + m(6)),
    ("prefill.cu", "    solve_chunk(shared, args, slot, qk_head, head, block);\n    __syncthreads();  // all of it has been read\n  }\n",
     "    solve_chunk(shared, args, slot, qk_head, head, block, at);\n    __syncthreads();  // all of it has been read\n" + m(26) + "  }\n  mark_cta(1);\n"),
    ("solve.cuh", "                                            int qk_head, int head, int block) {\n", "                                            int qk_head, int head, int block, int at) {\n"),
    ("solve.cuh", "  float sums[32];\n  multiply_keys(head == 0 ? shared.keys : shared.queries, shared.keys, block, sums);\n",
     "  float sums[32];\n" + m(7) + "  multiply_keys(head == 0 ? shared.keys : shared.queries, shared.keys, block, sums);\n" + m(8)),
    ("solve.cuh", "  fade_products(shared, head == 1, block, args.scale, sums);\n", m(9) + "  fade_products(shared, head == 1, block, args.scale, sums);\n" + m(10)),
    ("solve.cuh", "  __syncthreads();  // A and the scores of both v heads are there\n  invert_corner(shared, head, block);\n",
     "  __syncthreads();  // A and the scores of both v heads are there\n" + m(11) + "  invert_corner(shared, head, block);\n" + m(12)),
    ("solve.cuh", "  solve_head(shared, head, block);\n  publish_shared();\n  sync_threads_of(1 + head, 128);  // writes and reads are there\n",
     m(13) + "  solve_head(shared, head, block, at);\n  publish_shared();\n  sync_threads_of(1 + head, 128);  // writes and reads are there\n" + m(24)),
    ("solve.cuh", "    store_bulk(solved->reads, shared.scores[head], sizeof(Solved::reads));\n    finish_bulk_reads();\n  }\n",
     "    store_bulk(solved->reads, shared.scores[head], sizeof(Solved::reads));\n    finish_bulk_reads();\n  }\n" + m(25)),
    ("solve.cuh", "solve_head(SolveMemory& shared, int head, int block) {\n", "solve_head(SolveMemory& shared, int head, int block, int at) {\n"),
    ("solve.cuh", "  merge_corners(shared, head, block, rows);\n", "  merge_corners(shared, head, block, rows);\n" + m(14)),
    ("solve.cuh", "  float sums[32];\n  multiply_scores(shared.scores[head], rows, sums);\n", "  float sums[32];\n" + m(15) + "  multiply_scores(shared.scores[head], rows, sums);\n" + m(16)),
    ("solve.cuh", "  store_rows(shared.scores[head], block, sums);\n", m(17) + "  store_rows(shared.scores[head], block, sums);\n" + m(18)),
    ("solve.cuh", "#pragma unroll\n  for (int tile = 0; tile < 2; ++tile) {\n    multiply_remaining(shared.keys[tile], rows, sums);\n    store_rows(shared.below[head][tile], block, sums);\n  }\n",
     m(19) + "  multiply_remaining(shared.keys[0], rows, sums);\n" + m(20) + "  store_rows(shared.below[head][0], block, sums);\n" + m(21) +
     "  multiply_remaining(shared.keys[1], rows, sums);\n" + m(22) + "  store_rows(shared.below[head][1], block, sums);\n" + m(23)),
]
SCAN_NAMES = ["start", "K S, Q S issued", "output left", "values, carry", "wait K S", "residual", "state fades, update issued",
              "wait Q S", "used, output fades", "reads issued", "wait next chunk", "wait update", "round state", "wait output, round"]
SENDER_NAMES = ["top", "wait used", "request operands", "wait done", "request solved", "store output", "request values"]
SCAN_STAMPS = [
    ("scan.cuh", "                                           uint32_t (&before)[16]) {\n", "                                           uint32_t (&before)[16], int at_mark) {\n"),
    ("scan.cuh", "  multiply_state(rounded, stage.operands.keys, seen);\n", s(0) + "  multiply_state(rounded, stage.operands.keys, seen);\n"),
    ("scan.cuh", "  if (!is_first) {\n    leave_output(shared, at == 0 ? Tuning::STAGES - 1 : at - 1, group, before);\n  }\n",
     s(1) + "  if (!is_first) {\n    leave_output(shared, at == 0 ? Tuning::STAGES - 1 : at - 1, group, before);\n  }\n" + s(2)),
    ("scan.cuh", "  wait_products<1>(seen);\n  find_residual(values, fades, seen, residual);\n",
     s(3) + "  wait_products<1>(seen);\n" + s(4) + "  find_residual(values, fades, seen, residual);\n" + s(5)),
    ("scan.cuh", "  wait_products<1>(output);\n", s(6) + "  wait_products<1>(output);\n" + s(7)),
    ("scan.cuh", "  fade_output(fades, scale, output);\n", "  fade_output(fades, scale, output);\n" + s(8)),
    ("scan.cuh", "  turn.advance();\n  if (!is_last) wait_phase(&shared.full[turn.stage], turn.parity);\n  wait_products<1>(state);\n  round_fragment(state, rounded);\n  wait_products<0>(output);\n  round_output(output, before);\n",
     s(9) + "  turn.advance();\n  if (!is_last) wait_phase(&shared.full[turn.stage], turn.parity);\n" + s(10) + "  wait_products<1>(state);\n" + s(11) +
     "  round_fragment(state, rounded);\n" + s(12) + "  wait_products<0>(output);\n  round_output(output, before);\n" + s(13)),
    ("scan.cuh", "group, state, rounded,\n               output);\n", "group, state, rounded,\n               output, scan_mark(chunk));\n"),
    ("scan.cuh", "      if (is_reused) wait_phase(&shared.used[stage], parity);\n", "      const int at_mark = scan_mark(chunk);\n" + s(0) + "      if (is_reused) wait_phase(&shared.used[stage], parity);\n" + s(1)),
    ("scan.cuh", "      if (is_reused) wait_phase(&shared.done[stage], parity);\n", s(2) + "      if (is_reused) wait_phase(&shared.done[stage], parity);\n" + s(3)),
    ("scan.cuh", "      if (!is_reused) continue;\n      store_output(shared, args, round - Tuning::STAGES);\n      request_values(shared, args, work, chunk, round);\n",
     s(4) + "      if (!is_reused) continue;\n      store_output(shared, args, round - Tuning::STAGES);\n" + s(5) + "      request_values(shared, args, work, chunk, round);\n" + s(6)),
]

# ---- one thing left out or changed; those marked * compute something else -------------------------
ONE_CTA = ("prefill.cu", "sms * Tuning::SOLVE_CTAS / QK_HEADS", "sms / QK_HEADS")
CALL = "    solve_chunk(shared, args, slot, qk_head, head, block);\n"
NO_STORES = [
    ("solve.cuh", "  if (is_storing) {\n    store_bulk(head == 0", "  if (is_storing && args.slots < 0) {\n    store_bulk(head == 0"),
    ("solve.cuh", "  if (is_storing) {\n    Solved* solved", "  if (is_storing && args.slots < 0) {\n    Solved* solved"),
]
EARLY_PUBLISH = [
    ("prefill.cu", "    __syncthreads();  // slot and chunk have been read\n", "    publish_shared();\n    __syncthreads();  // keys, queries and gates are there; slot and chunk have been read\n"),
    ("prefill.cu", "    publish_shared();\n    __syncthreads();  // keys, queries and gates are there\n", ""),
]
VARIANTS = {
    "as it is": [],
    "stamps of solve": [PLAN, READER, *SOLVE_STAMPS],
    "stamps of solve, 1 CTA": [PLAN, READER, *SOLVE_STAMPS, ONE_CTA],
    "stamps of scan": [PLAN, READER, *SCAN_STAMPS],
    "* solve: loads only": [("prefill.cu", CALL, "")],
    "* solve: without stores": NO_STORES,
    "solve: 1 CTA an SM": [ONE_CTA],
    "solve: 1 CTA, 255 registers": [("plan.cuh", "SOLVE_CTAS = 2;", "SOLVE_CTAS = 1;")],
    "* solve: no fade": [("solve.cuh", "  fade_products(shared, head == 1, block, args.scale, sums);\n", "  store_rows(shared.scores[head], block, sums);\n  store_rows(shared.below[head][0], block, sums);\n")],
    "* solve: no inverse": [("solve.cuh", "  invert_corner(shared, head, block);\n", "")],
    "* solve: no merge": [("solve.cuh", "        if (m >= block) multiply_block(", "        if (m >= block && m == 90) multiply_block("),
                          ("solve.cuh", "      multiply_block(shared, head, i, i, split_sums(x), merged);\n", "      merged = sums;\n")],
    "* solve: no factors": [("solve.cuh", "    const float2 by = fade(i), high = widen_f16(terms.high[i]), low = widen_f16(terms.low[i]);\n    split((high.x + low.x) * by.x, (high.y + low.y) * by.y, terms.high[i], terms.low[i]);\n", "    terms.low[i] ^= __float_as_uint(fade(i).x);\n")],
    "* solve: no gates": [("prefill.cu", "    if (warp == 0) find_gates(", "    if (warp == 0 && args.slots < 0) find_gates(")],
    "solve: published before requests": EARLY_PUBLISH,
    "solve: both heads of fade at once": [("solve.cuh", "#pragma unroll 1\n  for (int head = 0; head < SERVED; ++head) {\n", "#pragma unroll\n  for (int head = 0; head < SERVED; ++head) {\n")],
    "solve: scan launched at its end": [("prefill.cu", "  allow_next_launch();\n", "")],
    "* scan: without outputs": [("scan.cuh", "    if (group >= place.groups) break;\n", "    if (group >= 0) break;\n")],
    "* scan: without value loads": [("scan.cuh", "    if (group >= work.groups) break;\n", "    if (group >= 0) break;\n")],
    "* scan: operands of one chunk": [("scan.cuh", "operands_of(args, work.slot + chunk, ", "operands_of(args, work.slot + chunk % 2, "),
                                      ("scan.cuh", "solved_of(args, work.slot + chunk, ", "solved_of(args, work.slot + chunk % 2, ")],
    "scan: 2 stages": [("plan.cuh", "STAGES = 3;", "STAGES = 2;")],
}


def fill(name, root, folder):
    """The sources of a variant in a folder of their own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for source in ("common", "gdn_prefill"):
        for path in Path(root, "solutions", source).glob("*"):
            if path.suffix in (".cu", ".cuh", ".py"):
                shutil.copy(path, folder / path.name)
    (folder / "__init__.py").touch()
    for file, old, new in VARIANTS.get(name, []):
        text = (folder / file).read_text()
        assert text.count(old) == 1, (name, file, text.count(old), old)
        (folder / file).write_text(text.replace(old, new))


def build(name, folder, cubin):
    import tvm_ffi.libinfo as info
    start = time.time()
    nvcc = next((p for p in (shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc", "/usr/local/cuda-13.0/bin/nvcc") if p and Path(p).exists()))
    lib = str(Path(info.find_libtvm_ffi()).parent)
    includes = ["-I" + info.find_include_path(), "-I" + info.find_dlpack_include_path()]
    kind = ["-cubin", "-o", "prefill.cubin"] if cubin else ["-shared", "-cudart", "shared", "-Xcompiler", "-fPIC", "-o", "prefill.so", "-L" + lib, "-ltvm_ffi", "-Xlinker", "-rpath=" + lib]
    done = subprocess.run([nvcc, "-gencode=arch=compute_90a,code=sm_90a", "-O3", "-std=c++17", "-Xptxas", "-v", "-diag-suppress=68,177", *includes, "prefill.cu", *kind],
                          cwd=folder, capture_output=True, text=True)
    text = done.stdout + done.stderr
    regs = re.findall(r"Compiling entry function '\w*?(walk|scan|solve)_kernel.*?(\d+) bytes stack.*?(\d+) bytes spill st.*?Used (\d+) registers", text, re.S)
    bad = [x for x in text.splitlines() if re.search(r"error|C75|Potential|warning", x) and "undefined" not in x]
    spills = any(int(r[1]) or int(r[2]) for r in regs)
    line = f"{name:36s} exit {done.returncode}, {time.time() - start:4.1f} s, registers {' '.join(r[0] + ' ' + r[3] for r in regs)}{' SPILLS' if spills else ''}"
    if not done.returncode:
        (folder / "built").touch()
    return "\n".join([line, *bad[:6]])


def main():
    root, out, jobs, cubin = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), "--cubin" in sys.argv
    names = list(VARIANTS) + [x for x in ("prefill3",) if (HERE / "tree3").exists()]
    for i, name in enumerate(names):
        fill(name, str(HERE / "tree3") if name == "prefill3" else root, out / f"v{i}")
        if name == "prefill3":  # an overlay: shelf and python from the root
            for source in ("common", "gdn_prefill"):
                for path in Path(root, "solutions", source).glob("*"):
                    if path.suffix in (".cu", ".cuh", ".py") and not (out / f"v{i}" / path.name).exists():
                        shutil.copy(path, out / f"v{i}" / path.name)
    with ThreadPoolExecutor(jobs) as pool, (out / "log").open("w") as log:
        for line in pool.map(lambda job: build(job[1], out / f"v{job[0]}", cubin), enumerate(names)):
            print(line, file=log, flush=True)
            if cubin:
                print(line, flush=True)
    (out / "done").touch()


if __name__ == "__main__":
    main()
