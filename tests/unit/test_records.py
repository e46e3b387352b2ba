"""Run records and the ledger: exact numbers, no lost line, no verdict that is none."""

from __future__ import annotations

import fcntl
import json
import math
import os
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import DeviceBusy, InfrastructureFailure
from harness.evaluate.protocol import Status
from harness.files import write_atomically
from harness.records import (
    ABSENT,
    OFFICIAL_STATUSES,
    RETRIED_STATUSES,
    STATUSES,
    UNJUDGED_STATUSES,
    LedgerWarning,
    Protocol,
    RecordError,
    RunRecord,
    TraceEntry,
    TraceLedger,
    all_latest,
    append_line,
    format_digits,
    format_us,
    judge_sha256,
    latest,
    load,
    settings_sha256,
    sole_writer,
    summarise,
    to_text,
    write_latest,
    write_run,
)
from tests.sample_records import entry, record, row, write_checkout

EVIDENCE_KEYS = [
    "room", "definition", "solution_name", "solution_sha256", "judge_sha256", "commit", "device",
    "driver", "libraries", "clocks", "timer", "protocol", "dataset", "seed", "passed", "total",
    "mean_latency_us", "workloads", "measured_at",
]  # fmt: skip


# --- numbers as people read them -------------------------------------------------------------


@pytest.mark.parametrize(
    ("value_us", "text"),
    [
        (0.002187 * 1e3, "2.187"),
        (2.401, "2.401"),
        (0.50004, "0.5000"),
        (0.0021874, "0.002187"),
        (9.99951, "10.00"),
        (9.9994, "9.999"),
        (99.996, "100.0"),
        (1649.26, "1649"),
        (14107.4, "14107"),
        (1000.0, "1000"),
        (None, ABSENT),
    ],
)
def test_latencies_show_four_significant_digits(value_us, text):
    assert format_us(value_us) == text


def test_latencies_that_differ_in_the_fourth_digit_look_different():
    assert format_us(2.187) != format_us(2.188)
    assert format_digits(1.2149, 3) == "1.21"


def test_summary_takes_mean_median_and_interpolated_p95():
    summary = summarise([float(value) for value in range(1, 22)])
    assert (summary.mean_us, summary.median_us, summary.p95_us) == (11.0, 11.0, 20.0)
    assert summarise([5.0]) == type(summary)(5.0, 5.0, 5.0)
    assert summarise([1.0, 2.0]).p95_us == pytest.approx(1.95)


def test_summary_of_an_incomplete_sweep_is_none():
    assert summarise([1.0, None]) is None
    assert summarise([]) is None


# --- run records -----------------------------------------------------------------------------


def test_json_holds_exactly_the_keys_of_the_evidence_format():
    values = record().to_json()
    assert list(values) == EVIDENCE_KEYS
    assert {"uuid", "axes", "status", "latency_us", "floor_us"} <= set(values["workloads"][0])
    assert (values["passed"], values["total"]) == (2, 2)
    assert values["mean_latency_us"] == pytest.approx(2.294)


def test_text_has_one_workload_a_line():
    text = to_text(record())
    lines = [line for line in text.splitlines() if '"uuid"' in line]
    assert len(lines) == 2
    assert all(json.loads(line.strip().rstrip(","))["status"] == "PASSED" for line in lines)


@given(st.floats(min_value=1e-3, max_value=1e9), st.floats(min_value=1e-3, max_value=1e9))
def test_latencies_survive_the_file_to_the_last_bit(first_us, second_us):
    before = record((row("u-0", first_us), row("u-1", second_us)))
    after = RunRecord.from_json(json.loads(to_text(before)))
    assert after == before
    assert after.mean_latency_us == before.mean_latency_us


def test_errors_without_a_json_number_stay_strict_json(tmp_path):
    before = record((row("u-0", None, max_abs_error=math.nan, max_rel_error=math.inf),))
    path = write_run(before, tmp_path)
    assert "NaN" in path.read_text() and '"NaN"' in path.read_text()
    after = load(path).workloads[0]
    assert math.isnan(after.max_abs_error) and after.max_rel_error == math.inf


