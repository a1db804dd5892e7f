"""`Ranked`: a kernel in its place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.ops import operation_of_kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ckh.learn.ranking_text import NotMeasured
    from ckh.ops.base import Kernel, Problem

_FLOPS_PER_TFLOPS_MS = 1e9


@dataclass(frozen=True, slots=True)
class Ranked:
    """A kernel in its place.

    Attributes:
        kernel: the kernel.
        score: what the model orders by.
        tflops: what the model expects, if it does.
        latency_ms: the time that goes with it.
        measured_ms: what `ckh predict --probe` measured on this machine, if that decides the place.
        not_measured: what to know where no measurement of this GPU and element type stands behind the order.
    """

    kernel: Kernel
    score: float
    tflops: float | None
    latency_ms: float | None
    measured_ms: float | None = None
    not_measured: NotMeasured | None = None

    @property
    def name(self) -> str:
        """The kernel's complete name."""
        return operation_of_kernel(self.kernel).kernel_name(self.kernel)


def in_order(
    problem: Problem,
    pool: tuple[Kernel, ...],
    order: NDArray[np.intp],
    score: NDArray[np.float64],
    tflops: NDArray[np.float64] | None,
) -> list[Ranked]:
    """Candidates in their order, with the time that goes with the speed that a model expects, if that is a number."""
    kernels = [pool[index] for index in order.tolist()]
    if tflops is None:
        return [Ranked(kernel, value, None, None) for kernel, value in zip(kernels, score.tolist(), strict=True)]
    flops, figures = problem.flops, zip(kernels, score.tolist(), tflops.tolist(), strict=True)
    return [
        Ranked(kernel, value, None, None)
        if math.isnan(speed)
        else Ranked(kernel, value, speed, flops / (speed * _FLOPS_PER_TFLOPS_MS) if speed else math.inf)
        for kernel, value, speed in figures
    ]
