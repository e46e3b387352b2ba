"""`python -m harness score`: official numbers first, nothing mixed, nothing stale unlabelled."""

from __future__ import annotations

import json
import statistics

import pytest

from harness.cli import main
from harness.cli import score as command
from harness.compare.record import CompareRecord, write_compare
from harness.config import load_workspace
from harness.errors import ExitCode
from tests import small_checkout
from tests.markdown_tables import read_tables
from tests.official_rooms import official_config
from tests.sample_compare import OURS_SHA256, compare_values, side_sha256

GDN = ("gdn_decode", "gdn_prefill")
UUIDS = ("u-0", "u-1", "u-2")
PROTOCOL = compare_values()["protocol"]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with three workloads a gdn room; everything packs to what was compared."""
    real = load_workspace()
    (tmp_path / "config.toml").write_text(official_config(), encoding="utf-8")
    for room in GDN:
        path = tmp_path / "workloads" / "gdn" / f"{real.rooms[room].definition}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"workload": {"uuid": uuid}}) for uuid in UUIDS]
        path.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(command, "load_workspace", lambda: load_workspace(tmp_path))
    monkeypatch.setattr(
        command, "packed_hashes", lambda workspace, rooms: dict.fromkeys(rooms, OURS_SHA256)
    )
    monkeypatch.setattr(command, "_peer_hash", lambda workspace, room, name: side_sha256(name))
    return tmp_path


def keep(root, peers, room="gdn_decode", **changes):
    """Record a comparison of a room. Returns it."""
    definition = load_workspace(root).rooms[room].definition
    values = compare_values(peers, **{"room": room, "definition": definition, **changes})
    record = CompareRecord.from_json(values)
    write_compare(record, root)
    return record


def run(capsys, *rooms):
    code = main(["score", *rooms])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def ratios(record, name):
    medians = [
        [statistics.median(row.sides[side].rounds_us) for row in record.workloads]
        for side in (name, "ours")
    ]
    return medians, [b / a for b, a in zip(*medians, strict=True)]


def test_the_official_score_stands_first_and_the_other_averages_under_their_names(checkout, capsys):
    record = keep(checkout, {"flashinfer": 2.0, "fla": 0.8})
    (baseline_us, ours_us), found = ratios(record, "flashinfer")
    code, out, _ = run(capsys, "gdn_decode")
    assert code == ExitCode.OK
    (row,), *rest = read_tables(out)
    assert rest == []  # no peer beside an official score, and no track of one room of two
    assert list(row)[:6] == [
        "room", "against", "S_d (official)", "95 % interval", "ratio of means", "geometric mean",
    ]  # fmt: skip
    assert row["against"] == "flashinfer"
    assert float(row["S_d (official)"]) == pytest.approx(statistics.mean(found), rel=1e-3)
    assert float(row["ratio of means"]) == pytest.approx(sum(baseline_us) / sum(ours_us), rel=1e-3)
    assert float(row["geometric mean"]) == pytest.approx(statistics.geometric_mean(found), rel=1e-3)
    low, high = (float(bound) for bound in row["95 % interval"].split("-"))
    assert low <= float(row["S_d (official)"]) <= high
    assert (row["device"], row["timer"]) == ("nvidia-h200", "cupti")
    assert "S_d, the official score" in out and "no official score" in out


def test_a_baseline_that_did_not_run_leaves_the_score_undefined_and_names_the_peer(
    checkout, capsys
):
    record = keep(
        checkout,
        {"fla": 1.5, "torch_compile": 9.0},
        missing={"flashinfer": "flashinfer has this kernel for sm_100 only; this GPU is sm_90"},
    )
    code, out, _ = run(capsys, "gdn_decode")
    assert code == ExitCode.OK
    (row,), (peer,) = read_tables(out)
    assert row["S_d (official)"] == "undefined"
    assert (
        "* gdn_decode on nvidia-h200: S_d is undefined on this device: flashinfer could not be "
        "tried: flashinfer has this kernel for sm_100 only; this GPU is sm_90" in out
    )
    assert peer["best correct peer"] == "fla"
    assert float(peer["mean ratio to it, no S_d"]) == pytest.approx(
        statistics.mean(ratios(record, "fla")[1]), rel=1e-3
    )
    assert "S_d (official)" not in peer


def test_a_baseline_that_failed_or_was_no_side_leaves_the_score_undefined(checkout, capsys):
    keep(checkout, {"flashinfer": 2.0}, failing={"flashinfer": (1, "RUNTIME_ERROR", "no kernel")})
    _, out, _ = run(capsys, "gdn_decode")
    assert read_tables(out)[0][0]["S_d (official)"] == "undefined"
    assert "1 of 3 workloads of flashinfer have no latency" in out and "no kernel" in out
    assert "no peer passed every workload" in out
    keep(checkout, {"fla": 2.0})
    _, out, _ = run(capsys, "gdn_decode")
    assert read_tables(out)[0][0]["S_d (official)"] == "undefined"
    assert "flashinfer was no side of the comparison" in out
    assert read_tables(out)[1][0]["best correct peer"] == "fla"


def test_what_stands_in_for_the_baseline_has_its_own_name_and_no_official_score(checkout, capsys):
    keep(
        checkout,
        {"flashinfer": 2.0, "fla": 3.0},
        stands_in={"flashinfer": "BatchMLA"},
        caveats={"flashinfer": "copies the state first", "fla": "not shown"},
    )
    _, out, _ = run(capsys, *GDN)
    (row,), (peer,), (track,) = read_tables(out)
    assert (row["against"], row["S_d (official)"]) == ("flashinfer", "undefined")
    assert row["ratio of means"] == row["geometric mean"] == "-"
    assert peer["best correct peer"] == "flashinfer (BatchMLA)"
    assert float(peer["mean ratio to it, no S_d"]) == pytest.approx(2.0, rel=0.01)
    assert track["S_track"] == "undefined"
    assert (
        "S_d is undefined on this device: FlashInfer's own kernels for this definition do not run "
        "on this device; measured in their place: BatchMLA" in out
    )
    assert "gdn_decode on nvidia-h200: flashinfer (BatchMLA): copies the state first" in out
    assert "not shown" not in out


def test_a_caveat_stands_under_the_score_that_it_is_about(checkout, capsys):
    keep(checkout, {"flashinfer": 2.0}, caveats={"flashinfer": "copies the state first"})
    _, out, _ = run(capsys, "gdn_decode")
    assert float(read_tables(out)[0][0]["S_d (official)"]) == pytest.approx(2.0, rel=0.01)
    assert "* gdn_decode on nvidia-h200: flashinfer: copies the state first" in out


def test_a_peer_that_failed_is_not_the_best_correct_one_and_is_told_of_where_it_is_right(
    checkout, capsys
):
    record = keep(
        checkout,
        {"fla": 0.5, "torch_compile": 9.0},
        failing={"fla": (0, "INCORRECT_NUMERICAL", "wrong")},
    )
    _, out, _ = run(capsys, "gdn_decode")
    assert [row["best correct peer"] for row in read_tables(out)[1]] == ["torch_compile"]
    mean = statistics.geometric_mean(
        statistics.median(row.sides["fla"].rounds_us)
        / statistics.median(row.sides["ours"].rounds_us)
        for row in record.workloads[1:]
    )
    assert (
        f"gdn_decode on nvidia-h200: fla passes 2 of 3 workloads, and so is no correct peer; on "
        f"those its latency is x{mean:.3g} of ours (geometric mean), with 0 wins, 0 ties and 2 "
        "losses of ours" in out
    )


def test_one_failure_of_ours_is_a_score_of_zero(checkout, capsys):
    keep(checkout, {"flashinfer": 2.0}, failing={"ours": (2, "TIMEOUT", "hung")})
    _, out, _ = run(capsys, "gdn_decode")
    (row,) = read_tables(out)[0]
    assert float(row["S_d (official)"]) == 0.0
    assert row["95 % interval"] == "-"
    assert "gdn_decode on nvidia-h200: S_d is 0: 1 of 3 workloads of ours have no latency" in out


def test_a_track_is_divided_by_the_definitions_it_has(checkout, capsys):
    decode = keep(checkout, {"flashinfer": 2.0})
    alone = statistics.mean(ratios(decode, "flashinfer")[1])
    _, out, _ = run(capsys, *GDN)
    (track,) = read_tables(out)[1]
    assert track["track"] == "gated_delta_net"
    assert track["definitions compared"] == "1/2, incomplete: the rest counts as 0"
    assert float(track["S_track"]) == pytest.approx(alone / 2, rel=1e-3)
    assert "* gdn_prefill: not compared; run `python -m harness compare ours peers" in out

    prefill = keep(checkout, {"flashinfer": 4.0}, "gdn_prefill")
    both = statistics.mean([alone, statistics.mean(ratios(prefill, "flashinfer")[1])])
    _, out, _ = run(capsys, *GDN)
    (track,) = read_tables(out)[1]
    assert (track["definitions compared"], track["device"]) == ("2/2", "nvidia-h200")
    assert float(track["S_track"]) == pytest.approx(both, rel=1e-3)


def test_of_two_rooms_with_one_definition_the_better_counts_in_the_track(checkout, capsys):
    second = small_checkout.add_room(checkout, "my_decode", "gdn_decode").room("my_decode")
    keep(checkout, {"flashinfer": 2.0})
    decode = keep(checkout, {"flashinfer": 3.0}, second.name)
    prefill = keep(checkout, {"flashinfer": 4.0}, "gdn_prefill")
    best = [statistics.mean(ratios(record, "flashinfer")[1]) for record in (decode, prefill)]
    for asked in ((), (*GDN, "my_decode"), ("my_decode", "gdn_prefill")):
        _, out, _ = run(capsys, *asked)
        (track,) = read_tables(out)[1]
        assert track["definitions compared"] == "2/2"
        assert float(track["S_track"]) == pytest.approx(statistics.mean(best), rel=1e-3)


def test_an_undefined_score_leaves_its_track_undefined(checkout, capsys):
    keep(checkout, {"flashinfer": 2.0})
    keep(checkout, {"fla": 2.0}, "gdn_prefill")
    _, out, _ = run(capsys, *GDN)
    assert read_tables(out)[2][0]["S_track"] == "undefined"


def test_all_rooms_are_the_default_and_those_without_comparison_are_named(checkout, capsys):
    keep(checkout, {"flashinfer": 2.0})
    code, out, _ = run(capsys)
    assert code == ExitCode.OK
    assert [row["track"] for row in read_tables(out)[1]] == ["gated_delta_net"]
    for room in ("moe", "dsa_indexer", "dsa_attention", "gdn_prefill"):
        assert f"* {room}: not compared" in out


def test_stale_contents_are_labelled(checkout, capsys, monkeypatch):
    keep(checkout, {"flashinfer": 2.0})
    (row,) = read_tables(run(capsys, "gdn_decode")[1])[0]
    assert row["our content"] == f"`{OURS_SHA256[:8]}`"
    assert row["its content"] == f"`{side_sha256('flashinfer')[:8]}`"
    for changed in ("f" * 64, None):
        monkeypatch.setattr(
            command, "packed_hashes", lambda _, rooms, to=changed: dict.fromkeys(rooms, to)
        )
        monkeypatch.setattr(command, "_peer_hash", lambda *_, to=changed: to)
        (row,) = read_tables(run(capsys, "gdn_decode")[1])[0]
        assert row["our content"] == f"stale, measured on `{OURS_SHA256[:8]}`"
        assert row["its content"] == f"stale, measured on `{side_sha256('flashinfer')[:8]}`"
        assert float(row["S_d (official)"]) == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "nvidia-b200"}, "device is nvidia-h200 in gdn_decode and nvidia-b200 in"),
        ({"timer": "events"}, "timer is cupti in gdn_decode and events in gdn_prefill"),
        (
            {"dataset": {"name": "official", "sha256": "d" * 64}},
            "data set is generated in gdn_decode and official in gdn_prefill",
        ),
    ],
)
def test_what_was_measured_otherwise_is_not_mixed(checkout, capsys, changes, message):
    keep(checkout, {"flashinfer": 2.0})
    keep(checkout, {"flashinfer": 2.0}, "gdn_prefill", **changes)
    code, out, err = run(capsys)
    assert (code, out) == (ExitCode.UNFIT, "")
    assert message in err


def test_parts_of_the_official_set_have_no_score(checkout, capsys):
    keep(checkout, {"flashinfer": 2.0}, axes=({"batch_size": 1}, {"batch_size": 4}))
    code, out, err = run(capsys, "gdn_decode")
    assert (code, out) == (ExitCode.UNFIT, "")
    assert "expected the 3 workloads of gdn_decode_qk4_v8_d128_k_last in official order" in err
    assert "got 2 (1 missing)" in err and "compare ours peers gdn_decode --record" in err


def test_another_order_of_the_workloads_is_refused(checkout, capsys):
    values = compare_values({"flashinfer": 2.0})
    values["workloads"].reverse()
    write_compare(CompareRecord.from_json(values), checkout)
    code, _, err = run(capsys, "gdn_decode")
    assert code == ExitCode.UNFIT
    assert "in official order, got 3 (0 missing)" in err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 5}, "expected at least 6 rounds, got 5"),
        ({"control": False}, "expected the first side again as control"),
        ({"timer": "events"}, "expected the CUPTI timer"),
    ],
)
def test_what_record_would_not_have_kept_has_no_score(checkout, capsys, changes, message):
    keep(checkout, {"flashinfer": 2.0}, **changes)
    code, out, err = run(capsys, "gdn_decode")
    assert (code, out) == (ExitCode.UNFIT, "")
    assert message in err and "compare ours peers gdn_decode --record" in err


def test_fewer_trials_have_no_score(checkout, capsys):
    keep(checkout, {"flashinfer": 2.0}, protocol={**PROTOCOL, "correctness_trials": 1})
    code, _, err = run(capsys, "gdn_decode")
    assert code == ExitCode.UNFIT
    assert "protocol.correctness_trials: expected the official 3, got 1" in err


@pytest.mark.parametrize("tolerance", ["atol", "rtol", "required_matched_ratio"])
def test_other_tolerances_have_no_score(checkout, capsys, tolerance):
    keep(checkout, {"flashinfer": 2.0}, protocol={**PROTOCOL, tolerance: 0.5})
    code, _, err = run(capsys, "gdn_decode")
    assert code == ExitCode.UNFIT
    assert f"protocol.{tolerance}: expected the official" in err and "got 0.5" in err


def test_nothing_compared_says_what_compares(checkout, capsys):
    for rooms in ((), ("moe",)):
        code, out, err = run(capsys, *rooms)
        assert (code, out) == (ExitCode.UNFIT, "")
        assert "python -m harness compare ours peers moe --record" in err


def test_a_comparison_without_the_room_itself_has_no_score(checkout, capsys):
    values = compare_values({"flashinfer": 2.0})
    values["sides"][0]["kind"] = "revision"
    write_compare(CompareRecord.from_json(values), checkout)
    assert run(capsys, "gdn_decode")[0] == ExitCode.UNFIT


def test_unknown_rooms_and_damaged_records_are_named(checkout, capsys):
    code, _, err = run(capsys, "gdn")
    assert code == ExitCode.USAGE and "gdn_decode" in err
    keep(checkout, {"flashinfer": 2.0})
    path = checkout / "results" / "compare" / "gdn_decode.json"
    path.write_text(path.read_text().replace('"seed"', '"seeds"'))
    code, _, err = run(capsys)
    assert code == ExitCode.UNFIT
    assert str(path) in err and "seed" in err


def test_peers_are_packed_for_their_hash(monkeypatch):
    workspace = load_workspace()
    assert command._peer_hash(workspace, "gdn_decode", "absent") is None
