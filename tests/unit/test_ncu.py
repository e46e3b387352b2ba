"""NCU's raw page: columns by name, units, absent values, and every way to have no launch."""

from dataclasses import fields

import pytest

from harness.errors import ExitCode
from harness.ncu import (
    COUNTS,
    SECTIONS,
    LaunchMetrics,
    NcuDenied,
    NcuUnreadable,
    durations_us,
    longest,
    ncu_command,
    profile_metrics,
    read_csv,
    read_log,
    refused_metrics,
)
from tests.unit.ncu_tables import COLUMNS, DENIED, ELAPSED, ncu_table

STEP = "void gdn::step<128, (bool)1>(const float *, float *, int)"
WHOLE = LaunchMetrics(
    name=STEP,
    duration_us=pytest.approx(12.832),
    grid_blocks=512,
    block_threads=256,
    registers_per_thread=64,
    shared_bytes_per_block=49152,
    limit_registers=4,
    limit_shared_memory=4,
    limit_blocks=32,
    limit_warps=8,
    limit_barriers=32,
    waves_per_sm=1.73,
    theoretical_occupancy=0.5,
    achieved_occupancy=pytest.approx(0.4145),
    sm_share=pytest.approx(0.44),
    memory_share=pytest.approx(0.521),
    dram_share=pytest.approx(0.346),
    tensor_share=0.0,
    spills=1024,
)
SPILLS = ("smsp__sass_inst_executed_op_local_ld.sum", "smsp__sass_inst_executed_op_local_st.sum")


def one(**options):
    (launch,) = read_csv(ncu_table((STEP, {}), **options))
    return launch


def changed(column, value, **options):
    (launch,) = read_csv(ncu_table((STEP, {column: value}), **options))
    return launch


def test_every_metric_is_read_from_its_column():
    assert one() == WHOLE


def test_every_launch_of_a_call_stands_in_order_whatever_number_of_passes_it_took():
    text = ncu_table(
        ("split", {}), ("merge", {"gpu__time_duration.sum": "3,296"}), ("split", {}), (STEP, {})
    )
    launches = read_csv(text)
    assert [launch.name for launch in launches] == ["split", "merge", "split", STEP]
    assert launches[1].duration_us == pytest.approx(3.296)
    assert longest(launches[1:3]).name == "split"


def test_the_order_of_columns_does_not_matter(monkeypatch):
    table = ncu_table((STEP, {}))
    monkeypatch.setattr(
        "tests.unit.ncu_tables.COLUMNS", dict(reversed(COLUMNS.items())), raising=True
    )
    assert ncu_table((STEP, {})) != table
    assert one() == WHOLE


@pytest.mark.parametrize(
    ("unit", "value", "expected_us"),
    [("ns", "2,500", 2.5), ("nsecond", "2500", 2.5), ("us", "2.50", 2.5), ("usecond", "2.5", 2.5),
     ("ms", "1.25", 1250.0), ("msecond", "1.25", 1250.0), ("s", "2", 2e6), ("second", "2", 2e6)],
)  # fmt: skip
def test_times_are_scaled_by_their_unit(unit, value, expected_us):
    column = "gpu__time_duration.sum"
    found = changed(column, value, units={column: unit})
    assert found.duration_us == pytest.approx(expected_us)


def test_sizes_and_counts_are_scaled_by_their_prefix():
    column = "launch__shared_mem_per_block_dynamic"
    assert changed(column, "49.15", units={column: "Kbyte/block"}).shared_bytes_per_block == 49150
    kinst = dict.fromkeys(SPILLS, "Kinst")
    assert one(units=kinst).spills == 1_024_000


@pytest.mark.parametrize(
    ("column", "unit"),
    [("gpu__time_duration.sum", "cycle"), ("gpu__time_duration.sum", ""),
     ("launch__grid_size", "%"), (f"sm__throughput.{ELAPSED}", "byte/s")],
)  # fmt: skip
def test_a_unit_of_something_else_is_no_number(column, unit):
    with pytest.raises(NcuUnreadable, match=column.replace(".", r"\.")):
        one(units={column: unit})


@pytest.mark.parametrize("column", sorted(COLUMNS))
def test_a_missing_column_is_none_and_never_zero(column):
    found = one(without=(column,))
    differing = [f.name for f in fields(WHOLE) if getattr(found, f.name) != getattr(WHOLE, f.name)]
    assert len(differing) == 1
    assert getattr(found, differing[0]) is None


@pytest.mark.parametrize("text", ["", "n/a", "no data", "nan", "(!) nan", "N/A", "NaN"])
def test_a_value_that_ncu_does_not_know_is_none_and_never_zero(text):
    assert changed(f"dram__throughput.{ELAPSED}", text).dram_share is None
    assert changed(SPILLS[0], text).spills is None


