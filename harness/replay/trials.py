"""One trial in a worker: fresh inputs, the reference's answer, the official acceptance rule.

A trial's seed is that of `harness evaluate`, so --only-trial there sees the same inputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flashinfer_bench.bench.evaluators.registry import resolve_evaluator
from flashinfer_bench.bench.evaluators.utils import allocate_outputs
from flashinfer_bench.compile import BuilderRegistry
from flashinfer_bench.data import Definition, EvaluationStatus, Solution
from flashinfer_bench.data import Workload as OfficialWorkload

from harness.evaluate.diagnosis import describe_reference
from harness.evaluate.judge import PoisoningRunnable
from harness.evaluate.official_rule import rule_config
from harness.evaluate.protocol import Job, Outcome, Stage, Status, trial_seed
from harness.evaluate.start import describe_values
from harness.replay.batch import (
    DETAIL_CHARACTERS,
    BatchResult,
    Boundary,
    Mismatch,
    batch_range,
    drawn_inputs,
    worst,
)
from harness.replay.margins import exchange_gap, measure_boundary

ReportStage = Callable[[Stage], None]


class ReferenceFailed(Exception):
    """Inputs could not be made, or the reference raised."""


class BuildFailed(Exception):
    """The solution does not build."""


class GivenAnswer:
    """Stands for a solution whose answer, or exception, is known."""

    def __init__(self, metadata: Any, answer: list[torch.Tensor] | Exception) -> None:
        self.metadata = metadata
        self._answer = answer

    def __call__(self, *args: Any) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        if not self.metadata.destination_passing_style:
            return self._answer
        for target, tensor in zip(args[-len(self._answer) :], self._answer, strict=True):
            target.copy_(tensor)
        return None


class Selection:
    """The structure of a top-k workload that its trials share: lengths and pages."""

    def __init__(self, definition: Any, inputs: list[Any]) -> None:
        self._names = list(definition.inputs)
        self.k = definition.axes["topk"].value
        self.page_size = definition.axes["page_size"].value
        values = self.by_name(inputs)
        seq_lens = values["seq_lens"].long()
        self.rows = (seq_lens > self.k).nonzero()[:, 0]
        self.has_repeats = any(
            used.unique().numel() < used.numel()
            for length, table in zip(seq_lens.tolist(), values["block_table"].long(), strict=True)
            for used in [table[: -(-length // self.page_size)]]
        )

    def by_name(self, inputs: list[Any]) -> dict[str, Any]:
        return dict(zip(self._names, inputs, strict=True))

    def is_the_same(self, got: torch.Tensor, want: torch.Tensor) -> bool:
        """Whether the official rule must accept: the reference's tokens in any order, each at
        one place only."""
        if self.has_repeats or got.shape != want.shape or got.dtype != want.dtype:
            return False
        return torch.equal(got.sort(dim=1).values, want.sort(dim=1).values)


class TrialRunner:
    """All trials of one workload. Raises BuildFailed."""

    def __init__(self, job: Job, report: ReportStage) -> None:
        self._identity = _without_range(job)
        self.job = job
        self.definition = Definition.model_validate_json(job.definition)
        self.workload = OfficialWorkload.model_validate(job.workload)
        self.config = rule_config(job.settings)
        self.evaluator = resolve_evaluator(self.definition)
        self.is_drawn = bool(drawn_inputs(json.loads(job.definition), job.workload))
        self.selects = self.definition.name.startswith("dsa_topk_indexer")
        self._selection: Selection | None = None
        self._fixed: tuple[list[Any], list[torch.Tensor]] | None = None
        report(Stage.BUILD)
        try:
            solution = Solution.model_validate_json(job.solution)
            built = BuilderRegistry.get_instance().build(self.definition, solution)
        except (Exception, SystemExit) as error:
            raise BuildFailed(one_line(error)) from error
        self.runnable = PoisoningRunnable(built, len(self.definition.outputs))

    def serves(self, job: Job) -> bool:
        """Whether `job` is another batch of the same workload and solution."""
        return _without_range(job) == self._identity

    def run(self, trials: range, report: ReportStage) -> BatchResult:
        """The trials in turn; ends early behind one that raised, whose device may be lost.

        Raises ReferenceFailed.
        """
        result = BatchResult(0, boundary=Boundary() if self.selects else None)
        for trial in trials:
            result = self._run_one(result, trial, report)
            last = result.mismatches[-1:]
            if last and (last[0].trial, last[0].status) == (trial, Status.RUNTIME_ERROR.value):
                break
        return result

    def _run_one(self, before: BatchResult, trial: int, report: ReportStage) -> BatchResult:
        report(Stage.REFERENCE)
        inputs, expected = self._draw(trial)
        before = replace(before, done=before.done + 1)
        if describe_reference(list(self.definition.outputs), expected):
            return replace(before, untested=(*before.untested, trial))
        boundary = self._measure(inputs)
        report(Stage.CORRECTNESS)
        answer = self._call(inputs)
        refusal, errors, exchange = self._judge(trial, inputs, expected, answer)
        if before.boundary is not None:
            before = replace(before, boundary=before.boundary + boundary + exchange)
        if refusal is not None:
            return replace(before, mismatches=(*before.mismatches, refusal))
        return replace(
            before,
            max_abs_error=worst(before.max_abs_error, errors[0]),
            max_rel_error=worst(before.max_rel_error, errors[1]),
        )

    def _draw(self, trial: int) -> tuple[list[Any], list[torch.Tensor]]:
        """What the official evaluator makes of the trial's seed."""
        if self._fixed is not None:
            return self._fixed
        torch.manual_seed(trial_seed(self.job.settings.seed, self.job.uuid, trial))
        try:
            baseline = self.evaluator.build_baseline(
                self.definition,
                self.workload,
                self.config,
                self.job.device,
                Path(self.job.dataset_root),
            )
        except Exception as error:
            raise ReferenceFailed(f"trial {trial}: {one_line(error)}") from error
        drawn = baseline.inputs[0], baseline.outputs[0]
        if not self.is_drawn:  # files and scalars only: every trial has the same
            self._fixed = drawn
        if self.selects and self._selection is None:
            self._selection = Selection(self.definition, drawn[0])
        return drawn

    def _measure(self, inputs: list[Any]) -> Boundary:
        if self._selection is None:
            return Boundary()
        chosen = self._selection
        return measure_boundary(chosen.by_name(inputs), chosen.rows, chosen.k, chosen.page_size)

    def _call(self, inputs: list[Any]) -> list[torch.Tensor] | Exception:
        """The solution's answer, called as the official evaluators call it."""
        definition, device = self.definition, self.job.device
        try:
            with torch.no_grad():
                if self.runnable.metadata.destination_passing_style:
                    answer: list[torch.Tensor] = allocate_outputs(definition, inputs, device)
                    self.runnable(*inputs, *answer)
                else:
                    result = self.runnable(*inputs)
                    answer = list(result) if isinstance(result, (tuple, list)) else [result]
            torch.cuda.synchronize(device)
        except Exception as error:
            return error
        return answer

    def _judge(
        self, trial: int, inputs: list[Any], expected: list[torch.Tensor],
        answer: list[torch.Tensor] | Exception,
    ) -> tuple[Mismatch | None, tuple[float | None, float | None], Boundary]:  # fmt: skip
        """The refusal or None, the errors of an accepted answer, and what it exchanged."""
        chosen = self._selection
        if (
            chosen is not None
            and not isinstance(answer, Exception)
            and len(answer) == 1
            and chosen.is_the_same(answer[0], expected[0])
        ):
            return None, (0.0, 0.0), Boundary()
        correctness, evaluation = self.evaluator.check_correctness(
            definition=self.definition,
            sol_runnable=GivenAnswer(self.runnable.metadata, answer),
            inputs=[inputs],
            ref_outputs=[expected],
            cfg=self.config,
            log_path=None,
            device=self.job.device,
        )
        errors = (
            (correctness.max_absolute_error, correctness.max_relative_error)
            if correctness
            else (None, None)
        )
        if evaluation is not None:
            refusal = Mismatch(
                trial,
                trial_seed(self.job.settings.seed, self.job.uuid, trial),
                evaluation.status.value,
                errors[0],
                errors[1],
                self._explain(evaluation, expected, answer)[:DETAIL_CHARACTERS],
            )
            return refusal, (None, None), Boundary()
        if chosen is None or isinstance(answer, Exception):
            return None, errors, Boundary()
        values = chosen.by_name(inputs)
        gap = exchange_gap(answer[0], expected[0], values, chosen.page_size)
        return None, errors, Boundary(exchanged=1, exchange_gap=gap)

    def _explain(
        self, evaluation: Any, expected: list[torch.Tensor], answer: list[torch.Tensor] | Exception
    ) -> str:
        if isinstance(answer, Exception):
            return one_line(answer)
        notes = [line for line in (evaluation.log or "").splitlines() if line][:1]
        if evaluation.status is EvaluationStatus.INCORRECT_NUMERICAL and not self.selects:
            settings = self.job.settings
            found = (
                describe_values(
                    name, got, want, settings.atol, settings.rtol, settings.required_matched_ratio
                )
                for name, got, want in zip(self.definition.outputs, answer, expected, strict=False)
            )
            notes = [text for text in found if text] + notes
        return "; ".join(notes)


class Replayer:
    """Answers batches one after another; keeps what batches of one workload share."""

    def __init__(self) -> None:
        self._runner: TrialRunner | None = None

    def answer(self, job: Job, report: ReportStage) -> Outcome:
        """PASSED says that the batch has a result."""
        report(Stage.INPUTS)
        try:
            if self._runner is None or not self._runner.serves(job):
                self._runner = None  # releases its memory first
                self._runner = TrialRunner(job, report)
            result = self._runner.run(batch_range(job), report)
        except BuildFailed as error:
            return Outcome(Status.COMPILE_ERROR, detail=str(error))
        except ReferenceFailed as error:
            return Outcome(Status.REFERENCE_ERROR, detail=str(error))
        return Outcome(Status.PASSED, evaluation=result.to_json())


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"


def _without_range(job: Job) -> Job:
    return replace(job, only_trial=None, settings=replace(job.settings, trials=1))
