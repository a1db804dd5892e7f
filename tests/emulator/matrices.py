"""Matrices in AMD's register layout, multiplied by NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.emulator.small_floats import FNUZ

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.emulator.wave import Wave

Array = Any


def elements(
    kind: str, count: int, random: np.random.Generator, formats: Any = FNUZ
) -> tuple[Array, NDArray[np.float64]]:
    """Random elements as stored, and their values."""
    if kind == "int8":
        bits = random.integers(-128, 128, count, np.int8)
        return bits, bits.astype(np.float64)
    if kind in formats:
        table = formats[kind].table()
        bits = random.choice(np.flatnonzero(np.isfinite(table) & (np.abs(table) <= 16)), count).astype(np.uint8)
        return bits, table[bits]
    values = random.standard_normal(count).astype(np.float32)
    values = np.where(np.abs(values) < 1e-3, np.float32(1e-3), values)  # gfx90a takes subnormal numbers for zero
    if kind == "fp16":
        return values.astype(np.float16), values.astype(np.float16).astype(np.float64)
    if kind == "bf16":
        bits = (values.view(np.uint32) >> 16).astype(np.uint16)
        return bits, (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values, values.astype(np.float64)


def result_rows(size: int, lane: NDArray[np.int64], register: int) -> NDArray[np.int64]:
    """The row of D in a lane's register: four rows per lane group in turn; for 4x4 blocks a row per register."""
    if size == 4:
        return np.full(64, register)
    return register // 4 * 4 * (64 // size) + lane // size * 4 + register % 4


def expected(a: Array, b: Array, c: Array, shape: tuple[int, int, int]) -> tuple[Array, Array]:
    """D by register and lane, from A and B by lane and element and C by register and lane; and sums of magnitudes."""
    size, blocks, depth = shape
    lane = np.arange(64)
    groups = 64 // size // blocks
    each = depth // groups
    whole_a, whole_b = np.zeros((2, blocks, size, depth))
    for element in range(each):
        place = lane // size // groups, lane % size, lane // size % groups * each + element
        whole_a[place], whole_b[place] = a[:, element], b[:, element]
    product, magnitude = whole_a @ whole_b.transpose(0, 2, 1), np.abs(whole_a) @ np.abs(whole_b).transpose(0, 2, 1)
    d, sums = np.array(c, np.float64), np.abs(np.array(c, np.float64))
    per_block = len(c) // (1 if size == 4 else blocks)
    for register in range(len(c)):
        block = lane // 4 if size == 4 else np.full(64, register // per_block)
        place = block, result_rows(size, lane, register % per_block), lane % size
        d[register] += product[place]
        sums[register] += magnitude[place]
    return d, sums


def check_matrix(wave: Wave, text: str, shape: tuple[int, int, int, str, str], file: str, formats: Any = FNUZ) -> None:
    """Compare an instruction with NumPy: exact for integers, and within fp32's rounding of the sum otherwise."""
    size, blocks, depth, type_a, type_b = shape
    random = np.random.default_rng(5)
    count = size * blocks * depth // 64
    (a_bits, a), (b_bits, b) = (elements(kind, 64 * count, random, formats) for kind in (type_a, type_b))
    number = np.int32 if type_a == "int8" else np.float32
    c = (random.standard_normal((size * size * blocks // 64, 64)) * 100).astype(number)
    files = {"v": {0: a_bits.reshape(64, -1), 16: b_bits.reshape(64, -1)}, "a": {}}
    files[file][32] = np.ascontiguousarray(c.T)
    state = wave.run(text, vgprs=files["v"], accvgprs=files["a"])
    result = (state.vgprs if file == "v" else state.accvgprs)[64 : 64 + len(c)].view(number)
    d, sums = expected(a.reshape(64, -1), b.reshape(64, -1), c, (size, blocks, depth))
    error = np.abs(result - d)
    assert (error <= (0 if type_a == "int8" else 1e-6 * sums)).all()
