"""`Trained`: the result of training in memory, and its model directory, which `save` writes atomically."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ckh.errors import DataError
from ckh.files.jsonfields import read_json
from ckh.files.outputs import FolderKind, write_folder
from ckh.kernels.pools import TIMED_NAME, with_lead
from ckh.learn.models.calibration import CALIBRATION_NAME
from ckh.learn.models.manifest import MANIFEST_NAME, problem_id, trained_layers
from ckh.learn.models.measured_set import MEASURED_NAME, measured_file
from ckh.learn.models.spec import BETWEEN_DEVICES, SPEC_NAME, spec_of, spec_text
from ckh.ops import is_operation, operation
from ckh.training import RANK, TFLOPS, Labels
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.data.parts import Drawn
    from ckh.learn.models.calibration import Calibration
    from ckh.learn.training.warm_start import Start
    from ckh.training import TrainOptions

_OF_TARGET = re.compile(r"model_\w+\.lgbm(\.gz)?|(cv_metrics|feature_importances)_\w+\.json")
_MOST_IDS = 20_000
_MEANS = ("mean_efficiency", "start_mean_efficiency")
ENOUGH = 10  # problems; a tenth percentile of fewer is not meaningful


@dataclass(frozen=True, slots=True)
class FoldMetrics:
    """Metrics of a fold.

    `rmse` and `r2` refer to the label (log1p if the target is); LambdaRank's scores have no scale, so these are None.
    Efficiencies are given only if the target ranks. `best_iteration` includes the trees of a warm start.
    """

    fold: int
    rmse: float | None
    r2: float | None
    mean_efficiency: float | None
    p10_efficiency: float | None
    train_size: int
    val_size: int
    val_groups: int
    best_iteration: int


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """Efficiency of the new model and of the model it started from, on the same problems."""

    json_properties: ClassVar = ("worse",)

    problems: int
    seen: int | None
    """Training problems of the start among them; null: unknown."""
    start_mean_efficiency: float
    start_p10_efficiency: float
    mean_efficiency: float
    p10_efficiency: float

    @property
    def worse(self) -> bool:
        """Whether a figure decreased."""
        return bool(self.losses)

    @property
    def losses(self) -> tuple[str, ...]:
        """Figures that decreased: the mean, P10, both or none."""
        pairs = {
            "mean": (self.start_mean_efficiency, self.mean_efficiency),
            "P10": (self.start_p10_efficiency, self.p10_efficiency),
        }
        return tuple(name for name, (before, after) in pairs.items() if after < before)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as a JSON document."""
        return {**asdict(self), "worse": self.worse}


def compare(
    before: NDArray[np.float64], after: NDArray[np.float64], is_seen: NDArray[np.bool_] | None
) -> ModelComparison:
    """Compare efficiencies, shape (problems,), on the problems that were not seen before, if they are enough."""
    used = np.ones(len(before), dtype=bool)
    if is_seen is not None and int((~is_seen).sum()) >= ENOUGH:
        used = ~is_seen
    return ModelComparison(
        problems=int(used.sum()),
        seen=None if is_seen is None else int((is_seen & used).sum()),
        start_mean_efficiency=float(before[used].mean()),
        start_p10_efficiency=float(np.percentile(before[used], 10)),
        mean_efficiency=float(after[used].mean()),
        p10_efficiency=float(np.percentile(after[used], 10)),
    )


@dataclass(frozen=True, slots=True)
class TrainedTarget:
    """A final model as LightGBM's text, its folds, and the split counts of its features.

    Out-of-fold efficiencies are given for all problems in order, each by the model that did not see the problem. Trees
    and counts are of the whole model, including a warm start's. The ranking target also has the comparison with its
    start, if both have folds, and the weight of trees that correct the analytic estimate (None: others).
    """

    text: str
    trees: int
    folds: tuple[FoldMetrics, ...]
    importances: dict[str, int]
    oof_efficiency: tuple[float, ...] | None
    comparison: ModelComparison | None = None
    correction: float | None = None

    @property
    def oof_mean_efficiency(self) -> float | None:
        """Mean over problems."""
        return None if self.oof_efficiency is None else float(np.mean(self.oof_efficiency))

    @property
    def oof_p10_efficiency(self) -> float | None:
        """10th percentile over problems."""
        return None if self.oof_efficiency is None else float(np.percentile(self.oof_efficiency, 10))


