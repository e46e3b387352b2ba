"""What the sides of the lab change in the new sources: (file, old, new), each old text once; (file, old, new, count) else.
Names with x_ compute something else: only their times count."""
ROUNDS, MARKS, CTAS = 32, 16, 64  # of the scan: chunks 0 to 31, places in a chunk, CTAs

HELPERS = f'''
__device__ unsigned scan_stamps[{CTAS} * 12 * {ROUNDS} * {MARKS}];
__device__ unsigned solve_stamps[2 * 160 * 20 * 4 * 16];  // [solve, scan][CTA][warp][task or unit][place]
template <int I>
__device__ __forceinline__ void mark_task(int at) {{
  asm volatile("{{\\n.reg .pred p;\\n.reg .u32 t;\\n.reg .u64 a;\\nsetp.ge.s32 p, %1, 0;\\nmad.wide.s32 a, %1, 4, %0;\\n"
               "mov.u32 t, %%clock;\\n@p st.global.u32 [a + %2], t;\\n}}" ::"l"(solve_stamps), "r"(at), "n"(4 * I) : "memory");
}}
__device__ __forceinline__ int task_mark(int task) {{
  const bool on = threadIdx.x % 32 == 0 && task < 4 && blockIdx.x < 160;
  return on ? ((blockIdx.x * 20 + threadIdx.x / 32) * 4 + task) * 16 : -1;
}}
__device__ __forceinline__ int unit_mark(int unit) {{
  const int at = task_mark(unit);
  return at < 0 ? at : at + 160 * 20 * 4 * 16;
}}
__device__ unsigned long long cta_stamps[2 * 8 * 160];  // [scan, solve][cta][begin, end, tasks of each team, first of each begun, first of each solved]
// No branch: products are in flight. One lane a warp; at < 0: none.
template <int I>
__device__ __forceinline__ void mark(int at) {{
  asm volatile("{{\\n.reg .pred p;\\n.reg .u32 t;\\n.reg .u64 a;\\nsetp.ge.s32 p, %1, 0;\\nmad.wide.s32 a, %1, 4, %0;\\n"
               "mov.u32 t, %%clock;\\n@p st.global.u32 [a + %2], t;\\n}}" ::"l"(scan_stamps), "r"(at), "n"(4 * I) : "memory");
}}
__device__ __forceinline__ int mark_of(int chunk) {{
  const bool on = threadIdx.x % 32 == 0 && chunk < {ROUNDS} && blockIdx.x < {CTAS};
  return on ? ((blockIdx.x * 12 + threadIdx.x / 32) * {ROUNDS} + chunk) * {MARKS} : -1;
}}
__device__ __forceinline__ void mark_cta(int kernel, int i, unsigned long long add = 0) {{
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) :: "memory");
  if (blockIdx.x >= 160) return;
  unsigned long long* to = cta_stamps + (kernel * 160 + blockIdx.x) * 8;
  if (add) to[i] += add; else to[i] = t;
}}
'''
READER = '''namespace {
template <typename T> void to_host(tvm::ffi::TensorView to, const T& symbol) {
  check_error(cudaMemcpyFromSymbol(to.data_ptr(), symbol, sizeof(symbol), 0, cudaMemcpyDeviceToDevice), "stamps");
}
void read_stamps(tvm::ffi::TensorView scan, tvm::ffi::TensorView ctas, tvm::ffi::TensorView solve) {
  cudaDeviceSynchronize();
  to_host(scan, scan_stamps); to_host(ctas, cta_stamps); to_host(solve, solve_stamps);
  void* at = nullptr;
  cudaGetSymbolAddress(&at, scan_stamps); cudaMemset(at, 0, sizeof(scan_stamps));
  cudaGetSymbolAddress(&at, solve_stamps); cudaMemset(at, 0, sizeof(solve_stamps));
  cudaGetSymbolAddress(&at, cta_stamps); cudaMemset(at, 0, sizeof(cta_stamps));
  cudaDeviceSynchronize();
}
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(read_stamps, read_stamps)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_scratch, count_scratch)'''



def m(i):
    return f"  mark<{i}>(at_mark);\n"


