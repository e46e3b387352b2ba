"""What the sides of the lab change in the new sources: (file, old, new), each old text once; (file, old, new, count) else.
Names with x_ compute something else: only their times count."""
ROUNDS, MARKS, CTAS = 32, 16, 64  # of the scan: chunks 0 to 31, places in a chunk, CTAs

HELPERS = f'''
__device__ unsigned scan_stamps[{CTAS} * 12 * {ROUNDS} * {MARKS}];
__device__ unsigned solve_stamps[2 * 160 * 16 * 4 * 16];  // [solve, scan][CTA][warp][task or unit][place]
template <int I>
__device__ __forceinline__ void mark_task(int at) {{
  asm volatile("{{\\n.reg .pred p;\\n.reg .u32 t;\\n.reg .u64 a;\\nsetp.ge.s32 p, %1, 0;\\nmad.wide.s32 a, %1, 4, %0;\\n"
               "mov.u32 t, %%clock;\\n@p st.global.u32 [a + %2], t;\\n}}" ::"l"(solve_stamps), "r"(at), "n"(4 * I) : "memory");
}}
__device__ __forceinline__ int task_mark(int task) {{
  const bool on = threadIdx.x % 32 == 0 && task < 4 && blockIdx.x < 160;
  return on ? ((blockIdx.x * 16 + threadIdx.x / 32) * 4 + task) * 16 : -1;
}}
__device__ __forceinline__ int unit_mark(int unit) {{
  const int at = task_mark(unit);
  return at < 0 ? at : at + 160 * 16 * 4 * 16;
}}
__device__ unsigned long long cta_stamps[2 * 4 * 160];  // [scan, solve][cta][begin, end, units, chunks]
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
  unsigned long long* to = cta_stamps + (kernel * 160 + blockIdx.x) * 4;
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
# A unit of the scan, by the first thread of its first warpgroup: what it is, when begun, when left; us of the device's clock.
LOG = """
__device__ unsigned long long unit_log[160 * 96 * 3];
__device__ __forceinline__ void log_unit(int number, int i, unsigned long long what = 0) {
  if (threadIdx.x != 0 || number > 95 || blockIdx.x >= 160) return;
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) :: "memory");
  unit_log[(blockIdx.x * 96 + number) * 3 + i] = i == 0 ? what : t;
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
    ("prefill.cu", "    send_chunks(shared, args, first);\n", "    send_chunks(shared, args, first);\n    if (threadIdx.x % 128 == 0) mark_cta(0, 1);\n"),
    ("prefill.cu", "  order_sequences(cta.order, args);\n", "  if (threadIdx.x == 0) mark_cta(1, 0);\n  order_sequences(cta.order, args);\n"),
    ("teams.cuh", "  report_part(args, before);\n}\n", "  report_part(args, before);\n  if (threadIdx.x % 128 == 0) mark_cta(1, 1);\n}\n"),
    ("teams.cuh", "    before = task;\n", "    before = task;\n    if (threadIdx.x % 256 == 0) mark_cta(1, 2 + threadIdx.x / 256, 1);\n"),
]
# what: kind (0 outputs of a first segment, 1 of a later one, 2 states of a first, 3 of a later one, 4 transition), later + 1, head, half, chunks
WHAT = ("(work.seq < 0 ? work.later >= 0 : work.is_transition ? 4 : work.later >= 0 ? 3 : 2) | (work.later + 1) << 4 | work.v_head << 8 | work.first_group << 12 | "
        "(unsigned long long)work.range.chunks() << 16 | (unsigned long long)work.slot << 32")
C = S + "@scan_chunks"
UNIT_STAMPS = [
    (C, "  for_works(shared, args, [&](const Work& work, int) {\n", "  for_works(shared, args, [&](const Work& work, int number) {\n    log_unit(number, 0, " + WHAT + "), log_unit(number, 1);\n"),
    (C, "      store_chunks(shared, args, work, turn, parity);\n    }\n", "      store_chunks(shared, args, work, turn, parity);\n    }\n    log_unit(number, 2);\n"),
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
# Where each warp was last: its place, in pinned host memory, outlives the context.
CRUMBS = '''
__device__ unsigned* crumbs;  // [scan, solve][160 CTAs][16 warps]
__device__ __forceinline__ void crumb(int kernel, unsigned place) {
  if (threadIdx.x % 32 == 0 && blockIdx.x < 160 && crumbs) {
    *static_cast<volatile unsigned*>(crumbs + (kernel * 160 + blockIdx.x) * 16 + threadIdx.x / 32) = place;
    __threadfence_system();
  }
}
'''
ARM = '''namespace {
int64_t arm_crumbs() {
  void* host = nullptr;
  check_error(cudaHostAlloc(&host, 2 * 160 * 16 * 4, cudaHostAllocMapped), "crumbs");
  std::fill_n(static_cast<unsigned*>(host), 2 * 160 * 16, 0u);
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
    dropped(T, "  request_task(shared, args, shared.tasks[0]);\n", 1, 2, "first task requested"),
    dropped(T, "    before = task;\n", 1, 8, "chunk solved"),
    dropped(T, "  report_part(args, before);\n}\n", 1, 9, "end", before=True),
    dropped("prefill.cu", "    __syncthreads();  // segments are there\n", 0, 1, "segments there"),
    dropped(S, "  commit_copies();\n  wait_copies<0>();  // no copy may land in a CTA that has ended\n", 0, 16, "sender: last outputs stored", before=True),
    dropped(S + "@send_states", "    request_keys(shared, args, work, chunk, round);\n", 0, 31, "sender: chunk is solved", before=True),
    dropped(S + "@send_states", "    request_writes(shared, args, work, chunk, stage);\n", 0, 32, "sender: keys, values, writes requested"),
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
LIMITS = ("plan.cuh", "SECOND = 20, THIRD = 96, FOURTH = 160")
def limits(a, b, c):
    return [(*LIMITS, f"SECOND = {a}, THIRD = {b}, FOURTH = {c}")]


BIG = 1 << 20
SIDES = {
    # how many segments: none; two at most; three from 40, 30 chunks on; as many as may be
    "nocut": limits(BIG, BIG, BIG),
    "two": limits(20, BIG, BIG),
    "three": limits(20, 30, 160),
    "four": limits(20, 40, 60),
    # by how many chunks the first segment is longer
    "ahead0": [("plan.cuh", "AHEAD = 3,", "AHEAD = 0,")],
    "ahead8": [("plan.cuh", "AHEAD = 3,", "AHEAD = 8,")],
    "begin_late": [(S + "@find_later_output", "  load_begin_terms(args, work, group, high, low);\n  float output[32];\n  multiply_handed(shared.stages[turn.stage], shared.stages[before], args.scale, group, output);\n",
               "  float output[32];\n  multiply_handed(shared.stages[turn.stage], shared.stages[before], args.scale, group, output);\n  load_begin_terms(args, work, group, high, low);\n")],  # begin behind the products
    "x_single": [(S + "@find_later_output", "  multiply_state(low, shared.stages[before].values, output, true);\n", "")],  # F in one term
    # cycles
    "stamps": CTA_STAMPS + STATE_STAMPS + UNIT_STAMPS,
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
