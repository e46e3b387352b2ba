"""Safetensors files: as the library reads them, and every way in which one can be unfit."""

from __future__ import annotations

import hashlib
import json
import os
import struct

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from harness.dataset.blobs import (
    FaultKind,
    Tensor,
    TensorSpec,
    expected_tensors,
    find_fault,
    write_blob,
)
from harness.dataset.manifest import read_manifest, write_manifest
from harness.dataset.workloads import WorkloadRow
from harness.errors import DatasetError

TENSORS = {
    "lengths": Tensor("int32", np.arange(5, dtype=np.int32)),
    "offsets": Tensor("int64", np.arange(3, dtype=np.int64) - 1),
    "state": Tensor("float32", np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)),
    "bits": Tensor("bfloat16", np.array([[0x3F80, 0xC000]], np.uint16)),
}
EXPECTED = {
    "lengths": TensorSpec("int32", (5,)),
    "offsets": TensorSpec("int64", (3,)),
    "state": TensorSpec("float32", (2, 3)),
    "bits": TensorSpec("bfloat16", (1, 2)),
}


@pytest.fixture
def blob(tmp_path):
    path = tmp_path / "folder" / "blob.safetensors"
    write_blob(path, TENSORS, None)
    return path


def test_the_library_reads_what_we_write(blob):
    numeric = {name: TENSORS[name] for name in ("lengths", "offsets", "state")}
    other = blob.with_name("numeric.safetensors")
    write_blob(other, numeric, None)
    loaded = load_file(other)
    assert {name: loaded[name].tolist() for name in loaded} == {
        name: tensor.values.tolist() for name, tensor in numeric.items()
    }
    with safe_open(blob, framework="numpy") as file:
        assert set(file.keys()) == set(TENSORS)
        assert file.get_slice("bits").get_dtype() == "BF16"
        assert file.get_slice("bits").get_shape() == [1, 2]


def test_bfloat16_bits_arrive_in_torch(blob):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file as load_torch

    loaded = load_torch(blob)
    assert loaded["bits"].dtype == torch.bfloat16
    assert loaded["bits"].tolist() == [[1.0, -2.0]]
    assert loaded["state"].flatten().tolist() == TENSORS["state"].values.flatten().tolist()


def test_bytes_do_not_depend_on_order_or_strides(blob):
    backwards = dict(reversed(TENSORS.items()))
    spread = np.zeros((4, 6), np.float32)[::2, ::2]
    spread[:] = TENSORS["state"].values
    backwards["state"] = Tensor("float32", spread)
    other = blob.with_name("other")
    sha256 = write_blob(other, backwards, None)
    assert other.read_bytes() == blob.read_bytes()
    assert sha256 == hashlib.sha256(blob.read_bytes()).hexdigest()


def test_tensors_are_aligned(blob):
    content = blob.read_bytes()
    header_bytes = struct.unpack("<Q", content[:8])[0]
    assert header_bytes % 8 == 0
    header = json.loads(content[8 : 8 + header_bytes])
    sizes = {"F32": 4, "I32": 4, "I64": 8, "BF16": 2}
    assert all(entry["data_offsets"][0] % sizes[entry["dtype"]] == 0 for entry in header.values())


