"""Sources of gdn_prefill's native route with clock stamps and knock-outs: python3 patch.py TREE OUT VARIANT
TREE: a checkout's root; OUT/solutions/{common,gdn_prefill}: the patched copy. Every replacement asserts how often its old text is there."""
import os
import re
import sys
from pathlib import Path

of_env = lambda name, size: int(os.environ.get(name, size))  # the emulator's CTAs run one after the other: the first one takes all
SMS, UNITS, ROUNDS = of_env("LAB_SMS", 132), of_env("LAB_UNITS", 32), of_env("LAB_ROUNDS", 96)
TASKS, TASK_PLACES, PLACES = 12, 32, 16  # of the arrays
SOLVE_WARPS, SCAN_WARPS, CTA_WORDS = 20, 12, 8
SIZES = {"tasks": SMS * SOLVE_WARPS * TASKS * TASK_PLACES, "units": SMS * SCAN_WARPS * UNITS * PLACES, "rounds": SMS * SCAN_WARPS * ROUNDS * PLACES, "ctas": 2 * SMS * CTA_WORDS}

# What ends at places 1, 2, ...; W: a wait for what, else work.
TEAM = [("rows, task", "W"), ("rows to fp16", ""), ("fence, told", "F"), ("met: operands", "W"), ("K K^T or Q K^T", ""), ("place of below / of queries", "W"), ("products stored", ""),
        ("gates", "W"), ("corner inverted", ""), ("fence", "F"), ("met: corners", "W"), ("merge", ""), ("scores' product", ""), ("met: vote", "W"), ("reads stored", ""), ("fence, told", "F"),
        ("keys' product 1", ""), ("writes stored 1", ""), ("keys' product 2", ""), ("writes stored 2", ""), ("fence, told", "F"), ("met: done", "W"), ("reads' place free", "W")]  # fmt: skip
TEAM_END, SECOND_PASS = len(TEAM), 24
FEED = [("gates found", ""), ("team done with the task before", "W"), ("second: writes requested; both: gates stored", ""), ("gates told", ""), ("second: writes have been read", "W"), ("operands there", "W"),
        ("operands' stores requested", ""), ("operands have been read", "W"), ("next task found", ""), ("gates' inputs, its rows or values requested", ""), ("task before: stores complete", "W"),
        ("reads there", "W"), ("reads' stores requested", ""), ("reads have been read", "W"), ("last: team done", "W"), ("last: writes requested", ""), ("last: stores complete", "W"),
        ("task before: counted", "F"), ("last: counted", "F")]  # fmt: skip
FEED_ORDER = (0, 1, 2, 3, 4, 5, 11, 18, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 19)  # in the order of time
UNIT = {1: ("unit listed, known", "W"), 2: ("its work found", ""), 3: ("state loaded, rounded", "W"), 11: ("state sent: waited", "W"), 12: ("state taken, rounded", ""), 4: ("first chunk's full", "W"), 5: ("chunks", ""), 9: ("seam: full", "W"), 10: ("seam: merged", ""),
        6: ("last output left", ""), 7: ("state stored or handed on", ""), 8: ("ends cleared", "")}  # in the order of time
UNIT_ORDER = (1, 2, 3, 11, 12, 4, 5, 9, 10, 6, 7, 8)  # 3 or 11 and 12
SENDER_UNIT = {1: ("unit listed, known", "W"), 2: ("its work found, prefetch", ""), 5: ("all of its chunks", ""), 6: ("next taken", "W"), 8: ("next listed (few long sequences: taken, too)", "W")}
WHAT = 15  # of a unit: a value. kind, chunks, v head, half, whether a round in front of its chunks brings its state (bit SENT)
SENT = 25
KINDS = {1: "whole: all columns", 2: "half of the columns", 3: "half: its second warpgroup", 4: "states, first segment", 5: "transition", 6: "states, later segment", 7: "outputs", 8: "later outputs", 9: "no part"}
CHUNK = [("keys' product, loads, last output left, queries' issued", ""), ("keys' product there", "P"), ("residual, S faded, writes issued", ""), ("queries' there", "P"), ("used told, outputs faded, reads issued", ""),
         ("state there", "P"), ("state rounded", ""), ("next chunk's full", "W"), ("output there", "P"), ("output rounded", "")]  # fmt: skip
STATE = [("keys' product issued", ""), ("loads, state handed on", ""), ("keys' product there", "P"), ("residual, S faded, writes issued", ""), ("used told, residual handed on", ""), ("state there", "P"),
         ("done told, state rounded", ""), ("next chunk's full", "W")]  # fmt: skip
STORING = [("full", "W"), ("output left", "W"), ("taken, done told", ""), ("stored", "")]
SENDER = [("solved", "W"), ("used", "W"), ("operands (half: values) requested", ""), ("done", "W"), ("solved requested", ""), ("output before stored", ""), ("round before dropped", ""), ("values requested, announced", "")]
SENDER_STATE = [("used", "W"), ("stage free, round before stored, dropped, senders met", "W"), ("requested, told", "")]
SENDER_STATES = [("solved", "W"), ("used", "W"), ("keys, values requested", ""), ("done", "W"), ("writes requested, announced", ""), ("chunk before reported", "")]
SENDER_OUTPUT = [("states' count", "W"), ("stage free, round before stored, dropped, senders met", "W"), ("requested", "")]

