"""The contest's acceptance rules for the two DSA definitions.

flashinfer-bench 0.1.2 lacks them; main has its own. `register()` adds these only where no
evaluator claims the definition, so that under main they stand down. Spawned workers re-import
the program's main module: register at module level there, never under an `if __name__` guard.

Rules (flashinfer-bench main, bench/evaluators):
* Indexer: every non-negative index must lie in a page of its row's block table at a position
  below seq_len; no duplicates; the scores at the chosen indices, recomputed in fp32 and sorted,
  must match the reference's by the element rule. Order and ties are therefore free. A random key
  cache is drawn as normal bf16 keys and packed to FP8 with one scale a token.
* Attention: the element rule on every output; a value-returning solution may leave out lse. An
  empty token's lse is -inf by definition and matches only -inf.
"""

from __future__ import annotations

import traceback
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from flashinfer_bench.bench.evaluators import registry
from flashinfer_bench.bench.evaluators.default import DefaultEvaluator
from flashinfer_bench.bench.evaluators.utils import allocate_outputs, normalize_result
from flashinfer_bench.bench.runner.runner import BaselineHandle, DeviceBaseline
from flashinfer_bench.bench.timing import time_runnable
from flashinfer_bench.bench.utils import (
    compute_error_stats,
    gen_inputs,
    load_safetensors,
    make_eval,
)
from flashinfer_bench.compile import BuilderRegistry
from flashinfer_bench.data import Correctness, EvaluationStatus

FP8_MAX = 448.0
AMAX_FLOOR = 1e-4  # keeps the scale of an all-zero key finite


@dataclass(frozen=True)
class Errors:
    """Worst errors of one output and whether too many elements break the element rule."""

    max_absolute: float
    max_relative: float
    exceeds_tolerance: bool
    detail: str | None = None


class _DsaEvaluator(DefaultEvaluator):  # type: ignore[misc]
    """What both DSA rules share: run each trial, check shape and dtype, keep the worst errors."""

    @classmethod
    def compare(cls, definition: Any, inputs: Any, out: Any, ref: Any, cfg: Any) -> list[Errors]:
        """Errors of each output. Raises _Rejected for what no tolerance can excuse."""
        raise NotImplementedError

    @classmethod
    def call(cls, definition: Any, runnable: Any, inputs: Any, device: str) -> list[torch.Tensor]:
        with torch.no_grad():
            if runnable.metadata.destination_passing_style:
                out: list[torch.Tensor] = allocate_outputs(definition, inputs, device)
                runnable(*inputs, *out)
            else:
                out = cls.normalize(definition, runnable(*inputs), device)
        torch.cuda.synchronize(device)
        return out

    @classmethod
    def normalize(cls, definition: Any, result: Any, device: str) -> list[torch.Tensor]:
        outputs: list[torch.Tensor] = normalize_result(definition, result, device)
        return outputs

    @classmethod
    def check_correctness(
        cls,
        definition: Any,
        sol_runnable: Any,
        inputs: Any,
        ref_outputs: Any,
        cfg: Any,
        log_path: Any,
        device: str,
    ) -> tuple[Any, Any]:
        def fail(
            status: Any, correctness: Any = None, message: str | None = None
        ) -> tuple[Any, Any]:
            return correctness, make_eval(
                status=status,
                device=device,
                log_path=log_path,
                correctness=correctness,
                extra_msg=message,
            )

        errors: list[Errors] = []
        for values, expected in zip(inputs, ref_outputs, strict=True):
            try:
                out = cls.call(definition, sol_runnable, values, device)
            except Exception:
                traceback.print_exc()
                return fail(EvaluationStatus.RUNTIME_ERROR)
            for got, want in zip(out, expected, strict=False):
                if got.shape != want.shape:
                    return fail(EvaluationStatus.INCORRECT_SHAPE)
                if got.dtype != want.dtype:
                    return fail(EvaluationStatus.INCORRECT_DTYPE)
            try:
                errors += cls.compare(definition, values, out, expected, cfg)
            except _Rejected as rejection:
                worst = Correctness(
                    max_relative_error=rejection.error, max_absolute_error=rejection.error
                )
                return fail(EvaluationStatus.INCORRECT_NUMERICAL, worst, str(rejection))
        worst = Correctness(
            max_relative_error=max(e.max_relative for e in errors),
            max_absolute_error=max(e.max_absolute for e in errors),
        )
        if any(e.exceeds_tolerance for e in errors):
            details = "; ".join(e.detail for e in errors if e.exceeds_tolerance and e.detail)
            return fail(EvaluationStatus.INCORRECT_NUMERICAL, worst, details or None)
        return worst, None