S, T = "scan.cuh", "teams.cuh"
# A unit of the scan, by the first thread of its first warpgroup: what it is, and when; ns of the device's clock.
# 1 begun, 2 first chunk there (begin known: state in registers), 3 chunks done, 4 the seam's round is there, 5 merged, 6 left.
FIELDS = 8
LOG = """
__device__ unsigned long long unit_log[160 * 96 * 8];
__device__ __forceinline__ void log_unit(int number, int i, unsigned long long what = 0) {
  if (threadIdx.x == 0 && number <= 95 && blockIdx.x < 160) {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) :: "memory");
    unit_log[(blockIdx.x * 96 + number) * 8 + i] = i == 0 ? what : t;
  }
  __syncwarp();  // products follow
}
"""
HELPERS += LOG
READER = READER.replace("void read_stamps(", """void read_log(tvm::ffi::TensorView to) {
  cudaDeviceSynchronize();
  to_host(to, unit_log);
  void* at = nullptr;
  cudaGetSymbolAddress(&at, unit_log); cudaMemset(at, 0, sizeof(unit_log));
  cudaDeviceSynchronize();
}
void read_stamps(""").replace("TVM_FFI_DLL_EXPORT_TYPED_FUNC(read_stamps, read_stamps)", "TVM_FFI_DLL_EXPORT_TYPED_FUNC(read_stamps, read_stamps)\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(read_log, read_log)")
CTA_STAMPS = [
    ("plan.cuh", "struct Args {\n", HELPERS + "\nstruct Args {\n"),
    ("prefill.cu", "TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_scratch, count_scratch)", READER),
    ("prefill.cu", "  if (threadIdx.x == 0) init_barriers(shared);\n", "  if (threadIdx.x == 0) init_barriers(shared), mark_cta(0, 0);\n"),
    ("prefill.cu", "    send_chunks<MAY_CUT>(shared, args, first);\n", "    send_chunks<MAY_CUT>(shared, args, first);\n    if (threadIdx.x % 128 == 0) mark_cta(0, 1);\n"),
    ("prefill.cu", "  order_sequences(cta.order, args);\n", "  if (threadIdx.x == 0) mark_cta(1, 0);\n  order_sequences(cta.order, args);\n"),
]
def mt(i):
    return f"mark_task<{i}>(at_mark);\n"


# Stages of a task of solve_kernel, by warp: names of what ends at places 1, 2, ...
MAIN_TASK_NAMES = ["rows there", "gates, next found (some warps)", "reported (a warp each)", "team met", "rows converted", "operands there", "next requested", "products there",
                   "faded", "A, scores there", "corner inverted", "inverses there", "merged", "reads' product", "writes there"]