@dataclass(frozen=True, slots=True)
class Today:
    """The present answer for such data, a model's folder or an estimate's name, compared with the new model.

    `retrained` if it knew the problems, so that its recipe was trained on the new model's folds.
    """

    source: str
    comparison: ModelComparison
    retrained: bool = False


@dataclass(frozen=True, slots=True)
class Trained:
    """All results of training, in memory.

    `today` is the comparison with the model that answered for such data before, if made. `lead` is the score by which
    kernels without measurements must lead, `coverage` the share of problems whose first choice was measured, and
    `holdout` a file of problems to evaluate the model on.
    """

    dataset: Dataset
    all_rows: int
    options: TrainOptions
    feature_names: tuple[str, ...]
    categorical: tuple[str, ...]
    targets: dict[str, TrainedTarget]
    params: dict[str, Any]
    start: Start | None = None
    calibration: Calibration | None = None
    sample: Drawn | None = None
    today: Today | None = None
    lead: float | None = None
    coverage: float | None = None
    holdout: Path | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the model, which `ckh predict` repeats."""
        count, today = len(self.dataset.problems()), self.today
        said = [f"trained on {count} problems only"] if self.start is None and count < ENOUGH else []
        if today is not None and today.comparison.mean_efficiency <= today.comparison.start_mean_efficiency:
            mean, before = (f"{100 * getattr(today.comparison, name):.1f} %" for name in _MEANS)
            said.append(f"no better than {today.source.rpartition('/')[2]}: mean efficiency {mean}, not above {before}")
        return tuple(said)

    @property
    def rank_by(self) -> str:
        """The target that orders kernels."""
        return RANK if RANK in self.targets else TFLOPS


def save(trained: Trained, out: Path) -> None:
    """Write all files of a model; atomically replaces an old model in the same place."""
    write_folder(out, _files(trained))


def _owns(folder: Path) -> Callable[[str], bool] | None:
    """Return the test for the model's own files in a folder."""
    try:
        spec = read_json(folder / SPEC_NAME)
        op_type, names = spec["op_type"], spec["feature_names"]
    except (DataError, KeyError, TypeError):
        return None
    if not (isinstance(names, list) and isinstance(op_type, str) and is_operation(op_type)):
        return None
    of_model = {
        SPEC_NAME,
        MANIFEST_NAME,
        MEASURED_NAME,
        CALIBRATION_NAME,
        *operation(op_type).training.model_files,
    }
    return lambda name: name in of_model or _OF_TARGET.fullmatch(name) is not None


MODEL = FolderKind("model directory", _owns)


def _files(trained: Trained) -> Iterable[tuple[str, bytes]]:
    for target, made in trained.targets.items():
        # No time stamp in the archive: equal models give equal files.
        yield f"model_{target}.lgbm.gz", gzip.compress(made.text.encode(), mtime=0)
        yield f"cv_metrics_{target}.json", _json([asdict(fold) for fold in made.folds])
        yield f"feature_importances_{target}.json", _json(made.importances)
    if trained.calibration is not None:
        yield CALIBRATION_NAME, trained.calibration.to_json().encode()
    start, correction = trained.start, trained.targets[trained.rank_by].correction
    for name, content_of in trained.dataset.op.training.model_files.items():
        if name != TIMED_NAME and correction == 0:  # no list of the kernels it knows
            continue
        if (content := content_of(trained.dataset.frame, None if start is None else start.path)) is not None:
            is_led = name == TIMED_NAME and trained.lead is not None
            yield name, content if not is_led or trained.lead is None else with_lead(content, trained.lead)
    yield MEASURED_NAME, measured_file(trained.dataset, None if start is None else start.measured)
    spec = replace(spec_of(trained.dataset, tuple(trained.targets)), estimate=correction is not None)
    if start is not None:
        devices = {*start.spec.device.split(BETWEEN_DEVICES), *spec.device.split(BETWEEN_DEVICES)} - {""}
        spec = replace(spec, device=BETWEEN_DEVICES.join(sorted(devices)))
    yield SPEC_NAME, spec_text(spec, trained.params).encode()
    yield MANIFEST_NAME, _json(_manifest(trained))


