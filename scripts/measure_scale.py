"""Measures two GPUs of this host against one, and renders docs/scale.md.

python scripts/measure_scale.py --phase two [ROOM]...    one, two, again or kill; kept at once
python scripts/measure_scale.py --write | --check        docs/scale.md from results/scale/
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from harness.cluster.scale import PHASES, render_page, rooms_of  # noqa: E402
from harness.config import load_workspace  # noqa: E402
from harness.errors import run_program  # noqa: E402
from harness.files import write_atomically  # noqa: E402

PAGE = ROOT / "docs" / "scale.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="default: all")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--phase",
        choices=PHASES,
        help="measure and keep: two GPUs, one of them, one again, or two with a worker killed",
    )
    action.add_argument("--write", action="store_true", help="render the page; run nothing")
    action.add_argument("--check", action="store_true", help="1 where the page is out of date")
    parser.add_argument("--commit", metavar="SHA", help="what a record names without a .git")
    asked = parser.parse_args()
    if asked.rooms and not asked.phase:
        parser.error(f"expected rooms with --phase alone, got {', '.join(asked.rooms)}")
    if asked.phase:
        from harness.cluster.measure import measure_phase

        print(measure_phase(load_workspace(ROOT), asked.phase, asked.rooms, asked.commit))
        return 0
    before = PAGE.read_text(encoding="utf-8")
    after = render_page(before, ROOT, rooms_of(load_workspace(ROOT)))
    if asked.write:
        write_atomically(PAGE, after)
    elif before != after:
        print(f"{PAGE}: out of date; run scripts/measure_scale.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