MAIN_TASKS = [
    (T, "  report_part(args, before);\n}\n", "  report_part(args, before);\n  if (threadIdx.x % 128 == 0) mark_cta(1, 1);\n}\n"),
    (T, "  Task before = {0, 0, 0, 0};\n", "  Task before = {0, 0, 0, 0};\n  int nth = 0;\n"),
    (T, "    const Task task = shared.tasks[place];\n", "    const Task task = shared.tasks[place];\n    const int at_mark = task_mark(nth++);\n    " + mt(0) + "    if (threadIdx.x % 256 == 0 && before.tokens == 0) mark_cta(1, 4 + threadIdx.x / 256);\n"),
    (T, "    wait_copies<0>();\n", "    wait_copies<0>();\n    " + mt(1)),
    (T, "    report_part(args, before);\n    sync_team();  // all of the chunk", "    " + mt(2) + "    report_part(args, before);\n    " + mt(3) + "    sync_team();  // all of the chunk"),
    (T, "    convert_rows(shared);\n", "    " + mt(4) + "    convert_rows(shared);\n    " + mt(5)),
    (T, "    request_task(shared, args, shared.tasks[place ^ 1]);", "    " + mt(6) + "    request_task(shared, args, shared.tasks[place ^ 1]);"),
    (T, "    solve_chunk(shared, args, task.slot, task.qk_head, head, block);\n", "    " + mt(7) + "    solve_chunk(shared, args, task.slot, task.qk_head, head, block, at_mark);\n"),
    (T, "    before = task;\n", "    if (threadIdx.x % 256 == 0 && before.tokens == 0) mark_cta(1, 6 + threadIdx.x / 256);\n    before = task;\n    if (threadIdx.x % 256 == 0) mark_cta(1, 2 + threadIdx.x / 256, 1);\n"),
    ("solve.cuh", "int qk_head, int head, int block) {\n", "int qk_head, int head, int block, int at_mark) {\n"),
    ("solve.cuh", "void solve_head(SolveMemory& shared, int head, int block) {\n", "void solve_head(SolveMemory& shared, int head, int block, int at_mark) {\n"),
    ("solve.cuh", "shared.keys, block, sums);\n", "shared.keys, block, sums);\n  " + mt(8)),
    ("solve.cuh", "  fade_products(shared, head == 1, block, args.scale, sums);\n", "  fade_products(shared, head == 1, block, args.scale, sums);\n  " + mt(9)),
    ("solve.cuh", "  invert_corner(shared, head, block);\n", "  " + mt(10) + "  invert_corner(shared, head, block);\n  " + mt(11)),
    ("solve.cuh", "  solve_head(shared, head, block);\n", "  " + mt(12) + "  solve_head(shared, head, block, at_mark);\n"),
    ("solve.cuh", "  merge_corners(shared, head, block, rows);\n", "  merge_corners(shared, head, block, rows);\n  " + mt(13)),
    ("solve.cuh", "  multiply_scores(shared.scores[head], rows, sums);\n", "  multiply_scores(shared.scores[head], rows, sums);\n  " + mt(14)),
    ("solve.cuh", "  sync_head();  // writes and reads are there\n", "  sync_head();  // writes and reads are there\n  " + mt(15)),
]
TASK_NAMES = ["rows there", "rows converted", "operands there", "products there", "gates there", "place of queries free", "faded", "A, scores there", "corner inverted",
              "inverses there", "merged", "reads' product", "reads stored", "writes stored", "all done, reads read"]
