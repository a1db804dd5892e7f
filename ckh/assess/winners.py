"""Evaluation of choices where only the best kernel of a problem is known: hit rates of the winner.

A near-tie counts as a miss, since nothing is known of the losing kernels.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.metrics import choices
from ckh.assess.times import times_of
from ckh.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset

FIRST = (1, 3, 5, 10)
MISSING = 1 << 30  # rank of an unranked kernel


@dataclass(frozen=True, slots=True)
class Hits:
    """Hit rates of the measured winner among the first choices."""

    name: str
    """Model, baseline or slice of problems."""
    problems: int
    first: dict[int, float]
    """Number of first choices -> share of problems whose winner is among them."""


@dataclass(frozen=True, slots=True)
class WinnerChoice:
    """The chosen kernel of a problem, and the winner."""

    problem: str
    """Canonical text."""
    kernel: str
    """The choice."""
    winner: str
    place: int | None
    """Rank of the winner, from 0."""


class WinnerReport(Record):
    """Evaluation of a model's choices on winners."""

    coverage: float
    """Share of problems whose winner is a candidate."""
    refused: int
    """Problems without an applicable kernel."""
    winner_no_candidate: int
    """Problems whose answer lacks the winner."""
    model: Hits
    baseline: Hits | None
    """The most frequent winner at this size; null without training data."""
    slices: list[Hits]
    choices: list[WinnerChoice]


@dataclass(frozen=True, slots=True, eq=False)
class WinnerPlaces:
    """Rank of each problem's winner, and name of the first choice. Shape (problems,)."""

    place: NDArray[np.int64]
    first: NDArray[np.object_]


def winner_rows(dataset: Dataset) -> NDArray[np.int64]:
    """Index of each problem's winner, the fastest if several won in different tunings; shape (problems,).

    Among rows without times it is the first.
    """
    times = times_of(dataset)
    return choices(-times.latency_ms, times.problem, times.count)


def report(dataset: Dataset, ranked: WinnerPlaces, learned_from: Dataset | None = None) -> WinnerReport:
    """Evaluate rankings of the candidates of all problems of a dataset."""
    baseline = None if learned_from is None else _hits("wins most at this size", most_frequent(dataset, learned_from))
    refused, missing = ranked.first == "", ranked.place >= MISSING
    return WinnerReport(
        coverage=float((~missing).mean()),
        refused=int(refused.sum()),
        winner_no_candidate=int((missing & ~refused).sum()),
        model=_hits("model", ranked.place),
        baseline=baseline,
        slices=list(_slices(dataset, ranked.place)),
        choices=_choices(dataset, ranked),
    )


def most_frequent(dataset: Dataset, learned_from: Dataset) -> NDArray[np.int64]:
    """Rank of each winner among the most frequent winners at the nearest known size; shape (problems,).

    Problems of one kind, which differ only in sizes, and of one device are compared. Kernels that do not win at that
    size follow, ordered by their wins at all sizes.
    """
    known = _wins(learned_from)
    overall = {
        kind: _by_count(Counter(name for wins in wins_at.values() for name in wins.elements()))
        for kind, wins_at in known.items()
    }
    names = dataset.frame["kernel"].to_numpy(dtype=object)[winner_rows(dataset)]
    places: dict[tuple[tuple[object, ...], float], dict[str, int]] = {}
    result = np.full(len(names), MISSING, np.int64)
    for problem, (kind, size, winner) in enumerate(zip(_kinds(dataset), _sizes(dataset), names, strict=True)):
        if (kind, size) not in places:
            places[kind, size] = _places(known.get(kind, {}), overall.get(kind, []), size)
        result[problem] = places[kind, size].get(winner, MISSING)
    return result


def _places(wins: dict[float, Counter[str]], overall: list[str], size: float) -> dict[str, int]:
    """Rank of each kernel that wins, for a size; empty without wins."""
    at_size = wins[min(wins, key=lambda known: abs(np.log(known) - np.log(size)))] if wins else Counter[str]()
    return {name: place for place, name in enumerate(dict.fromkeys([*_by_count(at_size), *overall]))}


def _wins(dataset: Dataset) -> dict[tuple[object, ...], dict[float, Counter[str]]]:
    """Kind -> size -> number of wins of each kernel."""
    names = dataset.frame["kernel"].to_numpy(dtype=object)[winner_rows(dataset)]
    wins: dict[tuple[object, ...], dict[float, Counter[str]]] = {}
    for kind, size, name in zip(_kinds(dataset), _sizes(dataset), names, strict=True):
        wins.setdefault(kind, {}).setdefault(size, Counter())[name] += 1
    return wins


def _kinds(dataset: Dataset) -> list[tuple[object, ...]]:
    """Identity of each problem without the sizes that are held out together and the size that grows."""
    op = dataset.op
    held = {*op.problems.split_by, op.problems.grows_with}
    names = [name for name in op.problems.identity if name not in op.problems.sizes or name not in held]
    first = dataset.frame.iloc[dataset.first_rows][names]
    comparable = first.astype(object).where(first.notna(), None)  # NaN equals nothing, itself included
    return list(comparable.itertuples(index=False, name=None))


def _sizes(dataset: Dataset) -> list[float]:
    if not dataset.op.problems.grows_with:
        return [1.0] * len(dataset.first_rows)
    return [float(size) for size in dataset.frame[dataset.op.problems.grows_with].to_numpy()[dataset.first_rows]]


def _by_count(wins: Counter[str]) -> list[str]:
    return [name for name, _ in sorted(wins.items(), key=lambda win: (-win[1], win[0]))]


def _hits(name: str, place: NDArray[np.int64]) -> Hits:
    return Hits(name, len(place), {k: float((place < k).mean()) for k in FIRST})


def _slices(dataset: Dataset, place: NDArray[np.int64]) -> Iterator[Hits]:
    problems = dataset.problems()
    for kind, tests in dataset.op.problems.slices.items():
        for name, test in tests.items():
            inside = np.array([test(problem) for problem in problems])
            if inside.any():
                yield _hits(f"{kind}: {name}", place[inside])


def _choices(dataset: Dataset, ranked: WinnerPlaces) -> list[WinnerChoice]:
    names = dataset.frame["kernel"].to_numpy(dtype=object)[winner_rows(dataset)]
    return [
        WinnerChoice(
            problem=problem.canonical(),
            kernel=str(first),
            winner=str(winner),
            place=None if place >= MISSING else int(place),
        )
        for problem, first, winner, place in zip(dataset.problems(), ranked.first, names, ranked.place, strict=True)
    ]
