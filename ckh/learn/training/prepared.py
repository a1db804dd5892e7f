"""Data shared by all fits of a training: rows and features.

Cross-validation splits without leaks: by complete problem identity, with a separate fold for early stopping.

Data of winners only state the best kernel of each problem. Nothing is known of its rivals, the other candidates, except
that they were not better. They become rows without a time, with an efficiency of 0, so that
training and cross-validation proceed as usual. Not all are needed: kernels that won elsewhere are most informative; of
the others some are drawn. Problems with times of several kernels get no rivals: their efficiencies are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ckh.archs import load_arch
from ckh.assess.metrics import choices
from ckh.assess.times import efficiency_of
from ckh.data.dataset import Dataset
from ckh.data.numbering import group_numbers
from ckh.errors import DataError, UsageError
from ckh.kernels.pools import TIMED_NAME
from ckh.learn.analytic.corrected import estimated_logs
from ckh.learn.models.spec import spec_of
from ckh.learn.training.feature_matrix import FeatureMatrix
from ckh.learn.training.warm_start import Start, check_start
from ckh.ops.base import Encoding
from ckh.schema import HARDWARE, Status
from ckh.training import Labels, RankObjective

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.ops.base import AnyOperation, Kernel
    from ckh.training import TrainOptions

FEWEST_ROWS = 2  # minimum for LightGBM
MIN_GROUPS = 3  # train, early stopping, score
MOST_RIVALS = 200  # maximum per problem, among kernels that won elsewhere in its pool
MOST_OTHERS = 100  # among kernels that never won; or a hundredth of the candidates if that is more
_SHARE_OF_OTHERS = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class FoldSplit:
    """Row indices of a fold: trained on `train`, stopped early by `stop`, scored on `score`."""

    train: NDArray[np.int64]
    stop: NDArray[np.int64]
    score: NDArray[np.int64]


def grouped_splits(groups: NDArray[np.int64], folds: int) -> Iterator[FoldSplit]:
    """Yield one split per fold, those of scikit-learn's `GroupKFold`, whose import takes two seconds.

    Each row is scored once. There are fewer folds for fewer groups, and none below three groups.
    """
    number, rows = np.unique(groups, return_inverse=True, return_counts=True)[1:]
    count = min(folds, len(rows))
    if count < MIN_GROUPS:
        return
    total, fold = np.zeros(count, np.intp), np.empty(len(rows), np.intp)
    for group in np.argsort(rows, kind="stable")[::-1]:  # the largest first, to the smallest fold
        fold[group] = total.argmin()
        total[fold[group]] += rows[group]
    parts = [np.flatnonzero(fold[number] == i) for i in range(count)]
    for i, score in enumerate(parts):
        stop = parts[(i + 1) % count]
        others = [parts[j] for j in range(count) if j not in (i, (i + 1) % count)]
        yield FoldSplit(np.sort(np.concatenate(others)), stop, score)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Data shared by all fits, and the model of a warm start."""

    known: Dataset
    """The valid rows of the data."""
    dataset: Dataset
    """The rows to fit, for winners including their rivals."""
    matrix: FeatureMatrix
    efficiency: NDArray[np.float64]
    start: Start | None

    def splits(self, folds: int) -> list[FoldSplit]:
        """Splits of cross-validation; empty for too few groups, or for a fold with too few rows for LightGBM."""
        splits = list(grouped_splits(self.dataset.split_ids, folds))
        return splits if all(len(split.train) >= FEWEST_ROWS for split in splits) else []

    def chosen_efficiency(self, scores: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Efficiency of each problem's highest score among some rows, shape (problems of the rows,)."""
        problem = np.unique(self.dataset.problem_ids[rows], return_inverse=True)[1]
        chosen = choices(scores[rows], problem, int(problem.max()) + 1)
        return np.asarray(self.efficiency[rows[chosen]])


def prepare(dataset: Dataset, options: TrainOptions, start: Start | None = None) -> Prepared:
    """Validate training data and extract features; refuses rows of several kinds and an incompatible start."""
    of_winners = options.labels is Labels.WINNERS
    valid = dataset.winners() if of_winners else dataset.valid()
    if not len(valid.frame):
        raise DataError("the dataset has no valid time", "see the column status for why", code="not-measured")
    if (why := _nothing_to_learn(valid, options)) and start is None:
        raise DataError(f"nothing to learn: {why}", "measure other kernels on several problems", code="few-problems")
    for name in ("arch", *valid.op.training.model_per):
        if len(values := sorted(valid.frame[name].unique())) > 1:
            hint = "choose one with --variant" if name == "variant" else "train one model for each"
            raise DataError(f"the dataset has several values of {name}: {', '.join(values)}", hint, code="mixed-data")
    if start is not None:
        start = replace(start, differs=check_start(start, spec_of(valid, options.all_targets), options))
    rows = with_rivals(valid, options.seed) if of_winners else valid
    columns = {name: rows.frame[name].to_numpy() for name in rows.op.training.input_columns}
    return Prepared(
        known=valid,
        dataset=rows,
        matrix=FeatureMatrix(rows.op.training.engine, columns, rows.hardware()),
        efficiency=efficiency_of(rows),
        start=start,
    )


def _nothing_to_learn(valid: Dataset, options: TrainOptions) -> str:
    """Why a model of these rows would say nothing of other problems; empty if it may."""
    problem, ms = valid.problem_ids, valid.frame["latency_ms"].to_numpy(dtype=np.float64)
    if len(set(valid.frame["kernel"])) == 1:
        return f"all {len(valid)} usable times are of one kernel, {valid.frame['kernel'].iloc[0]}"
    if problem.max() == 0:
        return f"all {len(valid)} usable times are of one problem, {valid.problem(0).canonical()}"
    if options.labels is Labels.WINNERS and valid.is_won.any():
        return ""
    if (np.bincount(problem) == 1).all():
        has_estimate = options.prior and estimated_logs(valid) is not None  # whose errors compare problems
        return "" if has_estimate else "no problem has times of two kernels; are they --labels winners?"
    is_equal = (ms == ms[valid.first_rows][problem]).all()
    return f"on each of {len(valid.first_rows)} problems all times are equal" if is_equal else ""


def check_options(options: TrainOptions, start: Start | None) -> None:
    """Refuse incompatible options."""
    share = options.params.colsample_bytree
    for is_wrong, what, hint, code in (
        (not 0 < share <= 1, f"colsample_bytree is {share}, not from 0 to 1", "", "out-of-range"),
        (options.prior < 0, f"prior is {options.prior}, which must be at least 0", "", "out-of-range"),
        (
            options.labels is Labels.WINNERS and (options.targets or options.rank is not RankObjective.LAMBDARANK),
            "data of winners allow a ranking only",
            "give --rank lambdarank and no --targets",
            "conflicting-options",
        ),
        (
            options.prior and (options.rank is not RankObjective.EFFICIENCY or start is not None),
            "a prior needs a model of efficiency, without a warm start",
            "omit prior",
            "conflicting-options",
        ),
    ):
        if is_wrong:
            raise UsageError(what, hint, code=code)


def too_few_to_validate(dataset: Dataset) -> bool:
    """True if there are too few problems for cross-validation."""
    return len(np.unique(dataset.problem_ids)) < MIN_GROUPS


def with_rivals(winners: Dataset, seed: int) -> Dataset:
    """Append rivals to the winners: for each won problem other candidates, as rows that failed to win."""
    op = winners.op
    if op.training.model_files.keys() - {TIMED_NAME}:
        raise UsageError(
            f"the candidates of {op.name} come from measured data, not from winners",
            code="winners-only",
        )
    kept_apart = [name for name in op.apart if name in winners.frame]
    shared = ["op_type", "arch", *op.problems.identity, *kept_apart, *(f"hw_{name}" for name in HARDWARE)]
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
    for row, problem, is_won in zip(winners.first_rows.tolist(), winners.contests(), winners.is_won, strict=True):
        if is_won:
            candidates = op.kernels.candidates(problem, arch, Path())
            tried = winners.tried(row, candidates.pool, candidates.chosen)
            pools.setdefault(id(candidates.pool), (candidates.pool, []))[1].append((row, tried))
    # Kernels that won the same problem in another run are no rivals.
    same = group_numbers(winners.frame, (*op.problems.identity, "arch"))
    names_of = pd.Series(names).groupby(same).agg(set).tolist()
    for pool, members in pools.values():
        place = {op.kernels.name(kernel): index for index, kernel in enumerate(pool)}
        won_of = {row: {place[name] for name in names_of[same[row]] if name in place} for row, _ in members}
        ever = np.array(sorted(set().union(*won_of.values())), np.intp)
        drawn = [_drawn(chosen, won_of[row], ever, random) for row, chosen in members]
        rows = np.repeat([row for row, _ in members], [len(rivals) for rivals in drawn]).astype(np.intp)
        columns: dict[str, Any] = {"kernel": [op.kernels.name(kernel) for kernel in pool]}
        known = op.kernels.columns(pool, Encoding.on(winners.arch))
        columns |= {name: values for name, values in known.items() if name in op.training.input_columns}
        yield rows, np.concatenate([*drawn, np.empty(0, np.intp)]), pd.DataFrame(columns)


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
