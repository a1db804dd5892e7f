"""Registers, bytes and waits of instructions equal those of LLVM's assembler."""

from __future__ import annotations

import re

import pytest

from ckh.isa.instructions import Instruction, InstructionKind, instruction
from tests.emulator.wave import assembled

_VECTOR = re.compile(r"(?<![\w\[])-?\|?([va])(?:(\d+)\b|\[(\d+):(\d+)\])")
_NOT_READ = re.compile(r"atomic|_rtn_|ds_add|smfmac|f8f6f4|v_swap")  # what no loop of a kernel has
_EXACT = ("v_mfma", "ds_read_b", "ds_write_b", "buffer_load_dword", "global_load_dword", "flat_", "v_add", "v_mov_b32")


def _named(text: str) -> set[int]:
    """The vector registers in an instruction's text."""
    result: set[int] = set()
    for file, item, first, last in _VECTOR.findall(text.split(" ", 1)[-1]):
        at = 256 if file == "a" else 0
        result |= set(range(at + int(item or first), at + int(item or last) + 1))
    return result


def _used(item: Instruction) -> set[int]:
    return {register for first, end in (*item.reads, *item.writes) for register in range(first, end)}


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_registers_are_the_assemblers(arch: str) -> None:
    """Registers read and written are those of the text; products of two widths may add neighbours."""
    checked = exact = 0
    for text, words in assembled(arch).items():
        name = re.sub(r"_(e32|e64|sdwa|dpp)$", "", text.split()[0])
        if not name.startswith(("v_", "ds_", "buffer_", "global_", "flat_", "scratch_")) or _NOT_READ.search(name):
            continue
        used, named = _used(instruction(0, name, tuple(words))), _named(text)
        checked, exact = checked + 1, exact + (used == named)
        assert used >= named, text
        assert used == named or not name.startswith(_EXACT), text
    assert checked >= 5
    assert exact >= 0.9 * checked


@pytest.mark.parametrize(
    ("name", "words", "vm", "lgkm"),
    [
        ("s_waitcnt", (0xBF8C0F70,), 0, None),  # vmcnt(0)
        ("s_waitcnt", (0xBF8CC07F,), None, 0),  # lgkmcnt(0)
        ("s_waitcnt", (0xBF8C0070,), 0, 0),  # both
        ("s_waitcnt", (0xBF8C4F71,), 17, None),  # vmcnt(17): its bits are in two places
    ],
)
def test_waits(name: str, words: tuple[int, ...], vm: int | None, lgkm: int | None) -> None:
    """The counters of s_waitcnt are read from their bits."""
    item = instruction(0, name, words)
    assert (item.kind, item.most_vm, item.most_lgkm) == (InstructionKind.WAIT, vm, lgkm)


@pytest.mark.parametrize(
    ("name", "words", "kind", "size"),
    [
        ("buffer_load_dwordx4", (0xE05C1000, 0x80000100), InstructionKind.LOAD, 64 * 16),
        ("global_store_short", (0xDC688000, 0x007F0100), InstructionKind.STORE, 64 * 2),
        ("ds_read_b128", (0xD9FE0000, 0x00000004), InstructionKind.LDS_READ, 64 * 16),
        ("ds_write2_b64", (0xD89C0000, 0x00060204), InstructionKind.LDS_WRITE, 64 * 16),
        ("ds_read_u16_d16_hi", (0xD9E00000, 0x00000004), InstructionKind.LDS_READ, 64 * 2),
        ("v_exp_f32", (0x7E004100,), InstructionKind.FLOAT, 0),
        ("v_cndmask_b32", (0x00000000,), InstructionKind.INTEGER, 0),
        ("v_mov_b32", (0x7E000200,), InstructionKind.MOVE, 0),
    ],
)
def test_kinds_and_bytes(name: str, words: tuple[int, ...], kind: InstructionKind, size: int) -> None:
    """A wave moves the bytes of 64 lanes."""
    item = instruction(0, name, words)
    assert (item.kind, item.bytes) == (kind, size)


def test_branches_back() -> None:
    """A branch's target is a signed number of words from the next instruction."""
    item = instruction(100, "s_cbranch_scc1", (0xBF85FFF0,))
    assert item.target == 104 - 16 * 4
    assert not item.is_forward_branch
