"""Computing, building and measuring matrix products whose blocks share tiles."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.computation import HipEmission, Measured, Split, Trials
from ckh.ops.gemm_streamk.kernel import ALL_HELD, MOST_BLOCKS, REDUCTIONS, GemmStreamKKernel, parse_streamk_kernel
from ckh.ops.gemm_streamk.measuring import hip
from ckh.ops.gemm_streamk.pool import BENCH_POOLS, PIPELINES, POOLS, STREAMK_RULES, streamk_space
from ckh.ops.gemm_streamk.problem import OP_TYPE, GemmStreamKProblem
from ckh.ops.gemm_universal.measuring import measured as gemm
from ckh.ops.gemm_universal.measuring.trials import kernel_class, loop_end_sizes, representatives_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec
    from ckh.bench.codegen.ck_tile import Headers
    from ckh.kernels.judging import Rule

_TEMPLATES = Path(__file__).parents[1] / "templates" / "ck_tile"
_MOST_CUS = 304  # of a GPU: MI300X


def parts_at_most(tiles: int, steps: int, blocks: int) -> int:
    """Largest number of blocks that share a tile, of any number of blocks up to this.

    A block has at least the steps of all shared tiles, divided by the blocks and rounded down; where tiles are more
    than blocks, these are at least the steps of a tile.
    """
    each = max(tiles * steps // min(blocks, tiles * steps), 1)
    return min(steps, -(-steps // each) + 1)


def split(problem: GemmStreamKProblem, name: str) -> Split:
    """How a kernel splits a problem's sums: by atomic operations in any order, or in float32 and in order."""
    kernel = parse_streamk_kernel(name)
    if kernel.reduction != "atomic":
        return Split()
    m, n, k = kernel.tile
    blocks = _MOST_CUS * (MOST_BLOCKS if kernel.blocks_per_cu == ALL_HELD else kernel.blocks_per_cu)
    return Split(parts_at_most(-(-problem.m // m) * -(-problem.n // n), -(-problem.k // k), blocks))


def _emit_hip(kernel: GemmStreamKKernel, headers: Headers, arch: ArchSpec) -> str:
    return hip.emit(kernel, gemm.gemm_headers(headers), arch)


def _hip_rules(headers: Headers) -> tuple[Rule, ...]:
    return hip.streamk_rules(gemm.gemm_headers(headers))


def _found(headers: Headers) -> dict[str, tuple[str, ...]]:
    assert _GEMM.hip is not None
    return hip.found_in(gemm.gemm_headers(headers), _GEMM.hip.found(headers))


def _class(kernel: GemmStreamKKernel) -> str:
    return f"{kernel_class(kernel)}, {kernel.reduction}"


def _sizes(kernel: GemmStreamKKernel) -> Iterator[tuple[int, int, int]]:
    """Yield M, N and K: `gemm_universal`'s, and tiles and steps that few and many blocks share evenly and unevenly."""
    yield from (sizes[:3] for sizes in loop_end_sizes(kernel))
    m, n, k = kernel.tile
    for tiles, steps in ((1, 4), (1, 9), (2, 7), (3, 5), (4, 3), (5, 6), (8, 2), (11, 3)):
        yield m, tiles * n, steps * k


def _loop_ends(kernel: GemmStreamKKernel) -> tuple[GemmStreamKProblem, ...]:
    found = (GemmStreamKProblem(*sizes, kernel.dtype, kernel.layout) for sizes in _sizes(kernel))
    return tuple(dict.fromkeys(found))


def _representatives(arch: ArchSpec) -> dict[str, list[GemmStreamKKernel]]:
    """Return `gemm_universal`'s classes of the pools' pipelines for each reduction."""
    found: dict[str, list[GemmStreamKKernel]] = {}
    for reduction in REDUCTIONS:
        classes = representatives_of(streamk_space(arch), arch, GemmStreamKKernel, reduction=reduction)
        for kernels in classes.values():
            some = [one for one in kernels if one.pipeline in PIPELINES and not STREAMK_RULES.of_arch(one, arch)]
            if some:
                found[_class(some[0])] = some
    return found


_GEMM: Measured[Any, Any] = gemm.MEASURED
assert _GEMM.hip is not None

MEASURED: Measured[GemmStreamKProblem, GemmStreamKKernel] = Measured(
    computation=replace(_GEMM.computation, split=split),
    host=None,
    hip=HipEmission(
        _emit_hip,
        (_TEMPLATES, *_GEMM.hip.templates),
        "streamk-train",
        ("StreamKKernel",),
        _found,
        _hip_rules,
        _GEMM.hip.compile_s,
    ),
    problems=partial(gemm.problems_of_run, op=OP_TYPE),
    candidate_source=partial(gemm.candidates_of_run, op=OP_TYPE, pools=POOLS, bench_pools=BENCH_POOLS),
    reasons=STREAMK_RULES.check,
    trials=lambda: Trials(_loop_ends, _class, _representatives),
)