HELPERS = f'''// Clock stamps: gdn10/patch.py. No branches: products are in flight. at < 0: none.
#pragma once
#include <cstdint>
#include "async_copy.cuh"
#pragma nv_diag_suppress 68
constexpr int LAB_LEVEL = @LEVEL@;
namespace {{
__device__ unsigned lab_tasks[{SIZES["tasks"]}];
__device__ unsigned lab_units[{SIZES["units"]}];
__device__ unsigned lab_rounds[{SIZES["rounds"]}];
__device__ unsigned long long lab_ctas[{SIZES["ctas"]}];
// Of a place in an array; once `x` is known.
template <int I>
__device__ __forceinline__ void lab_put(unsigned* array, int at) {{
  asm volatile("{{\\n.reg .pred p;\\n.reg .u32 t;\\n.reg .u64 a;\\nsetp.ge.s32 p, %1, 0;\\nmad.wide.s32 a, %1, 4, %0;\\n"
               "mov.u32 t, %%clock;\\n@p st.global.u32 [a + %2], t;\\n}}" ::"l"(array), "r"(at), "n"(4 * I) : "memory");
}}
template <int I>
__device__ __forceinline__ void lab_put_after(unsigned* array, int at, unsigned x) {{
  asm volatile("{{\\n.reg .pred p, q;\\n.reg .u32 t;\\n.reg .u64 a;\\nsetp.ne.u32 q, %3, 0x7fc1dead;\\nsetp.ge.and.s32 p, %1, 0, q;\\nmad.wide.s32 a, %1, 4, %0;\\n"
               "@p mov.u32 t, %%clock;\\n@p st.global.u32 [a + %2], t;\\n}}" ::"l"(array), "r"(at), "n"(4 * I), "r"(x) : "memory");
}}
__device__ __forceinline__ void lab_say(unsigned* array, int at, unsigned x) {{
  if (at >= 0) array[at] = x;
}}
// kernel 0: solve, 1: scan. By one lane a warp; begin (its clock first), and the latest end of all warps.
__device__ __forceinline__ void lab_begin(int kernel) {{
  if (LAB_LEVEL == 0 || threadIdx.x != 0 || blockIdx.x >= {SMS}) return;
  unsigned long long ns, clock;
  unsigned sm;
  asm volatile("mov.u64 %0, %%globaltimer;\\nmov.u64 %1, %%clock64;\\nmov.u32 %2, %%smid;" : "=l"(ns), "=l"(clock), "=r"(sm)::"memory");
  unsigned long long* to = lab_ctas + (kernel * {SMS} + blockIdx.x) * {CTA_WORDS};
  to[0] = ns, to[1] = clock, to[4] = sm + 1;
}}
__device__ __forceinline__ void lab_note(int kernel, int word) {{
  if (LAB_LEVEL == 0 || threadIdx.x != 0 || blockIdx.x >= {SMS}) return;
  unsigned long long clock;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(clock)::"memory");
  lab_ctas[(kernel * {SMS} + blockIdx.x) * {CTA_WORDS} + word] = clock;
}}
__device__ __forceinline__ void lab_end(int kernel) {{
  if (LAB_LEVEL == 0 || threadIdx.x % 32 != 0 || blockIdx.x >= {SMS}) return;
  unsigned long long ns, clock;
  asm volatile("mov.u64 %0, %%globaltimer;\\nmov.u64 %1, %%clock64;" : "=l"(ns), "=l"(clock)::"memory");
  unsigned long long* to = lab_ctas + (kernel * {SMS} + blockIdx.x) * {CTA_WORDS};
  atomicMax(to + 2, ns), atomicMax(to + 3, clock);
}}
__device__ __forceinline__ void lab_commit() {{ asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }}
__device__ __forceinline__ void lab_wait_read_1() {{ asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory"); }}
// Bulk copies without a policy.
__device__ __forceinline__ void lab_copy_bulk(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {{
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}}
__device__ __forceinline__ void lab_store_bulk(void* global, const void* shared, uint32_t bytes) {{
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared_address(shared)), "r"(bytes) : "memory");
}}
@COMMON@
}}  // namespace
'''
COMMON = f'''template <int LEVEL, int I>
__device__ __forceinline__ void lab_task(int at) {{
  if constexpr (LAB_LEVEL >= LEVEL) lab_put<I>(lab_tasks, at);
}}
template <int LEVEL, int I>
__device__ __forceinline__ void lab_unit(int at) {{
  if constexpr (LAB_LEVEL >= LEVEL) lab_put<I>(lab_units, at);
}}
template <int I>
__device__ __forceinline__ void lab_round(int at) {{
  if constexpr (LAB_LEVEL >= 2) lab_put<I>(lab_rounds, at);
}}
__device__ __forceinline__ int lab_task_at(int nth) {{
  const bool on = threadIdx.x % 32 == 0 && nth < {TASKS} && blockIdx.x < {SMS};
  return on ? ((blockIdx.x * {SOLVE_WARPS} + threadIdx.x / 32) * {TASKS} + nth) * {TASK_PLACES} : -1;
}}
__device__ __forceinline__ int lab_unit_at(int number) {{  // from 1 on
  const bool on = threadIdx.x % 32 == 0 && number <= {UNITS} && blockIdx.x < {SMS};
  return on ? ((blockIdx.x * {SCAN_WARPS} + threadIdx.x / 32) * {UNITS} + number - 1) * {PLACES} : -1;
}}
__device__ __forceinline__ int lab_round_at(int round) {{
  const bool on = threadIdx.x % 32 == 0 && round < {ROUNDS} && blockIdx.x < {SMS};
  return on ? ((blockIdx.x * {SCAN_WARPS} + threadIdx.x / 32) * {ROUNDS} + round) * {PLACES} : -1;
}}'''
# Of the emulator: a clock of its own; a globaltimer of half its frequency.
STUB = f'''#pragma once
#include "../machine.h"
constexpr int LAB_LEVEL = @LEVEL@;
inline unsigned lab_tasks[{SIZES["tasks"]}], lab_units[{SIZES["units"]}], lab_rounds[{SIZES["rounds"]}];
inline unsigned long long lab_ctas[{SIZES["ctas"]}], lab_time = 5000000000ull, lab_stamps;
inline unsigned lab_clock() {{ ++lab_stamps; return unsigned(lab_time += 10); }}
template <int I> inline void lab_put(unsigned* array, int at) {{ if (at >= 0) array[at + I] = lab_clock(); }}
template <int I> inline void lab_put_after(unsigned* array, int at, unsigned) {{ lab_put<I>(array, at); }}
inline void lab_say(unsigned* array, int at, unsigned x) {{ if (at >= 0) array[at] = x; }}
inline void lab_begin(int kernel) {{ if (threadIdx.x) return; auto* to = lab_ctas + (kernel * {SMS} + blockIdx.x) * {CTA_WORDS}; lab_clock(), to[0] = lab_time / 2, to[1] = lab_time, to[4] = 1 + blockIdx.x % 3; }}
inline void lab_note(int kernel, int word) {{ if (threadIdx.x) return; lab_clock(), lab_ctas[(kernel * {SMS} + blockIdx.x) * {CTA_WORDS} + word] = lab_time; }}
inline void lab_end(int kernel) {{ if (threadIdx.x % 32) return; lab_clock(); auto* to = lab_ctas + (kernel * {SMS} + blockIdx.x) * {CTA_WORDS}; to[2] = std::max(to[2], lab_time / 2), to[3] = std::max(to[3], lab_time); }}
inline void lab_commit() {{}}
#define lab_copy_bulk copy_bulk_passing
#define lab_store_bulk store_bulk_kept
inline void finish_late();
inline void lab_wait_read_1() {{ for (int i = 0; i < 3; ++i) emu::yield(); finish_late(); }}
extern "C" inline __attribute__((used)) void* lab_array(int i) {{ void* of[] = {{lab_tasks, lab_units, lab_rounds, lab_ctas}}; return of[i]; }}
@COMMON@
'''
HOST = '''namespace {
// 0: as it is; 1: solve_kernel alone; 2: the scan behind all of it, no programmatic dependence.
int lab_mode = 0;
void set_mode(int64_t mode) { lab_mode = static_cast<int>(mode); }
@STAMPS@}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(set_mode, set_mode)
'''
READER = '''template <typename T> void lab_take(tvm::ffi::TensorView to, T& symbol) {
  check_error(cudaMemcpyFromSymbol(to.data_ptr(), symbol, sizeof(symbol), 0, cudaMemcpyDeviceToDevice), "stamps");
}
template <typename T> void lab_zero(T& symbol) {
  void* at = nullptr;
  check_error(cudaGetSymbolAddress(&at, symbol), "stamps");
  check_error(cudaMemset(at, 0, sizeof(symbol)), "stamps");
}
void clear_stamps() { lab_zero(lab_tasks), lab_zero(lab_units), lab_zero(lab_rounds), lab_zero(lab_ctas); cudaDeviceSynchronize(); }
void read_stamps(tvm::ffi::TensorView tasks, tvm::ffi::TensorView units, tvm::ffi::TensorView rounds, tvm::ffi::TensorView ctas) {
  cudaDeviceSynchronize();
  lab_take(tasks, lab_tasks), lab_take(units, lab_units), lab_take(rounds, lab_rounds), lab_take(ctas, lab_ctas);
  cudaDeviceSynchronize();
}
'''
P, S, T, C, D, L, M = "prefill.cu", "solve.cuh", "teams.cuh", "scan.cuh", "send.cuh", "scan_plan.cuh", "seams.cuh"
F = "feed.cuh"


