"""Constants read from CUDA sources, for tests that meet both sides of limits."""

from tests.cuda_constants import constants_of, read_constants

TEXT = """\
constexpr int WARPS = 12, LANES = 32;  // of a CTA
constexpr int THREADS = WARPS * LANES;
constexpr int WORKERS = THREADS / 32 - 1;
constexpr int ELSEWHERE = OTHER / 2;
constexpr double RATE = 2;
struct Tuning {
  static constexpr int STAGES = 3;  // rows
};
"""


def test_names_stand_for_what_was_said_before():
    wanted = {"WARPS": 12, "LANES": 32, "THREADS": 384, "WORKERS": 11, "STAGES": 3}
    assert read_constants(TEXT) == wanted


def test_limits_of_moe_are_found():
    found = constants_of("moe", "plan.cuh", "tile_route.cuh")
    assert {"MOST_FEW", "MOST_IN_PLANES", "MOST_ROUTED", "LOOKED_AT"} <= {*found}
