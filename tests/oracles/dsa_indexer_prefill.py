"""fp64 oracle of dsa_indexer_prefill, the inputs that its tests start from, the proof of an output.

A selection is not compared with another one: `check` proves from scores that no key left out beats
one that was chosen. Ties and order are therefore free.
"""

from __future__ import annotations

import numpy as np
import torch

from tests.oracles.dsa_indexer import RELATIVE_ERROR

NUM_HEADS, HEAD_DIM, TOPK = 64, 128, 2048
NAN_CODE, LARGEST_CODE = 0x7F, 0x7E
MOST_ORDER, BELOW_ALL = 2**31 - 1, -(2**31)


def cut(inputs):
    """The ranges of all queries as pairs of whole numbers, cut to the keys that there are."""
    num_keys = inputs["k_index_fp8"].shape[0]
    starts = inputs["row_starts"].clamp(0, num_keys).tolist()
    ends = inputs["row_ends"].clamp(0, num_keys).tolist()
    return [(start, max(start, end)) for start, end in zip(starts, ends, strict=True)]


def oracle(inputs, rows=None):
    """Scores of each row's range, fp64 where the inputs are. rows: all where None."""
    ranges = cut(inputs)
    for row in range(len(ranges)) if rows is None else rows:
        query, keys, scales, weight = _row(inputs, row, *ranges[row])
        yield weight @ torch.relu(query @ keys.T * scales)


def error_bounds(inputs, rows=None):
    """How far a score of fp32 products and sums may be from the oracle's: like oracle()."""
    ranges = cut(inputs)
    for row in range(len(ranges)) if rows is None else rows:
        query, keys, scales, weight = _row(inputs, row, *ranges[row])
        yield RELATIVE_ERROR * (weight.abs() @ (query.abs() @ keys.abs().T) * scales.abs())


def _row(inputs, row, start, end):
    keys = inputs["k_index_fp8"][start:end].double()
    scales = inputs["k_scale"][start:end].double()
    return inputs["q_index_fp8"][row].double(), keys, scales, inputs["weights"][row].double()


def check(topk_indices, inputs, scores, bounds=None, rows=None):
    """Assert that topk_indices [Q, 2048] is a right answer.

    scores: of each row's range, in order. bounds: error of each score, likewise; None for scores
    that are the kernel's own or that fp32 holds exactly. NaN ranks above +inf. rows: that scores
    are of; all where None.
    """
    ranges = cut(inputs)
    assert topk_indices.dtype == torch.int32
    assert tuple(topk_indices.shape) == (len(ranges), TOPK)
    for row in range(len(ranges)) if rows is None else rows:
        start, end = ranges[row]
        score, chosen = next(scores), topk_indices[row].long()
        assert len(score) == end - start
        count = min(TOPK, end - start)
        assert (chosen[count:] == -1).all(), f"row {row}: not -1 behind its {count} keys"
        chosen = chosen[:count]
        inside = (chosen >= start) & (chosen < end)
        assert inside.all(), f"row {row}: an id outside [{start}, {end})"
        taken = torch.zeros(end - start, dtype=torch.bool, device=chosen.device)
        taken[chosen - start] = True
        assert int(taken.sum()) == count, f"row {row}: an id occurs twice"
        error = next(bounds) if bounds is not None else torch.zeros_like(score)
        if count < end - start:
            rank = torch.where(score.isnan(), torch.inf, score)
            error = error.nan_to_num(0.0)  # a NaN score has no error: it ranks first
            worst, best_left_out = (rank + error)[taken].min(), (rank - error)[~taken].max()
            assert worst >= best_left_out, f"row {row}: chose {worst}, left out {best_left_out}"


