"""The `full` rule set: every curated tile with every choice curated for it, and the kernels with options.

`full_candidates` are the combinations of the tables; whether an architecture can build them is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES, PIPELINES, Scheduler, blocks_per_cu
from ckh.kernels.table import SIZES, TRIPLES
from ckh.ops.grouped_conv.kernel import ConvKernel, usual_fields
from ckh.ops.grouped_conv.kernels.variants import (
    DEFAULT_SPECIALIZATION,
    FILTER1X1_PAD0,
    FILTER1X1_STRIDE1_PAD0,
    FILTER3X3,
    read_columns,
    triple,
)
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS
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

_FOLDER = Path(__file__).parent
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
    return tuple(map(_tile, read_columns(_FOLDER / f"{variant}.txt", _COLUMNS)))


def words(column: str) -> list[str]:
    """Split a column, possibly empty, into words."""
    return [] if column == _NONE else column.split()


def _tile(columns: list[str]) -> CuratedTile:
    tile, inputs, waves, half_vectors, fp32_vectors, half_pipes, fp32_pipes = columns
    return CuratedTile(
        tile=triple(tile),
        inputs=frozenset(inputs.split()),
        waves=tuple(WAVES[code] for code in waves.split()),
        half_vectors=tuple(triple(word, "/") for word in words(half_vectors)),
        fp32_vectors=tuple(triple(word, "/") for word in words(fp32_vectors)),
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
    shapes = tuple(sorted({m for m, n, _ in arch.warp_tiles_for(dtype) if m == n}))
    curated = [(wave, shape) for wave in waves for shape in _shapes(variant, tile, wave)]
    every = [(wave, shape) for wave in arch.wave_configs for shape in shapes]
    for pairs in (curated, every):
        fitting = tuple(
            (wave, shape)
            for wave, shape in pairs
            if arch.supports_wave(wave)
            and shape in shapes
            and all(size % (count * shape) == 0 for size, count in _mn(tile, wave))
        )
        if fitting:
            return fitting
    return ()


def _shapes(variant: Direction, tile: Triple, wave: Triple) -> tuple[int, ...]:
    if (variant, tile, wave) in _SHAPE_EXCEPTIONS:
        return _SHAPE_EXCEPTIONS[variant, tile, wave]
    is_large = all(size // count >= _LARGE and (size // count) % _LARGE == 0 for size, count in _mn(tile, wave))
    return (_LARGE if is_large else _SMALL,)


def _mn(tile: Triple, wave: Triple) -> Iterator[tuple[int, int]]:
    return zip(tile[:2], wave[:2], strict=True)


def _warp_depth(dtype: str, shape: int, tile_k: int, arch: ArchSpec, *, first: bool) -> int:
    """Return K of the matrix instruction of that M = N, in elements; `first`: of the first generation."""
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


@dataclass(frozen=True, slots=True)
class KernelOption:
    """Options, and the tiles they are tried on; with the tiles' own pipelines unless pipelines are given."""

    tiles: tuple[Triple, ...] = ()
    pipes: tuple[Pipe, ...] | None = None
    half_only: bool = False
    fields: dict[str, Any] = field(default_factory=dict)  # of kernels


OPTIONS = ("split_image", "num_groups_to_merge", "two_stage", "explicit_gemm", "streamk", "streamk_persistent")


def _option(tiles: str, pipes: str, dtypes: str, options: str) -> KernelOption:
    values: dict[str, Any] = {}
    for name, _, value in (word.partition("=") for word in options.split()):
        values[name] = value if name == "streamk" else int(value) if value else True
    own = tuple(PIPES[code] for code in words(pipes)) or None
    return KernelOption(tuple(map(triple, tiles.split())), own, dtypes == "half", values)


_LEAST_SPECIALIZED_TILE_K = 16
_LARGEST_FILTER3X3_TILE = 4096


def full_candidates(variant: Direction, ndim_spatial: int, dtype: str, arch: ArchSpec) -> tuple[ConvKernel, ...]:
    """Return all kernels of the tables for direction, dimensions and dtype, plain ones first, in table order."""
    if dtype not in RULE_DTYPES or ndim_spatial not in CONV_LAYOUTS:
        return ()
    common = {"explicit_gemm": False} | usual_fields(ndim_spatial)
    kernels = (
        ConvKernel(variant, dtype, **common | option.fields | _fields(variant, dtype, row, pipe, option, arch, *choice))
        for row, option, pipes in _combinations(variant, ndim_spatial, dtype)
        for wave, shape in wave_and_shape(variant, row.tile, row.waves, dtype, arch)
        for vectors in row.vectors(dtype)
        if is_loadable(row.tile, wave, vectors, dtype, arch.wavefront_size)
        for pipe in pipes
        # Wavelet kernels have no entry point for an explicit GEMM.
        if not ("explicit_gemm" in option.fields and pipe.pipeline == "wavelet")
        for choice in ((wave, shape, vectors, name) for name in specializations(variant, row.tile))
    )
    return tuple(dict.fromkeys(kernels))


def _fields(
    variant: Direction, dtype: str, row: CuratedTile, pipe: Pipe, option: KernelOption, arch: ArchSpec, *choice: Any
) -> dict[str, Any]:
    """Return the fields of a kernel by waves, M = N of the matrix instruction, vector widths and specialization."""
    wave, shape, vectors, specialization = choice
    is_wavelet = pipe.pipeline == "wavelet" and variant is Direction.BWD_WEIGHT and row.tile in _FIRST_K_WAVELET
    depth = _warp_depth(dtype, shape, row.tile[2], arch, first="streamk" in option.fields or is_wavelet)
    return {
        "pipeline": pipe.pipeline,
        "scheduler": pipe.scheduler,
        "double_smem_buffer": pipe.pipeline in DOUBLE_SMEM_PIPELINES,
        "specialization": specialization,
        "block_per_cu": blocks_per_cu(pipe.pipeline),
        **dict(zip(SIZES, (*row.tile, *wave, shape, shape, depth), strict=True)),
        **dict(zip(TRIPLES["vectors"], vectors, strict=True)),
    }


def specializations(variant: Direction, tile: Triple) -> tuple[str, ...]:
    """Return the specializations that a tile is tried with."""
    if variant is not Direction.FORWARD:
        return (DEFAULT_SPECIALIZATION, FILTER1X1_STRIDE1_PAD0)
    tile_m, tile_n, tile_k = tile
    if tile_k < _LEAST_SPECIALIZED_TILE_K:
        return (DEFAULT_SPECIALIZATION,)
    every = (DEFAULT_SPECIALIZATION, FILTER1X1_PAD0, FILTER1X1_STRIDE1_PAD0)
    return (*every, FILTER3X3) if tile_m * tile_n <= _LARGEST_FILTER3X3_TILE else every


def _combinations(
    variant: Direction, ndim_spatial: int, dtype: str
) -> Iterator[tuple[CuratedTile, KernelOption, tuple[Pipe, ...]]]:
    rows = curated_tiles(variant)
    for row in rows:
        if row.is_for(ndim_spatial, dtype):
            yield row, KernelOption(), row.pipes(dtype)
    by_tile = {row.tile: row for row in rows}
    for direction, *columns in read_columns(_FOLDER / "options.txt", 5):
        option = _option(*columns)
        # An option's tiles are tried in 2D and 3D, even if only one of them has the tile among its plain kernels.
        for tile in option.tiles if direction == variant and (dtype in HALF_DTYPES or not option.half_only) else ():
            yield by_tile[tile], option, option.pipes or by_tile[tile].pipes(dtype)
