"""A search that is killed at any write or measurement, and resumed, ends as an unbroken one."""

import os
import shutil
from pathlib import Path

import pytest

from harness.controller import archive as archiving
from harness.errors import HarnessError
from harness.search import candidates, promotion
from harness.search.planning import Settings
from tests.unit.search_room import SearchRoom, analyse_once, by_block

SETTINGS = Settings(rounds=3, candidates=3, islands=2)


class Killed(BaseException):
    """As SIGKILL: nobody catches it."""


class Clock:
    """Counts effects, and kills before or after one of them."""

    def __init__(self, at=None):
        self.at, self.count = at, 0

    def tick(self):
        self.count += 1
        if self.count == self.at:
            raise Killed

    def around(self, function):
        def counted(*arguments, **keywords):
            self.tick()
            result = function(*arguments, **keywords)
            self.tick()
            return result

        return counted


@pytest.fixture
def effects(monkeypatch):
    """Installs a clock around every write of a search, and hands out fresh ones."""
    writes = [
        (archiving, "append_line"),
        (archiving, "write_atomically"),
        (candidates, "write_atomically"),
        (promotion, "write_atomically"),
    ]
    originals = {(module, name): getattr(module, name) for module, name in writes}
    replaced = os.replace
    analyse_once(monkeypatch)

    def install(at=None):
        clock = Clock(at)
        for (module, name), original in originals.items():
            monkeypatch.setattr(module, name, clock.around(original))

        class Replace:
            """os as promotion sees it: its rename counts as well."""

            replace = staticmethod(clock.around(replaced))

        monkeypatch.setattr(promotion, "os", Replace)
        return clock

    return install


@pytest.fixture
def whole(tmp_path, effects):
    """An unbroken run: what it leaves, and how many effects it has."""
    room = SearchRoom(tmp_path / "whole", settings=SETTINGS)
    clock = effects()
    measure = room.evaluator.measure
    room.evaluator.measure = clock.around(measure)
    room.run()
    assert "promote globally" in room.archive.path("decisions").read_text()
    return room.snapshot(), clock.count


def killed_at(path: Path, effects, number: int, resume: bool = True) -> SearchRoom:
    room = SearchRoom(path, settings=SETTINGS)
    clock = effects(number)
    plain = room.evaluator.measure
    room.evaluator.measure = clock.around(plain)
    with pytest.raises(Killed):
        room.run()
    effects()
    room.evaluator.measure = plain
    if resume:
        room.run(resume=bool(room.archive.runs()))
    return room


def require_same(tmp_path, effects, whole, numbers):
    for number in numbers:
        path = tmp_path / "killed"
        room = killed_at(path, effects, number)
        assert room.snapshot() == whole[0], f"killed at effect {number} of {whole[1]}"
        shutil.rmtree(path)


def test_a_kill_at_some_steps_changes_nothing(tmp_path, effects, whole):
    last = range(whole[1] - 4, whole[1] + 1)  # the memory line, then the manifest
    require_same(tmp_path, effects, whole, [*range(3, whole[1] - 4, 13), *last])


@pytest.mark.slow
def test_a_kill_at_any_step_changes_nothing(tmp_path, effects, whole):
    assert whole[1] > 60
    require_same(tmp_path, effects, whole, range(1, whole[1] + 1))


def test_two_kills_change_nothing(tmp_path, effects, whole):
    expected, count = whole
    for number in range(count // 3, count, 31):
        room = SearchRoom(tmp_path / f"twice-{number}", settings=SETTINGS, script=by_block)
        plain = room.evaluator.measure
        for at in (number // 2, number // 3):
            clock = effects(at)
            room.evaluator.measure = clock.around(plain)
            with pytest.raises(Killed):
                room.run(resume=bool(room.archive.runs()))
        effects()
        room.evaluator.measure = plain
        room.run(resume=bool(room.archive.runs()))
        assert room.snapshot() == expected


def test_a_kill_between_two_files_of_a_promotion_is_finished_on_resume(tmp_path, effects, whole):
    """The tree is edited last: until the first rename it is the baseline byte for byte."""
    room = SearchRoom(tmp_path / "tree", settings=SETTINGS)
    before = room.kernel
    renames = []

    class Replace:
        @staticmethod
        def replace(source, target):
            renames.append(target)
            raise Killed

    promotion_os = promotion.os
    promotion.os = Replace
    try:
        with pytest.raises(Killed):
            room.run()
    finally:
        promotion.os = promotion_os
    assert renames and room.kernel == before
    effects()
    room.run(resume=True)
    assert room.snapshot() == whole[0]


@pytest.mark.parametrize("at", [0.3, 0.6, 0.9])
def test_results_and_sources_alone_are_enough_to_go_on_on_another_machine(
    tmp_path, effects, whole, at
):
    here = killed_at(tmp_path / "here", effects, int(at * whole[1]), resume=False)
    there = SearchRoom(tmp_path / "there", settings=SETTINGS)
    for folder in ("results", "solutions"):
        shutil.copytree(here.root / folder, there.root / folder, dirs_exist_ok=True)
    assert not (there.root / "traces" / "search").exists()
    there.run(resume=bool(there.archive.runs()))
    assert there.snapshot() == whole[0]


def test_a_candidate_that_no_longer_packs_alike_is_not_taken_for_what_was_measured(tmp_path):
    room = SearchRoom(tmp_path, settings=SETTINGS)
    room.run()
    shutil.rmtree(room.root / "traces")
    (room.root / "solutions" / "common" / "shelf.py").write_text("def shared(*_):\n    return 1\n")
    with pytest.raises(HarnessError, match="shelf"):
        room.search().store.get(str(next(iter(room.archive.lines("decisions").values()))["sha256"]))


def test_every_run_keeps_its_manifest(tmp_path, effects):
    room = SearchRoom(tmp_path, settings=SETTINGS)
    room.run()
    first = room.manifest.read_bytes()
    room.run()
    assert room.archive.runs() == ["r001", "r002"]
    assert room.archive.manifest_path("r001").read_bytes() == first
