"""make, ensure_blobs and verify on small checkouts and on sets that are not ours."""

from __future__ import annotations

import json
import os
import shutil
import sys

import pytest

from harness import dataset
from harness.dataset import generation
from harness.dataset.blobs import FaultKind
from harness.dataset.manifest import read_manifest
from harness.errors import DatasetError, InfrastructureFailure
from tests.small_checkout import SMALL, add_room, small_checkout, workload_file

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
BLOBS = sum(len(positions) for positions in SMALL.values())


@pytest.fixture
def small(tmp_path):
    return small_checkout(tmp_path / "checkout")


@pytest.fixture
def whole(small):
    dataset.make(small.root, small.rooms, jobs=1)
    return small


def first_blob(workspace, room):
    row = dataset.read_workloads(workspace.root, workspace.room(room))[0]
    return workspace.root / row.blob_paths[0]


def ensure(workspace, room):
    entry = workspace.room(room)
    rows = dataset.read_workloads(workspace.root, entry)
    dataset.ensure_blobs(workspace.root, entry, rows)


def verify(workspace):
    return dataset.verify(workspace.root, workspace.rooms.values())


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_rooms_of_one_definition_share_its_blobs(small, tmp_path):
    two = add_room(small.root, "my_decode", "gdn_decode")
    assert len(two.rooms) == len(small.rooms) + 1
    manifest = read_manifest(small.root)
    assert dataset.make(two.root, two.rooms, jobs=1).made == BLOBS
    report = dataset.make(two.root, two.rooms, jobs=1, update_manifest=True)
    assert (report.made, read_manifest(two.root)) == (BLOBS, manifest)
    found = verify(two)
    assert (found.faults, found.checked, found.hashed) == ((), BLOBS, BLOBS)
    first_blob(two, "my_decode").unlink()
    assert [fault.path for fault in verify(two).faults] == [first_blob(two, "gdn_decode")]


def test_make_makes_everything_once(small):
    seen = []
    report = dataset.make(small.root, small.rooms, jobs=1, progress=seen.append)
    assert (report.made, report.kept) == (BLOBS, 0)
    assert [made.index for made in seen] == list(range(1, BLOBS + 1))
    assert {made.total for made in seen} == {BLOBS}
    manifest = read_manifest(small.root)
    assert {str(made.path.relative_to(small.root)): made.sha256 for made in seen} == manifest
    assert len(files(small.root / "blob")) == BLOBS
    verdict = verify(small)
    assert (verdict.faults, verdict.checked, verdict.hashed) == ((), BLOBS, BLOBS)

    times = [path.stat().st_mtime_ns for path in files(small.root / "blob")]
    again = dataset.make(small.root, small.rooms, jobs=1, progress=seen.append)
    assert (again.made, again.kept, len(seen)) == (0, BLOBS, BLOBS)
    assert times == [path.stat().st_mtime_ns for path in files(small.root / "blob")]


def test_make_resumes(whole):
    content = first_blob(whole, "moe").read_bytes()
    first_blob(whole, "moe").unlink()
    first_blob(whole, "gdn_decode").write_bytes(LFS)
    first_blob(whole, "gdn_prefill").write_bytes(b"")
    report = dataset.make(whole.root, whole.rooms, jobs=1)
    assert (report.made, report.kept) == (3, BLOBS - 3)
    assert first_blob(whole, "moe").read_bytes() == content
    assert verify(whole).faults == ()


def test_an_interrupt_leaves_whole_files_only(small):
    class Interrupted(Exception):
        pass

    def stop(made):
        if made.index == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        dataset.make(small.root, small.rooms, jobs=1, progress=stop)
    assert len(files(small.root / "blob")) == 3
    assert dataset.make(small.root, small.rooms, jobs=1).kept == 3


def test_processes_make_the_same_bytes(small, monkeypatch):
    monkeypatch.setattr(generation, "_INLINE_BYTES", 0)
    report = dataset.make(small.root, small.rooms, jobs=2)
    assert report.made == BLOBS
    assert verify(small).faults == ()


def test_an_error_in_a_process_is_the_users_error(small, monkeypatch):
    monkeypatch.setattr(generation, "_INLINE_BYTES", 0)
    facts = small.root / "workloads" / "facts.csv"
    facts.write_text("uuid,fact,values\n")
    with pytest.raises(DatasetError, match=r"facts\.csv"):
        dataset.make(small.root, small.rooms, jobs=2)


