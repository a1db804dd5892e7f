"""Code that no compiler emits is refused: registers that do not exist, reserved fields, truncation."""

from __future__ import annotations

import ctypes
import re
import struct
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.emulator.codeobject import BUNDLE_MAGIC, MAX_SCRATCH_BYTES, CodeObject, decode_metadata, find_code
from ckh.emulator.launch import EmulatedGpu, EmulatorError, Registers
from tests.emulator.damage import code_of, confine
from tests.emulator.damaged_words import DAMAGED, V0, sop1, vop3
from tests.emulator.keep import KEPT
from tests.emulator.wave import Wave, WaveError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.emulator.launch import EmulatorLibrary


@pytest.mark.parametrize("words", DAMAGED.values(), ids=DAMAGED)
def test_operands_that_do_not_exist_are_refused(wave: Wave, words: Sequence[int]) -> None:
    """An instruction with such an operand ends the wave, and changes no inline constant beyond s127."""
    constants = [*range(65), *(-n & 0xFFFFFFFF for n in range(1, 17))]
    with pytest.raises(WaveError, match=r"^no instruction "):
        wave.run(words, sgprs={4: 0, 5: 0, 8: 3})
    assert wave.run("s_nop 0").sgprs[128:209].tolist() == constants
    scalars = np.ctypeslib.as_array(wave.library.registers(Registers.SGPRS), (256,))
    assert scalars[128:209].tolist() == constants


@pytest.mark.parametrize("cut", [2, 3])
def test_a_truncated_instruction_is_refused(wave: Wave, cut: int) -> None:
    """If the program ends within an instruction, nothing beyond its end is read."""
    with pytest.raises(WaveError, match="no instruction"):
        wave.run("v_mul_lo_u32 v6, v0, v2", "s_nop 0", cut=cut)


def test_a_truncated_instruction_has_the_remaining_length(library: EmulatorLibrary) -> None:
    """The decoder names it, and returns the number of remaining words."""
    words = (ctypes.c_uint32 * 2)(*vop3(649, 8, V0, 8))
    assert library.instruction(ctypes.addressof(words), 2) == ("v_readlane_b32", 2)
    assert library.instruction(ctypes.addressof(words), 1) == ("v_readlane_b32", 1)


@pytest.mark.parametrize("target", ["within an instruction", "nowhere"])
def test_jumps_end_at_instructions(wave: Wave, target: str) -> None:
    """A jump to a misaligned address, or to the last possible one, is outside of the program."""
    jump: tuple[int, ...]
    if target == "nowhere":
        jump = (*sop1(1, 4, 193), *sop1(29, 0, 4))  # s_mov_b64 s[4:5], -1; s_setpc_b64 s[4:5]
    else:  # s_getpc_b64, s_addk_i32 s4, 10: two bytes behind s_setpc_b64
        jump = (*sop1(28, 4, 0), 0xB7000000 | 4 << 16 | 10, *sop1(29, 0, 4), 0xBF800000, 0xBF800000)
    with pytest.raises(WaveError, match="no instruction"):
        wave.run(jump)


def test_a_loop_with_a_barrier_ends(wave: Wave) -> None:
    """The instruction limit counts all of a wave's instructions across barriers."""
    with pytest.raises(WaveError, match="stopped with 3"):
        wave.run((0xBF8A0000, 0xBF82FFFE), threads=128)  # s_barrier; s_branch to it


def test_the_limit_counts_all_instructions(wave: Wave) -> None:
    """Programs up to the limit run, with any number of barriers."""
    assert wave.run(*["s_barrier", "s_nop 0"] * 499, "s_nop 0").sgprs[128] == 0
    with pytest.raises(WaveError, match="stopped with 3"):
        wave.run(*["s_barrier", "s_nop 0"] * 500)


@pytest.mark.parametrize("text", ["global_load_dword v6, v4, s[4:5] offset:4", "s_load_dwordx2 s[8:9], s[4:5], 0x8"])
def test_a_window_confines_memory(wave: Wave, text: str) -> None:
    """With a window, a kernel may read the window and its arguments; other accesses are faults."""
    memory = (ctypes.c_uint32 * 64)(*range(64))
    address = ctypes.addressof(memory)
    sgprs, vgprs = {4: address & 0xFFFFFFFF, 5: address >> 32}, {4: np.arange(64, dtype=np.uint32) % 4 * 4}
    library = wave.library
    try:
        for allowed in (partial(confine, library), library.set_arguments):
            confine(library, 1, 1)
            library.set_arguments(1, 1)
            with pytest.raises(WaveError, match="outside the memory"):
                wave.run(text, sgprs=sgprs, vgprs=vgprs)
            allowed(address, ctypes.sizeof(memory))
            wave.run(text, sgprs=sgprs, vgprs=vgprs)
    finally:
        confine(library, 0, 0)


