"""``pack.py``'s command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.config import Workspace, load_workspace
from harness.errors import ExitCode, HarnessError, UsageError, run_program
from harness.packing import PORTABLE, Packed, pack, write
from harness.packing.official import validate

EPILOG = """\
exit codes: 0 all well, 1 --check found a solution.json of other content,
2 a room cannot be packed, or usage, 3 a file cannot be read or written, 6 a fault of pack.py"""


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    """Run the command line in the checkout `root` (default: this one). Returns the exit code."""
    return run_program(lambda: _run(arguments, root))


def _run(arguments: Sequence[str] | None, root: Path | None) -> int:
    options = _parser().parse_args(arguments)
    if options.all and options.rooms:
        raise UsageError(f"expected rooms or --all, got --all and {', '.join(options.rooms)}")
    workspace = load_workspace(root)
    rooms = list(dict.fromkeys(options.rooms)) or list(workspace.rooms)
    codes = [_handle(workspace, room, options, len(rooms) == 1) for room in rooms]
    return next((code for code in codes if code != ExitCode.OK), ExitCode.OK)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pack.py",
        description="Pack rooms of solutions/ into one official solution.json each.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="default: all rooms")
    parser.add_argument("--all", action="store_true", help="all rooms of config.toml")
    parser.add_argument("--route", choices=[PORTABLE], help="leave the native route out")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="compare with what lies there; no write")
    mode.add_argument("--hash", action="store_true", help="print the content hash; no write")
    return parser


def _handle(workspace: Workspace, room: str, options: argparse.Namespace, is_alone: bool) -> int:
    """Pack one room and do what was asked. A bad room does not stop the others."""
    try:
        packed = pack(workspace, room, options.route)
        validate(packed)
        if options.hash:
            print(packed.sha256 if is_alone else f"{room} {packed.sha256}")
        elif options.check:
            return _check(workspace, room, packed)
        else:
            label = write(packed).relative_to(workspace.root).as_posix()
            print(f"{packed.name}: {len(packed.sources)} sources -> {label}")
    except HarnessError as error:
        return _report(error)
    return ExitCode.OK


def _check(workspace: Workspace, room: str, packed: Packed) -> int:
    label = packed.path.relative_to(workspace.root).as_posix()
    if not packed.path.exists():
        print(f"{packed.name}: packs; {label} is not written yet")
    elif packed.path.read_bytes() == packed.text.encode():
        print(f"{packed.name}: packs; {label} is up to date")
    else:
        print(f"{packed.name}: packs; {label} holds other content, run `python pack.py {room}`")
        return ExitCode.FAILED
    return ExitCode.OK


def _report(error: HarnessError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return int(error.exit_code)
