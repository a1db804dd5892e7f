"""Problems of the micro-kernels that measure a GPU's rates: sizes, inputs and right results, all of integers.

The kernels are in `codegen/templates/micro/micro.hpp`. Matrix instructions multiply A and B of 32 rows or columns and a
depth. A lane holds consecutive elements of the depth of one row: of row `lane % 32`, from `lane // 32 * half of the
depth`; of C it has column `lane % 32` of the 16 rows whose `row // 4` is as odd as `lane // 32`.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.bench.isolated.typed import element_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

# In the order of `function_of` of the template; the others are element types of matrix instructions.
KINDS = ("copy", "chase", "read", "read_lds", "fp32", "fp16", "bf16", "fp8", "int8")
_COPY, _CHASE, _READ, _READ_LDS = range(4)
THREADS = 256
CHUNK_BYTES = 4096
LDS_CHUNKS = 4
ACCUMULATORS = 4
SIDE = 32  # of a matrix instruction's tile
_LINES = 32  # of a chunk, 128 bytes each
_CHUNK_WORDS = CHUNK_BYTES // 4
_MULTIPLIER, _INCREMENT = 1664525, 1013904223  # of a generator that reaches all numbers below a power of two
_MATRIX_VALUES = 2  # largest magnitude of a factor, so that sums are exact in float32
_TEXT = re.compile(r"micro_([a-z0-9_]+?)" + r"_(\d{1,9})" * 6)


class CMicroProblem(ctypes.Structure):
    """`struct Problem` of the template."""

    _fields_ = [(name, ctypes.c_int64) for name in ("kind", "blocks", "steps", "chunks", "across", "along")]


@dataclass(frozen=True, slots=True)
class MicroProblem:
    """A problem of a micro-kernel.

    Attributes:
        kind: one of `KINDS`.
        blocks: blocks of `THREADS` threads.
        steps: repetitions.
        chunks: chunks of the input; a power of two to chase pointers.
        across: distance of the first chunks of successive blocks; likewise `along` of successive steps.
        depth: of a matrix instruction; 0 for others.
    """

    kind: str
    blocks: int
    steps: int
    chunks: int = 1
    across: int = 0
    along: int = 0
    depth: int = 0

    @classmethod
    def parse(cls, text: str) -> MicroProblem | None:
        """Parse a canonical text; None if it is the text of another problem."""
        match = _TEXT.fullmatch(text)
        return None if match is None or match[1] not in KINDS else cls(match[1], *map(int, match.groups()[1:]))

    def canonical(self) -> str:
        """Text for jobs."""
        return "_".join(map(str, ("micro", *astuple(self))))

    @property
    def c(self) -> CMicroProblem:
        """As the kernels take it."""
        return CMicroProblem(KINDS.index(self.kind), *astuple(self)[1:-1])

    @property
    def work(self) -> int:
        """Steps of a chase, bytes that are read, or operations of matrix instructions; 1 for a copy."""
        kind = KINDS.index(self.kind)
        if kind <= _CHASE:
            return self.steps
        if kind <= _READ_LDS:
            return self.blocks * self.steps * CHUNK_BYTES * (LDS_CHUNKS if kind == _READ_LDS else 1)
        waves = self.blocks * THREADS // 64
        return waves * self.steps * ACCUMULATORS * 2 * SIDE * SIDE * self.depth

    def inputs(self, random: np.random.Generator, *, fnuz_floats: bool) -> NDArray[np.int32]:
        """Words of the input."""
        words = random.integers(-(1 << 31), 1 << 31, self.chunks * _CHUNK_WORDS, dtype=np.int64).astype(np.int32)
        kind = KINDS.index(self.kind)
        if kind == _CHASE:
            lines = np.arange(self.chunks * _LINES, dtype=np.int64)
            words[::_LINES] = (lines * _MULTIPLIER + _INCREMENT) % len(lines)
        elif kind > _READ_LDS:
            factors = random.integers(-_MATRIX_VALUES, _MATRIX_VALUES + 1, (2, 64, self.depth // 2))
            stored = element_type(self.kind, fnuz_floats=fnuz_floats).rounded(factors.astype(np.float32))
            words[: stored.nbytes // 4] = np.ascontiguousarray(stored).reshape(-1).view(np.int32)
        return words

    def expected(self, words: NDArray[np.int32], *, fnuz_floats: bool) -> NDArray[np.int32]:
        """The right output, shape (blocks, threads)."""
        kind = KINDS.index(self.kind)
        if kind == _COPY:
            return words[: self.blocks * THREADS].reshape(self.blocks, THREADS)
        if kind == _CHASE:
            at, result = 0, np.tile(np.arange(THREADS, dtype=np.int32), (self.blocks, 1))
            for _ in range(self.steps):
                at = int(words[at * _LINES])
            result[:, 0] = at
            return result
        if kind > _READ_LDS:
            return np.tile(self._products(words, fnuz_floats=fnuz_floats), (self.blocks, THREADS // 64))
        of_chunk = words.view(np.uint32).reshape(self.chunks, THREADS, 4).sum(axis=2, dtype=np.uint32)
        if kind == _READ_LDS:
            sums = np.broadcast_to(
                of_chunk.sum(axis=0, dtype=np.uint32) * np.uint32(self.steps), (self.blocks, THREADS)
            )
        else:
            first = np.arange(self.blocks, dtype=np.int64) * self.across
            sums = np.zeros((self.blocks, THREADS), np.uint32)
            for step in range(self.steps):
                sums += of_chunk[(first + step * self.along) % self.chunks]
        return np.ascontiguousarray(sums).view(np.int32)

    def _products(self, words: NDArray[np.int32], *, fnuz_floats: bool) -> NDArray[np.int32]:
        """Sums of all accumulators of each lane."""
        element, half = element_type(self.kind, fnuz_floats=fnuz_floats), self.depth // 2
        stored = words.view(element.storage)[: 2 * 64 * half]
        a, b = (item.reshape(2, SIDE, half) for item in element.widened(stored).astype(np.int64).reshape(2, 64, half))
        product = sum((item @ other.T for item, other in zip(a, b, strict=True)), np.zeros((SIDE, SIDE), np.int64))
        rows = np.arange(SIDE) // 4 % 2
        of_lane = np.concatenate([product[rows == group].sum(axis=0) for group in (0, 1)])
        starts = SIDE // 2 * sum(range(ACCUMULATORS))
        symbol: NDArray[Any] = (starts + ACCUMULATORS * self.steps * of_lane).astype(np.int32)
        return symbol