def test_a_zero_that_ncu_reports_is_zero():
    assert changed(SPILLS[0], "0").spills == 24
    assert one().tensor_share == 0.0


def test_other_names_of_a_metric_stand_in_for_the_first():
    dram = f"dram__throughput.{ELAPSED}"
    added = {f"gpu__dram_throughput.{ELAPSED}": ("%", "20")}
    assert one(without=(dram,), added=added).dram_share == pytest.approx(0.2)
    assert one(added=added).dram_share == pytest.approx(0.346)
    spilling = {"derived__local_spilling_requests": ("", "976")}
    assert one(without=SPILLS, added=spilling).spills == 976
    assert one(without=SPILLS[1:], added=spilling).spills == 976


def test_a_name_with_commas_and_quotes_is_one_name():
    name = 'void f<a, "b">(int, int)'
    (launch,) = read_csv(ncu_table((name, {})))
    assert launch.name == name


def test_denied_counters_name_the_hosts_setting():
    with pytest.raises(NcuDenied, match="NVreg_RestrictProfilingToAdminUsers") as caught:
        read_csv(DENIED)
    assert caught.value.exit_code == ExitCode.TOOL_MISSING


DETAILS = (
    '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    '"0","41","step","GPU Speed Of Light Throughput","Duration","us","12.8"\n'
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no kernel was profiled: it printed nothing"),
        ("==WARNING== No kernels were profiled.\n", "no kernel was profiled: ==WARNING== No"),
        (ncu_table(), "no kernel was profiled"),
        (DETAILS, "raw page"),
        (ncu_table((STEP, {}), without=tuple(COLUMNS)), "none of the metrics"),
        (ncu_table((STEP, {"launch__grid_size": "1.2; 3.4"})), r"launch__grid_size: .* '1\.2; 3"),
        ('"ID","Name"\n"","ns"\n"0","12"\n', "expected a column 'Kernel Name'"),
        ('"ID","Kernel Name","launch__grid_size"\n"0","a","1"\n"1","b","1"\n', "row of units"),
    ],
)
def test_a_text_without_launches_says_why(text, words):
    with pytest.raises(NcuUnreadable, match=words) as caught:
        read_csv(text)
    assert caught.value.exit_code == ExitCode.INCOMPLETE


def test_the_command_asks_for_one_cold_call_at_free_clocks_and_for_every_column(tmp_path):
    paths = tmp_path / "log", "harness.profiling.single_call", tmp_path / "call.pt"
    command = ncu_command("ncu", *paths, profile_metrics(), *SECTIONS)
    text = " ".join(command)
    for option in (
        "--profile-from-start off", "--target-processes all", "--clock-control none",
        "--cache-control all", "--page raw", "--csv", "--section LaunchStats --section Occupancy",
        f"--log-file {tmp_path / 'log'}",
    ):  # fmt: skip
        assert option in text
    metrics = command[command.index("--metrics") + 1].split(",")
    assert set(COLUMNS) <= set(metrics)
    assert command[-2:] == ["harness.profiling.single_call", str(tmp_path / "call.pt")]


REFUSED = (
    "==PROF== Connected to process 41\n"
    "==ERROR== Failed to access the following 2 metrics: dram__throughput.avg, smsp__x_ld.sum\n"
    '==ERROR== Failed to profile "step" in process 41\n'
)


def test_metrics_that_a_gpu_lacks_are_named_and_left_out():
    assert refused_metrics(REFUSED) == {"dram__throughput.avg", "smsp__x_ld.sum"}
    assert refused_metrics(ncu_table((STEP, {})) + DENIED) == frozenset()
    column = f"dram__throughput.{ELAPSED}"
    metrics = profile_metrics({column})
    assert column not in metrics and f"gpu__{column.replace('__', '_')}" in metrics


def test_counts_are_whole_numbers():
    assert all(type(getattr(one(), name)) is int for name in COUNTS)


def test_durations_of_a_call_are_those_of_all_its_launches():
    launches = read_csv(ncu_table((STEP, {}), ("merge", {})))
    assert durations_us(launches) == tuple(one.duration_us for one in launches)
    unknown = LaunchMetrics("merge")
    with pytest.raises(NcuUnreadable, match="of each launch, got 2"):
        durations_us((*launches, unknown))


def test_the_table_comes_from_the_log_and_reasons_from_the_program(tmp_path):
    log = tmp_path / "ncu.log"
    log.write_text(ncu_table(("stale", {})))

    def run(text):
        if text:
            log.write_text(text)
        return "the program failed early"

    table = ncu_table((STEP, {}))
    assert read_log(lambda: run(table), log) == table
    assert "failed early" in read_log(lambda: run("==ERROR== nothing"), log)
    assert read_log(lambda: run(""), log) == "the program failed early\n"
