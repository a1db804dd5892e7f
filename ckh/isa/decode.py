"""Decoding of machine code by the emulator's decoder, in a separate process.

The decoder's library replaces the HIP runtime, which this process may need itself; and damaged code can only crash that
process.
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from ckh.bench.devices.hip_device import EMULATED_ARCHS, emulated_runtime
from ckh.emulator.launch import EmulatorLibrary
from ckh.errors import DataError, UsageError
from ckh.files.child import module_command
from ckh.isa.instructions import instruction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.isa.instructions import Instruction

_WORD_BYTES = 4
_MOST_BYTES = 1 << 24  # per function
_TIMEOUT_S = 120.0


@lru_cache(maxsize=1)  # a kernel's, for one problem after another
def decoded(arch: str, functions: tuple[bytes, ...]) -> tuple[tuple[Instruction, ...], ...]:
    """Decode the instructions of functions."""
    if arch not in EMULATED_ARCHS:
        raise UsageError(f"instructions of {arch} cannot be decoded", f"those of {', '.join(EMULATED_ARCHS)} are")
    if any(len(code) > _MOST_BYTES or len(code) % _WORD_BYTES for code in functions):
        raise DataError("a function that is too long, or not a multiple of four bytes", code="damaged")
    command = module_command(__name__, str(emulated_runtime()), arch, *(str(len(code)) for code in functions))
    try:
        done = subprocess.run(
            command,
            input=b"".join(functions),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except subprocess.SubprocessError as error:
        raise DataError("machine code that cannot be decoded", code="damaged") from error
    texts = done.stdout.decode().split("\n\n")
    return tuple(tuple(_instructions(code, text)) for code, text in zip(functions, texts, strict=False))


def _instructions(code: bytes, text: str) -> Iterator[Instruction]:
    words, at = struct.unpack(f"<{len(code) // _WORD_BYTES}I", code), 0
    for line in filter(None, text.splitlines()):
        count, name = line.split(" ", 1)
        yield instruction(at * _WORD_BYTES, name, words[at : at + int(count)])
        at += int(count)


def _main(library: str, arch: str, *sizes: str) -> None:
    """Print words and name of each instruction of the functions on stdin, and an empty line after each function."""
    emulator = EmulatorLibrary(library)
    emulator.set_arch(arch, races=False)
    for size in map(int, sizes):
        code = ctypes.create_string_buffer(sys.stdin.buffer.read(size), size)
        at, left, lines = ctypes.addressof(code), size // _WORD_BYTES, list[str]()
        while left:
            name, words = emulator.instruction(at, left)
            lines.append(f"{words} {name}")
            at, left = at + words * _WORD_BYTES, left - words
        sys.stdout.write("\n".join(lines) + "\n\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
