"""Evaluation: how good the choices of a model are on measured problems, in the whole, by slice, beside baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess import baselines
from ckh.assess.measured import unstable_share
from ckh.assess.metrics import Efficiency, Times, TopK, choices, summaries, top_k
from ckh.assess.noise import Ceiling, DeviceNoise, ceiling, noise_times
from ckh.assess.slices import SliceReport, slices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset


HINDSIGHT = "best single kernel in hindsight"  # a baseline that sampled data do not have
RANDOM, FIXED, NEAREST = "random kernel (expected)", "best single kernel", "nearest training problem"


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernel that was chosen for a problem, and the one that would have been best.

    `is_best` says whether it is as good as the best, to what can be measured.
    """

    problem: str
    kernel: str
    latency_ms: float | None
    best_kernel: str
    best_latency_ms: float
    efficiency: float
    is_best: bool


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All that `ckh evaluate` tells.

    Attributes:
        rows: how many rows were judged on.
        efficiency: of the model's choices.
        top: what measuring the first k choices would give.
        baselines: choices without the model, those that the given data allow.
        slices: efficiency on parts of the problems.
        choices: of each problem.
        noise: how far repeated measurements lie apart, by device; empty where nothing was measured more than once.
        ceiling: choices against those of a repeated measurement; None where nothing was measured more than once.
        unstable: share of the times whose samples did not agree.
    """

    rows: int
    efficiency: Efficiency
    top: list[TopK]
    baselines: dict[str, Efficiency]
    slices: list[SliceReport]
    choices: list[Choice]
    noise: tuple[DeviceNoise, ...]
    ceiling: Ceiling | None
    unstable: float


def evaluate(
    dataset: Dataset,
    scores: NDArray[np.float64],
    learned_from: Dataset | None = None,
    others: Mapping[str, NDArray[np.float64]] | None = None,
    is_copy: NDArray[np.bool_] | None = None,
) -> Evaluation:
    """Judge scores, shape (rows,), on a dataset all of whose problems have an oracle (`measured.judged`).

    Args:
        dataset: what is judged on.
        scores: the model's, higher is better.
        learned_from: what the model was trained on; the baselines that learn, learn from it.
        others: scores of other models to stand beside it, shape (rows,), by name.
        is_copy: whether the same layer was trained on at another batch size, shape (problems,); None: not known.
    """
    times, noise = noise_times(dataset)
    chosen = choices(scores, times.problem, times.count)
    found = dict(_baselines(dataset, times, learned_from, others or {}))
    whole = summaries({"model": times.efficiency()[chosen], **found})
    return Evaluation(
        rows=len(dataset.frame),
        efficiency=whole.pop("model"),
        top=top_k(times, scores),
        baselines=whole,
        slices=slices(dataset, times, scores, is_copy),
        choices=choices_made(dataset, times, chosen),
        noise=() if noise is None else noise.devices,
        ceiling=ceiling(dataset, chosen, *_beginning(dataset, times, learned_from)),
        unstable=unstable_share(dataset),
    )


def _beginning(dataset: Dataset, times: Times, learned_from: Dataset | None) -> tuple[str, NDArray[np.int64] | None]:
    """Where the closable gap begins: the best fixed kernel of the training data, else a random one."""
    if learned_from is None:
        return RANDOM, None
    scores = baselines.single_kernel_scores(dataset, learned_from)
    return FIXED, choices(scores, times.problem, times.count)


def _baselines(
    dataset: Dataset, times: Times, learned_from: Dataset | None, others: Mapping[str, NDArray[np.float64]]
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Efficiency of choices without the model, shape (problems,) each, by name."""

    def judged(scores: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(times.efficiency()[choices(scores, times.problem, times.count)])

    for name, scores in others.items():
        yield name, judged(scores)
    if learned_from is not None:
        yield NEAREST, judged(baselines.nearest_problem_scores(dataset, learned_from))
        yield FIXED, judged(baselines.single_kernel_scores(dataset, learned_from))
    if (hindsight := baselines.hindsight_efficiency(dataset)) is not None:
        yield HINDSIGHT, hindsight
    yield RANDOM, baselines.random_efficiency(dataset)


def choices_made(dataset: Dataset, times: Times, chosen: NDArray[np.int64]) -> list[Choice]:
    """The chosen row of each problem, shape (problems,), beside the best."""
    best = choices(-times.latency_ms, times.problem, times.count)
    names, efficiency, is_best = dataset.frame["kernel_name"].to_numpy(), times.efficiency(), times.is_best()
    return [
        Choice(
            problem=problem.canonical(),
            kernel=str(names[row]),
            latency_ms=float(times.latency_ms[row]) if np.isfinite(times.latency_ms[row]) else None,
            best_kernel=str(names[oracle]),
            best_latency_ms=float(times.latency_ms[oracle]),
            efficiency=float(efficiency[row]),
            is_best=bool(is_best[row]),
        )
        for problem, row, oracle in zip(dataset.problems(), chosen, best, strict=True)
    ]
