"""Knock-outs of moe's tiles (wrong results): knock.py TREE OUT NAME  writes OUT/solutions; names below. Then mab.py build, and
clocks.py run FOLDER NAME...: whole calls of 14107 tokens for 0.6 s each, with clock and power."""
import shutil, sys
from pathlib import Path
F, M = "solutions/moe/tile_feed.cuh", "solutions/moe/tile_multiply.cuh"
ROWS = (F, "    if (COPY_ROWS * copy < sources.left) {\n", "    if (COPY_ROWS * copy < sources.left && sources.left > 100000) {\n")
WEIGHTS = (F, "  uint64_t* full = &shared.full[stage];\n  arrive_expecting(full, sizeof(shared.weights[stage]));\n", "  uint64_t* full = &shared.full[stage];\n  if (args.num_tokens > 0) { arrive(full); return; }\n  arrive_expecting(full, sizeof(shared.weights[stage]));\n")
ADD = (M, "  for (int i = 0; i < BOX_SUMS; ++i) sums[i] += product[i] * scales[i % 4 / 2];\n", "  for (int i = 0; i < 4; ++i) sums[i] += product[i] * scales[i % 4 / 2];\n")
OUT = (M, "    if (KIND == SECOND) write_outputs<Form>(args, unit, shared.told[turn % 2], acc);\n", "    if (KIND == SECOND && args.num_tokens < 0) write_outputs<Form>(args, unit, shared.told[turn % 2], acc);\n")
KNOCKS = {"k_rows": [ROWS], "k_weights": [WEIGHTS], "k_feed": [ROWS, WEIGHTS], "k_add": [ADD], "k_feed_add": [ROWS, WEIGHTS, ADD], "k_out": [OUT]}
if __name__ == "__main__":
    tree, out, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    shutil.rmtree(out, ignore_errors=True); shutil.copytree(tree / "solutions", out / "solutions")
    for file, old, new in KNOCKS[name]:
        text = (out / file).read_text(); assert text.count(old) == 1, (name, file, text.count(old)); (out / file).write_text(text.replace(old, new))
