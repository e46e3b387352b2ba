"""Safetensors files: written byte for byte the same everywhere, and checked without reading values.

The format is an 8-byte little-endian length, a JSON header and the tensors' bytes. It is written
here, and not through the safetensors library, because the manifest pins the hash of whole files:
the header's spelling is the library's own affair and has no numpy type for bfloat16.
"""

from __future__ import annotations

import functools
import hashlib
import json
import stat
import struct
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.dataset.manifest import MANIFEST
from harness.dataset.workloads import LFS_POINTER, WorkloadRow, normal_path
from harness.errors import DatasetError
from harness.files import atomic_file, file_sha256

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_THREADS = 4
_HEADER_LIMIT_BYTES = 100_000_000  # the safetensors library refuses longer headers

# Definition dtype -> safetensors dtype, bytes an element.
DTYPES = {
    "float32": ("F32", 4),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "int64": ("I64", 8),
    "int32": ("I32", 4),
    "int16": ("I16", 2),
    "int8": ("I8", 1),
    "bool": ("BOOL", 1),
}


@dataclass(frozen=True)
class Tensor:
    """A value to be stored. ``values`` holds bit patterns where numpy lacks the dtype."""

    dtype: str
    values: NDArray[np.generic]


@dataclass(frozen=True)
class TensorSpec:
    """What a definition and a workload's axes say of one stored tensor."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count * DTYPES[self.dtype][1]


class FaultKind(str, Enum):
    """What can be wrong with a blob."""

    MISSING = "missing"
    LFS_POINTER = "Git-LFS pointer"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"
    WRONG_SHAPE = "wrong shape"
    WRONG_DTYPE = "wrong dtype"
    MISSING_TENSOR = "missing tensor"
    WRONG_HASH = "wrong hash"


@dataclass(frozen=True)
class Fault:
    """One blob that cannot be used as it is."""

    path: Path
    kind: FaultKind
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.kind.value}: {self.detail}"


def expected_tensors(
    definition: Mapping[str, Any], row: WorkloadRow
) -> dict[str, dict[str, TensorSpec]]:
    """Blob path -> tensor key -> what must lie there. Raises DatasetError for unknown names."""
    axes = {
        name: axis["value"] for name, axis in definition["axes"].items() if axis["type"] == "const"
    }
    axes.update(row.axes)
    expected: dict[str, dict[str, TensorSpec]] = {}
    for name, spec in row.inputs.items():
        if spec["type"] != "safetensors":
            continue
        try:
            entry = definition["inputs"][name]
            shape = tuple(axes[axis] for axis in entry["shape"] or ())
        except KeyError as error:
            raise DatasetError(
                f"{definition['name']}: workload {row.uuid}: input {name!r}: the definition or the "
                f"workload's axes lack {error}"
            ) from error
        tensors = expected.setdefault(normal_path(spec["path"]), {})
        tensors[spec["tensor_key"]] = TensorSpec(entry["dtype"], shape)
    return expected


def _layout(tensors: Mapping[str, Tensor]) -> list[str]:
    """The order of the bytes: wider elements first, then by name, so that all are aligned."""
    return sorted(tensors, key=lambda name: (-DTYPES[tensors[name].dtype][1], name))


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    entries, offset = {}, 0
    for name in _layout(tensors):
        values = tensors[name].values
        code, element_bytes = DTYPES[tensors[name].dtype]
        if values.itemsize != element_bytes:
            raise ValueError(f"{name}: {values.dtype} values cannot be stored as {code}")
        end = offset + values.nbytes
        entries[name] = {"dtype": code, "shape": list(values.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_blob(path: Path, tensors: Mapping[str, Tensor], sha256: str | None) -> str:
    """Write one file atomically and return its sha256.

    With ``sha256`` given, other content raises DatasetError and no file appears.
    """
    digest = hashlib.sha256()
    with atomic_file(path) as file:
        parts: list[bytes | memoryview] = [_header(tensors)]
        parts += [_bytes(tensors[name]) for name in _layout(tensors)]
        for part in parts:
            digest.update(part)
            file.write(part)
        if sha256 is not None and digest.hexdigest() != sha256:
            raise DatasetError(
                f"{path}: the generated blob hashes to {digest.hexdigest()}, the manifest says "
                f"{sha256}; this machine computes other values than the one that made the "
                f"manifest, so its results would not compare: report it, with numpy's version"
            )
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    """The values' little-endian bytes, without a copy on little-endian machines."""
    import numpy as np

    values = np.ascontiguousarray(tensor.values)
    values = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return values.reshape(-1).view(np.uint8).data


