"""Warm start: training that adds trees to a model with the same target and inputs.

The model may be of another GPU or element type; differences are printed and recorded.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import HOST
from ckh.declared import Declared, declarations
from ckh.errors import DataError, ModelError, UsageError
from ckh.files.jsonfields import model_fields
from ckh.files.untrusted import read_bytes
from ckh.learn.models.artifact import TREE_SIZES, load_model
from ckh.learn.models.manifest import our_manifest, trained_problems
from ckh.learn.models.measured_set import read_measured
from ckh.learn.models.published import read_forest
from ckh.learn.models.spec import SPEC_NAME
from ckh.ranking.lightgbm_text import parse_forest
from ckh.training import RANK, RankObjective, TreeParams

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.learn.models.measured_set import MeasuredSet
    from ckh.learn.models.spec import ModelSpec
    from ckh.training import TrainOptions

NEW_TREES = 500  # as in AMD's trainer
_LEAST_PARAM, _MOST_PARAM = -1, 2**31 - 1  # for parameters without declared bounds; -1 is no limit
_FOLDS = 3
# P10 is not meaningful for fewer problems.
_ENOUGH = 10
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """A model to add trees to.

    Attributes:
        path: folder, as named by the user.
        spec: its spec.
        objective: ranking objective; None if unknown.
        params: parameters of its newest trees.
        texts: LightGBM's text of each target.
        trees: number of trees of each target.
        sha256: digest of each file of the folder.
        problems: ids of its training problems, empty if unknown.
        data_sha256: digest of its training data; None if unknown.
        lineage: manifest entry of its own start; None without one.
        measured: its measurements, if stored.
        differs: differences in GPU, hardware and element type to the new training.
    """

    path: Path
    spec: ModelSpec
    objective: RankObjective | None
    params: TreeParams
    texts: dict[str, str]
    trees: dict[str, int]
    sha256: dict[str, str]
    problems: frozenset[str]
    data_sha256: str | None
    lineage: dict[str, Any] | None
    measured: MeasuredSet | None
    differs: tuple[str, ...] = ()

    def booster(self, target: str) -> Any:
        """LightGBM's model of a target.

        Raises:
            ModelError: LightGBM cannot read it.
        """
        import lightgbm

        try:
            # With tree_sizes LightGBM parses trees in parallel, where an error would terminate the process.
            return lightgbm.Booster(model_str=TREE_SIZES.sub("", self.texts[target], count=1))
        except lightgbm.basic.LightGBMError as error:
            raise ModelError(
                f"{self.path}: LightGBM cannot read the model of {target}: {error}", code="damaged-model"
            ) from error

    def to_dict(self, comparison: StartComparison | None) -> dict[str, Any]:
        """Manifest entry on this model and its own start."""
        return {
            "from": str(self.path),
            "sha256": self.sha256,
            "data_sha256": self.data_sha256,
            "prev_trees": self.trees,
            "problems_known": bool(self.problems),
            **({"differs": list(self.differs)} if self.differs else {}),
            "validation": None if comparison is None else comparison.to_dict(),
            "start": self.lineage,
        }


@dataclass(frozen=True, slots=True)
class StartComparison:
    """Comparison of a continued model with its start: efficiency of both on the same problems.

    The problems were held out from the continued model. `seen` of them are training problems of the start, which biases
    the result upwards; None if unknown.
    """

    problems: int
    seen: int | None
    start_mean_efficiency: float
    start_p10_efficiency: float
    mean_efficiency: float
    p10_efficiency: float

    @property
    def worse(self) -> tuple[str, ...]:
        """Figures that decreased: the mean, P10, both or none."""
        pairs = {
            "mean": (self.start_mean_efficiency, self.mean_efficiency),
            "P10": (self.start_p10_efficiency, self.p10_efficiency),
        }
        return tuple(name for name, (before, after) in pairs.items() if after < before)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as a JSON document."""
        return {**asdict(self), "worse": bool(self.worse)}


