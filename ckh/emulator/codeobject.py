"""AMD GPU code objects: extracted from an offload bundle, and loaded into this process's memory.

The formats are LLVM's: "Clang Offload Bundler" and "User Guide for AMDGPU Backend" (code object V5, kernel descriptor).
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
MAX_MEMORY_BYTES = 1 << 28  # maximum memory of a code object
MAX_KERNARG_BYTES = 1 << 20
MAX_SCRATCH_BYTES = 1 << 17  # per lane: at most 8 MB per wave
MAX_USER_SGPRS = 32
_ELF_MAGIC = b"\x7fELF"
_LOAD, _RELOCATIONS, _NOTE, _DYNAMIC_SYMBOLS = 1, 4, 7, 11
_AMDGPU_METADATA = 32
_KIND_BITS, _FUNCTION = 15, 2  # of a symbol
_MOST_SYMBOLS, _MOST_NAME = 1 << 16, 1 << 15
_PADDING = b"\x00\x80\x9f\xbf"  # bytes of zeros, s_nop 0 and s_code_end, which no function's last instruction ends with
_BUNDLE_COUNT, _BUNDLE_ENTRY = struct.Struct("<Q"), struct.Struct("<QQQ")
_HEADER = struct.Struct("<32xQQ6xHHHHH")
_SEGMENT, _SECTION, _SYMBOL = struct.Struct("<IIQQQQQQ"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
_DESCRIPTOR, _NOTE_HEADER = struct.Struct("<II8xq20xIIIHH"), struct.Struct("<III")
_FLOAT_DENORM_32, _ID_BITS = 12 + 4, 7  # bit positions in the descriptor's second and third resource word
_SCRATCH_BUFFER = (0, 1 << 31, 0, 0)  # the swizzled flag is set; the address is not used
_ROOM = 8192  # padding after the code that instructions may be prefetched from
_MOST_COUNT, _MOST_ENTRIES = 1 << 20, 64  # of a kernel's registers, and of a bundle


def _read(layout: struct.Struct, data: Any, at: int) -> tuple[Any, ...]:
    """Unpack numbers at an offset of a file or of memory."""
    if not 0 <= at <= len(data) - layout.size:
        raise ValueError(f"a truncated code object: {layout.size} bytes at {at}, of {len(data)}")
    return layout.unpack_from(data, at)


def _at_most(what: str, value: int, most: int) -> int:
    if not 0 <= value <= most:
        raise ValueError(f"a kernel with {what} of {value} bytes; the limit is {most}")
    return value


_Size = Annotated[int, msgspec.Meta(ge=0)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST_COUNT)]


class Argument(msgspec.Struct, frozen=True):
    """A kernel argument in the metadata: its kind, and its place in the segment."""

    kind: str = msgspec.field(name=".value_kind")
    offset: _Size = msgspec.field(name=".offset")
    size: _Size = msgspec.field(name=".size")


class _Kernel(msgspec.Struct, frozen=True):
    """A kernel in the metadata; counts may be missing for hand-written kernels."""

    name: str = msgspec.field(name=".name")
    symbol: str = msgspec.field(name=".symbol")
    kernarg_size: _Size = msgspec.field(name=".kernarg_segment_size")
    arguments: tuple[Argument, ...] = msgspec.field(default=(), name=".args")
    vgprs: _Count = msgspec.field(default=0, name=".vgpr_count")
    agprs: _Count = msgspec.field(default=0, name=".agpr_count")
    sgprs: _Count = msgspec.field(default=0, name=".sgpr_count")
    vgpr_spills: _Count = msgspec.field(default=0, name=".vgpr_spill_count")
    sgpr_spills: _Count = msgspec.field(default=0, name=".sgpr_spill_count")
    threads: _Count = msgspec.field(default=0, name=".max_flat_workgroup_size")


class _Metadata(msgspec.Struct, frozen=True):
    kernels: tuple[_Kernel, ...] = msgspec.field(name="amdhsa.kernels")


def decode_metadata(data: bytes) -> _Metadata:
    """Decode the metadata of a code object, in MessagePack."""
    try:
        return msgspec.msgpack.decode(data, type=_Metadata)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"a code object with damaged metadata: {error}") from error


@dataclass(frozen=True, slots=True)
class RegisterCounts:
    """Register counts of a kernel, spilled registers, and maximum threads of a workgroup; 0: not stated.

    `vgprs` counts vector and accumulation registers together, `agprs` the latter only.
    """

    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    threads: int


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel's descriptor and metadata; sizes in bytes, `lds` per workgroup, `scratch` per lane."""

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
    registers: RegisterCounts

    def pack(self, addresses: Any) -> bytes:
        """Lay out explicit arguments, given as an array of pointers to them, as in the segment."""
        explicit = [argument for argument in self.arguments if not argument.kind.startswith("hidden")]
        packed = bytearray(max((argument.offset + argument.size for argument in explicit), default=0))
        for number, argument in enumerate(explicit):
            packed[argument.offset : argument.offset + argument.size] = ctypes.string_at(
                addresses[number], argument.size
            )
        return bytes(packed)

    def kernarg(self, explicit: bytes, grid: tuple[int, ...], block: tuple[int, ...], shared: int) -> bytes:
        """The kernel's argument segment."""
        segment = bytearray(self.kernarg_size)
        segment[: len(explicit)] = explicit
        hidden = {"hidden_grid_dims": 3, "hidden_dynamic_lds_size": shared}
        for axis, blocks, threads in zip("xyz", grid, block, strict=True):
            hidden |= {f"hidden_block_count_{axis}": blocks, f"hidden_group_size_{axis}": threads}
        for argument in self.arguments:
            if argument.kind in hidden:
                value = hidden[argument.kind] % (1 << 8 * argument.size)
                segment[argument.offset : argument.offset + argument.size] = value.to_bytes(argument.size, "little")
        return bytes(segment)

    def user_sgprs(self, address: int, kernarg: bytes, packet: int) -> list[int]:
        """Initial values of the first SGPRs; `address` is that of the argument segment `kernarg`, then the packet's."""
        user: list[int] = []
        if self.properties & 1:
            user += _SCRATCH_BUFFER
        for bit, value in ((2, packet), (4, 0), (8, address), (16, 0), (32, 0)):
            if self.properties & bit:
                user += [value & 0xFFFFFFFF, value >> 32]
        if self.properties & 64:
            user += [self.scratch]
        if count := self.preload & 127:
            user += _read(struct.Struct(f"<{count}I"), kernarg, (self.preload >> 7) * 4)
        if len(user) > MAX_USER_SGPRS:
            raise ValueError(f"a kernel with {len(user)} user SGPRs; the limit is {MAX_USER_SGPRS}")
        return user