def host(put, stamps):
    tail = "TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_scratch, count_scratch)\n"
    names = "TVM_FFI_DLL_EXPORT_TYPED_FUNC(clear_stamps, clear_stamps)\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(read_stamps, read_stamps)\n" if stamps else ""
    text = HOST.replace("@STAMPS@", READER if stamps else "")
    at = "void launch_chunks(const Args& args, cudaStream_t stream) {\n"
    # Declared in front of its use, the rest at the end.
    put(P, at, "int lab_mode = 0;  // 0: as it is; 1: solve_kernel alone; 2: the scan behind all of it\n" + at)
    put(P, "  launch(scan, \"scan\", dim3(args.scan_ctas), SCAN_THREADS, sizeof(ScanMemory),\n         args.tokens > 0, args, stream);\n",
        "  if (lab_mode == 1) return;\n  launch(scan, \"scan\", dim3(args.scan_ctas), SCAN_THREADS, sizeof(ScanMemory),\n         args.tokens > 0 && lab_mode == 0, args, stream);\n")  # fmt: skip
    text = text.replace("// 0: as it is; 1: solve_kernel alone; 2: the scan behind all of it, no programmatic dependence.\nint lab_mode = 0;\n", "")
    put(P, tail, tail + text + names)


def stamp(put):
    t = lambda i, level=2, at="lab_at": f"  lab_task<{level}, {i}>({at});\n"
    u = lambda i, level=1, at="lab_unit_at(number)": f"  lab_unit<{level}, {i}>({at});\n"
    r = lambda i, at="lab_at": f"  lab_round<{i}>({at});\n"
    put("plan.cuh", "#include <cstdint>\n", '#include <cstdint>\n\n#include "lab_stamp.cuh"\n')

    def after(file, old, new, function=None):
        put(file, old, old + new, function)

    def before(file, old, new, function=None):
        put(file, old, new + old, function)

    # solve_kernel
    before(P, "  order_sequences(cta.order, args);\n", "  lab_begin(0);\n")
    after(P, "  __syncthreads();  // the order and the barriers are there\n", "  lab_note(0, 5);\n")
    after(P, "    solve_tasks(cta, cta.teams[team], args);\n", "    lab_end(0);\n")
    after(P, "    feed_team(cta, cta.teams[fed], args, fed, feeding / Tuning::SOLVE_TEAMS);\n", "    lab_end(0);\n")
    # a team's task
    put(T, "  for (uint32_t parity = 0;; parity ^= 1) {\n", "  for (uint32_t parity = 0, nth = 0;; parity ^= 1, ++nth) {\n    const int lab_at = lab_task_at(nth);\n  " + t(0, 1))
    after(T, "    wait_cta_phase(&barriers.rows, parity);\n", "  " + t(1, 1))
    after(T, "    convert_rows(shared);\n", "  " + t(2))
    put(T, "    arrive_for_warp(&barriers.operands);\n    wait_cta_phase(&barriers.operands, parity);\n    solve_chunk(shared, args.scale, head, block, parity);\n",
        "    arrive_for_warp(&barriers.operands);\n  " + t(3) + "    wait_cta_phase(&barriers.operands, parity);\n  " + t(4) + "    solve_chunk(shared, args.scale, head, block, parity, lab_at);\n  " + t(21))
    put(T, "    wait_cta_phase(&barriers.free, parity);\n", "  " + t(22) + "    wait_cta_phase(&barriers.free, parity);\n  " + t(TEAM_END, 1))
    put(S, "int head, int block,\n                                            uint32_t parity) {\n", "int head, int block,\n                                            uint32_t parity, int lab_at) {\n")
    put(S, "void solve_head(SolveMemory& shared, int head, int block) {\n", "void solve_head(SolveMemory& shared, int head, int block, int lab_at) {\n")
    after(S, "  multiply_keys(head == 0 ? shared.keys : shared.queries, shared.keys, block, sums);\n", t(5))
    put(S, "                 head == 0 ? parity ^ 1 : parity);\n  if (head == 0) {\n", "                 head == 0 ? parity ^ 1 : parity);\n" + t(6) + "  if (head == 0) {\n")
    put(S, "  wait_cta_phase(&shared.barriers.gates, parity);\n  solve_head(shared, head, block);\n", t(7) + "  wait_cta_phase(&shared.barriers.gates, parity);\n" + t(8) + "  solve_head(shared, head, block, lab_at);\n")
    after(S, "    multiply_scores(shared.scores[tile], rows, sums);\n", t(13))
    put(S, "    publish_shared();\n    sync_team(shared, 0);  // K K^T, the corners' inverses and the scores are there\n",
        t(9) + "    publish_shared();\n" + t(10) + "    sync_team(shared, 0);  // K K^T, the corners' inverses and the scores are there\n" + t(11))
    after(S, "    merge_corners(shared, head, tile, block, rows);\n", t(12))
    before(S, "    if (head == 0) fade_products(shared, block);\n", t(SECOND_PASS))
    put(S, "  leave_reads(shared, head, block, sums);\n  publish_shared();\n  __syncwarp();\n  arrive_for_warp(&shared.barriers.reads);\n",
        t(14) + "  leave_reads(shared, head, block, sums);\n" + t(15) + "  publish_shared();\n  __syncwarp();\n  arrive_for_warp(&shared.barriers.reads);\n" + t(16))
    put(S, "    multiply_by_keys(shared.keys[tile], rows, sums);\n    leave_writes(shared, head, tile, block, is_faded, sums);\n",
        "    multiply_by_keys(shared.keys[tile], rows, sums);\n    if (tile == 0) {\n  " + t(17) + "    } else {\n  " + t(19) + "    }\n    leave_writes(shared, head, tile, block, is_faded, sums);\n    if (tile == 0) {\n  "
        + t(18) + "    } else {\n  " + t(20) + "    }\n")
    # its feeding warps
    put(F, "  for (uint32_t parity = 1;; parity ^= 1) {\n", "  for (uint32_t parity = 1, nth = 0;; parity ^= 1, ++nth) {\n    const int lab_at = lab_task_at(nth);\n  " + t(0))
    put(F, "      const Gates gates = find_gates(args, task, raw, served);\n", "      const Gates gates = find_gates(args, task, raw, served);\n  " + t(1))
    after(F, "        wait_cta_phase(&barriers.done, parity ^ 1);\n", "  " + t(2))
    put(F, "      store_gates(shared, args, task, served, gates);\n      __syncwarp();\n      arrive_for_warp(&barriers.gates);\n",
        "      store_gates(shared, args, task, served, gates);\n  " + t(3) + "      __syncwarp();\n      arrive_for_warp(&barriers.gates);\n  " + t(4))
    put(F, "        if (!is_first) free_place(&barriers.below);\n        if (is_storing) count_part(args, before);\n",
        "        if (!is_first) {\n          free_place(&barriers.below);\n  " + t(5) + "        }\n        if (is_storing) {\n          finish_bulk_stores();\n  " + t(11)
        + "          count_release(parts_of(args, before.slot, before.qk_head));\n  " + t(18) + "        }\n")
    put(F, "      wait_cta_phase(&barriers.operands, parity);\n      if (is_storing) store_operands(shared, args, task);\n      free_place(&barriers.apart);\n",
        "      wait_cta_phase(&barriers.operands, parity);\n  " + t(6) + "      if (is_storing) store_operands(shared, args, task);\n  " + t(7) + "      free_place(&barriers.apart);\n  " + t(8))
    after(F, "    const Task next = find_task(cta.order, args, tasks, numbers);\n", "  " + t(9))
    after(F, "      request_task(shared, args, next);\n    } else {\n      prefetch_values(args, next);\n    }\n", "  " + t(10))
    put(F, "      wait_cta_phase(&barriers.reads, parity);\n      if (is_storing) store_reads(shared, args, task);\n      free_place(&barriers.free);\n",
        "      wait_cta_phase(&barriers.reads, parity);\n  " + t(12) + "      if (is_storing) store_reads(shared, args, task);\n  " + t(13) + "      free_place(&barriers.free);\n  " + t(14))
    put(F, "    wait_cta_phase(&barriers.done, parity);\n    if (!is_storing) break;\n    if (!is_first) store_writes(shared, args, before);\n    count_part(args, before);\n    break;\n",
        "    wait_cta_phase(&barriers.done, parity);\n    if (!is_storing) break;\n  " + t(15) + "    if (!is_first) store_writes(shared, args, before);\n  " + t(16)
        + "    finish_bulk_stores();\n  " + t(17) + "    count_release(parts_of(args, before.slot, before.qk_head));\n  " + t(19) + "    break;\n")

    # scan_kernel
    put(P, "  if (threadIdx.x == 0) init_barriers(shared);\n", "  lab_begin(1);\n  if (threadIdx.x == 0) init_barriers(shared);\n")
    after(P, "  __syncthreads();  // barriers, order and cut are there\n", "  lab_note(1, 5);\n")
    after(P, "    send_chunks<MAY_CUT>(shared, args, first);\n", "    lab_end(1);\n")
    after(P, "    scan_chunks<MAY_CUT>(shared, args, group);\n", "    lab_end(1);\n")
    put(L, "    const int unit = read_unit(shared, number);\n", "  " + u(0) + "    const int unit = read_unit(shared, number);\n  " + u(1))
    # its computing warps
    what = "(work.seq < 0 ? (work.later < 0 ? 7 : 8) : MAY_CUT || (work.groups < GROUPS && is_handing(args)) ? (group ? 9 : work.is_transition ? 5 : is_merged(work) ? 6 : 4) : work.groups == GROUPS ? 1 : group ? 3 : 2)"
    put(C, "  for_works<MAY_CUT>(shared, args, [&](const Work& work, int) {\n",
        "  int lab_round_of = 0;\n  for_works<MAY_CUT>(shared, args, [&](const Work& work, int number) {\n  " + u(2)
        + f"    if (LAB_LEVEL > 0) lab_say(lab_units, lab_unit_at(number) < 0 ? -1 : lab_unit_at(number) + {WHAT}, {what} | work.range.chunks() << 8 | work.v_head << 4 | work.first_group << 24 | (!MAY_CUT && work.seq >= 0 && is_state_sent(args, work)) << {SENT});\n    __syncwarp();\n")
    put(C, "      store_chunks(shared, args, work, turn, parities);\n    }\n", "      store_chunks(shared, args, work, turn, parities, lab_round_of);\n    }\n"
        "    lab_round_of += work.seq < 0 ? 1 + (work.later >= 0) : work.range.chunks() + (MAY_CUT ? is_merged(work) : is_state_sent(args, work));\n  " + u(8))
    put(C, "        scan_states(shared, args, work, turn);\n", "        scan_states(shared, args, work, turn, number, lab_round_of);\n")
    put(C, "      scan_sequence(shared, args, work, group, turn);\n", "      scan_sequence(shared, args, work, group, turn, number, lab_round_of);\n")
    put(C, "      find_output(shared, args.scale, group, turn);\n", "      find_output(shared, args.scale, group, turn, number);\n")
    put(C, "      find_later_output(shared, args, work, group, turn);\n", "      find_later_output(shared, args, work, group, turn, number);\n")
    full = "  if (chunks > 0) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n"
    loop = "#pragma unroll 1\n  for (int chunk = 0; chunk < chunks; ++chunk"
    known = "rounded[0][0] ^ rounded[2][1] ^ rounded[4][2] ^ rounded[6][3] ^ rounded[7][0] ^ rounded[7][3]"
    before(C, full, f"  if constexpr (LAB_LEVEL >= 1) lab_put_after<3>(lab_units, lab_unit_at(number), {known});\n", "scan_states")
    before(C, full, f"  if constexpr (LAB_LEVEL >= 1) {{\n    const int lab_at = lab_unit_at(number);\n    const bool lab_sent = is_state_sent(args, work);\n    const uint32_t lab_known = {known};\n"
           "    lab_put_after<3>(lab_units, lab_sent ? -1 : lab_at, lab_known);\n    lab_put_after<12>(lab_units, lab_sent ? lab_at : -1, lab_known);\n  }\n", "scan_sequence")
    for name in ("scan_states", "scan_sequence"):
        after(C, full, u(4), name)
    put(C, "Turn& turn, float (&state)[64]) {\n", "Turn& turn, float (&state)[64], int number) {\n", "take_state")
    after(C, "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", u(11), "take_state")
    put(C, "    take_state(shared, work, group, turn, state);\n", "    take_state(shared, work, group, turn, state, number);\n", "scan_sequence")
    put(C, "                                            Turn& turn) {\n  const int chunks = work.range.chunks();\n  float state[64];\n  if (work.is_transition) {\n",
        "                                            Turn& turn, int number, int lab_first) {\n  const int chunks = work.range.chunks();\n  float state[64];\n  if (work.is_transition) {\n", "scan_states")
    put(C, "const Work& work, int group, Turn& turn) {\n", "const Work& work, int group, Turn& turn, int number, int lab_first) {\n", "scan_sequence")
    put(C, "    step_state(shared, *handed, turn, chunk == chunks - 1, state, rounded);\n  }\n", "    step_state(shared, *handed, turn, chunk == chunks - 1, state, rounded, lab_round_at(lab_first + chunk));\n  }\n" + u(5))
    put(C, "  if (is_merged(work)) merge_begin(shared, args, work, turn, state);\n", "  if (is_merged(work)) merge_begin(shared, args, work, turn, state, number);\n")
    put(C, "  if (work.is_transition) return hand_transition(args, work, state);\n", "  if (work.is_transition) {\n    hand_transition(args, work, state);\n  " + u(7) + "    return;\n  }\n")
    before(C, "  clear_ends(args, work, 0);\n", u(7), "scan_states")
    put(C, "               rounded, output);\n  }\n  if (chunks > 0) leave_output(shared, last, group, is_half, output);\n  store_state(args, work, group, state);\n",
        "               rounded, output, lab_round_at(lab_first + is_state_sent(args, work) + chunk));\n  }\n" + u(5) + "  if (chunks > 0) leave_output(shared, last, group, is_half, output);\n" + u(6) + "  store_state(args, work, group, state);\n" + u(7))
    put(C, "Turn& turn) {\n  const Stage& stage", "Turn& turn, int number) {\n  const Stage& stage", "find_output")
    after(C, "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", u(4), "find_output")
    after(C, "  wait_products<0>(output);\n", u(5), "find_output")
    after(C, "  leave_output(shared, turn.stage, group, false, rounded);\n", u(6), "find_output")
    put(C, "const Work& work, int group, Turn& turn) {\n", "const Work& work, int group, Turn& turn, int number) {\n", "find_later_output")
    after(C, "  sync_threads_of(1 + GROUPS + 1, GROUPS * 128);  // additions of all rows are there\n", u(3))
    after(C, "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", u(4), "find_later_output")
    after(C, "  wait_products<0>(output);\n", u(5), "find_later_output")
    after(C, "  leave_output(shared, turn.stage, group, false, rounded);\n", u(6), "find_later_output")
    put(M, "Turn& turn, float (&state)[64]) {\n", "Turn& turn, float (&state)[64], int number) {\n", "merge_begin")
    after(M, "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", u(9), "merge_begin")
    after(M, "  turn.advance();\n", u(10), "merge_begin")
    # a chunk
    put(C, "                                           uint32_t (&before)[16]) {\n", "                                           uint32_t (&before)[16], int lab_at) {\n", "step_chunk")
    f = "step_chunk"
    before(C, "  multiply_state(rounded, stage.operands.keys, seen);\n", r(0), f)
    put(C, "  wait_products<1>(seen);\n", r(1) + "  wait_products<1>(seen);\n" + r(2), f)
    put(C, "  wait_products<1>(output);\n  arrive", r(3) + "  wait_products<1>(output);\n" + r(4) + "  arrive", f)
    put(C, "  turn.advance();\n  wait_products<1>(state);\n  round_fragment(state, rounded);\n", "  turn.advance();\n" + r(5) + "  wait_products<1>(state);\n" + r(6) + "  round_fragment(state, rounded);\n" + r(7), f)
    put(C, "  wait_products<0>(output);\n  round_output(output, before);\n", r(8) + "  wait_products<0>(output);\n" + r(9) + "  round_output(output, before);\n" + r(10), f)
    f = "step_state"
    put(C, "                                           uint32_t (&rounded)[8][4]) {\n", "                                           uint32_t (&rounded)[8][4], int lab_at) {\n", f)
    put(C, "  multiply_state(rounded, stage.operands.keys, seen);\n", r(0) + "  multiply_state(rounded, stage.operands.keys, seen);\n" + r(1), f)
    put(C, "  hand_fragments(rounded, handed.state);\n  wait_products<0>(seen);\n", "  hand_fragments(rounded, handed.state);\n" + r(2) + "  wait_products<0>(seen);\n" + r(3), f)
    put(C, "state);\n  arrive_once_a_warp(&shared.used[at]);\n  arrive", "state);\n" + r(4) + "  arrive_once_a_warp(&shared.used[at]);\n  arrive", f)
    put(C, "  turn.advance();\n  wait_products<0>(state);\n", "  turn.advance();\n" + r(5) + "  wait_products<0>(state);\n" + r(6), f)
    put(C, "  round_fragment(state, rounded);\n  if (!is_last) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", "  round_fragment(state, rounded);\n" + r(7) + "  if (!is_last) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n" + r(8), f)
    f = "store_chunks"
    put(C, "Turn& turn, int& parities) {\n", "Turn& turn, int& parities, int lab_first) {\n", f)
    put(C, "turn.advance()) {\n    wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", "turn.advance()) {\n    const int lab_at = lab_round_at(lab_first++);\n  " + r(0) + "    wait_cta_phase(&shared.full[turn.stage], turn.parity);\n  " + r(1), f)
    after(C, "    wait_cta_phase(&shared.left[turn.stage], parities >> turn.stage & 1);\n", "  " + r(2), f)
    put(C, "    store_taken(", "  " + r(3) + "    store_taken(", f)
    put(C, "CHUNK), work.column(0));\n", "CHUNK), work.column(0));\n  " + r(4), f)
    # the senders
    at = "lab_round_at(round)"
    f = "send_unit"
    put(D, "    if (is_requesting && chunk >= solved) solved = await_chunk(args, work, chunk, chunks);\n    if (is_reused) wait_cta_phase(&shared.used[stage], parity);\n    request_operands(shared, args, work, chunk, round);\n",
        "  " + r(0, at) + "    if (is_requesting && chunk >= solved) solved = await_chunk(args, work, chunk, chunks);\n  " + r(1, at) + "    if (is_reused) wait_cta_phase(&shared.used[stage], parity);\n  " + r(2, at)
        + "    request_operands(shared, args, work, chunk, round);\n", f)
    put(D, "    if (is_reused) wait_cta_phase(&shared.done[stage], parity);\n    request_solved(shared, args, work, chunk, round);\n",
        "  " + r(3, at) + "    if (is_reused) wait_cta_phase(&shared.done[stage], parity);\n  " + r(4, at) + "    request_solved(shared, args, work, chunk, round);\n  " + r(5, at), f)
    put(D, "store_output(shared, args, round - Tuning::STAGES);\n    if (is_reused) drop_round(shared, args, round - Tuning::STAGES);\n    if (chunk < early) continue;\n",
        "store_output(shared, args, round - Tuning::STAGES);\n  " + r(6, at) + "    if (is_reused) drop_round(shared, args, round - Tuning::STAGES);\n  " + r(7, at) + "    if (chunk < early) continue;\n", f)
    after(D, "    announce_values(shared, round);\n", "  " + r(8, at), f)
    f = "send_state"
    put(D, "  await_round_before(shared.used, round);\n  reuse_stage(shared, args, round);\n", r(0, at) + "  await_round_before(shared.used, round);\n" + r(1, at) + "  reuse_stage(shared, args, round);\n" + r(2, at), f)
    after(D, "  arrive(&shared.full[round % Tuning::STAGES]);\n", r(3, at), f)
    f = "send_states"
    put(D, "    if (is_requesting && chunk >= solved) solved = await_chunk(args, work, chunk, chunks);\n    await_round_before(shared.used, round);\n",
        "  " + r(0, at) + "    if (is_requesting && chunk >= solved) solved = await_chunk(args, work, chunk, chunks);\n  " + r(1, at) + "    await_round_before(shared.used, round);\n  " + r(2, at), f)
    put(D, "    await_round_before(shared.done, round);\n    request_writes", "  " + r(3, at) + "    await_round_before(shared.done, round);\n  " + r(4, at) + "    request_writes", f)
    put(D, "    if (chunk >= Tuning::STAGES) report(chunk - Tuning::STAGES, round - Tuning::STAGES);\n", "  " + r(5, at) + "    if (chunk >= Tuning::STAGES) report(chunk - Tuning::STAGES, round - Tuning::STAGES);\n  " + r(6, at), f)
    f = "send_output"
    put(D, "  if (is_requesting) {\n", r(0, at) + "  if (is_requesting) {\n", f)
    put(D, "  reuse_stage(shared, args, round);\n", r(1, at) + "  reuse_stage(shared, args, round);\n" + r(2, at), f)
    put(D, "  arrive(&shared.full[stage]);\n", "  arrive(&shared.full[stage]);\n" + r(3, at), f)
    f = "send_chunks"
    before(D, "    if (work.seq < 0 && work.later < 0) {\n", "  " + u(2), f)
    put(D, "    if (!is_leader) return;\n    const int next = take_unit(args);\n", "  " + u(5) + "    if (!is_leader) return;\n    const int next = take_unit(args);\n    if constexpr (LAB_LEVEL >= 1 && !MAY_CUT) lab_put_after<6>(lab_units, lab_unit_at(number), next);\n", f)
    put(D, "    list_unit(shared, number + 1, next);\n", "    list_unit(shared, number + 1, next);\n  " + u(8), f)