def _changed(change):
    values = json.loads(to_text(record()))
    change(values)
    return values


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: v.pop("timer"), ["timer"]),
        (lambda v: v.update(timer=""), ["timer"]),
        (lambda v: v.update(device=""), ["device"]),
        (lambda v: v.update(device="NVIDIA H200"), ["device", "NVIDIA H200"]),
        (lambda v: v.update(mood="good"), ["mood", "no such key"]),
        (lambda v: v.update(solution_sha256="abc"), ["solution_sha256", "abc"]),
        (lambda v: v.update(commit="main"), ["commit", "main"]),
        (lambda v: v.update(commit="c" * 41), ["commit"]),
        (lambda v: v.update(commit="cccccc"), ["commit"]),
        (lambda v: v.update(seed="0"), ["seed", "int", "'0'"]),
        (lambda v: v.update(seed=True), ["seed"]),
        (lambda v: v.update(measured_at="yesterday"), ["measured_at"]),
        (lambda v: v.update(measured_at="2026-13-45T99:99:99Z"), ["measured_at", "2026-13-45"]),
        (lambda v: v.update(clocks={"throttled": 3}), ["clocks", "samples"]),
        (lambda v: v["workloads"][1].update(floor_us=1e-300), ["workloads[1].floor_us", "1e-300"]),
        (lambda v: v["workloads"][1].update(latency_us=1e300), ["workloads[1].latency_us"]),
        (lambda v: v.update(passed=1), ["passed", "2 of 2"]),
        (lambda v: v.update(mean_latency_us=2.0), ["mean_latency_us"]),
        (lambda v: v.update(workloads=[]), ["workloads", "at least one"]),
        (lambda v: v["protocol"].pop("atol"), ["protocol.atol"]),
        (lambda v: v["protocol"].update(required_matched_ratio=1.5), ["required_matched_ratio"]),
        (lambda v: v["dataset"].update(sha256=None), ["dataset.sha256"]),
        (lambda v: v["libraries"].update(torch=2), ["libraries"]),
        (lambda v: v["workloads"][1].update(latency_us=-1.0), ["workloads[1].latency_us", "-1.0"]),
        (lambda v: v["workloads"][1].update(latency_us=0), ["workloads[1].latency_us"]),
        (lambda v: v["workloads"][1].update(status="GREAT"), ["workloads[1].status", "GREAT"]),
        (lambda v: v["workloads"][1].update(status="TIMEOUT"), ["latency_us", "TIMEOUT"]),
        (lambda v: v["workloads"][1].update(latency_us=None), ["workloads[1].latency_us"]),
        (lambda v: v["workloads"][1].update(uuid="u-0"), ["UUID once", "u-0"]),
        (lambda v: v["workloads"][0].update(axes={"batch_size": "1"}), ["workloads[0].axes"]),
        (lambda v: v["workloads"].__setitem__(0, 3), ["workloads[0]", "3"]),
    ],
)
def test_a_wrong_value_is_named_with_its_file_and_key(change, words, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(_changed(change)))
    with pytest.raises(RecordError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("commit", ["c" * 7, "c" * 40, "0123456789abcdef-dirty", "unknown"])
def test_a_commit_is_a_hash_or_unknown(commit):
    assert RunRecord.from_json(record(commit=commit).to_json()).commit == commit


DAMAGED = ("", "{", "[]", '{"seed": NaN}', "\x00", "[" * 100_000, '{"room": "\\ud800"}')


@pytest.mark.parametrize("text", DAMAGED, ids=range(7))
def test_a_damaged_file_is_named(text, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"run\.json"):
        load(path)


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(RecordError, match="evaluate --record"):
        load(tmp_path / "run.json")


def test_a_run_on_the_host_clock_has_no_latency():
    rows = (row("u-0", None, status="PASSED", floor_us=None),)
    on_cpu = record(rows, device="cpu", timer="host", driver=None, clocks=None)
    assert RunRecord.from_json(on_cpu.to_json()) == on_cpu
    assert on_cpu.mean_latency_us is None
    with pytest.raises(RecordError, match="latency_us"):
        RunRecord.from_json(replace(on_cpu, workloads=(row("u-0"),)).to_json())


def test_a_failed_workload_leaves_no_mean_over_the_survivors():
    partly = record((row("u-0"), row("u-1", None)))
    assert (partly.passed, partly.total, partly.mean_latency_us) == (1, 2, None)


# --- where records lie -----------------------------------------------------------------------


def test_a_run_is_filed_by_device_room_stamp_and_hash(tmp_path):
    path = write_run(record(), tmp_path)
    expected = "results/runs/nvidia-h200/gdn_decode/20260131T235959Z-aaaaaaaa.json"
    assert path == tmp_path / expected
    assert load(path) == record()


def test_a_run_never_overwrites_another(tmp_path):
    write_run(record(), tmp_path)
    assert write_run(record(), tmp_path).exists()
    with pytest.raises(RecordError, match="another run"):
        write_run(record(seed=1), tmp_path)


def test_the_latest_is_a_full_sweep_in_official_order(tmp_path):
    write_checkout(tmp_path, ["u-0", "u-1"])
    path = write_latest(record(), tmp_path)
    assert path == tmp_path / "results/latest/nvidia-h200/gdn_decode.json"
    assert latest(tmp_path, "nvidia-h200", "gdn_decode") == record()
    assert latest(tmp_path, "nvidia-h200", "moe") is None
    assert all_latest(tmp_path) == [record()]


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (record((row("u-0"),)), ["2 official workloads", "got 1", "1 missing"]),
        (record((row("u-1"), row("u-0"))), ["in order", "0 missing"]),
        (record((row("u-0"), row("u-1"), row("u-2"))), ["got 3"]),
        (record(timer="events"), ["timer", "events"]),
        (record(protocol=Protocol(10, 5, 3, 0.01, 0.01, 1.0)), ["iterations", "50", "got 5"]),
        (record(protocol=Protocol(10, 50, 3, 1.0, 0.01, 1.0)), ["protocol.atol", "0.01"]),
        (record((row("u-0"), row("u-1", None, status="INFRASTRUCTURE"))), ["verdict", "u-1"]),
    ],
)
def test_anything_else_does_not_become_the_latest(candidate, words, tmp_path):
    write_checkout(tmp_path, ["u-0", "u-1"])
    with pytest.raises(RecordError) as caught:
        write_latest(candidate, tmp_path)
    assert [word for word in words if word not in str(caught.value)] == []
    assert not (tmp_path / "results").exists()


