"""Computing, building and measuring matrix products.

Support matrices show which kernel options work: pipelines and schedulers, in each layout.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache, partial
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ckh.bench.computation import (
    ArrayForm,
    Case,
    Computation,
    HipEmission,
    HostEmission,
    Measured,
    Operand,
    Role,
    Split,
    Trials,
    dense_strides,
    matrix_product,
)
from ckh.errors import NoKernelError, UsageError
from ckh.kernels.pipelines import PIPELINE_CODES, Scheduler, loaded_ahead, most_steps
from ckh.ops import operation
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.pool import BENCH_POOLS, POOLS, buildable, gemm_pool, space_of
from ckh.ops.gemm_universal.measuring import hip
from ckh.ops.gemm_universal.measuring.hip_rules import EMITTED, detect_gemm, rules_of
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, OP_TYPE, GemmProblem, output_dtype
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.bench.codegen.ck_tile import Headers
    from ckh.bench.computation import Contraction, MatrixSettings
    from ckh.bench.planning.candidates import CandidateSource
    from ckh.data.settings import Settings
    from ckh.kernels.pools import Pools
    from ckh.ops.gemm_universal.kernels.pool import GemmSpace


_TILES, _TILES_K = 2, 8  # of the problem that a kernel is tried on
_MATRICES = {"pipelines": (Scheduler.INTRAWAVE,), "schedulers": tuple(Scheduler)}


def matrix(name: str, settings: MatrixSettings) -> tuple[Case[GemmProblem, GemmKernel], ...]:
    """Return the cases of a matrix, by layout; options known to fail are included."""
    if settings.variant or settings.ndim:
        raise UsageError(
            f"{OP_TYPE} has neither directions nor dimensions", "omit those options", code="inapplicable-option"
        )
    if name not in _MATRICES:
        raise UsageError(f"{OP_TYPE} has no matrix {name!r}", one_of(name, _MATRICES), code="unknown-name")
    return tuple(
        Case(_label(kernel, name), kernel, problem_for(kernel), {"layout": kernel.layout})
        for base in (_base(settings, layout) for layout in GEMM_LAYOUTS)
        for pipeline, scheduler in product(PIPELINE_CODES, _MATRICES[name])
        for kernel in [replace(base, pipeline=pipeline, scheduler=scheduler)]
    )


def problem_for(kernel: GemmKernel) -> GemmProblem:
    """Return a problem of a few whole tiles of a kernel."""
    m, n, k = kernel.tile
    return GemmProblem(_TILES * m, _TILES * n, _TILES_K * k, kernel.dtype, kernel.layout)


def _label(kernel: GemmKernel, name: str) -> str:
    return kernel.pipeline if len(_MATRICES[name]) == 1 else f"{kernel.pipeline} {kernel.scheduler}"


def _base(settings: MatrixSettings, layout: str) -> GemmKernel:
    pool = gemm_pool(settings.arch, settings.dtype, layout)
    if not pool:
        raise NoKernelError(f"{settings.arch.name} has no GEMM kernel of {settings.dtype}")
    return pool[0]


def operands(problem: GemmProblem) -> tuple[Operand, ...]:
    """A, B and C as stored: a column-major matrix is stored as its transpose."""
    shapes = (problem.a_shape, problem.b_shape, problem.c_shape)
    a, b, c = (shape if letter == "r" else shape[::-1] for shape, letter in zip(shapes, problem.layout, strict=True))
    dtype = problem.dtype
    return Operand("a", a, dtype), Operand("b", b, dtype), Operand("c", c, output_dtype(dtype), Role.OUTPUT)


def arrays(problem: GemmProblem) -> tuple[ArrayForm, ArrayForm, ArrayForm]:
    """A, B and C as M x K, K x N and M x N, independent of layout."""
    is_column = [letter == "c" for letter in problem.layout]
    return (
        ArrayForm("a", 0, problem.a_shape, "M, K", is_transposed=is_column[0]),
        ArrayForm("b", 1, problem.b_shape, "K, N", is_transposed=is_column[1]),
        ArrayForm("c", 2, problem.c_shape, "M, N", is_transposed=is_column[2]),
    )


def reduction_length(problem: GemmProblem) -> int:
    """Number of products summed in one element of C."""
    return problem.k


def multiply(problem: GemmProblem, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return C as stored in memory, in the precision of A and B, which have the shapes of `operands`."""
    left, right = (
        matrix if letter == "r" else matrix.T for matrix, letter in zip((a, b), problem.layout, strict=False)
    )
    product: NDArray[Any] = left @ right
    return product if problem.layout[2] == "r" else product.T


def contractions(problem: GemmProblem) -> tuple[Contraction]:
    """Return the product as loops over A and B."""
    a, b, *_ = operands(problem)
    strides = [(0, *dense_strides(operand.shape)) for operand in (a, b)]
    return (matrix_product(1, (problem.m, problem.n, problem.k), strides, problem.layout),)


