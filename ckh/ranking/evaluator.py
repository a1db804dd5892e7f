"""Ranking of pools: forests, a pool and the backend, in one class.

In C, a pool is prepared once: its features become a program, which the engine in `csrc` runs before it evaluates the
forests. Without C, or for a feature that a program cannot compute, NumPy computes everything for every candidate:
scores are bit-identical where features are equal, at a hundredth of the speed.

NumPy-only forests are the backend of installations without the C part, and the reference of tests. All rows walk down
all trees together, one level per step. Leaf values are added as integers, so that scores are bit-identical to those of
the C part.
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
_FEW = 4  # up to a quarter of the candidates, a partial sort pays off
_ONE_BY_ONE = 8  # up to this many, the best are found one at a time
_MOST_TEXTS = 64  # combinations of strings that a pool is prepared for


def backend_name() -> str:
    """Return the ranking backend: "c", or "numpy" if the C part is absent or $CKH_RANK_BACKEND requests it."""
    wanted = os.environ.get(BACKEND_VARIABLE, "")
    if wanted not in {"", "c", "numpy"}:
        raise UsageError(
            f"{BACKEND_VARIABLE} is {wanted!r}", 'set it to "c" or "numpy", or unset it', code="unknown-name"
        )
    if wanted != "numpy" and library.is_available():
        return "c"
    if wanted == "c":
        raise UsageError(
            f"{BACKEND_VARIABLE} requests C: {library.why_not()}", "install ckh with a C compiler", code="no-c-backend"
        )
    return "numpy"


class Ranker:
    """Forests over a pool of candidates, prepared once for many problems. Thread-safe."""

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
        """Number of distinct tiles and of distinct variants of the split pool; None without C."""
        known = next(iter(self._prepared.values()), None)
        return None if known is None else (known[0].tiles, known[0].variants)

    def scores(self, problems: Mapping[str, Array], forests: int | None = None) -> NDArray[np.float64]:
        """Score all candidates, shape (forests, problems, candidates)."""
        columns, count = _rows_of(problems)
        out = np.empty((len(self._forests[:forests]), count, self.candidates))
        for rows, alike in _by_text(columns, count):
            part = out if len(rows) == count else np.empty((len(out), len(rows), self.candidates))
            self._score(alike, part)
            if part is not out:
                out[:, rows] = part
        return out

    def some(self, problems: Mapping[str, Array], candidates: NDArray[np.intp], forest: int) -> NDArray[np.float64]:
        """Score some candidates of each problem with one forest, like `scores`."""
        columns, count = _rows_of(problems)
        out = np.empty(candidates.shape)
        for rows, alike in _by_text(columns, count):
            out[rows] = self._score_some(alike, np.ascontiguousarray(candidates[rows], np.int32), forest)
        return out

    def _score(self, columns: Columns, out: NDArray[np.float64]) -> None:
        """Score problems with equal strings."""
        if (in_c := self._in_c(columns)) is None:
            self._in_numpy(columns, out)
            return
        pool, model = in_c
        sizes = _sizes(pool, columns, out.shape[1])
        model.score(out.shape[1], sizes.ctypes.data, len(out), out.ctypes.data)

    def _score_some(self, columns: Columns, candidates: NDArray[np.int32], forest: int) -> NDArray[np.float64]:
        count, scored = candidates.shape
        if (in_c := self._in_c(columns)) is None:
            every = np.empty((len(self._forests[: forest + 1]), count, self.candidates))
            self._in_numpy(columns, every)
            return np.asarray(np.take_along_axis(every[forest], candidates.astype(np.intp), axis=1))
        pool, model = in_c
        sizes, out = _sizes(pool, columns, count), np.empty((count, scored))
        model.score_some(forest, count, sizes.ctypes.data, candidates.ctypes.data, scored, out.ctypes.data)
        return out

    def _in_c(self, columns: Columns) -> tuple[Pool, OpenModel] | None:
        """Return the pool and its model for problems with these strings; None if NumPy is requested or required."""
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
            sizes = {name: column[:1] if len(column) == 1 else column[[problem]] for name, column in columns.items()}
            matrix = self._engine.matrix({**sizes, **self._kernels}, self._hardware, self._names)
            for forest, is_log, rows in zip(self._forests, self._logs, out, strict=False):
                raw = scores_by_numpy(forest, matrix)
                rows[problem] = np.expm1(raw) if is_log else raw


def _rows_of(problems: Mapping[str, Array]) -> tuple[Columns, int]:
    """Columns with at least one row, and the number of problems."""
    columns = {name: np.atleast_1d(column) for name, column in problems.items()}
    return columns, max((len(column) for column in columns.values()), default=1)


def _by_text(columns: Columns, count: int) -> Iterator[tuple[NDArray[np.intp], Columns]]:
    """Group problems by their strings: row indices and columns of each group."""
    texts = [column for column in columns.values() if not is_number(column) and len(column) > 1]
    if not texts:
        yield np.arange(count), columns
        return
    groups = keys([coded(column) for column in texts], count)
    for group in range(len(groups.first)):
        rows = np.flatnonzero(groups.of == group)
        yield rows, {name: column if len(column) == 1 else column[rows] for name, column in columns.items()}


def _sizes(pool: Pool, columns: Columns, count: int) -> NDArray[np.float64]:
    """Arrange the problems' numbers for C, shape (problems, numbers)."""
    if missing := [name for name in pool.numbers if name not in columns]:
        raise DataError(f"missing column {missing[0]!r}", code="missing-column")
    sizes = np.empty((count, len(pool.numbers)))
    for index, name in enumerate(pool.numbers):
        sizes[:, index] = columns[name]
    return sizes


def best_first(scores: NDArray[np.float64], top: int | None = None) -> NDArray[np.intp]:
    """Order candidates by descending score along the last axis, stable for ties."""
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
    """Return the first indices of the stable order, sorting only values up to the last one's."""
    last = np.partition(values, wanted - 1)[wanted - 1]
    near = np.flatnonzero(values <= last)
    return near[np.argsort(values[near], kind="stable")]


def _sorted(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the stable order by an unstable sort and a second sort of equal values: faster than a stable sort."""
    order = np.argsort(values)
    values = values[order]
    is_new = values[1:] != values[:-1]
    if not is_new.all():
        bits = len(order).bit_length()
        order[1:] += np.cumsum(is_new) << bits
        order.sort()
        order &= (1 << bits) - 1
    return order


_CELLS = 1 << 24  # limit of test outcomes, or walkers, in memory


def scores_by_numpy(forest: PackedForest, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Evaluate the raw scores of rows, shape (rows,)."""
    step = max(_CELLS // max(len(forest.thresholds), len(forest.roots), 1), 1)
    sums = [_sums(forest, matrix[start : start + step].T) for start in range(0, len(matrix), step)]
    scores = forest.to_float(np.concatenate([np.zeros((0, 2), np.int64), *sums]))
    return scores + matrix[:, forest.families[0, 0]] if forest.is_input else scores


def _sums(forest: PackedForest, columns: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sum the leaves of rows, shape (rows, 2)."""
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
