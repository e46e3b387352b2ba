"""FlashMLA's sparse attention kernel, on Hopper the one for prefill.

`flash_mla.flash_mla_sparse_fwd` with use_legacy=True, which has the sm_90 kernels, over bf16 keys.
It wants 64 query heads and one cache of 576 columns: the 16 heads are padded with zeros in every
call, which is timed, as are the copies into the outputs. FlashMLA's decode kernel reads an FP8
cache and is not the definition's operation.
"""

import weakref

import flash_mla
import torch

PACKAGE = "sgl-flash-mla"
PREPARED = (
    "the two caches are joined into one of 576 columns, once for each pair of tensors; in serving "
    "the cache grows with every step, so this favours the library"
)

PADDED_HEADS, HEAD_DIM_CKV = 64, 512


class Joined:
    """The cache [N, 1, 576] of the two tensors given last, joined anew for others."""

    def __init__(self):
        self.key, self.cache = (), None

    def get(self, *tensors):
        versions = [tensor._version for tensor in tensors]
        known = [(reference(), version) for reference, version in self.key]
        if not known or any(
            old is not new or seen != version
            for (old, seen), new, version in zip(known, tensors, versions, strict=True)
        ):
            self.cache = None
            flat = [tensor.flatten(0, 1) for tensor in tensors]
            self.cache = torch.cat(flat, dim=1).unsqueeze(1)
            self.key = tuple(zip(map(weakref.ref, tensors), versions, strict=True))
        return self.cache


joined = Joined()


@torch.no_grad()
def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    cache = joined.get(ckv_cache, kpe_cache)
    num_tokens, num_heads = q_nope.shape[:2]
    query = q_nope.new_zeros(num_tokens, PADDED_HEADS, cache.shape[-1])
    query[:, :num_heads, :HEAD_DIM_CKV] = q_nope
    query[:, :num_heads, HEAD_DIM_CKV:] = q_pe
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