def factors(
    problem: GemmProblem, index: tuple[int, int], a: NDArray[Any], b: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the row of A and the column of B whose product is the element of C at a row and column."""
    row, column = index
    return a[row] if problem.layout[0] == "r" else a[:, row], b[:, column] if problem.layout[1] == "r" else b[column]


_TEMPLATES = Path(__file__).parents[1] / "templates"
_COMPILE_S = {"": 25.0, "mem": 57.0}  # observed for a few kernels' translation units
_DTYPES = ("fp32", "fp16", "bf16", "fp8", "bf8", "int8")


class CGemmProblem(ctypes.Structure):
    """`struct ckh_gemm_problem`."""

    _fields_: ClassVar[Sequence[Any]] = [(name, ctypes.c_int64) for name in ("m", "n", "k", "split_k")]


def c_problem(problem: GemmProblem) -> CGemmProblem:
    """Return the matrix product as kernels take it."""
    return CGemmProblem(problem.m, problem.n, problem.k, problem.split_k)


def _split(problem: GemmProblem, _kernel_name: str) -> Split:
    """Return the problem's split of K; GEMM kernels have no second stage."""
    return Split(problem.split_k)


gemm_headers = cache(detect_gemm)


def _found(headers: Headers) -> dict[str, tuple[str, ...]]:
    of_gemm = gemm_headers(headers)
    pipelines = headers.pipelines & EMITTED[headers.interface] if of_gemm.has_kernel else frozenset()
    words = {
        "pipelines": pipelines - of_gemm.incomplete,
        "epilogues": of_gemm.epilogues,
        "interwave": of_gemm.interwave,
        "persistent": of_gemm.persistent,
    }
    return {what: tuple(sorted(names)) for what, names in words.items()}


def problems_of_run(settings: Settings, op: str) -> tuple[Any, ...]:
    """Return the problems of an operation that a run's settings mean."""
    from ckh.shapes.problems import problems_of

    if settings.variant or settings.ndim or settings.pad_channels:
        raise UsageError(
            f"{op} has neither directions, dimensions nor channels",
            "omit those options",
            code="inapplicable-option",
        )
    return problems_of(operation(op), settings.problems, None, settings.dtype)


def candidates_of_run(
    settings: Settings, op: str, pools: Pools[Any], bench_pools: Pools[Any]
) -> CandidateSource[Any, Any]:
    """Return the source of candidates for a run's settings: an architecture's pool or a registry, filtered."""
    from ckh.bench.planning.candidates import PoolSource, registry_of, wanted_by

    if option := settings.first_given("rule_set", "split_k"):
        raise UsageError(f"{op} has no {option}", "it is for convolutions", code="inapplicable-option")
    return PoolSource(
        bench_pools if settings.filter is None else pools,
        attrgetter(*pools.kind.group_fields),
        wanted_by(settings.filter, pools.kind),
        registry_of(settings.registry, operation(op)),
        settings.registry or "the pool",
    )


MEASURED: Measured[GemmProblem, GemmKernel] = Measured(
    computation=Computation(
        operands,
        multiply,
        reduction_length,
        _DTYPES,
        c_problem,
        _split,
        contractions=contractions,
        factors=factors,
        arrays=arrays,
    ),
    host=HostEmission(hip.emit_for_host, (_TEMPLATES / "host",), "host-gemm-train"),
    hip=HipEmission(
        lambda kernel, headers, arch: hip.emit(kernel, gemm_headers(headers), arch),
        (_TEMPLATES / "ck_tile",),
        "gemm-train",
        ("UniversalGemmKernel",),
        _found,
        lambda headers: rules_of(gemm_headers(headers)),
        _COMPILE_S,
    ),
    problems=partial(problems_of_run, op=OP_TYPE),
    candidate_source=partial(candidates_of_run, op=OP_TYPE, pools=POOLS, bench_pools=BENCH_POOLS),
    reasons=POOLS.rules.check,
    matrix=matrix,
    trials=lambda: Trials(loop_end_problems, kernel_class, representatives),
)


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
    for steps in range(1, most_steps(*kernel.loop) + 1):
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
    by_class: dict[str, list[Any]] = {}
    for dtype, layout in _PAIRS:
        pipelines = space.pipelines if layout == _PAIRS[0][1] else _USUAL
        persistent = space.persistent if (dtype, layout) == _PAIRS[0] else (False,)
        narrowed = replace(space, tiles=small, persistent=persistent, pipelines=pipelines)
        kernels = buildable(narrowed, arch, dtype, layout, kind, **own) if dtype in arch.dtypes else ()
        for kernel in sorted(kernels, key=cost):
            by_class.setdefault(kernel_class(kernel), []).append(kernel)
    return by_class


def cost(kernel: GemmKernel) -> tuple[bool, int, int, int, int, str]:
    """Sort key: kernels of several waves first, since a single wave cannot race; then small tiles and few instructions.

    Each loop remainder is compiled separately: kernels with few remainders precede small tiles, but for one class.
    """
    ends = 0 if kernel_class(kernel) == _ALL_ENDS else loaded_ahead(*kernel.loop)
    m, n, k = kernel.tile
    instruction = (kernel.warp_tile_m or 1) * (kernel.warp_tile_n or 1) * (kernel.warp_tile_k or 1)
    return kernel.num_waves < _WAVES, ends, m * n * k, m + n, -instruction, repr(kernel)