def test_a_sweep_with_a_failure_is_evidence_too(tmp_path):
    write_checkout(tmp_path, ["u-0", "u-1"])
    write_latest(record((row("u-0"), row("u-1", None))), tmp_path)
    assert latest(tmp_path, "nvidia-h200", "gdn_decode").passed == 1


def test_a_record_under_another_devices_name_is_refused(tmp_path):
    write_checkout(tmp_path, ["u-0", "u-1"])
    path = write_latest(record(), tmp_path)
    path.rename(path.with_name("moe.json"))
    with pytest.raises(RecordError, match=r"moe\.json"):
        all_latest(tmp_path)


def test_a_failed_write_keeps_the_old_text(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_atomically(path, "old")

    def fail(_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [child.name for child in tmp_path.iterdir()] == ["a.txt"]


# --- the judge's identity --------------------------------------------------------------------


def test_the_judge_hash_knows_every_part(tmp_path):
    files = {name: tmp_path / name for name in ("definition", "workloads", "rules")}
    for name, path in files.items():
        path.write_text(name)

    def judge(evaluator="Default", timer="cupti", **settings):
        return judge_sha256(
            files["definition"], files["workloads"], evaluator, [files["rules"]], timer,
            {"atol": 1e-2, "rtol": 1e-2, **settings},
        )  # fmt: skip

    hashes = [judge(), judge("LowBit"), judge(timer="events"), judge(atol=1.0)]
    for path in files.values():
        path.write_text(path.read_text() + " ")
        hashes.append(judge())
    assert len(set(hashes)) == len(hashes)
    assert judge(atol=2.0, rtol=3.0) == judge(rtol=3.0, atol=2.0)


def test_no_byte_moves_between_parts_unseen(tmp_path):
    left, right = tmp_path / "a", tmp_path / "b"

    def judge(a, b):
        left.write_text(a)
        right.write_text(b)
        return judge_sha256(left, right, "", [], "", {})

    assert judge("ab", "c") != judge("a", "bc")


def test_settings_hash_is_strict_about_values():
    assert settings_sha256({"a": 1, "b": 2}) == settings_sha256({"b": 2, "a": 1})
    assert settings_sha256({"a": 1}) != settings_sha256({"a": "1"})


# --- the ledger ------------------------------------------------------------------------------


def _ledger(tmp_path):
    return TraceLedger.of(tmp_path, "nvidia-h200", "gdn_decode")


def _fill(ledger, count):
    entries = [
        entry(f"u-{i}", ended_at=f"2026-01-31T23:59:{i:02}.000000+00:00") for i in range(count)
    ]
    for one in entries:
        ledger.append(one)
    return entries


def test_statuses_are_those_of_the_evaluator():
    assert set(STATUSES) == {status.value for status in Status}


def test_appended_traces_come_back_whole(tmp_path):
    ledger = _ledger(tmp_path)
    written = _fill(ledger, 3)
    assert ledger.path == tmp_path / "traces/nvidia-h200/gdn_decode.jsonl"
    read = ledger.entries()
    assert [replace(e, evaluation=None) for e in read] == written
    assert [TraceEntry.from_json(json.loads(json.dumps(e.to_json()))) for e in read] == read
    assert read[0].evaluation["performance"]["latency_ms"] == 2.187 / 1e3


def test_each_line_is_on_the_disk_before_the_next(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), real(fd))[1])
    ledger = _ledger(tmp_path)
    _fill(ledger, 2)
    assert len(synced) == 3  # the folder once, each line once