VOTE = "    if (!ask_team(shared, 1, is_large(rows)) || is_faded) break;\n"
QUIET = (S, VOTE, VOTE.replace("is_large(rows)", "is_large(rows) && shared.task.tokens > CHUNK"))  # garbage asks for no second pass
STORES, LOADS = (F, "store_bulk_kept(", "lab_store_bulk(", 4), (D, "copy_bulk_passing(", "lab_copy_bulk(", 13)  # without a word to the L2
POST = {"no_fences": [(S, "publish_shared();", ";", 3), (T, "publish_shared();", ";", 1)],  # behind the stamps: how often
        "no_kept": [STORES], "no_last": [LOADS], "no_policies": [STORES, LOADS]}  # fmt: skip
NO_OPERAND_STORES = (F, "  store_bulk_kept(operands->keys, shared.keys, sizeof(Operands::keys));\n  store_bulk_kept(operands->queries, shared.queries, sizeof(Operands::queries));\n", "  (void)operands;\n")
NO_READ_STORES = (F, "    store_bulk_kept(solved->reads, shared.scores[head], sizeof(Solved::reads));\n", "    (void)solved;\n")
NO_WRITE_STORES = (F, "    store_bulk_kept(solved->writes, shared.below[head], sizeof(Solved::writes));\n", "    (void)solved;\n")
NO_PREFETCH = (F, "      prefetch_values(args, next);\n", "")
NO_DROPS = (P, "      count_scratch(tokens, num_seqs) > Tuning::KEPT_BYTES,\n", "      false,\n")
# Of half of the columns it is loaded by who needs it; else a round brings 16 bytes a part, and what lies there is taken.
NO_LOAD = [(C, "    if (args.state) keys = ", "    if (args.state && args.tokens < 0) keys = "),
           (D, "    request_part(to, from, HALF * sizeof(float), full);\n    request_part(to + HALF, from + HALF, HALF * sizeof(float), full);\n", "    request_part(to, from, 16, full);\n    request_part(to + HALF, from + HALF, 16, full);\n")]  # fmt: skip
