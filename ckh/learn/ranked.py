"""`Ranked`: a kernel in its place."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, fields
from itertools import repeat
from typing import TYPE_CHECKING

from ckh.ops import operation_of_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


# By its slots a frozen dataclass is made in less than half of the time: `rank` gives hundreds of them.
_SLOTS = tuple(Ranked.__dict__[field.name].__set__ for field in fields(Ranked))


def in_order(
    problem: Problem,
    pool: Sequence[Kernel],
    order: NDArray[np.intp],
    score: NDArray[np.float64],
    tflops: NDArray[np.float64] | None,
) -> list[Ranked]:
    """Candidates in their order, with the time that goes with the speed that a model expects, if that is a number."""
    kernels, none = [pool[index] for index in order.tolist()], repeat(None)
    assert len(kernels) == len(score) == len(score if tflops is None else tflops)
    made = [object.__new__(Ranked) for _ in kernels]
    speeds: Iterable[float | None] = none
    times: Iterable[float | None] = none
    if tflops is not None:
        flops, values = problem.flops, tflops.tolist()
        known = [flops / (one * _FLOPS_PER_TFLOPS_MS) if one else math.inf for one in values]
        speeds, times = values, known
        if math.isnan(tflops.sum()):
            speeds, times = ([None if math.isnan(one) else one for one in column] for column in (values, known))
    for put, column in zip(_SLOTS, (kernels, score.tolist(), speeds, times, none, none), strict=True):
        deque(map(put, made, column), maxlen=0)
    return made
