"""python3 patch.py TREE TO SIDE: the room's sources of TREE, flat in TO, without the binding, as one of
plain (the kernel as it is), stamped (clock stamps of every CTA), gather (ends once its rows have landed).
Every patch has to apply as often as it says, or this fails."""
import shutil
import sys
from pathlib import Path

tree, to, side = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
assert side in ("plain", "stamped", "gather"), side
shutil.rmtree(to, ignore_errors=True)
to.mkdir(parents=True)
for folder in ("dsa_attention", "common"):
    for path in sorted((tree / "solutions" / folder).glob("*.cu*")):
        shutil.copy(path, to)
texts = {name: (to / name).read_text() for name in ("attend.cu", "plan.cuh")}


def put(old, new, file="attend.cu", times=1):
    found = texts[file].count(old)
    assert found == times, f"{side}: {file} holds this {found} times, expected {times}:\n{old}"
    texts[file] = texts[file].replace(old, new)


def stamp(number, mark, after=False):
    line = f"  STAMP({number});\n"
    put(mark, mark + line if after else line + mark)


# Without the binding: extern "C", for ctypes.
put("#include <tvm/ffi/container/tensor.h>\n#include <tvm/ffi/extra/c_env_api.h>\n#include <tvm/ffi/function.h>\n", "#include <cuda_runtime.h>\n")
put('  TVM_FFI_ICHECK(error == cudaSuccess)\n      << "attend with clusters of " << CLUSTER << ": " << cudaGetErrorString(error);\n', "  if (error != cudaSuccess && last_error == cudaSuccess) last_error = error;\n")
put("template <int CLUSTER>\nvoid check_error(", "cudaError_t last_error = cudaSuccess;\n\ntemplate <int CLUSTER>\nvoid check_error(")
texts["attend.cu"] = texts["attend.cu"].split("// How many of the largest clusters the current device")[0]
put("  int num_rows;\n};\n\n// A piece of", "  int num_rows;\n  unsigned* stamps;  // [CTA][72]\n};\n\n// A piece of", "plan.cuh")
small = "    case 1: launch<1>(args, num_tokens, s); break;\n" if side == "gather" else ""
texts["attend.cu"] += f'''
__global__ void spin(long long* to, int cycles) {{
  unsigned long long first, last;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(first)::"memory");
  const long long begin = clock64();
  while (clock64() - begin < cycles) {{}}
  const long long end = clock64();
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(last)::"memory");
  to[0] = end - begin, to[1] = last - first;
}}

}}  // namespace

extern "C" int lab_attend(const void* q_nope, const void* q_pe, const void* ckv, const void* kpe, const void* indices, void* output, void* lse, float scale, int num_rows, int num_tokens, int cluster, void* stamps, void* stream) {{
  const Args args = {{
      static_cast<const __nv_bfloat16*>(q_nope), static_cast<const __nv_bfloat16*>(q_pe), static_cast<const __nv_bfloat16*>(ckv),
      static_cast<const __nv_bfloat16*>(kpe), static_cast<const int*>(indices), static_cast<__nv_bfloat16*>(output),
      static_cast<float*>(lse), scale, num_rows, static_cast<unsigned*>(stamps)}};
  const auto s = static_cast<cudaStream_t>(stream);
  last_error = cudaSuccess;
  switch (cluster) {{
    case LARGEST: launch<LARGEST>(args, num_tokens, s); break;
{small}    default: return -1;
  }}
  return last_error;
}}
extern "C" int lab_spin(void* to, int cycles, void* stream) {{
  spin<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<long long*>(to), cycles);
  return cudaGetLastError();
}}
'''

