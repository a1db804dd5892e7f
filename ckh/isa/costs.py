"""Clocks for which instructions occupy the pipes of a compute unit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.isa.instructions import LANES, LDS_KINDS, MEMORY_KINDS, VECTOR_KINDS, InstructionKind
from ckh.learn.analytic.estimate import LDS_WRITE_BYTES_PER_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ckh.hardware.archspec import ArchSpec
    from ckh.isa.instructions import Instruction

ISSUE_CLOCKS = 4  # of any instruction: 64 lanes on 16
# LLVM's scheduling models (SISchedule.td): transcendental functions and conversions take four times as long on all of
# these GPUs. 32-bit integer products do too, and 64-bit ones take twice as long as these, in the model of GPUs before
# gfx90a; the model of later GPUs has both at full rate, which has not been measured: the earlier costs are used.
_QUARTER = (
    *("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_"),
    *("v_cvt_f32_u32", "v_cvt_f32_i32", "v_cvt_u32_f32", "v_cvt_i32_f32"),
)
INTEGER_PRODUCTS = ("v_mul_lo_u32", "v_mul_hi_u32", "v_mul_hi_i32", "v_mad_u64_u32", "v_mad_i64_i32")
_WIDE = re.compile(r"_[bui]64(_|$)")
_DTYPES = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "xf32": "fp32", "i8": "int8", "fp8": "fp8", "bf8": "bf8"}
_SCALED = "f8f6f4"
_SHAPE = re.compile(r"_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_?(\w*)")
_OF_LANE = {"f16": 4, "bf16": 2, "bf16_1k": 4, "i8": 4}  # elements of A per lane, for the shortest instructions
_UNKNOWN_MATRIX_CLOCKS = 64  # the longest of all


@dataclass(frozen=True, slots=True)
class Pipes:
    """Clocks for which one pass of instructions occupies each pipe, for a block of `waves` waves.

    `vector`, which includes `address` for integer arithmetic, and `matrix` are of the busiest SIMD; `lds` and `memory`
    of the compute unit.
    """

    vector: float
    address: float
    matrix: float
    lds: float
    memory: float

    def by_name(self) -> dict[str, float]:
        """Clocks by name of the pipe."""
        return {"vector ALU": self.vector, "matrix": self.matrix, "LDS": self.lds, "memory": self.memory}


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Instruction costs on an architecture."""

    arch: ArchSpec

    def clocks(self, instruction: Instruction) -> float:
        """Clocks for which an instruction of one wave occupies its pipe."""
        if instruction.kind is InstructionKind.MATRIX:
            return self._matrix(instruction.name)
        if instruction.kind in VECTOR_KINDS:
            return vector_clocks(instruction.name)
        if instruction.kind in LDS_KINDS:
            return max(ISSUE_CLOCKS, instruction.bytes / self._lds_bytes_per_clock(instruction))
        if instruction.kind not in MEMORY_KINDS:
            return ISSUE_CLOCKS
        assert self.arch.peaks is not None
        return max(ISSUE_CLOCKS, instruction.bytes / self.arch.peaks.l2_bytes_per_clock)

    def pipes(self, instructions: Iterable[Instruction], waves: int) -> Pipes:
        """Clocks of one pass, for a block of `waves` waves."""
        simds = self.arch.hardware.simds_per_cu
        per_simd = -(-waves // simds)
        clocks = dict.fromkeys(InstructionKind, 0.0)
        for instruction in instructions:
            clocks[instruction.kind] += self.clocks(instruction)
        return Pipes(
            vector=per_simd * sum(clocks[kind] for kind in VECTOR_KINDS),
            address=per_simd * clocks[InstructionKind.INTEGER],
            matrix=per_simd * clocks[InstructionKind.MATRIX],
            lds=waves * sum(clocks[kind] for kind in LDS_KINDS),
            memory=waves * sum(clocks[kind] for kind in MEMORY_KINDS),
        )

    def _lds_bytes_per_clock(self, instruction: Instruction) -> float:
        assert self.arch.peaks is not None
        return (
            LDS_WRITE_BYTES_PER_CLOCK
            if instruction.kind is InstructionKind.LDS_WRITE
            else self.arch.peaks.lds_bytes_per_clock
        )

    def _matrix(self, name: str) -> float:
        """Clocks by the rates of matrix instructions in the architecture's file."""
        peaks, shape = self.arch.peaks, matrix_shape(name)
        if peaks is None or shape is None:
            return _UNKNOWN_MATRIX_CLOCKS
        tile, blocks, kind = shape
        dtype = "fp8" if kind == _SCALED else _DTYPES.get(kind, "")
        rate = peaks.matrix_flops_per_cu_clock.get(dtype, {}).get(tile) or peaks.flops_per_cu_clock.get(dtype)
        if not rate:
            return _UNKNOWN_MATRIX_CLOCKS
        m, n, k = tile
        return 2 * m * n * k * blocks * self.arch.hardware.simds_per_cu / rate


def vector_clocks(name: str) -> int:
    """Clocks of a vector instruction on its SIMD."""
    if name.startswith((*_QUARTER, *INTEGER_PRODUCTS)):
        return 4 * ISSUE_CLOCKS
    return 2 * ISSUE_CLOCKS if _WIDE.search(name) else ISSUE_CLOCKS


def matrix_shape(name: str) -> tuple[tuple[int, int, int], int, str] | None:
    """Tile, blocks and element type of a matrix instruction; None if its name does not state them."""
    matched = _SHAPE.search(name)
    if matched is None:
        return None
    m, n, k = (int(matched[part]) for part in (1, 2, 3))
    kind, _, rest = matched[5].partition("_")
    # Names on gfx90a omit the blocks: lanes that one block does not use belong to others.
    of_lane = _OF_LANE.get(f"{kind}_{rest}", _OF_LANE.get(kind, 1))
    return (m, n, k), int(matched[4] or max(1, LANES * of_lane // (m * k))), kind
