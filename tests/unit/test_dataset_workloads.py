"""The committed workload files, and reading workload files of any official-layout root."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import warnings

import pytest

from harness import dataset
from harness.config import load_workspace
from harness.dataset.facts import read_facts
from harness.errors import DatasetError
from tests.small_checkout import definition_file, lines_of, small_checkout, workload_file

WORKSPACE = load_workspace()
ROOT = WORKSPACE.root
COUNTS = {
    "moe": 19,
    "dsa_indexer": 128,
    "dsa_attention": 23,
    "gdn_decode": 54,
    "gdn_prefill": 100,
}
FILES = {
    "moe": {"routing_logits", "routing_bias"},
    "dsa_indexer": {"seq_lens", "block_table"},
    "dsa_attention": {"sparse_indices"},
    "gdn_decode": {"q", "k", "v", "state", "A_log", "a", "dt_bias", "b"},
    "gdn_prefill": {"q", "k", "v", "state", "A_log", "a", "dt_bias", "b", "cu_seqlens"},
}
SCALARS = {
    "moe": {"local_expert_offset", "routed_scaling_factor"},
    "dsa_indexer": set(),
    "dsa_attention": {"sm_scale"},
    "gdn_decode": {"scale"},
    "gdn_prefill": {"scale"},
}


def read(room):
    return dataset.read_workloads(ROOT, WORKSPACE.room(room))


@pytest.mark.parametrize("room", COUNTS)
def test_official_count_and_input_kinds(room):
    rows = read(room)
    entry = WORKSPACE.room(room)
    definition = dataset.read_definition(ROOT, entry)
    assert len(rows) == COUNTS[room]
    for row in rows:
        kinds = {name: spec["type"] for name, spec in row.inputs.items()}
        assert set(kinds) == set(definition["inputs"])
        assert {name for name, kind in kinds.items() if kind == "safetensors"} == FILES[room]
        assert {name for name, kind in kinds.items() if kind == "scalar"} == SCALARS[room]
        assert all(row.inputs[name]["tensor_key"] == name for name in FILES[room])
        variable = {name for name, axis in definition["axes"].items() if axis["type"] == "var"}
        assert set(row.axes) == variable
        stem = f"{entry.definition}_{row.uuid}.safetensors"
        assert row.blob_paths == (f"blob/workloads/{entry.op_type}/{entry.definition}/{stem}",)


def test_uuids_are_distinct_and_of_the_official_forms():
    uuids = [row.uuid for room in COUNTS for row in read(room)]
    assert len(set(uuids)) == 324
    assert {len(row.uuid) for row in read("dsa_attention")} == {32}
    assert {len(row.uuid) for row in read("dsa_indexer")} == {36}


def test_moe_rows_are_the_official_ones():
    table = [
        (row.uuid[:8], row.axes["seq_len"], row.inputs["local_expert_offset"]["value"])
        for row in read("moe")
    ]
    assert table[:3] == [("b8f4f012", 7, 192), ("e05c6c03", 1, 32), ("6230e838", 32, 32)]
    assert ("5e8dc11c", 14107, 32) in table
    assert table[-1] == ("f7d6ac7c", 52, 160)
    assert all(row.inputs["routed_scaling_factor"]["value"] == 2.5 for row in read("moe"))
    hits = [read_facts(ROOT)[row.uuid]["experts_hit"] for row in read("moe")]
    assert [hit for (hit,) in hits[:10]] == [7, 2, 25, 32, 32, 15, 5, 15, 32, 32]


def test_indexer_lengths_fit_their_axes():
    facts = read_facts(ROOT)
    lengths = [facts[row.uuid]["seq_lens"] for row in read("dsa_indexer")]
    for row, seq_lens in zip(read("dsa_indexer"), lengths, strict=True):
        assert row.axes["num_pages"] == 11923
        assert row.axes["batch_size"] == len(seq_lens)
        assert row.axes["max_num_pages"] == math.ceil(max(seq_lens) / 64)
    flat = sorted(length for seq_lens in lengths for length in seq_lens)
    assert (len(flat), flat[0], flat[-1], flat[len(flat) // 2]) == (1879, 1, 5806, 94)
    assert flat.count(1) == 163
    assert sum(max(seq_lens) > 2048 for seq_lens in lengths) == 59


def test_attention_counts_fit_their_axes():
    facts = read_facts(ROOT)
    counts = [facts[row.uuid]["valid_counts"] for row in read("dsa_attention")]
    for row, valid in zip(read("dsa_attention"), counts, strict=True):
        assert row.axes["num_pages"] == 8462
        assert row.axes["num_tokens"] == len(valid)
        assert row.inputs["sm_scale"]["value"] == 0.1352337788608801
    flat = sorted(count for valid in counts for count in valid)
    assert (len(flat), flat[len(flat) // 2], flat[-1], flat.count(2048)) == (120, 33, 2048, 4)


def test_gdn_axes():
    batch_sizes = [row.axes["batch_size"] for row in read("gdn_decode")]
    expected = {1: 10, 4: 8, 8: 7, 16: 7, 32: 7, 48: 7, 64: 8}
    assert {size: batch_sizes.count(size) for size in dict.fromkeys(batch_sizes)} == expected
    prefill = read("gdn_prefill")
    totals = [row.axes["total_seq_len"] for row in prefill]
    assert (min(totals), max(totals), totals.count(8192)) == (6, 8192, 16)
    assert all(row.axes["len_cu_seqlens"] == row.axes["num_seqs"] + 1 for row in prefill)
    scales = {row.inputs["scale"]["value"] for row in [*read("gdn_decode"), *prefill]}
    assert scales == {0.08838834764831843}


def test_flashinfer_bench_reads_every_line_as_a_workload():
    from flashinfer_bench.data import Trace

    for room in COUNTS:
        for line, row in zip(lines_of(WORKSPACE, room), read(room), strict=True):
            trace = Trace.model_validate_json(line)
            assert trace.is_workload_trace()
            assert trace.workload.uuid == row.uuid
            assert dict(trace.workload.axes) == dict(row.axes)


# --- reading -----------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path):
    return small_checkout(tmp_path / "checkout")


def test_torn_last_line_costs_one_row_and_one_warning(small):
    path = workload_file(small, "dsa_indexer")
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    with pytest.warns(dataset.TornLineWarning, match=":3: ") as caught:
        rows = dataset.read_workloads(small.root, small.room("dsa_indexer"))
    assert len(caught) == 1
    assert [row.uuid for row in rows] == [row.uuid for row in read("dsa_indexer")[:2]]


def test_missing_final_newline_is_not_a_torn_line(small):
    path = workload_file(small, "dsa_indexer")
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(dataset.read_workloads(small.root, small.room("dsa_indexer"))) == 3


def _edit(line, change):
    document = json.loads(line)
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(definition="other"), "expected the definition"),
        (lambda d: d.update(solution="mine"), "got a trace"),
        (lambda d: d["workload"].pop("uuid"), "uuid"),
        (lambda d: d["workload"].update(uuid=7), "expected a UUID"),
        (lambda d: d["workload"]["axes"].update(batch_size=-1), "axes >= 0"),
        (lambda d: d["workload"]["axes"].update(batch_size=1.5), "axes >= 0"),
        (lambda d: d["workload"]["inputs"]["seq_lens"].pop("path"), "path"),
        (lambda d: d["workload"].update(inputs=[]), "official form"),
    ],
)
def test_damaged_line_is_named(small, change, words):
    path = workload_file(small, "dsa_indexer")
    lines = path.read_text().splitlines()
    lines[1] = _edit(lines[1], change)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DatasetError, match=words) as caught:
        dataset.read_workloads(small.root, small.room("dsa_indexer"))
    assert f"{path}:2" in str(caught.value)


def test_line_torn_in_the_middle_is_an_error(small):
    path = workload_file(small, "dsa_indexer")
    lines = path.read_text().splitlines()
    lines[0] = lines[0][:-9]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DatasetError, match=r":1: not valid JSON"):
        dataset.read_workloads(small.root, small.room("dsa_indexer"))


def test_repeated_uuid_is_an_error(small):
    path = workload_file(small, "moe")
    path.write_text(path.read_text() * 2)
    with pytest.raises(DatasetError, match="occurs twice"):
        dataset.read_workloads(small.root, small.room("moe"))


def test_workload_file_that_is_a_git_lfs_pointer(small):
    path = workload_file(small, "moe")
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(DatasetError, match="git lfs pull"):
        dataset.read_workloads(small.root, small.room("moe"))


def test_missing_and_empty_workload_files(small):
    path = workload_file(small, "moe")
    path.write_text("\n")
    with pytest.raises(DatasetError, match="empty file"):
        dataset.read_workloads(small.root, small.room("moe"))
    path.unlink()
    with pytest.raises(DatasetError, match="got none"):
        dataset.read_workloads(small.root, small.room("moe"))


def test_folders_of_another_set_do_not_matter(small):
    path = workload_file(small, "moe")
    (path.parent.parent / "elsewhere").mkdir()
    shutil.move(path, path.parent.parent / "elsewhere" / path.name)
    assert len(dataset.read_workloads(small.root, small.room("moe"))) == 2


# --- identity ----------------------------------------------------------------------------------


def test_content_hash_ignores_spelling(small):
    room = small.room("moe")
    before = dataset.content_sha256(small.root, room)
    path = workload_file(small, "moe")
    path.write_text(path.read_text().replace('"blob/', '"./blob/').replace('": ', '" :  '))
    definition = definition_file(small, "moe")
    definition.write_text(json.dumps(json.loads(definition.read_text()), indent=7))
    rows = dataset.read_workloads(small.root, room)
    assert rows[0].blob_paths == read("moe")[0].blob_paths
    assert dataset.content_sha256(small.root, room) == before


def test_content_hash_differs_by_one_uuid(small):
    room, path = small.room("moe"), workload_file(small, "moe")
    before = dataset.content_sha256(small.root, room)
    text = path.read_text()
    path.write_text(text.replace('"uuid": "b8f4f012', '"uuid": "b8f4f013'))
    assert dataset.content_sha256(small.root, room) != before
    path.write_text("".join(reversed(text.splitlines(keepends=True))))
    assert dataset.content_sha256(small.root, room) != before
    path.write_text(text)
    assert dataset.content_sha256(small.root, room) == before


def test_content_hash_covers_definition_and_blob_hashes(small):
    room = small.room("moe")
    before = dataset.content_sha256(small.root, room)
    manifest = small.root / "workloads" / "blobs.sha256"
    text = manifest.read_text()
    assert "/moe/" in text.splitlines()[0]
    manifest.write_text(("1" if text[0] == "0" else "0") + text[1:])
    changed = dataset.content_sha256(small.root, room)
    manifest.unlink()
    with pytest.raises(DatasetError, match=r"blobs\.sha256: no such file.*git checkout"):
        dataset.content_sha256(small.root, room)
    config = small.root / "config.toml"
    config.rename(config.with_suffix(".away"))  # a set that is not ours may have no manifest
    without = dataset.content_sha256(small.root, room)
    config.with_suffix(".away").rename(config)
    manifest.write_text(text)
    definition = definition_file(small, "moe")
    document = json.loads(definition.read_text())
    definition.write_text(json.dumps({**document, "reference": "def run(): pass"}))
    other = dataset.content_sha256(small.root, room)
    assert len({before, changed, without, other}) == 4


def test_content_hash_of_a_room_ignores_the_other_rooms(small):
    before = dataset.content_sha256(small.root, small.room("moe"))
    workload_file(small, "gdn_decode").unlink()
    assert dataset.content_sha256(small.root, small.room("moe")) == before


# --- place -------------------------------------------------------------------------------------


def test_locate_prefers_the_option_then_the_environment(small, tmp_path, monkeypatch):
    monkeypatch.delenv("FIB_DATASET_PATH", raising=False)
    assert dataset.locate(WORKSPACE) == ROOT
    monkeypatch.setenv("FIB_DATASET_PATH", str(small.root))
    assert dataset.locate(WORKSPACE) == small.root
    assert dataset.locate(WORKSPACE, ROOT) == ROOT
    monkeypatch.setenv("FIB_DATASET_PATH", "")
    assert dataset.locate(WORKSPACE) == ROOT


def test_locate_refuses_a_folder_without_a_data_set(tmp_path, monkeypatch):
    with pytest.raises(DatasetError, match="--dataset"):
        dataset.locate(WORKSPACE, tmp_path)
    monkeypatch.setenv("FIB_DATASET_PATH", str(tmp_path / "absent"))
    with pytest.raises(DatasetError, match="FIB_DATASET_PATH"):
        dataset.locate(WORKSPACE)
    assert not (tmp_path / "absent").exists()


def test_only_a_checkout_is_a_checkout(small):
    assert dataset.is_checkout(small.root)
    inside = small.root / "dataset"
    inside.mkdir()
    assert not dataset.is_checkout(inside)
    (small.root / "config.toml").unlink()
    assert not dataset.is_checkout(small.root)


def test_neither_torch_nor_numpy_is_loaded():
    code = (
        "import sys; from harness import dataset; from harness.config import load_workspace; "
        "w = load_workspace(); dataset.content_sha256(w.root, w.room('moe')); "
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_making_blobs_loads_no_torch():
    code = "import sys, harness.dataset.layout, harness.dataset.verification as v; " + (
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["False", "True"]
