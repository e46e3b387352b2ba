"""DeepGEMM's paged scoring of the lightning indexer, then torch.topk.

`get_paged_mqa_logits_metadata` and `fp8_paged_mqa_logits` score every token of the block table
(FP8 tensor cores, fp32 logits). PyTorch masks what lies past seq_len, selects with torch.topk and
turns positions into physical tokens; torch.compile fuses what stands before and after torch.topk.
Servers put a selection kernel of their own in its place.
"""

import weakref

import deep_gemm
import torch

PACKAGE = "sgl-deep-gemm"
PREPARED = (
    "the schedule that spreads the tokens over the SMs, once for each seq_lens tensor, as a server "
    "does once a step for all layers"
)

PAGE_SIZE, TOP_K = 64, 2048


def remember(*tensors):
    """These tensors by identity and version; none is kept alive."""
    return [(weakref.ref(tensor), tensor._version) for tensor in tensors]


def is_same(key, *tensors):
    """Whether `key` remembers just these tensors, and none was written since."""
    return len(key) == len(tensors) and all(
        reference() is tensor and version == tensor._version
        for (reference, version), tensor in zip(key, tensors, strict=True)
    )


class Schedule:
    """DeepGEMM's schedule for the seq_lens given last, made anew for others."""

    def __init__(self):
        self.key, self.metadata = (), None

    def get(self, seq_lens):
        if not is_same(self.key, seq_lens):
            self.key = ()
            self.metadata = deep_gemm.get_paged_mqa_logits_metadata(
                seq_lens.view(-1, 1), PAGE_SIZE, deep_gemm.get_num_sms(), None
            )
            self.key = remember(seq_lens)
        return self.metadata


schedule = Schedule()


@torch.compile(dynamic=True)
def select_tokens(logits, seq_lens, block_table, topk_indices):
    """logits [B, max_num_pages * 64]: past a sequence's end they may be anything."""
    length = seq_lens.unsqueeze(1)
    position = torch.arange(logits.shape[1], device=logits.device)
    scores = logits.masked_fill(position >= length, float("-inf"))
    index = scores.topk(min(TOP_K, scores.shape[1]), dim=1).indices
    token = torch.gather(block_table, 1, index // PAGE_SIZE) * PAGE_SIZE + index % PAGE_SIZE
    token = token.masked_fill(index >= length, -1)
    topk_indices.copy_(torch.nn.functional.pad(token, (0, TOP_K - index.shape[1]), value=-1))


@torch.no_grad()
def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    width = block_table.shape[1] * PAGE_SIZE
    logits = deep_gemm.fp8_paged_mqa_logits(
        q_index_fp8.unsqueeze(1),
        k_index_cache_fp8.view(torch.uint8),
        weights,
        seq_lens.view(-1, 1),
        block_table,
        schedule.get(seq_lens),
        width,
        False,
    )
    select_tokens(logits[:, :width], seq_lens, block_table, topk_indices)
