"""FlashInfer's paged latent attention with pages of one token, which makes it sparse.

The function of the definition's fi_api, `trtllm_batch_decode_with_kv_cache_mla` with a sparse page
table, has kernels for sm_100 alone and returns no lse. `BatchMLAPagedAttentionWrapper` runs on
Hopper (its fa3 backend) and elsewhere (fa2), over bf16 caches as they are: each row of
sparse_indices is a list of pages of size 1. `run` writes both outputs in place, lse base 2.
"""

import weakref

import flashinfer
import torch

PACKAGE = "flashinfer-python"
PREPARED = (
    "the plan: row lengths are read back and plan() makes a schedule of them, once for each "
    "sparse_indices tensor, as a server does once a step; rows whose padding is not at their end "
    "are sorted there too"
)
STANDS_IN = "BatchMLAPagedAttentionWrapper with pages of one token"

WORKSPACE_BYTES = 128 * 1024 * 1024


def remember(*tensors):
    """These tensors by identity and version; none is kept alive."""
    return [(weakref.ref(tensor), tensor._version) for tensor in tensors]


def is_same(key, *tensors):
    """Whether `key` remembers just these tensors, and none was written since."""
    return len(key) == len(tensors) and all(
        reference() is tensor and version == tensor._version
        for (reference, version), tensor in zip(key, tensors, strict=True)
    )


class Plans:
    """A planned wrapper for the sparse_indices given last; planned anew for others."""

    def __init__(self):
        self.key, self.sm_scale, self.wrapper, self.empty = (), None, None, None

    def get(self, sparse_indices, sm_scale, q_nope, q_pe):
        if not is_same(self.key, sparse_indices) or sm_scale != self.sm_scale:
            self.key = ()
            self.plan(sparse_indices, sm_scale, q_nope, q_pe)
            self.key, self.sm_scale = remember(sparse_indices), sm_scale
        return self.wrapper, self.empty

    def plan(self, sparse_indices, sm_scale, q_nope, q_pe):
        num_tokens, width = sparse_indices.shape
        if self.wrapper is None:
            workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.int8, device=q_nope.device)
            self.wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(workspace)
        is_padding = sparse_indices == -1
        lengths = width - is_padding.sum(dim=1, dtype=torch.int32)
        is_compact = bool((is_padding[:, :-1] <= is_padding[:, 1:]).all())
        pages = sparse_indices if is_compact else sparse_indices.sort(dim=1, descending=True).values
        rows = torch.arange(num_tokens + 1, dtype=torch.int32, device=q_nope.device)
        self.wrapper.plan(
            rows,
            rows * width,
            pages.flatten(),
            lengths,
            q_nope.shape[1],
            q_nope.shape[2],
            q_pe.shape[2],
            1,
            False,
            sm_scale,
            q_nope.dtype,
            q_nope.dtype,
        )
        empty = (lengths == 0).view(-1, 1)
        self.empty = empty if bool(empty.any()) else None


plans = Plans()


@torch.no_grad()
def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    wrapper, empty = plans.get(sparse_indices, float(sm_scale), q_nope, q_pe)
    ckv, kpe = ckv_cache.flatten(0, 1).unsqueeze(1), kpe_cache.flatten(0, 1).unsqueeze(1)
    wrapper.run(q_nope, q_pe, ckv, kpe, out=output, lse=lse, return_lse=True)
    if empty is not None:
        output.masked_fill_(empty.unsqueeze(-1), 0.0)
        lse.masked_fill_(empty, float("-inf"))
