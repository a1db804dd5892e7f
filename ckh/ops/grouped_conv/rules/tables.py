"""The curated tiles of each direction, read from the text files in this folder, with their waves and instructions.

A tile's vector widths are resolved for the two classes of dtypes, half (fp16, bf16) and fp32. `warp_depth` is the K of
the instruction. Its values are those of the newest CDNA generation and exist on the older ones too; an architecture
that lacks a value gets its deepest instruction of that shape that is not deeper, or its shallowest if all are deeper.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.errors import DataError
from ckh.kernels.pipelines import PIPELINES, Scheduler
from ckh.problems import DTYPE_BYTES, Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple


HALF_DTYPES = ("fp16", "bf16")
RULE_DTYPES = (*HALF_DTYPES, "fp32")

WAVES: dict[str, Triple] = {
    "S": (1, 1, 1),
    "M": (2, 1, 1),
    "N": (1, 2, 1),
    "MN": (2, 2, 1),
    "M4": (4, 1, 1),
    "N4": (1, 4, 1),
    "MK": (2, 1, 2),
}


@dataclass(frozen=True, slots=True)
class Pipe:
    """A pipeline with its scheduler."""

    pipeline: str
    scheduler: Scheduler = Scheduler.INTRAWAVE


# Word in the curated tables -> pipeline; an x denotes interwave.
PIPES: dict[str, Pipe] = {
    row.curated + ("x" if scheduler is Scheduler.INTERWAVE else ""): Pipe(row.name, scheduler)
    for row in PIPELINES.values()
    for scheduler in Scheduler
    if row.curated and (row.interwave or scheduler is Scheduler.INTRAWAVE)
}

_NONE = "-"
_COLUMNS = 7


@dataclass(frozen=True, slots=True)
class CuratedTile:
    """A block tile of one direction with everything it is combined with."""

    tile: Triple
    inputs: frozenset[str]
    waves: tuple[Triple, ...]
    half_vectors: tuple[Triple, ...]
    fp32_vectors: tuple[Triple, ...]
    half_pipes: tuple[Pipe, ...]
    fp32_pipes: tuple[Pipe, ...]

    def is_for(self, ndim_spatial: int, dtype: str) -> bool:
        """True if the tile is among the plain kernels of a dtype and number of dimensions."""
        return ("f" if dtype not in HALF_DTYPES else f"h{ndim_spatial}") in self.inputs

    def vectors(self, dtype: str) -> tuple[Triple, ...]:
        """Vector widths of A, B, C that the tile is tried with; empty if it is not for the dtype."""
        return self.half_vectors if dtype in HALF_DTYPES else self.fp32_vectors

    def pipes(self, dtype: str) -> tuple[Pipe, ...]:
        """Pipelines that the tile is tried with; empty if it is not for the dtype."""
        return self.half_pipes if dtype in HALF_DTYPES else self.fp32_pipes


@cache
def curated_tiles(variant: Direction) -> tuple[CuratedTile, ...]:
    """Return the tiles of a direction, by size."""
    return tuple(_tile(columns) for columns in read_columns(f"{variant}.txt", _COLUMNS))


def read_columns(name: str, count: int) -> tuple[list[str], ...]:
    """Read the lines of a table in this folder, split at bars, without comments and empty lines."""
    path = Path(__file__).with_name(name)
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line and not line.startswith("#"):
            columns = [column.strip() for column in line.split("|")]
            if len(columns) != count:
                raise DataError(f"{path}:{number}: there are {len(columns)} columns, not {count}", code="bad-row")
            rows.append(columns)
    return tuple(rows)


def triple(text: str, separator: str = "/") -> Triple:
    """Parse three integers such as 8/8/4."""
    a, b, c = map(int, text.split(separator))
    return a, b, c


def words(column: str) -> list[str]:
    """Split a column, possibly empty, into words."""
    return [] if column == _NONE else column.split()


def _tile(columns: list[str]) -> CuratedTile:
    tile, inputs, waves, half_vectors, fp32_vectors, half_pipes, fp32_pipes = columns
    return CuratedTile(
        tile=triple(tile, "x"),
        inputs=frozenset(inputs.split()),
        waves=tuple(WAVES[code] for code in waves.split()),
        half_vectors=tuple(map(triple, words(half_vectors))),
        fp32_vectors=tuple(map(triple, words(fp32_vectors))),
        half_pipes=tuple(PIPES[code] for code in words(half_pipes)),
        fp32_pipes=tuple(PIPES[code] for code in words(fp32_pipes)),
    )


_SQUARE = (2, 2, 1)
_COLUMN = (4, 1, 1)
_SMALL, _LARGE = 16, 32

# Exceptions where the instruction does not follow from the tile of a wave: (direction, tile, waves) -> M = N of it.
_SHAPE_EXCEPTIONS: dict[tuple[Direction, Triple, Triple], tuple[int, ...]] = {
    (Direction.FORWARD, (64, 64, 32), _SQUARE): (_SMALL,),
    (Direction.FORWARD, (64, 64, 64), _SQUARE): (_SMALL, _LARGE),
    (Direction.FORWARD, (128, 128, 64), _SQUARE): (_SMALL, _LARGE),
    (Direction.FORWARD, (256, 256, 32), _SQUARE): (_SMALL, _LARGE),
    (Direction.BWD_WEIGHT, (64, 64, 64), _SQUARE): (_SMALL, _LARGE),
    (Direction.BWD_DATA, (64, 64, 64), _SQUARE): (_SMALL,),
    (Direction.BWD_DATA, (128, 64, 64), _SQUARE): (_SMALL,),
    (Direction.BWD_DATA, (256, 128, 64), _SQUARE): (_SMALL,),
    (Direction.BWD_DATA, (256, 128, 32), _SQUARE): (_SMALL, _LARGE),
    (Direction.BWD_DATA, (256, 32, 64), _COLUMN): (_SMALL,),
}

# (half precision?, M of the instruction) -> K: of current instructions, and of the first generation.
_INSTRUCTION_K = {(True, _LARGE): 16, (True, _SMALL): 32, (False, _LARGE): 2, (False, _SMALL): 4}
_FIRST_INSTRUCTION_K = {_LARGE: 8, _SMALL: 16}

# Backward-weight tiles whose wavelet kernels, like all stream-K kernels, keep the first generation's K.
_FIRST_K_WAVELET = frozenset({(64, 32, 64), (64, 64, 64)})

_SHALLOW_TILE_K = 16
_SHALLOW_STEP, _STEP = 4, 8
_MAX_VECTOR_BYTES = 32


def wave_and_shape(
    variant: Direction, tile: Triple, waves: tuple[Triple, ...], dtype: str, arch: ArchSpec
) -> tuple[tuple[Triple, int], ...]:
    """Return arrangements of waves with M = N of the instruction, curated for the tile, that the architecture has.

    If the architecture has none of them (RDNA has other waves, the oldest CDNA no single wave), all of its arrangements
    that divide the tile are returned.
    """
    shapes = _square_shapes(dtype, arch)
    curated = [(wave, shape) for wave in waves for shape in _shapes(variant, tile, wave)]
    every = [(wave, shape) for wave in arch.wave_configs for shape in shapes]
    for pairs in (curated, every):
        fitting = tuple(
            (wave, shape)
            for wave, shape in pairs
            if arch.supports_wave(wave) and shape in shapes and _divides(tile, wave, shape)
        )
        if fitting:
            return fitting
    return ()


def _shapes(variant: Direction, tile: Triple, wave: Triple) -> tuple[int, ...]:
    if (variant, tile, wave) in _SHAPE_EXCEPTIONS:
        return _SHAPE_EXCEPTIONS[variant, tile, wave]
    is_large = all(size // count >= _LARGE and (size // count) % _LARGE == 0 for size, count in _mn(tile, wave))
    return (_LARGE if is_large else _SMALL,)


def _square_shapes(dtype: str, arch: ArchSpec) -> tuple[int, ...]:
    return tuple(sorted({m for m, n, _ in arch.warp_tiles_for(dtype) if m == n}))


def _divides(tile: Triple, wave: Triple, shape: int) -> bool:
    return all(size % (count * shape) == 0 for size, count in _mn(tile, wave))


def _mn(tile: Triple, wave: Triple) -> Iterator[tuple[int, int]]:
    return zip(tile[:2], wave[:2], strict=True)


def keeps_first_depth(variant: Direction, tile: Triple, pipeline: str, streamk: str | None) -> bool:
    """True if a kernel keeps the instruction of the first generation."""
    is_wavelet = pipeline == "wavelet" and variant is Direction.BWD_WEIGHT and tile in _FIRST_K_WAVELET
    return streamk is not None or is_wavelet


def warp_depth(dtype: str, shape: int, tile_k: int, arch: ArchSpec, *, first: bool) -> int:
    """Return K of the matrix instruction of that M = N, in elements; `first` is `keeps_first_depth`."""
    is_half = dtype in HALF_DTYPES
    if first:
        depth = min(_FIRST_INSTRUCTION_K[shape], tile_k if is_half else tile_k // 4)
    else:
        step = _SHALLOW_STEP if tile_k <= _SHALLOW_TILE_K else _STEP
        depth = min(max(step, _INSTRUCTION_K[is_half, shape]), tile_k)
    known = [k for m, n, k in arch.warp_tiles_for(dtype) if m == n == shape]
    return max((k for k in known if k <= depth), default=min(known, default=depth))


def is_loadable(tile: Triple, wave: Triple, vectors: Triple, dtype: str, lanes: int) -> bool:
    """True if every thread of the block, with this many lanes per wave, loads A and B in whole vectors."""
    tile_m, tile_n, tile_k = tile
    threads = lanes * wave[0] * wave[1] * wave[2]
    return tile_n % vectors[2] == 0 and all(
        width * DTYPE_BYTES[dtype] <= _MAX_VECTOR_BYTES
        and elements % threads == 0
        and (elements // threads % width == 0 or width % (elements // threads) == 0)
        for elements, width in ((tile_m * tile_k, vectors[0]), (tile_n * tile_k, vectors[1]))
    )
