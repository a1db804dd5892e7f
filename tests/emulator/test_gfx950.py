"""Additions of gfx950: matrices of twice the depth and of small elements, transposing reads, wide loads to LDS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.emulator.matrices import (
    ACCUMULATORS,
    MATRIX_950,
    SCALED,
    SMALL,
    SMALL_BITS,
    SMALL_SHAPES,
    check_matrix,
    expected,
    matrix_text,
    small_text,
)
from tests.emulator.small_floats import OCP
from tests.emulator.vector_cases import GFX950, VectorCase, check_arithmetic
from tests.emulator.wave import M0, address, buffer

if TYPE_CHECKING:
    from tests.emulator.wave import Wave

LANE = np.arange(64, dtype=np.uint32)


@pytest.mark.parametrize("case", GFX950, ids=lambda case: case.text)
def test_arithmetic(wave950: Wave, case: VectorCase) -> None:
    """Conversions to and from bf16, minimum and maximum of three, and any function of three bits."""
    check_arithmetic(wave950, case)


@pytest.mark.parametrize("file", ACCUMULATORS)
@pytest.mark.parametrize("name", MATRIX_950)
def test_deep_matrices(wave950: Wave, name: str, file: str) -> None:
    """D is A B + C."""
    check_matrix(wave950, matrix_text(name, file), MATRIX_950[name], file, OCP)


def packed(patterns: Any, bits: int) -> Any:
    """Bit patterns of shape (lanes, elements), packed without gaps."""
    flat = (patterns[:, :, None] >> np.arange(bits) & 1).reshape(len(patterns), -1).astype(np.uint8)
    return np.packbits(flat, axis=1, bitorder="little")


def small_operands(type_a: str, type_b: str) -> tuple[Any, Any, dict[int, Any]]:
    """Values of A and B by lane and element, and their registers."""
    random = np.random.default_rng(13)
    values, registers = [], {}
    for start, kind in ((0, type_a), (16, type_b)):
        table = OCP[kind].table()
        patterns = random.choice(np.flatnonzero(np.isfinite(table) & (np.abs(table) <= 16)), (64, 32))
        values.append(table[patterns])
        registers[start] = packed(patterns, SMALL_BITS[kind])
    return values[0], values[1], registers


@pytest.mark.parametrize("type_b", SMALL)
@pytest.mark.parametrize("type_a", SMALL)
@pytest.mark.parametrize("name", SMALL_SHAPES)
def test_matrices_of_small_elements(wave950: Wave, name: str, type_a: str, type_b: str) -> None:
    """Each operand has its own format: fp8, bf8, fp6, bf6 or fp4."""
    a, b, registers = small_operands(type_a, type_b)
    size, blocks, depth = SMALL_SHAPES[name]
    c = np.random.default_rng(14).standard_normal((size * size // 64, 64)).astype(np.float32)
    text = small_text(name, type_a, type_b)
    state = wave950.run(text, vgprs={**registers, 80: np.ascontiguousarray(c.T)})
    d, sums = expected(a, b, c, (size, blocks, depth))
    assert (np.abs(state.vgprs[64 : 64 + len(c)].view(np.float32) - d) <= 1e-6 * sums).all()


@pytest.mark.parametrize("name", SMALL_SHAPES)
def test_scaled_matrices(wave950: Wave, name: str) -> None:
    """A lane's values are multiplied by a power of two, from the byte selected by op_sel."""
    a, b, registers = small_operands("fp8", "fp4")
    size, blocks, depth = SMALL_SHAPES[name]
    random = np.random.default_rng(15)
    powers_a, powers_b = (random.integers(120, 134, 64, np.uint32) for _ in range(2))
    c = np.zeros((size * size // 64, 64), np.float32)
    scales = {48: powers_a << 16 | 0xFF, 49: powers_b << 8 | 0xFF0000}
    text = small_text(name.replace("mfma", "mfma_scale"), "fp8", "fp4", SCALED)
    state = wave950.run(text, vgprs={**registers, **scales, 80: np.ascontiguousarray(c.T)})
    factor_a, factor_b = (np.exp2(powers.astype(np.float64) - 127)[:, None] for powers in (powers_a, powers_b))
    d, sums = expected(a * factor_a, b * factor_b, c, (size, blocks, depth))
    assert (np.abs(state.vgprs[64 : 64 + len(c)].view(np.float32) - d) <= 1e-6 * sums).all()


@pytest.mark.parametrize("rows", [16, 32])
def test_exchanged_rows(wave950: Wave, rows: int) -> None:
    """Odd rows of the first register are swapped with even rows of the second."""
    x, y = LANE + 100, LANE + 200
    state = wave950.run(f"v_permlane{rows}_swap_b32 v0, v2", vgprs={0: x, 2: y})
    is_odd = LANE // rows % 2 == 1
    np.testing.assert_array_equal(state.vgprs[0], np.where(is_odd, y[(LANE - rows) % 64], x))
    np.testing.assert_array_equal(state.vgprs[2], np.where(is_odd, y, x[(LANE + rows) % 64]))


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_transposing_reads(wave950: Wave, bits: int) -> None:
    """Sixteen lanes read rows of sixteen elements, and each gets a column."""
    elements = np.random.default_rng(16).integers(0, 1 << bits, (4, 64 // bits, 16))
    lds = bytes(64) + packed(elements.reshape(4, -1), bits).tobytes()
    state = wave950.run(f"ds_read_b64_tr_b{bits} v[6:7], v4 offset:64", vgprs={4: LANE * 8}, lds=lds)
    columns = packed(elements.transpose(0, 2, 1).reshape(64, -1), bits)
    np.testing.assert_array_equal(state.vgprs[6:8].T.copy().view(np.uint8), columns)


def test_wide_loads_to_lds(wave950: Wave) -> None:
    """Lanes' four dwords are consecutive from M0 on, through a buffer with and without bounds."""
    memory = np.arange(256, dtype=np.uint32) + 1
    inputs = {4: LANE[::-1].copy() * 16}
    expect = memory.reshape(64, 4)[::-1]
    for text, registers in (
        ("buffer_load_dwordx4 v4, s[4:7], s8 offen lds", buffer(memory, memory.nbytes)),
        ("global_load_lds_dwordx4 v4, s[4:5]", address(memory)),
    ):
        state = wave950.run(text, vgprs=inputs, sgprs=registers | {M0: 256})
        np.testing.assert_array_equal(state.lds[256:1280].copy().view(np.uint32).reshape(64, 4), expect)
    cut = wave950.run("buffer_load_dwordx4 v4, s[4:7], s8 offen lds", vgprs=inputs, sgprs=buffer(memory, 40) | {M0: 0})
    assert cut.lds[:1024].copy().view(np.uint32).sum() == memory[:10].sum()


def test_narrowed_integers(wave950: Wave) -> None:
    """Two integers are shifted and saturated to eight bits each."""
    a, b = (np.random.default_rng(seed).integers(-40000, 40000, 64, np.int32) for seed in (17, 18))
    got = wave950.run("v_ashr_pk_i8_i32 v6, v0, v2, v4", vgprs={0: a, 2: b, 4: LANE * 0 + 8, 6: LANE * 0}).vgprs[6]
    low, high = (np.clip(x >> 8, -128, 127).astype(np.uint8).astype(np.uint32) for x in (a, b))
    np.testing.assert_array_equal(got, low | high << 8)