LOADED = "    const bool is_loaded = work.seq >= 0 && work.later < 0 && work.groups < GROUPS && args.state;\n"  # halves: prefetch_bulk()
NO_LOAD.append((D, LOADED, LOADED.replace(";", " && args.tokens < 0;")))
NO_ROUND = (L, "  return args.state && work.groups == GROUPS", "  return args.state && args.tokens < 0 && work.groups == GROUPS")  # of a state
NO_STORE = [(C, "    __stcs(reinterpret_cast<float4*>(args.new_state + offset), keys);\n", "    if (args.tokens < 0) __stcs(reinterpret_cast<float4*>(args.new_state + offset), keys);\n")]
# By name: modes it is timed in (0 as it is, 1 solve_kernel alone, 2 the scan behind all of it), what it changes. All but RIGHT compute something else.
KNOCKS = {
    "base": ((0, 1, 2), []),
    "one_team": ((1,), [("order.cuh", "        next(team == 0 ? blockIdx.x : workers - 1 - blockIdx.x) {}\n", "        next(team == 0 ? blockIdx.x : 1 << 28) {}\n")]),
    "no_result_stores": ((0, 1), [NO_OPERAND_STORES, NO_READ_STORES, NO_WRITE_STORES]),
    # But for the last task's.
    "no_store_waits": ((0, 1), [(F, "    if (is_storing) finish_bulk_reads();\n", "    if (is_storing) lab_commit();\n"), (F, "          finish_bulk_stores();\n", "")]),
    "rows_from_one_place": ((0, 1), [(F, "    const int64_t first = (int64_t{task.first} * QK_HEADS + task.qk_head) * DIM +\n", "    const int64_t first = int64_t{0} * DIM +\n")]),
    "no_gates": ((0, 1), [(F, "      const Gates gates = find_gates(args, task, raw, served);\n", "      const Gates gates = {{{0, 0}, {0, 0}}, {1, 1}, {1, 1}, {1, 1}, {0.5f, 0.5f}};\n"), (F, "    raw = load_gates(args, next);\n", "")]),
    "no_vote": ((0, 1), [(S, VOTE, "    sync_team(shared, 1);\n    break;\n")]),
    "no_second_meeting": ((1,), [(S, VOTE, "    break;\n")]),
    "no_place_waits": ((1,), [(S, "  wait_cta_phase(head == 0 ? &shared.barriers.below : &shared.barriers.apart,\n                 head == 0 ? parity ^ 1 : parity);\n", ""),
                             (T, "    wait_cta_phase(&barriers.free, parity);\n", "")]),
    "no_fences": ((1,), [QUIET]),
    "no_convert": ((1,), [QUIET, (S, "  for (int i = 0; i < CHUNK; i += TEAM / 16) {\n", "  for (int i = 0; i < 0; i += TEAM / 16) {\n")]),
    "no_products_stored": ((1,), [QUIET, (S, "    store_key_products(shared, block, sums);\n", "    if (sums[0] == 7.5e33f) store_key_products(shared, block, sums);\n"),
                                  (S, "    store_scores(shared, block, scale, sums);\n", "    if (sums[0] == 7.5e33f) store_scores(shared, block, scale, sums);\n")]),
    "no_inverting": ((1,), [QUIET, (S, "      invert_corner(shared, block, is_faded);\n", "")]),
    "no_merge": ((1,), [QUIET, (S, "    merge_corners(shared, head, tile, block, rows);\n", "    for (int m = 0; m < BLOCKS; ++m) rows[m] = load_inverse<true>(shared, head, m);\n")]),
    "no_reads_stored": ((1,), [QUIET, (S, "  leave_reads(shared, head, block, sums);\n", "  if (sums[0] == 7.5e33f) leave_reads(shared, head, block, sums);\n")]),
    "no_writes_stored": ((1,), [QUIET, (S, "    leave_writes(shared, head, tile, block, is_faded, sums);\n", "    if (sums[0] == 7.5e33f) leave_writes(shared, head, tile, block, is_faded, sums);\n")]),
    "no_keys_product": ((1,), [QUIET, (S, "  for (int tile = 0; tile < 2; ++tile) {\n    multiply_by_keys", "  for (int tile = 0; tile < 0; ++tile) {\n    multiply_by_keys")]),
    "no_counts": ((1,), [(F, "          count_release(parts_of(args, before.slot, before.qk_head));\n", ""), (F, "\n    count_release(parts_of(args, before.slot, before.qk_head));\n", "\n")]),
    "no_operand_stores": ((1,), [NO_OPERAND_STORES]),
    "no_read_stores": ((1,), [NO_READ_STORES]),
    "no_write_stores": ((1,), [NO_WRITE_STORES]),
    # The scores' place is free once queries have been read; keys are a group of their own behind them.
    "queries_read_first": ((0, 1), [
        (F, NO_OPERAND_STORES[1], "  store_bulk_kept(operands->queries, shared.queries, sizeof(Operands::queries));\n  lab_commit();\n  store_bulk_kept(operands->keys, shared.keys, sizeof(Operands::keys));\n  lab_commit();\n"),
        (F, "      free_place(&barriers.apart);\n", "      if (is_storing) lab_wait_read_1();\n      __syncwarp();\n      arrive_for_warp(&barriers.apart);\n")]),
    "no_prefetch": ((0, 1), [NO_PREFETCH]),
    "scan_waits_for_no_solve": ((0,), [(D, "  const int solved = chunk + await_solved(args, work.slot + chunk, qk_head, chunks - chunk);\n", "  const int solved = qk_head >= 0 ? chunks : 0;\n")]),
    "no_state_load": ((0, 2), NO_LOAD),
    "no_state_store": ((0, 2), NO_STORE),
    "no_state_io": ((0, 2), NO_LOAD + NO_STORE),
    "no_outputs_stored": ((0, 2), [(L, "  const Share mine;\n  const int64_t first = int64_t{token} + mine.row;\n", "  const Share mine;\n  count &= args.tokens >> 31;  // 0\n  const int64_t first = int64_t{token} + mine.row;\n")]),
    "no_values": ((0, 2), [(D, "      const bool is_token = mine.row + i * SHARE_ROWS < rows;\n", "      const bool is_token = mine.row + i * SHARE_ROWS < rows && args.tokens < 0;\n"), NO_PREFETCH]),
    # Without that round: no state at all; or loaded by who needs it, in the L2 before, as at 221fff5.
    "no_state_round": ((0, 2), [NO_LOAD[0], NO_LOAD[2], NO_ROUND]),
    "state_loaded": ((0, 2), [NO_ROUND, (D, LOADED, LOADED.replace(" && work.groups < GROUPS", "")),
        (D, "      prefetch_bulk(args.state + work.first_value(), VALUES * DIM * sizeof(float));\n", "      prefetch_bulk(args.state + work.first_value(), work.groups * VALUES * DIM * sizeof(float));\n")]),
    "no_drops": ((0, 2), [NO_DROPS]),
    "no_kept": ((0, 1, 2), []),
    "no_last": ((0, 2), []),
    "no_policies": ((0, 2), [NO_DROPS]),  # nor drops
    # Halves bring half of what they share with the other half, as if a copy served both (wrong results): the most that multicast can give.
    "halves_share": ((0, 2), [(D, "operands, sizeof(Operands), &shared.full[stage]);", "operands, work.groups == GROUPS ? sizeof(Operands) : sizeof(Operands) / 2, &shared.full[stage]);"),
                              (D, "solved, sizeof(Solved), &shared.full[stage]);", "solved, work.groups == GROUPS ? sizeof(Solved) : sizeof(Solved) / 2 / 16 * 16, &shared.full[stage]);")]),
    "states_share": ((0, 2), [(D, "  arrive_expecting(&shared.full[stage], sizeof(keys));\n  copy_bulk(keys, operands->keys, sizeof(keys), &shared.full[stage]);", "  arrive_expecting(&shared.full[stage], sizeof(keys) / 2);\n  copy_bulk(keys, operands->keys, sizeof(keys) / 2, &shared.full[stage]);"),
                              (D, "sizeof(to.writes) + sizeof(to.carry));\n  copy_bulk(to.writes, from->writes, sizeof(to.writes), &", "sizeof(to.writes) / 2 + sizeof(to.carry));\n  copy_bulk(to.writes, from->writes, sizeof(to.writes) / 2, &")]),
}
RIGHT = ("base", "queries_read_first", "no_prefetch", "state_loaded", "no_drops", "no_kept", "no_last", "no_policies")  # these compute the same
VARIANTS = ["plain", "stamped", *KNOCKS]


