"""The rule of dsa_prefill: reachable, unique, and with the reference's scores.

As the contest's rule of the paged indexer has it: every id that is not negative lies in its query's
range and occurs once; the scores at the ids, computed here in fp32 and sorted, match those at the
reference's ids by the element rule. So order is free, ties are, and a kernel whose scores differ
from fp32 ones by rounding may exchange keys at the boundary for others as good within tolerance.
"""

from __future__ import annotations

import math
import uuid
from pathlib import Path
from typing import Any

import torch
from flashinfer_bench.bench.evaluators.utils import normalize_result
from flashinfer_bench.bench.runner.runner import BaselineHandle, DeviceBaseline
from flashinfer_bench.bench.timing import time_runnable
from flashinfer_bench.compile import BuilderRegistry

from harness.evaluators import DsaTopkIndexerEvaluator, Errors, compare_sorted_scores
from harness.rules import DSA_PREFILL
from harness.rules.prefill_inputs import draw_inputs

BLOCK_ROWS = 32  # whose keys are widened at once, 1 MiB a row


class PrefillSelectionEvaluator(DsaTopkIndexerEvaluator):
    """Draws the inputs itself; compares sets of keys by their scores."""

    @classmethod
    def can_evaluate(cls, definition: Any) -> bool:
        return str(definition.name) == DSA_PREFILL

    @classmethod
    def build_baseline(
        cls,
        definition: Any,
        workload: Any,
        cfg: Any,
        device: str,
        trace_set_root: Path | None = None,
    ) -> Any:
        reference = BuilderRegistry.get_instance().build_reference(definition)
        inputs, outputs, latency_ms = [], [], 0.0
        for _ in range(cfg.num_trials):
            values = draw_inputs(workload.axes, device)
            with torch.no_grad():
                result = reference(*values)
            torch.cuda.synchronize(device)
            inputs.append(values)
            outputs.append(normalize_result(definition, result, device))
        if cfg.profile_baseline:
            timed = (cfg.warmup_runs, cfg.iterations, device)
            latencies_ms = [time_runnable(reference, values, *timed) for values in inputs]
            latency_ms = sum(latencies_ms) / len(latencies_ms)
        return DeviceBaseline(
            handle=BaselineHandle(uuid.uuid4().hex),
            definition=definition,
            device=device,
            inputs=inputs,
            outputs=outputs,
            mean_latency_ms=latency_ms,
        )

    @classmethod
    def compare(cls, definition: Any, inputs: Any, out: Any, ref: Any, cfg: Any) -> list[Errors]:
        values = dict(zip(definition.inputs, inputs, strict=True))
        chosen = out[0].long()
        problem = find_bad_id(chosen, values)
        if problem is not None:
            return [Errors(math.inf, math.inf, True, problem)]
        got, want = scores_of(chosen, values), scores_of(ref[0].long(), values)
        return [compare_sorted_scores(got, want, cfg)]


def find_bad_id(chosen: torch.Tensor, values: dict[str, Any]) -> str | None:
    """A sentence about the first id outside its range or repeated, or None.

    chosen: int64 [num_queries, topk], negative for none. values: the definition's inputs by name.
    """
    num_keys = values["k_index_fp8"].shape[0]
    starts = values["row_starts"].clamp(0, num_keys).unsqueeze(1)
    ends = values["row_ends"].clamp(0, num_keys).unsqueeze(1)
    outside = (chosen >= 0) & ((chosen < starts) | (chosen >= ends))
    if outside.any():
        row, column = (int(i) for i in outside.nonzero()[0])
        return (
            f"out-of-range id {int(chosen[row, column])} in row {row}: its range is "
            f"[{int(starts[row])}, {int(ends[row])})"
        )
    ordered = chosen.sort(dim=1).values
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if repeated.any():
        row, column = (int(i) for i in repeated.nonzero()[0])
        return f"duplicate id {int(ordered[row, column])} in row {row}"
    return None


def scores_of(chosen: torch.Tensor, values: dict[str, Any]) -> torch.Tensor:
    """fp32 scores [num_queries, topk] of ids, -inf where an id is negative."""
    codes, scale = values["k_index_fp8"].view(torch.uint8), values["k_scale"]
    scores = []
    for start in range(0, len(chosen), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        ids = chosen[rows].clamp(min=0)
        keys = codes[ids].view(torch.float8_e4m3fn).float() * scale[ids].unsqueeze(-1)
        products = torch.relu(values["q_index_fp8"][rows].float() @ keys.transpose(1, 2))
        score = (products * values["weights"][rows].unsqueeze(-1)).sum(dim=1)
        scores.append(score.masked_fill(chosen[rows] < 0, float("-inf")))
    return torch.cat(scores) if scores else chosen.float()
