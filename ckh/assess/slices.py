"""Efficiency on parts of the problems, with intervals: what an operation says of them, and by their identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.intervals import estimates, mean_of
from ckh.assess.metrics import Times, choices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset

# Columns by whose values problems are told apart where they differ, unless the operation has slices of that name.
_BY_VALUE = {"direction": "variant", "dtype": "dtype", "layout": "layout", "device": "device"}
SEEN_LAYERS = "training"  # the kind of slices of layers that were trained on at another batch size, and of others
COPY, NEW = "same layer, another batch", "layer never seen"


@dataclass(frozen=True, slots=True)
class SliceReport:
    """Efficiency on some of the problems; low and high hold the mean with 95 % confidence."""

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
    """Which problems are inside, and the efficiency on each, 0 outside; shape (problems,) both."""

    kind: str
    name: str
    inside: NDArray[np.bool_]
    efficiency: NDArray[np.float64]


def slices(
    dataset: Dataset,
    times: Times,
    scores: NDArray[np.float64],
    is_copy: NDArray[np.bool_] | None = None,
) -> list[SliceReport]:
    """Efficiency by slice.

    Args:
        dataset: what is judged on.
        times: its times.
        scores: the model's, shape (rows,).
        is_copy: whether the same layer was trained on at another batch size, shape (problems,); None: not known.
    """
    efficiency = times.efficiency()[choices(scores, times.problem, times.count)]
    found = [*_of_problems(dataset, efficiency), *_of_kernels(dataset, times, scores)]
    if is_copy is not None and is_copy.any():
        halves = ((COPY, is_copy), (NEW, ~is_copy))
        found = [_Slice(SEEN_LAYERS, name, inside, efficiency) for name, inside in halves if inside.any()] + found
    if not found:
        return []
    means = estimates({str(i): mean_of(one.efficiency, one.inside) for i, one in enumerate(found)}, times.count)
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


def _of_problems(dataset: Dataset, efficiency: NDArray[np.float64]) -> Iterator[_Slice]:
    op, first = dataset.op, dataset.frame.iloc[dataset.first_rows]
    for kind, column in _BY_VALUE.items():
        if kind in op.slices or column not in first.columns:
            continue
        values = first[column].astype(str).to_numpy(dtype=object)
        names = sorted(set(values))
        for name in names if len(names) > 1 else ():
            yield _Slice(kind, name, values == name, efficiency)
    problems = dataset.problems()
    for kind, tests in op.slices.items():
        for name, test in tests.items():
            inside = np.array([test(problem) for problem in problems], dtype=bool)
            if inside.any():
                yield _Slice(kind, name, inside, efficiency)


def _of_kernels(dataset: Dataset, times: Times, scores: NDArray[np.float64]) -> Iterator[_Slice]:
    """Efficiency among the kernels of one kind, e.g. pipeline: what is chosen of them over the best of them."""
    from pandas import factorize

    column = dataset.op.kernel_slice
    has_time = np.isfinite(times.latency_ms)
    codes, kinds = dataset.frame[column].factorize()
    for code, kind in sorted(enumerate(kinds), key=lambda one: str(one[1])):
        rows = np.flatnonzero((codes == code) & has_time)
        if not len(rows):
            continue
        numbers, problems = factorize(times.problem[rows])
        own = Times(numbers, times.latency_ms[rows], times.spread[rows])
        efficiency, inside = np.zeros(times.count), np.zeros(times.count, dtype=bool)
        efficiency[problems] = own.efficiency()[choices(scores[rows], own.problem, own.count)]
        inside[problems] = True
        yield _Slice(column, str(kind), inside, efficiency)
