"""Evaluation: how good the choices of a model are on measured problems, in the whole, by slice, beside baselines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess import baselines
from ckh.assess.measured import times_of, unstable_counts
from ckh.assess.metrics import (
    Efficiency,
    Times,
    TopK,
    as_good,
    best_of_first,
    choices,
    known_or,
    summaries,
    summarize,
    top_k,
)
from ckh.assess.noise import Ceiling, DeviceNoise, RepeatNoiseOfParts, ScoredAgain, ceiling, scored_again
from ckh.assess.ranked_rows import Coverage, CoverageOfPart, RankedRows, coverage, coverage_of
from ckh.assess.slices import SliceReport, SlicesOfPart, slices, slices_of
from ckh.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.assess.measured import Scorer
    from ckh.assess.ranked_rows import Ranker
    from ckh.data.dataset import Dataset
    from ckh.data.parts import DatasetParts


HINDSIGHT = "best single kernel in hindsight"  # a baseline that sampled data do not have
RANDOM, FIXED, NEAREST = "random kernel (expected)", "best single kernel", "nearest training problem"


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernel that was chosen for a problem, and the fastest measured one."""

    problem: str
    """Canonical text."""
    kernel: str | None
    """The choice; null: the problem is refused."""
    latency_ms: float | None
    """Measured time of the choice; null: it failed or was never measured."""
    best_kernel: str
    """The fastest measured kernel."""
    best_latency_ms: float
    best_is_candidate: bool
    """Whether the fastest measured kernel is a candidate."""
    efficiency: float | None
    """Efficiency of the choice, 0 if it failed; null: never measured."""
    is_best: bool
    """Whether the choice is as good as the best within measurement accuracy."""
    refusal: str = ""
    """Why there is no kernel; empty if there is one."""


class Evaluation(Record):
    """All that `ckh evaluate` reports."""

    rows: int
    """Number of measured rows."""
    coverage: Coverage
    efficiency: Efficiency | None
    """Efficiency of the choices that were measured; null if none was."""
    best_ranked_measured: Efficiency | None
    """Efficiency of the best-ranked measured kernel, which is not the answer where the choice was not measured."""
    top: Sequence[TopK]
    """Efficiency of measuring the first k choices."""
    baselines: dict[str, Efficiency]
    """Choices without the model that the data allow, on the problems of efficiency."""
    slices: Sequence[SliceReport]
    """Efficiency on parts of the problems."""
    choices: Sequence[Choice]
    """Choice of each problem."""
    noise: tuple[DeviceNoise, ...]
    """Repeat noise of each device; empty without repeated measurements."""
    ceiling: Ceiling | None
    """Comparison with choosing by a repeated measurement; null without repeated measurements."""
    unstable: float
    """Share of times whose samples differ too much."""