def check_block(topk_indices, scores, starts, ends):
    """As check, without errors, for many rows at once: scores [rows, num_keys] by key; starts and
    ends [rows], cut. A score outside a range may be anything."""
    num_keys, chosen = scores.shape[1], topk_indices.long()
    starts, ends = starts.long().unsqueeze(1), ends.long().unsqueeze(1)
    count = (ends - starts).clamp(0, TOPK)
    is_id = torch.arange(TOPK, device=chosen.device) < count
    assert (chosen[~is_id] == -1).all(), "not -1 behind the keys"
    inside = (chosen >= starts) & (chosen < ends)
    assert (inside | ~is_id).all(), "an id outside its range"
    taken = torch.zeros(len(scores), num_keys + 1, dtype=torch.bool, device=chosen.device)
    taken = taken.scatter_(1, torch.where(is_id, chosen, num_keys), True)[:, :num_keys]
    assert (taken.sum(dim=1, keepdim=True) == count).all(), "an id occurs twice"
    key = torch.arange(num_keys, device=chosen.device)
    left_out = (key >= starts) & (key < ends) & ~taken
    rank = torch.where(scores.isnan(), torch.inf, scores)
    worst = torch.where(taken, rank, torch.inf).amin(dim=1)
    best_left_out = torch.where(left_out, rank, -torch.inf).amax(dim=1)
    wrong = (worst < best_left_out).nonzero().flatten()
    assert not len(wrong), f"row {wrong[0]} of the block: a better key was left out"


def orders_of(scores):
    """fp32 scores as int32 of the same order: -0.0 and 0.0 are one, every NaN is above +inf."""
    bits = (scores + 0.0).view(torch.int32)
    orders = torch.where(bits < 0, bits ^ MOST_ORDER, bits)
    return torch.where(scores.isnan(), MOST_ORDER, orders)


def check_best(topk_indices, scores, starts, ends):
    """As check_block, by another way: the scores that were chosen are, as often each, those that
    torch.topk() finds in the range. NaN is above +inf here, not equal to it."""
    num_keys = scores.shape[1]
    starts, ends = starts.long().unsqueeze(1), ends.long().unsqueeze(1)
    lengths = (ends - starts).clamp(min=0)
    place = torch.arange(TOPK, device=scores.device)
    is_id = place < lengths
    assert (topk_indices[~is_id] == -1).all(), "not -1 behind the keys"
    chosen = topk_indices.long()
    inside = (chosen >= starts) & (chosen < ends)
    assert (inside | ~is_id).all(), "an id outside its range"
    distinct = torch.where(is_id, chosen, -1 - place).sort(dim=1).values
    assert (distinct[:, 1:] > distinct[:, :-1]).all(), "an id occurs twice"
    is_long = (lengths > TOPK).flatten()  # the others have all of their keys by now
    if not is_long.any():
        return
    key = torch.arange(num_keys, device=scores.device)
    in_range = (key >= starts[is_long]) & (key < ends[is_long])
    orders = torch.where(in_range, orders_of(scores[is_long]), BELOW_ALL)
    best = orders.topk(TOPK, dim=1).values.sort(dim=1).values
    found = orders.gather(1, chosen[is_long]).sort(dim=1).values
    wrong = is_long.nonzero().flatten()[(best != found).any(dim=1)]
    assert not len(wrong), f"row {wrong[0]} of the block: a better key was left out"


def random_inputs(ranges, num_keys, seed, device="cpu"):
    """Inputs by name, in the definition's order: normal queries, keys and weights, and a key's
    scale is its largest magnitude / 448. ranges: (start, end) of each query."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(num_keys, HEAD_DIM, generator=generator)
    scales = keys.abs().amax(dim=1) / 448.0
    query = torch.randn(len(ranges), NUM_HEADS, HEAD_DIM, generator=generator).clamp(-2, 2)
    weights = torch.randn(len(ranges), NUM_HEADS, generator=generator)
    return _inputs(query, keys / scales[:, None], scales, weights, ranges, device)


def integer_inputs(ranges, num_keys, seed, device="cpu"):
    """Small integers throughout: every score is one too, exact on any tensor core, and thousands of
    them tie. Three dimensions of the keys and two heads are not zero."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.zeros(num_keys, HEAD_DIM)
    keys[:, ::50] = torch.randint(-1, 2, (num_keys, 3), generator=generator).float()
    scales = 2.0 ** torch.randint(0, 2, (num_keys,), generator=generator)
    query = torch.ones(len(ranges), NUM_HEADS, HEAD_DIM)
    query[:, 1::2] = -1.0
    weights = torch.zeros(len(ranges), NUM_HEADS)
    weights[:, 10], weights[:, 11] = 1.0, -2.0
    return _inputs(query, keys, scales, weights, ranges, device)


