"""A definition of two outputs and a few bytes, with solutions written as text, for the judge."""

from __future__ import annotations

import json
from pathlib import Path

from harness.evaluate.protocol import Job, Settings

UUID = "5f3759df-0000-4000-8000-000000000000"
ROWS, COLUMNS = 3, 4

REFERENCE = """\
import torch


def run(x, scale):
    return scale * x, torch.logsumexp(x, dim=1) / 0.6931471805599453
"""

# Bodies of `run`; `torch` is imported.
RIGHT = """\
y.copy_(scale * x)
lse.copy_(torch.logsumexp(x, dim=1) / 0.6931471805599453)
"""
RIGHT_VALUES = "return scale * x, torch.logsumexp(x, dim=1) / 0.6931471805599453"


def definition(reference: str = REFERENCE) -> str:
    """y = scale * x and lse = log2 of the sum of exp(x) over a row, as official JSON."""
    rows = {"shape": ["rows", "columns"], "dtype": "float32"}
    return json.dumps(
        {
            "name": "scale_rows_c4",
            "op_type": "rows",
            "axes": {"rows": {"type": "var"}, "columns": {"type": "const", "value": COLUMNS}},
            "inputs": {"x": rows, "scale": {"shape": None, "dtype": "float32"}},
            "outputs": {"y": rows, "lse": {"shape": ["rows"], "dtype": "float32"}},
            "reference": reference,
        }
    )


def module(body: str, is_dps: bool = True, head: str = "") -> str:
    """The source of a solution whose run does `body`; x [rows,4] and scale are its inputs."""
    parameters = "x, scale, y, lse" if is_dps else "x, scale"
    indented = "\n".join(f"    {line}" for line in body.strip().split("\n"))
    return f"{head}\nimport torch\n\n\ndef run({parameters}):\n{indented}\n"


def solution(source: str, is_dps: bool = True) -> str:
    """Packed text of one source file."""
    return json.dumps(
        {
            "name": "scale_rows-test",
            "definition": "scale_rows_c4",
            "author": "someone",
            "spec": {
                "language": "python",
                "target_hardware": ["cpu"],
                "entry_point": "kernel.py::run",
                "dependencies": [],
                "destination_passing_style": is_dps,
            },
            "sources": [{"path": "kernel.py", "content": source}],
        }
    )


def make_job(
    folder: Path,
    source: str,
    *,
    is_dps: bool = True,
    reference: str = REFERENCE,
    trials: int = 1,
    seed: int = 0,
    timeout_s: int = 60,
    **fields: object,
) -> Job:
    """A job on the CPU: x random [3,4], scale 2."""
    folder.mkdir(parents=True, exist_ok=True)
    return Job(
        room="scale_rows",
        definition=definition(reference),
        solution=solution(source, is_dps),
        dataset_root=str(folder),
        workload={
            "axes": {"rows": ROWS},
            "inputs": {"x": {"type": "random"}, "scale": {"type": "scalar", "value": 2.0}},
            "uuid": UUID,
        },
        device="cpu",
        settings=Settings(1, 1, trials, 0.01, 0.01, 1.0, timeout_s, "host", seed),
        **fields,
    )
