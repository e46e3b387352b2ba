"""What only torch can say about this machine, as one JSON line: python -m harness.doctor.probe.

A process of its own: torch takes seconds to import, and a broken driver may end or hang it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROBE_LIMIT_S = 180.0
CALLS = 5


@dataclass(frozen=True)
class TorchFacts:
    """cuda: what torch was built for, "13.0", None for a CPU build. architectures: "sm_90".

    sees_gpu: torch finds a GPU and computes on it. cupti_us: latency of a small kernel by the
    CUPTI timer. problems: why one of these is missing, by its name.
    """

    version: str | None = None
    cuda: str | None = None
    architectures: tuple[str, ...] = ()
    sees_gpu: bool = False
    cupti_us: float | None = None
    problems: dict[str, str] = field(default_factory=dict)


def ask_torch(root: Path) -> TorchFacts:
    """Run the probe in a child process. Never raises for what torch does there."""
    command = [sys.executable, "-m", "harness.doctor.probe"]
    try:
        child = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=PROBE_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return TorchFacts(problems={"torch": f"no answer within {PROBE_LIMIT_S:g} s"})
    lines = child.stdout.splitlines()
    try:
        values = json.loads(lines[-1])
        return TorchFacts(**{**values, "architectures": tuple(values["architectures"])})
    except (IndexError, KeyError, TypeError, ValueError):
        said = (child.stderr.strip().splitlines() or ["nothing"])[-1]
        return TorchFacts(problems={"torch": f"it ended with {child.returncode}, saying: {said}"})


def look() -> dict[str, Any]:
    """The values of TorchFacts, from this process's torch."""
    import torch

    facts: dict[str, Any] = {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "architectures": torch.cuda.get_arch_list(),
        "problems": {},
    }
    if not torch.cuda.is_available():
        return facts
    try:
        values = torch.ones(1024, device="cuda:0")
        facts["sees_gpu"] = float(values.sum()) == 1024.0
    except RuntimeError as error:
        facts["problems"]["gpu"] = " ".join(str(error).split())[:300]
        return facts
    try:
        from harness.timing import CuptiTimer

        measured = CuptiTimer("cuda:0").measure(lambda: values.mul_(1.0), 1, CALLS)
        facts["cupti_us"] = measured.latency_us
    except Exception as error:  # whatever a driver and a library that do not fit each other raise
        facts["problems"]["cupti"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return facts


if __name__ == "__main__":
    print(json.dumps(look()))
