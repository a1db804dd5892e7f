"""Learning curves: efficiency of a model by the number of its training problems, and by its number of trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.errors import UsageError
from ckh.learn.training.boosting import Boosting
from ckh.learn.training.feature_matrix import FeatureMatrix, widened
from ckh.learn.training.prepared import prepare
from ckh.learn.training.targets import make_fit
from ckh.learn.training.warm_start import read_start
from ckh.report.drawing import Drawing, Line, Lines
from ckh.training import TFLOPS, TrainOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.report.judged import Judged

_POINTS = 14


def learning_curve(judged: Judged) -> Drawing | None:
    """Efficiency of choices by the first trees only, on the evaluated problems."""
    model = judged.model
    target = model.spec.rank_by
    trees = np.unique(np.geomspace(1, model.tree_count(target), _POINTS).round().astype(int)).tolist()
    if len(trees) < 2:  # noqa: PLR2004 - one point is not a curve
        return None
    result = [judged.mean_and_low(model.predict_dataset(judged.dataset, target, count)) for count in trees]
    half = next(count for count, (mean, _) in zip(trees, result, strict=True) if mean >= result[-1][0] - 0.005)
    return Drawing(
        "learning",
        f"{half} of {trees[-1]} trees are within half a point of the full model",
        "Efficiency on the evaluated problems with the first trees only, among the measured kernels. A rising curve "
        "needs more trees; a flat one, more data or other features.",
        efficiency_lines("trees", trees, result),
    )


def efficiency_lines(by: str, counts: Sequence[int], efficiencies: Sequence[tuple[float, float]]) -> Lines:
    """Mean and tenth percentile of the efficiency by a count."""
    mean, low = zip(*efficiencies, strict=True)
    lines = [Line("mean", list(counts), list(mean)), Line("P10", list(counts), list(low))]
    return Lines(lines, by, "efficiency", log_x=True, percent_y=True)


SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)  # of the training problems
_FEWEST = 4  # minimum number of training problems
_SEED = 0


def learning_by_data(judged: Judged, learned_from: Dataset, jobs: int, advance: Callable[[int, str], None]) -> Drawing:
    """Efficiency of models with the same settings, trained on an eighth to all of the training problems.

    Only the ranking model is trained, with the same number of trees: of a blend its LambdaRank, without a model of
    times.

    Args:
        judged: the model's choices, whose problems all models are evaluated on.
        learned_from: the training problems.
        jobs: threads.
        advance: called with the number of finished shares, and the current training.

    Raises:
        UsageError: the model does not state how it was trained.
        DataError: the data cannot be trained on.
    """
    start = read_start(judged.model.path)
    if start.objective is None:
        raise UsageError(f"{start.path} does not state how it was trained", "omit --learning-curve", code="bad-model")
    options = TrainOptions(targets=(TFLOPS,), rank=start.objective, folds=0, jobs=jobs, params=start.params)
    target = options.rank_target
    trees = min(start.trees[judged.model.spec.rank_by], start.params.n_estimators)
    matrix = _matrix(judged)
    counts, result = [], []
    for count, rows in _parts(learned_from.valid()):
        advance(0, f"{count} problems")
        prepared = prepare(rows, options)
        fit = make_fit(target, prepared.dataset, options.rank)
        model = Boosting(prepared, options, lambda _steps, _text: None).fit(
            fit, np.arange(len(prepared.dataset)), None, target, trees
        )
        counts.append(count)
        result.append(judged.mean_and_low(matrix.predict(model, np.arange(len(judged.dataset)))))
        advance(1, f"{count} problems")
    gained = 100 * (result[-1][0] - result[-2][0]) if len(result) > 1 else 0.0
    return Drawing(
        "learning-by-data",
        f"The last doubling of the data, to {counts[-1]:,} problems, gained {gained:+.1f} points of mean efficiency",
        "Efficiency on the evaluated problems, among the measured kernels, of models with these settings trained on "
        "a part of the training problems. A rising curve needs more measurements. Each is a single ranking model, "
        "without a blend's regression and time model, so the last may be slightly worse than the model itself.",
        efficiency_lines("training problems", counts, result),
    )


def _parts(dataset: Dataset) -> Iterator[tuple[int, Dataset]]:
    """Nested subsets of the problems in a random order, with their numbers of problems."""
    problems = len(dataset.first_rows)
    place = np.random.default_rng(_SEED).permutation(problems)
    for count in sorted({max(min(_FEWEST, problems), round(problems * share)) for share in SHARES}):
        yield count, dataset.select(place[dataset.problem_ids] < count)


def _matrix(judged: Judged) -> FeatureMatrix:
    dataset = judged.dataset
    columns: dict[str, NDArray[np.generic]] = {
        name: widened(dataset.frame[name].to_numpy()) for name in dataset.op.training.input_columns
    }
    return FeatureMatrix(dataset.op.training.engine, columns, judged.model.hardware)
