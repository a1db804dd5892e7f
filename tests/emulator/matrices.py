"""Matrix instructions, and matrices in AMD's register layout, multiplied by NumPy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.emulator.small_floats import FNUZ
from tests.emulator.wave import assembled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.emulator.wave import Wave

Array = Any

_NAME = re.compile(r"v_mfma_[fi]32_(\d+)x\d+x(\d+)_(?:(\d+)b_)?(f32|f16|bf16|i8|fp8|bf8)(?:_(fp8|bf8))?")
_TYPES = {"f32": "fp32", "f16": "fp16", "i8": "int8"}
Shape = tuple[int, int, int, str, str]  # size of a block, blocks, K, types of A and B


def _matrix_instructions(arch: str) -> dict[str, Shape]:
    """The matrix instructions of instructions.txt, whose names state their shapes and types."""
    result: dict[str, Shape] = {}
    for name in (text.split()[0] for text in assembled(arch)):
        if match := _NAME.fullmatch(name):
            size, depth, blocks, a, b = match.groups()
            types = (_TYPES.get(kind, kind) for kind in (a, b or a))
            result[name] = int(size), int(blocks or 1), int(depth), *types  # type: ignore[assignment]
    return result


MATRIX, MATRIX_950 = _matrix_instructions("gfx942"), _matrix_instructions("gfx950")
# What the formats of small elements are called in instructions, in the order of their numbers.
SMALL = ("fp8", "bf8", "fp6", "bf6", "fp4")
SMALL_SHAPES = {"v_mfma_f32_16x16x128_f8f6f4": (16, 1, 128), "v_mfma_f32_32x32x64_f8f6f4": (32, 1, 64)}
SMALL_BITS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}


def small_text(name: str, type_a: str, type_b: str, scales: str = "") -> str:
    """The instruction on small elements, with the registers of `matrix_text`, and scales in v[48] and v[49]."""
    results = SMALL_SHAPES[name.replace("_scale", "")][0] ** 2 // 64
    a, b = (_range("v", start, SMALL_BITS[kind] * 4) for start, kind in ((0, type_a), (16, type_b)))
    formats = f" cbsz:{SMALL.index(type_a)} blgp:{SMALL.index(type_b)}"
    return f"{name} {_range('v', 64, results * 4)}, {a}, {b}, {_range('v', 80, results * 4)}{scales}{formats}"


SCALED = ", v48, v49 op_sel:[0,1,0] op_sel_hi:[1,0,0]"  # bytes 2 of A's register and 1 of B's
BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "bf8": 1.0, "int8": 1.0}
ACCUMULATORS = ("v", "a")  # where C and D may be


def matrix_text(name: str, file: str) -> str:
    """The instruction with A from register 0, B from 16, C from 32 and D from 64 on."""
    size, blocks, depth, type_a, type_b = (MATRIX | MATRIX_950)[name]
    results = size * size * blocks // 64
    a, b = (_range("v", start, depth * size * blocks * BYTES[kind] / 64) for start, kind in ((0, type_a), (16, type_b)))
    return f"{name} {_range(file, 64, results * 4)}, {a}, {b}, {_range(file, 32, results * 4)}"


def _range(file: str, start: int, size: float) -> str:
    count = max(1, int(size) // 4)
    return f"{file}[{start}:{start + count - 1}]" if count > 1 else f"{file}{start}"


# gfx90a has other names for some matrix instructions: its own, and what MATRIX calls them.
NAMES_90A = {
    "v_mfma_f32_32x32x2f32": "v_mfma_f32_32x32x2_f32",
    "v_mfma_f32_32x32x8f16": "v_mfma_f32_32x32x8_f16",
    "v_mfma_f32_16x16x16f16": "v_mfma_f32_16x16x16_f16",
    "v_mfma_f32_32x32x4bf16_1k": "v_mfma_f32_32x32x4_2b_bf16",
    "v_mfma_f32_4x4x4bf16_1k": "v_mfma_f32_4x4x4_16b_bf16",
    "v_mfma_f32_32x32x8bf16_1k": "v_mfma_f32_32x32x8_bf16",
    "v_mfma_f32_16x16x16bf16_1k": "v_mfma_f32_16x16x16_bf16",
}


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


def check_matrix(wave: Wave, text: str, shape: Shape, file: str, formats: Any = FNUZ) -> None:
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