if side == "stamped":
    # The body as a function of its own, so that each of its ends is followed by a stamp of the warp's end.
    put("__global__ void __launch_bounds__(THREADS, 1) attend_kernel(const __grid_constant__ Args args) {", "__device__ __forceinline__ void attend_body(const Args& args) {")
    put("template <int CLUSTER>\nvoid check_error(", '''template <int CLUSTER>
__global__ void __launch_bounds__(THREADS, 1) attend_kernel(const __grid_constant__ Args args) {
  STAMP(0);
  attend_body<CLUSTER>(args);
  if (threadIdx.x % 32 == 0) {
    unsigned cycles;
    unsigned long long now;
    asm volatile("mov.u32 %0, %clock;\\nmov.u64 %1, %globaltimer;" : "=r"(cycles), "=l"(now)::"memory");
    unsigned* to = args.stamps + blockIdx.x * 72 + threadIdx.x / 32;
    to[32] = cycles;
    to[44] = static_cast<unsigned>(now);
    to[56] = static_cast<unsigned>(now >> 32);
  }
}

template <int CLUSTER>
void check_error(''')
    put("\nnamespace {\n", '''
// Thread 0 and the first helping thread. Order: what stands in front is issued, and awaited where a vote or barrier is between.
#define STAMP(i)                                                                        \\
  do {                                                                                  \\
    if (threadIdx.x == 0 || threadIdx.x == COMPUTING) {                                 \\
      unsigned now;                                                                     \\
      asm volatile("mov.u32 %0, %clock;" : "=r"(now)::"memory");                        \\
      args.stamps[blockIdx.x * 72 + (threadIdx.x != 0 ? 20 : 0) * (i == 0) + i] = now;  \\
    }                                                                                   \\
  } while (0)

namespace {
''')
    # attend_kernel, computing warps
    stamp(1, "  request_rows<WARPS>(shared.tiles[0]")
    stamp(2, "  take_registers<COMPUTING_REGISTERS>();\n")
    stamp(3, "  const uint32_t thread = keep(threadIdx.x);\n")
    put("load_query(query, shared.query, thread);\n  const Work work = read_survey(shared);\n", "load_query(query, shared.query, thread);\n  STAMP(4);\n  const Work work = read_survey(shared);\n  STAMP(5);\n")
    stamp(6, "  if (merges) sync_threads_of(CLUSTER_MET, THREADS);\n", after=True)
    # attend_both
    head, mark, rest = texts["attend.cu"].partition("__device__ __forceinline__ void attend_both")
    assert mark
    texts["attend.cu"] = mark + rest
    stamp(7, "  wait_copies<0>();\n  sync_first<COMPUTING>();\n", after=True)
    stamp(10, "  const auto scaled = share_tops(")
    stamp(11, "  arrive_for_threads(SUMS_STORED, THREADS);\n")
    put("    return write_alone(args, token, thread, acc);\n", "    STAMP(12);\n    write_alone(args, token, thread, acc);\n    STAMP(17);\n    return;\n")
    stamp(12, "  send_piece<CLUSTER, 0>(shared, thread, rank, acc);\n")
    stamp(13, "  send_piece<CLUSTER, 4>(shared, thread, rank, acc);\n")
    stamp(14, "  send_piece<CLUSTER, 4>(shared, thread, rank, acc);\n", after=True)
    # attend_kernel, merge
    stamp(15, "    const Share<CLUSTER> share = find_share<CLUSTER>(shared);\n")
    stamp(16, "    wait_phase(&shared.sums_landed, 0);\n", after=True)
    stamp(17, "    merge<CLUSTER>(shared, args, token, rank, share);\n", after=True)
    texts["attend.cu"] = head + texts["attend.cu"]
    # score_both: it has no args
    put("uint32_t mine, bool has_second,\n                                                       const Entries& entries,", "uint32_t mine, bool has_second, const Args& args,\n                                                       const Entries& entries,")
    put("score_both(shared, thread, places, query, mine, has_second, entries,", "score_both(shared, thread, places, query, mine, has_second, args, entries,")
    put("  if (mine != 0) score(shared, thread, 0, places.keys, query, kept[0], magnitude);\n  if (has_second) {\n    wait_cta_phase(&shared.full[1], 0);\n", "  if (mine != 0) score(shared, thread, 0, places.keys, query, kept[0], magnitude);\n  STAMP(8);\n  if (has_second) {\n    wait_cta_phase(&shared.full[1], 0);\n    STAMP(9);\n")
    # helping warps
    stamp(21, "  if (!work.is_mine(rank)) return;\n")
    put("    arrive_for_threads(CLUSTER_MET, THREADS);\n", "    arrive_for_threads(CLUSTER_MET, THREADS);\n    STAMP(22);\n")
    put("  commit_copies();\n  wait_copies<0>();  // no copy may land in a CTA that has ended\n", "  STAMP(23);\n  commit_copies();\n  wait_copies<0>();\n  STAMP(24);\n")
    put("    if (work.sends(rank)) send_stats<CLUSTER>(shared, rank);\n", "    STAMP(25);\n    if (work.sends(rank)) send_stats<CLUSTER>(shared, rank);\n    STAMP(26);\n")
    stamp(27, "    wait_phase(&shared.stats_landed, 0);\n", after=True)
    stamp(28, "    find_factors(shared, args, token, rank, work);\n", after=True)

if side == "gather":
    put("  if (merges) {\n    wait_cluster();  // all barriers are there\n    arrive_for_threads(CLUSTER_MET, THREADS);\n  }\n", "")
    put("  if (merges && threadIdx.x == COMPUTING) {\n", "  if (false && threadIdx.x == COMPUTING) {\n")
    put("  if (!merges) return write_lse_alone(shared, args, token);\n  if constexpr (CLUSTER > 1) {\n    clear_received", "  return;\n  if constexpr (CLUSTER > 1) {\n    clear_received")
    put("  Query query;\n  if (bits_of_mine(thread, valid) != 0) load_query(query, shared.query, thread);\n", "")
    before, mark, rest = texts["attend.cu"].partition("  const bool merges = CLUSTER > 1 && work.merges();\n  if (merges) sync_threads_of(CLUSTER_MET, THREADS);\n")
    assert mark
    _, mark, rest = rest.partition("cudaError_t last_error")
    assert mark
    # One word a CTA, which needs all rows of both stages; a third tile is not waited for.
    texts["attend.cu"] = before + '''  wait_copies<0>();
  sync_first<COMPUTING>();
  if ((work.tiles & ~1u) != 0) wait_cta_phase(&shared.full[1], 0);
  if (threadIdx.x == 0) args.lse[blockIdx.x] = *reinterpret_cast<volatile float*>(shared.tiles[0]) + *reinterpret_cast<volatile float*>(shared.tiles[1]);
}

''' + mark + rest
    put("  const Places places = find_places(shared, thread);\n", "")
    put("  const uint32_t thread = keep(threadIdx.x);\n", "")

for name, text in texts.items():
    (to / name).write_text(text)