@pytest.mark.parametrize("text", ["global_load_dword v6, v4, s[4:5] offset:4", "s_load_dwordx2 s[8:9], s[4:5], 0x8"])
def test_an_address_near_zero_is_a_fault(wave: Wave, text: str) -> None:
    """A kernel that reads through a null pointer is reported, and does not end the process, also without a window."""
    for address in (0, 4080):
        with pytest.raises(WaveError, match="outside the memory"):
            wave.run(text, sgprs={4: address, 5: 0}, vgprs={4: np.zeros(64, np.uint32)})


def _elf() -> bytearray:
    return bytearray(code_of(KEPT[0].library(), KEPT[0].arch)[0])


def _descriptor() -> int:
    """The offset of the kernel descriptor in the first kept library's code object."""
    elf = _elf()
    entry = max(kernel.entry for kernel in CodeObject(bytes(elf)).kernels.values())
    (result,) = (at for at in range(0, 8192, 64) if at + struct.unpack_from("<q", elf, at + 16)[0] == entry)
    return result


def test_a_kernel_with_too_much_scratch_memory_is_refused() -> None:
    """A descriptor with more scratch memory per lane than a GPU has is damaged."""
    elf, at = _elf(), _descriptor()
    struct.pack_into("<I", elf, at + 4, MAX_SCRATCH_BYTES)
    assert {kernel.scratch for kernel in CodeObject(bytes(elf)).kernels.values()} == {0, MAX_SCRATCH_BYTES}
    struct.pack_into("<I", elf, at + 4, MAX_SCRATCH_BYTES + 1)
    with pytest.raises(ValueError, match=f"scratch .*{MAX_SCRATCH_BYTES + 1} "):
        CodeObject(bytes(elf))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (rb"(?<=\.kernarg_segment_size\xcd)..", b"\x00\x10", "beyond its 16 bytes"),
        (rb"\xa7\.offset", b"\xa7.offsot", r"field `\.offset`"),
        (rb"\xa7\.symbol", b"\xa7.simbol", r"field `\.symbol`"),
        (rb"amdhsa\.kernels", b"amdhsa.kernals", r"field `amdhsa\.kernels`"),
        (rb"\.text\0", b".tixt\0", "without instructions"),
    ],
)
def test_damaged_code_objects_are_refused(old: bytes, new: bytes, message: str) -> None:
    """Missing fields and inconsistent sizes are refused by name."""
    elf = bytes(_elf())
    damaged, count = re.subn(old, lambda _match: new, elf, flags=re.DOTALL)
    assert count
    assert len(damaged) == len(elf)
    with pytest.raises(ValueError, match=message):
        CodeObject(damaged)


def test_a_truncated_bundle() -> None:
    """A bundle that states more bytes than are mapped is refused before any is read."""
    library = KEPT[0].library()
    start = library.index(BUNDLE_MAGIC)
    bundle = bytearray(library[start:])
    at = next(at for at in range(32, 4096) if struct.unpack_from("<Q", bundle, at)[0] == len(_elf()))
    struct.pack_into("<Q", bundle, at, 1 << 45)
    memory = ctypes.create_string_buffer(bytes(bundle))
    with pytest.raises(ValueError, match="truncated"):
        find_code(ctypes.addressof(memory), KEPT[0].arch)
    with pytest.raises(ValueError, match="no memory at 0x10"):
        find_code(16, KEPT[0].arch)


@pytest.mark.parametrize(("block", "shared"), [((1025, 1, 1), 0), ((0, 1, 1), 0), ((64, 1, 1), 160 << 10)])
def test_workgroups_beyond_the_limits_are_refused(
    library: EmulatorLibrary, block: tuple[int, int, int], shared: int
) -> None:
    """A workgroup has 1 to 1,024 threads and 160 kB of LDS; others are not launched."""
    content = KEPT[0].library()
    bundle = ctypes.create_string_buffer(content[content.index(BUNDLE_MAGIC) :])
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(bundle))
    name = max(CodeObject(bytes(_elf())).kernels.values(), key=lambda kernel: kernel.lds).name
    gpu = EmulatedGpu(library, KEPT[0].arch)
    with pytest.raises(EmulatorError, match=r"1024\D+163840"):
        gpu.launch(name, ctypes.addressof(bundle), (1, 1, 1), block, arguments, shared)
    with pytest.raises(ValueError, match="without kernel nobody"):
        gpu.launch("nobody", ctypes.addressof(bundle), (1, 1, 1), block, arguments, shared)


@pytest.mark.parametrize("content", [b"\x81\x90\x01", b"", b"\x81\xa1x" + b"\x91" * 100_000])
def test_damaged_metadata(content: bytes) -> None:
    """A list as a key, no content, and lists nested too deep."""
    with pytest.raises(ValueError, match="damaged metadata"):
        decode_metadata(content)