def test_a_line_torn_anywhere_costs_only_itself(tmp_path):
    ledger = _ledger(tmp_path)
    written = _fill(ledger, 3)
    whole = ledger.path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in (last + 1, last + 40, (last + len(whole)) // 2, len(whole) - 3):
        ledger.path.write_bytes(whole[:cut])
        with pytest.warns(LedgerWarning, match=r"gdn_decode\.jsonl:3") as caught:
            assert [e.uuid for e in ledger.entries()] == ["u-0", "u-1"]
        assert len(caught) == 1
        with pytest.warns(LedgerWarning, match="torn"):
            ledger.append(written[2])
        assert ledger.path.read_bytes() == whole
        assert len(ledger.entries()) == 3
    torn = ledger.path.with_name("gdn_decode.jsonl.torn").read_bytes()
    assert whole[last : last + 40] in torn  # moved aside, not thrown away


def test_a_warning_that_is_an_error_prevents_no_append(tmp_path):
    ledger = _ledger(tmp_path)
    ledger.append(entry("u-0"))
    with open(ledger.path, "ab") as file:
        file.write(b'{"definition": "gdn_')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ledger.append(entry("u-1"))
    assert [e.uuid for e in ledger.entries()] == ["u-0", "u-1"]


def test_a_line_from_before_a_key_was_kept_is_read_and_not_reused(tmp_path):
    ledger = _ledger(tmp_path)
    values = entry().to_json()
    del values["harness"]["measurement"], values["harness"]["environment"]
    append_line(ledger.path, values)
    (old,) = ledger.entries()
    assert old.measurement == {} and old.uuid == "u-0"
    assert entry().resume_key not in ledger.verdicts()


def test_a_torn_multibyte_character_is_a_torn_line(tmp_path):
    ledger = _ledger(tmp_path)
    ledger.append(entry("u-0"))
    ledger.append(entry("u-1", detail="µ"))
    data = ledger.path.read_bytes()
    ledger.path.write_bytes(data[: data.rindex("µ".encode()) + 1])
    with pytest.warns(LedgerWarning):
        assert [e.uuid for e in ledger.entries()] == ["u-0"]


def test_a_whole_line_without_its_newline_is_kept(tmp_path):
    ledger = _ledger(tmp_path)
    _fill(ledger, 2)
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole[:-1])
    assert len(ledger.entries()) == 2
    ledger.append(entry("u-9"))
    assert ledger.path.read_bytes().startswith(whole)
    assert len(ledger.entries()) == 3


