"""AMD GPU code objects: taken from an offload bundle, and loaded into this process' memory.

The formats are LLVM's: "Clang Offload Bundler" and "User Guide for AMDGPU Backend" (code object V5, kernel descriptor).
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from dataclasses import dataclass
from typing import Any

from ckh.emulator.messagepack import unpack

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_ELF_MAGIC = b"\x7fELF"
_LOAD, _RELOCATIONS, _NOTE, _DYNAMIC_SYMBOLS = 1, 4, 7, 11
_AMDGPU_METADATA = 32
_HEADER = struct.Struct("<32xQQ6xHHHHH")
_SEGMENT, _SECTION, _SYMBOL = struct.Struct("<IIQQQQQQ"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
_DESCRIPTOR = struct.Struct("<II8xq20xIIIHH")
_FLOAT_DENORM_32, _ID_BITS = 12 + 4, 7  # where they are in the descriptor's second and third resource word
_SCRATCH_BUFFER = (0, 1 << 31, 0, 0)  # swizzled, which says what it is; where it lies is nobody's business
_ROOM = 8192  # behind the code, which instructions may be fetched from


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel: what it is, and where in the segment."""

    kind: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel's descriptor and metadata; sizes in bytes, `lds` of a workgroup, `scratch` of a lane."""

    name: str
    entry: int
    code_size: int
    arguments: tuple[Argument, ...]
    kernarg_size: int
    lds: int
    scratch: int
    id_bits: int
    takes_scratch_offset: bool
    keeps_denormals: bool
    properties: int
    preload: int

    def pack(self, addresses: Any) -> bytes:
        """Explicit arguments, given as an array of pointers to them, laid out as in the segment."""
        given = [one for one in self.arguments if not one.kind.startswith("hidden")]
        packed = bytearray(max((one.offset + one.size for one in given), default=0))
        for number, one in enumerate(given):
            packed[one.offset : one.offset + one.size] = ctypes.string_at(addresses[number], one.size)
        return bytes(packed)

    def kernarg(self, explicit: bytes, grid: tuple[int, ...], block: tuple[int, ...], shared: int) -> bytes:
        """The segment that the kernel reads its arguments from."""
        segment = bytearray(self.kernarg_size)
        segment[: len(explicit)] = explicit
        for one in self.arguments:
            axis = "xyz".find(one.kind[-1])
            if one.kind.startswith("hidden_block_count_"):
                struct.pack_into("<I", segment, one.offset, grid[axis])
            elif one.kind.startswith("hidden_group_size_"):
                struct.pack_into("<H", segment, one.offset, block[axis])
            elif one.kind == "hidden_grid_dims":
                struct.pack_into("<H", segment, one.offset, 3)
            elif one.kind == "hidden_dynamic_lds_size":
                struct.pack_into("<I", segment, one.offset, shared)
        return bytes(segment)

    def user_sgprs(self, address: int, kernarg: bytes) -> list[int]:
        """The values of the first SGPRs; `address` is where the segment of arguments is."""
        user: list[int] = []
        if self.properties & 1:
            user += _SCRATCH_BUFFER
        for bit, value in ((2, 0), (4, 0), (8, address), (16, 0), (32, 0)):
            if self.properties & bit:
                user += [value & 0xFFFFFFFF, value >> 32]
        if self.properties & 64:
            user += [self.scratch]
        if count := self.preload & 127:
            user += struct.unpack_from(f"<{count}I", kernarg, (self.preload >> 7) * 4)
        return user


def find_code(bundle: int, arch: str) -> tuple[int, int]:
    """Where the code object of an architecture is in the bundle at an address: offset and size in bytes.

    Raises:
        ValueError: there is no bundle, or no such code in it.
    """
    if ctypes.string_at(bundle, len(BUNDLE_MAGIC)) != BUNDLE_MAGIC:
        raise ValueError("no offload bundle, or a compressed one: compile with --no-offload-compress")
    at = bundle + len(BUNDLE_MAGIC)
    (count,) = struct.unpack("<Q", ctypes.string_at(at, 8))
    at += 8
    names = []
    for _ in range(count):
        offset, size, length = struct.unpack("<QQQ", ctypes.string_at(at, 24))
        name = ctypes.string_at(at + 24, length).decode()
        at += 24 + length
        names.append(name)
        if name.startswith("hip") and name.split("--")[-1].split(":")[0] == arch:
            return offset, size
    raise ValueError(f"no code for {arch} among {', '.join(names)}")


