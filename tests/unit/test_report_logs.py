"""Logs on a page: short, printable, and without the folders of the machine they came from."""

from __future__ import annotations

from harness.report.logs import (
    DETAIL_CHARACTERS,
    HEAD_LINES,
    LINE_CHARACTERS,
    TAIL_LINES,
    one_line,
    shorten_log,
)

ROOT = "/srv/someone/checkout"


def test_a_short_log_is_kept():
    assert shorten_log("first\n\n  second", ROOT) == "first\n\n  second"


def test_the_ends_of_a_long_log_are_kept():
    lines = shorten_log("\n".join(f"line {i}" for i in range(1000)) + "\n\n", ROOT).split("\n")
    assert lines[:HEAD_LINES] == [f"line {i}" for i in range(HEAD_LINES)]
    assert lines[-TAIL_LINES:] == [f"line {i}" for i in range(1000 - TAIL_LINES, 1000)]
    assert lines[HEAD_LINES] == f"\u2026 {1000 - HEAD_LINES - TAIL_LINES} lines left out \u2026"
    assert len(lines) == HEAD_LINES + 1 + TAIL_LINES


def test_no_line_is_left_out_where_saying_so_takes_as_much_room():
    text = "\n".join(f"line {i}" for i in range(HEAD_LINES + TAIL_LINES + 1))
    assert shorten_log(text, ROOT) == text


def test_long_lines_are_cut():
    assert len(shorten_log("x" * 10_000, ROOT)) == LINE_CHARACTERS
    assert len(one_line("x " * 10_000)) == DETAIL_CHARACTERS


def test_control_characters_and_colours_are_gone():
    assert shorten_log("\x1b[1;31mred\x1b[0m\x00\ttab\r\nnext\ud800", ROOT) == (
        "red\ufffd    tab\nnext\ufffd"
    )
    assert one_line("a\x1b[31m\nb\x00\u2028c") == "a b c"


def test_folders_of_the_machine_are_gone():
    log = (
        f'File "{ROOT}/harness/evaluate/judge.py", line 1\n'
        f'File "{ROOT}/.venv/lib/python3.11/site-packages/torch/nn.py", line 2\n'
        'File "/opt/elsewhere/lib/dist-packages/triton/a.py", line 3\n'
        "cannot open '/scratch/someone/run 7/kernel.so': No such file"
    )
    assert shorten_log(log, ROOT + "/") == (
        'File "harness/evaluate/judge.py", line 1\n'
        'File "site-packages/torch/nn.py", line 2\n'
        'File "dist-packages/triton/a.py", line 3\n'
        "cannot open '\u2026/run 7/kernel.so': No such file"
    )
    assert one_line("OSError: /scratch/someone/x.so") == "OSError: \u2026/x.so"


def test_what_only_looks_like_a_path_stays():
    text = "5.4 TB/s, a/b, 1/2 and bf16/fp8, gdn/decode.py"
    assert shorten_log(text, ROOT) == one_line(text) == text