@pytest.mark.parametrize("line", ['{"definition": 3}', "[" * 100_000, "1" + "0" * 400, "x"])
def test_a_damaged_line_in_the_middle_is_left_out_and_left_alone(tmp_path, line):
    ledger = _ledger(tmp_path)
    _fill(ledger, 3)
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    lines[1] = line.encode() + b"\n"
    ledger.path.write_bytes(b"".join(lines))
    with pytest.warns(LedgerWarning, match=r"jsonl:2"):
        assert [e.uuid for e in ledger.entries()] == ["u-0", "u-2"]
        warnings.simplefilter("error")  # it blocks nothing even there
        assert len(ledger.entries()) == 2
    ledger.append(entry("u-3"))
    assert ledger.path.read_bytes().startswith(b"".join(lines))


def test_a_full_disk_is_an_infrastructure_failure_and_leaves_no_half_line(tmp_path, monkeypatch):
    ledger = _ledger(tmp_path)
    _fill(ledger, 1)
    whole = ledger.path.read_bytes()
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:20]))
    with pytest.raises(InfrastructureFailure, match="--resume"):
        ledger.append(entry("u-1"))
    assert ledger.path.read_bytes() == whole


def test_a_second_writer_waits_for_the_first(tmp_path):
    """Or its repair of a torn tail could cut off what the first is writing."""
    ledger = _ledger(tmp_path)
    _fill(ledger, 1)
    before = ledger.path.read_bytes()
    second = threading.Thread(target=ledger.append, args=(entry("u-1"),))
    with open(ledger.path, "ab") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        second.start()
        second.join(0.2)
        assert second.is_alive() and ledger.path.read_bytes() == before
    second.join(20.0)
    assert {e.uuid for e in ledger.entries()} == {"u-0", "u-1"}


def test_a_verdict_is_reused_only_for_the_same_bytes_judge_data_settings_and_device(tmp_path):
    ledger = _ledger(tmp_path)
    ledger.append(entry())
    verdicts = ledger.verdicts()
    assert verdicts[entry().resume_key].status == "PASSED"
    for change in (
        {"solution_sha256": "0" * 64},
        {"judge_sha256": "0" * 64},
        {"dataset_sha256": "0" * 64},
        {"settings_sha256": "0" * 64},
        {"environment": {**entry().environment, "driver": "1.0"}},
        {"environment": {}},
        {"device": "nvidia-b200"},
        {"workload": {**entry().workload, "uuid": "u-1"}},
    ):
        assert entry(**change).resume_key not in verdicts
    assert entry(solution_name="other", seed=9).resume_key in verdicts


def test_a_ledger_has_one_run_at_a_time(tmp_path):
    ledger = _ledger(tmp_path)
    with sole_writer(ledger.path):
        ledger.append(entry("u-0"))
        began = time.monotonic()
        with (
            pytest.raises(DeviceBusy, match=rf"pid {os.getpid()}\b"),
            sole_writer(ledger.path, wait_s=0.2),
        ):
            pass
        assert 0.2 <= time.monotonic() - began < 2.0
    with sole_writer(ledger.path):
        pass


def test_a_run_waits_a_moment_for_the_one_before(tmp_path):
    path = _ledger(tmp_path).path
    held, release = threading.Event(), threading.Event()

    def first():
        with sole_writer(path):
            held.set()
            release.wait(20.0)

    thread = threading.Thread(target=first)
    thread.start()
    held.wait(20.0)
    threading.Timer(0.2, release.set).start()
    with sole_writer(path, wait_s=20.0):
        assert release.is_set()
    thread.join()


