"""What the estimate's veto changes in answers of a model of another element type or GPU, for GEMMs of language models.

    python benchmarks/veto.py

GEMMs of all layers (N, K) of the built-in language models, decode and prefill, which the shipped models have not
measured on the GPU in the element type: how many first kernels the estimate calls 1.3 times slower than the best of
their first twenty, without and with the veto; how many first kernels it changes; and the estimated time with the veto
over that without, in the geometric mean, of these and of all problems. Nothing is measured: veto.md has the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

import numpy as np

import ckh.shapes
from ckh.learn.analytic import estimator
from ckh.learn.analytic.transfer import stand_in
from ckh.learn.answers.batches import scored
from ckh.learn.models.artifact import wanted_for
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.shapes.config import MODELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.ops.base import Problem

PAIRS = (("gfx950", "bf16"), ("gfx950", "int8"), ("gfx950", "bf8"), ("gfx942", "bf16"), ("gfx942", "fp8"))
ROWS = (1, 16, 32, 64, 512, 2048)
ENCODERS = ("vit-b16", "clip-vit-l14", "whisper-large-v3")
FIRST = 20
MOST_SLOWER = 1.3


class First(NamedTuple):
    """The first kernel of an answer: index in the pool, its estimated time, and the shortest of the first twenty."""

    kernel: int
    us: float
    best_us: float

    @property
    def is_slow(self) -> bool:
        """True if the estimate calls another of the first twenty faster by the margin."""
        return self.us >= MOST_SLOWER * self.best_us


def language_gemms(dtype: str) -> list[GemmProblem]:
    """All layers (N, K) of the built-in language models that are GEMMs, with M of decode and prefill."""
    models = [name for name in MODELS if name not in ENCODERS]
    problems = [item.problem for name in models for item in ckh.shapes.read(name)]
    layers = sorted({(one.n, one.k) for one in problems if isinstance(one, GemmProblem)})
    return [GemmProblem(m, n, k, dtype=dtype) for n, k in layers for m in ROWS]


def first_kernels(problems: Sequence[GemmProblem], arch: str) -> dict[Problem, First]:
    """The first kernels of the answers of `ckh predict` where no model fits."""
    wanted = wanted_for(problems[0], arch)
    model, estimate = stand_in(wanted, problems[0]), estimator.EstimateScores(wanted)
    firsts: dict[Problem, First] = {}
    for part in scored(problems, model, top=FIRST):
        for row, problem in enumerate(part.problems):
            if len(order := part.order[row][:FIRST]):
                us = -estimate.scores([part.padded[row] or problem], part.pool)[0, order]
                firsts[problem] = First(int(order[0]), float(us[0]), float(us.min()))
    return firsts


def main() -> None:
    """Print the table."""
    print("| GPU, type | problems | too slow without | with | changed | estimated time of these | of all |")
    print("|---|---|---|---|---|---|---|")
    for arch, dtype in PAIRS:
        problems = language_gemms(dtype)
        with mock.patch.object(estimator, "vetoed", lambda score, _: score):
            before = first_kernels(problems, arch)
        after = first_kernels(problems, arch)
        changed = [problem for problem in after if after[problem].kernel != before[problem].kernel]
        slow = [sum(first.is_slow for first in firsts.values()) for firsts in (before, after)]
        of_changed, of_all = (
            np.exp(np.mean([np.log(after[problem].us / before[problem].us) for problem in some] or [0.0]))
            for some in (changed, after)
        )
        counts = f"{len(after)} | {slow[0]} | {slow[1]} | {len(changed)}"
        print(f"| {arch}, {dtype} | {counts} | {of_changed:.2f} | {of_all:.2f} |", flush=True)


if __name__ == "__main__":
    main()
