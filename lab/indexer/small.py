"""One call of each native path under a sanitizer, checked by the oracle."""
import os, sys
sys.path.insert(0, os.getcwd())
import torch
from tests.oracles.dsa_indexer import random_inputs, integer_inputs, oracle, check, error_bounds, empty_output
from tests.packed import build
for make, lens, exact in ((random_inputs, [2112, 60, 3], False), (random_inputs, [100, 2048], False), (random_inputs, [2100 if i % 9 == 0 else 5 for i in range(33)], False), (random_inputs, [9000, 2500, 7], False), (integer_inputs, [8300, 9], True)):
    x = make(lens, seed=3, device="cuda"); out = empty_output(len(lens), "cuda"); out.fill_(0x7f7f7f7f)
    build("dsa_indexer")(*x.values(), out)
    torch.cuda.synchronize()
    check(out, oracle(*x.values()), x["block_table"], x["seq_lens"], None if exact else error_bounds(*x.values()))
    print("right", lens[:3], flush=True)