def evaluate(
    parts: DatasetParts,
    rank: Ranker,
    learned: baselines.Learned | None = None,
    others: Mapping[str, Scorer] | None = None,
    is_copy: NDArray[np.bool_] | None = None,
) -> Evaluation:
    """Judge a model's answers on a dataset all of whose problems have an oracle (`measured.judged`).

    A part at a time is in memory, and what is kept of it is by problem.

    Args:
        parts: what is judged on.
        rank: gives a part's rows in the model's order.
        learned: what the baselines that learn have learned.
        others: what gives scores of other models to stand beside it, by name.
        is_copy: whether the same layer was trained on at another batch size, shape (problems,); None: not known.
    """
    scorers = {**(others or {}), **_learned_baselines(learned)}
    repeats, found = RepeatNoiseOfParts(), []
    for part in parts:
        times = times_of(part)
        repeats.add(part, times)
        found.append(_judged(part, times, rank(part), {name: one(part) for name, one in scorers.items()}))
    noise = repeats.result()
    tolerance = known_or(None if noise is None else noise.tolerance, np.concatenate([one.tolerance for one in found]))
    made = [choice for one in found for choice in one.choices]
    others_found = {name: np.concatenate([one.others[name] for one in found]) for name in found[0].others}
    random, hindsight = others_found.pop(RANDOM), baselines.hindsight_efficiency(parts)
    others_found |= {} if hindsight is None else {HINDSIGHT: hindsight}
    efficiency = np.array([np.nan if choice.efficiency is None else choice.efficiency for choice in made])
    is_judged = np.isfinite(efficiency)
    whole = summaries(
        {
            name: values[is_judged] if is_judged.any() else values
            for name, values in {"model": efficiency, **others_found, RANDOM: random}.items()
            if name != "model" or is_judged.any()
        }
    )
    best_ranked = np.concatenate([one.best_ranked for one in found])
    ranks_any = np.isfinite(best_ranked)
    unstable, measured = np.sum([one.unstable for one in found], axis=0).tolist()
    return Evaluation(
        rows=sum(one.rows for one in found),
        coverage=coverage([one.coverage for one in found]),
        efficiency=whole.pop("model", None),
        best_ranked_measured=summarize(best_ranked[ranks_any]) if ranks_any.any() else None,
        top=top_k(np.concatenate([one.best_of_first for one in found], axis=1), tolerance),
        baselines=whole,
        slices=slices([one.slices for one in found], parts.op.kernel_slice, is_copy),
        choices=_judged_best(made, efficiency, tolerance),
        noise=() if noise is None else noise.devices,
        ceiling=ceiling([one.again for one in found], RANDOM if learned is None else FIXED),
        unstable=unstable / measured if measured else 0.0,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _JudgedPart:
    """The rest that is kept of a part: figures by problem, and the part's own counts.

    Attributes:
        rows: how many there are.
        coverage: how far answers and measurements meet.
        choices: of each problem; whether one is best follows when the noise of all is known.
        best_ranked: efficiency of the best-ranked measured kernel, NaN without one, shape (problems,).
        others: efficiency of choices without the model, by name, shape (problems,) each.
        best_of_first: as `metrics.best_of_first`.
        tolerance: where nothing was measured again, shape (problems,).
        slices: efficiency on parts of the problems.
        again: choices scored in measurements that did not make them.
        unstable: as `unstable_counts`.
    """

    rows: int
    coverage: CoverageOfPart
    choices: list[Choice]
    best_ranked: NDArray[np.float64]
    others: dict[str, NDArray[np.float64]]
    best_of_first: NDArray[np.float64]
    tolerance: NDArray[np.float64]
    slices: SlicesOfPart
    again: ScoredAgain
    unstable: NDArray[np.int64]


def _judged(part: Dataset, times: Times, ranked: RankedRows, others: Mapping[str, NDArray[np.float64]]) -> _JudgedPart:
    rows = {name: choices(one, times.problem, times.count) for name, one in others.items()}
    efficiency, best_ranked = times.efficiency(), ranked.best_ranked(times.problem)
    again = scored_again(part, best_ranked, rows.get(FIXED))
    return _JudgedPart(
        rows=len(part),
        coverage=coverage_of(ranked, times),
        choices=choices_made(part, times, ranked),
        best_ranked=np.where(ranked.ranks_any(times.problem), efficiency[best_ranked], np.nan),
        others={name: efficiency[one] for name, one in rows.items()} | {RANDOM: baselines.random_efficiency(times)},
        best_of_first=best_of_first(times, ranked.place),
        tolerance=times.own_tolerance(),
        slices=slices_of(part, times, ranked),
        again=replace(again, is_known=again.is_known & ranked.is_measured(times.problem)),
        unstable=unstable_counts(part),
    )


def _learned_baselines(learned: baselines.Learned | None) -> dict[str, Scorer]:
    """Baselines that learn, by name; the closable gap begins at the best fixed kernel, without any at a random one."""
    if learned is None:
        return {}
    return {NEAREST: learned.nearest_problem_scores, FIXED: learned.single_kernel_scores}


def _judged_best(made: list[Choice], efficiency: NDArray[np.float64], tolerance: NDArray[np.float64]) -> list[Choice]:
    """The choices with whether each is best, to what can be measured; of no choice that was not."""
    is_best = as_good(efficiency, tolerance).tolist()
    return [
        choice if choice.is_best == found else replace(choice, is_best=found)
        for choice, found in zip(made, is_best, strict=True)
    ]


def choices_made(dataset: Dataset, times: Times, ranked: RankedRows) -> list[Choice]:
    """The choice for each problem, beside the best; `is_best` by the spread of the best's own samples."""
    best = choices(-times.latency_ms, times.problem, times.count)
    chosen, is_measured = ranked.best_ranked(times.problem), ranked.is_measured(times.problem).tolist()
    names, efficiency, is_best = dataset.frame["kernel"].to_numpy(), times.efficiency(), times.is_best()
    is_candidate = ranked.ranks_best(times).tolist()
    return [
        Choice(
            problem=problem.canonical(),
            kernel=str(ranked.first[number]) or None,
            latency_ms=float(times.latency_ms[row])
            if is_measured[number] and np.isfinite(times.latency_ms[row])
            else None,
            best_kernel=str(names[oracle]),
            best_latency_ms=float(times.latency_ms[oracle]),
            best_is_candidate=is_candidate[number],
            efficiency=float(efficiency[row]) if is_measured[number] else None,
            is_best=is_measured[number] and bool(is_best[row]),
            refusal=str(ranked.refusal[number]),
        )
        for number, (problem, row, oracle) in enumerate(zip(dataset.problems(), chosen, best, strict=True))
    ]
