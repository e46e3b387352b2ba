"""Token selection of sparse attention in prefill: of each query's range, the 2048 best keys.

With i a query, j a key of its range [row_starts[i], row_ends[i]) and h one of 64 index heads:

    score[i,j] = sum over h of  weights[i,h] * max(0, q[i,h,:] . K[j,:])
    topk[i,:]  = the min(2048, length of the range) keys with the best scores, then -1

in any order, and of equal scores any. K[j,:] is 128 FP8 codes times one fp32 scale. The keys lie in
one piece, and an id is a key's row. A range is cut to [0, num_keys); one that ends before it starts
is empty. This definition is the project's own, not the contest's.
"""

import torch

DEFINITION = {
    "name": "dsa_prefill_topk_indexer_fp8_h64_d128_topk2048",
    "description": (
        "Lightning indexer of DeepSeek sparse attention over long contexts: scores every key of a "
        "query's range with FP8 queries and keys (ReLU of 64 heads' products, weighted sum over "
        "the heads) and returns the ids of the 2048 best. Many queries share one run of keys, as "
        "in chunked prefill. Exact; in any order, ties any way."
    ),
    "op_type": "dsa_prefill",
    "tags": [
        "stage:indexer",
        "status:unofficial",
        "model:deepseek-v3.2",
        "sparse:topk",
        "quant:fp8",
    ],
    "axes": {
        "num_queries": {"type": "var", "description": "Queries, each with a range of its own."},
        "num_keys": {"type": "var", "description": "Keys that all queries share."},
        "num_index_heads": {"type": "const", "value": 64},
        "index_head_dim": {"type": "const", "value": 128},
        "topk": {"type": "const", "value": 2048},
    },
    "inputs": {
        "q_index_fp8": {
            "shape": ["num_queries", "num_index_heads", "index_head_dim"],
            "dtype": "float8_e4m3fn",
            "description": "Queries; their scale is folded into weights.",
        },
        "k_index_fp8": {
            "shape": ["num_keys", "index_head_dim"],
            "dtype": "float8_e4m3fn",
            "description": "Keys before their scale.",
        },
        "k_scale": {
            "shape": ["num_keys"],
            "dtype": "float32",
            "description": "Scale of each key.",
        },
        "weights": {
            "shape": ["num_queries", "num_index_heads"],
            "dtype": "float32",
            "description": "Weight of each head, of either sign.",
        },
        "row_starts": {
            "shape": ["num_queries"],
            "dtype": "int32",
            "description": "First key of each query's range.",
        },
        "row_ends": {
            "shape": ["num_queries"],
            "dtype": "int32",
            "description": "The key behind the last of each query's range.",
        },
    },
    "outputs": {
        "topk_indices": {
            "shape": ["num_queries", "topk"],
            "dtype": "int32",
            "description": "Rows of k_index_fp8, in any order; then -1 where a range has fewer.",
        },
    },
}

TOP_K = 2048


@torch.no_grad()
def run(q_index_fp8, k_index_fp8, k_scale, weights, row_starts, row_ends):
    num_queries, num_keys = q_index_fp8.shape[0], k_index_fp8.shape[0]
    keys = k_index_fp8.float() * k_scale.unsqueeze(-1)
    topk_indices = torch.full((num_queries, TOP_K), -1, dtype=torch.int32, device=keys.device)
    starts = row_starts.clamp(0, num_keys).tolist()
    ends = row_ends.clamp(0, num_keys).tolist()
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if end <= start:
            continue
        products = torch.relu(q_index_fp8[row].float() @ keys[start:end].t())
        scores = (products * weights[row].unsqueeze(1)).sum(dim=0)
        positions = torch.topk(scores, min(TOP_K, end - start)).indices
        topk_indices[row, : positions.numel()] = (positions + start).to(torch.int32)
    return (topk_indices,)