FEED_NAMES = ["gates found", "team done with the task before", "gates handed on", "operands there", "operands read", "next found", "next requested", "before reported", "reads there", "reads read"]
F = "feed.cuh"
TASKS = [
    (T, "  for (uint32_t parity = 0;; parity ^= 1) {\n", "  for (uint32_t parity = 0, nth = 0;; parity ^= 1, ++nth) {\n    const int at_mark = task_mark(nth);\n    " + mt(0)),
    (T, "    if (shared.task.tokens == 0) break;\n", "    if (shared.task.tokens == 0) break;\n    " + mt(1) + "    if (threadIdx.x % 256 == 0 && nth == 0) mark_cta(1, 4 + threadIdx.x / 256);\n"),
    (T, "    convert_rows(shared);\n", "    convert_rows(shared);\n    " + mt(2)),
    (T, "    solve_chunk(shared, args.scale, head, block, parity);\n", "    " + mt(3) + "    solve_chunk(shared, args.scale, head, block, parity, at_mark);\n    " + mt(14)
     + "    if (threadIdx.x % 256 == 0 && nth == 0) mark_cta(1, 6 + threadIdx.x / 256);\n    if (threadIdx.x % 256 == 0) mark_cta(1, 2 + threadIdx.x / 256, 1);\n"),
    (T, "    wait_cta_phase(&barriers.free, parity);\n", "    wait_cta_phase(&barriers.free, parity);\n    " + mt(15)),
    ("solve.cuh", "                                            uint32_t parity) {\n", "                                            uint32_t parity, int at_mark) {\n"),
    ("solve.cuh", "void solve_head(SolveMemory& shared, int head, int block) {\n", "void solve_head(SolveMemory& shared, int head, int block, int at_mark) {\n"),
    ("solve.cuh", "shared.keys, block, sums);\n", "shared.keys, block, sums);\n  " + mt(4)),
    ("solve.cuh", "  wait_cta_phase(&shared.barriers.gates, parity);\n", "  wait_cta_phase(&shared.barriers.gates, parity);\n  " + mt(5)),
    ("solve.cuh", "  fade_products(shared, head == 1, block, scale, sums);\n", "  " + mt(6) + "  fade_products(shared, head == 1, block, scale, sums);\n  " + mt(7)),
    ("solve.cuh", "  invert_corner(shared, head, block);\n", "  " + mt(8) + "  invert_corner(shared, head, block);\n  " + mt(9)),
    ("solve.cuh", "  solve_head(shared, head, block);\n", "  " + mt(10) + "  solve_head(shared, head, block, at_mark);\n"),
    ("solve.cuh", "  merge_corners(shared, head, block, rows);\n", "  merge_corners(shared, head, block, rows);\n  " + mt(11)),
    ("solve.cuh", "  multiply_scores(shared.scores[head], rows, sums);\n", "  multiply_scores(shared.scores[head], rows, sums);\n  " + mt(12)),
    ("solve.cuh", "  arrive_for_warp(&shared.barriers.reads);\n", "  arrive_for_warp(&shared.barriers.reads);\n  " + mt(13)),
    (F, "  for (uint32_t parity = 1;; parity ^= 1) {\n", "  for (uint32_t parity = 1, nth = 0;; parity ^= 1) {\n    const int at_mark = task.tokens > 0 ? task_mark(nth++) : -1;\n    " + mt(0)),
    (F, "      if (before.tokens > 0) {\n", "      " + mt(1) + "      if (before.tokens > 0) {\n"),
    (F, "      store_gates(shared, args, task, served, gates);\n", "      " + mt(2) + "      store_gates(shared, args, task, served, gates);\n"),
    (F, "      free_place(&barriers.gates);\n", "      free_place(&barriers.gates);\n      " + mt(3)),
    (F, "      wait_cta_phase(&barriers.operands, parity);\n", "      wait_cta_phase(&barriers.operands, parity);\n      " + mt(4)),
    (F, "      free_place(&barriers.apart);\n", "      free_place(&barriers.apart);\n      " + mt(5)),
    (F, "    if (is_first) request_task(shared, args, next);\n", "    " + mt(6) + "    if (is_first) request_task(shared, args, next);\n    " + mt(7)),
    (F, "      wait_cta_phase(&barriers.reads, parity);\n", "      " + mt(8) + "      wait_cta_phase(&barriers.reads, parity);\n      " + mt(9)),
    (F, "      free_place(&barriers.free);\n", "      free_place(&barriers.free);\n      " + mt(10)),
    (F, "    count_release(parts_of(args, before.slot, before.qk_head));\n    break;\n", "    count_release(parts_of(args, before.slot, before.qk_head));\n    mark_cta(1, 1);\n    break;\n"),
]
# what: kind (0 outputs of a first segment, 1 of a later one, 2 states of a first, 3 of a later one, 4 transition), later + 1, head, half, chunks
WHAT = ("(work.seq < 0 ? work.later >= 0 : work.is_transition ? 4 : work.later >= 0 ? 3 : 2) | (work.later + 1) << 4 | work.v_head << 8 | work.first_group << 12 | "
        "(unsigned long long)work.range.chunks() << 16 | (unsigned long long)work.slot << 32 | (unsigned long long)(work.next + 1) << 56")
