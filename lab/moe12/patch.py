"""python3 patch.py TREE TO SIDE: moe's sources of TREE, flat in TO, bound by extern "C", as one of plain (as they are), stamped.
Every patch has to apply as often as it says, or this fails."""
import shutil
import sys
from pathlib import Path

WORDS = """BEGIN_NS END_NS BEGIN END END0_NS ROUTE LIST UNIT FIRST WRITE_C SECOND WRITE_OUT MEET
W_START R_START W_FIRST R_FIRST W_SECOND R_SECOND W_C R_C FEED_C FEED_FREE T_REQUEST T_SECOND T_LAST T_LANDED T_END
UNITS_1 UNITS_2 HOLD""".split()
CTA_WORDS, STRIPES, OTHERS = 32, 64, 3  # words a CTA; of route, pack and combine 64 stripes of four words each
assert len(WORDS) <= CTA_WORDS


def patch(tree, to, side):
    assert side in ("plain", "stamped"), side
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for folder in ("moe", "common"):
        for path in sorted((tree / "solutions" / folder).glob("*.cu*")):
            shutil.copy(path, to)
    texts = {path.name: path.read_text() for path in to.iterdir()}

    def put(file, old, new, times=1):
        if isinstance(old, tuple):  # forms of trees before and after the stream's end at 16 tokens
            old, new = next((forms for forms in zip(old, new) if texts[file].count(forms[0]) == times), (old[0], new[0]))
        found = texts[file].count(old)
        assert found == times, f"{side}: {file} holds this {found} times, expected {times}:\n{old}"
        texts[file] = texts[file].replace(old, new)

    # Without the binding: extern "C", for ctypes.
    put("moe.cu", "#include <tvm/ffi/container/tensor.h>\n#include <tvm/ffi/extra/c_env_api.h>\n#include <tvm/ffi/function.h>\n", '''#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
struct LabCheck {
  bool ok;
  template <typename T> LabCheck& operator<<(const T&) { return *this; }
  ~LabCheck() { if (!ok) std::fprintf(stderr, "moe: a check failed: %s\\n", cudaGetErrorString(cudaGetLastError())), std::abort(); }
};
#define TVM_FFI_ICHECK(condition) LabCheck{bool(condition)}
''')
    put("moe.cu", "using tvm::ffi::TensorView;\n", "")
    head, mark, _ = texts["moe.cu"].partition("// Shapes and dtypes are checked by the caller;")
    assert mark, "moe.cu: no entry point found"
    binding = head + '''}  // namespace

extern "C" int64_t lab_scratch_bytes(int64_t tokens) { return count_scratch_bytes(tokens); }

extern "C" int lab_moe(const float* logits, const void* bias, const void* x, const float* x_scale, const void* w1, const float* w1_scale, const void* w2,
                       const float* w2_scale, void* output, void* scratch, int tokens, int offset, float scaling, int sms, int in_tiles, unsigned long long* stamps, void* stream) {
  Call call = {};
  Args& args = call.args;
  args.num_tokens = tokens, args.capacity = tokens * TOP_K;
  place_scratch(static_cast<uint8_t*>(scratch), tokens, args);
  args.x = static_cast<const uint8_t*>(x), args.x_scale = x_scale, args.w1_scale = w1_scale, args.w2_scale = w2_scale;
  STAMPS
  call.route = {logits, static_cast<const __nv_bfloat16*>(bias), args.routing, scaling, offset, tokens, x_scale, args.x_tile_scale};
  ROUTE_STAMPS
  call.w1 = w1, call.w2 = w2;
  args.output = static_cast<__nv_bfloat16*>(output);
  call.num_sms = sms, call.stream = static_cast<cudaStream_t>(stream);
  in_tiles ? run_tiles(call) : run_stream(call);
  return cudaGetLastError();
}
'''
    ways = "  if (in_tiles) {\n    run_tiles(call);\n  } else {\n    run_stream(call);\n  }\n"
    assert texts["moe.cu"].count(ways) == 1, "moe.cu: not the ways that the lab knows"
    for name in ("args.routing,\n                static_cast<float>(scaling),\n                static_cast<int>(offset),\n                args.num_tokens,\n                args.x_scale,\n                args.x_tile_scale};",):
        assert texts["moe.cu"].count(name) == 1, "moe.cu: other arguments of routing than the lab's"
    texts["moe.cu"] = binding
    is_stamped = side == "stamped"
    put("moe.cu", "  STAMPS\n", "  args.stamps = stamps;\n" if is_stamped else "")
    put("moe.cu", "  ROUTE_STAMPS\n", "  call.route.stamps = stamps;\n" if is_stamped else "")
    if is_stamped:
        put("plan.cuh", "  int num_tokens, capacity;\n};\n", f'''  int num_tokens, capacity;
  unsigned long long* stamps;  // [SMs][{CTA_WORDS}], then route, pack, combine [{STRIPES}][4]
}};

enum Word {{ {", ".join("L_" + word for word in WORDS)} }};
using ull = unsigned long long;
__shared__ volatile ull lab_last;
__shared__ volatile int lab_units;

__device__ __forceinline__ ull lab_ns() {{
  ull now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
  return now;
}}
__device__ __forceinline__ ull lab_clock() {{
  ull now;
  asm volatile("mov.u64 %0, %clock64;" : "=l"(now)::"memory");
  return now;
}}
__device__ __forceinline__ void lab_add(ull* to, ull value) {{ asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory"); }}
__device__ __forceinline__ void lab_max(ull* to, ull value) {{ asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory"); }}
__device__ __forceinline__ ull* lab_word(const Args& args, int word) {{ return args.stamps + blockIdx.x * {CTA_WORDS} + word; }}
// Of thread 0, which has all of its time in some word: since it was here last.
__device__ __forceinline__ void lab_mark(const Args& args, int word, int by = 0) {{
  if (threadIdx.x != by) return;
  const ull now = lab_clock();
  lab_add(lab_word(args, word), now - lab_last);
  lab_last = now;
}}
__device__ __forceinline__ void lab_begin(const Args& args) {{
  if (threadIdx.x != 0) return;
  const ull now = lab_clock();
  lab_last = now, lab_units = 0;
  *lab_word(args, L_BEGIN) = now, *lab_word(args, L_BEGIN_NS) = lab_ns();
}}
__device__ __forceinline__ void lab_end(const Args& args, int by = 0) {{
  if (threadIdx.x % 32 == 0) lab_max(lab_word(args, L_END_NS), lab_ns());
  if (threadIdx.x == by) *lab_word(args, L_END) = lab_clock(), *lab_word(args, L_END0_NS) = lab_ns();
}}
__device__ __forceinline__ void lab_wait(const Args& args, int word, ull since) {{
  if (threadIdx.x == 0) lab_add(lab_word(args, word), lab_clock() - since);
}}
// Route, pack, combine (0, 1, 2): ~begin, end, ~the end of the wait, each the largest.
__device__ __forceinline__ void lab_kernel(ull* stamps, int sms, int kernel, int word, bool is_least) {{
  if (threadIdx.x != 0) return;
  ull* to = stamps + sms * {CTA_WORDS} + (kernel * {STRIPES} + (blockIdx.x + 7 * blockIdx.y) % {STRIPES}) * 4 + word;
  lab_max(to, is_least ? ~lab_ns() : lab_ns());
}}
constexpr int LAB_SMS = 132, STREAM_BY = 128;  // of the stream the warpgroup that writes
''')
        stamp(put)
    for name, text in texts.items():
        (to / name).write_text(text)