def read_header(path: Path) -> dict[str, Any] | Fault:
    """The header of a safetensors file, or why it has none. Checks the file's length."""
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):  # reading a pipe would wait for a writer
            return Fault(path, FaultKind.DAMAGED, "a folder, pipe or device, not a file")
        size_bytes = state.st_size
        with path.open("rb") as file:
            start = file.read(len(LFS_POINTER))
            if start == LFS_POINTER:
                detail = "run `git lfs pull`, or fetch the set again"
                return Fault(path, FaultKind.LFS_POINTER, detail)
            header_bytes = int.from_bytes(start[:8], "little")
            if len(start) < 8 or (size_bytes < 8 + header_bytes <= 8 + _HEADER_LIMIT_BYTES):
                return Fault(path, FaultKind.TRUNCATED, f"{size_bytes} bytes end in the header")
            if header_bytes > _HEADER_LIMIT_BYTES:
                return Fault(path, FaultKind.DAMAGED, "not a safetensors file")
            file.seek(8)
            header = json.loads(file.read(header_bytes))
        if not isinstance(header, dict):
            raise ValueError(f"expected a table, got {header!r:.200}")
        header.pop("__metadata__", None)
        ends = [_check_entry(name, entry) for name, entry in header.items()]
    except FileNotFoundError:
        return Fault(path, FaultKind.MISSING, "no such file")
    except OSError as error:
        return Fault(path, FaultKind.UNREADABLE, str(error))
    except (ValueError, RecursionError) as error:
        return Fault(path, FaultKind.DAMAGED, f"not a safetensors header: {error!r}")
    wanted_bytes = 8 + header_bytes + max(ends, default=0)
    if size_bytes != wanted_bytes:
        kind = FaultKind.TRUNCATED if size_bytes < wanted_bytes else FaultKind.DAMAGED
        return Fault(path, kind, f"expected {wanted_bytes} bytes, got {size_bytes}")
    return header


def _check_entry(name: str, entry: Any) -> int:
    """Where a tensor's bytes end, counted from the header. Raises ValueError."""
    parts = entry if isinstance(entry, dict) else {}
    shape, offsets = parts.get("shape"), parts.get("data_offsets")
    lists = [values for values in (shape, offsets) if isinstance(values, list)]
    natural = all(type(value) is int and value >= 0 for values in lists for value in values)
    if not (len(lists) == 2 and natural and len(lists[1]) == 2):
        raise ValueError(
            f"{name}: expected shape and data_offsets as whole numbers, got {entry!r:.200}"
        )
    return int(lists[1][1])


def find_fault(
    path: Path, expected: Mapping[str, TensorSpec], sha256: str | None = None
) -> Fault | None:
    """Check one file's presence, length, keys, dtypes and shapes, and its content's hash if given.

    Without ``sha256`` only the header is read.
    """
    fault = _find_header_fault(path, expected)
    if fault is None and sha256 is not None:
        try:
            state = path.stat()
            found = _content_sha256(path, state.st_size, state.st_mtime_ns)
        except OSError as error:
            return Fault(path, FaultKind.UNREADABLE, str(error))
        if found != sha256:
            detail = f"expected sha256 {sha256} ({MANIFEST}), got {found}"
            return Fault(path, FaultKind.WRONG_HASH, detail)
    return fault


def find_faults(
    blobs: Iterable[tuple[Path, Mapping[str, TensorSpec], str | None]],
) -> list[Fault | None]:
    """`find_fault` of each, in parallel: hashing releases the interpreter lock."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda blob: find_fault(*blob), blobs))


@functools.cache
def _content_sha256(path: Path, size_bytes: int, modified_ns: int) -> str:
    """Read once a process for each state of a file: a run looks at gigabytes more than once."""
    return file_sha256(path)


def _find_header_fault(path: Path, expected: Mapping[str, TensorSpec]) -> Fault | None:
    header = read_header(path)
    if isinstance(header, Fault):
        return header
    for key, spec in expected.items():
        entry = header.get(key)
        if entry is None:
            found = ", ".join(sorted(header)) or "none"
            return Fault(path, FaultKind.MISSING_TENSOR, f"expected {key!r}, got {found}")
        code = DTYPES[spec.dtype][0]
        if entry.get("dtype") != code:
            detail = f"{key}: expected {code}, got {entry.get('dtype')}"
            return Fault(path, FaultKind.WRONG_DTYPE, detail)
        if tuple(entry["shape"]) != spec.shape:
            detail = f"{key}: expected {list(spec.shape)}, got {entry['shape']}"
            return Fault(path, FaultKind.WRONG_SHAPE, detail)
        start, end = entry["data_offsets"]
        if end - start != spec.size_bytes:
            detail = f"{key}: {end - start} bytes for {spec.size_bytes}"
            return Fault(path, FaultKind.DAMAGED, detail)
    return None