class _Rejected(Exception):
    """An output that no tolerance excuses. error: what is reported as the worst error."""

    def __init__(self, message: str, error: float = float("inf")) -> None:
        super().__init__(message)
        self.error = error


class DsaSparseAttentionEvaluator(_DsaEvaluator):
    """Element rule on output and, where given, lse; -inf matches -inf in the same place only."""

    @classmethod
    def can_evaluate(cls, definition: Any) -> bool:
        return str(definition.name).startswith("dsa_sparse_attention")

    @classmethod
    def normalize(cls, definition: Any, result: Any, device: str) -> list[torch.Tensor]:
        values = list(result) if isinstance(result, (tuple, list)) else [result]
        if not 1 <= len(values) <= len(definition.outputs):
            raise ValueError(f"expected output or (output, lse), got {len(values)} values")
        return [value.to(device) for value in values]

    @classmethod
    def compare(cls, definition: Any, inputs: Any, out: Any, ref: Any, cfg: Any) -> list[Errors]:
        result = []
        for name, got, want in zip(definition.outputs, out, ref, strict=False):
            empty = torch.isneginf(want) & torch.isneginf(got)
            got, want = got.masked_fill(empty, 0.0), want.masked_fill(empty, 0.0)
            for side, values in (("output", got), ("reference", want)):
                if torch.isnan(values).any():
                    raise _Rejected(f"{name}: NaN in the {side}", float("nan"))
            if torch.isinf(got).any() or torch.isinf(want).any():
                # inf / inf is NaN, which the element rule would take for a match
                raise _Rejected(f"{name}: an infinity meets a value that is none")
            worst_abs, worst_rel, exceeds, _ = compute_error_stats(got, want, cfg)
            result.append(Errors(worst_abs, worst_rel, exceeds))
        return result


class DsaTopkIndexerEvaluator(_DsaEvaluator):
    """Reachable, unique, and with the reference's scores: in any order, ties any way."""

    @classmethod
    def can_evaluate(cls, definition: Any) -> bool:
        return str(definition.name).startswith("dsa_topk_indexer")

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
        loaded = load_safetensors(definition, workload, trace_set_root)
        cache = list(definition.inputs).index("k_index_cache_fp8")
        spec = workload.inputs.get("k_index_cache_fp8")
        inputs, outputs = [], []
        for _ in range(cfg.num_trials):
            values = gen_inputs(definition, workload, device=device, safe_tensors=loaded)
            if spec is not None and spec.type == "random":
                values[cache] = random_key_cache(tuple(values[cache].shape), device)
            inputs.append(values)
            with torch.no_grad():
                result = reference(*values)
            torch.cuda.synchronize(device)
            outputs.append(normalize_result(definition, result, device))
        latency_ms = 0.0
        if cfg.profile_baseline:
            latencies_ms = [
                time_runnable(reference, values, cfg.warmup_runs, cfg.iterations, device)
                for values in inputs
            ]
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
        page_size = definition.axes["page_size"].value
        chosen = out[0].long()
        problem = find_bad_index(chosen, values["seq_lens"], values["block_table"], page_size)
        if problem is not None:
            raise _Rejected(problem)
        got = scores_at(chosen, values, page_size)
        want = scores_at(ref[0].long(), values, page_size)
        return [compare_sorted_scores(got, want, cfg)]


def random_key_cache(shape: tuple[int, ...], device: str) -> torch.Tensor:
    """A packed key cache as main draws it: int8 [num_pages, page_size, num_heads, row_bytes].

    Each page holds page_size rows of row_bytes - 4 e4m3 values, then page_size fp32 scales
    amax / 448. row_bytes is head_dim + 4.
    """
    num_pages, page_size, num_heads, row_bytes = shape
    head_dim = row_bytes - 4
    keys = torch.randn(num_pages, page_size, head_dim, dtype=torch.bfloat16, device=device)
    scale = keys.abs().amax(dim=2).float().clamp(min=AMAX_FLOOR) / FP8_MAX
    packed = torch.empty(num_pages, page_size * row_bytes, dtype=torch.uint8, device=device)
    values = (keys * (1.0 / scale)[:, :, None]).to(torch.float8_e4m3fn)
    packed[:, : page_size * head_dim] = values.reshape(num_pages, -1).view(torch.uint8)
    packed[:, page_size * head_dim :] = scale.view(torch.uint8)
    return packed.view(num_pages, page_size, num_heads, row_bytes).view(torch.int8)


