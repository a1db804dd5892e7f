"""Ranking pools: forests, a pool and the implementation that runs, behind one class.

In C, features are run as recorded steps (`ckh.ranking.program`, `csrc/ckh_features.c`) and forests walked by
`csrc/ckh_rank.c`; without it, NumPy does both (`ckh.ranking.pool`, `ckh.ranking.partial_numpy`). Scores are the same to
the last bit.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ckh.errors import ModelError, UsageError
from ckh.ranking import partial_numpy
from ckh.ranking.plan import make_plan
from ckh.ranking.pool import Pool
from ckh.ranking.program import Programs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.features.engine import Array, FeatureEngine
    from ckh.ranking.packed import PackedForest
    from ckh.ranking.plan import Plan
    from ckh.ranking.pool import Values

    Scoring = Callable[[Plan, Values, NDArray[np.float64]], None]

BACKEND_VARIABLE = "CKH_RANK_BACKEND"
_CELLS = 1 << 17  # feature values that are held at once
_TOGETHER = 64  # problems: C likes multiples of it
_FEW = 4  # sorting but the best is worth it for this share of the candidates


def backend_name() -> str:
    """Which implementation ranks: "c", or "numpy" where the C part is absent or $CKH_RANK_BACKEND says so.

    Raises:
        UsageError: the variable names another, or C that is not there.
    """
    return _backend()[0]


def _backend() -> tuple[str, Scoring]:
    from ckh.ranking import partial_c

    wanted = os.environ.get(BACKEND_VARIABLE, "")
    if wanted not in {"", "c", "numpy"}:
        raise UsageError(f"{BACKEND_VARIABLE} is {wanted!r}", 'set it to "c" or "numpy", or not at all')
    if wanted != "numpy" and partial_c.is_available():
        return "c", partial_c.scores
    if wanted == "c":
        raise UsageError(f"{BACKEND_VARIABLE} asks for C: {partial_c.why_not()}", "install ckh with a C compiler")
    return "numpy", partial_numpy.scores


class Ranker:
    """Forests over a pool of candidates, prepared once for many problems. It may be used by several threads.

    Args:
        forests: forests over the same inputs.
        engine: the features.
        names: the inputs of the forests, in order.
        hardware: the hardware profile by name.
        kernels: the candidates' raw columns, of one row for each.
        example: the raw columns of any problem, of one row.

    Raises:
        ModelError: a forest has another number of inputs, or the engine lacks one.
        DataError: a column that a feature needs is missing.
    """

    def __init__(
        self,
        forests: Sequence[PackedForest],
        engine: FeatureEngine,
        names: Sequence[str],
        hardware: Mapping[str, Array],
        kernels: Mapping[str, Array],
        example: Mapping[str, Array],
    ) -> None:
        nodes = np.zeros(len(names), np.int64)
        for forest in forests:
            if len(forest.feature_names) != len(names):
                raise ModelError(f"a model of {len(forest.feature_names)} inputs got {len(names)} features")
            np.add.at(nodes, forest.families[:, 0], forest.family_nodes())
        self._pool = Pool(engine, names, hardware, kernels, example, nodes)
        self._programs = Programs(self._pool)
        self._plans = [make_plan(forest, self._pool) for forest in forests]

    @property
    def candidates(self) -> int:
        """Number of candidates."""
        return len(self._pool.tile_of)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of distinct tiles and of distinct variants: how the pool is taken apart."""
        return self._pool.tiles, self._pool.variants

    def scores(self, problems: Mapping[str, Array], forests: int | None = None) -> NDArray[np.float64]:
        """Raw scores, shape (forests, problems, candidates).

        Args:
            problems: raw columns, of one row for each problem; one row in all stands for all.
            forests: how many of the forests are asked, from the first; all by default.

        Raises:
            DataError: a column that a feature needs is missing.
        """
        columns = {name: np.atleast_1d(column) for name, column in problems.items()}
        count = max((len(column) for column in columns.values()), default=1)
        name, score = _backend()
        compute = self._programs.values if name == "c" else self._pool.values
        plans = self._plans[:forests]
        out = np.empty((len(plans), count, self.candidates))
        step = max(_CELLS // max(self._pool.cells, 1), 1)
        step -= step % _TOGETHER if step > _TOGETHER else 0
        for start in range(0, count, step):
            some = slice(start, min(start + step, count))
            part = {name: column if len(column) == 1 else column[some] for name, column in columns.items()}
            values = compute(part, some.stop - some.start)
            for plan, rows in zip(plans, out, strict=True):
                score(plan, values, rows[some])
        return out


def best_first(scores: NDArray[np.float64], top: int | None = None) -> NDArray[np.intp]:
    """The order of candidates by score, along the last axis; of equal ones the first comes first.

    Args:
        scores: numbers that are not NaN, shape (..., candidates).
        top: how many are wanted, if not all: the same as so many from the start of the whole order.
    """
    count = scores.shape[-1]
    wanted = count if top is None else min(max(top, 0), count)
    if wanted == 1:
        return np.asarray(scores.argmax(axis=-1, keepdims=True), np.intp)
    orders = np.empty((*scores.shape[:-1], wanted), np.intp)
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