# Opcode of s_swappc_b64 by generation; the calling convention has the return address in s[30:31].
_CALLS = {"gfx9": 0x1E, "gfx10": 0x21, "gfx11": 0x49, "gfx12": 0x49}


def calls_functions(code: bytes, arch: str) -> bool:
    """True if a function's machine code calls other functions, which its size does not include."""
    words = memoryview(code[: len(code) // 4 * 4]).cast("I")
    call = 0xBE9E0000 | _CALLS[arch[:-2]] << 8
    return any(word & ~0xFF == call for word in words)


def find_code(bundle: int, arch: str) -> tuple[int, int]:
    """Offset and size in bytes of an architecture's code object in the bundle at an address."""
    return code_in(_mapped(bundle), arch)


def code_in(memory: Any, arch: str) -> tuple[int, int]:
    """Same as `find_code`, for a bundle's bytes."""
    names = []
    for name, offset, size in _entries(memory):
        names.append(name)
        if _arch_of(name) == arch:
            if offset + size > len(memory):
                raise ValueError(f"a truncated offload bundle: {offset + size} bytes, of {len(memory)}")
            return offset, size
    raise ValueError(f"no code for {arch} among {', '.join(names)}")


def bundled_archs(memory: Any) -> list[str]:
    """Architectures for which a bundle has code."""
    return sorted(set(filter(None, (_arch_of(name) for name, _, _ in _entries(memory)))))


def _arch_of(entry: str) -> str:
    """Architecture of a bundle's entry; empty if it is not HIP's."""
    return entry.rsplit("--", maxsplit=1)[-1].split(":", maxsplit=1)[0] if entry.startswith("hip") else ""


def _entries(memory: Any) -> Iterator[tuple[str, int, int]]:
    """Entries of a bundle: name, offset and size."""
    if bytes(memory[: len(BUNDLE_MAGIC)]) != BUNDLE_MAGIC:
        raise ValueError("no offload bundle, or a compressed one: compile with --no-offload-compress")
    at = len(BUNDLE_MAGIC)
    (count,) = _read(_BUNDLE_COUNT, memory, at)
    at += _BUNDLE_COUNT.size
    if count > _MOST_ENTRIES:
        raise ValueError(f"an offload bundle of {count} entries; the limit is {_MOST_ENTRIES}")
    for _ in range(count):
        offset, size, length = _read(_BUNDLE_ENTRY, memory, at)
        at += _BUNDLE_ENTRY.size
        yield bytes(memory[at : at + length]).decode(), offset, size
        at += length


def _mapped(address: int) -> memoryview:
    """Memory of this process from an address to the end of its mapping."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        extent, rights = line.split()[:2]
        start, end = (int(text, 16) for text in extent.split("-"))
        if start <= address < end and rights.startswith("r"):
            return memoryview((ctypes.c_ubyte * (end - address)).from_address(address)).cast("B")
    raise ValueError(f"no memory at {address:#x}")


class _Symbol(NamedTuple):
    """A symbol's value, its size in bytes, and whether it is a function."""

    value: int
    size: int
    is_function: bool


class CodeObject:
    """A loaded code object.

    Attributes:
        base: address of its offset 0.
        text: offset and size of its instructions, in bytes.
        kernels: kernels by name.
    """

    def __init__(self, data: bytes) -> None:
        if not data.startswith(_ELF_MAGIC):
            raise ValueError("a code object that is not an ELF file")
        segments_at, sections_at, _, segments, _, sections, names = _read(_HEADER, data, 0)
        self._data = data
        self._sections = [_read(_SECTION, data, sections_at + _SECTION.size * i) for i in range(sections)]
        self._load([_read(_SEGMENT, data, segments_at + _SEGMENT.size * i) for i in range(segments)])
        self.text = self._text_section(self._section(names)[4])
        symbols: dict[str, _Symbol] | None = None
        metadata: _Metadata | None = None
        for section in self._sections:
            kind, offset, size = section[1], section[4], section[5]
            if kind == _DYNAMIC_SYMBOLS:
                if symbols is not None:
                    raise ValueError("a code object with several tables of symbols")
                symbols = self._symbols(offset, size, self._section(section[6])[4])
            elif kind == _RELOCATIONS and size:
                raise ValueError("a code object with relocations")
            elif kind == _NOTE and metadata is None:
                metadata = self._note(offset)
        named = () if metadata is None else metadata.kernels
        unstated = self._unstated_sizes(named, symbols or {})
        kernels = [self._kernel(kernel, symbols or {}, unstated) for kernel in named]
        self.kernels = {kernel.name: kernel for kernel in kernels}
        if sum(kernel.code_size for kernel in self.kernels.values()) > MAX_MEMORY_BYTES:
            raise ValueError(f"a code object with more than {MAX_MEMORY_BYTES} bytes of functions")

    def machine_code(self, kernel: CompiledKernel) -> bytes:
        """Instructions of a kernel."""
        start, size = self.text
        if not start <= kernel.entry <= kernel.entry + kernel.code_size <= start + size:
            raise ValueError(f"the function {kernel.name} is outside of the instructions")
        return ctypes.string_at(self.base + kernel.entry, kernel.code_size)

    def _load(self, segments: list[tuple[int, ...]]) -> None:
        loaded = [(offset, at, length, size) for kind, _, offset, at, _, length, size, _ in segments if kind == _LOAD]
        taken = max((at + size for _, at, _, size in loaded), default=0)
        taken = max(taken, sum(size for *_, size in loaded))
        if taken > MAX_MEMORY_BYTES:
            raise ValueError(f"a code object that takes {taken} bytes of memory; the limit is {MAX_MEMORY_BYTES}")
        if any(length > size or offset + length > len(self._data) for offset, _, length, size in loaded):
            raise ValueError("a code object with an incomplete segment")
        self._memory = mmap.mmap(-1, taken + _ROOM)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for offset, at, length, _ in loaded:
            self._memory[at : at + length] = self._data[offset : offset + length]

    def _section(self, number: int) -> tuple[int, ...]:
        if number >= len(self._sections):
            raise ValueError(f"a code object without section {number}")
        return self._sections[number]

    def _text_section(self, names: int) -> tuple[int, int]:
        for section in self._sections:
            if self._text_at(names + section[0]) == ".text":
                start, size = section[3], section[5]
                if start % 4 or size > len(self._data) or start + size > len(self._memory):
                    raise ValueError("a code object with instructions outside of its memory")
                return start, size
        raise ValueError("a code object without instructions")

    def _text_at(self, at: int) -> str:
        return self._data[at : self._data.index(b"\0", at, at + _MOST_NAME)].decode()

    def _symbols(self, at: int, size: int, strings: int) -> dict[str, _Symbol]:
        if size > _MOST_SYMBOLS * _SYMBOL.size:
            raise ValueError(f"a code object with more than {_MOST_SYMBOLS} symbols")
        symbols = {}
        for place in range(at, at + size, _SYMBOL.size):
            name, kind, _, section, value, length = _read(_SYMBOL, self._data, place)
            if section:
                symbols[self._text_at(strings + name)] = _Symbol(value, length, kind & _KIND_BITS == _FUNCTION)
        return symbols

    def _unstated_sizes(self, named: tuple[_Kernel, ...], symbols: dict[str, _Symbol]) -> dict[int, int]:
        """Size of each function by its place, up to the next one or the end of the text, without padding.

        The symbols of assembly need not state it.
        """
        start, size = self.text
        names = {kernel.name for kernel in named}
        places = {symbol.value for name, symbol in symbols.items() if symbol.is_function or name in names}
        ordered = [*sorted(place for place in places if start <= place < start + size), start + size]
        code = (self._memory[place:end].rstrip(_PADDING) for place, end in pairwise(ordered))
        return {place: -(-len(function) // 4) * 4 for place, function in zip(ordered, code, strict=False)}

    def _note(self, at: int) -> _Metadata | None:
        name_size, length, kind = _read(_NOTE_HEADER, self._data, at)
        start = at + _NOTE_HEADER.size + ((name_size + 3) & ~3)
        return decode_metadata(self._data[start : start + length]) if kind == _AMDGPU_METADATA else None

    def _kernel(self, kernel: _Kernel, symbols: dict[str, _Symbol], unstated: dict[int, int]) -> CompiledKernel:
        if kernel.name not in symbols or kernel.symbol not in symbols:
            raise ValueError(f"a code object without kernel {kernel.name}")
        at = symbols[kernel.symbol].value
        lds, scratch, entry, _, rsrc1, rsrc2, properties, preload = _read(_DESCRIPTOR, self._memory, at)
        size = _at_most("arguments", kernel.kernarg_size, MAX_KERNARG_BYTES)
        if strange := [argument for argument in kernel.arguments if argument.offset + argument.size > size]:
            what = f"{strange[0].size} bytes at byte {strange[0].offset}"
            raise ValueError(f"a kernel with an argument of {what}, beyond its {size} bytes")
        return CompiledKernel(
            name=kernel.name,
            entry=at + entry,
            code_size=symbols[kernel.name].size or unstated.get(at + entry, 0),
            arguments=kernel.arguments,
            kernarg_size=size,
            lds=lds,
            scratch=_at_most("scratch memory", scratch, MAX_SCRATCH_BYTES),
            id_bits=rsrc2 >> _ID_BITS & 7,
            takes_scratch_offset=bool(rsrc2 & 1),
            keeps_denormals=bool(rsrc1 >> _FLOAT_DENORM_32 & 3),
            properties=properties,
            preload=preload,
            registers=RegisterCounts(
                kernel.vgprs, kernel.agprs, kernel.sgprs, kernel.vgpr_spills, kernel.sgpr_spills, kernel.threads
            ),
        )
