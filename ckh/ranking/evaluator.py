"""Ranking pools: forests, a pool and the implementation that runs, behind one class.

In C, a pool is prepared once: its features become a program, which the engine in `csrc` runs before it walks the
forests. Without C, or with a feature that no program can compute, NumPy computes everything for every candidate: the
same scores to the last bit where features are equal, a hundred times slower.

Forests in NumPy alone: what installations without the C part rank with, and the reference of tests.

All rows walk down all trees together, one level a step. Leaf values are added as integers, so that scores are those of
the C part to the last bit.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ckh.errors import DataError, ModelError, UsageError
from ckh.ranking import library
from ckh.ranking.axes import coded, keys
from ckh.ranking.library import OpenModel
from ckh.ranking.model_file import FileFacts, is_number, model_file, prepare_pool, whole_group
from ckh.ranking.packed import holds
from ckh.ranking.symbolic import FormulaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.features.engine import Array, FeatureEngine
    from ckh.ranking.packed import PackedForest
    from ckh.ranking.pool import Pool

    Columns = Mapping[str, NDArray[np.generic]]

BACKEND_VARIABLE = "CKH_RANK_BACKEND"
_FEW = 4  # sorting but the best is worth it for this share of the candidates
_ONE_BY_ONE = 8  # so many best ones are found one after the other
_MOST_TEXTS = 64  # that a pool is prepared for


def backend_name() -> str:
    """Which implementation ranks: "c", or "numpy" where the C part is absent or $CKH_RANK_BACKEND says so.

    Raises:
        UsageError: the variable names another, or C that is not there.
    """
    wanted = os.environ.get(BACKEND_VARIABLE, "")
    if wanted not in {"", "c", "numpy"}:
        raise UsageError(
            f"{BACKEND_VARIABLE} is {wanted!r}", 'set it to "c" or "numpy", or not at all', code="unknown-name"
        )
    if wanted != "numpy" and library.is_available():
        return "c"
    if wanted == "c":
        raise UsageError(
            f"{BACKEND_VARIABLE} requests C: {library.why_not()}", "install ckh with a C compiler", code="no-c-backend"
        )
    return "numpy"


class Ranker:
    """Forests over a pool of candidates, prepared once for many problems. It may be used by several threads.

    Args:
        forests: forests over the same inputs.
        engine: the features.
        names: the inputs of the forests, in order.
        hardware: the hardware profile by name.
        kernels: the candidates' raw columns, of one row for each.
        example: the raw columns of any problem, of one row.
        logs: of each forest, whether it gives log(1 + x) of the prediction; none does by default.

    Raises:
        ModelError: a forest has another number of inputs, or the engine lacks one.
        DataError: a column that a feature needs is missing, or there are no candidates.
    """

    def __init__(
        self,
        forests: Sequence[PackedForest],
        engine: FeatureEngine,
        names: Sequence[str],
        hardware: Mapping[str, Array],
        kernels: Mapping[str, Array],
        example: Mapping[str, Array],
        logs: Sequence[bool] = (),
    ) -> None:
        for forest in forests:
            if len(forest.feature_names) != len(names):
                raise ModelError(
                    f"a model of {len(forest.feature_names)} inputs got {len(names)} features", code="model-inputs"
                )
        engine.select(names)
        self._forests, self._engine, self._names = forests, engine, names
        self._hardware, self._kernels = hardware, kernels
        self._logs = list(logs) or [False] * len(forests)
        self.candidates = max((len(np.atleast_1d(column)) for column in kernels.values()), default=0)
        if not self.candidates:
            raise DataError("a pool needs candidates", code="empty")
        self._prepared: dict[tuple[str, ...], tuple[Pool, OpenModel] | None] = {}
        self._in_c({name: np.atleast_1d(column) for name, column in example.items()})

    @property
    def shape(self) -> tuple[int, int] | None:
        """Number of distinct tiles and of distinct variants: how the pool is taken apart; None without C."""
        known = next(iter(self._prepared.values()), None)
        return None if known is None else (known[0].tiles, known[0].variants)

    def scores(self, problems: Mapping[str, Array], forests: int | None = None) -> NDArray[np.float64]:
        """The scores of the forests, shape (forests, problems, candidates).

        Args:
            problems: raw columns, of one row for each problem; one row in all stands for all.
            forests: how many of the forests are evaluated, from the first; all by default.

        Raises:
            DataError: a column that a feature needs is missing.
        """
        columns, count = _rows_of(problems)
        out = np.empty((len(self._forests[:forests]), count, self.candidates))
        for rows, some in _by_text(columns, count):
            part = out if len(rows) == count else np.empty((len(out), len(rows), self.candidates))
            self._score(some, part)
            if part is not out:
                out[:, rows] = part
        return out

    def some(self, problems: Mapping[str, Array], candidates: NDArray[np.intp], forest: int) -> NDArray[np.float64]:
        """The scores of some candidates of each problem with one forest, as `scores` has them.

        Args:
            problems: as of `scores`.
            candidates: which, shape (problems, some), as that of the result.
            forest: which forest.
        """
        columns, count = _rows_of(problems)
        out = np.empty(candidates.shape)
        for rows, some in _by_text(columns, count):
            out[rows] = self._score_some(some, np.ascontiguousarray(candidates[rows], np.int32), forest)
        return out

    def _score(self, columns: Columns, out: NDArray[np.float64]) -> None:
        """Score problems of one text."""
        if (found := self._in_c(columns)) is None:
            self._in_numpy(columns, out)
            return
        sizes = _sizes(found[0], columns, out.shape[1])
        found[1].score(out.shape[1], sizes.ctypes.data, len(out), out.ctypes.data)

    def _score_some(self, columns: Columns, candidates: NDArray[np.int32], forest: int) -> NDArray[np.float64]:
        count, some = candidates.shape
        if (found := self._in_c(columns)) is None:
            every = np.empty((len(self._forests[: forest + 1]), count, self.candidates))
            self._in_numpy(columns, every)
            return np.asarray(np.take_along_axis(every[forest], candidates.astype(np.intp), axis=1))
        sizes, out = _sizes(found[0], columns, count), np.empty((count, some))
        found[1].score_some(forest, count, sizes.ctypes.data, candidates.ctypes.data, some, out.ctypes.data)
        return out

    def _in_c(self, columns: Columns) -> tuple[Pool, OpenModel] | None:
        """The pool and its model for problems of this text; None if NumPy is to compute them, or alone can."""
        if backend_name() != "c":
            return None
        key = tuple(str(column[0]) for _, column in sorted(columns.items()) if not is_number(column))
        if key not in self._prepared:
            if len(self._prepared) >= _MOST_TEXTS:
                self._prepared.clear()
            self._prepared[key] = self._prepare({name: column[:1] for name, column in columns.items()})
        return self._prepared[key]

    def _prepare(self, example: Columns) -> tuple[Pool, OpenModel] | None:
        given = self._engine, self._names, self._hardware, self._kernels
        try:
            made = prepare_pool(*given, example, self._forests)
        except FormulaError:
            return None
        content = model_file(FileFacts(("", "", "")), self._forests, self._logs, [whole_group(made)])
        return made.pool, OpenModel(content)

    def _in_numpy(self, columns: Columns, out: NDArray[np.float64]) -> None:
        for problem in range(out.shape[1]):
            one = {name: column[:1] if len(column) == 1 else column[[problem]] for name, column in columns.items()}
            matrix = self._engine.matrix({**one, **self._kernels}, self._hardware, self._names)
            for forest, is_log, rows in zip(self._forests, self._logs, out, strict=False):
                raw = scores_by_numpy(forest, matrix)
                rows[problem] = np.expm1(raw) if is_log else raw


def _rows_of(problems: Mapping[str, Array]) -> tuple[Columns, int]:
    """Columns of at least one row, and how many problems there are."""
    columns = {name: np.atleast_1d(column) for name, column in problems.items()}
    return columns, max((len(column) for column in columns.values()), default=1)


def _by_text(columns: Columns, count: int) -> Iterator[tuple[NDArray[np.intp], Columns]]:
    """The problems of one text, by their rows, and their columns."""
    texts = [column for column in columns.values() if not is_number(column) and len(column) > 1]
    if not texts:
        yield np.arange(count), columns
        return
    groups = keys([coded(column) for column in texts], count)
    for group in range(len(groups.first)):
        rows = np.flatnonzero(groups.of == group)
        yield rows, {name: column if len(column) == 1 else column[rows] for name, column in columns.items()}


def _sizes(pool: Pool, columns: Columns, count: int) -> NDArray[np.float64]:
    """The numbers of problems as C gets them, shape (problems, numbers)."""
    if missing := [name for name in pool.numbers if name not in columns]:
        raise DataError(f"missing column {missing[0]!r}", code="missing-column")
    sizes = np.empty((count, len(pool.numbers)))
    for index, name in enumerate(pool.numbers):
        sizes[:, index] = columns[name]
    return sizes


def best_first(scores: NDArray[np.float64], top: int | None = None) -> NDArray[np.intp]:
    """The order of candidates by score, along the last axis; of equal ones the first comes first.

    Args:
        scores: numbers that are not NaN, shape (..., candidates).
        top: how many are wanted, if not all: the same as so many from the start of the whole order.
    """
    count = scores.shape[-1]
    wanted = count if top is None else min(max(top, 0), count)
    orders = np.empty((*scores.shape[:-1], wanted), np.intp)
    if 0 < wanted <= _ONE_BY_ONE and scores.size and (wanted == 1 or scores.min() > -np.inf):
        left = scores if wanted == 1 else scores.copy()
        for place in range(wanted):
            orders[..., place] = left.argmax(axis=-1)
            if place + 1 < wanted:
                np.put_along_axis(left, orders[..., place : place + 1], -np.inf, axis=-1)
        return orders
    choose = _sorted if wanted > count // _FEW else partial(_first, wanted=wanted)
    rows = zip((-scores).reshape(-1, count), orders.reshape(-1, wanted), strict=True) if orders.size else ()
    for row, order in rows:
        order[:] = choose(row)[:wanted]
    return orders


def _first(values: NDArray[np.float64], wanted: int) -> NDArray[np.intp]:
    """The first ones of the stable order: only those up to the last one's value are sorted."""
    last = np.partition(values, wanted - 1)[wanted - 1]
    near = np.flatnonzero(values <= last)
    return near[np.argsort(values[near], kind="stable")]


