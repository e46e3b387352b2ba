"""What a page of skills/ says that a program can check: its commands and its paths."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from harness.audit.record import record_path as audit_path
from harness.cli import COMMANDS, cli
from harness.compare.record import compare_path
from harness.config import load_workspace
from harness.controller.archive import ATTEMPTS, DECISIONS, MEMORY, Archive
from harness.controller.regimes import regimes_path
from harness.packing.command import _parser as pack_parser
from harness.profiling.record import profile_path
from harness.records.files import latest_path
from harness.replay.record import replay_path
from harness.search.command import PROMPT_NAME
from harness.search.prompt import PATCH_NAME

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
ROUND = re.compile(r"(\w+/)?r\d{3}/\d{3}")
ROOM_WORDS = ("room", "rooms", "target")  # parameters that take a room
ANY_ROOM = "ROOM"
GIT = {"add": True, "checkout": True, "diff": True, "commit": False, "push": False}
MADE = {"solution.json", PROMPT_NAME, PATCH_NAME}  # by commands, wherever they run


def objections(text: str) -> list[str]:
    """Everything in a page that is not so, one line each."""
    found = []
    for words in fenced_commands(text):
        found += [f"{shlex.join(words)}: {reason}" for reason in _object_to_command(words)]
    for span in SPAN.findall(FENCE.sub("", text)):
        found += [f"{span}: {reason}" for reason in _object_to_span(span)]
    return found


def fenced_commands(text: str) -> Iterator[list[str]]:
    """The words of each command line in a fence of sh."""
    for language, body in FENCE.findall(text):
        for line in body.splitlines() if language == "sh" else ():
            words = shlex.split(line, comments=True)
            if words:
                yield words


def _object_to_command(words: list[str]) -> list[str]:
    if words[:3] == ["python", "-m", "harness"]:
        return _object_to_harness(words[3:])
    if words[:3] == ["python", "-m", "pytest"]:
        return [f"no {path}" for path in words[3:] if not (ROOT / path).exists()]
    if words[:2] == ["python", "pack.py"]:
        return _object_to_pack(words[2:])
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return [f"no target {word}" for word in words[1:] if word not in targets]
    if words[0] == "git" and words[1] in GIT:
        paths = [word for word in words[2:] if not word.startswith("-")] if GIT[words[1]] else []
        return [f"no {path}" for path in paths if not (ROOT / path).exists()]
    return ["a program that this test does not know"]


def _object_to_harness(words: list[str]) -> list[str]:
    name, *rest = words
    if name not in COMMANDS:
        return [f"no command {name}"]
    command = cli.get_command(click.Context(cli), name)
    if name == "fib":  # its options belong to flashinfer-bench
        return [] if rest[:1] == ["run"] else ["expected fib run"]
    try:
        context = command.make_context(name, list(rest))
        if isinstance(command, click.Group):
            _, inner, rest = command.resolve_command(context, rest)
            context = inner.make_context(inner.name, rest, parent=context)
    except click.ClickException as error:
        return [error.format_message()]
    return [
        f"no room {room}"
        for word in ROOM_WORDS
        for room in _listed(context.params.get(word))
        if room != ANY_ROOM and room not in load_workspace().rooms
    ]


def _listed(value: object) -> tuple[object, ...]:
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def _object_to_pack(words: list[str]) -> list[str]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options = pack_parser().parse_args(words)
    except SystemExit:
        return [said.getvalue().strip().splitlines()[-1]]
    rooms = (ANY_ROOM, *load_workspace().rooms)
    return [f"no room {room}" for room in options.rooms if room not in rooms]


def _object_to_span(span: str) -> list[str]:
    words = span.split()
    if words[:1] == ["python"]:
        return _object_to_command(words)
    if len(words) > 1 and words[0] in COMMANDS:
        known = _options(words[0])
        return [f"no option {word}" for word in words[1:] if word[:2] == "--" and word not in known]
    if len(words) == 1 and words[0].startswith("--"):
        every = {option for name in COMMANDS if name != "fib" for option in _options(name)}
        return [] if words[0] in every else ["no command has this option"]
    return _object_to_path(span) if len(words) == 1 else []


def _options(name: str) -> set[str]:
    command = cli.get_command(click.Context(cli), name)
    return {option for parameter in command.params for option in parameter.opts}


def _object_to_path(word: str) -> list[str]:
    if ROUND.fullmatch(word) or word.startswith((".", "http")):
        return []
    if "/" in word:
        if word.split("/")[0] in ("results", "traces"):
            is_made = any(one.startswith(word.rstrip("/")) for one in written())
            return [] if is_made else ["not made"]
        names = (word.replace("<room>", room) for room in load_workspace().rooms)
        return [] if any((ROOT / name).exists() for name in names) else ["no such path"]
    if re.fullmatch(r"[\w-]+\.(py|md|toml|json|jsonl|patch|cuh?|sh)", word):
        made = {*MADE, *(Path(one).name for one in written())}
        is_there = word in made or any(ROOT.glob(word)) or any(ROOT.glob(f"solutions/*/{word}"))
        return [] if is_there else ["no such file"]
    return []


def written() -> list[str]:
    """Paths that the harness writes below results/ and traces/, as its own functions say."""
    archive, root, room, device = Archive(ROOT, "<room>"), ROOT, "<room>", "<device>"
    paths = [
        *(archive.path(kind) for kind in (ATTEMPTS, DECISIONS, MEMORY)),
        *(archive.record_path("<key>"), archive.manifest_path("<run>")),
        *(archive.baseline_path("<hash>"), regimes_path(root, room)),
        *(latest_path(root, device, room), profile_path(root, device, room)),
        *(compare_path(root, room), replay_path(root, room), audit_path(root, room)),
        root / "results" / "runs" / device / room / "<stamp>.json",
        root / "traces" / device / f"{room}.search.ndjson",
    ]
    return [path.relative_to(root).as_posix() for path in paths]
