"""Negative controls: kernels with GPU instructions removed. A check that accepts them is worthless."""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING

from ckh.emulator.codeobject import BUNDLE_MAGIC, CodeObject, find_code
from ckh.emulator.launch import Window
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.emulator.codeobject import CompiledKernel
    from ckh.emulator.launch import EmulatorLibrary

_NOP = (0xBF800000).to_bytes(4, "little")


class Damage(StrEnum):
    """The removed instructions, by the beginning of their names."""

    BARRIERS = "s_barrier"  # all
    MATRIX = "v_mfma"  # the first of each kernel, as of all that follow
    LDS_WRITE = "ds_write"
    COMPARE = "v_cmp"


def confine(library: EmulatorLibrary, address: int, size: int) -> None:
    """Restrict kernels to their arguments and this range of process memory; size 0 lifts the restriction."""
    window = Window.in_dll(library._library, "emu_window")
    window.start, window.bytes = address, size


def damaged(library: bytes, kind: Damage, arch: str, emulator: EmulatorLibrary) -> bytes:
    """A copy of a library without all barriers, or without the first of the other instructions of each kernel."""
    code, changed = CodeObject(code_of(library, arch)[0]), bytearray(library)
    first = place_of_code(library, arch, code)
    for kernel in code.kernels.values():
        result = [(at, length) for at, name, length in instructions_of(kernel, code, emulator) if name.startswith(kind)]
        for at, length in result if kind is Damage.BARRIERS else result[:1]:
            changed[first + at : first + at + length] = _NOP * (length // 4)
    return bytes(changed)


def code_of(library: bytes, arch: str) -> tuple[bytes, int]:
    """The code object for an architecture in a library, and its offset."""
    start = library.index(BUNDLE_MAGIC)
    bundle = mmap.mmap(-1, len(library) - start)  # one mapping, as of a loaded library; the heap may be several
    bundle[:] = library[start:]
    offset, size = find_code(ctypes.addressof(ctypes.c_char.from_buffer(bundle)), arch)
    return library[start + offset : start + offset + size], start + offset


def place_of_code(library: bytes, arch: str, code: CodeObject) -> int:
    """The offset in a library of `code.base`."""
    elf, start = code_of(library, arch)
    address, size = code.text
    return start + elf.index(ctypes.string_at(code.base + address, size)) - address


def instructions_of(
    kernel: CompiledKernel, code: CodeObject, library: EmulatorLibrary
) -> Iterator[tuple[int, str, int]]:
    """The instructions of a kernel by address: offset from `code.base`, name, bytes."""
    at, end = kernel.entry, kernel.entry + kernel.code_size
    while at < end:
        name, dwords = library.instruction(code.base + at, (end - at) // 4)
        yield at, name, 4 * dwords
        at += 4 * dwords
