"""Which generator makes the blobs of which definition."""

from __future__ import annotations

from collections.abc import Callable

from harness.dataset import gdn, paging, routing
from harness.dataset.blobs import Tensor
from harness.dataset.facts import Facts
from harness.dataset.workloads import WorkloadRow
from harness.errors import DatasetError

Recipe = Callable[[WorkloadRow, Facts], dict[str, Tensor]]

# Keyed by definition, since that is what a workload line names.
RECIPES: dict[str, Recipe] = {
    "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048": routing.moe_tensors,
    "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64": paging.indexer_tensors,
    "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64": paging.attention_tensors,
    "gdn_decode_qk4_v8_d128_k_last": gdn.decode_tensors,
    "gdn_prefill_qk4_v8_d128_k_last": gdn.prefill_tensors,
}


def generate(definition: str, row: WorkloadRow, facts: Facts) -> dict[str, Tensor]:
    """Input name -> tensor, for every input that the workload takes from a file.

    Raises DatasetError where the definition has no generator or the facts about the workload do
    not fit its axes.
    """
    if definition not in RECIPES:
        raise DatasetError(f"{definition}: no generator; expected one of {', '.join(RECIPES)}")
    try:
        return RECIPES[definition](row, facts)
    except (KeyError, ValueError, IndexError) as error:
        raise DatasetError(
            f"{definition}: workload {row.uuid}: axes and workloads/facts.csv do not fit: {error!r}"
        ) from error
