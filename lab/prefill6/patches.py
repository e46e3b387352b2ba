"""What the sides of the lab change in the new sources: (file, old, new), each old text once; (file, old, new, count) else.
Names with x_ compute something else: only their times count."""
ROUNDS, MARKS, CTAS = 32, 16, 64  # of the scan: chunks 0 to 31, places in a chunk, CTAs

HELPERS = f'''
__device__ unsigned scan_stamps[{CTAS} * 12 * {ROUNDS} * {MARKS}];
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
void read_stamps(tvm::ffi::TensorView scan, tvm::ffi::TensorView ctas) {
  cudaDeviceSynchronize();
  to_host(scan, scan_stamps); to_host(ctas, cta_stamps);
  void* at = nullptr;
  cudaGetSymbolAddress(&at, scan_stamps); cudaMemset(at, 0, sizeof(scan_stamps));
  cudaGetSymbolAddress(&at, cta_stamps); cudaMemset(at, 0, sizeof(cta_stamps));
  cudaDeviceSynchronize();
}
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(read_stamps, read_stamps)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_scratch, count_scratch)'''


def m(i):
    return f"  mark<{i}>(at_mark);\n"


def after(file, line, i):
    return (file, line, line + m(i))


S, T = "scan.cuh", "teams.cuh"
CHUNK_NAMES = ["keys issued", "values, carry requested", "output of before left", "queries issued", "keys there", "residual, S faded", "writes issued",
               "queries there", "used, output faded", "reads issued", "state there", "state rounded", "next chunk there", "output there", "output rounded"]
