"""Patched copies of the sources, compiled side by side: python variants.py TREE OUT NAME..."""

import os
import subprocess
import sys
from pathlib import Path

ROOM = "dsa_indexer_prefill"


def replace(text, old, new):
    assert old in text, f"no longer in the source: {old!r}"
    return text.replace(old, new)


def debug(files):
    """The filtering launch also stores every score: args.debug [Q, N], set by set_debug()."""
    s = files["plan.cuh"]
    s = replace(s, "struct Args {\n", "struct Args {\n  float* debug;\n")
    files["plan.cuh"] = s
    s = files["sinks.cuh"]
    s = replace(s, "  float threshold[2];\n  uint32_t place[2]", "  float* debug[2];\n  float threshold[2];\n  uint32_t place[2]")
    s = replace(s, "      threshold[pair] = rows.threshold[query_of(pair)];\n",
                "      threshold[pair] = rows.threshold[query_of(pair)];\n"
                "      debug[pair] = args.debug + static_cast<int64_t>(max(rows.row[query_of(pair)], 0)) * args.num_keys;\n")
    s = replace(s, "    const bool passes = ranges.holds<PAIR>(key) &&",
                "    if (ranges.holds<PAIR>(key)) debug[PAIR][key] = score;\n"
                "    const bool passes = ranges.holds<PAIR>(key) &&")
    files["sinks.cuh"] = s
    s = files["prefill.cu"]
    s = replace(s, "// Shapes and dtypes are checked by the caller; all tensors",
                "float* debug_scores = nullptr;\nvoid set_debug(tvm::ffi::TensorView x) { debug_scores = static_cast<float*>(x.data_ptr()); }\n\n"
                "// Shapes and dtypes are checked by the caller; all tensors")
    s = replace(s, "    Args args = {};\n", "    Args args = {};\n    args.debug = debug_scores + first * num_keys;\n")
    s += "TVM_FFI_DLL_EXPORT_TYPED_FUNC(set_debug, set_debug)\n"
    files["prefill.cu"] = s


def math(files):
    """Same loads and products; nothing is weighed, nothing selected."""
    files["score.cuh"] = replace(files["score.cuh"], "  if (turns) turn_products(x, scale);\n", "  if (args_off(x)) return;\n")
    files["score.cuh"] = replace(files["score.cuh"], "// What a pair of queries makes",
        "__device__ __forceinline__ bool args_off(float (&x)[64]) {\n#pragma unroll\n"
        "  for (int i = 0; i < 64; ++i) asm volatile(\"\" : \"+f\"(x[i]));\n  return true;\n}\n\n// What a pair of queries makes")


def weigh(files):
    """Everything but the filter: scores are computed and not used."""
    files["sinks.cuh"] = replace(files["sinks.cuh"], "    const bool passes = ranges.holds<PAIR>(key) &&",
        "    asm volatile(\"\" ::\"f\"(score));\n    if (key >= 0) return;\n    const bool passes = ranges.holds<PAIR>(key) &&")


def unordered(files):
    files["plan.cuh"] = replace(files["plan.cuh"], "bool ORDERED = true;", "bool ORDERED = false;")


def stages4(files):
    files["plan.cuh"] = replace(replace(files["plan.cuh"], "int STAGES = 6;", "int STAGES = 4;"), "int LAG = 3;", "int LAG = 2;")


def lag4(files):
    files["plan.cuh"] = replace(files["plan.cuh"], "int LAG = 3;", "int LAG = 4;")


def wide(files):
    """One wgmma of all four queries, m64n256k32, instead of one a pair: less shared-memory traffic,
    and nothing of the own warpgroup under way while it weighs."""
    registers = ", ".join(f"%{i}" for i in range(128))
    operands = ", ".join(f'"+f"(c[{i}])' for i in range(128))
    files["overlapped_products.cuh"] += f"""
__device__ __forceinline__ void multiply_wide(float (&c)[128], uint64_t a, uint64_t b, bool adds) {{
  asm volatile("{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, %130, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {{{registers}}}, %128, %129, adds, 1, 1;\\n}}\\n"
      : {operands} : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}}
__device__ __forceinline__ void await_wide(float (&c)[128]) {{
  asm volatile("wgmma.wait_group.sync.aligned 0;\\n" : {operands} : : "memory");
}}
"""
    s = files["score.cuh"]
    s = replace(s, "float weights[BLOCK][16], first[64] = {}, second[64] = {};", "float weights[BLOCK][16], sums[128] = {};")
    s = replace(s, """      start_products(first, keys, queries);
      start_products(second, keys, queries + (2 * QUERY_BYTES >> 4));
""", """      begin_products();
#pragma unroll
      for (int step = 0; step < DIM / 32; ++step) {
        multiply_wide(sums, descriptor(keys + 2 * step), descriptor(queries + 2 * step), step > 0);
      }
      close_group();
""")
    s = replace(s, "      await_sums<1>(first);\n", "      await_wide(sums);\n      if (speaks) arrive(&shared.free[stage.at]);\n      stage.advance();\n")
    s = replace(s, "      await_sums<0>(second);\n      if (speaks) arrive(&shared.free[stage.at]);\n      stage.advance();\n", "")
    s = replace(s, "finish_pair<MODE, 0>(sink, first,", "finish_pair<MODE, 0>(sink, reinterpret_cast<float(&)[64]>(sums),")
    s = replace(s, "finish_pair<MODE, 1>(sink, second,", "finish_pair<MODE, 1>(sink, reinterpret_cast<float(&)[64]>(sums[64]),")
    files["score.cuh"] = s


def debug_unordered(files):
    debug(files)
    unordered(files)


def base(files):
    pass


VARIANTS = {f.__name__: f for f in (base, debug, math, weigh, unordered, stages4, lag4, wide, debug_unordered)}


def sources(tree):
    names = [*Path(tree, "solutions", ROOM).glob("*.cu*"), *Path(tree, "solutions/common").glob("*.cuh")]
    return {p.name: p.read_text() for p in names}


def build(tree, out, name):
    import tvm_ffi.cpp

    files = sources(tree)
    VARIANTS[name](files)
    folder = Path(out, name)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text)
    path = tvm_ffi.cpp.build(f"prefill_{name}", cuda_files=[str(folder / "prefill.cu")],
                             extra_cuda_cflags=["-O3", "-Xptxas=-v"], build_directory=str(folder / "build"), backend="cuda")
    (folder / "path").write_text(str(path))


def main():
    tree, out, *names = sys.argv[1:]
    if len(names) == 1:
        os.environ.setdefault("TVM_FFI_CUDA_ARCH_LIST", "9.0a")
        os.environ.setdefault("CUDA_HOME", "/usr/local/cuda")
        build(tree, out, names[0])
        return
    running = {name: subprocess.Popen([sys.executable, __file__, tree, out, name], stdout=open(f"{out}/{name}.log", "w"), stderr=subprocess.STDOUT) for name in names}
    for name, process in running.items():
        print(f"build {name}: {'ok' if process.wait() == 0 else 'FAILED'}")
        if process.returncode:
            print("\n".join(Path(out, f"{name}.log").read_text().splitlines()[-15:]))


if __name__ == "__main__":
    main()