def stamp(put):
    for what in ("the rings fit an SM", "stages and routing fit an SM", "the stages fit an SM"):
        put("moe.cu", f'static_assert(BYTES <= SHARED_BYTES, "{what}");', f'static_assert(BYTES + 1024 <= SHARED_BYTES, "{what}, with 1 KiB of the stamps");')
    # Kernels.
    put("moe.cu", "  const Args& all = args.all;\n  if (threadIdx.x / 32 == MULTIPLYING / 32) {\n", "  const Args& all = args.all;\n  lab_begin(all);\n  if (threadIdx.x / 32 == MULTIPLYING / 32) {\n")
    feeds = ("    feed_weights(shared, all, ticket, shared.expert_rows[threadIdx.x % 32]);\n", "    feed_weights(shared, all, ticket, count_expert_rows(shared, count_blocks(all)));\n")
    put("moe.cu", tuple(feed + "    return;\n" for feed in feeds), tuple(feed + "    lab_end(all, STREAM_BY);\n    return;\n" for feed in feeds))
    put("moe.cu", ("  if (threadIdx.x < 32) pack_tokens(shared, args, await_locals(shared, args));\n", "  const uint2 locals = route_tokens(shared, args);\n"),
        ("  if (threadIdx.x < 32) {\n    const uint2 lab_locals = await_locals(shared, args);\n    lab_mark(all, L_ROUTE);\n    pack_tokens(shared, args, lab_locals);\n  }\n",
         "  const uint2 locals = route_tokens(shared, args);\n  lab_mark(all, L_ROUTE);\n"))
    put("moe.cu", "  sync_threads_of(WORKERS_MEET, 32 * WORKERS);\n  allow_next_launch();\n  if (threadIdx.x < MULTIPLYING) {\n    multiply_units(shared, all);\n  } else {\n    feed_rows(shared, all);\n  }\n",
        "  sync_threads_of(WORKERS_MEET, 32 * WORKERS);\n  lab_mark(all, L_LIST, STREAM_BY);\n  allow_next_launch();\n  if (threadIdx.x < MULTIPLYING) {\n    multiply_units(shared, all);\n  } else {\n    feed_rows(shared, all);\n  }\n  lab_end(all, STREAM_BY);\n")
    put("moe.cu", "  wait_for_launches_before();\n  allow_next_launch();\n  if (warp < MULTIPLYING / 32) {\n    take_registers<224>();\n", "  wait_for_launches_before();\n  lab_begin(args);\n  allow_next_launch();\n  if (warp < MULTIPLYING / 32) {\n    take_registers<224>();\n")
    put("moe.cu", "      feed_tile_rows<Form>(shared, args, PackedRows());\n    }\n  }\n  __syncwarp();\n  meet_cluster();  // nobody ends while the other may still arrive here\n", "      feed_tile_rows<Form>(shared, args, PackedRows());\n    }\n  }\n  __syncwarp();\n  meet_cluster();\n  lab_mark(args, L_MEET);\n  lab_end(args);\n")
    put("moe.cu", "  const int rank = cluster_rank(), warp = threadIdx.x / 32;\n  if (warp == MULTIPLYING / 32) {\n    begin_tiles(shared, all, rank);\n", "  const int rank = cluster_rank(), warp = threadIdx.x / 32;\n  lab_begin(all);\n  if (warp == MULTIPLYING / 32) {\n    begin_tiles(shared, all, rank);\n")
    put("moe.cu", "    route_for_tiles(shared, args);\n    wait_cluster();\n  }\n  __syncthreads();\n", "    route_for_tiles(shared, args);\n    lab_mark(all, L_ROUTE);\n    wait_cluster();\n  }\n  __syncthreads();\n  lab_mark(all, L_LIST);\n")
    put("moe.cu", "      tell_slots(shared, all);\n    }\n  }\n  __syncwarp();\n  meet_cluster();  // nobody ends while the other may still arrive here\n", "      tell_slots(shared, all);\n    }\n  }\n  __syncwarp();\n  meet_cluster();\n  lab_mark(all, L_MEET);\n  lab_end(all);\n")

    # The stream: units, products, what they write.
    file = "multiply.cuh"
    put(file, "multiply_x(SharedMemory& shared, const float* weight_scales,", "multiply_x(SharedMemory& shared, const Args& args, const float* weight_scales,")
    put(file, "multiply_c(SharedMemory& shared, const float* weight_scales,", "multiply_c(SharedMemory& shared, const Args& args, const float* weight_scales,")
    put(file, "multiply_x(shared, shared.weight_scales[turn]", "multiply_x(shared, args, shared.weight_scales[turn]")
    put(file, "multiply_c(shared, shared.weight_scales[turn]", "multiply_c(shared, args, shared.weight_scales[turn]")

    def waits(rings, first):
        """Weights, then rows, each with its word; a unit's first block apart."""
        start, other = ("lab_units == 0 ? L_{}_START : L_{}_FIRST", "L_{}_FIRST") if first else ("L_{}_C", "L_{}_SECOND")
        text = "    const ull lab_a = lab_clock();\n"
        text += f"    wait_cta_phase(&shared.weights_full[{rings}.weights.stage], {rings}.weights.parity);\n    const ull lab_b = lab_clock();\n"
        text += f"    wait_cta_phase(&shared.rows_full[{rings}.rows.stage], {rings}.rows.parity);\n    if (threadIdx.x == STREAM_BY) {{\n      const ull lab_c = lab_clock();\n"
        for of, by in (("W", "lab_b - lab_a"), ("R", "lab_c - lab_b")):
            text += f"      lab_add(lab_word(args, block == STAGE_BLOCKS ? ({start.format(of, of)}) : {other.format(of)}), {by});\n"
        if first:
            text += "      if (block == STAGE_BLOCKS && lab_units == 0) *lab_word(args, L_T_LANDED) = lab_c;\n"
        return text + "      if (block + STAGE_BLOCKS >= (" + ("HIDDEN_BLOCKS" if first else "WIDTH_BLOCKS") + ")) *lab_word(args, L_T_END) = lab_c;\n    }\n"

    put(file, "    at.wait(shared);\n", waits("at", True))
    put(file, "    rings.wait(shared);\n    publish_shared();\n", waits("rings", False) + "    publish_shared();\n")
    put(file, "    const Unit unit = take_unit(shared, units);\n    if (unit.kind == NONE) return;\n", "    const Unit unit = take_unit(shared, units);\n    lab_mark(args, L_UNIT, STREAM_BY);\n    if (unit.kind == NONE) return;\n")
    put(file, "  take_sums(shared, turn, number / 2 % 2, acc);\n", "  take_sums(shared, turn, number / 2 % 2, acc);\n  lab_mark(args, unit.kind == FIRST ? L_FIRST : L_SECOND, STREAM_BY);\n")
    put(file, "  if (unit.kind == FIRST) count_c(args, unit);\n", """  if (unit.kind == FIRST) count_c(args, unit);
  lab_mark(args, unit.kind == FIRST ? L_WRITE_C : L_WRITE_OUT, STREAM_BY);
  if (threadIdx.x == STREAM_BY) lab_units = lab_units + 1, lab_add(lab_word(args, unit.kind == FIRST ? L_UNITS_1 : L_UNITS_2), 1);
""")

    # The stream's feeds.
    file = "feed.cuh"
    put(file, "      wait_cta_phase(&shared.weights_free[ring.stage], ring.parity ^ 1);\n      if (lane == 0) {\n        request_weights(", '''      const ull lab_a = lab_clock();
      wait_cta_phase(&shared.weights_free[ring.stage], ring.parity ^ 1);
      if (lane == 0) {
        const ull lab_now = lab_clock();
        lab_add(lab_word(args, L_FEED_FREE), lab_now - lab_a);
        if (block == 0 && !lab_first) *lab_word(args, L_T_REQUEST) = lab_now, lab_first = true;
        if (block == 0 && unit.kind == SECOND && !lab_second) *lab_word(args, L_T_SECOND) = lab_now, lab_second = true;
        if (block + STAGE_BLOCKS >= blocks) *lab_word(args, L_T_LAST) = lab_now;
        request_weights(''')
    put(file, "  Ring<WEIGHT_STAGES> ring;\n  while (true) {\n", "  Ring<WEIGHT_STAGES> ring;\n  bool lab_first = false, lab_second = false;\n  while (true) {\n")
    put(file, "\n  wait_for_c(args, unit);\n", "\n  const ull lab_a = lab_clock();\n  wait_for_c(args, unit);\n  if (threadIdx.x == MULTIPLYING + 32) lab_add(lab_word(args, L_FEED_C), lab_clock() - lab_a);\n")

    # Tiles.
    file = "tile_multiply.cuh"
    put(file, "multiply_tile(TileShared& shared, Ring<TILE_STAGES>& ring,\n", "multiply_tile(TileShared& shared, const Args& args, Ring<TILE_STAGES>& ring,\n")
    put(file, "    multiply_tile<KIND, Form>(shared, ring, acc);\n    if (KIND == FIRST) write_tile<Form>(shared, args, unit, turn, acc);\n    if (KIND == SECOND) write_outputs<Form>(args, unit, shared.told[turn % 2], acc);\n", '''    lab_mark(args, L_UNIT);
    multiply_tile<KIND, Form>(shared, args, ring, acc);
    lab_mark(args, KIND == FIRST ? L_FIRST : L_SECOND);
    if (KIND == FIRST) write_tile<Form>(shared, args, unit, turn, acc);
    if (KIND == SECOND) write_outputs<Form>(args, unit, shared.told[turn % 2], acc);
    lab_mark(args, KIND == FIRST ? L_WRITE_C : L_WRITE_OUT);
    if (threadIdx.x == 0) lab_units = lab_units + 1, lab_add(lab_word(args, KIND == FIRST ? L_UNITS_1 : L_UNITS_2), 1);
''')
    put(file, "    wait_cta_phase(&shared.full[ring.stage], ring.parity);\n    load_codes(", '''    const ull lab_a = lab_clock();
    wait_cta_phase(&shared.full[ring.stage], ring.parity);
    if (threadIdx.x == 0) {
      const ull lab_b = lab_clock();
      const bool lab_is_start = KIND == FIRST && block == 0 && lab_units == 0;
      lab_add(lab_word(args, lab_is_start ? L_W_START : block == 0 ? (KIND == FIRST ? L_W_FIRST : L_R_C) : KIND == FIRST ? L_W_FIRST : L_W_SECOND), lab_b - lab_a);
      if (lab_is_start) *lab_word(args, L_T_LANDED) = lab_b;
      if (block + 1 == Product<KIND>::BLOCKS) *lab_word(args, L_T_END) = lab_b;
    }
    load_codes(''')
    file = "tile_feed.cuh"
    put(file, "  for (int block = 0; block < Product<KIND>::BLOCKS; ++block) {\n    wait_cta_phase(&shared.free[ring.stage], ring.parity ^ 1);\n    if (threadIdx.x % 32 == 0) {\n", '''  for (int block = 0; block < Product<KIND>::BLOCKS; ++block) {
    const ull lab_a = lab_clock();
    wait_cta_phase(&shared.free[ring.stage], ring.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      const ull lab_now = lab_clock();
      lab_add(lab_word(args, L_FEED_FREE), lab_now - lab_a);
      if (block == 0) lab_max(lab_word(args, KIND == FIRST ? L_T_REQUEST : L_T_SECOND), ~lab_now);
      if (block + 1 == Product<KIND>::BLOCKS) *lab_word(args, L_T_LAST) = lab_now;
''')
    put(file, "    while (!is_written<Form::TOLD>(args, unit.tile)) __nanosleep(20);\n    __syncwarp();\n", "    const ull lab_a = lab_clock();\n    while (!is_written<Form::TOLD>(args, unit.tile)) __nanosleep(20);\n    __syncwarp();\n    if (feeder_number() == 0) lab_add(lab_word(args, L_FEED_C), lab_clock() - lab_a);\n")

    # Kernels in front and behind.
    file = "route.cuh"
    put(file, "  float* x_tile_scale;   // [row tiles, 56, 128]\n};\n", "  float* x_tile_scale;   // [row tiles, 56, 128]\n  unsigned long long* stamps;\n};\n")
    put(file, "  __shared__ uint2 locals[ROUTED_ROWS];\n  allow_next_launch();\n", "  __shared__ uint2 locals[ROUTED_ROWS];\n  lab_kernel(args.stamps, LAB_SMS, 0, 0, true);\n  allow_next_launch();\n")
    put(file, "  if (lane == 0) args.routing.block_counts[blockIdx.x * LOCAL + warp] = __popc(members);\n", "  if (lane == 0) args.routing.block_counts[blockIdx.x * LOCAL + warp] = __popc(members);\n  lab_kernel(args.stamps, LAB_SMS, 0, 1, false);\n")
    put(file, "  __shared__ int counts[LOCAL];\n  wait_for_launches_before();\n", "  __shared__ int counts[LOCAL];\n  lab_kernel(args.stamps, LAB_SMS, 1, 0, true);\n  wait_for_launches_before();\n  lab_kernel(args.stamps, LAB_SMS, 1, 2, true);\n")
    put(file, "  if (blockIdx.x == 0) blank_scales(args.x_tile_scale, counts);\n}\n", "  if (blockIdx.x == 0) blank_scales(args.x_tile_scale, counts);\n  __syncthreads();\n  lab_kernel(args.stamps, LAB_SMS, 1, 1, false);\n}\n")
    file = "combine.cuh"
    put(file, "  int told_words;                   // of `locals`, `ticket` and `done`, which lie in a row\n};\n", "  int told_words;                   // of `locals`, `ticket` and `done`, which lie in a row\n  unsigned long long* stamps;\n};\n")
    put("moe.cu", "const CombineArgs args = {of.routing, of.expert_out, of.output, of.num_tokens, of.told, words};", "const CombineArgs args = {of.routing, of.expert_out, of.output, of.num_tokens, of.told, words, of.stamps};")
    put(file, "  const int64_t first_token = int64_t{blockIdx.x} * TOKENS,", "  lab_kernel(args.stamps, LAB_SMS, 2, 0, true);\n  const int64_t first_token = int64_t{blockIdx.x} * TOKENS,")
    put(file, "  wait_for_launches_before();\n#pragma unroll 1\n  for (int first = 0", "  wait_for_launches_before();\n  lab_kernel(args.stamps, LAB_SMS, 2, 2, true);\n#pragma unroll 1\n  for (int first = 0")
    put(file, "  if (TOLD && blockIdx.y == COMBINE_PARTS - 1) forget(args, first_slot, tokens * TOP_K);\n}\n", "  if (TOLD && blockIdx.y == COMBINE_PARTS - 1) forget(args, first_slot, tokens * TOP_K);\n  lab_kernel(args.stamps, LAB_SMS, 2, 1, false);\n}\n")


if __name__ == "__main__":
    patch(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
