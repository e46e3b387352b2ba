"""The whole report from records: one page that loads nothing, whose tables are the JSON's."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import cache

import pytest

from harness.compare.published import Published
from harness.compare.record import CompareRecord
from harness.config import load_workspace
from harness.records import ABSENT
from harness.report.publish import PAGE, compose, render, write_report
from tests.html_page import Page
from tests.sample_compare import OURS_SHA256, compare_record, compare_values
from tests.sample_evidence import evidence
from tests.sample_records import entry, record, row

HOSTILE = (
    "\"><script>alert(1)</script>|a|\n</td></table>'\x1b[31m\x00 \u00e4\u6f22 {{ 7*7 }} --> $x$"
)
LONG_LOG = "\n".join(f"line {i} {'x' * 400}" for i in range(5000))
DIGITS = {"us": 4, "ratio": 3, "speedup": 4, "score": 4, "error": 2, "interval": 4, "count": 15,
          "share": 2}  # fmt: skip


def _files(*arguments, **changes):
    return render(compose(evidence(*arguments, **changes)))


def _page(files):
    return Page(files[PAGE])


def _table(files, name):
    """Rows of a table as dictionaries, from its JSON."""
    values = json.loads(files[f"tables/{name}.json"])
    columns = [column["name"] for column in values["columns"]]
    return [dict(zip(columns, values, strict=True)) for values in values["rows"]]


@cache
def _full():
    """A measured, compared and partly failing report."""
    compared = compare_record(
        {"flashinfer": 2.0, "fla": 0.8, "torch_compile": 9.0},
        missing={"flash_mla": "flash_mla is not installed"},
        failing={"torch_compile": (1, "TIMEOUT", "gave up after 300 s")},
    )
    return _files([record()], [compared])


# --- the page itself -------------------------------------------------------------------------


def test_the_page_loads_nothing_and_runs_nothing():
    files = _full()
    page = _page(files)
    assert not {"script", "link", "iframe", "img", "object", "base"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    loading = {"src", "href", "action", "data", "poster", "srcset", "xlink:href"}
    targets = [value for _, name, value in page.attributes if name in loading]
    assert targets
    assert [t for t in targets if not re.match(r"#|tables/[\w.-]+\.(csv|json)$", t)] == []
    assert not re.search(r"@import|url\((?!#)|https?:", page.style)
    assert not re.search(r"@import|url\((?!#)|javascript:", files[PAGE])
    hosts = set(re.findall(r"https?://[^\s\"'<]*", files[PAGE]))
    assert hosts <= {"http://www.w3.org/2000/svg"}  # a namespace


def test_links_lead_to_sections_and_files():
    files = _full()
    page = _page(files)
    links = {value for tag, name, value in page.attributes if tag == "a" and name == "href"}
    assert {link for link in links if not link.startswith("#")} <= set(files)
    assert {link[1:] for link in links if link.startswith("#")} <= set(page.ids())
    assert len(page.ids()) == len(set(page.ids()))
    uses = {value[1:] for tag, name, value in page.attributes if (tag, name) == ("use", "href")}
    assert uses and uses <= set(page.ids())


def test_the_page_suits_light_dark_phones_and_paper():
    files = _full()
    page = _page(files)
    assert "@media (prefers-color-scheme: dark)" in page.style
    assert "@media print" in page.style and "details-content" in page.style
    assert ("meta", "content", "width=device-width, initial-scale=1") in page.attributes
    assert "details" in page.tags and "open" not in {name for _, name, _ in page.attributes}


def test_commands_wrap_between_words_on_a_phone():
    files = _full()
    (rule,) = re.findall(r"^code \{([^}]*)\}", _page(files).style, re.MULTILINE)
    assert "overflow-wrap: anywhere" in rule and "nowrap" not in rule
    command = "<code>python <span>-m</span> harness compare ours peers moe <span>--record</span>"
    assert command in files[PAGE]


def _shown(value, kind):
    """What a page may show for a value of a JSON table, written without the renderer."""
    if value is None:
        return {"score": "undefined"}.get(kind, ABSENT)
    if kind == "interval":
        return [float(f"{bound:.{DIGITS[kind] - 1}e}") for bound in value]
    if kind == "share":
        value *= 100
    if isinstance(value, (int, float)):
        return float(f"{value:.{DIGITS[kind] - 1}e}") if kind != "us" else value
    return value


def _read(text, kind):
    if text in (ABSENT, "undefined"):
        return text
    if kind == "interval":
        return [float(part) for part in text.split("-")]
    if kind == "share":
        return float(text.removesuffix(" %"))
    return float(text) if kind in DIGITS else text


def test_every_table_of_the_page_is_its_json():
    files = _full()
    page = _page(files)
    names = {path.split("/")[1].removesuffix(".json") for path in files if path.endswith(".json")}
    assert {f"table-{name}" for name in names} == set(page.tables) and len(names) >= 9
    compared = 0
    for name in names:
        values = json.loads(files[f"tables/{name}.json"])
        shown = page.tables[f"table-{name}"]
        assert shown.columns == [column["name"] for column in values["columns"]]
        assert shown.caption.startswith(values["caption"])
        assert len(shown.rows) == len(values["rows"])
        for cells, row_values in zip(shown.rows, values["rows"], strict=True):
            for text, value, column in zip(cells, row_values, values["columns"], strict=True):
                expected, got = _shown(value, column["kind"]), _read(text, column["kind"])
                if column["kind"] == "us" and isinstance(got, float):
                    assert math.isclose(got, expected, rel_tol=5e-4), (name, column, value)
                else:
                    assert got == expected, (name, column, value)
                compared += 1
    assert compared > 150


def test_markdown_holds_every_table_and_plot():
    files = _full()
    tables = [path for path in files if path.endswith(".json")]
    assert files["report.md"].count("\n| ---") == len(tables)
    plots = re.findall(r"\]\((plots/[^)]*)\)", files["report.md"])
    assert plots and set(plots) == {path for path in files if path.startswith("plots/")}
    assert files["report.md"].count("<details>") == files["report.md"].count("</details>") > 0


def test_the_same_records_give_the_same_bytes():
    assert _full() == _full.__wrapped__()


def test_files_are_plain_text():
    for path, text in _full().items():
        assert text.endswith("\n") and not text.endswith("\n\n"), path
        assert not re.search(r"[ \t]$|\r", text, re.MULTILINE), path


# --- what it says ----------------------------------------------------------------------------


def test_chapters_stand_in_their_order():
    titles = [section.title for section in compose(evidence()).sections]
    assert titles == ["What was measured", "Score", "Definitions", "Plots", "Failures"]


def test_an_empty_checkout_says_what_to_run():
    files = _files()
    text = _page(files).text
    for room in ("moe", "gdn_decode"):
        assert f"python -m harness evaluate {room} --workloads all --record" in text
        assert f"python -m harness compare ours peers {room} --record" in text
    assert "Nothing was measured." in text and "No workload failed." in text
    assert not [path for path in files if path.startswith("plots/")]
    assert {line["S_d"] for line in _table(files, "scores")} == {None}


def test_numbers_of_a_comparison_are_the_analysis():
    files = _files([], [compare_record({"flashinfer": 2.0, "fla": 0.8})])
    (scores,) = [line for line in _table(files, "scores") if line["room"] == "gdn_decode"]
    assert scores["S_d"] == pytest.approx(2.0, rel=0.01)
    low, high = scores["S_d interval"]
    assert low < scores["S_d"] < high
    assert (scores["best correct peer"], scores["device"]) == ("fla", "nvidia-h200")
    assert scores["mean ratio to it"] == pytest.approx(0.8, rel=0.01)
    against = {line["against"]: line for line in _table(files, "against-gdn_decode-nvidia-h200")}
    assert list(against) == ["ours", "flashinfer", "fla"]
    assert (against["flashinfer"]["wins"], against["fla"]["losses"]) == (3, 3)
    assert (against["flashinfer"]["FAST"], against["fla"]["SLOW"]) == (3, 3)
    assert against["ours"]["mean µs"] == pytest.approx((3 + 6 + 18) / 3, rel=0.01)
    workloads = _table(files, "workloads-gdn_decode-nvidia-h200")
    assert [line["fla word"] for line in workloads] == ["SLOW"] * 3
    assert workloads[1]["flashinfer µs"] == pytest.approx(12.0, rel=0.01)
    assert workloads[1]["floor µs"] == 2.0
    assert 0 < workloads[1]["flashinfer detects"] < 0.1
    assert "ours µs beside flashinfer" not in workloads[1]
    assert "0 of 3 workloads would be called FAST or SLOW" in _page(files).text
    assert "Other sides have no control" in _page(files).text
    assert {line["range"] for line in _table(files, "regimes-gdn_decode-nvidia-h200")} == {
        "1", "4", "16",
    }  # fmt: skip


def test_a_peer_that_is_right_in_some_workloads_stands_beside_the_best_correct_one():
    failing = {"fla": (0, "INCORRECT_NUMERICAL", "wrong")}
    files = _files([], [compare_record({"fla": 0.5, "torch_compile": 9.0}, failing=failing)])
    (scores,) = [line for line in _table(files, "scores") if line["room"] == "gdn_decode"]
    assert scores["best correct peer"] == "torch_compile"
    label, ratio, where = scores["hardest partial peer"].split(" ", 2)
    assert (label, where) == ("fla", "on 2 of 3")
    assert float(ratio.removeprefix("x")) == pytest.approx(0.5, rel=0.01)


def test_a_side_of_fewer_rounds_stands_beside_ours_of_those_rounds():
    values = compare_values({"flashinfer": 2.0, "fla": 9.0})
    ours = values["workloads"][0]["sides"]["ours"]
    ours["rounds_us"] = [4.0, 4.0, 4.0, 3.0, 3.0, 3.0]
    values["workloads"][0]["sides"]["fla"]["rounds_us"] = [40.0] * 3
    files = _files([], [CompareRecord.from_json(values)])
    line = _table(files, "workloads-gdn_decode-nvidia-h200")[0]
    assert (line["ours µs"], line["ours µs beside fla"]) == (3.5, 4.0)
    assert (line["fla µs"], line["fla / ours"]) == (40.0, pytest.approx(10.0))
    assert "ours µs beside flashinfer" not in line


def test_what_stands_in_for_the_baseline_and_caveats_are_shown():
    one = compare_record(
        {"flashinfer": 2.0, "fla": 3.0},
        stands_in={"flashinfer": "BatchMLA"},
        caveats={"flashinfer": "copies the state first"},
    )
    files = _files([], [one])
    line, text = _table(files, "scores")[1], _page(files).text
    assert (line["S_d"], line["ratio of means"]) == (None, None)
    assert line["best correct peer"] == "flashinfer (BatchMLA)"
    assert line["mean ratio to it"] == pytest.approx(2.0, rel=0.01)
    assert "do not run on this device; measured in their place: BatchMLA" in text
    assert "gdn_decode on nvidia-h200: flashinfer (BatchMLA): copies the state first" in text
    sides = {one["side"]: one for one in _table(files, "sides-gdn_decode-nvidia-h200")}
    assert sides["flashinfer"]["stands in"] == "BatchMLA"
    assert sides["flashinfer"]["caveat"] == "copies the state first"
    assert (sides["fla"]["stands in"], sides["fla"]["caveat"]) == (None, None)
    against = [one["against"] for one in _table(files, "against-gdn_decode-nvidia-h200")]
    assert against == ["ours", "flashinfer (BatchMLA)", "fla"]
    assert "Speed-up: gdn_decode: flashinfer (BatchMLA): copies the state first" in text


def test_a_definition_that_was_not_compared_counts_as_zero_in_its_track():
    rooms = load_workspace().rooms
    workspace = replace(
        load_workspace(), rooms={n: rooms[n] for n in ("gdn_decode", "gdn_prefill")}
    )
    files = _files([], [compare_record()], workspace=workspace)
    (track,) = _table(files, "tracks")
    held = "1/2, incomplete: the rest counts as 0"
    assert (track["definitions compared"], track["device"]) == (held, "nvidia-h200")
    assert track["S_track"] == pytest.approx(1.0, rel=0.01)


def test_a_missing_baseline_leaves_the_score_undefined():
    reason = "FlashInfer has it only for sm_100; this GPU is sm_90"
    files = _files([], [compare_record({"fla": 1.5}, missing={"flashinfer": reason})])
    line = _table(files, "scores")[1]
    assert (line["S_d"], line["ratio of means"], line["best correct peer"]) == (None, None, "fla")
    track = next(t for t in _table(files, "tracks") if t["track"] == "gated_delta_net")
    assert track["S_track"] is None
    page = _page(files)
    assert "undefined" in page.tables["table-scores"].rows[1]
    assert f"S_d is undefined on this device: flashinfer could not be tried: {reason}" in page.text
    against = _table(files, "against-gdn_decode-nvidia-h200")[-1]
    assert (against["against"], against["passed"], against["wins"]) == (
        "flashinfer",
        "not run",
        None,
    )
    assert "flashinfer µs" not in _table(files, "workloads-gdn_decode-nvidia-h200")[0]


def test_a_failing_peer_is_no_correct_peer_and_its_failure_is_shown():
    failing = {"fla": (1, "RUNTIME_ERROR", HOSTILE)}
    files = _files([], [compare_record({"flashinfer": 2.0, "fla": 0.5}, failing=failing)])
    assert _table(files, "scores")[1]["best correct peer"] == "flashinfer"
    line = _table(files, "workloads-gdn_decode-nvidia-h200")[1]
    assert (line["fla µs"], line["fla / ours"], line["fla word"]) == (
        None, None, "fla: RUNTIME_ERROR",
    )  # fmt: skip
    (failure,) = _table(files, "failures")
    assert (failure["side"], failure["status"]) == ("fla", "RUNTIME_ERROR")
    assert "\n" not in failure["detail"] and "\x1b" not in failure["detail"]


def test_our_own_failure_scores_zero():
    failing = {"ours": (0, "INCORRECT_NUMERICAL", "3 elements wrong")}
    files = _files([], [compare_record(failing=failing, control=False)])
    line = _table(files, "scores")[1]
    assert (line["S_d"], line["best correct peer"]) == (0.0, None)
    assert "S_d is 0: 1 of 3 workloads of ours" in _page(files).text
    assert "Control: not measured." in _page(files).text


def test_stale_evidence_is_named_wherever_it_stands():
    packed = {"moe": OURS_SHA256, "gdn_decode": "f" * 64}
    files = _files([record()], [compare_record()], packed=packed)
    lines = [line for line in _table(files, "evidence") if line["room"] == "gdn_decode"]
    assert {line["content"] for line in lines} == {"stale, measured on aaaaaaaa"}
    text = _page(files).text
    assert "gdn_decode on nvidia-h200: the sweep, measured on aaaaaaaa, packs to ffffffff" in text
    assert "gdn_decode on nvidia-h200: the comparison, measured on aaaaaaaa" in text
    assert _table(files, "scores")[1]["content"] == "stale, measured on aaaaaaaa"
    peers = {("gdn_decode", "flashinfer"): None}
    text = _page(_files([], [compare_record()], packed_peers=peers)).text
    assert "the comparison with flashinfer, measured on" in text and "does not pack now" in text
    assert "Nothing: every content is as it packs now." in _page(_full()).text


def test_what_others_published_stands_apart_and_names_its_chip():
    published = {"u-1": Published(1.5, None), "u-2": Published(2.5, 3.5)}
    files = _files([], [compare_record()], published=published)
    columns = ["contest entry µs on B200, another chip", "flashinfer µs on B200, another chip"]
    lines = _table(files, "workloads-gdn_decode-nvidia-h200")
    assert [[line[name] for name in columns] for line in lines] == [
        [None, None], [1.5, None], [2.5, 3.5],
    ]  # fmt: skip
    del published["u-2"]
    files = _files([], [compare_record()], published=published)
    assert set(columns) & set(_table(files, "workloads-gdn_decode-nvidia-h200")[0]) == {columns[0]}
    assert not set(columns) & set(_table(_full(), "workloads-gdn_decode-nvidia-h200")[0])


def test_a_peer_that_was_not_compared_is_missing():
    text = _page(_files([], [compare_record({"flashinfer": 2.0})])).text
    assert "gdn_decode on nvidia-h200: fla is in peers/ and not in the comparison" in text


def test_devices_never_share_a_figure():
    other = record((row("u-0", floor_us=None),), device="nvidia-b200", solution_sha256="b" * 64)
    files = _files([record(), other], [])
    figures = {path for path in files if path.startswith("plots/")}
    assert figures == {
        f"plots/{kind}-{device}.svg"
        for kind in ("latency-gdn_decode", "history")
        for device in ("nvidia-b200", "nvidia-h200")
    }
    assert [line["device"] for line in _table(files, "latency-gdn_decode")] == [
        "nvidia-b200", "nvidia-h200",
    ]  # fmt: skip
    assert "nobody measured the ceilings of nvidia-b200" in _page(files).text


@pytest.mark.parametrize("count", [1, 128])
def test_any_number_of_workloads(count):
    axes = [{"batch_size": 1 + index, "pages": 7} for index in range(count)]
    rows = tuple(row(f"u-{i}", 2.0 + i, axes=one) for i, one in enumerate(axes))
    files = _files([record(rows)], [compare_record(axes=axes)])
    page = _page(files)
    assert len(page.tables["table-workloads-gdn_decode-nvidia-h200"].rows) == count
    assert len(page.tables["table-sweep-gdn_decode-nvidia-h200"].rows) == count
    assert ("table-regimes-gdn_decode-nvidia-h200" in page.tables) == (count > 1)
    assert ("A ratio of a regime is that of the sides' median rounds" in page.text) == (count > 1)
    assert ">batch_size<" in files["plots/latency-gdn_decode-nvidia-h200.svg"]


# --- text from elsewhere ---------------------------------------------------------------------


@cache
def _hostile_files():
    failed = entry("u-1", "RUNTIME_ERROR", detail=HOSTILE, log=HOSTILE + LONG_LOG)
    compared = compare_record(
        {"flashinfer": 2.0, "<b>x|y": 0.8},
        axes=[{"<i>|": 1}, {"<i>|": 4}],
        missing={"gone": HOSTILE},
        failing={"flashinfer": (0, "RUNTIME_ERROR", HOSTILE)},
        driver=HOSTILE,
    )
    rows = (row("u-0"), row("<u>|-1", None), row("u-1", None))
    return _files([record(rows)], [compared], verdicts=(failed,))


def test_hostile_text_is_text():
    files = _hostile_files()
    page = _page(files)
    assert "script" not in page.tags and "b" not in page.tags and "i" not in page.tags
    assert page.text.count("alert(1)") >= 4  # as text
    assert "{{ 7*7 }}" in page.text and "49 -->" not in page.text
    assert "\x00" not in files[PAGE] and "\x1b" not in files[PAGE]
    for path, text in files.items():
        if path.endswith((".md", ".html", ".svg")):
            assert "<script" not in re.sub(r"^(```+)text\n.*?^\1$", "", text, flags=re.M | re.S), (
                path
            )


def test_hostile_text_stays_in_its_markdown_cell():
    text = _hostile_files()["report.md"]
    widths = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        lines = [re.sub(r"\\\|", "", line) for line in block.splitlines()]
        widths.append({line.count("|") for line in lines})
        assert set(lines[1]) <= set("|-: ")
    assert len(widths) > 8 and all(len(one) == 1 for one in widths)


def test_a_log_is_shortened_and_fenced():
    files = _hostile_files()
    assert len(files["report.md"]) < 40_000
    assert "line 4999" in files["report.md"] and "lines left out" in files["report.md"]
    ticks = entry("u-1", "RUNTIME_ERROR", log="```\nnot the end\n````")
    rows = (row("u-0"), row("u-1", None))
    text = _files([record(rows)], verdicts=(ticks,))["report.md"]
    assert "`````text\n```\nnot the end\n````\n`````" in text


# --- writing ---------------------------------------------------------------------------------


def test_a_report_replaces_the_one_before(tmp_path):
    folder = tmp_path / "deep" / "report"
    first, second = _full(), _files([record()])
    assert set(first) > set(second) - set(first)
    write_report(first, folder)
    write_report(second, folder)
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == set(second)
    assert (folder / PAGE).read_text(encoding="utf-8") == second[PAGE]


def test_a_report_that_was_interrupted_says_so_and_is_written_again(tmp_path, monkeypatch):
    folder, files = tmp_path / "report", _full()
    write_report(files, folder)
    written = []

    def stop_at_the_third(path, text):
        written.append(path)
        if len(written) == 3:
            raise KeyboardInterrupt
        path.write_text(text)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("harness.report.publish.write_atomically", stop_at_the_third)
        write_report(files, folder)
    assert "run the command again" in (folder / PAGE).read_text(encoding="utf-8")
    write_report(files, folder)
    assert (folder / PAGE).read_text(encoding="utf-8") == files[PAGE]


def test_a_folder_in_use_is_not_written_to(tmp_path):
    from harness.errors import UsageError

    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "mine.csv").write_text("1\n")
    with pytest.raises(UsageError, match="earlier report"):
        write_report(_files(), tmp_path)
    with pytest.raises(UsageError, match="earlier report"):
        write_report(_files(), tmp_path / "tables" / "mine.csv")
    assert [path.name for path in tmp_path.rglob("*")] == ["tables", "mine.csv"]
