"""`Ranked`: a kernel in its place."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, fields
from itertools import repeat
from typing import TYPE_CHECKING

from ckh.ops import operation_of_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ckh.learn.answers.answer import NotMeasured
    from ckh.learn.answers.ties import TiedKernels
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
        measured_latency_ms: what `ckh predict --probe` measured on this machine, if that decides the place.
        not_measured: what to know where no measurement of this GPU and element type stands behind the order.
        ties: how many candidates have this score, this kernel among them: the model cannot tell them apart.
        alike: the others of them, where so many rows that differ were requested; else each is a row of its own.
        padded: the problem with sizes rounded up that the kernel runs, and speed and time are of, where no kernel
            applies to the requested one; None: that.
        not_in_headers: why CK Tile's headers here cannot build the kernel; empty if they can, or none are known.
    """

    kernel: Kernel
    score: float
    tflops: float | None
    latency_ms: float | None
    measured_latency_ms: float | None = None
    not_measured: NotMeasured | None = None
    ties: int = 1
    alike: Sequence[Kernel] = field(default=(), compare=False)
    padded: Problem | None = None
    not_in_headers: str = ""

    @property
    def name(self) -> str:
        """The kernel's complete name."""
        return operation_of_kernel(self.kernel).kernel_name(self.kernel)


# By its slots a frozen dataclass is made in less than half of the time: `rank` gives hundreds of them.
_SLOTS = tuple(Ranked.__dict__[one.name].__set__ for one in fields(Ranked))


def in_order(
    problem: Problem,
    pool: Sequence[Kernel],
    order: NDArray[np.intp],
    score: NDArray[np.float64],
    tflops: NDArray[np.float64] | None,
    padded: Problem | None = None,
    *,
    ties: Iterable[int] | None = None,
    alike: Sequence[TiedKernels] | None = None,
) -> list[Ranked]:
    """Candidates in their order, with the time that goes with the speed that a model expects, if that is a number."""
    problem = padded or problem
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
    counts: Iterable[int] = repeat(1) if ties is None else ties
    others: Iterable[Sequence[Kernel]] = repeat(()) if alike is None else alike
    columns = (kernels, score.tolist(), speeds, times, none, none, counts, others, repeat(padded), repeat(""))
    for put, column in zip(_SLOTS, columns, strict=True):
        deque(map(put, made, column), maxlen=0)
    return made
