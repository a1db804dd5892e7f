"""Efficiency on parts of the problems, with intervals: what an operation says of them, and by their identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.intervals import estimates, mean_of
from ckh.assess.metrics import Times, choices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.assess.ranked_rows import RankedRows
    from ckh.data.dataset import Dataset

# Columns by whose values problems are distinguished where they differ, unless the operation has slices of that name.
_BY_VALUE = {"direction": "variant", "dtype": "dtype", "layout": "layout", "device": "device"}
SEEN_LAYERS = "training"  # the kind of slices of layers that were trained on at another batch size, and of others
COPY, NEW = "same layer, another batch", "layer never seen"


@dataclass(frozen=True, slots=True)
class SliceReport:
    """Efficiency on some of the problems; low to high is the 95 % confidence interval of the mean."""

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
    """Which problems are inside, and the efficiency on each, NaN where unknown; shape (problems,) both."""

    kind: str
    name: str
    inside: NDArray[np.bool_]
    efficiency: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class SlicesOfPart:
    """The facts of a part of the problems that slices need.

    Attributes:
        efficiency: of the choices, NaN where the choice was never measured, shape (problems,).
        values: texts that distinguish problems, by kind, shape (problems,) each.
        inside: whether a test holds, by kind and name, shape (problems,) each.
        kernels: efficiency among the kernels of a kind, NaN where a problem has none with a time, shape (problems,)
            each.
    """

    efficiency: NDArray[np.float64]
    values: dict[str, NDArray[np.object_]]
    inside: dict[tuple[str, str], NDArray[np.bool_]]
    kernels: dict[str, NDArray[np.float64]]


def slices_of(dataset: Dataset, times: Times, ranked: RankedRows) -> SlicesOfPart:
    """The slices of a part.

    Args:
        dataset: whole problems.
        times: its times.
        ranked: its rows in the model's order.
    """
    op, first, problems = dataset.op, dataset.frame.iloc[dataset.first_rows], dataset.problems()
    return SlicesOfPart(
        np.where(ranked.is_measured(times.problem), times.efficiency()[ranked.best_ranked(times.problem)], np.nan),
        {
            kind: first[column].astype(str).to_numpy(dtype=object)
            for kind, column in _BY_VALUE.items()
            if kind not in op.slices and column in first.columns
        },
        {
            (kind, name): np.array([test(problem) for problem in problems], dtype=bool)
            for kind, tests in op.slices.items()
            for name, test in tests.items()
        },
        dict(_of_kernels(dataset, times, ranked.place)),
    )


def slices(
    parts: Sequence[SlicesOfPart], kernel_slice: str, is_copy: NDArray[np.bool_] | None = None
) -> list[SliceReport]:
    """Efficiency by slice.

    Args:
        parts: of all problems.
        kernel_slice: the column by which kernels are of a kind.
        is_copy: whether the same layer was trained on at another batch size, shape (problems,); None: not known.
    """
    efficiency = np.concatenate([part.efficiency for part in parts])
    found = [*_of_problems(parts, efficiency), *_joined_kernels(parts, kernel_slice)]
    if is_copy is not None and is_copy.any():
        halves = ((COPY, is_copy), (NEW, ~is_copy))
        found = [_Slice(SEEN_LAYERS, name, inside, efficiency) for name, inside in halves] + found
    found = [
        _Slice(one.kind, one.name, judged, one.efficiency)
        for one in found
        if (judged := one.inside & np.isfinite(one.efficiency)).any()
    ]
    if not found:
        return []
    means = estimates({str(i): mean_of(one.efficiency, one.inside) for i, one in enumerate(found)}, len(efficiency))
    return [
        SliceReport(
            one.kind,
            one.name,
            int(one.inside.sum()),
            float(one.efficiency[one.inside].mean()),
            float(np.percentile(one.efficiency[one.inside], 10)),
            float(one.efficiency[one.inside].min()),
            means[str(i)].low,
            means[str(i)].high,
        )
        for i, one in enumerate(found)
    ]


def _of_problems(parts: Sequence[SlicesOfPart], efficiency: NDArray[np.float64]) -> Iterator[_Slice]:
    for kind in parts[0].values:
        values = np.concatenate([part.values[kind] for part in parts])
        names = sorted(set(values))
        for name in names if len(names) > 1 else ():
            yield _Slice(kind, name, values == name, efficiency)
    for kind, name in parts[0].inside:
        yield _Slice(kind, name, np.concatenate([part.inside[kind, name] for part in parts]), efficiency)


def _joined_kernels(parts: Sequence[SlicesOfPart], kernel_slice: str) -> Iterator[_Slice]:
    for name in sorted({name for part in parts for name in part.kernels}):
        found = np.concatenate([part.kernels.get(name, np.full(len(part.efficiency), np.nan)) for part in parts])
        yield _Slice(kernel_slice, name, np.isfinite(found), found)


def _of_kernels(
    dataset: Dataset, times: Times, place: NDArray[np.float64]
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Efficiency among the kernels of one kind, e.g. pipeline: the best-ranked over the fastest of those measured.

    NaN where none of them is a candidate.
    """
    from pandas import factorize

    has_time = np.isfinite(times.latency_ms)
    codes, kinds = dataset.frame[dataset.op.kernel_slice].factorize()
    for code, kind in enumerate(kinds):
        rows = np.flatnonzero((codes == code) & has_time)
        if not len(rows):
            continue
        numbers, problems = factorize(times.problem[rows])
        own = Times(numbers, times.latency_ms[rows], times.spread[rows])
        efficiency, chosen = np.full(times.count, np.nan), choices(-place[rows], own.problem, own.count)
        efficiency[problems] = np.where(np.isfinite(place[rows[chosen]]), own.efficiency()[chosen], np.nan)
        yield str(kind), efficiency