C = S + "@scan_chunks"
UNIT_STAMPS = [
    (C, "  for_works<MAY_CUT>(shared, args, [&](const Work& work, int) {\n", "  for_works<MAY_CUT>(shared, args, [&](const Work& work, int number) {\n    log_unit(number, 0, " + WHAT + "), log_unit(number, 1);\n"),
    (C, "      store_chunks(shared, args, work, turn, parity);\n    }\n", "      store_chunks(shared, args, work, turn, parity);\n    }\n    log_unit(number, 6);\n"),
    (C, "        scan_states(shared, args, work, turn);\n", "        scan_states(shared, args, work, turn, number);\n"),
    (C, "      scan_sequence(shared, args, work, group, turn);\n", "      scan_sequence(shared, args, work, group, turn, number);\n"),
    (S, "__device__ __forceinline__ void scan_states(ScanMemory& shared, const Args& args, const Work& work,\n                                            Turn& turn) {", "__device__ __forceinline__ void scan_states(ScanMemory& shared, const Args& args, const Work& work,\n                                            Turn& turn, int number) {"),
    (S, "                                              const Work& work, int group, Turn& turn) {\n  const int chunks", "                                              const Work& work, int group, Turn& turn, int number) {\n  const int chunks"),
    (S + "@scan_states", "  if (chunks > 0) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", "  if (chunks > 0) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n  log_unit(number, 2);\n"),
    (S + "@scan_sequence", "  if (chunks > 0) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", "  if (chunks > 0) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n  log_unit(number, 2);\n"),
    (S + "@scan_states", "  if (work.is_transition) return hand", "  log_unit(number, 3);\n  if (work.is_transition) return hand"),
    (S + "@scan_states", "merge_begin(shared, args, work, turn, state);\n", "merge_begin(shared, args, work, turn, state, number);\n"),
    (S + "@scan_sequence", "  if (chunks > 0) leave_output(", "  log_unit(number, 3);\n  if (chunks > 0) leave_output("),
    ("seams.cuh", "Turn& turn, float (&state)[64]) {\n", "Turn& turn, float (&state)[64], int number) {\n"),
    ("seams.cuh@merge_begin", "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n  log_unit(number, 4);\n"),
    ("seams.cuh@merge_begin", "  turn.advance();\n", "  turn.advance();\n  log_unit(number, 5);\n"),
]
UNIT_STAMPS += [
    (C, "      find_output(shared, args.scale, group, turn);\n", "      find_output(shared, args.scale, group, turn, number);\n"),
    (C, "      find_later_output(shared, args, work, group, turn);\n", "      find_later_output(shared, args, work, group, turn, number);\n"),
    (S, "void find_output(ScanMemory& shared, float scale, int group,\n                                            Turn& turn) {", "void find_output(ScanMemory& shared, float scale, int group,\n                                            Turn& turn, int number) {"),
    (S, "                                                  const Work& work, int group, Turn& turn) {\n  const int before", "                                                  const Work& work, int group, Turn& turn, int number) {\n  const int before"),
    (S + "@find_output", "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n  log_unit(number, 2);\n"),
    (S + "@find_later_output", "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n  log_unit(number, 2);\n"),
]
STATE_NAMES = ["keys issued", "values, carry, state handed", "keys there", "residual, S faded", "writes issued", "used, residual handed", "state there", "done, state rounded", "next chunk there"]
STATE_STAMPS = [
    (S, "                                           uint32_t (&rounded)[8][4]) {\n  const int at", "                                           uint32_t (&rounded)[8][4], int at_mark) {\n  const int at"),
    (S, "  multiply_state(rounded, stage.operands.keys, seen);\n  load_values(stage.values[0], values);\n", m(0) + "  multiply_state(rounded, stage.operands.keys, seen);\n" + m(1) + "  load_values(stage.values[0], values);\n"),
    (S, "  hand_fragments(rounded, handed.state);\n  wait_products<0>(seen);\n", "  hand_fragments(rounded, handed.state);\n" + m(2) + "  wait_products<0>(seen);\n" + m(3)),
    (S, "  add_residual(residual, describe_rows(stage.solved.writes[0], TILE_BYTES), state);\n  arrive_once", m(4) + "  add_residual(residual, describe_rows(stage.solved.writes[0], TILE_BYTES), state);\n" + m(5) + "  arrive_once"),
    (S, "  hand_fragments(residual, handed.residual);\n  turn.advance();\n  wait_products<0>(state);\n", "  hand_fragments(residual, handed.residual);\n  turn.advance();\n" + m(6) + "  wait_products<0>(state);\n" + m(7)),
    (S, "  round_fragment(state, rounded);\n  if (!is_last) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n}\n",
     "  round_fragment(state, rounded);\n" + m(8) + "  if (!is_last) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n" + m(9) + "}\n"),
    (S, "    step_state(shared, *handed, turn, chunk == chunks - 1, state, rounded);\n", "    step_state(shared, *handed, turn, chunk == chunks - 1, state, rounded, mark_of(chunk));\n"),
]
# Of a chunk whose outputs are found beside its states.
CHUNK_NAMES = ["keys, loads, queries issued", "keys there", "residual, S faded, writes issued", "queries there", "reads issued", "state there", "rounded", "next chunk there", "output there"]
N = S + "@step_chunk"
CHUNK_STAMPS = [
    (S, "                                           uint32_t (&before)[16]) {\n", "                                           uint32_t (&before)[16], int at_mark) {\n"),
    (N, "  multiply_state(rounded, stage.operands.keys, seen);\n", m(0) + "  multiply_state(rounded, stage.operands.keys, seen);\n"),
    (N, "  wait_products<1>(seen);\n", m(1) + "  wait_products<1>(seen);\n" + m(2)),
    (N, "  wait_products<1>(output);\n", m(3) + "  wait_products<1>(output);\n" + m(4)),
    (N, "  wait_products<1>(state);\n  round_fragment(state, rounded);\n", m(5) + "  wait_products<1>(state);\n" + m(6) + "  round_fragment(state, rounded);\n" + m(7)),
    (N, "  wait_products<0>(output);\n", m(8) + "  wait_products<0>(output);\n" + m(9)),
    (S, "               rounded, output);\n  }\n", "               rounded, output, mark_of(chunk));\n  }\n"),
]
# Where each warp was last: its place, in pinned host memory, outlives the context.
CRUMBS = '''
__device__ unsigned* crumbs;  // [scan, solve][160 CTAs][20 warps]
__device__ __forceinline__ void crumb(int kernel, unsigned place) {
  if (threadIdx.x % 32 == 0 && blockIdx.x < 160 && crumbs) {
    *static_cast<volatile unsigned*>(crumbs + (kernel * 160 + blockIdx.x) * 20 + threadIdx.x / 32) = place;
    __threadfence_system();
  }
}
'''
ARM = '''namespace {
int64_t arm_crumbs() {
  void* host = nullptr;
  check_error(cudaHostAlloc(&host, 2 * 160 * 20 * 4, cudaHostAllocMapped), "crumbs");
  std::fill_n(static_cast<unsigned*>(host), 2 * 160 * 20, 0u);
  check_error(cudaMemcpyToSymbol(crumbs, &host, sizeof(host)), "crumbs");
  return reinterpret_cast<int64_t>(host);
}
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(arm_crumbs, arm_crumbs)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_scratch, count_scratch)'''

