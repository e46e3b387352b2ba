"""python3 variants.py NAME, in solutions/moe: one thing changed."""
import sys

def edit(path, *pairs):
    text = open(path).read()
    for old, new in pairs:
        assert text.count(old) == 1, (path, old, text.count(old))
        text = text.replace(old, new)
    open(path, "w").write(text)

def few22(): edit("plan.cuh", ("constexpr int MOST_FEW = WORKERS;", "constexpr int MOST_FEW = 2 * WORKERS;"))  # to 22 tokens each CTA routes all
def few0(): edit("plan.cuh", ("constexpr int MOST_FEW = WORKERS;", "constexpr int MOST_FEW = 1;"))  # from 2 on they share
def late():                                   # combine reads slots after its wait, as if nothing had been told
    edit("combine.cuh", ("if (__ballot_sync(FULL, !has_nonce(words, args.told.nonce)) != 0) {", "{"))
def warm():                                   # the warp of the weights passes through its code once while it waits: instructions are there
    edit("feed.cuh", ("#include \"read_once.cuh\"\n", "#include \"read_once.cuh\"\n#include \"stream_route.cuh\"\n"),
         ("feed_weights(SharedMemory<S>& shared, const Args& args, int ticket,\n                                             int rows) {", "feed_weights(SharedMemory<S>& shared, const Args& args, int ticket) {"),
         ("  const int lane = threadIdx.x % 32, rows_through = scan_lanes(rows);\n", "  const int lane = threadIdx.x % 32;\n  int rows = 0;\n  bool is_known = false;\n"),
         ("  while (true) {\n    const Unit unit = find_unit<S>(__shfl_sync(FULL, ticket, 0), rows, rows_through);\n",
          "#pragma unroll 1\n  while (true) {\n    const Unit unit = find_unit<S>(__shfl_sync(FULL, ticket, 0), rows, scan_lanes(rows));\n    if (!is_known) {\n      if (unit.kind == NONE) __syncthreads();\n      is_known = true, rows = count_expert_rows(shared, count_blocks(args));\n      continue;\n    }\n"))
    edit("moe.cu", ("    __syncthreads();\n    feed_weights(shared, all, ticket, count_expert_rows(shared, count_blocks(all)));\n", "    feed_weights(shared, all, ticket);\n"))
globals()[sys.argv[1]]()
