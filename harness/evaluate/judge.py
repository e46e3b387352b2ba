"""Judges one workload in a worker: official inputs, reference, builder and acceptance rule.

The official evaluator class decides; this module feeds it one seeded trial at a time, poisons
the outputs before each call, times with harness.timing and turns what happened into an Outcome.
"""

from __future__ import annotations

import errno
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from flashinfer_bench.bench.config import BenchmarkConfig
from flashinfer_bench.bench.evaluators.registry import resolve_evaluator
from flashinfer_bench.bench.evaluators.utils import normalize_result
from flashinfer_bench.bench.utils import make_eval
from flashinfer_bench.compile import BuilderRegistry
from flashinfer_bench.data import Correctness, Definition, EvaluationStatus, Performance, Solution
from flashinfer_bench.data import Workload as OfficialWorkload

from harness.dataset import WorkloadRow
from harness.dataset.blobs import expected_tensors, find_fault
from harness.errors import DatasetError, HarnessError, InfrastructureFailure
from harness.evaluate.diagnosis import describe_mismatch, describe_reference, dump_inputs
from harness.evaluate.protocol import HOST_TIMER, Job, Outcome, Stage, Status, trial_seed
from harness.evaluate.timed_call import TimedCall, find_timer
from harness.timing import ESTIMATION_CALLS, InconsistentGpuWork, Measurement, NoGpuWork

ReportStage = Callable[[Stage], None]
INTEGER_POISON_BYTE = 0x7F
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # no solution causes these


