"""Token selection of sparse attention: the 2048 best tokens of each sequence, from FP8 keys.

With b a sequence, j a token of it and h one of 64 index heads:

    score[b,j] = sum over h of  weights[b,h] * max(0, q[b,h,:] . K[j,:])
    topk[b,:]  = physical ids of the min(2048, seq_len) best tokens, best first, then -1

K[j,:] is 128 FP8 codes times one fp32 scale. The cache is paged, 64 tokens a page, and a page is
packed by columns: bytes 0-8191 hold the codes of its 64 tokens, bytes 8192-8447 their scales, so
the declared shape [64, 1, 132] does not name one token's bytes. A physical id is
page * 64 + offset, where page comes from the sequence's row of the block table.
"""

import torch

DEFINITION = {
    "name": "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64",
    "description": (
        "Lightning indexer of DeepSeek sparse attention: scores every cached token of a sequence "
        "with FP8 queries and keys (ReLU of 64 heads' products, weighted sum over the heads) and "
        "returns the ids of the 2048 best. The key cache is paged in the deep_gemm packing: the "
        "codes of a page's 64 tokens first, then their 64 float32 scales."
    ),
    "op_type": "dsa_paged",
    "tags": [
        "stage:indexer",
        "status:verified",
        "model:deepseek-v3.2",
        "sparse:topk",
        "quant:fp8",
    ],
    "axes": {
        "batch_size": {"type": "var", "description": "Number of sequences, one query each."},
        "num_index_heads": {"type": "const", "value": 64},
        "index_head_dim": {"type": "const", "value": 128},
        "page_size": {"type": "const", "value": 64, "description": "Tokens a page."},
        "topk": {"type": "const", "value": 2048},
        "max_num_pages": {"type": "var", "description": "Width of the block table."},
        "num_pages": {"type": "var", "description": "Pages of the whole cache."},
        "kv_cache_num_heads": {"type": "const", "value": 1},
        "head_dim_with_scale": {
            "type": "const",
            "value": 132,
            "description": "Bytes a token: 128 FP8 codes and one float32 scale.",
        },
    },
    "constraints": ["topk <= max_num_pages * page_size"],
    "inputs": {
        "q_index_fp8": {
            "shape": ["batch_size", "num_index_heads", "index_head_dim"],
            "dtype": "float8_e4m3fn",
            "description": "Queries; their scale is folded into weights.",
        },
        "k_index_cache_fp8": {
            "shape": ["num_pages", "page_size", "kv_cache_num_heads", "head_dim_with_scale"],
            "dtype": "int8",
            "description": (
                "Key cache as bytes (read them as unsigned): of each page's 8448 bytes the first "
                "8192 are FP8 codes, token by token, the last 256 are 64 float32 scales."
            ),
        },
        "weights": {
            "shape": ["batch_size", "num_index_heads"],
            "dtype": "float32",
            "description": "Weight of each head, of either sign.",
        },
        "seq_lens": {
            "shape": ["batch_size"],
            "dtype": "int32",
            "description": "Tokens of each sequence, 0 allowed.",
        },
        "block_table": {
            "shape": ["batch_size", "max_num_pages"],
            "dtype": "int32",
            "description": "Pages of each sequence, in order; entries past its length are unused.",
        },
    },
    "outputs": {
        "topk_indices": {
            "shape": ["batch_size", "topk"],
            "dtype": "int32",
            "description": "Physical token ids, best first; -1 where a sequence has fewer.",
        },
    },
}

PAGE_SIZE, HEAD_DIM, TOP_K = 64, 128, 2048


def dequantise_pages(pages):
    """pages [n, 64, 1, 132] int8. Returns the keys of their tokens, [n * 64, 128] fp32."""
    num_codes = PAGE_SIZE * HEAD_DIM
    page_bytes = pages.view(torch.uint8).reshape(pages.shape[0], -1)
    codes = page_bytes[:, :num_codes].contiguous().view(torch.float8_e4m3fn)
    scales = page_bytes[:, num_codes:].contiguous().view(torch.float32)
    keys = codes.float().view(-1, PAGE_SIZE, HEAD_DIM) * scales.unsqueeze(-1)
    return keys.view(-1, HEAD_DIM)


@torch.no_grad()
def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table):
    batch_size = q_index_fp8.shape[0]
    queries = q_index_fp8.float()
    topk_indices = torch.full((batch_size, TOP_K), -1, dtype=torch.int32, device=q_index_fp8.device)
    for row, seq_len in enumerate(seq_lens.tolist()):
        if seq_len == 0:
            continue
        num_pages_used = (seq_len + PAGE_SIZE - 1) // PAGE_SIZE
        pages = block_table[row, :num_pages_used].long()
        # Cut before the dot product: the unused slots of the last page may hold any bytes.
        keys = dequantise_pages(k_index_cache_fp8[pages])[:seq_len]
        products = torch.relu(queries[row] @ keys.t())
        scores = (products * weights[row].unsqueeze(1)).sum(dim=0)
        positions = torch.topk(scores, min(TOP_K, seq_len)).indices
        tokens = pages[positions // PAGE_SIZE] * PAGE_SIZE + positions % PAGE_SIZE
        topk_indices[row, : positions.numel()] = tokens.to(torch.int32)
    return (topk_indices,)
