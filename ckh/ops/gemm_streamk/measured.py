"""Computing, building and measuring matrix products whose blocks share tiles."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import PIPELINE_HEADERS, Interface
from ckh.bench.computation import Split, Trials
from ckh.kernels.judging import RuleBook
from ckh.ops.gemm_streamk.operation import (
    ALL_HELD,
    FAMILY,
    MOST_BLOCKS,
    REDUCTIONS,
    STREAMK_RULES,
    GemmStreamKKernel,
    parse_streamk_kernel,
)
from ckh.ops.gemm_streamk.problem import OP_TYPE, GemmStreamKProblem
from ckh.ops.gemm_universal.measuring.derived_measured import GEMM, DerivedHip, derived_measured
from ckh.ops.gemm_universal.measuring.hip import source_of
from ckh.ops.gemm_universal.measuring.measured import kernel_class, loop_end_sizes, representatives_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec
    from ckh.ops.gemm_universal.measuring.hip_rules import GemmHeaders

_KERNEL = Path("ck_tile/ops/gemm/kernel/streamk_gemm_kernel.hpp")
# The second kernel of late 2025, which has both reductions and persistent blocks; the first one is in a namespace less.
_CLASS = "namespace reboot"
# How a pipeline's header declares that a loop's end may be a matter of run time.
_ANY_LOOP_END = re.compile(r"operator\(\)\([^)]*\bbool has_hot_loop\b")
_MOST_CUS = 304  # of a GPU: MI300X


def parts_at_most(tiles: int, steps: int, blocks: int) -> int:
    """Largest number of blocks that share a tile, of any number of blocks up to this.

    A block has at least the steps of all shared tiles, divided by the blocks and rounded down; where tiles are more
    than blocks, these are at least the steps of a tile.
    """
    steps_of_block = max(tiles * steps // min(blocks, tiles * steps), 1)
    return min(steps, -(-steps // steps_of_block) + 1)


def split(problem: GemmStreamKProblem, name: str) -> Split:
    """How a kernel splits a problem's sums: by atomic operations in any order, or in float32 and in order."""
    kernel = parse_streamk_kernel(name)
    if kernel.reduction != "atomic":
        return Split()
    m, n, k = kernel.tile
    blocks = _MOST_CUS * (MOST_BLOCKS if kernel.blocks_per_cu == ALL_HELD else kernel.blocks_per_cu)
    return Split(parts_at_most(-(-problem.m // m) * -(-problem.n // n), -(-problem.k // k), blocks))


@RuleBook().rule
def _lacks(pipeline: str, *, headers: GemmHeaders) -> Iterator[str]:
    common = headers.common
    if common.interface is not Interface.LATE_2025:
        yield f"Stream-K kernels need CK Tile's interface of late 2025, this is {common.interface}"
    elif _CLASS not in common.text(_KERNEL):
        yield f"{common} have no Stream-K kernel with both reductions"
    elif pipeline in common.double_buffered:
        yield f"the Stream-K kernel of {common} has one buffer, {pipeline} needs two"
    elif pipeline not in PIPELINE_HEADERS or not _ANY_LOOP_END.search(common.text(PIPELINE_HEADERS[pipeline])):
        yield f"{pipeline} of {common} has its loop's end at compile time, but blocks that share tiles differ in it"


def _source(kernel: GemmStreamKKernel, headers: GemmHeaders) -> str:
    parameters = (
        f"inline constexpr auto strategy = ck_tile::StreamKReductionStrategy::{REDUCTIONS[kernel.reduction]};",
        f"inline constexpr int blocks_per_cu = {kernel.blocks_per_cu};",
    )
    includes = ("streamk_late2025.hpp", "gemm_exports.hpp")
    return source_of(kernel, headers, *includes, vocabulary="streamk_vocabulary.hpp", own=parameters)


HIP = DerivedHip(__file__, "streamk-train", "StreamKKernel", _lacks, _source)


def _class(kernel: GemmStreamKKernel) -> str:
    return f"{kernel_class(kernel)}, {kernel.reduction}"


def _sizes(kernel: GemmStreamKKernel) -> Iterator[tuple[int, int, int]]:
    """Yield M, N and K: `gemm_universal`'s, and tiles and steps that few and many blocks share evenly and unevenly."""
    yield from (sizes[:3] for sizes in loop_end_sizes(kernel))
    m, n, k = kernel.tile
    for tiles, steps in ((1, 4), (1, 9), (2, 7), (3, 5), (4, 3), (5, 6), (8, 2), (11, 3)):
        yield m, tiles * n, steps * k


def _loop_ends(kernel: GemmStreamKKernel) -> tuple[GemmStreamKProblem, ...]:
    problems = (GemmStreamKProblem(*sizes, kernel.dtype, kernel.layout) for sizes in _sizes(kernel))
    return tuple(dict.fromkeys(problems))


def _representatives(arch: ArchSpec) -> dict[str, list[GemmStreamKKernel]]:
    """Return `gemm_universal`'s classes of the pools' pipelines for each reduction."""
    by_class: dict[str, list[GemmStreamKKernel]] = {}
    for reduction in REDUCTIONS:
        classes = representatives_of(FAMILY.space(arch), arch, GemmStreamKKernel, reduction=reduction)
        for kernels in classes.values():
            usable = [
                kernel
                for kernel in kernels
                if kernel.pipeline in FAMILY.pipelines and not STREAMK_RULES.of_arch(kernel, arch)
            ]
            if usable:
                by_class[_class(usable[0])] = usable
    return by_class


MEASURED = derived_measured(
    OP_TYPE,
    FAMILY.pools,
    FAMILY.bench_pools,
    replace(GEMM.computation, split=split),
    HIP.emission,
    Trials(_loop_ends, _class, _representatives),
)
