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


S = "scan.cuh"
CHUNK_NAMES = ["keys issued", "output of before left", "values, carry requested", "queries issued", "keys there", "residual, S faded", "writes issued",
               "queries there", "used, output faded", "reads issued", "state there", "state rounded", "next chunk there", "output there", "output rounded"]
SENDER_NAMES = ["solved?", "wait used", "request operands", "wait done", "request solved", "store output", "request values"]
CTA_STAMPS = [
    ("plan.cuh", "struct Args {\n", HELPERS + "\nstruct Args {\n"),
    ("prefill.cu", "TVM_FFI_DLL_EXPORT_TYPED_FUNC(count_scratch, count_scratch)", READER),
    ("prefill.cu", "  if (threadIdx.x == 0) init_barriers(shared);\n", "  if (threadIdx.x == 0) init_barriers(shared), mark_cta(0, 0);\n"),
    ("prefill.cu", "    send_chunks(shared, args, first);\n", "    send_chunks(shared, args, first);\n    if (threadIdx.x % 128 == 0) mark_cta(0, 1);\n"),
    (S, "    send_unit(shared, args, work, is_requesting, round);\n", "    if (is_leader) mark_cta(0, 2, 1), mark_cta(0, 3, work.range.chunks());\n    send_unit(shared, args, work, is_requesting, round);\n"),
    ("prefill.cu", "  order_sequences(cta.order, args);\n", "  if (threadIdx.x == 0) mark_cta(1, 0);\n  order_sequences(cta.order, args);\n"),
    ("teams.cuh", "  report_part(args, before);\n}\n", "  report_part(args, before);\n  if (threadIdx.x % 128 == 0) mark_cta(1, 1);\n}\n"),
    ("teams.cuh", "    before = task;\n", "    before = task;\n    if (threadIdx.x % 256 == 0) mark_cta(1, 2 + threadIdx.x / 256, 1);\n"),
]
CHUNK_STAMPS = [
    (S, "                                           uint32_t (&before)[16]) {\n", "                                           uint32_t (&before)[16], int at_mark) {\n"),
    (S, "  multiply_state(rounded, stage.operands.keys, seen);\n", m(0) + "  multiply_state(rounded, stage.operands.keys, seen);\n" + m(1)),
    after(S, "    leave_output(shared, at == 0 ? Tuning::STAGES - 1 : at - 1, group, before);\n  }\n", 2),
    (S, "  multiply_state(rounded, stage.operands.queries, output);\n", m(3) + "  multiply_state(rounded, stage.operands.queries, output);\n" + m(4)),
    after(S, "  wait_products<1>(seen);\n", 5),
    (S, "  add_residual(residual, describe_rows(stage.solved.writes[0], TILE_BYTES), state);\n",
     m(6) + "  add_residual(residual, describe_rows(stage.solved.writes[0], TILE_BYTES), state);\n" + m(7)),
    after(S, "  wait_products<1>(output);\n", 8),
    (S, "  add_residual(residual, describe_rows(stage.solved.reads, 0), output);\n", m(9) + "  add_residual(residual, describe_rows(stage.solved.reads, 0), output);\n" + m(10)),
    after(S, "  wait_products<1>(state);\n", 11),
    (S, "  if (!is_last) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n  wait_products<0>(output);\n  round_output(output, before);\n",
     m(12) + "  if (!is_last) wait_cta_phase(&shared.full[turn.stage], turn.parity);\n" + m(13) + "  wait_products<0>(output);\n" + m(14) + "  round_output(output, before);\n" + m(15)),
    (S, "group, state, rounded,\n               output);\n", "group, state, rounded,\n               output, mark_of(chunk));\n"),
    (S, "    if (is_requesting && chunk >= solved) {\n", "    const int at_mark = mark_of(chunk);\n" + m(0) + "    if (is_requesting && chunk >= solved) {\n"),
    (S, "    if (is_reused) wait_cta_phase(&shared.used[stage], parity);\n", m(1) + "    if (is_reused) wait_cta_phase(&shared.used[stage], parity);\n" + m(2)),
    (S, "    if (is_reused) wait_cta_phase(&shared.done[stage], parity);\n", m(3) + "    if (is_reused) wait_cta_phase(&shared.done[stage], parity);\n" + m(4)),
    (S, "    if (is_reused) store_output(shared, args, round - Tuning::STAGES);\n    if (chunk >= early) request_values(shared, args, work, chunk, round);\n",
     m(5) + "    if (is_reused) store_output(shared, args, round - Tuning::STAGES);\n" + m(6) + "    if (chunk >= early) request_values(shared, args, work, chunk, round);\n" + m(7)),
]
SIDES = {
    # what of the changes helps
    "plain": [(S, "stream_chunk_or_clear", "copy_chunk_or_clear", 1), ("solve.cuh", "stream_chunk_or_clear", "copy_chunk_or_clear", 2),
              (S, "__ldcs(", "__ldg(", 1), (S, "    __stcs(reinterpret_cast<float4*>(args.new_state + offset), keys);\n", "    *reinterpret_cast<float4*>(args.new_state + offset) = keys;\n"),
              (S, "__stcs(reinterpret_cast<uint4*>(row), rows[i]);", "*reinterpret_cast<uint4*>(row) = rows[i];")],  # no hints
    "scan0": [("plan.cuh", "SCANNED = 16", "SCANNED = 0")],
    "scan32": [("plan.cuh", "SCANNED = 16", "SCANNED = 32"), ("prefill.cu", "sms / 8", "sms / 4")],
    "pieces": [(S, "  copy_bulk(&shared.stages[stage].operands, operands, sizeof(Operands), &shared.full[stage]);\n",
                "#pragma unroll\n  for (int i = 0; i < 4; ++i) {\n    copy_bulk(reinterpret_cast<uint8_t*>(&shared.stages[stage].operands) + i * 8192,\n"
                "              reinterpret_cast<const uint8_t*>(operands) + i * 8192, 8192, &shared.full[stage]);\n  }\n")],  # four copies for one
    # what binds a chunk of one sequence: bytes or the chain
    "x_half": [(S, "sizeof(Operands), &", "sizeof(Operands) / 2, &", 1), (S, "&shared.full[stage], sizeof(Operands));", "&shared.full[stage], sizeof(Operands) / 2);"),
              (S, "sizeof(Solved), &", "sizeof(Solved) / 2, &", 1), (S, "&shared.full[stage], sizeof(Solved));", "&shared.full[stage], sizeof(Solved) / 2);")],
    "x_near": [(S, "operands_of(args, work.slot + chunk, ", "operands_of(args, work.slot, "), (S, "solved_of(args, work.slot + chunk, ", "solved_of(args, work.slot, ")],
    "x_noq": [(S, "  multiply_state(rounded, stage.operands.queries, output);\n", "#pragma unroll\n  for (int i = 0; i < 32; ++i) output[i] = 0.0f;\n  begin_products();\n  commit_products();\n")],
    # cycles
    "stamps": CTA_STAMPS + CHUNK_STAMPS,
}


def apply(side, folder):
    for file, old, new, *count in SIDES.get(side, []):
        text = (folder / file).read_text()
        assert text.count(old) == (count or [1])[0], (side, file, text.count(old), old)
        (folder / file).write_text(text.replace(old, new))
