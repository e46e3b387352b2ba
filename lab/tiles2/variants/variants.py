"""python3 variants.py NAME, in solutions/moe: the tile kernel with one thing changed. Results are wrong but for nostagger and nocast."""
import sys

def edit(path, *pairs):
    text = open(path).read()
    for old, new in pairs:
        assert text.count(old) == 1, (path, old, text.count(old))
        text = text.replace(old, new)
    open(path, "w").write(text)

PROMOTION = ("for (int i = half * 32; i < half * 32 + 32; ++i) acc", "for (int i = half * 32; i < half * 32 + 1; ++i) acc")
PRODUCTS = ("for (int k = 0; k < 4; ++k) {", "for (int k = 0; k < 0; ++k) {")
STAGGER = ("  if (group == 1) wait_cta_phase(&shared.is_ahead, turn);\n", "")
M, F = "tile_multiply.cuh", "tile_feed.cuh"
def nopromo(): edit(M, PROMOTION)                   # products without what scales and adds them
def nostagger(): edit(M, STAGGER)                   # warpgroups begin units together
def nocast(): edit(F, ("    if (!unit.is_shared) {", "    if (true) {"))  # each CTA requests all of its weights
def feedonly(): edit(M, PROMOTION, PRODUCTS)        # copies without products
def math():                                         # products and promotion without copies
    edit(F, ("  arrive_expecting(full, sizeof(shared.weights[stage]));\n", "  arrive(full);\n  if (block >= 0) return;\n"),
         ("    request_rows<KIND>(shared, sources, ring.stage);\n", "    arrive_with_copies(&shared.landed[ring.stage]);\n"))
def mathonly(): math(); edit(M, PROMOTION)          # products alone: the tensor cores' own rate
def hand_over(at):
    """Warpgroups take turns, product by product; at: where the turn goes on."""
    edit("tile_plan.cuh", ("  uint64_t is_ahead;", "  uint64_t turns[2];\n  uint64_t is_ahead;"))
    edit("moe.cu", ("  init_barrier(&shared.is_ahead, 1);\n", "  init_barrier(&shared.is_ahead, 1);\n  init_barrier(&shared.turns[0], 1), init_barrier(&shared.turns[1], 1);\n"))
    edit(M, STAGGER, ("      begin_products();\n", "      wait_cta_phase(&shared.turns[group], ((block * ROW_BLOCKS + i) & 1) ^ (group == 0));\n      begin_products();\n"),
         (at, at + "      if (threadIdx.x % GROUP_THREADS == 0) arrive(&shared.turns[1 - group]);\n"))
def turns(): hand_over("      wait_products<0>();\n")   # one warpgroup's products at a time
def order(): hand_over("      commit_products();\n")    # products are issued in turns
globals()[sys.argv[1]]()
