"""Evaluation: how good the choices of a model are on measured problems, in the whole, by slice, beside baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess import baselines
from ckh.assess.measured import times_of
from ckh.assess.metrics import Efficiency, Times, TopK, choices, summarize, top_k

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset


HINDSIGHT = "best single kernel in hindsight"  # a baseline that sampled data do not have


@dataclass(frozen=True, slots=True)
class SliceReport:
    """Efficiency on some of the problems."""

    kind: str
    name: str
    problems: int
    mean: float
    p10: float
    min: float


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for a problem, and what would have been best."""

    problem: str
    kernel: str
    latency_ms: float | None
    best_kernel: str
    best_latency_ms: float
    efficiency: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All that `ckh evaluate` tells. `baselines` holds only those that the given data allow."""

    rows: int
    efficiency: Efficiency
    top: list[TopK]
    baselines: dict[str, Efficiency]
    slices: list[SliceReport]
    choices: list[Choice]


def evaluate(dataset: Dataset, scores: NDArray[np.float64], learned_from: Dataset | None = None) -> Evaluation:
    """Judge scores, shape (rows,), on a dataset all of whose problems have an oracle (`measured.judged`).

    Args:
        dataset: what is judged on.
        scores: the model's, higher is better.
        learned_from: what the model was trained on; the baselines that learn, learn from it.
    """
    times = times_of(dataset)
    chosen = choices(scores, times.problem, times.count)
    efficiency = times.efficiency()[chosen]
    return Evaluation(
        rows=len(dataset.frame),
        efficiency=summarize(efficiency),
        top=top_k(times, scores),
        baselines=dict(_baselines(dataset, times, learned_from)),
        slices=[*_problem_slices(dataset, efficiency), *_kernel_slices(dataset, times, scores)],
        choices=_choices(dataset, times, chosen),
    )


def _baselines(dataset: Dataset, times: Times, learned_from: Dataset | None) -> Iterator[tuple[str, Efficiency]]:
    def judged(scores: NDArray[np.float64]) -> Efficiency:
        return summarize(times.efficiency()[choices(scores, times.problem, times.count)])

    if learned_from is not None:
        yield "nearest training problem", judged(baselines.nearest_problem_scores(dataset, learned_from))
        yield "best single kernel", judged(baselines.single_kernel_scores(dataset, learned_from))
    if (hindsight := baselines.hindsight_efficiency(dataset)) is not None:
        yield HINDSIGHT, summarize(hindsight)
    yield "random kernel (expected)", summarize(baselines.random_efficiency(dataset))


def _problem_slices(dataset: Dataset, efficiency: NDArray[np.float64]) -> Iterator[SliceReport]:
    problems = dataset.problems()
    for kind, tests in dataset.op.slices.items():
        for name, test in tests.items():
            inside = np.array([test(problem) for problem in problems])
            if inside.any():
                yield _slice(kind, name, efficiency[inside])


def _kernel_slices(dataset: Dataset, times: Times, scores: NDArray[np.float64]) -> Iterator[SliceReport]:
    """Efficiency among the kernels of one kind, e.g. pipeline: what is chosen of them over the best of them."""
    from pandas import factorize

    column = dataset.op.kernel_slice
    has_time = np.isfinite(times.latency_ms)
    codes, kinds = dataset.frame[column].factorize()
    for code, kind in sorted(enumerate(kinds), key=lambda one: str(one[1])):
        rows = np.flatnonzero((codes == code) & has_time)
        if len(rows):
            own = Times(factorize(times.problem[rows])[0], times.latency_ms[rows], times.spread[rows])
            chosen = choices(scores[rows], own.problem, own.count)
            yield _slice(column, str(kind), own.efficiency()[chosen])


def _slice(kind: str, name: str, efficiency: NDArray[np.float64]) -> SliceReport:
    p10 = float(np.percentile(efficiency, 10))
    return SliceReport(kind, name, len(efficiency), float(efficiency.mean()), p10, float(efficiency.min()))


def _choices(dataset: Dataset, times: Times, chosen: NDArray[np.int64]) -> list[Choice]:
    best = choices(-times.latency_ms, times.problem, times.count)
    names, efficiency = dataset.frame["kernel_name"].to_numpy(), times.efficiency()
    return [
        Choice(
            problem=problem.canonical(),
            kernel=str(names[row]),
            latency_ms=float(times.latency_ms[row]) if np.isfinite(times.latency_ms[row]) else None,
            best_kernel=str(names[oracle]),
            best_latency_ms=float(times.latency_ms[oracle]),
            efficiency=float(efficiency[row]),
        )
        for problem, row, oracle in zip(dataset.problems(), chosen, best, strict=True)
    ]
