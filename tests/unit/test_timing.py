"""Spans from recorded GPU events: pure, so every rule is tested without a GPU."""

import importlib.metadata
import itertools
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from harness.errors import EnvironmentUnfit, UsageError
from harness.timing import (
    Activity,
    InconsistentGpuWork,
    Launch,
    NoGpuWork,
    measure_spans,
    require_timer,
    select_timer,
)


def test_span_runs_from_the_first_start_to_the_last_end():
    launches = [Launch(1, 110), Launch(2, 120)]
    activities = [Activity(1, 1000, 1500, "a"), Activity(2, 2100, 2600, "b")]
    measured = measure_spans([(100, 200)], launches, activities)
    assert measured.latency_us == pytest.approx(1.6)  # the gap between a and b counts
    assert measured.activities == ("a", "b")


def test_work_outside_the_windows_is_not_counted():
    launches = [Launch(1, 50), Launch(2, 150), Launch(3, 250)]
    activities = [
        Activity(1, 0, 10_000, "flush"),
        Activity(2, 20_000, 21_000, "kernel"),
        Activity(3, 30_000, 90_000, "flush"),
    ]
    assert measure_spans([(100, 200)], launches, activities).latency_us == pytest.approx(1.0)


def test_median_over_iterations_ignores_one_outlier():
    windows = [(i * 100, i * 100 + 50) for i in range(5)]
    launches = [Launch(i, i * 100 + 10) for i in range(5)]
    lengths = [2000, 2000, 90_000, 2000, 2000]
    activities = [Activity(i, 0, lengths[i], "k") for i in range(5)]
    measured = measure_spans(windows, launches, activities)
    assert measured.latency_us == pytest.approx(2.0)
    assert len(measured.samples_us) == 5


def test_unmatched_launches_do_not_matter_but_a_window_without_work_does():
    launches = [Launch(1, 110), Launch(9, 111)]
    assert measure_spans([(100, 200)], launches, [Activity(1, 0, 5, "k")]).activities == ("k",)
    with pytest.raises(NoGpuWork, match="cached"):
        measure_spans([(100, 200), (300, 400)], launches, [Activity(1, 0, 5, "k")])


def test_other_kernels_in_a_later_iteration_are_refused():
    launches = [Launch(1, 110), Launch(2, 310)]
    activities = [Activity(1, 0, 5, "first"), Activity(2, 10, 15, "second")]
    with pytest.raises(InconsistentGpuWork, match="second"):
        measure_spans([(100, 200), (300, 400)], launches, activities)


def test_copies_of_other_sizes_are_other_work():
    launches = [Launch(1, 110), Launch(2, 310)]
    activities = [Activity(1, 0, 5, "memcpy", (1, 64)), Activity(2, 10, 15, "memcpy", (1, 128))]
    with pytest.raises(InconsistentGpuWork):
        measure_spans([(100, 200), (300, 400)], launches, activities)


def test_unknown_timers_are_refused():
    for name in ("stopwatch", "host"):
        with pytest.raises(UsageError, match="cupti, events"):
            select_timer(name, "cuda:0")


@pytest.mark.parametrize("version", [None, "12.8.0", "unknown"])
def test_a_missing_or_old_cupti_is_named_with_the_next_step(monkeypatch, version):
    def installed(name):
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr("harness.timing.importlib.metadata.version", installed)
    with pytest.raises(EnvironmentUnfit, match="cupti-python 13"):
        require_timer("cupti")
    require_timer("events")


def test_an_unusable_cupti_is_an_environment_error(monkeypatch):
    monkeypatch.setattr("harness.timing.importlib.metadata.version", lambda name: "13.0.1")
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(EnvironmentUnfit, match="cupti-python"):
        select_timer("cupti", "cuda:0")


class FakeCupti(ModuleType):
    """Each call launches one kernel of 2 µs; timestamps count up by one."""

    ActivityKind = SimpleNamespace(RUNTIME=0, DRIVER=1, CONCURRENT_KERNEL=2, MEMCPY=3, MEMSET=4)

    def __init__(self):
        super().__init__("cupti")
        self.cupti, self.clock, self.calls, self.open = self, itertools.count(), 0, False

    def get_timestamp(self):
        return next(self.clock)

    def activity_register_callbacks(self, request, keep):
        self.keep, self.records = keep, []

    def activity_enable(self, kind):
        self.open = True

    def activity_disable(self, kind):
        self.open = False

    def activity_flush_all(self, flag):
        self.keep(self.records)

    def launch(self):
        self.calls += 1
        if self.open:
            launch = SimpleNamespace(kind=0, correlation_id=self.calls, start=next(self.clock))
            kernel = SimpleNamespace(
                kind=2, correlation_id=self.calls, start=0, end=2000, name="kernel"
            )
            self.records += [launch, kernel]


@pytest.mark.parametrize(
    ("keywords", "calls"), [({}, 1 + 5 + 2 + 3), ({"estimation_calls": 0}, 1 + 2 + 3)]
)
def test_the_official_estimation_calls_can_be_left_out(monkeypatch, keywords, calls):
    cupti = FakeCupti()
    monkeypatch.setattr("harness.timing.require_timer", lambda name: None)
    monkeypatch.setitem(sys.modules, "cupti", cupti)
    flush = torch.ones(1)
    monkeypatch.setattr("harness.timing._flush_buffer", lambda device: flush)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    measured = select_timer("cupti", "cuda:0").measure(cupti.launch, 2, 3, **keywords)
    assert measured.samples_us == (2.0,) * 3
    assert cupti.calls == calls