def _manifest(trained: Trained) -> dict[str, Any]:
    """Build the manifest: AMD's keys, and ckh's under a key of its own. Reproducible: its time is that of the data."""
    import lightgbm

    trees = {target: made.trees for target, made in trained.targets.items()}
    start, rank_by = trained.start, trained.rank_by
    before = 0 if start is None else start.trees[rank_by]
    problems = trained.dataset.problems()
    runs = trained.dataset.metadata["runs"]
    return {
        "warm_start_from": None if start is None else str(start.path),
        "prev_n_estimators": before,
        "new_n_estimators": trees[rank_by] - before,
        "total_n_estimators": trees[rank_by],
        "data_rows": trained.all_rows,
        "valid_rows": len(trained.dataset.frame),
        "unique_shapes": len(problems),
        "timestamp": max((str(run["started"]) for run in runs if "started" in run), default=None),
        "ckh": {
            "version": __version__,
            "lightgbm": lightgbm.__version__,
            "data_sha256": trained.dataset.content_hash,
            "sources": trained.dataset.metadata["sources"],
            "rank_objective": str(trained.options.rank),
            "folds": trained.options.folds,
            "seed": trained.options.seed,
            "trees": trees,
            "oof_efficiency": {
                target: {"mean": made.oof_mean_efficiency, "p10": made.oof_p10_efficiency}
                for target, made in trained.targets.items()
                if made.oof_mean_efficiency is not None
            },
            "problems": _ids(problems, frozenset() if start is None else start.problems),
            "layers": _ids(
                [trained.dataset.op.layer(problem) for problem in problems],
                frozenset() if start is None else trained_layers(start.path),
            ),
            **_how(trained),
        },
    }


def _how(trained: Trained) -> dict[str, Any]:
    """Optional parts, written only if requested: an ordinary model's manifest is unchanged."""
    options, made, drawn, start = trained.options, trained.targets[trained.rank_by], trained.sample, trained.start
    said: dict[str, Any] = {}
    if drawn is not None:
        said["drawn_from"] = {"rows": drawn.of_rows, "problems": drawn.of_problems}
    if start is not None:
        said["warm_start"] = {
            "from": str(start.path),
            "sha256": start.sha256,
            "data_sha256": start.manifest.get("data_sha256"),
            "prev_trees": start.trees,
            "problems_known": bool(start.problems),
            **({"differs": list(start.differs)} if start.differs else {}),
            "validation": None if made.comparison is None else made.comparison.to_dict(),
            "start": start.manifest.get("warm_start"),
        }
    if trained.warnings:
        said["warnings"] = list(trained.warnings)
    if options.labels is not Labels.MEASURED:
        said["labels"] = str(options.labels)
    if made.correction is not None:
        said |= {"prior": options.prior, "correction": made.correction}
    return said


def _ids(problems: list[Any], before: frozenset[str] | None) -> list[str] | None:
    """Ids of problems, for later evaluation; None if there are too many, or they are unknown."""
    if len(problems) > _MOST_IDS or before is None:
        return None
    known = before | {problem_id(problem) for problem in problems}
    return sorted(known) if len(known) <= _MOST_IDS else None


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