def test_a_process_that_dies_is_no_verdict(small, monkeypatch):
    monkeypatch.setattr(generation, "_INLINE_BYTES", 0)
    monkeypatch.setattr(generation, "_leave_interrupts_to_parent", os.abort)
    with pytest.raises(InfrastructureFailure, match="--jobs 1"):
        dataset.make(small.root, small.rooms, jobs=2)


def test_values_other_than_the_manifests_fail_loudly(small):
    manifest = small.root / "workloads" / "blobs.sha256"
    text = manifest.read_text()
    manifest.write_text(("1" if text[0] == "0" else "0") + text[1:])
    with pytest.raises(DatasetError, match="the manifest says"):
        dataset.make(small.root, small.rooms, jobs=1)
    assert not first_blob(small, "moe").exists()


def test_foreign_tensors_in_the_checkout_are_not_overwritten(whole):
    first, second = (
        whole.root / row.blob_paths[0]
        for row in dataset.read_workloads(whole.root, whole.room("gdn_decode"))
    )
    shutil.copy(second, first)
    for action in (ensure_gdn, make_all):
        with pytest.raises(DatasetError, match="--remake"):
            action(whole)
        assert first.read_bytes() == second.read_bytes()
    (fault,) = verify(whole).faults
    assert fault.kind is FaultKind.WRONG_HASH
    assert dataset.make(whole.root, whole.rooms, jobs=1, remake=True).made == 1
    assert verify(whole).faults == ()


def ensure_gdn(workspace):
    ensure(workspace, "gdn_decode")


def make_all(workspace):
    dataset.make(workspace.root, workspace.rooms, jobs=1)


def test_update_manifest_restores_the_lines(small):
    manifest = small.root / "workloads" / "blobs.sha256"
    text = manifest.read_text()
    manifest.unlink()
    rooms = ("moe", "gdn_decode")
    rows = {name: dataset.read_workloads(small.root, small.room(name)) for name in rooms}
    dataset.make(small.root, small.rooms, rows, jobs=1, update_manifest=True)
    assert len(read_manifest(small.root)) == 4
    dataset.make(small.root, small.rooms, jobs=1, update_manifest=True)
    assert manifest.read_text() == text


def test_ensure_blobs_makes_one_room(small):
    ensure(small, "dsa_attention")
    assert len(files(small.root / "blob")) == len(SMALL["dsa_attention"])
    ensure(small, "dsa_attention")


def test_a_path_of_another_form_is_not_written(small):
    path = workload_file(small, "moe")
    path.write_text(path.read_text().replace("blob/workloads/moe", "blob/../../moe"))
    with pytest.raises(DatasetError, match="only that place is written"):
        ensure(small, "moe")


def test_a_full_disk_is_named_before_anything_is_written(small, monkeypatch):
    usage = shutil.disk_usage(small.root)._replace(free=1000)
    monkeypatch.setattr(generation.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DatasetError, match="GB free"):
        make_all(small)
    assert not (small.root / "blob").exists()


def test_a_place_that_cannot_be_written_is_named(small):
    (small.root / "blob").write_text("in the way")
    with pytest.raises(DatasetError, match="cannot be written"):
        make_all(small)
    assert {fault.kind for fault in verify(small).faults} == {FaultKind.UNREADABLE}


def test_leftovers_of_killed_writers_go_after_an_hour(small):
    folder = first_blob(small, "moe").parent
    folder.mkdir(parents=True)
    name = first_blob(small, "moe").name
    old, fresh = (folder / f".{name}.partial-{letters}" for letters in ("old", "fresh"))
    other = folder / "notes.txt"
    for path in (old, fresh, other):
        path.write_text("half")
    for path in (old, other):
        os.utime(path, (0, 0))
    make_all(small)
    assert not old.exists() and fresh.exists() and other.exists()


def test_definition_and_generator_must_agree(small):
    entry = small.room("dsa_attention")
    path = small.root / "definitions" / entry.op_type / f"{entry.definition}.json"
    definition = json.loads(path.read_text())
    definition["inputs"]["sparse_indices"]["dtype"] = "int64"
    path.write_text(json.dumps(definition))
    with pytest.raises(DatasetError, match="disagree"):
        ensure(small, "dsa_attention")


# --- sets that are not ours --------------------------------------------------------------------