def patch(tree, out, variant, stub=None):
    texts = {}
    for folder in ("common", "gdn_prefill"):
        for path in sorted((tree / "solutions" / folder).glob("*.cu*")) + sorted((tree / "solutions" / folder).glob("*.py")):
            texts[folder, path.name] = path.read_text()

    def put(file, old, new, function=None):
        """In `file`, or in the function of that name there alone; once."""
        text = texts["gdn_prefill", file]
        first, end = 0, len(text)
        if function:
            found = [m.start() for m in re.finditer(r"(?m)^__device__ [^;{]*\b" + function + r"\(", text)]
            assert len(found) == 1, (variant, file, function, len(found))
            first = found[0]
            end = text.index("\n}\n", first) + 3
        part = text[first:end]
        assert part.count(old) == 1, (variant, file, function, part.count(old), old)
        texts["gdn_prefill", file] = text[:first] + part.replace(old, new) + text[end:]

    level = {"plain": 0, "stamped": 2}.get(variant, 1)
    host(put, level > 0)
    if level > 0:
        stamp(put)
    for change in KNOCKS[variant][1] if variant in KNOCKS else ():
        put(*change)
    for file, old, new, count in POST.get(variant, ()):
        assert texts["gdn_prefill", file].count(old) == count, (variant, file, old)
        texts["gdn_prefill", file] = texts["gdn_prefill", file].replace(old, new)
    texts["common", "lab_stamp.cuh"] = HELPERS.replace("@LEVEL@", str(level)).replace("@COMMON@", COMMON)
    for (folder, name), text in texts.items():
        path = out / "solutions" / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if stub:
        Path(stub).write_text(STUB.replace("@LEVEL@", str(level)).replace("@COMMON@", COMMON))


if __name__ == "__main__":
    patch(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else None)