def dropped(file, line, kernel, place, name, before=False):
    PLACES[100 * kernel + place] = name
    call = f"  crumb({kernel}, {100 * kernel + place});\n"
    return (file, line, call + line if before else line + call)


PLACES = {0: "never there"}
CRUMB_MARKS = [
    ("plan.cuh", "struct Args {\n", CRUMBS + "\nstruct Args {\n"),
    ("prefill.cu", "TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_scratch, count_scratch)", ARM),
    dropped("prefill.cu", "  order_sequences(cta.order, args);\n", 1, 1, "sequences ordered"),
    dropped(T, "    if (shared.task.tokens == 0) break;\n", 1, 2, "task's rows are there"),
    dropped(T, "    wait_cta_phase(&barriers.operands, parity);\n", 1, 3, "operands are there"),
    dropped("solve.cuh", "  wait_cta_phase(&shared.barriers.gates, parity);\n", 1, 4, "gates are there"),
    dropped("solve.cuh", "  sync_team();  // A and the scores of both v heads are there\n", 1, 5, "A is there"),
    dropped("solve.cuh", "  arrive_for_warp(&shared.barriers.reads);\n", 1, 6, "reads are there"),
    dropped("solve.cuh", "  arrive_for_warp(&shared.barriers.done);\n", 1, 8, "chunk solved"),
    dropped("feed.cuh", "      free_place(&barriers.gates);\n", 1, 10, "feed: gates handed on"),
    dropped("feed.cuh", "      free_place(&barriers.apart);\n", 1, 11, "feed: operands read"),
    dropped("feed.cuh", "    if (is_first) request_task(shared, args, next);\n", 1, 12, "feed: next requested"),
    dropped("feed.cuh", "      free_place(&barriers.free);\n", 1, 13, "feed: reads read"),
    dropped("feed.cuh", "    count_release(parts_of(args, before.slot, before.qk_head));\n    break;\n", 1, 9, "feed: end", before=True),
    dropped("prefill.cu", "  __syncthreads();  // barriers, order and cut are there\n", 0, 1, "order and cut there"),
    dropped(S, "  commit_copies();\n  wait_copies<0>();  // no copy may land in a CTA that has ended\n", 0, 16, "sender: last outputs stored", before=True),
    dropped(S + "@send_states", "    request_keys(shared, args, work, chunk, round);\n", 0, 31, "sender: chunk is solved", before=True),
    dropped(S + "@send_states", "    request_writes(shared, args, work, chunk, round);\n", 0, 32, "sender: keys, values, writes requested"),
    dropped(S + "@send_seam", "  if (is_requesting) {\n", 0, 35, "sender: at the seam", before=True),
    dropped(S + "@send_seam", "  reuse_stage(shared, args, round);\n", 0, 36, "sender: seam is there", before=True),
    dropped(S + "@send_output", "    admit_bulk_reads();\n", 0, 33, "sender: handed chunk is there"),
    dropped(S + "@send_output", "  arrive(&shared.full[stage]);\n", 0, 34, "sender: handed chunk requested"),
    dropped(S + "@send_later_output", "    admit_bulk_reads();\n", 0, 37, "sender: both parts of a chunk are there"),
    dropped(S + "@send_later_output", "  if (is_requesting) await_count(&seam", 0, 38, "sender: waits for the state in front", before=True),
    dropped(S + "@scan_states", "  round_fragment(state, rounded);\n", 0, 41, "states: begun"),
    dropped(S + "@scan_states", "  if (work.is_transition) return hand", 0, 42, "states: chunks done", before=True),
    dropped(S + "@scan_states", "  clear_ends(args, work, 0);\n", 0, 45, "states: left", before=True),
    dropped(S + "@find_output", "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", 0, 43, "output: operands are there"),
    dropped(S + "@find_later_output", "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", 0, 46, "later output: second round is there"),
]
LIMITS = ("plan.cuh", "SECOND = 20, THIRD = 48, FOURTH = 160")
def limits(a, b, c):
    return [(*LIMITS, f"SECOND = {a}, THIRD = {b}, FOURTH = {c}")]


