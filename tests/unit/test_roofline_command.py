"""`python -m harness roofline`: floors, what binds them, and ours beside them."""

from __future__ import annotations

import json
import shutil

import pytest

from harness import dataset
from harness.cli import main
from harness.cli import roofline as command
from harness.compare.published import PUBLISHED
from harness.config import load_workspace
from harness.errors import ExitCode
from harness.records import DatasetIdentity, write_run
from harness.records.files import latest_path
from harness.roofline import (
    CEILINGS,
    COPY,
    GDN_DECODE,
    LAUNCH,
    MOE,
    READ,
    Work,
    count_work,
    find_floor,
)
from tests.markdown_tables import read_tables
from tests.sample_records import record, row
from tests.small_checkout import SMALL, add_room, small_checkout

H200 = CEILINGS["nvidia-h200"]
B64, B1 = "u-64", "u-1"


@pytest.mark.parametrize(
    ("definition", "axes", "data", "floor_us", "roof"),
    [
        (GDN_DECODE, {"batch_size": 64}, {}, 16.6, COPY),
        (GDN_DECODE, {"batch_size": 1}, {}, 1.05, LAUNCH),
        (MOE, {"seq_len": 80}, {"experts_hit": 32, "local_assignments": 80}, 322.0, READ),
        (MOE, {"seq_len": 14107}, {"experts_hit": 32, "local_assignments": 14107}, 829.0, "fp8"),
    ],
)
def test_a_floor_knows_what_binds_it(definition, axes, data, floor_us, roof):
    floor = find_floor(count_work(definition, axes, data), H200)
    assert floor.latency_us == pytest.approx(floor_us, rel=5e-3)
    assert floor.roof == roof


def test_the_largest_of_launch_bytes_and_flops_binds():
    for work, roof in (
        (Work(0, 0, 0, "bf16"), LAUNCH),
        (Work(int(4.39e6), 0, 0, "bf16"), READ),  # 1 µs of reading
        (Work(0, int(4.28e6), 0, "bf16"), COPY),
        (Work(int(4.39e6), 0, int(2 * 790e6), "bf16"), "bf16"),
        (Work(int(4.39e6), 0, int(2 * 790e6), "fp8"), "fp8"),
        (Work(int(4.39e6), 0, int(1.4e9), "fp8"), READ),
    ):
        assert find_floor(work, H200).roof == roof


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """The first workloads of each room and no blobs; gdn_decode has two, of 64 and 1 sequences."""
    workspace = small_checkout(tmp_path / "checkout")
    root = workspace.root
    path = root / "workloads" / "gdn" / f"{workspace.rooms['gdn_decode'].definition}.jsonl"
    line = json.loads(path.read_text().splitlines()[0])
    lines = []
    for uuid, batch in ((B64, 64), (B1, 1)):
        line["workload"] |= {"uuid": uuid, "axes": {"batch_size": batch}}
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines) + "\n")
    (root / PUBLISHED).write_text(
        f"# another chip\nuuid,paper_b200_us,flashinfer_b200_us\n{B64},13.5,15.25\n{B1},2.5,\n"
    )
    monkeypatch.setattr(command, "load_workspace", lambda: load_workspace(root))
    monkeypatch.setattr(
        command, "packed_hashes", lambda workspace, rooms: dict.fromkeys(rooms, "a" * 64)
    )
    return workspace


def keep_latest(workspace, latencies_us, **changes):
    """Make a sweep of gdn_decode its latest."""
    sha256 = dataset.content_sha256(workspace.root, workspace.rooms["gdn_decode"])
    rows = tuple(
        row(uuid, latency_us, axes={"batch_size": batch})
        for (uuid, batch), latency_us in zip(((B64, 64), (B1, 1)), latencies_us, strict=True)
    )
    values = {"workloads": rows, "dataset": DatasetIdentity("generated", sha256), **changes}
    written = write_run(record(**values), workspace.root)
    path = latest_path(workspace.root, "nvidia-h200", "gdn_decode")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written.read_bytes())


