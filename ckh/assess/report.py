"""Evaluation of a model's choices on measured problems: overall, by slice, and against baselines.

Slices are subsets of the problems, by the operation's own definitions and by identity, with confidence intervals.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess import baselines
from ckh.assess.intervals import estimates, mean_of
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
from ckh.assess.times import times_of, unstable_counts
from ckh.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.assess.ranked_rows import Ranker
    from ckh.assess.times import Scorer
    from ckh.data.dataset import Dataset
    from ckh.data.parts import DatasetParts

# Identity columns that define slices where they vary, unless the operation has slices of that name.
_BY_VALUE = {"direction": "variant", "dtype": "dtype", "layout": "layout", "device": "device"}
SEEN_LAYERS = "training"  # slices by whether the layer was in the training data at another batch size
COPY, NEW = "same layer, another batch", "layer never seen"


@dataclass(frozen=True, slots=True)
class SliceReport:
    """Efficiency on a subset of the problems; low to high is the 95 % confidence interval of the mean."""

    kind: str
    name: str
    problems: int
    mean: float
    p10: float
    min: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class _Slice:
    """Mask of the problems inside, and the efficiency of each, NaN where unknown; shape (problems,) both."""

    kind: str
    name: str
    inside: NDArray[np.bool_]
    efficiency: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class SlicesOfPart:
    """Inputs of slices for a part of the problems."""

    efficiency: NDArray[np.float64]  # of the choices, NaN where the choice was never measured, shape (problems,)
    values: dict[str, NDArray[np.object_]]  # values that distinguish problems, by kind, shape (problems,) each
    inside: dict[tuple[str, str], NDArray[np.bool_]]  # masks of the operation's slices, by kind and name
    kernels: dict[str, NDArray[np.float64]]
    """Efficiency among the kernels of a kind, NaN where a problem has none with a time, shape (problems,) each."""


def slices_of(dataset: Dataset, times: Times, ranked: RankedRows) -> SlicesOfPart:
    """Compute the inputs of slices for a part."""
    op, first, problems = dataset.op, dataset.frame.iloc[dataset.first_rows], dataset.problems()
    return SlicesOfPart(
        ranked.efficiency(times),
        {
            kind: first[column].astype(str).to_numpy(dtype=object)
            for kind, column in _BY_VALUE.items()
            if kind not in op.problems.slices and column in first.columns
        },
        {
            (kind, name): np.array([test(problem) for problem in problems], dtype=bool)
            for kind, tests in op.problems.slices.items()
            for name, test in tests.items()
        },
        dict(_of_kernels(dataset, times, ranked.place)),
    )


def slices(
    parts: Sequence[SlicesOfPart], kernel_slice: str, is_copy: NDArray[np.bool_] | None = None
) -> list[SliceReport]:
    """Compute the efficiency by slice."""
    efficiency = np.concatenate([part.efficiency for part in parts])
    groups = list(_of_problems(parts, efficiency))
    for name in sorted({name for part in parts for name in part.kernels}):
        values = np.concatenate([part.kernels.get(name, np.full(len(part.efficiency), np.nan)) for part in parts])
        groups.append(_Slice(kernel_slice, name, np.isfinite(values), values))
    if is_copy is not None and is_copy.any():
        halves = ((COPY, is_copy), (NEW, ~is_copy))
        groups = [_Slice(SEEN_LAYERS, name, inside, efficiency) for name, inside in halves] + groups
    groups = [
        replace(group, inside=judged)
        for group in groups
        if (judged := group.inside & np.isfinite(group.efficiency)).any()
    ]
    if not groups:
        return []
    figures = {str(i): mean_of(group.efficiency, group.inside) for i, group in enumerate(groups)}
    means = estimates(figures, len(efficiency))
    return [
        SliceReport(
            group.kind,
            group.name,
            int(group.inside.sum()),
            float(group.efficiency[group.inside].mean()),
            float(np.percentile(group.efficiency[group.inside], 10)),
            float(group.efficiency[group.inside].min()),
            means[str(i)].low,
            means[str(i)].high,
        )
        for i, group in enumerate(groups)
    ]


def _of_problems(parts: Sequence[SlicesOfPart], efficiency: NDArray[np.float64]) -> Iterator[_Slice]:
    for kind in parts[0].values:
        values = np.concatenate([part.values[kind] for part in parts])
        names = sorted(set(values))
        for name in names if len(names) > 1 else ():
            yield _Slice(kind, name, values == name, efficiency)
    for kind, name in parts[0].inside:
        yield _Slice(kind, name, np.concatenate([part.inside[kind, name] for part in parts]), efficiency)


def _of_kernels(
    dataset: Dataset, times: Times, place: NDArray[np.float64]
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Efficiency among the kernels of one kind, e.g. pipeline: the best-ranked over the fastest measured.

    NaN where no kernel of the kind is a candidate.
    """
    from pandas import factorize

    has_time = np.isfinite(times.latency_ms)
    codes, kinds = dataset.frame[dataset.op.kernels.slice_column].factorize()
    for code, kind in enumerate(kinds):
        rows = np.flatnonzero((codes == code) & has_time)
        if not len(rows):
            continue
        numbers, problems = factorize(times.problem[rows])
        own = Times(numbers, times.latency_ms[rows], times.spread[rows])
        efficiency, chosen = np.full(times.count, np.nan), choices(-place[rows], own.problem, own.count)
        efficiency[problems] = np.where(np.isfinite(place[rows[chosen]]), own.efficiency()[chosen], np.nan)
        yield str(kind), efficiency


