"""What the study of dsa_indexer_prefill rests on: controls that do the work, why rows failed."""

import sys

import pytest
import torch

from harness.rules.prefill_inputs import draw_inputs
from tests.packed import build
from tests.prefill_study.launches import time_in_turns, time_steps
from tests.prefill_study.native import CAPABILITY, NativeCall, build_control, check_control
from tests.prefill_study.record import LAUNCHES, PARTS, ROOM

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def kernel():
    if torch.cuda.get_device_capability() != CAPABILITY:
        pytest.skip("needs a Hopper GPU")
    module = sys.modules[build(ROOM)._callable.__module__]
    if not module.can_build(CAPABILITY):
        pytest.skip("needs a CUDA toolkit")
    return module


def drawn(**axes):
    torch.manual_seed(1)
    return draw_inputs(axes, "cuda")


def test_the_controls_do_the_work_that_they_are_timed_for(kernel):
    check_control(kernel, build_control(), drawn(num_queries=8, num_keys=8192))


@pytest.mark.parametrize("axes", [{}, {"score_levels": 1}, {"candidate_run": 4096}])
def test_the_host_finds_the_rows_that_the_device_listed(kernel, axes):
    call = NativeCall(kernel, drawn(num_queries=64, num_keys=65_536, **axes))
    call()
    call.failures(kernel)


def test_a_cta_without_room_fails_every_row_by_its_size(kernel):
    inputs = drawn(num_queries=64, num_keys=65_536)
    call = NativeCall(kernel, inputs, most_candidates=2048)
    call()
    assert call.failures(kernel) == {"segment_overflow": 0, "row_overflow": 64, "underflow": 0}


def test_launches_and_parts_are_timed(kernel):
    call = NativeCall(kernel, drawn(num_queries=64, num_keys=65_536))
    span_us, steps_us = time_steps(call)
    assert list(steps_us) == list(LAUNCHES)
    assert sum(steps_us.values()) == pytest.approx(span_us, rel=0.2)
    control = build_control()
    times = time_in_turns({name: call.part(control, name) for name in PARTS}, 3)
    assert 0 < times["products"] < span_us and 0 < times["filter"] < 2 * span_us
