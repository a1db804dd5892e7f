"""Kinds, bytes and waits of instructions, by their names and words."""

from __future__ import annotations

import pytest

from ckh.isa.instructions import InstructionKind, instruction


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