def find_bad_index(
    chosen: torch.Tensor, seq_lens: torch.Tensor, block_table: torch.Tensor, page_size: int
) -> str | None:
    """A sentence about the first unreachable or repeated index, or None.

    chosen: int64 [B, topk] physical token ids, negative for none. The first slot of a row's block
    table that holds an index's page decides its position, as in the official rule.
    """
    for row, (ids, table) in enumerate(zip(chosen, block_table.long(), strict=True)):
        length = int(seq_lens[row])
        used = ids[ids >= 0]  # any negative index is none, as in the official rule
        pages = table[: -(-length // page_size)]
        same_page = (used[:, None] // page_size) == pages[None, :]
        if not len(pages):  # argmax over no column raises
            same_page = used[:, None] != used[:, None]
        position = same_page.int().argmax(dim=1) * page_size + used % page_size
        bad = ~same_page.any(dim=1) | (position >= length)
        if bad.any():
            return (
                f"out-of-range index {int(used[bad][0])} in row {row}: not a position below "
                f"seq_len {length} of that row's block table"
            )
        if used.unique().numel() != used.numel():
            value, count = used.unique(return_counts=True)
            return f"duplicate index {int(value[count > 1][0])} in row {row}"
    return None


def scores_at(chosen: torch.Tensor, values: dict[str, Any], page_size: int) -> torch.Tensor:
    """fp32 scores [B, topk] of physical token ids, -inf where the id is negative."""
    cache, q, weights = values["k_index_cache_fp8"], values["q_index_fp8"], values["weights"]
    num_pages, _, _, row_bytes = cache.shape
    head_dim = row_bytes - 4
    flat = cache.view(torch.uint8).reshape(num_pages, page_size * row_bytes)
    scores = []
    for row, ids in enumerate(chosen):
        page, slot = ids.clamp(min=0) // page_size, ids.clamp(min=0) % page_size
        columns = slot[:, None] * head_dim + torch.arange(head_dim, device=ids.device)
        keys = flat[page[:, None], columns].view(torch.float8_e4m3fn).float()
        offset = page_size * head_dim + slot[:, None] * 4 + torch.arange(4, device=ids.device)
        scale = flat[page[:, None], offset].contiguous().view(torch.float32)
        logits = torch.relu(q[row].float() @ (keys * scale).T)
        score = (logits * weights[row][:, None]).sum(dim=0)
        scores.append(score.masked_fill(ids < 0, float("-inf")))
    return torch.stack(scores) if scores else chosen.float()


def compare_sorted_scores(got: torch.Tensor, want: torch.Tensor, cfg: Any) -> Errors:
    """The element rule on scores sorted by value; -inf must meet -inf."""
    got, want = (s.sort(dim=1, descending=True).values for s in (got, want))
    if got.numel() == 0:
        return Errors(0.0, 0.0, False)
    finite = torch.isfinite(got) & torch.isfinite(want)
    mismatch = ~finite & (got != want)
    absolute = (got - want).abs().masked_fill(~finite, 0.0)
    relative = absolute / (want.abs().masked_fill(~finite, 0.0) + 1e-8)
    bad = ((absolute > cfg.atol) & (relative > cfg.rtol)) | mismatch
    matched = 1.0 - bad.sum().item() / bad.numel()
    required = 1.0 if cfg.required_matched_ratio is None else cfg.required_matched_ratio
    detail = _describe_scores(got, want, bad) if matched < required else None
    if mismatch.any():
        return Errors(float("inf"), float("inf"), matched < required, detail)
    worst = absolute.max().item(), relative.max().item()
    return Errors(*worst, matched < required, detail)


def _describe_scores(got: torch.Tensor, want: torch.Tensor, bad: torch.Tensor) -> str:
    """First wrong and worst score of rows sorted by value: a missing winner shifts the rest."""
    row, rank = (int(i) for i in bad.nonzero()[0])
    gap = (got - want).abs().nan_to_num(float("inf"), float("inf")).masked_fill(~bad, -1.0)
    at = int(gap.argmax())
    worst_row, worst_rank = divmod(at, got.shape[1])
    return (
        f"{int(bad.sum())} of {bad.numel()} sorted scores wrong; first in row {row} at rank "
        f"{rank}: expected {want[row, rank]:.6g}, got {got[row, rank]:.6g}; worst in row "
        f"{worst_row} at rank {worst_rank}: expected {want[worst_row, worst_rank]:.6g}, "
        f"got {got[worst_row, worst_rank]:.6g}"
    )


def register() -> list[str]:
    """Add the DSA evaluators where the installed flashinfer-bench has none of its own.

    Returns the names that were added. Must run in every process that resolves an evaluator.
    """
    added = []
    for evaluator in (DsaSparseAttentionEvaluator, DsaTopkIndexerEvaluator):
        if evaluator.__name__ not in {known.__name__ for known in registry._EVALUATORS}:
            registry._EVALUATORS.append(evaluator)
            added.append(evaluator.__name__)
    return added
