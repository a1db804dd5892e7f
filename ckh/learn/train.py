"""Training: cross-validation by problem, then a final fit with the number of trees that it found.

The same data, options and versions give the same bytes, whatever the number of threads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.assess.measured import times_of
from ckh.assess.metrics import choices
from ckh.errors import DataError, UsageError
from ckh.learn.manifest import problem_id
from ckh.learn.matrix import FeatureMatrix
from ckh.learn.mining import Mined, mine, row_weights
from ckh.learn.model_text import join_trees, scale_leaves, shorten
from ckh.learn.prior import PRIOR_TREES, has_prior, prior_rows
from ckh.learn.spec import spec_of
from ckh.learn.splits import MIN_GROUPS, FoldSplit, grouped_splits
from ckh.learn.targets import Fit, blended, make_fit, noise_weights, weighted
from ckh.learn.trained import FoldMetrics, Trained, TrainedTarget
from ckh.learn.warm_start import Start, StartComparison, check_start, compare, split_counts
from ckh.learn.winners import with_rivals
from ckh.training import RANK, TFLOPS, Labels, RankObjective, TrainOptions, TreeParams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset

_EVAL_AT = (1, 2, 3, 4, 5)
# The text names the number of threads, which must not make models of equal trees differ.
_FEWEST_ROWS = 2  # that LightGBM takes
_THREADS = re.compile(r"^\[num_threads: \d+\]$", re.MULTILINE)


def target_names(options: TrainOptions) -> tuple[str, ...]:
    """The targets that are trained, in order."""
    return options.targets + (() if options.rank is RankObjective.TFLOPS else (RANK,))


def rank_target(options: TrainOptions) -> str:
    """The target whose model orders kernels."""
    return TFLOPS if options.rank is RankObjective.TFLOPS else RANK


def rounds(options: TrainOptions) -> int:
    """How many boosting rounds training may take, for a progress bar."""
    further = options.ensemble - 1 if rank_target(options) == RANK else 0
    fits = len(target_names(options)) * (options.folds + 1) + options.folds * options.mine + further
    blended = _regression_params(options).n_estimators if options.rank is RankObjective.BLEND else 0
    return fits * options.params.n_estimators + blended


def _regression_params(options: TrainOptions) -> TreeParams:
    """The parameters of a blend's regression."""
    return options.regression or options.params


