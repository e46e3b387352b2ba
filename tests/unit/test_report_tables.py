"""Tables as Markdown, CSV and JSON: the same values, and text that cannot leave its cell."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest

from harness.records import ABSENT
from harness.report.document import (
    Column,
    Document,
    Fold,
    Kind,
    Paragraph,
    Section,
    Table,
    format_value,
    split_axes,
    tables_of,
)
from harness.report.tables import escape_markdown, markdown_text, to_csv, to_json, to_markdown

HOSTILE = "a|b\n<script>alert(1)</script> *x* [l](u) `c` \\ _e_ \u2265 \u03bcs"


def _table(columns, *rows):
    return Table("name", "A caption.", tuple(columns), tuple(rows))


def _everything():
    columns = [Column(kind.value, kind) for kind in Kind]
    row = {
        Kind.TEXT: "moe",
        Kind.CODE: "3d79cf48",
        Kind.CONTENT: "stale, measured on 3d79cf48",
        Kind.COUNT: 128,
        Kind.US: 2.1874999,
        Kind.SCORE: 1.23456,
        Kind.RATIO: 1.23456,
        Kind.SPEEDUP: 1.23456,
        Kind.INTERVAL: (0.98765, 1.01234),
        Kind.SHARE: 0.01234,
        Kind.ERROR: 0.00123,
        Kind.WORD: "FAST",
    }
    return _table(columns, tuple(row[kind] for kind in Kind), (None,) * len(Kind))


def test_each_kind_has_its_digits():
    table = _everything()
    written = {
        column.kind: format_value(column.kind, value)
        for column, value in zip(table.columns, table.rows[0], strict=True)
    }
    assert written == {
        Kind.TEXT: "moe",
        Kind.CODE: "3d79cf48",
        Kind.CONTENT: "stale, measured on 3d79cf48",
        Kind.COUNT: "128",
        Kind.US: "2.187",
        Kind.SCORE: "1.235",
        Kind.RATIO: "1.23",
        Kind.SPEEDUP: "1.235",
        Kind.INTERVAL: f"0.9877{ABSENT}1.012",  # the dash is also what stands for nothing
        Kind.SHARE: "1.2 %",
        Kind.ERROR: "0.0012",
        Kind.WORD: "FAST",
    }


def test_what_is_not_known_is_a_dash_and_a_score_is_undefined():
    written = {kind: format_value(kind, None) for kind in Kind}
    assert written.pop(Kind.SCORE) == "undefined"
    assert set(written.values()) == {ABSENT}


def test_markdown_aligns_numbers_and_sets_hashes_as_code():
    lines = to_markdown(_everything()).splitlines()
    assert len(lines) == 4
    assert lines[1].count("---:") == 8
    assert "| `3d79cf48` | stale, measured on `3d79cf48` | 128 | 2.187 |" in lines[2]


def test_markdown_cells_hold_hostile_text():
    line = to_markdown(_table([Column("x"), Column("y", Kind.CODE)], (HOSTILE, HOSTILE)))
    line = line.splitlines()[2]
    assert len(line.replace("\\|", "").split("|")) == 4  # two cells between three bars
    assert "<script>" not in line and "&lt;script&gt;" in line
    assert "\\*x\\* \\[l\\](u) \\`c\\` \\\\ \\_e\\_ \u2265 \u03bcs" in line


def test_names_keep_their_underscores():
    assert escape_markdown("torch_compile of gdn_decode") == "torch_compile of gdn_decode"


def test_running_text_has_code_spans_and_nothing_else():
    assert markdown_text("run `a_b|c` for <b>") == "run `a_b|c` for &lt;b&gt;"
    assert markdown_text("one ` alone") == "one \\` alone"


def test_csv_keeps_every_digit_and_splits_intervals():
    columns = [Column("t"), Column("us", Kind.US), Column("i", Kind.INTERVAL)]
    table = _table(columns, (HOSTILE, 1 / 3, (0.1, 0.2)), ("x", None, None))
    rows = list(csv.reader(io.StringIO(to_csv(table))))
    assert rows == [
        ["t", "us", "i low", "i high"],
        [HOSTILE, repr(1 / 3), "0.1", "0.2"],
        ["x", "", "", ""],
    ]
    assert "\r" not in to_csv(table)


def test_json_is_strict_and_says_what_each_column_is():
    table = _table([Column("t"), Column("e", Kind.ERROR)], (HOSTILE, math.inf), ("x", None))

    def refuse(token):
        raise AssertionError(token)

    values = json.loads(to_json(table), parse_constant=refuse)
    assert values == {
        "name": "name",
        "caption": "A caption.",
        "columns": [{"name": "t", "kind": "text"}, {"name": "e", "kind": "error"}],
        "rows": [[HOSTILE, "Infinity"], ["x", None]],
    }
    assert json.loads(to_json(_table([Column("t")])))["rows"] == []


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="table name: expected 1 values, got 2"):
        _table([Column("t")], ("a", "b"))


def test_no_two_tables_share_a_file():
    table = _table([Column("t")])
    folded = Section("S", "s", (table, Fold("more", (table,))))
    with pytest.raises(ValueError, match="'name' occurs twice"):
        Document("title", (folded,))
    with pytest.raises(ValueError, match="'s' occurs twice"):
        Document("title", (Section("A", "s", ()), Section("B", "s", (Paragraph("x"),))))


def test_tables_are_found_in_reading_order():
    first, second = (Table(name, "", (Column("t"),), ()) for name in "ab")
    assert tables_of((Section("S", "s", (Fold("f", (first,)), second)),)) == [first, second]


def test_axes_that_never_vary_are_said_once():
    assert split_axes([{"b": 1, "p": 9}, {"b": 2, "p": 9}]) == (["b=1", "b=2"], ", p=9 throughout")
    assert split_axes([{"b": 1}, {"b": 2}]) == (["b=1", "b=2"], "")
    assert split_axes([{"b": 1, "p": 9}]) == (["b=1 p=9"], "")
    assert split_axes([{"b": 1}, {"p": 9}]) == (["b=1", "p=9"], "")
    assert split_axes([]) == ([], "")