def run(capsys, *arguments):
    code = main(["roofline", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_room_shows_means_what_binds_and_the_ratio(checkout, capsys):
    keep_latest(checkout, [20.0, 2.0])
    code, out, _ = run(capsys, "gdn_decode")
    assert code == ExitCode.OK
    ((found,),) = read_tables(out)
    floors_us = [16.572, 1.046]
    assert (found["room"], found["workloads"]) == ("gdn_decode", "2")
    assert float(found["mean floor µs"]) == pytest.approx(sum(floors_us) / 2, rel=1e-3)
    assert found["binds"] == f"{COPY} 1, {LAUNCH} 1"
    assert float(found["ours µs"]) == 11.0
    assert float(found["ours / floor"]) == pytest.approx(22 / sum(floors_us), rel=1e-2)
    assert found["our content"] == "`aaaaaaaa`"
    assert "nvidia-h200: launch 0.8 µs, memory 4.39 TB/s read and 4.28 TB/s copy" in out


def test_a_workload_shows_its_own(checkout, capsys):
    keep_latest(checkout, [20.0, None])
    code, out, _ = run(capsys, "gdn_decode", "--workloads")
    assert code == ExitCode.OK
    ((large, small),) = read_tables(out)
    assert (large["workload"], large["axes"], large["binds"]) == (f"`{B64}`", "batch_size=64", COPY)
    assert float(large["floor µs"]) == pytest.approx(16.6, rel=5e-3)
    assert float(large["read MB"]) == pytest.approx(33.8, rel=1e-2)
    assert float(large["written MB"]) == pytest.approx(33.7, rel=1e-2)
    assert float(large["MFLOP"]) == pytest.approx(50.3, rel=1e-2)
    assert (large["ours µs"], large["ours / floor"]) == ("20.00", "1.21")
    assert small["binds"] == LAUNCH
    assert (small["ours µs"], small["ours / floor"]) == ("-", "-")
    assert "gdn_decode, ours: aaaaaaaa" in out


def test_another_chip_has_columns_of_its_own_and_enters_no_ratio(checkout, capsys):
    keep_latest(checkout, [20.0, 2.0])
    mine = ("paper µs (B200, another chip)", "FlashInfer µs (B200, another chip)")
    (large, small) = read_tables(run(capsys, "gdn_decode", "--workloads")[1])[0]
    assert [large[name] for name in mine] == ["13.50", "15.25"]
    assert [small[name] for name in mine] == ["2.500", "-"]
    (room,) = read_tables(run(capsys, "gdn_decode")[1])[0]
    assert [room[name] for name in mine] == ["8.000", "-"]  # no mean of one of two
    (checkout.root / PUBLISHED).write_text("uuid,paper_b200_us,flashinfer_b200_us\n")
    (without,) = read_tables(run(capsys, "gdn_decode")[1])[0]
    assert {name: cell for name, cell in room.items() if name not in mine} == {
        name: cell for name, cell in without.items() if name not in mine
    }


def test_a_room_without_sweep_keeps_its_floor_and_says_what_measures_it(checkout, capsys):
    code, out, _ = run(capsys, "gdn_decode", "gdn_prefill")
    assert code == ExitCode.OK
    rows = read_tables(out)[0]
    assert [one["ours µs"] for one in rows] == ["-", "-"]
    assert all(float(one["mean floor µs"]) > 0 for one in rows)
    assert "* gdn_decode: not measured on nvidia-h200; run `python -m harness evaluate" in out


def test_a_sweep_of_other_workload_data_is_no_match_for_these_floors(checkout, capsys):
    keep_latest(checkout, [20.0, 2.0], dataset=DatasetIdentity("official", "e" * 64))
    code, out, _ = run(capsys, "gdn_decode")
    assert code == ExitCode.OK
    assert read_tables(out)[0][0]["ours / floor"] == "-"
    assert "measured on other workload data" in out


def test_stale_sweeps_are_labelled(checkout, capsys, monkeypatch):
    keep_latest(checkout, [20.0, 2.0])
    monkeypatch.setattr(command, "packed_hashes", lambda _, rooms: dict.fromkeys(rooms, None))
    _, out, _ = run(capsys, "gdn_decode")
    assert read_tables(out)[0][0]["our content"] == "stale, measured on `aaaaaaaa`"


def test_missing_blobs_say_what_makes_them_after_the_rooms_that_need_none(checkout, capsys):
    code, out, err = run(capsys, *SMALL)
    assert code == ExitCode.UNFIT
    assert [one["room"] for one in read_tables(out)[0]] == ["gdn_decode", "gdn_prefill"]
    assert err.splitlines() == [
        f"error: {room}: {count} of {count} blobs are missing; "
        f"run `python -m harness dataset make {room}`"
        for room, count in (("moe", 2), ("dsa_indexer", 3), ("dsa_attention", 2))
    ]


def test_a_foreign_set_without_blobs_is_fetched_and_not_made(
    checkout, capsys, monkeypatch, tmp_path
):
    for folder in ("definitions", "workloads"):
        shutil.copytree(checkout.root / folder, tmp_path / "set" / folder)
    monkeypatch.setenv("FIB_DATASET_PATH", str(tmp_path / "set"))
    code, _, err = run(capsys, "moe")
    assert code == ExitCode.UNFIT
    assert err.endswith(f"run `python -m harness dataset fetch {tmp_path / 'set'}`\n")


def test_a_damaged_blob_is_named_and_the_other_rooms_are_shown(checkout, capsys):
    rows = dataset.read_workloads(checkout.root, checkout.room("moe"))
    for one in rows:
        for path in one.blob_paths:
            (checkout.root / path).parent.mkdir(parents=True, exist_ok=True)
            (checkout.root / path).write_bytes(b"torn")
    code, out, err = run(capsys, "moe", "gdn_decode")
    assert code == ExitCode.UNFIT
    assert [one["room"] for one in read_tables(out)[0]] == ["gdn_decode"]
    assert err.startswith("error: moe: ") and rows[0].blob_paths[0] in err
    assert err.count("\n") == 1


def test_a_second_room_of_a_definition_has_the_same_floor(checkout, capsys):
    add_room(checkout.root, "my_decode", "gdn_decode")
    code, out, err = run(capsys, "gdn_decode", "my_decode")
    assert (code, err) == (ExitCode.OK, "")
    first, second = read_tables(out)[0]
    assert (first["room"], second["room"]) == ("gdn_decode", "my_decode")
    assert {**first, "room": "my_decode"} == second


def test_a_definition_that_nobody_counted_is_named_beside_the_others(checkout, capsys):
    path = checkout.root / "config.toml"
    definition = checkout.room("gdn_prefill").definition
    path.write_text(path.read_text().replace(definition, "softmax_h8"))
    code, out, err = run(capsys, "gdn_decode", "gdn_prefill")
    assert code == ExitCode.UNFIT
    assert [one["room"] for one in read_tables(out)[0]] == ["gdn_decode"]
    assert err.startswith("error: gdn_prefill: nobody counted the bytes and flops of softmax_h8")


def test_a_device_without_ceilings_is_refused_with_the_known_ones(checkout, capsys):
    code, out, err = run(capsys, "--device", "nvidia-b200")
    assert (code, out) == (ExitCode.UNFIT, "")
    assert "nvidia-h200" in err and "'nvidia-b200'" in err


def test_unknown_rooms_are_a_usage_error(checkout, capsys):
    code, _, err = run(capsys, "decode")
    assert code == ExitCode.USAGE and "gdn_decode" in err
