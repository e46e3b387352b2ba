"""FlashMLA's sparse attention kernel, on Hopper the one for prefill.

`flash_mla.flash_mla_sparse_fwd` with use_legacy=True, which has the sm_90 kernels, over bf16 keys.
It wants 64 query heads and one cache of 576 columns: 16 heads are written in every call, in one
kernel made by torch.compile, beside 48 that stay zero. That is timed, as are the copies into the
outputs. FlashMLA's decode kernel reads an FP8 cache and is not the definition's operation.
"""

import functools
import weakref

import flash_mla
import torch

PACKAGE = "sgl-flash-mla"
PREPARED = (
    "the two caches are joined into one of 576 columns, once for each pair of tensors; in serving "
    "the cache grows with every step, so this favours the library; the query of 64 heads is "
    "allocated and zeroed once for each number of tokens"
)

PADDED_HEADS, HEAD_DIM_CKV = 64, 512


def remember(*tensors):
    """These tensors by identity and version; none is kept alive."""
    return [(weakref.ref(tensor), tensor._version) for tensor in tensors]


def is_same(key, *tensors):
    """Whether `key` remembers just these tensors, and none was written since."""
    return len(key) == len(tensors) and all(
        reference() is tensor and version == tensor._version
        for (reference, version), tensor in zip(key, tensors, strict=True)
    )


class Joined:
    """The cache [N, 1, 576] of the two tensors given last, joined anew for others."""

    def __init__(self):
        self.key, self.cache = (), None

    def get(self, *tensors):
        if not is_same(self.key, *tensors):
            self.key, self.cache = (), None
            flat = [tensor.flatten(0, 1) for tensor in tensors]
            self.cache = torch.cat(flat, dim=1).unsqueeze(1)
            self.key = remember(*tensors)
        return self.cache


joined = Joined()


@functools.lru_cache(maxsize=1)
def padded_query(num_tokens, width, dtype, device):
    return torch.zeros(num_tokens, PADDED_HEADS, width, dtype=dtype, device=device)


@torch.compile(dynamic=True)
def write_heads(q_nope, q_pe, heads):
    """heads [T, 16, 576]: a part of the padded query."""
    heads.copy_(torch.cat([q_nope, q_pe], dim=-1))


@torch.no_grad()
def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    cache = joined.get(ckv_cache, kpe_cache)
    num_tokens, num_heads = q_nope.shape[:2]
    query = padded_query(num_tokens, cache.shape[-1], q_nope.dtype, q_nope.device)
    write_heads(q_nope, q_pe, query[:, :num_heads])
    result, _, log2_sum = flash_mla.flash_mla_sparse_fwd(
        query,
        cache,
        sparse_indices.unsqueeze(1),
        float(sm_scale),
        HEAD_DIM_CKV,
        use_legacy=True,
        return_log2_lse=True,
    )
    output.copy_(result[:, :num_heads])
    lse.copy_(log2_sum[:, :num_heads])
