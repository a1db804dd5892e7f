"""Model directories: find, load and use models.

A directory uses AMD's file names, so that AMD's models load here and ckh's load there. Loading never writes to it.
Ranking imports NumPy only, and caches packed forests; LightGBM is loaded for whole datasets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import HOST
from ckh.errors import DataError, ModelError, UsageError
from ckh.files.paths import MODELS_VARIABLE, data_dir, model_folders, path_of
from ckh.learn.analytic.completed import Completion
from ckh.learn.analytic.corrected import corrected_inputs, row_scores
from ckh.learn.analytic.estimate import ESTIMATE, ESTIMATE_FEATURE
from ckh.learn.answers.answer_rows import rows_of
from ckh.learn.answers.ranked import Ranked, ranked_kernels
from ckh.learn.models.calibration import read_calibration
from ckh.learn.models.frequent import frequent_table
from ckh.learn.models.manifest import labels_of, problem_count
from ckh.learn.models.measured_set import MEASURED_NAME, read_measured
from ckh.learn.models.published import forest_path, model_file, read_forest
from ckh.learn.models.reach import beyond, peak_tflops, possible_speeds, reach_of
from ckh.learn.models.scoring import MeasuredLead, ModelInputs, PoolScorer, Remembered
from ckh.learn.models.spec import SPEC_NAME, ModelSpec, ShownModel, Wanted, may_be_for, read_spec
from ckh.learn.training.feature_matrix import BLOCK_ROWS, widened
from ckh.ops import operation_of_problem
from ckh.ranking.evaluator import best_first, scores_by_numpy
from ckh.ranking.forest_file import open_forest
from ckh.ranking.lightgbm_text import Forest, parse_forest
from ckh.ranking.packed import input_forest, with_input
from ckh.text.log import warn
from ckh.training import BANDWIDTH, LATENCY, RANK, TFLOPS, Labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import lightgbm
    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.kernels.pools import Candidates, KernelList, Knows
    from ckh.learn.analytic.estimator import EstimateScores
    from ckh.learn.answers.answer import NotMeasured
    from ckh.learn.models.frequent import Table
    from ckh.learn.models.measured_set import MeasuredSet
    from ckh.ops.base import Kernel, Problem
    from ckh.ranking.packed import PackedForest

_TREE_SIZES = re.compile(r"^tree_sizes=.*\n", re.MULTILINE)
_UNNAMED = "Column_"  # LightGBM's names for the inputs of a matrix without names
_ANSWERS = 1024  # answers cached by a model
_CANDIDATES = 8192  # kinds of problems with cached candidates
_SAME = 1024  # distinct candidate sets cached
_ALONE = 16  # pools of candidates alone
_LISTS = 16  # user lists of kernels
_LEFT_OUT: dict[Path, str] = {}  # folder -> warning


@dataclass(frozen=True, slots=True)
class ModelRef:
    """An available model and its purpose."""

    path: Path
    spec: ModelSpec

    @property
    def variant(self) -> str:
        """Direction, or "any" if unspecified."""
        return "any" if self.spec.variant is None else str(self.spec.variant)

    @property
    def dtype(self) -> str:
        """Element type."""
        return self.spec.dtype


def wanted_for(problem: Problem, arch: str, num_cus: int = 0) -> Wanted:
    """Requirements on a model for a problem."""
    op = operation_of_problem(problem)
    variant = str(problem.variant) if op.has_directions else None  # type: ignore[attr-defined]
    return Wanted(op.name, variant, problem.dtype, arch, num_cus)


def list_models(
    folders: Iterable[Path] | None = None, wanted: Wanted | None = None, *, op_type: str = "", quiet: bool = False
) -> list[ModelRef]:
    """List all usable models in folders, or in their subfolders, that fit, or are of an operation.

    Unusable models are skipped, with one warning each (`unusable_models`) unless `quiet`.
    """
    refs, names = [], (wanted.op_type, wanted.arch) if wanted else (op_type,) if op_type else ()
    for folder in model_folders() if folders is None else folders:
        inside = sorted(folder.iterdir()) if folder.is_dir() else []
        is_shipped = _is_shipped(folder)  # all of a user's models are read, so that each unusable model is named
        for path in (folder, *inside):
            if not (path / SPEC_NAME).is_file():
                continue
            if is_shipped and not may_be_for(path, names):
                continue
            try:
                ref = ModelRef(path, read_spec(path))
                forest_path(path, ref.spec.rank_by)  # checks that it exists
                refs.append(ref)
            except ModelError as error:
                if not quiet:
                    _leave_out(path, error)
    return [ref for ref in refs if (wanted is None or wanted.fits(ref.spec)) and op_type in ("", ref.spec.op_type)]


def _leave_out(path: Path, error: ModelError) -> None:
    """Warn of an unusable model, once."""
    if path not in _LEFT_OUT:
        _LEFT_OUT[path] = f"the model {path} is not used: {error.message}"
        warn(_LEFT_OUT[path], "unusable-model")


def unusable_models() -> tuple[str, ...]:
    """Warnings about models skipped in this process."""
    return tuple(_LEFT_OUT.values())


def _is_shipped(folder: Path) -> bool:
    try:
        return folder == data_dir("models")
    except DataError:
        return False


def fitting_models(wanted: Wanted) -> list[ModelRef]:
    """List all models that fit, in order of precedence.

    Models in the folders of $CKH_MODELS come first, folder by folder, then the user's own, then shipped models; within
    a folder by number of features, then number of problems, both descending, then by name.
    """
    by_path: dict[Path, ModelRef] = {}
    for folder in model_folders():
        fit = list_models([folder], wanted)
        if len(fit) > 1:  # counting reads files
            fit.sort(key=lambda ref: (-len(ref.spec.feature_names), -problem_count(ref.path), ref.path.name))
        for ref in fit:
            by_path.setdefault(ref.path.resolve(), ref)
    return list(by_path.values())


def first_model(wanted: Wanted) -> Model | None:
    """Load the first model that fits, or return None."""
    fitting = [ref.path for ref in fitting_models(wanted)]
    if not fitting:
        return None
    model = load_model(fitting[0])
    model.others = tuple(fitting[1:])
    return model


def find_model(wanted: Wanted) -> Model:
    """Load the first model that fits, with the others (`Model.others`)."""
    if (model := first_model(wanted)) is not None:
        return model
    known = {f"{ref.spec.op_type} {ref.variant} {ref.dtype} on {ref.spec.arch}" for ref in list_models()}
    hint = f"train one with ckh train, name one with --model, or set {MODELS_VARIABLE}"
    raise ModelError(f"no model for {wanted}; available: {', '.join(sorted(known)) or 'none'}", hint, code="no-model")


def load_model(path: Path | str) -> Model:
    """Load the model of a folder.

    Raises:
        ModelError: it is missing, incomplete or damaged.
    """
    folder = path_of(path, "the model")
    if folder.is_file():
        raise ModelError(f"{folder} is a file, not a model directory", "ckh train writes one", code="not-a-model")
    if not folder.is_dir():
        raise ModelError(f"no such model: {folder}", "ckh doctor lists the models", code="no-model")
    return Model(folder, read_spec(folder))


class Model(ShownModel):
    """A loaded model. Its forests are read on first use.

    Attributes:
        path: its folder.
        spec: its purpose and inputs.
        hardware: the hardware profile of its architecture, by name, for its features.
        gpu: the architecture with the compute units of the GPU that is asked about, or else measured.
        asked_cus: compute units of the product that is asked about; 0: none was named.
        remembered: cached answers (`answer.Answer`), by problem.
        candidates: cached candidates, by what they depend on (`Operation.candidates_key`).
        others: other models that fit, if found by `find_model`.
        only: the kernels to rank instead of the architecture's; None: those.
        candidates_of: the folder passed to `Operation.candidates`: its own, unless it also ranks other kernels.
        calibration: makes speeds consistent with the order (`calibration`); None without.
        not_measured: caveat of its answers, for a substitute model (`transfer`).
        estimate: the analytic estimate, if it is a part of the scores.
        completion: which part.
    """

    def __init__(
        self,
        path: Path,
        spec: ModelSpec,
        estimate: EstimateScores | None = None,
        completion: Completion | None = None,
        knows: Knows | None = None,  # the kernels known to the trees, which the estimate does not score
    ) -> None:
        self.path = path
        self.estimate, self.completion, self._knows = estimate, completion, knows
        self.candidates_of = Path(ESTIMATE) if completion is Completion.FILLED else path
        self._estimated: Remembered[tuple[Sequence[Kernel], NDArray[np.bool_]]] = Remembered(_ALONE)
        self.spec = spec
        self._texts: dict[str, str] = {}
        self._forests: dict[str, Forest] = {}
        self._boosters: dict[str, lightgbm.Booster] = {}
        self.gpu, self.asked_cus = spec.gpu, 0
        own = {"num_cus": spec.gpu.amd_num_cus} if spec.legacy_tiles else {}
        self.hardware = {**spec.gpu.hardware.to_dict(), **own, **spec.hardware}
        self.remembered: Remembered[Any] = Remembered(_ANSWERS)
        self.candidates: Remembered[Candidates[Kernel]] = Remembered(_CANDIDATES)
        self._same: Remembered[Candidates[Kernel]] = Remembered(_SAME)
        self._alone: Remembered[tuple[Candidates[Kernel], Candidates[Kernel]]] = Remembered(_ALONE)
        self.others: tuple[Path, ...] = ()
        self.only: KernelList[Any] | None = None
        self._limited: Remembered[Model] = Remembered(_LISTS)
        self.not_measured: NotMeasured | None = None
        self.calibration = read_calibration(path) if TFLOPS in spec.targets else None
        self._measured: list[MeasuredSet | None] = []
        self._targets = [spec.rank_by, *([TFLOPS] if TFLOPS in spec.targets and spec.rank_by != TFLOPS else [])]
        self._scorer = PoolScorer(spec, lambda: self.inputs, self.hardware, self._targets, self.packed_forest)

    def __reduce__(self) -> tuple[Any, ...]:
        return load_model, (self.path.absolute(),)  # pickled and copied by its folder

    @cached_property
    def inputs(self) -> ModelInputs:
        """Inputs of the scores: the operation's features used in training, and the estimate if they have it."""
        if self.is_estimate:
            assert self.estimate is not None
            return self.estimate.inputs
        if self.spec.estimate:
            return corrected_inputs(self.spec, self._lead.of)
        return ModelInputs.of(self.spec).with_lead(self._lead)

    @cached_property
    def _lead(self) -> MeasuredLead:
        return MeasuredLead.read(self.path, self.spec)

    @property
    def is_estimate(self) -> bool:
        """True if the analytic estimate alone ranks, without trees."""
        return self.completion is Completion.ALONE

    def estimated(self, pool: Sequence[Kernel]) -> NDArray[np.bool_]:
        """Mask of the kernels that the estimate scores: those unknown to the trees, or all."""
        if self._knows is None:
            return np.full(len(pool), self.is_estimate)
        known = self._estimated.get(id(pool))
        if known is None:
            known = pool, np.array([bool(self._knows.reason(kernel)) for kernel in pool], np.bool_)
            self._estimated.put(id(pool), known)
        return known[1]

    @property
    def estimate_of_kernels(self) -> EstimateScores | None:
        """The estimate if it scores kernels, and does not break ties alone."""
        can_score = self.estimate is not None and self.estimate.can_score
        return self.estimate if can_score and self.completion is not Completion.TIE_BROKEN else None

    @property
    def measured(self) -> MeasuredSet | None:
        """Measurements that the model was trained on, if stored."""
        if not self._measured:
            self._measured.append(read_measured(self.path, map(str.lower, self.spec.op.problems.sizes)))
        return self._measured[0]

    def frequent_table(self, problem: Problem) -> Table | None:
        """Most frequent winners by size for problems of this kind; None if not trained on winners."""
        op = self.spec.op
        if not op.problems.grows_with or self._labels is not Labels.WINNERS or self.measured is None:
            return None
        return frequent_table(self.measured, problem, op, self.path / MEASURED_NAME)

    @cached_property
    def _labels(self) -> Labels:
        return labels_of(self.path)

    @property
    def num_cus(self) -> int | None:
        """Compute units of the measured GPU, if known and not part of problems."""
        if self.not_measured is not None or self.spec.arch == HOST or "num_cus" in self.spec.op.problems.identity:
            return None
        return self.spec.hardware.get("num_cus")

    @cached_property
    def reach(self) -> dict[str, float]:
        """Limits of extrapolation by size (`reach.beyond`)."""
        sizes = {name.lower() for name in self.spec.op.problems.sizes}
        return reach_of(self.packed_forest(TFLOPS), sizes) if TFLOPS in self.spec.targets else {}

    def same(self, candidates: Candidates[Kernel]) -> Candidates[Kernel]:
        """Earlier candidates if they are the same kernels of the same pool, else the given ones."""
        key = id(candidates.pool), candidates.chosen.tobytes()
        if (known := self._same.get(key)) is not None:
            return known
        self._same.put(key, candidates)
        return candidates

    def alone(self, candidates: Candidates[Kernel]) -> Candidates[Kernel]:
        """The chosen kernels as a pool, prepared once per `found.chosen`."""
        known = self._alone.get(id(candidates.chosen))
        if known is None:
            alone = replace(candidates, pool=candidates.kernels, chosen=np.arange(len(candidates.chosen)))
            known = candidates, alone  # referenced so that the id is not reused
            self._alone.put(id(candidates.chosen), known)
        return known[1]

    def limited_to(self, only: KernelList[Any]) -> Model:
        """Return the model restricted to these kernels."""
        made = self._limited.get(only.kernels)
        if made is None:
            made = object.__new__(Model)
            vars(made).update(vars(self))
            made.only = only
            made.remembered, made.candidates = Remembered(_ANSWERS), Remembered(_CANDIDATES)
            self._limited.put(only.kernels, made)
        return made

    def require(self, wanted: Wanted) -> None:
        """Refuse a use that the model was not trained for."""
        if not wanted.fits(self.spec):
            raise UsageError(f"{self.path} is for {self.spec.purpose}, not {wanted}", code="model-mismatch")

    def predict(self, problem: Problem, kernels: Sequence[Kernel], target: str = TFLOPS) -> NDArray[np.float64]:
        """Predict values of kernels, shape (kernels,): TFLOPS, ms, GB/s, or scores for the target `rank`."""
        if self.estimate is not None:  # there are no speeds
            return np.asarray(self.score_pool([problem], tuple(kernels))[0][0])
        return self._linear(scores_by_numpy(self.packed_forest(target), self.matrix(problem, kernels)), target)

    @property
    def shown_beside(self) -> tuple[str, ...]:
        """Targets besides TFLOPS with predictions to show: for models of AMD's layout those with a forest.

        None for models with a ranking target of their own or a calibration, whose times are derived from the speeds.
        """
        wanted = (LATENCY, BANDWIDTH) if self.spec.rank_by == TFLOPS and self.calibration is None else ()
        return tuple(target for target in wanted if model_file(self.path, target) is not None)

    def rank(self, problem: Problem, kernels: Sequence[Kernel]) -> list[Ranked[Any]]:
        """Rank kernels, best first; ties in the order of `kernels`."""
        pool = tuple(kernels)
        score, tflops = self.score_pool([problem], pool)
        order = best_first(score[0])
        values, expected = score[0, order], None if tflops is None or beyond(problem, self.reach) else tflops[0, order]
        speeds = self.speeds(values, expected, [problem])
        return ranked_kernels(pool, rows_of(order, values.data, None if speeds is None else speeds.data, problem.flops))

    @property
    def bands(self) -> tuple[tuple[float, float, float], ...]:
        """Prediction intervals of times (`Calibration.bands`); empty without a calibration."""
        return () if self.calibration is None else self.calibration.bands

    def speeds(
        self, score: NDArray[np.float64], tflops: NDArray[np.float64] | None, problems: Sequence[Problem]
    ) -> NDArray[np.float64] | None:
        """Speeds of each problem's ranked kernels, shape (..., kernels), as predicted or calibrated.

        They are NaN after the first kernels whose times the data hold (`Operation.timed`), and where not possible.
        Scores are descending, of at least `calibration.FIRST` kernels, or of all.
        """
        if tflops is None:
            return None
        speeds = tflops if self.calibration is None else self.calibration.speeds(score, tflops)
        speeds = possible_speeds(speeds, [peak_tflops(self.spec.peak_of(one.dtype), one) for one in problems])
        timed = self.spec.op.training.timed
        return speeds if not timed else np.where(np.arange(speeds.shape[-1]) < timed, speeds, np.nan)

    def score_pool(
        self, problems: Sequence[Problem], pool: Sequence[Kernel], *, tflops: bool = True
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Predict ranking scores of a pool's kernels, and TFLOPS if available and requested.

        Both have the shape (problems, kernels). Data prepared for a pool are cached by the identity of the object.
        """
        if self.estimate is not None and self.is_estimate:
            return self.estimate.scores(problems, pool), None
        wanted = self._targets if tflops else self._targets[:1]
        remembered = dict(zip(wanted, self._scorer.predictions(problems, pool, len(wanted)), strict=True))
        score = remembered[self.spec.rank_by]
        if self.estimate is not None and self.completion is not None:
            score = self.estimate.completed(score, problems, pool, self.completion, ~self.estimated(pool))
        return score, remembered.get(TFLOPS)

    @property
    def predicts_speeds(self) -> bool:
        """True if the model predicts TFLOPS."""
        return TFLOPS in self._targets

    def speeds_of(
        self, problems: Sequence[Problem], pool: Sequence[Kernel], kernels: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """Predict TFLOPS of selected kernels of each problem, bit-identical to `score_pool`."""
        return self._scorer.some(problems, pool, kernels, self._targets.index(TFLOPS))

    def scores(self, dataset: Dataset) -> NDArray[np.float64]:
        """Score every row of a dataset, shape (rows,): higher is better."""
        if not self.is_estimate:
            return self.predict_dataset(dataset, self.spec.rank_by)
        op, scores = self.spec.op, np.zeros(len(dataset))
        names = dataset.frame["kernel"].to_numpy()
        kernel_of = {name: op.kernels.parse(name) for name in dataset.frame["kernel"].unique()}
        order = np.argsort(dataset.problem_ids, kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(dataset.problem_ids))[:-1])
        for problem, rows in zip(dataset.problems(), parts, strict=True):
            scores[rows] = self.predict(problem, [kernel_of[name] for name in names[rows]], RANK)
        return scores

    def predict_dataset(self, dataset: Dataset, target: str, trees: int | None = None) -> NDArray[np.float64]:
        """`predict` for every row of a dataset; with the first `trees` only, if given."""
        booster = self.booster(target)
        raw = np.concatenate([booster.predict(block, num_iteration=trees) for block in self._blocks(dataset)])
        has_estimate = self.spec.estimate and target == self.spec.rank_by
        return self._linear(raw, target) + (row_scores(dataset) if has_estimate else 0.0)

    def booster(self, target: str) -> lightgbm.Booster:
        """LightGBM's model of a target."""
        import lightgbm

        if target not in self._boosters:
            self.forest(target)
            # With tree_sizes LightGBM parses trees in parallel, where an error would terminate the process.
            text = _TREE_SIZES.sub("", self._texts[target], count=1)
            try:
                self._boosters[target] = lightgbm.Booster(model_str=text)
            except lightgbm.basic.LightGBMError as error:
                said = f"{self.path}: LightGBM cannot read the model of {target}: {error}"
                raise ModelError(said, code="damaged-model") from error
        return self._boosters[target]

    def _blocks(self, dataset: Dataset) -> Iterator[NDArray[np.float64]]:
        """Yield features of a dataset in blocks, shape (rows of the block, features)."""
        op, spec = self.spec.op, self.spec
        for start in range(0, len(dataset), BLOCK_ROWS):
            rows = dataset.frame.iloc[start : start + BLOCK_ROWS]
            columns = {name: widened(rows[name].to_numpy()) for name in op.training.input_columns}
            if spec.legacy_tiles:
                columns = op.training.legacy_columns(columns)
            yield spec.engine.matrix(columns, self.hardware, spec.feature_names)

    def matrix(self, problem: Problem, kernels: Sequence[Kernel]) -> NDArray[np.float64]:
        """Features of kernels on a problem, shape (kernels, features)."""
        columns = {**self.inputs.of_problem(problem), **self.inputs.of_kernels(kernels, problem)}
        return self.inputs.engine.matrix(columns, self.hardware, self.inputs.names)

    def _linear(self, raw: NDArray[np.float64], target: str) -> NDArray[np.float64]:
        return np.expm1(raw) if target in self.spec.log_targets else raw

    def forest(self, target: str) -> Forest:
        """Trees of a target, by LightGBM's text."""
        if target not in self._forests:
            text = read_forest(self.path, target)
            try:
                forest = parse_forest(text)
            except ModelError as error:
                raise ModelError(f"{self.path}, model of {target}: {error.message}", code=error.code) from error
            self._check_inputs(forest.feature_names, target)
            self._texts[target], self._forests[target] = text, forest
        return self._forests[target]

    def packed_forest(self, target: str) -> PackedForest:
        """Packed forest of a target."""
        if self.is_estimate:
            return input_forest(ESTIMATE_FEATURE)
        path = forest_path(self.path, target)
        try:
            forest = open_forest(path)
        except ModelError as error:
            self.forest(target)  # reports damage of the text, if any
            raise ModelError(f"{self.path}, model of {target}: {error.message}", error.hint, code=error.code) from error
        self._check_inputs(forest.feature_names, target)
        is_added = target == self.spec.rank_by
        if self.spec.estimate:
            return with_input(forest, ESTIMATE_FEATURE, is_added=is_added)
        return self._lead.before(forest, is_added=is_added)

    def _check_inputs(self, names: tuple[str, ...], target: str) -> None:
        expected = self.spec.feature_names
        where = f"{self.path}: the model of {target}"
        if len(names) != len(expected):
            raise ModelError(f"{where} has {len(names)} inputs, {SPEC_NAME} names {len(expected)}", code="model-inputs")
        if names != expected and not all(name.startswith(_UNNAMED) for name in names):
            first = next(i for i in range(len(names)) if names[i] != expected[i])
            text = f"{where}: input {first} is {names[first]}, {SPEC_NAME} has {expected[first]}"
            raise ModelError(text, code="model-inputs")
