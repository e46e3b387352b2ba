"""export: the canonical layout, whole or not at all."""

from __future__ import annotations

import json
import shutil
import types
from dataclasses import replace

import pytest

from harness import dataset
from harness.dataset import layout
from harness.errors import DatasetError, PackingError, UsageError
from tests.official_rooms import official_workspace
from tests.small_checkout import SMALL, add_room, lines_of, small_checkout

ROOMS = len(SMALL)
WORKLOADS = sum(len(positions) for positions in SMALL.values())


def fake_pack(workspace, room, route=None):
    """A packed solution in the official schema, without a kernel."""
    solution = {
        "name": f"{room}-0123abcd",
        "definition": workspace.room(room).definition,
        "author": workspace.author,
        "spec": {"language": "python", "target_hardware": ["cuda"], "entry_point": "k.py::run"},
        "sources": [{"path": "k.py", "content": "def run(*arguments):\n    pass\n"}],
    }
    return types.SimpleNamespace(name=solution["name"], text=json.dumps(solution))


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.setattr(layout.packing, "pack", fake_pack)
    return small_checkout(tmp_path / "checkout")


def names(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_export_is_canonical_and_complete(small, tmp_path):
    report = dataset.export(small, small.root, tmp_path / "out")
    assert report.directory == tmp_path / "out"
    assert (report.definitions, report.solutions, report.blobs) == (ROOMS, ROOMS, WORKLOADS)
    expected = {"workloads/blobs.sha256"}
    for room in small.rooms.values():
        place = f"{room.op_type}/{room.definition}"
        expected |= {f"definitions/{place}.json", f"workloads/{place}.jsonl"}
        expected.add(f"solutions/{small.author}/{place}/{room.name}-0123abcd.json")
        for row in dataset.read_workloads(small.root, room):
            expected.add(f"blob/workloads/{place}/{room.definition}_{row.uuid}.safetensors")
    assert set(names(tmp_path / "out")) == expected
    assert names(tmp_path) == sorted(
        [*(f"out/{name}" for name in expected), *(f"checkout/{n}" for n in names(small.root))]
    )


def test_rooms_of_one_definition_export_it_once_and_each_its_solution(small, tmp_path):
    two = add_room(small.root, "my_decode", "gdn_decode")
    report = dataset.export(two, two.root, tmp_path / "out")
    assert (report.definitions, report.workloads, report.blobs) == (ROOMS, WORKLOADS, WORKLOADS)
    assert report.solutions == ROOMS + 1
    place = f"gdn/{two.room('gdn_decode').definition}"
    folder = tmp_path / "out" / "solutions" / two.author / place
    assert sorted(path.name for path in folder.iterdir()) == [
        "gdn_decode-0123abcd.json",
        "my_decode-0123abcd.json",
    ]


def test_rooms_of_one_definition_export_what_any_of_them_was_asked_for(small, tmp_path):
    first = replace(small.room("gdn_decode"), smoke=("901e5104",))
    second = replace(first, name="my_decode", smoke=("a5714b69",))
    two = replace(small, rooms={room.name: room for room in (first, second)})
    report = dataset.export(two, two.root, tmp_path / "out", "smoke")
    assert (report.definitions, report.workloads, report.solutions) == (1, 2, 2)
    rows = dataset.read_workloads(tmp_path / "out", first)
    assert [row.uuid[:8] for row in rows] == ["901e5104", "a5714b69"]


def test_an_export_is_the_same_content_and_not_a_checkout(small, tmp_path):
    out = dataset.export(small, small.root, tmp_path / "out").directory
    assert not dataset.is_checkout(out)
    assert dataset.verify(out, small.rooms.values()).faults == ()
    for room in small.rooms.values():
        assert dataset.content_sha256(out, room) == dataset.content_sha256(small.root, room)


def test_flashinfer_bench_loads_an_export(small, tmp_path):
    from flashinfer_bench.data import TraceSet

    out = dataset.export(small, small.root, tmp_path / "out").directory
    loaded = TraceSet.from_path(str(out))
    definitions = {room.definition for room in small.rooms.values()}
    assert set(loaded.definitions) == set(loaded.solutions) == set(loaded.workloads) == definitions
    assert sum(len(rows) for rows in loaded.workloads.values()) == WORKLOADS
    for rows in loaded.workloads.values():
        for trace in rows:
            for spec in trace.workload.inputs.values():
                if spec.type == "safetensors":
                    assert (out / spec.path).is_file()


def test_export_of_another_set_normalises_paths_and_changes_nothing(small, tmp_path):
    official = tmp_path / "official"
    dataset.make(small.root, small.rooms, jobs=1)
    shutil.copytree(small.root, official)
    (official / "config.toml").unlink()
    (official / "workloads" / "blobs.sha256").unlink()
    for path in official.glob("workloads/*/*.jsonl"):
        path.write_text(path.read_text().replace('"blob/', '"./blob/'))
    before = names(official)
    out = dataset.export(small, official, tmp_path / "out").directory
    assert names(official) == before
    assert not (out / "workloads" / "blobs.sha256").exists()
    for name in SMALL:
        path = out / "workloads" / small.room(name).op_type / f"{small.room(name).definition}.jsonl"
        expected = [json.loads(line) for line in lines_of(small, name)]
        assert [json.loads(line) for line in path.read_text().splitlines()] == expected


def test_a_folder_in_use_is_refused(small, tmp_path):
    used = tmp_path / "used"
    used.mkdir()
    (used / "thesis.txt").write_text("mine")
    for folder in (used, used / "thesis.txt", small.root):
        with pytest.raises(UsageError, match="new or empty folder"):
            dataset.export(small, small.root, folder)
    assert names(used) == ["thesis.txt"]
    assert not (small.root / "blob").exists()


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_made(small, tmp_path):
    (tmp_path / "file").write_text("")
    shutil.rmtree(small.root / "blob", ignore_errors=True)
    with pytest.raises(DatasetError, match="cannot be written"):
        dataset.export(small, small.root, tmp_path / "file" / "set")
    assert not (small.root / "blob").exists()


def test_an_empty_folder_is_taken(small, tmp_path):
    (tmp_path / "empty").mkdir()
    report = dataset.export(small, small.root, tmp_path / "empty", "b8f4f012 e05c6c03")
    assert (report.definitions, report.workloads) == (1, 2)
    manifest = (tmp_path / "empty" / "workloads" / "blobs.sha256").read_text()
    assert len(manifest.splitlines()) == 2


def test_a_room_that_does_not_pack_leaves_nothing(small, tmp_path, monkeypatch):
    def refuse(workspace, room, route=None):
        raise PackingError(f"{room}: no kernel")

    monkeypatch.setattr(layout.packing, "pack", refuse)
    with pytest.raises(PackingError):
        dataset.export(small, small.root, tmp_path / "deep" / "out")
    assert not (tmp_path / "deep").exists() and not (small.root / "blob").exists()


def test_a_blob_that_cannot_be_copied_leaves_nothing(small, tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(layout.shutil, "copyfile", refuse)
    with pytest.raises(DatasetError, match="No space left"):
        dataset.export(small, small.root, tmp_path / "deep" / "out")
    assert list((tmp_path / "deep").iterdir()) == []


def test_a_set_whose_blobs_lie_elsewhere_is_refused(small, tmp_path):
    dataset.make(small.root, small.rooms, jobs=1)
    official = tmp_path / "official"
    shutil.copytree(small.root, official)
    (official / "config.toml").unlink()
    for path in official.glob("workloads/moe/*.jsonl"):
        path.write_text(path.read_text().replace('"blob/', f'"{small.root}/blob/'))
    room = small.room("moe")
    dataset.ensure_blobs(official, room, dataset.read_workloads(official, room))
    with pytest.raises(DatasetError, match="cannot travel"):
        dataset.export(small, official, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_real_room_travels_with_its_hash(tmp_path):
    from flashinfer_bench.data import Solution

    from harness.packing import pack

    workspace = official_workspace()
    small = small_checkout(tmp_path / "checkout")
    room = workspace.room("gdn_decode")
    uuids = [row.uuid for row in dataset.read_workloads(small.root, room)]
    out = dataset.export(workspace, small.root, tmp_path / "out", uuids).directory
    packed = pack(workspace, room.name)
    folder = out / "solutions" / workspace.author / room.op_type / room.definition
    (path,) = folder.iterdir()
    assert path.name == f"{packed.name}.json"
    assert Solution.model_validate_json(path.read_text()).name == packed.name
