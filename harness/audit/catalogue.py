"""The probes: what each claims of a solution, where its code is, and whether it needs a GPU."""

from __future__ import annotations

from dataclasses import dataclass

WARNING = (
    "a candidate is untrusted code: it runs with your rights, and a probe finds known tricks but "
    "contains none. Judge strangers' solutions where there is nothing to lose: no credentials, no "
    "network, no data of yours"
)


@dataclass(frozen=True)
class Probe:
    """function: "module:name" below harness.audit. It takes a Case, raises Caught, and may return
    a note."""

    name: str
    claim: str
    function: str
    needs_gpu: bool = False


PROBES = (
    Probe(
        "static_scan",
        "the sources reach for no reference, serving library, judge, file, network or process",
        "static_scan:probe",
    ),
    Probe(
        "fresh_values",
        "new values behind the same pointers give new results",
        "values:fresh_values",
    ),
    Probe(
        "fresh_pointers",
        "the same values behind new pointers give the same results",
        "values:fresh_pointers",
    ),
    Probe(
        "every_element_counts",
        "inputs that share 64 first, last and spread elements with an earlier call are not "
        "taken for that call's",
        "values:every_element_counts",
    ),
    Probe(
        "outputs_written",
        "every element of every output is written by each call",
        "values:outputs_written",
    ),
    Probe(
        "outputs_are_tensors",
        "outputs are plain tensors that hold their values when the call returns",
        "values:outputs_are_tensors",
    ),
    Probe(
        "guard_bands",
        "nothing is written around inputs and outputs",
        "values:guard_bands",
    ),
    Probe(
        "inputs_unchanged",
        "inputs hold the same bytes after a call as before",
        "values:inputs_unchanged",
    ),
    Probe(
        "runs_alike",
        "the same inputs give the same bits, or results within a tenth of the tolerance",
        "values:runs_alike",
    ),
    Probe(
        "nothing_kept",
        "tensors that outlive a call are scratch: overwritten, they change no result",
        "values:nothing_kept",
    ),
    Probe(
        "right_after_timing",
        "results are right after a timing loop, in the loop's own tensors",
        "values:right_after_timing",
    ),
    Probe(
        "finished_on_return",
        "when a call returns, its threads and processes have ended and nothing is written later",
        "surroundings:finished_on_return",
    ),
    Probe(
        "no_outside_access",
        "a call that is no first one opens no file or socket and starts no thread or process",
        "surroundings:no_outside_access",
    ),
    Probe(
        "judge_untouched",
        "evaluator, timers, torch's comparisons and clocks are as before the solution was loaded",
        "surroundings:judge_untouched",
    ),
    Probe(
        "stream_honoured",
        "on a stream that is not the default one, a call waits for what precedes it there",
        "device:stream_honoured",
        needs_gpu=True,
    ),
    Probe(
        "work_inside_window",
        "all GPU work of a call runs after what precedes and before what follows it on its stream",
        "device:work_inside_window",
        needs_gpu=True,
    ),
    Probe(
        "same_work_every_call",
        "each call on the same values launches the same GPU work, the first one included",
        "device:same_work_every_call",
        needs_gpu=True,
    ),
    Probe(
        "no_host_synchronisation",
        "a call does not wait for the GPU",
        "device:no_host_synchronisation",
        needs_gpu=True,
    ),
    Probe(
        "graph_capturable",
        "a call can be captured in a CUDA graph, and replays are right",
        "device:graph_capturable",
        needs_gpu=True,
    ),
)


BY_NAME = {probe.name: probe for probe in PROBES}
