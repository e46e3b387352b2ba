"""Reads the listing of a cubin: what the assembler itself gets wrong shows there alone."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_KERNEL = re.compile(r"^\.text\.(?P<name>\S+):$")
_INSTRUCTION = re.compile(
    r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)\s*(?P<operands>[^;]*);"
)
_REGISTER = re.compile(r"\bUR(\d+)\b")
_WIDTHS = {".64": 2, ".WIDE": 2, ".128": 4, ".256": 8}  # registers that are written; else one


def find_nvdisasm() -> str | None:
    """The disassembler that Triton brings."""
    import triton

    found = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    return str(found) if found.is_file() else None


def disassemble(cubin: Path, nvdisasm: str) -> str:
    done = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True)
    return done.stdout


def count_instructions(listing: str, opcode: str) -> dict[str, int]:
    """How many instructions of each kernel begin with `opcode`; kernels without are left out."""
    counts: Counter[str] = Counter()
    for kernel, found in _instructions(listing):
        counts[kernel] += found["opcode"].split(".")[0] == opcode
    return {kernel: count for kernel, count in counts.items() if count}


def unwritten_uniform_registers(listing: str) -> dict[str, set[str]]:
    """By kernel, the uniform registers that instructions read and none writes; {} is as it should
    be. ptxas 12.8 to 13.0 leaves such ones where a cp.async in a loop has a cache hint. Whether a
    write comes before each read is not followed."""
    written: dict[str, set[int]] = {}
    read: dict[str, set[int]] = {}
    for kernel, found in _instructions(listing):
        operands = [operand.strip() for operand in found["operands"].split(",")]
        target = _target(operands)
        if target is not None:
            first = int(_REGISTER.findall(operands.pop(target))[0])
            wide = (width for part, width in _WIDTHS.items() if part in found["opcode"])
            written.setdefault(kernel, set()).update(range(first, first + max(wide, default=1)))
        read.setdefault(kernel, set()).update(
            number
            for operand in operands
            for number in _registers(operand, found["opcode"].startswith("UTC"))
        )
    missing = {name: read[name] - written.get(name, set()) for name in read}
    return {name: {f"UR{n}" for n in sorted(of)} for name, of in missing.items() if of}


def _instructions(listing: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Each instruction with the kernel that it stands in."""
    kernel = ""
    for line in listing.splitlines():
        if (begins := _KERNEL.match(line)) is not None:
            kernel = begins["name"]
        elif (found := _INSTRUCTION.search(line)) is not None:
            yield kernel, found


def _registers(operand: str, is_tcgen05: bool) -> list[int]:
    """Of an address in brackets or a number the first register alone: not all have a second."""
    numbers = [int(number) for number in _REGISTER.findall(operand)]
    if operand.startswith("gdesc") and not is_tcgen05:
        # Two descriptors of wgmma in four registers; the first is of no use where that operand
        # lies in registers.
        return [number + place for number in numbers for place in (2, 3)]
    if operand.startswith(("gdesc", "desc")):
        return [number + place for number in numbers[:1] for place in (0, 1)] + numbers[1:]
    return numbers


def _target(operands: list[str]) -> int | None:
    """Which operand is a uniform register that is written: the first that is no predicate."""
    for place, operand in enumerate(operands[:2]):
        if re.fullmatch(r"U?P[T\d]", operand):
            continue
        return place if re.fullmatch(r"UR\d+", operand) else None
    return None