class _Verdict(Exception):
    """Ends the judging of a workload early."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.detail)
        self.outcome = outcome


class PoisoningRunnable:
    """A solution whose outputs hold NaN (integers: 0x7F bytes) before each call.

    The official evaluator hands out torch.empty, which may still hold the reference's result.
    """

    def __init__(self, inner: Any, num_outputs: int) -> None:
        self.inner = inner
        self._num_outputs = num_outputs
        self.metadata = inner.metadata
        self.last_call_us = 0.0
        self.last_outputs: Any = None

    def __call__(self, *args: Any) -> Any:
        outputs: list[Any] = []
        if self.metadata.destination_passing_style:
            outputs = list(args[len(args) - self._num_outputs :])
            for output in outputs:
                if output.is_floating_point():
                    output.fill_(float("nan"))
                else:
                    output.view(torch.uint8).fill_(INTEGER_POISON_BYTE)
        inputs = args[: len(args) - len(outputs)]
        given = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
        begin = time.perf_counter()
        try:
            result = self.inner(*given, *outputs)
        except SystemExit as error:  # no Exception: it would end the worker instead of the trial
            raise RuntimeError(f"the solution called sys.exit({error.code!r})") from error
        self.last_call_us = (time.perf_counter() - begin) * 1e6
        self.last_outputs = outputs or result
        return result


class _Judge:
    """One job's state: definition, solution, config, trials."""

    def __init__(self, job: Job, report: ReportStage) -> None:
        self.job, self.report = job, report
        self.definition = Definition.model_validate_json(job.definition)
        self.workload = OfficialWorkload.model_validate(job.workload)
        settings = job.settings
        self.config = BenchmarkConfig(
            warmup_runs=settings.warmup_runs,
            iterations=settings.iterations,
            num_trials=1,
            atol=settings.atol,
            rtol=settings.rtol,
            required_matched_ratio=settings.required_matched_ratio,
            profile_baseline=False,
            timeout_seconds=settings.timeout_s,
        )
        self.evaluator = resolve_evaluator(self.definition)
        self.inputs: list[list[Any]] = []
        self.references: list[list[torch.Tensor]] = []
        self.matched_ratio: float | None = None

    def prepare_trials(self) -> None:
        """Inputs and reference outputs of every trial; equal inputs are computed once."""
        root = Path(self.job.dataset_root)
        is_random = any(
            name not in self.workload.inputs or self.workload.inputs[name].type == "random"
            for name in self.definition.inputs
        )
        self.report(Stage.REFERENCE)
        for trial in self.job.trials():
            if self.inputs and not is_random:
                # Files and scalars only: every trial has the same inputs and reference.
                self.inputs.append(self.inputs[0])
                self.references.append(self.references[0])
                continue
            torch.manual_seed(trial_seed(self.job.settings.seed, self.job.uuid, trial))
            try:
                baseline = self.evaluator.build_baseline(
                    self.definition, self.workload, self.config, self.job.device, root
                )
            except Exception as error:
                self._require_sound_blobs(error)
                _require_sound_disk(error)
                raise _Verdict(
                    Outcome(Status.REFERENCE_ERROR, detail=_one_line(error), log=_trace())
                ) from error
            self.inputs += baseline.inputs
            self.references += baseline.outputs
            problem = describe_reference(list(self.definition.outputs), baseline.outputs[0])
            if problem:
                raise _Verdict(
                    Outcome(Status.INVALID_REFERENCE, detail=f"trial {trial}: {problem}")
                )

    def _require_sound_blobs(self, error: Exception) -> None:
        """Raise DatasetError where a file that the inputs come from explains `error`."""
        root, workload = Path(self.job.dataset_root), self.job.workload
        row = WorkloadRow(self.job.uuid, workload["axes"], workload["inputs"], ())
        for path, tensors in expected_tensors(json.loads(self.job.definition), row).items():
            fault = find_fault(root / path, tensors)
            if fault is not None:
                raise DatasetError(
                    f"{fault}; `python -m harness dataset verify {self.job.room} --dataset {root}` "
                    "names every unfit file"
                ) from error

    def build(self) -> PoisoningRunnable:
        self.report(Stage.BUILD)
        try:
            solution = Solution.model_validate_json(self.job.solution)
            runnable = BuilderRegistry.get_instance().build(self.definition, solution)
        except (Exception, SystemExit) as error:
            _require_sound_disk(error)
            raise _Verdict(
                _official(EvaluationStatus.COMPILE_ERROR, self.job.device, _one_line(error))
            ) from error
        return PoisoningRunnable(runnable, len(self.definition.outputs))

    def check(self, runnable: PoisoningRunnable) -> Correctness:
        """The official acceptance rule on every trial. Returns the worst errors."""
        self.report(Stage.CORRECTNESS)
        worst_abs = worst_rel = 0.0
        ratios = []
        for trial, values, expected in zip(
            self.job.trials(), self.inputs, self.references, strict=True
        ):
            correctness, evaluation = self.evaluator.check_correctness(
                definition=self.definition,
                sol_runnable=runnable,
                inputs=[values],
                ref_outputs=[expected],
                cfg=self.config,
                log_path=None,
                device=self.job.device,
            )
            if evaluation is not None:
                raise _Verdict(self._explain(trial, runnable, values, expected, evaluation))
            worst_abs = max(worst_abs, correctness.max_absolute_error)
            worst_rel = max(worst_rel, correctness.max_relative_error)
            ratios.append((correctness.extra or {}).get("matched_ratio"))
        known = [ratio for ratio in ratios if ratio is not None]
        self.matched_ratio = min(known) if known else None
        return Correctness(max_absolute_error=worst_abs, max_relative_error=worst_rel)

    def time(self, runnable: PoisoningRunnable) -> tuple[list[float], tuple[str, ...]]:
        """Latency of each trial in µs, and the names of the GPU activities."""
        self.report(Stage.TIMING)
        if self.job.settings.timer == HOST_TIMER:
            return [runnable.last_call_us], ()
        latencies: list[float] = []
        activities: tuple[str, ...] = ()
        for values in self.inputs:
            measured = self._measure(runnable, values)
            latencies.append(measured.latency_us)
            activities = measured.activities
        return latencies, activities

    def time_reference(self) -> tuple[float | None, str]:
        """Its latency in µs where the job asks for it, and why there is none where it fails."""
        if not self.job.time_reference or self.job.settings.timer == HOST_TIMER:
            return None, ""
        self.report(Stage.REFERENCE_TIMING)
        timer = find_timer(self.job.settings.timer, self.job.device)
        try:
            reference = BuilderRegistry.get_instance().build_reference(self.definition)
            with torch.no_grad():
                measured = timer.measure(lambda: reference(*self.inputs[0]), 1, 3)
        except Exception as error:
            return None, f"the reference could not be timed: {_one_line(error)}"
        return measured.latency_us, ""

    def _measure(self, runnable: PoisoningRunnable, values: list[Any]) -> Measurement:
        settings = self.job.settings
        call = self.timed_call(runnable, values)
        measured = measure(call, settings.warmup_runs, settings.iterations, ESTIMATION_CALLS)
        if isinstance(measured, Outcome):
            raise _Verdict(measured)
        return measured

    def timed_call(self, runnable: PoisoningRunnable, values: list[Any]) -> TimedCall:
        device, timer = self.job.device, find_timer(self.job.settings.timer, self.job.device)
        return TimedCall(self.definition, runnable.inner, values, device, timer)

    def _explain(
        self, trial: int, runnable: PoisoningRunnable, values: list[Any],
        expected: list[torch.Tensor], evaluation: Any,
    ) -> Outcome:  # fmt: skip
        """A failing trial's verdict with the worst element and how to repeat it."""
        notes = [f"trial {trial}"]
        if evaluation.status is EvaluationStatus.INCORRECT_NUMERICAL:
            notes += self._mismatches(runnable, values, expected)
        notes += [line for line in (evaluation.log or "").splitlines() if line][:1]
        if self.job.dump_folder:
            notes.append(self._dump(trial, values))
        notes.append(
            f"repeat: python -m harness evaluate {self.job.room} --workloads {self.job.uuid} "
            f"--seed {self.job.settings.seed} --only-trial {trial}{self.job.repeat_options}"
        )
        correctness = evaluation.correctness
        return Outcome(
            Status(evaluation.status.value),
            max_abs_error=correctness.max_absolute_error if correctness else None,
            max_rel_error=correctness.max_relative_error if correctness else None,
            matched_ratio=(correctness.extra or {}).get("matched_ratio") if correctness else None,
            detail="; ".join(notes),
            evaluation=evaluation.model_dump(mode="json"),
        )

    def _dump(self, trial: int, values: list[Any]) -> str:
        stem = f"{self.job.room}-{self.job.uuid}-trial{trial}"
        try:
            path = dump_inputs(
                str(self.job.dump_folder), stem, list(self.definition.inputs), values
            )
        except Exception as error:
            return f"inputs could not be kept: {_one_line(error)}"
        return f"inputs kept in {path}"

    def _mismatches(
        self, runnable: PoisoningRunnable, values: list[Any], expected: list[torch.Tensor]
    ) -> list[str]:
        if self.definition.name.startswith("dsa_topk_indexer"):
            return []  # indices are compared by their scores; the evaluator says which differ
        out = normalize_result(self.definition, runnable.last_outputs, self.job.device)
        settings = self.job.settings
        found = (
            describe_mismatch(
                name, got, want, settings.atol, settings.rtol, settings.required_matched_ratio
            )
            for name, got, want in zip(self.definition.outputs, out, expected, strict=True)
        )
        return [text for text in found if text]

    def passed(
        self, correctness: Correctness, latencies_us: list[float], activities: tuple[str, ...]
    ) -> Outcome:
        mean_us = sum(latencies_us) / len(latencies_us)
        reference_us, detail = self.time_reference()
        performance = Performance(
            latency_ms=mean_us / 1e3,
            reference_latency_ms=(reference_us or 0.0) / 1e3,
            speedup_factor=(reference_us or 0.0) / mean_us,
        )
        on_host = self.job.settings.timer == HOST_TIMER
        evaluation = make_eval(
            status=EvaluationStatus.PASSED,
            device=self.job.device,
            log_path=None,
            correctness=correctness,
            performance=performance,
            # The official schema wants a latency beside PASSED.
            extra_msg="host time under the Triton interpreter, not a latency" if on_host else None,
        )
        return Outcome(
            Status.PASSED,
            latency_us=None if on_host else mean_us,
            trial_latencies_us=tuple(latencies_us),
            reference_latency_us=reference_us,
            max_abs_error=correctness.max_absolute_error,
            max_rel_error=correctness.max_relative_error,
            matched_ratio=self.matched_ratio,
            activities=activities,
            detail=detail,
            evaluation=evaluation.model_dump(mode="json"),
        )

    def correct(self, correctness: Correctness) -> Outcome:
        """A pass without a latency, for which no official evaluation exists."""
        return Outcome(
            Status.PASSED,
            max_abs_error=correctness.max_absolute_error,
            max_rel_error=correctness.max_relative_error,
            matched_ratio=self.matched_ratio,
        )


