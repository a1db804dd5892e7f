"""Trial executions of GEMM kernels: kernel classes, and problems that exercise all loop remainders."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ckh.bench.computation import Trials
from ckh.kernels.main_loops import loaded_ahead, most_steps
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.pool import buildable
from ckh.ops.gemm_universal.kernels.spaces import space_of
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, GemmProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.ops.gemm_universal.kernels.spaces import GemmSpace

_RAGGED = 16  # elements beyond whole tiles: a multiple of every vector width of pools
_PARTS = (2, 3)  # splits of K
_WAVES = 4
_UNSCHEDULED = ("basic_v1",)  # ignores the scheduler in its name
_USUAL = ("mem", "compv3")
_MOST_TILE = (128, 128, 64)  # limit for representative kernels: large tiles take long to execute
_ALL_ENDS = "fp16 rcr mem intrawave"  # `mem` prefetches the most tiles
_PAIRS = (
    *(("fp16", layout) for layout in GEMM_LAYOUTS),
    *((dtype, "rcr") for dtype in ("bf16", "fp32", "fp8", "bf8", "int8")),
)


def loop_end_problems(kernel: GemmKernel) -> tuple[GemmProblem, ...]:
    """Return the problems; a kernel may reject some, such as sizes that are not multiples of an unpadded tile."""
    problems = (GemmProblem(m, n, k, kernel.dtype, kernel.layout, parts) for m, n, k, parts in loop_end_sizes(kernel))
    return tuple(dict.fromkeys(problems))


def loop_end_sizes(kernel: GemmKernel) -> Iterator[tuple[int, int, int, int]]:
    """Yield M, N, K and the split of K of problems that exercise all loop remainders of a kernel."""
    m, n, k = kernel.tile
    for steps in range(1, most_steps(*_loop(kernel)) + 1):
        yield m, n, steps * k, 1
    # More blocks than any block order groups at a time, and than a persistent kernel launches.
    yield 7 * m, 2 * n, 2 * k, 1
    yield m + _RAGGED, n, k, 1
    yield m, n + _RAGGED, 2 * k, 1
    yield m, n, 2 * k + _RAGGED, 1
    yield m + _RAGGED, n + _RAGGED, 3 * k + _RAGGED, 1
    for parts in _PARTS:
        yield m, n, 4 * parts * k, parts


def kernel_class(kernel: GemmKernel) -> str:
    """Return dtype, layout, pipeline, scheduler and persistence of a kernel, as text."""
    scheduler = "" if kernel.pipeline in _UNSCHEDULED else f" {kernel.scheduler}"
    kind = f"{kernel.dtype} {kernel.layout} {kernel.pipeline}{scheduler}"
    return f"{kind}, persistent" if kernel.persistent else kind


def representatives(arch: ArchSpec) -> dict[str, list[GemmKernel]]:
    """Return each pipeline and scheduler of every dtype, in fp16 also persistent; other layouts: `mem` and `compv3`."""
    return representatives_of(space_of(arch), arch)


def representatives_of(
    space: GemmSpace, arch: ArchSpec, kind: type[GemmKernel] = GemmKernel, **own: Any
) -> dict[str, list[Any]]:
    """Return `representatives` of a space and a class of kernels with its own fields."""
    small = tuple(tile for tile in space.tiles if all(a <= b for a, b in zip(tile, _MOST_TILE, strict=True)))
    result: dict[str, list[Any]] = {}
    for dtype, layout in _PAIRS:
        pipelines = space.pipelines if layout == _PAIRS[0][1] else _USUAL
        persistent = space.persistent if (dtype, layout) == _PAIRS[0] else (False,)
        narrowed = replace(space, tiles=small, persistent=persistent, pipelines=pipelines)
        kernels = buildable(narrowed, arch, dtype, layout, kind, **own) if dtype in arch.dtypes else ()
        for kernel in sorted(kernels, key=cost):
            result.setdefault(kernel_class(kernel), []).append(kernel)
    return result


def cost(kernel: GemmKernel) -> tuple[bool, int, int, int, int, str]:
    """Sort key: kernels of several waves first, since a single wave cannot race; then small tiles and few instructions.

    Each loop remainder is compiled separately: kernels with few remainders precede small tiles, but for one class.
    """
    ends = 0 if kernel_class(kernel) == _ALL_ENDS else loaded_ahead(*_loop(kernel))
    m, n, k = kernel.tile
    instruction = (kernel.warp_tile_m or 1) * (kernel.warp_tile_n or 1) * (kernel.warp_tile_k or 1)
    return _waves(kernel) < _WAVES, ends, m * n * k, m + n, -instruction, repr(kernel)


def _loop(kernel: GemmKernel) -> tuple[str, Triple, int, str]:
    """Return the parameters that a kernel's loop depends on: pipeline, tile, waves, dtype."""
    return kernel.pipeline, kernel.tile, _waves(kernel), kernel.dtype


def _waves(kernel: GemmKernel) -> int:
    """Number of waves per block."""
    return (kernel.wave_m or 1) * (kernel.wave_n or 1) * (kernel.wave_k or 1)


TRIALS = Trials(loop_end_problems, kernel_class, representatives)