def test_other_content_than_the_manifest_leaves_no_file(tmp_path):
    path = tmp_path / "blob"
    with pytest.raises(DatasetError, match="the manifest says 0000"):
        write_blob(path, TENSORS, "0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(blob):
    before = blob.read_bytes()
    with pytest.raises(DatasetError):
        write_blob(blob, {"state": TENSORS["state"]}, "0" * 64)
    assert blob.read_bytes() == before
    assert [path.name for path in blob.parent.iterdir()] == [blob.name]


def test_values_of_another_width_are_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot be stored as BF16"):
        write_blob(tmp_path / "x", {"x": Tensor("bfloat16", np.zeros(3, np.float32))}, None)


# --- faults ------------------------------------------------------------------------------------


def test_a_whole_blob_has_no_fault(blob):
    assert find_fault(blob, EXPECTED) is None
    assert find_fault(blob, {"state": EXPECTED["state"]}) is None
    assert find_fault(blob, EXPECTED, hashlib.sha256(blob.read_bytes()).hexdigest()) is None


def test_empty_tensors_are_sound(tmp_path):
    path = tmp_path / "empty"
    write_blob(path, {"x": Tensor("int32", np.zeros((0, 4), np.int32))}, None)
    assert find_fault(path, {"x": TensorSpec("int32", (0, 4))}) is None


def _truncate(path, size):
    path.write_bytes(path.read_bytes()[:size])


def _rewrite_header(path, change):
    content = path.read_bytes()
    header_bytes = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + header_bytes])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + header_bytes :])


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
DAMAGES = {
    "missing": (lambda p: p.unlink(), FaultKind.MISSING, "no such file"),
    "empty": (lambda p: _truncate(p, 0), FaultKind.TRUNCATED, "0 bytes"),
    "cut in the length": (lambda p: _truncate(p, 5), FaultKind.TRUNCATED, "5 bytes"),
    "cut in the header": (lambda p: _truncate(p, 60), FaultKind.TRUNCATED, "60 bytes"),
    "cut by one byte": (
        lambda p: _truncate(p, p.stat().st_size - 1),
        FaultKind.TRUNCATED,
        "expected",
    ),
    "LFS pointer": (lambda p: p.write_bytes(LFS), FaultKind.LFS_POINTER, "git lfs pull"),
    "longer": (lambda p: p.write_bytes(p.read_bytes() + b"x"), FaultKind.DAMAGED, "expected"),
    "text": (lambda p: p.write_bytes(b"<html>" * 40), FaultKind.DAMAGED, "not a safetensors"),
    "no JSON": (
        lambda p: p.write_bytes(struct.pack("<Q", 8) + b"nonsense"),
        FaultKind.DAMAGED,
        "header",
    ),
    "JSON list": (
        lambda p: p.write_bytes(struct.pack("<Q", 2) + b"[]"),
        FaultKind.DAMAGED,
        "header",
    ),
    "number": (
        lambda p: p.write_bytes(struct.pack("<Q", 1) + b"7"),
        FaultKind.DAMAGED,
        "header",
    ),
    "deep JSON": (
        lambda p: p.write_bytes(struct.pack("<Q", 200_000) + b"[" * 200_000),
        FaultKind.DAMAGED,
        "RecursionError",
    ),
    "pipe": (lambda p: (p.unlink(), os.mkfifo(p)), FaultKind.DAMAGED, "pipe"),
    "offsets that are text": (
        lambda p: _rewrite_header(p, lambda h: h["state"].update(data_offsets=["0", "24"])),
        FaultKind.DAMAGED,
        "state: expected",
    ),
    "one offset": (
        lambda p: _rewrite_header(p, lambda h: h["state"].update(data_offsets=[24])),
        FaultKind.DAMAGED,
        "state: expected",
    ),
    "shape that is a number": (
        lambda p: _rewrite_header(p, lambda h: h["state"].update(shape=6)),
        FaultKind.DAMAGED,
        "state: expected",
    ),
    "entry that is text": (
        lambda p: _rewrite_header(p, lambda h: h.update(state="float32")),
        FaultKind.DAMAGED,
        "state: expected",
    ),
    "folder": (lambda p: (p.unlink(), p.mkdir()), FaultKind.DAMAGED, "folder"),
    "key": (
        lambda p: _rewrite_header(p, lambda h: h.update(State=h.pop("state"))),
        FaultKind.MISSING_TENSOR,
        "'state'",
    ),
    "shape": (
        lambda p: _rewrite_header(p, lambda h: h["state"].update(shape=[3, 2])),
        FaultKind.WRONG_SHAPE,
        "[2, 3]",
    ),
    "dtype": (
        lambda p: _rewrite_header(p, lambda h: h["bits"].update(dtype="F16")),
        FaultKind.WRONG_DTYPE,
        "BF16",
    ),
    "offsets": (
        lambda p: _rewrite_header(p, lambda h: h["lengths"].update(data_offsets=[0, 4])),
        FaultKind.DAMAGED,
        "lengths",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_fault_is_named(name, blob):
    damage, kind, words = DAMAGES[name]
    damage(blob)
    fault = find_fault(blob, EXPECTED)
    assert fault is not None and fault.kind is kind
    assert words in fault.detail and str(blob) in str(fault)


def test_other_values_are_a_hash_fault_only(blob):
    sha256 = hashlib.sha256(blob.read_bytes()).hexdigest()
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.write_bytes(content)
    assert find_fault(blob, EXPECTED) is None
    fault = find_fault(blob, EXPECTED, sha256)
    assert fault is not None and fault.kind is FaultKind.WRONG_HASH


def test_a_file_is_hashed_once_until_it_changes(blob, monkeypatch):
    reads = []

    def count(path):
        reads.append(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr("harness.dataset.blobs.file_sha256", count)
    sha256 = hashlib.sha256(blob.read_bytes()).hexdigest()
    assert find_fault(blob, EXPECTED, sha256) is None
    assert find_fault(blob, EXPECTED, sha256) is None
    assert len(reads) == 1
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.write_bytes(content)
    os.utime(blob, (1, 1))
    fault = find_fault(blob, EXPECTED, sha256)
    assert fault is not None and fault.kind is FaultKind.WRONG_HASH
    assert len(reads) == 2


def test_expected_tensors_come_from_definition_and_axes():
    definition = {
        "name": "d",
        "axes": {"n": {"type": "var"}, "h": {"type": "const", "value": 4}},
        "inputs": {
            "x": {"shape": ["n", "h"], "dtype": "int32"},
            "y": {"shape": ["h"], "dtype": "float32"},
        },
    }
    spec = {"type": "safetensors", "tensor_key": "X", "path": "./blob/one"}
    row = WorkloadRow("u", {"n": 3}, {"x": spec, "y": {"type": "random"}}, ("blob/one",))
    assert expected_tensors(definition, row) == {"blob/one": {"X": TensorSpec("int32", (3, 4))}}
    with pytest.raises(DatasetError, match="'n'"):
        expected_tensors(definition, WorkloadRow("u", {}, {"x": spec}, ("blob/one",)))
    with pytest.raises(DatasetError, match="'z'"):
        expected_tensors(definition, WorkloadRow("u", {"n": 3}, {"z": spec}, ("blob/one",)))


# --- manifest ----------------------------------------------------------------------------------


def test_manifest_round_trip_keeps_order(tmp_path):
    hashes = {"blob/b": "1" * 64, "blob/a": "2" * 64}
    write_manifest(tmp_path, hashes)
    assert list(read_manifest(tmp_path).items()) == list(hashes.items())


def test_absent_and_damaged_manifests(tmp_path):
    assert read_manifest(tmp_path) is None
    write_manifest(tmp_path, {"blob/b": "1" * 64})
    path = tmp_path / "workloads" / "blobs.sha256"
    path.write_text(path.read_text() + "oops\n")
    with pytest.raises(DatasetError, match=r"blobs\.sha256:2: "):
        read_manifest(tmp_path)
