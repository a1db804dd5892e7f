"""Metadata of a compiled kernel: its resource usage, and a hash of its code.

The metadata is cached together with the library, so that later runs have it without compiling.

Also validates a shared library without loading it, as the loader would crash on a damaged file. The ELF check (System V
Application Binary Interface, chapters 4 and 5) verifies that segments and sections lie within the file, and that the
required functions are dynamic symbols.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.emulator.codeobject import BUNDLE_MAGIC, CodeObject, calls_functions, code_in
from ckh.schema import Resources
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Output of -Rpass-analysis=kernel-resource-usage: a line with the function name, followed by lines of its resources.
_REMARK = re.compile(r"remark:\s+(?P<what>[A-Z][A-Za-z ]+?)(?: \[[^\]]*\])?: (?P<value>\S+)(?: \[-Rpass.*)?$")
FUNCTION_REMARK = "Function Name"
_MOST = {
    "vgprs": ("VGPRs",),
    "agprs": ("AGPRs",),
    "sgprs": ("SGPRs", "TotalSGPRs"),
    "lds_bytes": ("LDS Size",),
    "scratch_bytes": ("ScratchSize",),
    "vgpr_spills": ("VGPRs Spill",),
    "sgpr_spills": ("SGPRs Spill",),
}
_OCCUPANCY = "Occupancy"


@dataclass(frozen=True, slots=True)
class Binary:
    """Metadata of a compiled kernel: code hash, and resource usage if reported by the compiler.

    `calling` is the number of its GPU functions that call others, by their machine code; None: unknown.
    """

    code_hash: str
    resources: Resources | None
    calling: int | None = None


def parse_resources(messages: str, function: str) -> Resources | None:
    """Resource usage of the functions whose mangled names contain `function`; None if not reported."""
    takes: list[dict[str, int]] = []
    this: dict[str, int] = {}
    for match in filter(None, map(_REMARK.search, messages.splitlines())):
        if match["what"] == FUNCTION_REMARK:
            this = defaultdict(int)
            if function in match["value"]:
                takes.append(this)
        elif match["value"].isdecimal():
            this[match["what"]] = int(match["value"])
    if not takes:
        return None
    most = {name: max(take[word] for take in takes for word in words) for name, words in _MOST.items()}
    return Resources(**most, occupancy=min(take[_OCCUPANCY] for take in takes))


def calling_functions(library: bytes, arch: str, messages: str) -> int | None:
    """Number of the GPU functions that the compiler's messages name that call others; None: there is no GPU code."""
    matches = filter(None, map(_REMARK.search, messages.splitlines()))
    names = {match["value"] for match in matches if match["what"] == FUNCTION_REMARK}
    bundle = memoryview(library)[max(library.find(BUNDLE_MAGIC), 0) :]
    try:
        offset, size = code_in(bundle, arch)
        code = CodeObject(bytes(bundle[offset : offset + size]))
        own = (code.kernels[name] for name in names & code.kernels.keys())
        return sum(calls_functions(code.machine_code(kernel), arch) for kernel in own)
    except (ValueError, struct.error):
        return None


def binary_from_values(values: dict[str, Any]) -> Binary:
    """Decode the metadata stored with a library, whose digest has been verified."""
    resources = values["resources"]
    return Binary(values["code_hash"], None if resources is None else Resources(**resources), values["calling"])


_MAGIC = b"\x7fELF"
_CLASS_AND_ORDER = slice(4, 6)  # ELF class (64 or 32 bits) and byte order
_TYPE_AND_MACHINE = slice(16, 20)
_SHARED = b"\x03\x00"
_HEADER = struct.Struct("<32xQQ6xHHHHH2x")
_SEGMENT = struct.Struct("<I4xQ16xQ16x")
_SECTION = struct.Struct("<4xI16xQQI20x")
_SYMBOL = struct.Struct("<IBBH16x")
_PROGRAM = Path("/proc/self/exe")
_NO_BITS, _DYNAMIC_SYMBOLS = 8, 11  # section types


class ElfFault(StrEnum):
    """Reason why a file is not a usable shared library."""

    EMPTY = "the file is empty"
    NOT_ELF = "not an ELF file"
    OTHER_MACHINE = "built for another machine"
    NOT_SHARED = "not a shared library"
    DAMAGED = "the ELF headers are damaged"
    TRUNCATED = "the file is truncated"


class _Section(NamedTuple):
    type: int
    offset: int
    size: int
    link: int


def fault_of_library(content: bytes, functions: Sequence[str]) -> str:
    """Reason why a file is not a shared library for this machine with these functions, or an empty string.

    Supports 64-bit little-endian machines only; the machine is taken from Python's own executable.
    """
    if not content.startswith(_MAGIC):
        return ElfFault.NOT_ELF if content else ElfFault.EMPTY
    with _PROGRAM.open("rb") as file:
        program = file.read(_HEADER.size)
    if (content[_CLASS_AND_ORDER], content[18:20]) != (program[_CLASS_AND_ORDER], program[18:20]):
        return ElfFault.OTHER_MACHINE
    if content[_TYPE_AND_MACHINE][:2] != _SHARED:
        return ElfFault.NOT_SHARED
    try:
        return _fault_of_parts(content, functions)
    except (struct.error, IndexError, ValueError):  # an offset points outside the file
        return ElfFault.DAMAGED


def _fault_of_parts(content: bytes, functions: Sequence[str]) -> str:
    segments_at, sections_at, segment_size, segments, section_size, sections, _ = _HEADER.unpack_from(content)
    parts = [_SEGMENT.unpack_from(content, segments_at + i * segment_size)[1:] for i in range(segments)]
    table = [_Section(*_SECTION.unpack_from(content, sections_at + i * section_size)) for i in range(sections)]
    parts += [(section.offset, section.size) for section in table if section.type != _NO_BITS]
    if any(offset + size > len(content) for offset, size in parts):
        return ElfFault.TRUNCATED
    names = {
        name for section in table if section.type == _DYNAMIC_SYMBOLS for name in _defined(content, section, table)
    }
    missing = [name for name in functions if name.encode() not in names]
    return f"the function {missing[0]} is missing" if missing else ""


def _defined(content: bytes, symbols: _Section, table: Sequence[_Section]) -> Iterator[bytes]:
    names = table[symbols.link]
    text = content[names.offset : names.offset + names.size]
    for at in range(symbols.offset, symbols.offset + symbols.size, _SYMBOL.size):
        name, _, _, section = _SYMBOL.unpack_from(content, at)
        if section:  # 0: defined in another library
            yield text[name : text.index(b"\0", name)]