@pytest.mark.parametrize("status", [s for s in STATUSES if s not in RETRIED_STATUSES])
def test_failures_are_verdicts(status, tmp_path):
    ledger = _ledger(tmp_path)
    ledger.append(entry(status=status))
    assert ledger.verdicts()[entry().resume_key].status == status


def test_a_broken_machine_is_retried_and_both_attempts_stay_visible(tmp_path):
    ledger = _ledger(tmp_path)
    at = "2026-02-01T00:00:0{}.000000+00:00".format
    ledger.append(entry(status="INFRASTRUCTURE", attempt=1, ended_at=at(1)))
    assert ledger.verdicts() == {}
    ledger.append(entry(attempt=2, ended_at=at(2)))
    assert ledger.verdicts()[entry().resume_key].attempt == 2
    assert [(e.attempt, e.status) for e in ledger.entries()] == [
        (1, "INFRASTRUCTURE"),
        (2, "PASSED"),
    ]
    ledger.append(entry(status="INFRASTRUCTURE", attempt=3, ended_at=at(3)))
    assert ledger.verdicts()[entry().resume_key].status == "PASSED"


def test_a_wrong_answer_is_not_retried_into_a_pass(tmp_path):
    ledger = _ledger(tmp_path)
    ledger.append(entry(status="INCORRECT_NUMERICAL"))
    assert ledger.verdicts()[entry().resume_key].status == "INCORRECT_NUMERICAL"


def test_the_official_loader_reads_a_checkout_with_ledgers(tmp_path):
    from flashinfer_bench.data import TraceSet

    ledger = _ledger(tmp_path)
    for status in STATUSES:
        ledger.append(entry(f"u-{status}", status, max_abs_error=math.nan))
    ledger.append(entry("u-unknown", "INCORRECT_NUMERICAL", max_abs_error=None))
    write_checkout(tmp_path, ["u-0"])

    loaded = TraceSet.from_path(str(tmp_path)).traces[entry().definition]
    statuses = {trace.workload.uuid: trace.evaluation.status.value for trace in loaded}
    assert statuses == {
        **{f"u-{status}": status for status in OFFICIAL_STATUSES},
        "u-NO_GPU_WORK": "RUNTIME_ERROR",
        "u-unknown": "INCORRECT_NUMERICAL",
    }
    assert {trace.solution for trace in loaded} == {entry().solution_name}
    assert not {f"u-{status}" for status in UNJUDGED_STATUSES} & set(statuses)
    assert len(ledger.entries()) == len(STATUSES) + 1


def test_an_official_evaluation_is_kept_and_must_agree(tmp_path):
    from flashinfer_bench.data import Evaluation

    given_evaluation = {
        "status": "INCORRECT_NUMERICAL",
        "environment": {"hardware": "NVIDIA H200", "libs": {"torch": "2.11"}},
        "timestamp": "2026-01-31T23:59:59",
        "log": "",
        "correctness": {"max_relative_error": math.inf, "max_absolute_error": math.nan},
        "performance": None,
    }
    ledger = _ledger(tmp_path)
    ledger.append(entry(status="INCORRECT_NUMERICAL", evaluation=given_evaluation))
    read = ledger.entries()[0].evaluation
    assert read["environment"] == given_evaluation["environment"]
    assert math.isnan(Evaluation.model_validate(read).correctness.max_absolute_error)
    with pytest.raises(RecordError, match="expected PASSED"):
        ledger.append(entry(status="PASSED", evaluation=given_evaluation))


# --- imports ---------------------------------------------------------------------------------


def test_records_devices_roofline_and_report_load_no_torch():
    code = (
        "import sys, harness.records, harness.devices, harness.roofline, harness.report\n"
        "print([m for m in ('torch', 'triton', 'flashinfer_bench') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
