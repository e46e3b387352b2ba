"""The tricks of tests/cheats: which probe catches each, and what the official rule says of it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "cheats"


@dataclass(frozen=True)
class Cheat:
    """One trick. probe: the one that must catch it; judged: the judge's verdict without a probe.

    is_dps: whether it writes into its outputs. patches: whether it changes its process for good.
    """

    probe: str
    judged: str = "PASSED"
    is_dps: bool = True
    patches: bool = False
    needs_gpu: bool = False


CHEATS = {
    "caches_by_pointer": Cheat("fresh_values"),
    "answers_one_seed": Cheat("fresh_values"),
    "keeps_first_pointers": Cheat("fresh_pointers"),
    "caches_by_fingerprint": Cheat("every_element_counts"),
    "caches_by_values": Cheat("nothing_kept"),
    "leaves_a_gap": Cheat("outputs_written"),
    "returns_a_promise": Cheat("outputs_are_tensors", is_dps=False),
    "writes_a_neighbour": Cheat("guard_bands"),
    "overwrites_inputs": Cheat("inputs_unchanged"),
    "differs_between_runs": Cheat("runs_alike"),
    "stops_computing": Cheat("right_after_timing"),
    "writes_later": Cheat("finished_on_return"),
    "opens_a_file_by_another_name": Cheat("no_outside_access"),
    "patches_the_clock": Cheat("judge_untouched", patches=True),
    "patches_the_timer": Cheat("judge_untouched", patches=True),
    "patches_the_evaluator": Cheat("judge_untouched", patches=True),
    "patches_allclose": Cheat("judge_untouched", patches=True),
    "calls_the_reference": Cheat("static_scan", judged="RUNTIME_ERROR"),
    "calls_a_library": Cheat("static_scan", judged="COMPILE_ERROR"),
    "reads_answers": Cheat("static_scan"),
    "asks_who_calls": Cheat("static_scan"),
    "kills_its_process": Cheat("fresh_values", judged="RUNTIME_ERROR", patches=True),
    "waits_for_the_gpu": Cheat("no_host_synchronisation", needs_gpu=True),
    "reads_a_value_on_the_host": Cheat("graph_capturable", needs_gpu=True),
    "works_at_first_only": Cheat("same_work_every_call", needs_gpu=True),
    "leaves_the_stream": Cheat("work_inside_window", needs_gpu=True),
    "uses_the_default_stream": Cheat("stream_honoured", needs_gpu=True),
}


def source(trick: str) -> str:
    return (FOLDER / f"{trick}.py").read_text(encoding="utf-8")


def summary(trick: str) -> str:
    """The first sentence of a trick's docstring."""
    text = ast.get_docstring(ast.parse(source(trick))) or ""
    return " ".join(text.split()).rstrip(".")