def _sorted(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """The stable order, by an unstable sort and a second one where values are equal: faster than a stable one."""
    order = np.argsort(values)
    values = values[order]
    is_new = values[1:] != values[:-1]
    if not is_new.all():
        bits = len(order).bit_length()
        order[1:] += np.cumsum(is_new) << bits
        order.sort()
        order &= (1 << bits) - 1
    return order


_CELLS = 1 << 24  # outcomes of tests, or walkers, that are held at once


def scores_by_numpy(forest: PackedForest, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Raw scores of rows, shape (rows,).

    Args:
        forest: the forest.
        matrix: features, shape (rows, features).
    """
    step = max(_CELLS // max(len(forest.thresholds), len(forest.roots), 1), 1)
    sums = [_sums(forest, matrix[start : start + step].T) for start in range(0, len(matrix), step)]
    return forest.to_float(np.concatenate([np.zeros((0, 2), np.int64), *sums]))


def _sums(forest: PackedForest, columns: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sums of leaves of rows, shape (rows, 2)."""
    rows = columns.shape[1]
    held = [holds(forest, family, columns[feature]) for family, feature in enumerate(forest.families[:, 0])]
    outcome = np.concatenate([np.zeros((0, rows), np.bool_), *held])
    at = np.repeat(forest.roots, rows)
    row = np.tile(np.arange(rows), len(forest.roots))
    walking = np.flatnonzero(at >= 0)
    while len(walking):
        test, left, right = forest.nodes[at[walking]].T
        below = np.where(outcome[test, row[walking]], left, right)
        at[walking] = below
        walking = walking[below >= 0]
    sums: NDArray[np.int64] = forest.leaves[~at].reshape(len(forest.roots), rows, 2).sum(axis=0)
    return sums