def judge(job: Job, report: ReportStage) -> Outcome:
    """Judge one workload. Raises nothing that a solution or reference can cause in Python."""
    return judge_and_keep(job, report)[0]


def judge_and_keep(job: Job, report: ReportStage) -> tuple[Outcome, TimedCall | None]:
    """As judge; with job.keep also the call to measure later, of a solution that passed."""
    report(Stage.INPUTS)
    state = _Judge(job, report)
    try:
        state.prepare_trials()
        runnable = state.build()
        correctness = state.check(runnable)
        if job.keep:
            return state.correct(correctness), state.timed_call(runnable, state.inputs[0])
        latencies_us, activities = state.time(runnable)
        return state.passed(correctness, latencies_us, activities), None
    except _Verdict as verdict:
        return verdict.outcome, None
    except HarnessError as error:
        return Outcome(Status.INFRASTRUCTURE, detail=str(error), log=_trace()), None


def measure(
    call: TimedCall, warmup_runs: int, iterations: int, estimation_calls: int = 0
) -> Measurement | Outcome:
    """One measurement, or the verdict on a solution that fails while it is timed."""
    try:
        return call.measure(warmup_runs, iterations, estimation_calls)
    except NoGpuWork as error:
        return Outcome(Status.NO_GPU_WORK, detail=str(error))
    except InconsistentGpuWork as error:
        return _official(EvaluationStatus.RUNTIME_ERROR, call.device, str(error))
    except Exception as error:
        traceback.print_exc()
        return _official(EvaluationStatus.RUNTIME_ERROR, call.device, _one_line(error))


def _require_sound_disk(error: BaseException) -> None:
    """Raise InfrastructureFailure where a build failed because the machine could not write."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in DISK_ERRORS:
            raise InfrastructureFailure(
                f"the build cache cannot be written: {_one_line(cause)}; free it, or set "
                "FIB_CACHE_PATH, and run again with --resume"
            ) from error
        cause = cause.__cause__ or cause.__context__


def _official(status: Any, device: str, detail: str) -> Outcome:
    """The verdict on a failure that the official evaluator did not see."""
    evaluation = make_eval(status=status, device=device, log_path=None)
    return Outcome(
        Status(status.value),
        detail=detail,
        log=_trace(),
        evaluation=evaluation.model_dump(mode="json"),
    )


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:600]}"


def _trace() -> str:
    return traceback.format_exc()[-8000:]
