"""Scalar arithmetic, branches and loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.emulator.wave import EXEC, SCC

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.wave import Wave

_WORD, _PAIR = 1 << 32, 1 << 64
VALUES = [0, 1, 2, 31, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678, 0xDEADBEEF]


def _signed(x: int, bits: int = 32) -> int:
    return x - (1 << bits) if x >> (bits - 1) else x


def _field(x: int, spec: int, *, signed: bool) -> int:
    at, width = spec & 31, spec >> 16 & 127
    value = (_signed(x) if signed else x) >> at & (1 << width) - 1
    return _signed(value, width) if signed and width and value >> (width - 1) else value


# name → result, and SCC or None where it stays
Result = tuple[int, "bool | None"]
TWO: dict[str, Callable[[int, int], Result]] = {
    "s_add_u32": lambda a, b: (a + b, a + b >= _WORD),
    "s_sub_u32": lambda a, b: (a - b, b > a),
    "s_add_i32": lambda a, b: (a + b, not -(1 << 31) <= _signed(a) + _signed(b) < 1 << 31),
    "s_sub_i32": lambda a, b: (a - b, not -(1 << 31) <= _signed(a) - _signed(b) < 1 << 31),
    "s_min_i32": lambda a, b: (min(a, b, key=_signed), _signed(a) < _signed(b)),
    "s_max_u32": lambda a, b: (max(a, b), a >= b),
    "s_and_b32": lambda a, b: (a & b, a & b != 0),
    "s_or_b32": lambda a, b: (a | b, a | b != 0),
    "s_xor_b32": lambda a, b: (a ^ b, a ^ b != 0),
    "s_andn2_b32": lambda a, b: (a & ~b, a & ~b % _WORD != 0),
    "s_lshl_b32": lambda a, b: (a << (b & 31), (a << (b & 31)) % _WORD != 0),
    "s_lshr_b32": lambda a, b: (a >> (b & 31), a >> (b & 31) != 0),
    "s_ashr_i32": lambda a, b: (_signed(a) >> (b & 31), _signed(a) >> (b & 31) != 0),
    "s_mul_i32": lambda a, b: (a * b, None),
    "s_mul_hi_u32": lambda a, b: (a * b >> 32, None),
    "s_mul_hi_i32": lambda a, b: (_signed(a) * _signed(b) >> 32, None),
    "s_bfe_u32": lambda a, b: (_field(a, b, signed=False), _field(a, b, signed=False) != 0),
    "s_bfe_i32": lambda a, b: (_field(a, b, signed=True), _field(a, b, signed=True) != 0),
    "s_lshl2_add_u32": lambda a, b: ((a << 2) + b, (a << 2) + b >= _WORD),
    "s_pack_ll_b32_b16": lambda a, b: (a & 0xFFFF | b << 16, None),
    "s_absdiff_i32": lambda a, b: (abs(_signed((a - b) % _WORD)), a != b),
    "s_bfm_b32": lambda a, b: (((1 << (a & 31)) - 1) << (b & 31), None),
}
ONE: dict[str, Callable[[int], Result]] = {
    "s_not_b32": lambda a: (~a, ~a % _WORD != 0),
    "s_brev_b32": lambda a: (int(f"{a:032b}"[::-1], 2), None),
    "s_bcnt1_i32_b32": lambda a: (a.bit_count(), a != 0),
    "s_ff1_i32_b32": lambda a: ((a & -a).bit_length() - 1, None),
    "s_flbit_i32_b32": lambda a: (32 - a.bit_length() if a else -1, None),
    "s_sext_i32_i8": lambda a: (_signed(a & 255, 8), None),
    "s_sext_i32_i16": lambda a: (_signed(a & 65535, 16), None),
    "s_abs_i32": lambda a: (abs(_signed(a)), a != 0),
}
COMPARES: dict[str, Callable[[int, int], bool]] = {
    "eq_i32": lambda a, b: a == b,
    "lg_u32": lambda a, b: a != b,
    "gt_i32": lambda a, b: _signed(a) > _signed(b),
    "lt_u32": lambda a, b: a < b,
    "ge_u32": lambda a, b: a >= b,
    "le_i32": lambda a, b: _signed(a) <= _signed(b),
}


@pytest.mark.parametrize("name", TWO)
def test_two_operands(wave: Wave, name: str) -> None:
    """Result and SCC of every pair of values."""
    specs = [8 << 16 | 4, 31 << 16, 0] if name.startswith("s_bfe") else VALUES
    for a in VALUES:
        for b in specs:
            value, scc = TWO[name](a, b)
            state = wave.run(f"{name} s8, s4, s6", sgprs={4: a, 6: b, SCC: 1})
            assert (int(state.sgprs[8]), int(state.sgprs[SCC])) == (value % _WORD, 1 if scc is None else scc), (a, b)


@pytest.mark.parametrize("name", ONE)
def test_one_operand(wave: Wave, name: str) -> None:
    """Result and SCC of every value."""
    for a in VALUES:
        value, scc = ONE[name](a)
        state = wave.run(f"{name} s8, s4", sgprs={4: a, SCC: 1})
        assert (int(state.sgprs[8]), int(state.sgprs[SCC])) == (value % _WORD, 1 if scc is None else scc), a


@pytest.mark.parametrize("name", COMPARES)
def test_compares(wave: Wave, name: str) -> None:
    """SCC is the result of the compare."""
    for a in VALUES:
        for b in VALUES:
            state = wave.run(f"s_cmp_{name} s4, s6", sgprs={4: a, 6: b})
            assert bool(state.sgprs[SCC]) is COMPARES[name](a, b), (a, b)


def test_64_bits(wave: Wave) -> None:
    """Logic, shifts, bit fields and compares of register pairs."""
    a, b = 0xFEDC_BA98_7654_3210, 0x0F0F_1234_FFFF_0000
    registers = {4: a % _WORD, 5: a >> 32, 6: b % _WORD, 7: b >> 32}
    for name, expected in (("s_and_b64", a & b), ("s_or_b64", a | b), ("s_xor_b64", a ^ b)):
        assert wave.run(f"{name} s[8:9], s[4:5], s[6:7]", sgprs=registers).pair(8) == expected
    registers[6] = 12
    for name, expected in (
        ("s_lshl_b64", (a << 12) % _PAIR),
        ("s_lshr_b64", a >> 12),
        ("s_ashr_i64", (_signed(a, 64) >> 12) % _PAIR),
    ):
        assert wave.run(f"{name} s[8:9], s[4:5], s6", sgprs=registers).pair(8) == expected
    registers[6] = 40 << 16 | 8
    assert wave.run("s_bfe_u64 s[8:9], s[4:5], s6", sgprs=registers).pair(8) == a >> 8 & (1 << 40) - 1
    same = {4: 5, 5: 6, 6: 5, 7: 6}
    assert wave.run("s_cmp_eq_u64 s[4:5], s[6:7]", sgprs=same).sgprs[SCC] == 1
    assert wave.run("s_cmp_eq_u64 s[4:5], s[6:7]", sgprs=same | {5: 0}).sgprs[SCC] == 0


def test_choice_by_scc(wave: Wave) -> None:
    """s_cselect takes the first operand if SCC is set."""
    for scc, expected in ((1, 10), (0, 20)):
        assert wave.run("s_cselect_b32 s8, s4, s6", sgprs={4: 10, 6: 20, SCC: scc}).sgprs[8] == expected


def test_saved_mask(wave: Wave) -> None:
    """s_and_saveexec saves the old mask and deactivates lanes."""
    state = wave.run("s_and_saveexec_b64 s[8:9], s[4:5]", sgprs={4: 0xFF, 5: 0}, exec_mask=0xF0F0)
    assert (state.pair(8), state.pair(EXEC), int(state.sgprs[SCC])) == (0xF0F0, 0xF0, 1)


def test_constants(wave: Wave) -> None:
    """Literals, inline constants and 16-bit constants."""
    state = wave.run("s_mov_b32 s8, 0x12345678", "s_addk_i32 s8, 5")
    assert state.sgprs[8] == 0x1234567D
    assert wave.run("s_mov_b64 s[8:9], -1").pair(8) == _PAIR - 1
    # LLVM writes such a literal for numbers of 32 bits.
    assert wave.run("s_mov_b64 s[8:9], 0xffffffff").pair(8) == _WORD - 1
    assert wave.run("s_movk_i32 s8, -3").sgprs[8] == _WORD - 3


def test_a_loop(wave: Wave) -> None:
    """A backward branch is taken while SCC is set: 7 times 6."""
    state = wave.run(
        *("s_add_i32 s8, s8, s4", "s_sub_u32 s6, s6, 1", "s_cmp_lg_u32 s6, 0", "s_cbranch_scc1 65532"),
        sgprs={4: 7, 6: 6, 8: 0},
    )
    assert state.sgprs[8] == 42


def test_branches_forward(wave: Wave) -> None:
    """Branches skip instructions, s_cbranch_execz only if all lanes are inactive."""
    skipped = "s_mov_b64 s[8:9], -1"
    assert wave.run("s_branch 1", skipped, sgprs={8: 3, 9: 0}).pair(8) == 3
    assert wave.run("s_cbranch_execz 1", skipped, sgprs={8: 3, 9: 0}).pair(8) == _PAIR - 1
    assert wave.run("s_cbranch_execz 1", skipped, sgprs={8: 3, 9: 0}, exec_mask=0).pair(8) == 3


def test_scalar_loads(wave: Wave) -> None:
    """Loads from an address plus offset, and from a buffer, where out of bounds is 0."""
    memory = np.arange(16, dtype=np.uint32) + 100
    at = memory.ctypes.data
    address = {4: at % _WORD, 5: at >> 32}
    assert wave.run("s_load_dwordx2 s[8:9], s[4:5], 0x8", sgprs=address).pair(8) == 102 | 103 << 32
    assert wave.run("s_load_dwordx4 s[8:11], s[4:5], 0x0", sgprs=address).sgprs[8:12].tolist() == [100, 101, 102, 103]
    for size, expected in ((64, 101), (4, 0)):
        assert wave.run("s_buffer_load_dword s8, s[4:7], 0x4", sgprs={**address, 6: size, 7: 0}).sgprs[8] == expected
