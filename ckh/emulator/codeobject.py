"""AMD GPU code objects: extracted from an offload bundle, and loaded into this process's memory.

The formats are LLVM's: "Clang Offload Bundler" and "User Guide for AMDGPU Backend" (code object V5, kernel descriptor).

Includes a parser for the subset of MessagePack in their metadata (https://msgpack.org, format specification).
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
# Counts in a kernel's metadata, in the order of the fields of `RegisterCounts`.
_COUNTS = (
    *(".vgpr_count", ".agpr_count", ".sgpr_count"),
    *(".vgpr_spill_count", ".sgpr_spill_count", ".max_flat_workgroup_size"),
)
_MOST_COUNT = 1 << 20
_Value = TypeVar("_Value", int, str, list)  # type: ignore[type-arg]


def _read(layout: struct.Struct, data: Any, at: int) -> tuple[Any, ...]:
    """Unpack numbers at an offset of a file or of memory."""
    if not 0 <= at <= len(data) - layout.size:
        raise ValueError(f"a truncated code object: {layout.size} bytes at {at}, of {len(data)}")
    return layout.unpack_from(data, at)


def _field(given: Any, key: str, kind: type[_Value]) -> _Value:
    """A field of the metadata."""
    value = given.get(key) if isinstance(given, dict) else None
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    raise ValueError(f"a code object whose metadata have no {key}")


def _at_most(what: str, value: int, most: int) -> int:
    if not 0 <= value <= most:
        raise ValueError(f"a kernel with {what} of {value} bytes; the limit is {most}")
    return value


@dataclass(frozen=True, slots=True)
class Argument:
    """A kernel argument: its kind, and its place in the segment."""

    kind: str
    offset: int
    size: int


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
        given = [argument for argument in self.arguments if not argument.kind.startswith("hidden")]
        packed = bytearray(max((argument.offset + argument.size for argument in given), default=0))
        for number, argument in enumerate(given):
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
        metadata: Any = None
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
        named = _field(metadata or {"amdhsa.kernels": []}, "amdhsa.kernels", list)
        unstated = self._unstated_sizes(named, symbols or {})
        kernels = [self._kernel(item, symbols or {}, unstated) for item in named]
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
        result = {}
        for place in range(at, at + size, _SYMBOL.size):
            name, kind, _, section, value, length = _read(_SYMBOL, self._data, place)
            if section:
                result[self._text_at(strings + name)] = _Symbol(value, length, kind & _KIND_BITS == _FUNCTION)
        return result

    def _unstated_sizes(self, named: list[Any], symbols: dict[str, _Symbol]) -> dict[int, int]:
        """Size of each function by its place, up to the next one or the end of the text, without padding.

        The symbols of assembly need not state it.
        """
        start, size = self.text
        kernels = {_field(item, ".name", str) for item in named}
        places = {item.value for name, item in symbols.items() if item.is_function or name in kernels}
        ordered = [*sorted(place for place in places if start <= place < start + size), start + size]
        code = (self._memory[place:end].rstrip(_PADDING) for place, end in pairwise(ordered))
        return {place: -(-len(item) // 4) * 4 for place, item in zip(ordered, code, strict=False)}

    def _note(self, at: int) -> Any:
        name_size, length, kind = _read(_NOTE_HEADER, self._data, at)
        start = at + _NOTE_HEADER.size + ((name_size + 3) & ~3)
        return unpack(self._data[start : start + length]) or {} if kind == _AMDGPU_METADATA else None

    def _kernel(self, item: Any, symbols: dict[str, _Symbol], unstated: dict[int, int]) -> CompiledKernel:
        name, symbol = _field(item, ".name", str), _field(item, ".symbol", str)
        if name not in symbols or symbol not in symbols:
            raise ValueError(f"a code object without kernel {name}")
        at = symbols[symbol].value
        lds, scratch, entry, _, rsrc1, rsrc2, properties, preload = _read(_DESCRIPTOR, self._memory, at)
        kernarg_size = _at_most("arguments", _field(item, ".kernarg_segment_size", int), MAX_KERNARG_BYTES)
        arguments = _field(item, ".args", list) if ".args" in item else []
        return CompiledKernel(
            name=name,
            entry=at + entry,
            code_size=symbols[name].size or unstated.get(at + entry, 0),
            arguments=tuple(_argument(argument, kernarg_size) for argument in arguments),
            kernarg_size=kernarg_size,
            lds=lds,
            scratch=_at_most("scratch memory", scratch, MAX_SCRATCH_BYTES),
            id_bits=rsrc2 >> _ID_BITS & 7,
            takes_scratch_offset=bool(rsrc2 & 1),
            keeps_denormals=bool(rsrc1 >> _FLOAT_DENORM_32 & 3),
            properties=properties,
            preload=preload,
            registers=RegisterCounts(*(_count(item, key) for key in _COUNTS)),
        )


def _count(given: Any, key: str) -> int:
    """A count in the metadata, 0 if missing, as it may be for hand-written kernels."""
    return _at_most(key, _field(given, key, int), _MOST_COUNT) if key in given else 0


def _argument(given: Any, most: int) -> Argument:
    kind, offset, size = _field(given, ".value_kind", str), _field(given, ".offset", int), _field(given, ".size", int)
    if offset < 0 or size < 0 or offset + size > most:
        raise ValueError(f"a kernel with an argument of {size} bytes at byte {offset}, beyond its {most} bytes")
    return Argument(kind, offset, size)


# Ranges of MessagePack's first byte: small integers; maps, arrays and strings with inline sizes; other types.
_MAP, _LIST, _TEXT, _OTHER, _NEGATIVE = 0x80, 0x90, 0xA0, 0xC0, 0xE0
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_UNSIGNED, _SIGNED, _INTEGERS_END = 0xCC, 0xD0, 0xD4
# First bytes of strings, arrays and maps whose size follows, and the bytes of the size.
_TEXTS, _LISTS, _MAPS = {0xD9: 1, 0xDA: 2, 0xDB: 4}, {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}
_MOST_DEPTH = 32


def unpack(data: bytes) -> Any:
    """Decode the value at the beginning of the data."""
    try:
        return _value(data, 0, 0)[0]
    except (IndexError, TypeError, UnicodeDecodeError) as error:  # TypeError: a key is a list or a map
        raise ValueError("damaged MessagePack") from error


def _value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """A value, and the offset of its end."""
    if depth > _MOST_DEPTH:
        raise ValueError("MessagePack nested too deep")
    kind = data[at]
    at += 1
    if kind < _MAP:
        return kind, at
    if kind >= _NEGATIVE:
        return kind - 0x100, at
    if kind in _CONSTANTS:
        return _CONSTANTS[kind], at
    if _UNSIGNED <= kind < _INTEGERS_END:
        size = 1 << (kind & 3)
        return int.from_bytes(_bytes(data, at, size), "big", signed=kind >= _SIGNED), at + size
    return _sized(data, kind, at, depth)


def _sized(data: bytes, kind: int, at: int, depth: int) -> tuple[Any, int]:
    if _TEXT <= kind < _OTHER or kind in _TEXTS:
        count, at = _counted(data, kind & 31, at, _TEXTS.get(kind, 0))
        return _bytes(data, at, count).decode(), at + count
    if kind < _LIST or kind in _MAPS:
        count, at = _counted(data, kind & 15, at, _MAPS.get(kind, 0))
        flat, at = _values(data, 2 * count, at, depth)
        return dict(zip(flat[::2], flat[1::2], strict=True)), at
    if kind < _TEXT or kind in _LISTS:
        count, at = _counted(data, kind & 15, at, _LISTS.get(kind, 0))
        return _values(data, count, at, depth)
    raise ValueError(f"MessagePack type {kind:#x}")


def _counted(data: bytes, inside: int, at: int, size: int) -> tuple[int, int]:
    return (int.from_bytes(_bytes(data, at, size), "big"), at + size) if size else (inside, at)


def _values(data: bytes, count: int, at: int, depth: int) -> tuple[list[Any], int]:
    values = []
    for _ in range(count):
        value, at = _value(data, at, depth + 1)
        values.append(value)
    return values, at


def _bytes(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError("truncated MessagePack")
    return data[at : at + size]