RANDOM, FIXED, NEAREST = "random kernel (expected)", "best single kernel", "nearest training problem"


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen kernel of a problem, and the fastest measured kernel."""

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
    """Whether the choice ties with the best within measurement accuracy."""
    refusal: str = ""
    """Reason why there is no kernel; empty if there is one."""


class Evaluation(Record):
    """Everything that `ckh evaluate` reports."""

    rows: int
    """Number of measured rows."""
    coverage: Coverage
    efficiency: Efficiency | None
    """Efficiency of the measured choices; null if none was measured."""
    best_ranked_measured: Efficiency | None
    """Efficiency of the best-ranked measured kernel; differs from the choice where the choice was not measured."""
    top: Sequence[TopK]
    """Efficiency of measuring the first k choices."""
    baselines: dict[str, Efficiency]
    """Choices without the model, as far as the data allow, on the problems of efficiency."""
    slices: Sequence[SliceReport]
    """Efficiency on subsets of the problems."""
    choices: Sequence[Choice]
    """Choice of each problem."""
    noise: tuple[DeviceNoise, ...]
    """Repeat noise of each device; empty without repeated measurements."""
    ceiling: Ceiling | None
    """Comparison with choosing by a repeated measurement; null without repeated measurements."""
    unstable: float
    """Share of times with inconsistent samples."""


def evaluate(
    parts: DatasetParts,
    rank: Ranker,
    learned: baselines.Learned | None = None,
    is_copy: NDArray[np.bool_] | None = None,
) -> Evaluation:
    """Evaluate a model's answers on a dataset whose problems all have an oracle (`times.judged`).

    One part at a time is in memory, and only figures by problem are kept of it.
    """
    scorers: dict[str, Scorer] = {}
    if learned is not None:
        scorers = {NEAREST: learned.nearest_problem_scores, FIXED: learned.single_kernel_scores}
    repeats, judged = RepeatNoiseOfParts(), []
    for dataset in parts:
        times, scores = times_of(dataset), {name: scorer(dataset) for name, scorer in scorers.items()}
        repeats.add(dataset, times)
        judged.append(_judged(dataset, times, rank(dataset), scores))
    noise = repeats.result()
    own_tolerance = np.concatenate([part.tolerance for part in judged])
    tolerance = known_or(None if noise is None else noise.tolerance, own_tolerance)
    made = [choice for part in judged for choice in part.choices]
    without_model = {name: np.concatenate([part.others[name] for part in judged]) for name in judged[0].others}
    efficiency = np.array([np.nan if choice.efficiency is None else choice.efficiency for choice in made])
    is_judged = np.isfinite(efficiency)
    whole = summaries(
        {
            name: values[is_judged] if is_judged.any() else values
            for name, values in {"model": efficiency, **without_model}.items()
            if name != "model" or is_judged.any()
        }
    )
    best_ranked = np.concatenate([part.best_ranked for part in judged])
    ranks_any = np.isfinite(best_ranked)
    unstable, measured = np.sum([part.unstable for part in judged], axis=0).tolist()
    return Evaluation(
        rows=sum(part.rows for part in judged),
        coverage=coverage([part.coverage for part in judged]),
        efficiency=whole.pop("model", None),
        best_ranked_measured=summarize(best_ranked[ranks_any]) if ranks_any.any() else None,
        top=top_k(np.concatenate([part.best_of_first for part in judged], axis=1), tolerance),
        baselines=whole,
        slices=slices([part.slices for part in judged], parts.op.kernels.slice_column, is_copy),
        choices=[
            replace(choice, is_best=is_tied)
            for choice, is_tied in zip(made, as_good(efficiency, tolerance).tolist(), strict=True)
        ],
        noise=() if noise is None else noise.devices,
        ceiling=ceiling([part.again for part in judged], RANDOM if learned is None else FIXED),
        unstable=unstable / measured if measured else 0.0,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _JudgedPart:
    """Results of an evaluated part: figures by problem, and counts."""

    rows: int  # number of rows
    coverage: CoverageOfPart  # inputs of coverage
    choices: list[Choice]  # choice of each problem; whether it is best is updated when the noise of all parts is known
    best_ranked: NDArray[np.float64]
    """Efficiency of the best-ranked measured kernel, NaN without one, shape (problems,)."""
    others: dict[str, NDArray[np.float64]]  # efficiency of choices without the model, by name, shape (problems,) each
    best_of_first: NDArray[np.float64]  # as in `metrics.best_of_first`
    tolerance: NDArray[np.float64]  # tolerance without repeated measurements, shape (problems,)
    slices: SlicesOfPart  # inputs of slices
    again: ScoredAgain  # choices scored in measurements that did not select them
    unstable: NDArray[np.int64]  # as in `unstable_counts`


def _judged(part: Dataset, times: Times, ranked: RankedRows, others: Mapping[str, NDArray[np.float64]]) -> _JudgedPart:
    rows = {name: choices(scores, times.problem, times.count) for name, scores in others.items()}
    efficiency, best_ranked = times.efficiency(), ranked.best_ranked(times.problem)
    again = scored_again(part, best_ranked, rows.get(FIXED))
    return _JudgedPart(
        rows=len(part),
        coverage=coverage_of(ranked, times),
        choices=choices_made(part, times, ranked),
        best_ranked=np.where(ranked.ranks_any(times.problem), efficiency[best_ranked], np.nan),
        others={name: efficiency[row] for name, row in rows.items()} | {RANDOM: baselines.random_efficiency(times)},
        best_of_first=best_of_first(times, ranked.place),
        tolerance=times.own_tolerance(),
        slices=slices_of(part, times, ranked),
        again=replace(again, is_known=again.is_known & ranked.is_measured(times.problem)),
        unstable=unstable_counts(part),
    )


def choices_made(dataset: Dataset, times: Times, ranked: RankedRows) -> list[Choice]:
    """The choice for each problem and the best kernel; `is_best` uses the spread of the best kernel's own samples."""
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