@pytest.fixture
def official(whole, tmp_path):
    """A stand-in for the official set: our layout, dotted paths, other tensors, no manifest."""
    root = tmp_path / "official"
    for folder in ("definitions", "workloads", "blob"):
        shutil.copytree(whole.root / folder, root / folder)
    for name in ("blobs.sha256", "facts.csv"):
        (root / "workloads" / name).unlink()
    for room in whole.rooms:
        path = root / workload_file(whole, room).relative_to(whole.root)
        path.write_text(path.read_text().replace('"blob/', '"./blob/'))
    blobs = files(root / "blob")
    for path in blobs:
        content = bytearray(path.read_bytes())
        content[-1] ^= 0x40
        path.write_bytes(content)
    return root


def snapshot(folder):
    return {path: path.read_bytes() for path in files(folder)}


def test_an_official_set_is_used_as_it_is(official, whole):
    before = snapshot(official)
    for room in whole.rooms.values():
        dataset.ensure_blobs(official, room, dataset.read_workloads(official, room))
    verdict = dataset.verify(official, whole.rooms.values())
    assert (verdict.faults, verdict.checked, verdict.hashed) == ((), BLOBS, 0)
    assert snapshot(official) == before


def test_an_incomplete_official_set_is_never_completed(official, whole):
    room = whole.room("moe")
    rows = dataset.read_workloads(official, room)
    (official / rows[0].blob_paths[0]).unlink()
    (official / rows[1].blob_paths[0]).write_bytes(LFS)
    before = snapshot(official)
    with pytest.raises(DatasetError, match="never written into") as caught:
        dataset.ensure_blobs(official, room, rows)
    assert "2 blob(s)" in str(caught.value)
    dataset.ensure_blobs(official, room, [])
    with pytest.raises(DatasetError, match="checkout only"):
        dataset.make(official, whole.rooms)
    faults = dataset.verify(official, whole.rooms.values()).faults
    assert [fault.kind for fault in faults] == [FaultKind.MISSING, FaultKind.LFS_POINTER]
    assert snapshot(official) == before


def test_an_export_must_hold_what_its_manifest_says(official, whole):
    """The blobs differ from the checkout's in one bit each: no header tells."""
    shutil.copy(whole.root / "workloads" / "blobs.sha256", official / "workloads")
    room = whole.room("moe")
    rows = dataset.read_workloads(official, room)
    with pytest.raises(DatasetError, match=r"2 blob.*wrong hash.*dataset export DIR"):
        dataset.ensure_blobs(official, room, rows)
    for row in rows:
        shutil.copy(whole.root / row.blob_paths[0], official / row.blob_paths[0])
    dataset.ensure_blobs(official, room, rows)


def test_a_line_that_the_manifest_lacks_is_named_before_anything_is_made(small):
    manifest = small.root / "workloads" / "blobs.sha256"
    first, *others = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join(others))
    with pytest.raises(DatasetError, match=f"expected a line for {first.split()[1]}"):
        ensure(small, "moe")
    assert not (small.root / "blob").exists()


def test_official_and_generated_content_are_told_apart(official, whole):
    room = whole.room("gdn_prefill")
    assert dataset.content_sha256(official, room) != dataset.content_sha256(whole.root, room)


def test_progress_is_one_plain_line_a_room_off_a_terminal(small, capsys):
    from harness.dataset.progress import show_progress

    seen = []
    with show_progress(sys.stdout) as progress:
        dataset.make(
            small.root,
            small.rooms,
            jobs=1,
            progress=lambda made: progress(made) or seen.append(made),
        )
    lines = capsys.readouterr().out.splitlines()
    assert len(seen) == BLOBS > len(lines) == len({made.room for made in seen})
    for line in lines:
        own = [made for made in seen if made.room == line.split(":")[0]]
        size_mb = sum(made.size_bytes for made in own) / 1e6
        assert f": {len(own)} blob" in line and f" made, {size_mb:.1f} MB, " in line


def test_a_long_make_says_that_it_goes_on_and_an_interrupted_one_what_it_made(
    small, capsys, monkeypatch
):
    from harness.dataset import progress as module

    def stop_at_three(made):
        progress(made)
        if made.index == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "STILL_HERE_S", 0.0)
    with pytest.raises(KeyboardInterrupt), module.show_progress(sys.stdout) as progress:
        dataset.make(small.root, small.rooms, jobs=1, progress=stop_at_three)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"{n} of {BLOBS} blobs" for n in (1, 2, 3)]
    assert sum(int(line.split(": ")[1].split()[0]) for line in lines[3:]) == 3


def test_progress_is_a_bar_on_a_terminal(small):
    import io

    from harness.dataset.progress import show_progress

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    with show_progress(screen) as progress:
        dataset.make(small.root, small.rooms, jobs=1, progress=progress)
    assert f"{BLOBS}/{BLOBS}" in screen.getvalue()
