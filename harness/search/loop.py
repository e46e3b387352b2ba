"""Rounds until the supervisor stops them, with a manifest after each.

A run is named by its number in the room. Its manifest holds the settings, the next round, the
population and the baseline; the lines of the archive hold everything else, so that `resume` after a
kill at any point does what is left and nothing twice. Manifests of earlier runs stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from harness.controller.archive import ATTEMPTS, Archive, run_number
from harness.controller.decision import STAGES
from harness.errors import UsageError
from harness.packing import pack
from harness.records.strict_json import Fields
from harness.search.planning import Position, Search, Settings
from harness.search.population import Population
from harness.search.rounds import run_round

GIVEN_UP = "given up with --abandon"


def run_search(search: Search, *, resume: bool = False, abandon: bool = False) -> Position:
    """Rounds until there is a reason to stop; the last position holds it. Raises HarnessError."""
    position, search = _start(search, resume, abandon)
    while position.stop is None:
        position = run_round(search, position)
        search.archive.write_manifest(_describe(search, position))
    search.note(f"{search.room}: run {position.run} ends: {position.stop}")
    return position


def _start(search: Search, resume: bool, abandon: bool) -> tuple[Position, Search]:
    """The position to go on from, and the search with the settings that belong to it."""
    if resume:
        return _continue(search)
    archive = search.archive
    runs = archive.runs()
    manifest = archive.read_manifest(runs[-1]) if runs else None
    if manifest is not None and manifest.get("stop") is None:
        if not abandon:
            raise UsageError(
                f"{search.room}: run {runs[-1]} was not finished; continue it with --resume, or "
                "give it up with --abandon"
            )
        archive.write_manifest({**manifest, "stop": GIVEN_UP})
    packed = pack(search.workspace, search.room)
    archive.keep_baseline(packed.sha256, packed.text)
    search.store.put(packed)
    population = Population(search.settings.islands)
    position = Position(_next_run(archive), 0, packed.sha256, 1.0, population)
    archive.write_manifest(_describe(search, position))
    return position, search


def settings_to_resume(archive: Archive, until: str) -> Settings:
    """Those of the room's last run, which `resume` goes on with: who measures needs its seed.

    until: the last stage that is asked for now. Raises UsageError where there is no run, or one
    that is to go farther or less far, RecordError where its manifest is damaged.
    """
    return _read_last(archive, until)[1]


def _continue(search: Search) -> tuple[Position, Search]:
    position, settings, proposer = _read_last(search.archive, search.settings.until)
    if proposer != search.proposer.describe():
        raise UsageError(
            f"{search.room}: run {position.run} was proposed by {proposer}, got "
            f"{search.proposer.describe()}; resume it as it was started, or use --abandon"
        )
    return position, replace(search, settings=settings)


def _read_last(archive: Archive, until: str) -> tuple[Position, Settings, str]:
    runs = archive.runs()
    manifest = archive.read_manifest(runs[-1]) if runs else None
    if manifest is None:
        raise UsageError(f"{archive.room}: no run to resume; start one without --resume")
    position, settings, proposer = read_manifest(manifest, str(archive.manifest_path(runs[-1])))
    if settings.until != until:
        raise UsageError(
            f"{archive.room}: run {position.run} goes as far as {settings.until}, got {until}; "
            "resume it by the command that began it, or give it up with --abandon"
        )
    return position, settings, proposer


def read_manifest(manifest: Mapping[str, Any], source: str) -> tuple[Position, Settings, str]:
    """Position, settings and proposer of a manifest. Raises RecordError naming file and key."""
    table = Fields(source, "", dict(manifest))
    kept = table.object("settings")
    settings = Settings(
        rounds=kept.count("rounds", 1),
        candidates=kept.count("candidates", 1),
        sweeps=kept.count("sweeps", 1),
        islands=kept.count("islands", 1),
        seed=kept.count("seed"),
        device_s=None if kept.is_null("device_s") else kept.number("device_s", 0.0),
        until=kept.text("until"),
    )
    if settings.until not in STAGES:
        raise kept.fail("until", f"one of {', '.join(STAGES)}", settings.until)
    kept.done()
    position = Position(
        run=table.text("run"),
        next_round=table.count("next_round"),
        baseline_sha256=table.text("baseline_sha256"),
        speedup=table.number("speedup", 0.0),
        population=Population.from_json(settings.islands, table.take("members", list), source),
        stop=None if table.is_null("stop") else table.text("stop"),
    )
    return position, settings, table.text("proposer")


def _describe(search: Search, position: Position) -> dict[str, Any]:
    return {
        "run": position.run,
        "room": search.room,
        "proposer": search.proposer.describe(),
        "settings": asdict(search.settings),
        "next_round": position.next_round,
        "baseline_sha256": position.baseline_sha256,
        "speedup": position.speedup,
        "stop": position.stop,
        "members": position.population.to_json(),
    }


def _next_run(archive: Archive) -> str:
    """One more than the largest number that the room has used."""
    used = [str(line["round"]).partition("/")[0] for line in archive.lines(ATTEMPTS).values()]
    return f"r{max(map(run_number, [*used, *archive.runs()]), default=0) + 1:03d}"
