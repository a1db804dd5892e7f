"""Learning from winners only: the losing kernels are the other candidates of each problem.

Nothing is known of a winner's rivals except that they were not better. They become rows without a time, with an
efficiency of 0, so that training and cross-validation proceed as usual. Not all are needed: kernels that won elsewhere
are most informative; of the others some are drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ckh.archs import load_arch
from ckh.assess.winners import MISSING, WinnerPlaces, winner_rows
from ckh.data.dataset import Dataset
from ckh.errors import UsageError
from ckh.kernels.pools import TIMED_NAME
from ckh.learn.answers.ranking import rankings_of
from ckh.ops.base import Encoding
from ckh.schema import HARDWARE, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.learn.models.artifact import Model
    from ckh.ops.base import AnyOperation, Kernel

MOST_RIVALS = 200  # maximum per problem, among kernels that won elsewhere in its pool
MOST_OTHERS = 100  # among kernels that never won; or a hundredth of the candidates if that is more
_SHARE_OF_OTHERS = 0.01


def with_rivals(winners: Dataset, seed: int) -> Dataset:
    """Append rivals to the winners: for each problem other candidates, as rows that failed to win."""
    op = winners.op
    if op.training.model_files.keys() - {TIMED_NAME}:
        raise UsageError(
            f"the candidates of {op.name} come from measured data, not from winners",
            code="winners-only",
        )
    shared = ["op_type", "arch", *op.problems.identity, *(f"hw_{name}" for name in HARDWARE)]
    judged = ("status", "is_valid", "latency_ms", "spread")
    columns = list(dict.fromkeys([*shared, "kernel", *op.training.input_columns, *judged]))
    first = winners.frame[list(dict.fromkeys([*shared, *(set(op.training.input_columns) & set(op.problems.identity))]))]
    parts = [winners.frame[columns]]
    for rows, kernels, table in _rivals(winners, op, seed):
        part = pd.concat([first.iloc[rows].reset_index(drop=True), table.iloc[kernels].reset_index(drop=True)], axis=1)
        part = part.assign(status=str(Status.UNSUPPORTED), is_valid=False, latency_ms=np.nan, spread=np.nan)
        parts.append(part[columns])
    return Dataset(pd.concat(parts, ignore_index=True), winners.metadata, op.name)


def _rivals(
    winners: Dataset, op: AnyOperation, seed: int
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], pd.DataFrame]]:
    """Yield for each pool: a row of each rival's problem, the rival's index in the pool, and the pool's columns."""
    arch, random = load_arch(winners.arch), np.random.default_rng(seed)
    names = winners.frame["kernel"].to_numpy(dtype=object)
    pools: dict[int, tuple[Sequence[Kernel], list[tuple[int, NDArray[np.intp]]]]] = {}
    for row, problem in zip(winners.first_rows.tolist(), winners.problems(), strict=True):
        candidates = op.kernels.candidates(problem, arch, Path())
        pools.setdefault(id(candidates.pool), (candidates.pool, []))[1].append((row, candidates.chosen))
    order = np.argsort(winners.problem_ids, kind="stable")
    starts = np.searchsorted(winners.problem_ids[order], np.arange(len(winners.first_rows) + 1))
    for pool, members in pools.values():
        place = {op.kernels.name(kernel): index for index, kernel in enumerate(pool)}
        won_of = {
            row: {place[name] for name in names[order[starts[item] : starts[item + 1]]] if name in place}
            for row, _ in members
            for item in [int(winners.problem_ids[row])]
        }
        ever = np.array(sorted(set().union(*won_of.values())), np.intp)
        drawn = [_drawn(chosen, won_of[row], ever, random) for row, chosen in members]
        rows = np.repeat([row for row, _ in members], [len(item) for item in drawn]).astype(np.intp)
        yield rows, np.concatenate([*drawn, np.empty(0, np.intp)]), _columns(op, pool, winners.arch)


def _drawn(
    chosen: NDArray[np.intp], won: set[int], ever: NDArray[np.intp], random: np.random.Generator
) -> NDArray[np.intp]:
    """Draw the required rivals of a problem's winners from its candidates."""
    rivals = np.setdiff1d(chosen, np.array(sorted(won), np.intp))
    often = np.isin(rivals, ever)
    others = max(MOST_OTHERS, int(_SHARE_OF_OTHERS * len(chosen)))
    parts = [(rivals[often], MOST_RIVALS), (rivals[~often], others)]
    kept = [part if len(part) <= most else np.sort(random.choice(part, most, replace=False)) for part, most in parts]
    return np.concatenate(kept)


def _columns(op: AnyOperation, pool: Sequence[Kernel], arch: str) -> pd.DataFrame:
    columns: dict[str, Any] = {"kernel": [op.kernels.name(kernel) for kernel in pool]}
    known = op.kernels.columns(pool, Encoding.on(arch))
    columns |= {name: values for name, values in known.items() if name in op.training.input_columns}
    table: pd.DataFrame = pd.DataFrame(columns)
    return table


def ranked_winners(dataset: Dataset, model: Model) -> WinnerPlaces:
    """Rank the winners of a dataset among all candidates of their problems."""
    op = dataset.op
    winners = dataset.frame["kernel"].to_numpy(dtype=object)[winner_rows(dataset)]
    place = np.full(len(winners), MISSING, np.int64)
    first = np.full(len(winners), "", dtype=object)
    places: dict[int, tuple[Sequence[Kernel], dict[str, int]]] = {}
    for number, ranking in enumerate(rankings_of(dataset.problems(), model)):
        if id(ranking.pool) not in places:
            names = {op.kernels.name(kernel): index for index, kernel in enumerate(ranking.pool)}
            places[id(ranking.pool)] = ranking.pool, names
        if not len(ranking.order):
            continue
        first[number] = op.kernels.name(ranking.pool[ranking.order[0]])
        winner = places[id(ranking.pool)][1].get(winners[number])
        if winner is not None and (at := np.flatnonzero(ranking.order == winner)).size:
            place[number] = at[0]
    return WinnerPlaces(place, first)