def compare(
    before: NDArray[np.float64], after: NDArray[np.float64], is_seen: NDArray[np.bool_] | None
) -> StartComparison:
    """Compare the efficiencies of the start and of the continued model, shape (problems,).

    Problems unseen by the start are used, if there are enough of them; else all.
    """
    used = np.ones(len(before), dtype=bool)
    if is_seen is not None and int((~is_seen).sum()) >= _ENOUGH:
        used = ~is_seen
    return StartComparison(
        problems=int(used.sum()),
        seen=None if is_seen is None else int((is_seen & used).sum()),
        start_mean_efficiency=float(before[used].mean()),
        start_p10_efficiency=float(np.percentile(before[used], 10)),
        mean_efficiency=float(after[used].mean()),
        p10_efficiency=float(np.percentile(after[used], 10)),
    )


def read_start(path: Path) -> Start:
    """Read the model in a folder, to be continued.

    Raises:
        ModelError: it is missing, incomplete or damaged.
    """
    spec = load_model(path).spec
    texts = {target: read_forest(path, target) for target in spec.targets}
    ours = our_manifest(path)
    return Start(
        path=path,
        spec=spec,
        objective=_objective(spec, ours),
        params=_params(path),
        texts=texts,
        trees={target: _count(path, target, text, spec) for target, text in texts.items()},
        sha256=_digests(path),
        problems=trained_problems(path) or frozenset(),
        data_sha256=ours.get("data_sha256"),
        lineage=ours.get("warm_start"),
        measured=read_measured(path, map(str.lower, spec.op.problems.sizes)),
    )


def split_counts(text: str, names: Sequence[str]) -> NDArray[np.int64]:
    """Number of splits of a model's text on each input, shape (names,)."""
    return np.asarray(np.bincount(parse_forest(text).feature, minlength=len(names)))


def continued(start: Start, options: TrainOptions) -> TrainOptions:
    """Options of a warm start: targets, objective and parameters of the start, a single model, and folds."""
    return replace(
        options,
        targets=tuple(target for target in start.spec.targets if target != RANK),
        rank=start.objective or options.rank,
        folds=options.folds or _FOLDS,
        ensemble=1,
        prior=0.0,
        lambdarank=0.0,
        speeds=None,
        params=replace(start.params, n_estimators=NEW_TREES),
    )


def check_start(start: Start, spec: ModelSpec, options: TrainOptions) -> tuple[str, ...]:
    """Refuse to add trees with other targets or inputs than the existing ones.

    A GPU's model may be continued for another GPU; a host model never for a GPU, nor vice versa.

    Args:
        start: the model.
        spec: spec of the new training.
        options: options of the new training.

    Returns:
        Differences in architecture, hardware and element type.

    Raises:
        UsageError: targets or inputs differ (all differences are named), or the training cannot be continued.
    """
    if options.ensemble > 1:
        reason = f"an ensemble of {options.ensemble} models"
        raise UsageError(
            f"{start.path} cannot be continued by {reason}", "train with ensemble = 1", code="not-continuable"
        )
    if options.rank is RankObjective.BLEND:
        raise UsageError(
            f"{start.path} cannot be continued by a blend of models",
            "train with --rank lambdarank",
            code="not-continuable",
        )
    if start.spec.estimate is not None and not parse_forest(start.texts[RANK]).leaf_value.any():
        raise UsageError(
            f"{start.path} ranks by the analytic estimate and few measurements: it has no trees to continue",
            "train on its data and the new, without --warm-start",
            code="not-continuable",
        )
    elsewhere = tuple(_elsewhere(start.spec, spec))
    differences = list(_differences(start, spec, options))
    if differences or (start.spec.arch == HOST) != (spec.arch == HOST):
        hint = "a start must have the same targets and inputs; train without --warm-start"
        why = "; ".join([*differences, *elsewhere])
        raise UsageError(f"{start.path} cannot be continued with this training: {why}", hint, code="not-continuable")
    return elsewhere