def dense_integer_inputs(ranges, num_keys, seed, device="cpu"):
    """Small integers as well, with all heads and dimensions in use: scores are exact, each query
    has its own, and few tie."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randint(-1, 2, (num_keys, HEAD_DIM), generator=generator).float()
    scales = 2.0 ** torch.randint(0, 2, (num_keys,), generator=generator)
    size = (len(ranges), NUM_HEADS, HEAD_DIM)
    query = torch.randint(-1, 2, size, generator=generator, dtype=torch.int8).float()
    weights = torch.randint(-1000, 1001, size[:2], generator=generator).float()
    return _inputs(query, keys, scales, weights, ranges, device)


def dense_integer_scores(inputs, rows):
    """All keys' scores of some of these queries, fp32 [rows, num_keys], exact in any order."""
    keys = inputs["k_index_fp8"].half()
    products = torch.relu(inputs["q_index_fp8"][rows].half() @ keys.T).float()
    return (inputs["weights"][rows].unsqueeze(1) @ products).squeeze(1) * inputs["k_scale"]


def inputs_with_scores(scores, ranges, device="cpu"):
    """Inputs whose scores, bit for bit, are the given fp32 vector, for every query.

    A key is one unit, its scale the score. Head 0 passes positive scores, head 1 negative ones.
    """
    scales = torch.as_tensor(scores, dtype=torch.float32)
    keys = torch.zeros(len(scales), HEAD_DIM)
    keys[:, 5] = 1.0
    query = -torch.ones(len(ranges), NUM_HEADS, HEAD_DIM)
    query[:, 0] = 1.0
    weights = torch.zeros(len(ranges), NUM_HEADS)
    weights[:, 0], weights[:, 1] = 1.0, -1.0
    return _inputs(query, keys, scales, weights, ranges, device)


def hostile_scores(kind, count):
    """fp32 [count] that mislead a selection which samples or counts by value, the same each time.
    kind: one of HOSTILE_KINDS."""
    rng, steps = np.random.default_rng(count), np.arange(count, dtype=np.float32)
    return _HOSTILE[kind](count, steps, rng).astype(np.float32)


def _adjacent_floats(count, steps, rng):
    return (np.float32(1).view(np.int32) + rng.permutation(count)).astype(np.int32).view(np.float32)


_HOSTILE = {
    "equal": lambda n, steps, rng: np.full(n, -0.25),
    "zeros of both signs": lambda n, steps, rng: np.where(steps % 2 == 0, 0.0, -0.0),
    "ascending": lambda n, steps, rng: steps - n / 2,
    "descending": lambda n, steps, rng: -steps,
    "two values": lambda n, steps, rng: rng.choice([-1.5, 2.0], n, p=[0.9, 0.1]),
    "few above a tie": lambda n, steps, rng: np.where(rng.permutation(n) < 1000, 2.0, 1.0),
    "2048 above a tie": lambda n, steps, rng: np.where(rng.permutation(n) < TOPK, 2.0, 1.0),
    "all magnitudes": lambda n, steps, rng: (
        10.0 ** rng.uniform(-30, 30, n) * rng.choice([-1, 1], n)
    ),
    "adjacent floats": _adjacent_floats,
    "one outlier": lambda n, steps, rng: np.where(steps == 77, 3e37, rng.uniform(0, 1e-3, n)),
    "a run": lambda n, steps, rng: (
        np.where((steps > 500) & (steps < 3000), 9.0, 0.0) + rng.random(n)
    ),
    "a stride": lambda n, steps, rng: np.where(steps % 128 < 16, 9.0, 0.0) + rng.random(n),
}
HOSTILE_KINDS = tuple(_HOSTILE)


def _inputs(query, keys, scales, weights, ranges, device):
    starts, ends = zip(*ranges, strict=True) if ranges else ((), ())
    inputs = {
        "q_index_fp8": query.to(torch.float8_e4m3fn),
        "k_index_fp8": keys.to(torch.float8_e4m3fn),
        "k_scale": scales.float(),
        "weights": weights.float(),
        "row_starts": torch.tensor(starts, dtype=torch.int32),
        "row_ends": torch.tensor(ends, dtype=torch.int32),
    }
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def empty_output(num_queries, device="cpu"):
    """Uninitialised topk_indices."""
    return torch.empty(num_queries, TOPK, dtype=torch.int32, device=device)