SENDER_NAMES = ["solved?", "wait used", "request operands", "request values apart", "wait done", "request solved", "none"]
CTA_STAMPS = [
    ("plan.cuh", "struct Args {\n", HELPERS + "\nstruct Args {\n"),
    ("prefill.cu", "TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_scratch, count_scratch)", READER),
    ("prefill.cu", "  if (threadIdx.x == 0) init_barriers(shared);\n", "  if (threadIdx.x == 0) init_barriers(shared), mark_cta(0, 0);\n"),
    ("prefill.cu", "    send_chunks(shared, args, first);\n", "    send_chunks(shared, args, first);\n    if (threadIdx.x % 128 == 0) mark_cta(0, 1);\n"),
    (S, "    if (work.seq < 0) {\n      send_output(", "    if (is_leader) mark_cta(0, 2, 1), mark_cta(0, 3, work.range.chunks());\n    if (work.seq < 0) {\n      send_output("),
    ("prefill.cu", "  order_sequences(cta.order, args);\n", "  if (threadIdx.x == 0) mark_cta(1, 0);\n  order_sequences(cta.order, args);\n"),
    ("teams.cuh", "  report_part(args, before);\n}\n", "  report_part(args, before);\n  if (threadIdx.x % 128 == 0) mark_cta(1, 1);\n}\n"),
    ("teams.cuh", "    before = task;\n", "    before = task;\n    if (threadIdx.x % 256 == 0) mark_cta(1, 2 + threadIdx.x / 256, 1);\n"),
]
C, U, Q = S + "@step_chunk", S + "@send_unit", S + "@scan_sequence"
CHUNK_STAMPS = [
    (C, "                                           uint32_t (&before)[16]) {\n", "                                           uint32_t (&before)[16], int at_mark) {\n"),
    (C, "  multiply_state(rounded, stage.operands.keys, seen);\n  load_values(stage.values[group], values);\n", m(0) + "  multiply_state(rounded, stage.operands.keys, seen);\n" + m(1) + "  load_values(stage.values[group], values);\n"),
    (C, "  if (!is_first) {\n", m(2) + "  if (!is_first) {\n"),
    (C, "  multiply_state(rounded, stage.operands.queries, output);\n", m(3) + "  multiply_state(rounded, stage.operands.queries, output);\n" + m(4)),
    after(C, "  wait_products<1>(seen);\n", 5),
    (C, "  add_residual(residual, describe_rows(stage.solved.writes[0], TILE_BYTES), state);\n",
     m(6) + "  add_residual(residual, describe_rows(stage.solved.writes[0], TILE_BYTES), state);\n" + m(7)),
    after(C, "  wait_products<1>(output);\n", 8),
    (C, "  add_residual(residual, describe_rows(stage.solved.reads, 0), output);\n", m(9) + "  add_residual(residual, describe_rows(stage.solved.reads, 0), output);\n" + m(10)),
    after(C, "  wait_products<1>(state);\n", 11),
    (C, "  if (!is_last) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n  wait_products<0>(output);\n  round_output(output, before);\n",
     m(12) + "  if (!is_last) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n" + m(13) + "  wait_products<0>(output);\n" + m(14) + "  round_output(output, before);\n" + m(15)),
    (Q, "               rounded, output);\n", "               rounded, output, mark_of(chunk));\n"),
    (U, "    if (is_requesting && chunk >= solved) {\n", "    const int at_mark = mark_of(chunk);\n" + m(0) + "    if (is_requesting && chunk >= solved) {\n"),
    (U, "    if (is_reused) wait_cta_phase(&shared.used[stage], parity);\n", m(1) + "    if (is_reused) wait_cta_phase(&shared.used[stage], parity);\n" + m(2)),
    (U, "    if (is_reused) wait_cta_phase(&shared.done[stage], parity);\n", m(4) + "    if (is_reused) wait_cta_phase(&shared.done[stage], parity);\n" + m(5)),
    (U, "    const bool apart = is_apart(shared, work, round);\n", m(3) + "    const bool apart = is_apart(shared, work, round);\n"),
    (U, "    if (apart) continue;\n", m(6) + m(7) + "    if (apart) continue;\n"),
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
PLACES = {0: "never there"}


def dropped(file, line, kernel, place, name, before=False):
    PLACES[100 * kernel + place] = name
    call = f"  crumb({kernel}, {100 * kernel + place});\n"
    return (file, line, call + line if before else line + call)


CRUMB_MARKS = [
    ("plan.cuh", "struct Args {\n", CRUMBS + "\nstruct Args {\n"),
    ("prefill.cu", "TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_scratch, count_scratch)", ARM),
    dropped("prefill.cu", "  order_sequences(cta.order, args);\n", 1, 1, "sequences ordered"),
    dropped(T, "  request_task(shared, args, shared.tasks[0]);\n", 1, 2, "first task requested"),
    dropped(T, "  if (role == CLEARING) clear_parts(cta, args, tasks, all);\n", 1, 3, "parts cleared"),
    dropped(T, "    wait_copies<0>();\n", 1, 4, "rows have come"),
    dropped(T, "    report_part(args, before);\n    sync_team();  // all of the chunk before has been read\n", 1, 5, "gates, next task, report"),
    dropped(T, "    sync_team();       // keys, queries and gates are there\n", 1, 6, "rows converted"),
    dropped(T, "    request_task(shared, args, shared.tasks[place ^ 1]);  // on its way while this one is solved\n", 1, 7, "next task requested"),
    dropped(T, "    before = task;\n", 1, 8, "chunk solved"),
    dropped(T, "  report_part(args, before);\n}\n", 1, 9, "end", before=True),
    dropped("prefill.cu", "  order_sequences(shared.order, args);\n", 0, 1, "sequences ordered"),
    dropped(U, "  int solved = 0;  // chunks that are known to be there\n", 0, 11, "sender: first values requested"),
    dropped(U, "    if (is_reused) wait_cta_phase(&shared.used[stage], parity);\n", 0, 12, "sender: chunk is solved", before=True),
    dropped(U, "    request_operands(shared, args, work, chunk, round);\n", 0, 13, "sender: operands requested"),
    dropped(U, "    request_solved(shared, args, work, chunk, stage);\n", 0, 14, "sender: writes and reads requested"),
    dropped(U, "    if (apart) continue;\n", 0, 15, "sender: at the output, if it stores", before=True),
    dropped(S, "  commit_copies();\n  wait_copies<0>();  // no copy may land in a CTA that has ended\n", 0, 16, "sender: last outputs stored", before=True),
    dropped(S, "  wait_for_launches_before();  // who comes after this kernel comes after solve_kernel\n", 0, 17, "sender: end"),
    dropped(Q, "  uint32_t rounded[8][4], output[16] = {};\n", 0, 21, "group: state requested"),
    dropped(Q, "    last = turn.stage;\n", 0, 22, "group: a chunk begins"),
    dropped(Q, "  store_state(args, work, group, state);\n", 0, 23, "group: chunks done", before=True),
    dropped(Q, "  clear_ends(args, work, group);\n", 0, 24, "group: state stored", before=True),
    dropped(S + "@send_states", "    request_keys(shared, args, work, chunk, round);\n", 0, 31, "sender: chunk is solved", before=True),
    dropped(S + "@send_states", "    request_writes(shared, args, work, chunk, stage);\n", 0, 32, "sender: keys, values, writes requested"),
    dropped(S + "@send_output", "    admit_bulk_reads();\n", 0, 33, "sender: handed chunk is there"),
    dropped(S + "@send_output", "  arrive(&shared.full[stage]);\n", 0, 34, "sender: handed chunk requested"),
    dropped(S + "@scan_states", "  round_fragment(state, rounded);\n", 0, 41, "states: begun"),
    dropped(S + "@scan_states", "  store_state(args, work, 0, state);\n", 0, 42, "states: chunks done", before=True),
    dropped(S + "@find_output", "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", 0, 43, "output: operands are there"),
    dropped(S + "@find_output", "  turn.advance();\n", 0, 44, "output: left"),
]
STREAM = '''
__device__ __forceinline__ void stream_chunk_or_clear(void* shared, const void* global, bool valid) {
  asm volatile("{\\n.reg .b64 once;\\ncreatepolicy.fractional.L2::evict_first.b64 once, 1.0;\\n"
               "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, once;\\n}" ::"r"(shared_address(shared)),
               "l"(global), "r"(valid ? 16 : 0) : "memory");
}
struct Stage {
'''
STATE_NAMES = ["keys issued", "values, carry, state handed", "keys there", "residual, S faded", "writes issued", "used, residual handed", "state there", "done, state rounded", "next chunk there"]
STATE_SENDER_NAMES = ["solved?", "wait used", "request keys", "request values", "wait done, report", "request writes"]
K = "    if (chunk >= early) request_values(shared, args, work, chunk, round);\n    if (chunk >= Tuning::STAGES) report(chunk - Tuning::STAGES, round - Tuning::STAGES);\n"
STATE_STAMPS = [
    (S, "                                           uint32_t (&rounded)[8][4]) {\n  const int at", "                                           uint32_t (&rounded)[8][4], int at_mark) {\n  const int at"),
    (S, "  multiply_state(rounded, stage.operands.keys, seen);\n  load_values(stage.values[0], values);\n", m(0) + "  multiply_state(rounded, stage.operands.keys, seen);\n" + m(1) + "  load_values(stage.values[0], values);\n"),
    (S, "  hand_fragments(rounded, handed.state);\n  wait_products<0>(seen);\n", "  hand_fragments(rounded, handed.state);\n" + m(2) + "  wait_products<0>(seen);\n" + m(3)),
    (S, "  add_residual(residual, describe_rows(stage.solved.writes[0], TILE_BYTES), state);\n  arrive_once", m(4) + "  add_residual(residual, describe_rows(stage.solved.writes[0], TILE_BYTES), state);\n" + m(5) + "  arrive_once"),
    (S, "  hand_fragments(residual, handed.residual);\n  turn.advance();\n  wait_products<0>(state);\n", "  hand_fragments(residual, handed.residual);\n  turn.advance();\n" + m(6) + "  wait_products<0>(state);\n" + m(7)),
    (S, "  round_fragment(state, rounded);\n  if (!is_last) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n}\n",
     "  round_fragment(state, rounded);\n" + m(8) + "  if (!is_last) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n" + m(9) + "}\n"),
    (S, "    step_state(shared, *handed, turn, chunk == chunks - 1, state, rounded);\n", "    step_state(shared, *handed, turn, chunk == chunks - 1, state, rounded, mark_of(chunk));\n"),
    (S, "    if (round >= Tuning::STAGES) wait_cta_phase(&shared.used[stage], parity);\n    request_keys(shared, args, work, chunk, round);\n" + K + "    request_writes(shared, args, work, chunk, stage);\n",
     m(1) + "    if (round >= Tuning::STAGES) wait_cta_phase(&shared.used[stage], parity);\n" + m(2) + "    request_keys(shared, args, work, chunk, round);\n" + m(3)
     + K.replace("    if (chunk >= Tuning::STAGES) report", m(4) + "    if (chunk >= Tuning::STAGES) report") + m(5) + "    request_writes(shared, args, work, chunk, stage);\n" + m(6)),
    (S, "    const int stage = round % Tuning::STAGES, parity = (round / Tuning::STAGES - 1) % 2;\n    if (is_requesting && chunk >= solved) {\n",
     "    const int stage = round % Tuning::STAGES, parity = (round / Tuning::STAGES - 1) % 2;\n    const int at_mark = mark_of(chunk);\n" + m(0) + "    if (is_requesting && chunk >= solved) {\n"),
]
SIDES = {
    # what of the changes helps
    "plain": [(S, "__ldcs(", "__ldg(", 1), (S, "    __stcs(reinterpret_cast<float4*>(args.new_state + offset), keys);\n", "    *reinterpret_cast<float4*>(args.new_state + offset) = keys;\n"),
              (S, "__stcs(reinterpret_cast<uint4*>(row), rows[i]);", "*reinterpret_cast<uint4*>(row) = rows[i];")],  # no hints
    "hints": [(S, "struct Stage {\n", STREAM), (S, "      copy_chunk_or_clear(", "      stream_chunk_or_clear(")],  # values too, read once
    "scan0": [("plan.cuh", "SCANNED = 16", "SCANNED = 0")],
    "scan32": [("plan.cuh", "SCANNED = 16", "SCANNED = 32"), ("prefill.cu", "sms / 8", "sms / 4")],
    # when outputs are found apart: never; from 4, 2 chunks a sequence on
    "nohand": [("plan.cuh", "  return num_seqs <= Tuning::FEW && ", "  return false && num_seqs <= Tuning::FEW && ")],
    "hand4": [("plan.cuh", "LONG = 8", "LONG = 4")],
    "hand2": [("plan.cuh", "LONG = 8", "LONG = 2")],
    # what binds a chunk of one sequence: bytes or the chain
    "x_half": [(S + "@request_operands", "sizeof(Operands)", "sizeof(Operands) / 2", 2), (S + "@request_solved", "sizeof(Solved)", "sizeof(Solved) / 2", 2)],
    "x_near": [(S, "operands_of(args, work.slot + chunk, ", "operands_of(args, work.slot, ", 2), (S, "solved_of(args, work.slot + chunk, ", "solved_of(args, work.slot, ", 2)],
    "x_vnear": [(S, "const int64_t token = first + mine.row;", "const int64_t token = work.range.start + mine.row;")],  # values of the first chunk, always
    "x_nohanding": [(S + "@hand_fragments", "    to[step][threadIdx.x % 128] = ", "    if (of[0] == 0x7fff7fff) to[step][threadIdx.x % 128] = ")],  # nothing written
    "x_noreport": [(S + "@send_states", "    count_release(halves_of(args, work.slot + chunk, work.v_head));\n", "    return;\n"), (S, "is_handing(args) ? shared.order.chunks : 0", "0")],
    # the chain without a feed: scan's end less its begin, 1.5 us of start
    "x_chain": [(S, "      send_states(shared, args, work, is_requesting, round);\n", ""), (S, "is_handing(args) ? shared.order.chunks : 0", "0"),
                (S + "@scan_states", "  wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", ""), (S + "@step_state", "  if (!is_last) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n", "")],
    # the feed without a chain
    "x_feed": [(S, "is_handing(args) ? shared.order.chunks : 0", "0"),
               (S, "        scan_states(shared, args, work, turn);\n",
                "        for (int chunk = 0; chunk < work.range.chunks(); ++chunk, turn.advance()) {\n          wait_cta_phase(&shared.full[turn.stage], turn.parity);\n"
                "          for (int i = 0; i < 2; ++i) arrive_once_a_warp(&shared.used[turn.stage]), arrive_once_a_warp(&shared.done[turn.stage]);\n        }\n")],
    # cycles
    "stamps": CTA_STAMPS + STATE_STAMPS + CHUNK_STAMPS,
    # where a call that dies was
    "crumbs": CRUMB_MARKS,
}


def apply(side, folder):
    for file, old, new, *count in SIDES.get(side, []):
        file, _, name = file.partition("@")  # of the named function alone
        text = (folder / file).read_text()
        first = text.index(f" {name}(") if name else 0
        end = text.index("\n}\n", first) + 3 if name else len(text)
        part = text[first:end]
        assert part.count(old) == (count or [1])[0], (side, file, name, part.count(old), old)
        (folder / file).write_text(text[:first] + part.replace(old, new) + text[end:])
