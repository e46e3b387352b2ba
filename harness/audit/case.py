"""One workload in a probe's process: trials, the built solution, calls, and the official rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from flashinfer_bench.bench.evaluators.registry import resolve_evaluator
from flashinfer_bench.bench.evaluators.utils import allocate_outputs, normalize_result
from flashinfer_bench.compile import BuilderRegistry
from flashinfer_bench.data import Definition, Solution
from flashinfer_bench.data import Workload as OfficialWorkload

from harness.evaluate.official_rule import rule_config
from harness.evaluate.protocol import Job, Stage, trial_seed

POISON_BYTE = 0x7F
OTHER_POISON_BYTE = 0x55
SHARED_ELEMENTS = 64  # that a mixed trial has in common with the official one, three times
# A solution may replace torch's functions; these are the ones from before it was loaded.
equal = torch.equal


class Caught(Exception):
    """What a probe found against the solution."""


class NotApplicable(Exception):
    """A workload on which a probe can show nothing, and why."""


@dataclass(frozen=True)
class Trial:
    """Inputs in definition order, and what the reference makes of them."""

    inputs: list[Any]
    references: list[torch.Tensor]


class Case:
    """One job's definition, workload and solution.

    Trial 0 is the official one of the job's seed; later ones have a seed that no solution can
    know. Where every tensor comes from a file, later trials have other signs in it: norms and
    magnitudes stay. All trials are made before the solution is built, which has no part in them.
    """

    def __init__(
        self, job: Job, secret_seed: int, report: Callable[[Stage], None] = lambda stage: None
    ) -> None:
        self.job, self.report = job, report
        self.device = job.device
        self.definition = Definition.model_validate_json(job.definition)
        self.workload = OfficialWorkload.model_validate(job.workload)
        self._secret_seed = secret_seed
        self._evaluator = resolve_evaluator(self.definition)
        self._trials: dict[int, Trial] = {}
        self.runnable: Any = None

    @property
    def is_dps(self) -> bool:
        return bool(self.runnable.metadata.destination_passing_style)

    def trial(self, index: int) -> Trial:
        """A trial of seeded inputs; the same object each time."""
        if index not in self._trials:
            self._begin_reference()
            seed = self.job.settings.seed if index == 0 else self._secret_seed
            torch.manual_seed(trial_seed(seed, self.job.uuid, index))
            made = self._evaluator.build_baseline(
                self.definition,
                self.workload,
                rule_config(self.job.settings),
                self.device,
                Path(self.job.dataset_root),
            )
            trial = Trial(made.inputs[0], made.outputs[0])
            if index > 0 and not self._has_random_tensor():
                trial = self._refer([_with_other_signs(value) for value in trial.inputs])
            self._trials[index] = trial
        return self._trials[index]

    def require_fresh(self) -> None:
        """Raises NotApplicable where no trial differs from another: integers of files only."""
        values = zip(self.trial(0).inputs, self.trial(1).inputs, strict=True)
        if all(_is_same(old, new) for old, new in values):
            raise NotApplicable("every trial of this workload has the same inputs")

    def mixed_trial(self) -> Trial:
        """Trial 1 with some elements of trial 0: the first, the last, and some spread between."""
        self._begin_reference()
        mixed = []
        for old, new in zip(self.trial(0).inputs, self.trial(1).inputs, strict=True):
            if isinstance(new, torch.Tensor) and new.dim():
                flat = new.clone().contiguous()
                _share_elements(flat, old.contiguous())
                new = flat
            mixed.append(new)
        return self._refer(mixed)

    def build(self) -> None:
        """Load the solution by the official builder. Raises Caught where it does not build."""
        self.report(Stage.BUILD)
        solution = Solution.model_validate_json(self.job.solution)
        try:
            self.runnable = BuilderRegistry.get_instance().build(self.definition, solution)
        except (Exception, SystemExit) as error:
            raise Caught(f"it does not build: {one_line(error)}") from error
        self.report(Stage.CORRECTNESS)

    def allocate(self, inputs: Sequence[Any], poison_byte: int = POISON_BYTE) -> list[torch.Tensor]:
        """Outputs of their official shapes, poisoned; none where the solution returns values."""
        if not self.is_dps:
            return []
        made: list[torch.Tensor] = allocate_outputs(self.definition, list(inputs), self.device)
        for output in made:
            poison(output, poison_byte)
        return made

    def call(
        self, inputs: Sequence[Any], outputs: Sequence[torch.Tensor] | None = None
    ) -> list[torch.Tensor]:
        """One call, and its outputs when the device has finished. Raises Caught."""
        found = self.launch(inputs, self.allocate(inputs) if outputs is None else outputs)
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)
        return found

    def launch(self, inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> list[Any]:
        """One call without waiting for the device: the outputs, or what it returned."""
        try:
            with torch.no_grad():
                result = self.runnable(*inputs, *outputs)
        except (Exception, SystemExit) as error:
            raise Caught(f"a call failed: {one_line(error)}") from error
        if self.is_dps:
            return list(outputs)
        return list(result) if isinstance(result, tuple | list) else [result]

    def require_right(self, trial: Trial, outputs: Sequence[Any], when: str) -> None:
        """Raises Caught where the official rule refuses the outputs."""
        objection = self.objection(trial.inputs, trial.references, outputs, 1.0)
        if objection is not None:
            raise Caught(f"{when}: {objection}")

    def objection(
        self,
        inputs: Sequence[Any],
        expected: Sequence[torch.Tensor],
        outputs: Sequence[Any],
        share: float,
    ) -> str | None:
        """Why the official rule refuses outputs at this share of its tolerance, or None."""
        kept = [x.clone() if isinstance(x, torch.Tensor) else x for x in outputs]
        given = _Given(kept)
        correctness, evaluation = self._evaluator.check_correctness(
            definition=self.definition,
            sol_runnable=given,
            inputs=[list(inputs)],
            ref_outputs=[list(expected)],
            cfg=rule_config(self.job.settings, share),
            log_path=None,
            device=self.device,
        )
        if evaluation is None:
            return None
        error = f", worst error {correctness.max_absolute_error:.4g}" if correctness else ""
        return f"{evaluation.status.value}{error}"

    def _has_random_tensor(self) -> bool:
        given = self.workload.inputs
        return any(
            spec.shape is not None and (name not in given or given[name].type == "random")
            for name, spec in self.definition.inputs.items()
        )

    def _refer(self, inputs: list[Any]) -> Trial:
        """A trial of these inputs."""
        reference = BuilderRegistry.get_instance().build_reference(self.definition)
        with torch.no_grad():
            result = reference(*clone(inputs))
        return Trial(inputs, normalize_result(self.definition, result, self.device))

    def _begin_reference(self) -> None:
        if self.runnable is not None:
            raise RuntimeError("a trial was asked for after the solution had been built")
        self.report(Stage.REFERENCE)


class _Given:
    """Outputs that exist already, in the form of a solution that returns them."""

    metadata = SimpleNamespace(destination_passing_style=False)

    def __init__(self, outputs: Sequence[Any]) -> None:
        self._outputs = outputs

    def __call__(self, *_: Any) -> Any:
        return self._outputs[0] if len(self._outputs) == 1 else tuple(self._outputs)


def _share_elements(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy single elements of `source` to the same places of `target`; both contiguous."""
    size = target.element_size()
    into, out_of = (x.view(torch.uint8).reshape(-1, size) for x in (target, source))
    count = len(into)
    if count <= 4 * SHARED_ELEMENTS:  # so few that half of them would be shared
        places = torch.arange(min(1, count))
    else:
        ends = torch.arange(SHARED_ELEMENTS)
        spread = ends * (count - 1) // (SHARED_ELEMENTS - 1)
        places = torch.cat([ends, count - 1 - ends, spread, ends * (count // SHARED_ELEMENTS)])
    places = places.to(target.device)
    into[places] = out_of[places]


def _with_other_signs(value: Any) -> Any:
    """A floating-point tensor with the signs of about half of its elements flipped."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    signs = torch.randint(0, 2, value.shape, device=value.device) * 2 - 1
    return (value.float() * signs).to(value.dtype)


def _is_same(old: Any, new: Any) -> bool:
    if isinstance(new, torch.Tensor):
        return same_bytes(old, new)
    return bool(old == new)


def poison(tensor: torch.Tensor, byte: int = POISON_BYTE) -> None:
    """Fill with NaN (floats) or bytes. OTHER_POISON_BYTE: with that byte, floats as well."""
    if tensor.is_floating_point() and byte == POISON_BYTE:
        tensor.fill_(float("nan"))
    elif tensor.is_contiguous():
        tensor.reshape(-1).view(torch.uint8).fill_(byte)
    else:
        tensor.fill_(byte)


def clone(values: Sequence[Any]) -> list[Any]:
    return [x.clone() if isinstance(x, torch.Tensor) else x for x in values]


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The elements' bytes, [elements, element size]."""
    size = tensor.element_size()
    return tensor.contiguous().reshape(-1).view(torch.uint8).reshape(-1, size)


def same_elements(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Which elements hold the same bytes, [elements]."""
    return (as_bytes(left) == as_bytes(right)).all(dim=1)


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.shape == right.shape and equal(as_bytes(left), as_bytes(right))


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