def _elsewhere(old: ModelSpec, new: ModelSpec) -> Iterator[str]:
    """Differences in architecture, element type and hardware."""
    for name, was, now in (("dtype", old.dtype, new.dtype), ("arch", old.arch, new.arch)):
        if was != now:
            yield f"{name}: {was} there, {now} here"
    for name in sorted({*old.hardware, *new.hardware}):
        if (had := old.hardware.get(name)) != (has := new.hardware.get(name)):
            yield f"hardware {name}: {had} there, {has} here"


def _differences(start: Start, new: ModelSpec, options: TrainOptions) -> Iterator[str]:
    old = start.spec
    if old.legacy_tiles:
        yield "encoding: AMD's tools made it, whose kernel columns mean something else"
    known = "unknown" if start.objective is None else str(start.objective)
    values = (
        ("operation", old.op_type, new.op_type),
        ("direction", str(old.variant or "any"), str(new.variant or "any")),
        ("rank objective", known, str(options.rank)),
    )
    for name, was, now in values:
        if was != now:
            yield f"{name}: {was} there, {now} here"
    yield from _order("features", old.feature_names, new.feature_names)
    yield from _order("categorical features", sorted(old.categorical_features), sorted(new.categorical_features))
    yield from _order("targets", sorted(old.targets), sorted(new.targets))
    yield from _order("log targets", sorted(old.log_targets), sorted(new.log_targets))


def _order(name: str, was: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """Difference of two lists of names."""
    lost, new = [item for item in was if item not in now], [item for item in now if item not in was]
    parts = [f"{_some(names)} only {where}" for names, where in ((lost, "there"), (new, "here")) if names]
    if parts:
        yield f"{name}: {', '.join(parts)}"
    elif tuple(was) != tuple(now):
        i = next(i for i, pair in enumerate(zip(was, now, strict=True)) if pair[0] != pair[1])
        yield f"{name}: another order, number {i + 1} is {was[i]} there, {now[i]} here"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return " ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _objective(spec: ModelSpec, ours: dict[str, Any]) -> RankObjective | None:
    if spec.rank_by != RANK:
        return RankObjective.TFLOPS
    named = ours.get("rank_objective")
    if named == RankObjective.BLEND:  # a blend includes LambdaRank scores
        return RankObjective.LAMBDARANK
    return next((item for item in RankObjective if item == named), None)


def _params(folder: Path) -> TreeParams:
    path = folder / SPEC_NAME
    with model_fields(path) as spec:
        if not spec.has("params"):
            return TreeParams()
        params = spec.part("params")
        known: dict[str, Any] = {}
        for field in fields(TreeParams):
            if not params.has(field.name):
                continue
            kind = type(getattr(TreeParams(), field.name))
            value = params.scalar(field.name, int) if kind is int else params.number(field.name)
            least, most = _bounds(field.name)
            if not least <= value <= most:  # also fails for NaN
                params.fail(field.name, f"must be from {least:g} to {most:g}, not {value:g}")
            known[field.name] = value
    return TreeParams(**known)


def _bounds(name: str) -> tuple[float, float]:
    """Minimum and maximum of a parameter."""
    option = declarations(TreeParams).get(name, Declared(""))
    low, high = option.low, option.high
    return _LEAST_PARAM if low is None else low, _MOST_PARAM if high is None else high


def _count(folder: Path, target: str, text: str, spec: ModelSpec) -> int:
    """Number of trees of a text, whose inputs must match the spec."""
    where = f"{folder}, model of {target}"
    try:
        forest = parse_forest(text)
    except ModelError as error:
        raise ModelError(f"{where}: {error.message}", code=error.code) from error
    if forest.feature_names != spec.feature_names:
        raise ModelError(f"{where}: its inputs differ from {SPEC_NAME}", code="model-inputs")
    return len(forest.roots)


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of a folder, by name."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    try:
        return {file.name: hashlib.sha256(read_bytes(file)).hexdigest() for file in files}
    except DataError as error:
        raise ModelError(error.message, error.hint, code=error.code) from error
