"""The computing warps request the first rows of tile 1 behind those of tile 0."""


def edit(name, pairs):
    text = open(name).read()
    for old, new in pairs:
        assert text.count(old) == 1, (name, old, text.count(old))
        text = text.replace(old, new)
    open(name, "w").write(text)


edit("plan.cuh", [
    ("  static constexpr int FIRST = 4;", "  static constexpr int ASSIST = 24;  // rows of tile 1 that the computing warps request\n  static constexpr int FIRST = 4;"),
    ("  uint64_t survey_made, sums_stored,", "  uint64_t assisted, survey_made, sums_stored,"),
])
text = open("gather.cuh").read()
start = text.index("// Requests the rows of a tile: of blocks")
text = text[:start] + '''// Requests rows FROM to TO - 1 of a tile: of blocks with a valid entry the valid rows, and zeros for the
// others, since weights of 0 times whatever lies there must be 0. MEMBERS warps take rows in turns.
template <int MEMBERS, int FROM, int TO>
__device__ __forceinline__ void request_rows(uint8_t* tile, const Args& args,
                                             const Entries& entries, uint64_t valid, int member) {
  constexpr int TURNS = (TO - FROM) / MEMBERS;
  static_assert((TO - FROM) % MEMBERS == 0 && FROM % MEMBERS == 0 && 32 % MEMBERS == 0, "in turns");
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const int row = FROM + member + turn * MEMBERS;
    const int entry = FROM + turn * MEMBERS < 32 ? entries.low : entries.high;
    const int index = __shfl_sync(~0u, entry, row % 32);
    const bool is_valid = valid >> row & 1;
    if (!has_block(valid, row / BLOCK)) continue;  // alike in all lanes
    const auto* from = reinterpret_cast<const char*>(args.ckv) +
                       static_cast<int64_t>(is_valid ? index : 0) * CKV_BYTES + 16 * lane;
    copy_chunk_or_clear(tile + row * ROW + 16 * lane, from, is_valid);
    copy_chunk_or_clear(tile + row * ROW + 16 * lane + 512, from + 512, is_valid);
  }
#pragma unroll
  for (int turn = 0; turn < TURNS; turn += 4) {
    const int mine = turn + lane / 8, row = FROM + member + mine * MEMBERS;
    const int low = __shfl_sync(~0u, entries.low, row % 32);
    const int high = __shfl_sync(~0u, entries.high, row % 32);
    const int index = row < 32 ? low : high;
    const bool is_valid = mine < TURNS && (valid >> row & 1) != 0;
    const auto* from = reinterpret_cast<const char*>(args.kpe) +
                       static_cast<int64_t>(is_valid ? index : 0) * KPE_BYTES + 16 * (lane % 8);
    if (mine < TURNS && has_block(valid, row / BLOCK)) {
      copy_chunk_or_clear(tile + row * ROW + CKV_BYTES + 16 * (lane % 8), from, is_valid);
    }
  }
}

}  // namespace
'''
open("gather.cuh", "w").write(text)
edit("attend.cu", [
    ("  init_barrier(&shared.survey_made, HELPERS);", "  init_barrier(&shared.assisted, COMPUTING);\n  init_barrier(&shared.survey_made, HELPERS);"),
    ("    request_tile<HELPERS>(shared.tiles[stage], args, entries, valid, threadIdx.x / 32 - WARPS);",
     "    const int member = threadIdx.x / 32 - WARPS;\n    uint8_t* to = shared.tiles[stage];\n    if (tile > 1) request_rows<HELPERS, 0, Tuning::ASSIST>(to, args, entries, valid, member);\n    request_rows<HELPERS, Tuning::ASSIST, TILE>(to, args, entries, valid, member);"),
    ("  wait_copies<1>();\n  sync_first<COMPUTING>();\n  const Query query", "  wait_copies<2>();\n  sync_first<COMPUTING>();\n  const Query query"),
    ("  Sums acc = {};\n  wait_copies<0>();\n  sync_first<COMPUTING>();\n", "  Sums acc = {};\n  wait_copies<1>();\n  sync_first<COMPUTING>();\n"),
    ("    if (turn > 0) {\n      wait_phase(&shared.full[stage], (turn - 1) / STAGES % 2);\n", "    if (turn > 0) {\n      wait_phase(&shared.assisted, 0);\n      wait_phase(&shared.full[stage], (turn - 1) / STAGES % 2);\n"),
    ("  Entries first = load_entries<CLUSTER>(args, token, rank, 0);\n", "  Entries first = load_entries<CLUSTER>(args, token, rank, 0);\n  Entries second = load_entries<CLUSTER>(args, token, rank, 1);\n"),
    ("  first = {first.low | nothing, first.high | nothing};\n", "  first = {first.low | nothing, first.high | nothing};\n  second = {second.low | nothing, second.high | nothing};\n"),
    ("  request_tile<WARPS>(shared.tiles[0], args, first, valid, threadIdx.x / 32);\n  commit_copies();\n",
     "  request_rows<WARPS, 0, TILE>(shared.tiles[0], args, first, valid, threadIdx.x / 32);\n  commit_copies();\n  const uint64_t valid_second = vote(second, args.num_rows);\n  request_rows<WARPS, 0, Tuning::ASSIST>(shared.tiles[1], args, second, valid_second, threadIdx.x / 32);\n  arrive_with_copies(&shared.assisted);\n  commit_copies();\n"),
])
