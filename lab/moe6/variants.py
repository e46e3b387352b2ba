"""python3 variants.py NAME, in solutions/moe: one thing changed. math and feedonly give wrong results."""
import sys

def edit(path, *pairs):
    text = open(path).read()
    for old, new in pairs:
        assert text.count(old) >= 1, (path, old, text.count(old))
        text = text.replace(old, new)
    open(path, "w").write(text)

M, F = "tile_multiply.cuh", "tile_feed.cuh"
def feedonly():                               # copies, loads of codes, barriers
    edit(M, ("  for (int i = 0; i < 2 * BOX_SUMS; ++i) {\n    const int half", "  for (int i = 0; i < 1; ++i) {\n    const int half"), ("  for (int k = 0; k < 4; ++k) {\n    multiply_rows", "  for (int k = 0; k < 0; ++k) {\n    multiply_rows"))
def math():                                   # products and promotion, no copies
    edit(F, ("  arrive_expecting(full, sizeof(shared.weights[stage]));\n", "  arrive(full);\n  if (block >= 0) return;\n"),
         ("    request_rows<KIND>(shared, sources, stage_of(block));\n", "    arrive_with_copies(&shared.full[stage_of(block)]);\n"))
def turns():                                  # the warpgroups take the tensor cores by turns: one issues once the other one has
    edit(M, ("__device__ __forceinline__ void multiply_tile(TileShared& shared, TileSums& acc) {\n", "__device__ __forceinline__ void multiply_tile(TileShared& shared, TileSums& acc, bool both) {\n  const int group = threadIdx.x / GROUP_THREADS;\n"),
         ("multiply_tile<KIND>(shared, acc);", "multiply_tile<KIND>(shared, acc, unit.rows > BOX_ROWS);"),
         *((f"    issue_boxes(product, rows, weights, {box});\n", '    if (both) asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");\n' + f"    issue_boxes(product, rows, weights, {box});\n" + '    if (both) asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory");\n') for box in (0, 2)),
         ("multiply_tiles(TileShared& shared, const Args& args) {\n", 'multiply_tiles(TileShared& shared, const Args& args) {\n  if (threadIdx.x >= GROUP_THREADS) asm volatile("bar.arrive 1, 256;" ::: "memory");\n'))
def pairs():                                  # weights of two blocks of k requested together: 256 bytes of a row at once
    edit("feed.cuh", ("""    for (int block = 0; block < blocks; block += S::BLOCKS) {
      wait_phase(&shared.weights_free[ring.stage], ring.parity ^ 1);
      if (lane == 0) {
        request_weights(shared, args, unit, block, ring.stage);
        if (block == blocks - AHEAD) {""", """    for (int block = 0; block < blocks; block += 2 * S::BLOCKS) {
      const int stage = ring.stage;
      wait_phase(&shared.weights_free[ring.stage], ring.parity ^ 1);
      ring.advance();
      wait_phase(&shared.weights_free[ring.stage], ring.parity ^ 1);
      if (lane == 0) {
        request_weights(shared, args, unit, block, stage);
        request_weights(shared, args, unit, block + S::BLOCKS, ring.stage);
        if (block == blocks - AHEAD) {"""))
def tiles(): edit("kernel.py", ("(1536, (4, 64)), (15872, (4, 128))", "(15872, (4, 128))"))  # tiles from 129 tokens on, C as one plane
def short(): edit("plan.cuh", ("GUESSED = TILES == 1 ? 0 : 8;", "GUESSED = TILES == 1 ? 0 : 4;"))  # half as much requested ahead
globals()[sys.argv[1]]()
