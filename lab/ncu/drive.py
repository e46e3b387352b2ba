"""python drive.py CASE: runs one room's packed solution a few times. For ncu."""
import sys, torch, random
sys.path.insert(0, ".")
from tests.packed import build
case = sys.argv[1]
room, *sizes = case.split(":")
def lengths_of(total, count, seed=1):
    r = random.Random(seed); cuts = sorted(r.sample(range(1, total), count - 1)); return [b - a for a, b in zip([0, *cuts], [*cuts, total])]
if room == "dsa_indexer_prefill":
    from tests.oracles import dsa_indexer_prefill as O
    Q, N = map(int, sizes)
    inputs = O.random_inputs([(0, N - Q + i + 1) for i in range(Q)], N, seed=1, device="cuda")
    out = [O.empty_output(Q, "cuda")]
elif room == "gdn_prefill":
    from tests.oracles import gdn_prefill as O
    T, n = map(int, sizes)
    inputs = O.batch_of(lengths_of(T, n), 3, "cuda")
    out = list(O.empty_outputs(inputs)) if not isinstance(O.empty_outputs(inputs), dict) else list(O.empty_outputs(inputs).values())
elif room == "dsa_attention":
    from tests.oracles import dsa_attention as O
    counts = [int(c) for c in sizes[0].split(",")]
    inputs = O.random_inputs(len(counts), 8462, 5, "cuda")
    inputs["sparse_indices"].fill_(-1)
    for t, c in enumerate(counts): inputs["sparse_indices"][t, :c] = O.random_rows(8462, c, 7 + t, "cuda")
    out = list(O.empty_outputs(len(counts), "cuda"))
run = build(room)
for _ in range(4): run(*inputs.values(), *out)
torch.cuda.synchronize()
print("done", case)