BIG = 1 << 20
SIDES = {
    # how many segments: none; two at most; three from 30 chunks on; four from 60 on
    "nocut": limits(BIG, BIG, BIG),
    "two": limits(20, BIG, BIG),
    "three": limits(20, 30, BIG),
    "four": limits(20, 40, 60),
    # cut also next to a sequence that is longer than half of the longest
    "any": [("segments.cuh", "2 * next_longest > chunks", "next_longest > chunks")],
    # by how many chunks the first segment is longer
    "ahead0": [("plan.cuh", "AHEAD = 3,", "AHEAD = 0,")],
    # cycles
    "stamps": CTA_STAMPS + TASKS + STATE_STAMPS + CHUNK_STAMPS + UNIT_STAMPS,
    "mainstamps": CTA_STAMPS + MAIN_TASKS,  # of the sources that run.sh is run in
    # where a call that dies was
    "crumbs": CRUMB_MARKS,
}


def holder(folder, file, name, old):
    """The scan lies in three files."""
    for x in (file, "scan_plan.cuh", "send.cuh", "seams.cuh", "segments.cuh") if file == S else (file,):
        text = (folder / x).read_text()
        if old in text and (not name or f"void {name}(" in text):
            return x
    raise AssertionError((file, name, old))


def apply(side, folder):
    for file, old, new, *count in SIDES.get(side, []):
        file, _, name = file.partition("@")  # of the named function alone
        file = holder(folder, file, name, old)
        text = (folder / file).read_text()
        first = text.index(f"void {name}(") if name else 0
        end = text.index("\n}\n", first) + 3 if name else len(text)
        part = text[first:end]
        assert part.count(old) == (count or [1])[0], (side, file, name, part.count(old), old)
        (folder / file).write_text(text[:first] + part.replace(old, new) + text[end:])
