"""Trial executions of batched GEMM kernels: `gemm_universal`'s loop remainders in batches, dense and with gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.bench.computation import Trials
from ckh.ops.gemm_batched.kernel import GemmBatchedKernel
from ckh.ops.gemm_batched.kernels.pool import batched_space
from ckh.ops.gemm_batched.problem import BATCH_STRIDES, LEADING, GemmBatchedProblem
from ckh.ops.gemm_universal.measuring.trials import kernel_class, loop_end_sizes, representatives_of

if TYPE_CHECKING:
    from ckh.archs import ArchSpec

_BATCHES = 3
_GAP = 16  # elements between lines: a multiple of every vector width of pools


def loop_end_problems(kernel: GemmBatchedKernel) -> tuple[GemmBatchedProblem, ...]:
    """Return batches of one to three products, every other one with gaps between lines and between matrices."""
    found = []
    for index, (m, n, k, parts) in enumerate(loop_end_sizes(kernel)):
        dense = GemmBatchedProblem(m, n, k, kernel.dtype, kernel.layout, parts, batch=1 + index % _BATCHES)
        found.append(_with_gaps(dense) if index % 2 else dense)
    return tuple(dict.fromkeys(found))


def _with_gaps(dense: GemmBatchedProblem) -> GemmBatchedProblem:
    leading = [length + _GAP for _, length in dense.lines]
    strides = [(lines + 1) * distance for (lines, _), distance in zip(dense.lines, leading, strict=True)]
    return dense.replaced(**dict(zip((*LEADING, *BATCH_STRIDES), (*leading, *strides), strict=True)))


def _representatives(arch: ArchSpec) -> dict[str, list[Any]]:
    """Return each pipeline and scheduler of every dtype; other layouts: `mem` and `compv3`."""
    return representatives_of(batched_space(arch), arch, GemmBatchedKernel)


TRIALS = Trials(loop_end_problems, kernel_class, _representatives)
