"""The decoder agrees with LLVM's disassembler about names and lengths of all instructions of compiled kernels."""

from __future__ import annotations

import ctypes
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from ckh.emulator.codeobject import CodeObject
from tests.emulator.assemble import disassembler
from tests.emulator.damage import code_of, instructions_of
from tests.emulator.keep import KEPT, Kept
from tests.emulator.wave import assembled

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.emulator.launch import EmulatorLibrary

_LINE = re.compile(r"^\s+(\w+)\b.*// ([0-9A-F]+): ((?:[0-9A-F]{8} ?)+)", re.MULTILINE)
_MATRIX_GFX90A = re.compile(r"^(v_mfma_\w+x\d+)(f32|f16|i8)$")  # whose names lack an underscore
_SUFFIX = re.compile(r"_(e32|e64|sdwa|dpp)$")


def disassembled(elf: Path, arch: str) -> dict[int, tuple[str, int]]:
    """Address → name without its encoding, and bytes, of all instructions of a code object."""
    command = disassembler()
    if not command:
        pytest.skip("there is no llvm-objdump: name it with CKH_LLVM_OBJDUMP")
    done = subprocess.run([*command, "-d", f"--mcpu={arch}", str(elf)], capture_output=True, text=True, check=False)
    if done.returncode or "not a recognized processor" in done.stderr:
        pytest.skip(f"llvm-objdump does not know {arch}: {done.stderr[:100]}")
    result = {}
    for name, address, words in _LINE.findall(done.stdout):
        result[int(address, 16)] = _MATRIX_GFX90A.sub(r"\1_\2", _SUFFIX.sub("", name)), 4 * len(words.split())
    return result


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_assembler_output_is_decoded(library: EmulatorLibrary, arch: str) -> None:
    """Each instruction assembled by LLVM has its name and length."""
    for text, words in assembled(arch).items():
        code = (ctypes.c_uint32 * len(words))(*words)
        name = _SUFFIX.sub("", text.split()[0])
        assert library.instruction(ctypes.addressof(code), len(words)) == (name, len(words)), text


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.file)
def test_names_and_lengths(kept: Kept, tmp_path: Path, library: EmulatorLibrary) -> None:
    """Each instruction of each kernel has LLVM's name and length."""
    elf = tmp_path / "code.elf"
    elf.write_bytes(code_of(kept.library(), kept.arch)[0])
    expected, code = disassembled(elf, kept.arch), CodeObject(elf.read_bytes())
    checked = 0
    for kernel in code.kernels.values():
        for at, name, length in instructions_of(kernel, code, library):
            assert (name, length) == expected[at], hex(at)
            checked += 1
    assert checked > 500
