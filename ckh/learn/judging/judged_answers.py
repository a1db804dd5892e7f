"""Answers joined with measured rows, so that what is judged is what `ckh predict` says: its pool, order and refusals.

A measured kernel and a candidate are the same if their names parse to the same kernel. AMD's shorter names leave fields
open: such a row stands for every candidate that agrees in the others, and has the best place of these.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.assess.ranked_rows import RankedRows
from ckh.errors import DataError, UsageError
from ckh.learn.answers.answering import AnsweringModels
from ckh.learn.answers.ranking import rankings_of
from ckh.learn.judging.predicted_times import TimeRatios, answered_ratios, predicted_speeds
from ckh.learn.models.scoring import Remembered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import AnyOperation, Kernel, Problem

_AT_ONCE = 64  # answers that are in memory: each has numbers of all candidates


def ranked_rows(model: Model, dataset: Dataset) -> RankedRows:
    """The model's answers for the problems of a dataset, joined with its rows.

    Raises:
        ModelError: a file of the model is damaged.
        UsageError: the model is for something else.
    """
    from pandas import factorize

    op, problems, problem_ids = dataset.op, dataset.problems(), dataset.problem_ids
    codes, names = factorize(dataset.frame["kernel_name"])
    join = _Join(op, [str(name) for name in names])
    ranked = RankedRows(
        np.full(len(dataset), np.inf),
        np.full(len(problems), "", dtype=object),
        np.full(len(problems), "", dtype=object),
        np.full(len(dataset), np.nan),
        np.full(len(problems), np.nan),
    )
    order = np.argsort(problem_ids, kind="stable")
    rows_of = np.split(order, np.cumsum(np.bincount(problem_ids))[:-1])
    model.remembered = Remembered(_AT_ONCE)
    for start in range(0, len(problems), _AT_ONCE):
        some = rankings_of(problems[start : start + _AT_ONCE], model)
        for number, (answer, rows) in enumerate(zip(some, rows_of[start : start + _AT_ONCE], strict=True), start):
            if failure := answer.failure:
                ranked.refusal[number] = failure.message
                continue
            ranked.first[number] = op.kernel_name(answer.pool[answer.order[0]])
            place, tflops = join.places(answer)
            ranked.place[rows], ranked.tflops[rows] = place[codes[rows]], tflops[codes[rows]]
            ranked.first_tflops[number] = np.nan if answer.tflops is None else answer.tflops[0]
    return ranked


def judged_rows(model: Model, dataset: Dataset, *, measured_alone: bool) -> tuple[RankedRows, TimeRatios]:
    """The rows of a dataset in the model's order, and measured over predicted times of the first.

    Args:
        model: what ranks.
        dataset: whole problems.
        measured_alone: rank the measured kernels by the model's scores, whether `ckh predict` offers them or not.

    Raises:
        CkhError: the model is damaged, for something else, or a column is missing.
    """
    ranked = _measured_rows(model, dataset) if measured_alone else ranked_rows(model, dataset)
    return ranked, answered_ratios(model, dataset, ranked)


def _measured_rows(model: Model, dataset: Dataset) -> RankedRows:
    """The measured rows alone in the order of the model's scores, with the speeds that it predicts of them."""
    scores = model.scores(dataset)
    ranked, speeds = RankedRows.by_scores(dataset, scores), predicted_speeds(model, dataset, scores)
    if speeds is not None:
        ranked.tflops[speeds.rows] = speeds.tflops
        ranked.first_tflops[dataset.problem_ids[speeds.rows[speeds.starts]]] = speeds.tflops[speeds.starts]
    return ranked


def answering_model(problems: Sequence[Problem], arch: str) -> Model:
    """The model by which `ckh predict` answers problems on an architecture, or what stands in for it.

    Raises:
        UsageError: several models answer them.
        ModelError: nothing answers, or a model is damaged.
    """
    models = AnsweringModels(arch)
    found = Counter(models.answering(problem) for problem in problems)
    if len(found) > 1:
        names = ", ".join(f"{model.path} ({model.spec.purpose}) {count}" for model, count in found.most_common())
        raise UsageError(
            f"predict selects {len(found)} models for these problems: {names}",
            "name one with --model",
            code="several-models",
        )
    (model,) = found
    return model


def first_kernels(model: Model, dataset: Dataset, count: int) -> list[tuple[str, ...]]:
    """Names of the first kernels of the model's answer for each problem of a dataset; none where it is refused."""
    return [tuple(one.name for one in answer.best(count)) for answer in rankings_of(dataset.problems(), model)]


class _Join:
    """Measured kernels and the candidates that each stands for, found once for each pool.

    Args:
        op: the operation.
        names: distinct names of measured kernels.
    """

    def __init__(self, op: AnyOperation, names: list[str]) -> None:
        self._count = len(names)
        self._complete: dict[Kernel, list[int]] = defaultdict(list)
        # Of kernels that leave fields open: by the names of the fields that they state, by the values of these.
        self._open: dict[tuple[str, ...], dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
        for code, name in enumerate(names):
            with suppress(DataError):  # a kernel that the operation does not know is not a candidate
                self._add(op, code, op.parse_kernel(name))
        self._pools: dict[int, tuple[Sequence[Kernel], NDArray[np.intp], NDArray[np.intp]]] = {}

    def places(self, answer: Ranking) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Place in an answer, infinite without one, and stated speed of each measured kernel, shape (names,)."""
        position, code = self._pairs(answer.pool)
        of_position = np.full(len(answer.pool), np.inf)
        of_position[answer.order] = np.arange(len(answer.order))
        place = np.full(self._count, np.inf)
        np.minimum.at(place, code, of_position[position])
        tflops, is_known = np.full(self._count, np.nan), np.isfinite(place)
        if answer.tflops is not None:
            tflops[is_known] = answer.tflops[place[is_known].astype(np.intp)]
        return place, tflops

    def _add(self, op: AnyOperation, code: int, kernel: Kernel) -> None:
        self._complete[kernel].append(code)
        try:
            op.kernel_name(kernel)
        except UsageError:  # it leaves fields open
            stated = tuple(one.name for one in fields(kernel) if getattr(kernel, one.name) is not None)
            self._open[stated][_values(stated)(kernel)].append(code)

    def _pairs(self, pool: Sequence[Kernel]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Numbers of candidates in a pool, and of the measured kernels that they correspond to, pair by pair."""
        known = self._pools.get(id(pool))
        if known is None:
            found = set(_pairs(pool, lambda kernel: kernel, self._complete))
            for stated, codes in self._open.items():
                found |= set(_pairs(pool, _values(stated), codes))
            position, code = np.array(sorted(found), np.intp).reshape(-1, 2).T
            known = pool, position, code  # with the pool, so that its identity is not used again
            self._pools[id(pool)] = known
        return known[1], known[2]


def _values(names: tuple[str, ...]) -> Callable[[Any], Any]:
    return attrgetter(*names)


def _pairs(pool: Sequence[Kernel], key: Callable[[Any], Any], codes: dict[Any, list[int]]) -> Iterable[tuple[int, int]]:
    for position, kernel in enumerate(pool):
        for code in codes.get(key(kernel), ()):
            yield position, code