def train(
    dataset: Dataset, options: TrainOptions, advance: Callable[[int, str], None], start: Start | None = None
) -> Trained:
    """Train every target on the valid rows of a dataset of one architecture, and one direction and dtype.

    With a `start` the trees are added to those of that model.

    Raises:
        DataError: there is no valid row, the rows are of several directions, dtypes or architectures, have no spread
            to weigh by, or are of too few problems for mining.
        UsageError: the start does not fit, mining has no folds, there is to be an ensemble of no model, or a focus
            where rows have no such weights, or a prior where it does not fit.
    """
    if options.ensemble > 1 and rank_target(options) != RANK:
        raise UsageError("an ensemble orders kernels, and TFLOPS are to order them", "leave out --ensemble or --rank")
    has_regression = options.rank in {RankObjective.EFFICIENCY, RankObjective.RELATIVE, RankObjective.BLEND}
    if options.focus != TrainOptions().focus and not has_regression:
        raise UsageError(f"focus weighs a regression of the order, and {options.rank} is none", "leave out --focus")
    _check_labels(options)
    if options.prior and (options.rank is not RankObjective.EFFICIENCY or start is not None):
        raise UsageError("a prior goes with a model of efficiency that is trained anew", "leave out --prior")
    prepared = prepare(dataset, options, start)
    rows, engine = prepared.dataset, prepared.dataset.op.engine
    trainer = Trainer(prepared, options, advance)
    targets = {
        target: trainer.train(make_fit(target, rows, options.rank, options.focus)) for target in target_names(options)
    }
    return Trained(
        dataset=prepared.known,
        all_rows=len(dataset.frame),
        options=options,
        feature_names=engine.names,
        categorical=engine.categorical,
        targets=targets,
        params={**options.params.to_dict(), "random_state": options.seed, "early_stopping": options.early_stopping},
        start=start,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What all fits share.

    Attributes:
        known: the usable rows of the data.
        dataset: what is fitted: these, and with winners alone the rivals of each.
        matrix: features of what is fitted.
        efficiency: of each row, were it chosen, shape (rows,).
        noise: weights by measurement noise, shape (rows,); None without.
        start: the model whose trees are added to.
    """

    known: Dataset
    dataset: Dataset
    matrix: FeatureMatrix
    efficiency: NDArray[np.float64]
    noise: NDArray[np.float64] | None
    start: Start | None

    def weighted(self, fit: Fit) -> Fit:
        """A fit with the weights by noise, if there are any."""
        return fit if self.noise is None else weighted(fit, self.noise)

    def splits(self, folds: int) -> list[FoldSplit]:
        """The splits of cross-validation; none for too few groups."""
        return list(grouped_splits(self.dataset.split_ids, folds))


def prepare(dataset: Dataset, options: TrainOptions, start: Start | None = None) -> Prepared:
    """Check what is to be trained on, and extract its features.

    Raises:
        DataError, UsageError: as `train`.
    """
    valid = dataset.valid()
    _check(valid)
    _check_mining(valid, options)
    if start is not None:
        check_start(start, spec_of(valid, target_names(options)), options)
    rows = with_rivals(valid, options.seed) if options.labels is Labels.WINNERS else valid
    columns = {name: rows.frame[name].to_numpy() for name in rows.op.input_columns}
    spread = rows.frame["spread"].to_numpy(dtype=np.float64)
    return Prepared(
        known=valid,
        dataset=rows,
        matrix=FeatureMatrix(rows.op.engine, columns, rows.hardware()),
        efficiency=times_of(rows).efficiency(),
        noise=noise_weights(spread) if options.noise_weights else None,
        start=start,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Validated:
    """A cross-validation: what each row's fold predicted for it, shape (rows,), and how the folds went."""

    predicted: NDArray[np.float64]
    folds: tuple[FoldMetrics, ...]


class Trainer:
    """Fits the models of prepared rows."""

    def __init__(self, prepared: Prepared, options: TrainOptions, advance: Callable[[int, str], None]) -> None:
        self._prepared = prepared
        self._engine = prepared.dataset.op.engine
        self._matrix = prepared.matrix
        self._options = options
        self._advance = advance
        self._groups = prepared.dataset.problem_ids
        self._efficiency = prepared.efficiency

    def train(self, fit: Fit) -> TrainedTarget:
        """Cross-validate and fit a target."""
        ranks = fit.target in (TFLOPS, RANK)
        fit, validated, mined = self._mine_or_validate(self._prepared.weighted(fit))
        folds, rows = validated.folds, np.arange(len(fit.label))
        before = 0 if self._prepared.start is None else self._prepared.start.trees[fit.target]
        most = before + self._options.params.n_estimators
        trees = round(median(fold.best_iteration for fold in folds)) if folds else most
        final = self._fit(fit, rows, None, f"{fit.target}, final", trees - before)
        chosen = self._chosen_efficiency(validated.predicted, rows) if folds and ranks else None
        text = _THREADS.sub("[num_threads: 0]", final.model_to_string(num_iteration=trees))
        if fit.target == RANK and (self._options.ensemble > 1 or self._options.rank is RankObjective.BLEND):
            text = self._joined(fit, [text, *self._further(fit, trees)])
        prior = self._prior(fit, rows)
        if prior is not None:
            text, trees = self._with_prior(text, prior.model_to_string()), trees + prior.num_trees()
        # Of an ensemble's trees LightGBM counts no split: their gains were left out.
        counts = final.feature_importance() if self._prepared.start is None else split_counts(text, self._engine.names)
        return TrainedTarget(
            text=text,
            trees=trees,
            folds=folds,
            importances={name: int(count) for name, count in zip(self._engine.names, counts, strict=True)},
            oof_mean_efficiency=None if chosen is None else float(chosen.mean()),
            oof_p10_efficiency=None if chosen is None else float(np.percentile(chosen, 10)),
            comparison=self._compare(fit.target, chosen),
            mined=mined,
        )

    def fold_efficiency(self, fit: Fit, split: FoldSplit) -> NDArray[np.float64]:
        """The efficiency of the choices of one fold's model, shape (problems it is scored on,)."""
        model = self._fit(fit, split.train, split.stop, fit.target)
        predicted = np.full(len(fit.label), np.nan)
        predicted[split.score] = self._predicted(fit, model, split)
        return self._chosen_efficiency(predicted, split.score)

    def _mine_or_validate(self, fit: Fit) -> tuple[Fit, _Validated, Mined | None]:
        """The fit to train for good, how it was validated, and how it was mined, if it was."""
        options, problems = self._options, int(self._groups.max()) + 1
        if not options.mine or fit.target != rank_target(options):
            return fit, self._validate(fit, fit.target), None
        tried: list[tuple[Fit, _Validated]] = []

        def efficiency_of(number: int, weight: NDArray[np.float64]) -> NDArray[np.float64]:
            harder = weighted(fit, row_weights(weight, self._groups)) if number else fit
            tried.append((harder, self._validate(harder, f"{fit.target}, mining {number} of {options.mine}")))
            return self._chosen_efficiency(tried[-1][1].predicted, np.arange(len(fit.label)))

        mined = mine(options.mine, problems, efficiency_of)
        left = options.mine + 1 - len(mined.rounds)
        self._advance(left * options.folds * options.params.n_estimators, f"{fit.target}, mined")
        return *tried[mined.kept], mined

    def _validate(self, fit: Fit, text: str) -> _Validated:
        predicted = np.full(len(fit.label), np.nan)
        folds = []
        for number, split in enumerate(self._prepared.splits(self._options.folds)):
            model = self._fit(fit, split.train, split.stop, f"{text}, fold {number + 1}")
            predicted[split.score] = self._predicted(fit, model, split)
            folds.append(self._metrics(number, fit, split, predicted, int(model.best_iteration)))
        return _Validated(predicted, tuple(folds))

    def _predicted(self, fit: Fit, model: Any, split: FoldSplit) -> NDArray[np.float64]:
        """What a fold's model, and the prior fitted to its rows, say of the rows that it is scored on."""
        own, prior = self._matrix.predict(model, split.score), self._prior(fit, split.train)
        weight = self._options.prior
        return own if prior is None else (own + weight * self._matrix.predict(prior, split.score)) / (1.0 + weight)

    def _prior(self, fit: Fit, rows: NDArray[np.int64]) -> Any:
        """Trees of a law of time that is fitted to rows; None where there is to be none, or it cannot be fitted."""
        import lightgbm

        dataset, options = self._prepared.dataset, self._options
        if fit.target != RANK or not options.prior or not has_prior(dataset, rows):
            return None
        known = prior_rows(dataset, rows, self._efficiency, options.seed)
        law = Fit(fit.target, known.efficiency, known.efficiency**options.focus, dict(fit.parameters), is_grouped=False)
        parameters = self._parameters(law, PRIOR_TREES, options.seed)
        data = self._lightgbm_rows(law, np.arange(len(known.efficiency)), parameters, known.matrix)
        return lightgbm.train(parameters, data, PRIOR_TREES.n_estimators)

    def _with_prior(self, text: str, prior: str) -> str:
        """The mean of a model and a prior, weighted, as one."""
        weight = 1.0 + self._options.prior
        return shorten(
            join_trees([scale_leaves(text, 1.0 / weight), scale_leaves(prior, self._options.prior / weight)])
        )

    def _compare(self, target: str, chosen: NDArray[np.float64] | None) -> StartComparison | None:
        """The held-out choices against those of the start."""
        start, dataset = self._prepared.start, self._prepared.dataset
        if start is None or chosen is None or target != rank_target(self._options):
            return None
        scores = self._matrix.predict(start.booster(target), num_threads=self._options.jobs)
        before = self._chosen_efficiency(scores, np.arange(len(scores)))
        return compare(before, chosen, _seen(dataset, start.problems) if start.problems else None)

    def _further(self, fit: Fit, trees: int) -> Iterator[str]:
        """The other models of an ensemble."""
        rows = np.arange(len(fit.label))
        for number in range(1, self._options.ensemble):
            text = f"{fit.target}, model {number + 1}"
            yield self._fit(fit, rows, None, text, trees, number).model_to_string(num_iteration=trees)

    def _joined(self, fit: Fit, texts: list[str]) -> str:
        """The models of an ensemble or a blend as one.

        That is the mean of regressions, the sum of LambdaRanks, which have no scale, or that of both.
        """
        if self._options.rank is RankObjective.BLEND:
            return shorten(blended(texts, self._regression()))
        joined = join_trees(texts)
        return shorten(joined if fit.is_grouped else scale_leaves(joined, 1 / len(texts)))

    def _regression(self) -> str:
        """That of a blend."""
        options = replace(self._options, params=_regression_params(self._options))
        fit = make_fit(RANK, self._prepared.dataset, RankObjective.RELATIVE, options.focus)
        trainer = Trainer(self._prepared, options, self._advance)
        fit, rows = self._prepared.weighted(fit), np.arange(len(fit.label))
        return str(trainer._fit(fit, rows, None, f"{RANK}, regression").model_to_string())

    def _fit(
        self,
        fit: Fit,
        rows: NDArray[np.int64],
        stop: NDArray[np.int64] | None,
        text: str,
        trees: int | None = None,
        number: int = 0,
    ) -> Any:
        import lightgbm

        options = self._options
        budget = options.params.n_estimators
        done = 0

        def count_round(_: Any) -> None:
            nonlocal done
            done += 1
            self._advance(1, text)

        parameters = self._parameters(fit, options.params, options.seed + number)
        callbacks: list[Any] = [count_round]
        if stop is not None:
            callbacks.append(lightgbm.early_stopping(options.early_stopping, first_metric_only=True, verbose=False))
        start = self._prepared.start
        model = lightgbm.train(
            parameters,
            self._lightgbm_rows(fit, rows, parameters),
            budget if trees is None else trees,
            valid_sets=None if stop is None else [self._lightgbm_rows(fit, stop, parameters)],
            init_model=None if start is None else start.booster(fit.target),
            callbacks=callbacks,
        )
        model.free_dataset()
        self._advance(budget - done, text)
        return model

    def _parameters(self, fit: Fit, trees: TreeParams, seed: int) -> dict[str, Any]:
        """LightGBM's parameters, without the number of trees."""
        parameters = {
            **trees.to_dict(),
            **fit.parameters,
            # What scikit-learn's interface to LightGBM sets too, and a model's text says.
            "metric": fit.parameters["objective"],
            **({"eval_at": _EVAL_AT} if fit.is_grouped else {}),
            "random_state": seed,
            "n_jobs": self._options.jobs,
            "deterministic": True,
            "force_col_wise": True,
            "verbose": -1,
        }
        del parameters["n_estimators"]
        return parameters

    def _lightgbm_rows(
        self, fit: Fit, rows: NDArray[np.int64], parameters: dict[str, Any], matrix: FeatureMatrix | None = None
    ) -> Any:
        """Rows as LightGBM's data, which keeps its bins of their features and not the features."""
        import lightgbm

        rows = self._in_groups(rows) if fit.is_grouped else rows
        arguments: dict[str, Any] = {
            "label": fit.label[rows],
            "weight": None if fit.weight is None else fit.weight[rows],
            "group": self._group_sizes(rows) if fit.is_grouped else None,
            "feature_name": list(self._engine.names),
            "categorical_feature": list(self._engine.categorical),
            "params": parameters,
        }
        if self._prepared.start is None:
            return (matrix or self._matrix).lightgbm_data(rows, **arguments)
        # A model that is continued predicts for arrays only.
        return lightgbm.Dataset(self._matrix.take(rows), **arguments)

    def _in_groups(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows[np.argsort(self._groups[rows], kind="stable")]

    def _group_sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.unique(self._groups[rows], return_counts=True)[1]

    def _chosen_efficiency(self, scores: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        problem = np.unique(self._groups[rows], return_inverse=True)[1]
        chosen = choices(scores[rows], problem, int(problem.max()) + 1)
        return np.asarray(self._efficiency[rows[chosen]])

    def _metrics(
        self, number: int, fit: Fit, split: FoldSplit, oof: NDArray[np.float64], best_iteration: int
    ) -> FoldMetrics:
        label, error = fit.label[split.score], oof[split.score] - fit.label[split.score]
        chosen = self._chosen_efficiency(oof, split.score) if fit.target in (TFLOPS, RANK) else None
        squared, variance = float(np.mean(error**2)), float(label.var())
        return FoldMetrics(
            fold=number,
            rmse=None if fit.is_grouped else float(np.sqrt(squared)),
            r2=None if fit.is_grouped or variance == 0 else 1.0 - squared / variance,
            mean_efficiency=None if chosen is None else float(chosen.mean()),
            p10_efficiency=None if chosen is None else float(np.percentile(chosen, 10)),
            train_size=len(split.train),
            val_size=len(split.score),
            val_groups=len(np.unique(self._groups[split.score])),
            best_iteration=best_iteration,
        )


def _seen(dataset: Dataset, known: frozenset[str]) -> NDArray[np.bool_]:
    """Whether a model that knows some problems has seen each of a dataset's, shape (problems,).

    It has if it knows any of the group that cross-validation keeps together.
    """
    is_known = np.array([problem_id(problem) in known for problem in dataset.problems()])
    group = dataset.split_ids[dataset.first_rows]
    in_group = np.zeros(int(group.max()) + 1, dtype=bool)
    np.logical_or.at(in_group, group, is_known)
    return np.asarray(in_group[group])


def _check_labels(options: TrainOptions) -> None:
    if options.labels is Labels.WINNERS and (options.targets or options.rank is not RankObjective.LAMBDARANK):
        raise UsageError("of winners alone only their order is learned", "give --rank lambdarank and no --targets")
    if options.labels is Labels.WINNERS and options.noise_weights:
        raise UsageError("the noise of winners alone is that of no choice", "leave out --noise-weights")


def _check(valid: Dataset) -> None:
    if not len(valid.frame):
        raise DataError("the dataset has no usable time", "see the column status for why")
    if len(valid.frame) < _FEWEST_ROWS:
        raise DataError(f"the dataset has {len(valid.frame)} usable row, which is nothing to learn from")
    for name in ("arch", *valid.op.model_per):
        if len(found := sorted(valid.frame[name].unique())) > 1:
            hint = "choose one with --variant" if name == "variant" else "train one model for each"
            raise DataError(f"the dataset holds several of {name}: {', '.join(found)}", hint)


def _check_mining(valid: Dataset, options: TrainOptions) -> None:
    if options.mine and options.rank is RankObjective.BLEND:
        raise UsageError("hard examples are mined for one objective, and a blend has two", "leave out --mine or --rank")
    if options.mine and not options.folds:
        raise UsageError("hard examples cannot be mined without folds to find them by", "give --folds 3 or more")
    if options.mine and len(np.unique(valid.split_ids)) < MIN_GROUPS:
        raise DataError("too few problems to mine hard ones by cross-validation", "leave out --mine")


def too_few_to_validate(dataset: Dataset) -> bool:
    """Whether there are too few problems for cross-validation."""
    return len(np.unique(dataset.problem_ids)) < MIN_GROUPS