class CodeObject:
    """A loaded code object.

    Attributes:
        base: the address of its offset 0.
        text: offset and size of its instructions, in bytes.
        kernels: by name.

    Raises:
        ValueError: it is none, or has relocations.
    """

    def __init__(self, data: bytes) -> None:
        if not data.startswith(_ELF_MAGIC):
            raise ValueError("a code object that is no ELF file")
        segments_at, sections_at, _, segments, _, sections, names = _HEADER.unpack_from(data)
        self._data = data
        self._sections = [_SECTION.unpack_from(data, sections_at + _SECTION.size * i) for i in range(sections)]
        self._load([_SEGMENT.unpack_from(data, segments_at + _SEGMENT.size * i) for i in range(segments)])
        name_table = self._sections[names][4]
        self.text = next((s[3], s[5]) for s in self._sections if self._text_at(name_table + s[0]) == ".text")
        symbols: dict[str, tuple[int, int]] = {}
        metadata: Any = {"amdhsa.kernels": []}
        for section in self._sections:
            kind, offset, size = section[1], section[4], section[5]
            if kind == _DYNAMIC_SYMBOLS:
                symbols |= self._symbols(offset, size, self._sections[section[6]][4])
            elif kind == _RELOCATIONS and size:
                raise ValueError("a code object with relocations")
            elif kind == _NOTE:
                metadata = self._note(offset) or metadata
        self.kernels = {one[".name"]: self._kernel(one, symbols) for one in metadata["amdhsa.kernels"]}

    def _load(self, segments: list[tuple[int, ...]]) -> None:
        size = max(address + length for kind, _, _, address, _, _, length, _ in segments if kind == _LOAD)
        self._memory = mmap.mmap(-1, size + _ROOM)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for kind, _, offset, address, _, length, _, _ in segments:
            if kind == _LOAD:
                self._memory[address : address + length] = self._data[offset : offset + length]

    def _text_at(self, at: int) -> str:
        return self._data[at : self._data.index(b"\0", at)].decode()

    def _symbols(self, at: int, size: int, strings: int) -> dict[str, tuple[int, int]]:
        found = {}
        for place in range(at, at + size, _SYMBOL.size):
            name, _, _, section, value, length = _SYMBOL.unpack_from(self._data, place)
            if section:
                found[self._text_at(strings + name)] = value, length
        return found

    def _note(self, at: int) -> Any:
        name_size, length, kind = struct.unpack_from("<III", self._data, at)
        start = at + 12 + ((name_size + 3) & ~3)
        return unpack(self._data[start : start + length]) if kind == _AMDGPU_METADATA else None

    def _kernel(self, one: Any, symbols: dict[str, tuple[int, int]]) -> CompiledKernel:
        at = symbols[one[".symbol"]][0]
        lds, scratch, entry, _, rsrc1, rsrc2, properties, preload = _DESCRIPTOR.unpack_from(self._memory, at)
        return CompiledKernel(
            name=one[".name"],
            entry=at + entry,
            code_size=symbols[one[".name"]][1],
            arguments=tuple(Argument(a[".value_kind"], a[".offset"], a[".size"]) for a in one.get(".args", [])),
            kernarg_size=one[".kernarg_segment_size"],
            lds=lds,
            scratch=scratch,
            id_bits=rsrc2 >> _ID_BITS & 7,
            takes_scratch_offset=bool(rsrc2 & 1),
            keeps_denormals=bool(rsrc1 >> _FLOAT_DENORM_32 & 3),
            properties=properties,
            preload=preload,
        )
