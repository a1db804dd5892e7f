"""Writing a model directory atomically."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import DataError
from ckh.files.jsonfields import read_json
from ckh.files.outputs import FolderKind, write_folder
from ckh.kernels.pools import TIMED_NAME
from ckh.learn.analytic.corrected import ranks_alone
from ckh.learn.analytic.prior import has_prior
from ckh.learn.models.calibration import CALIBRATION_NAME
from ckh.learn.models.manifest import MANIFEST_NAME, problem_id, trained_layers
from ckh.learn.models.measured_set import MEASURED_NAME, measured_file
from ckh.learn.models.spec import BETWEEN_DEVICES, SPEC_NAME, ModelSpec, spec_of, spec_text
from ckh.ops import is_operation, operation
from ckh.training import Labels
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ckh.learn.training.trained import Trained

TUNING_NAME = "tuning.json"  # of models that earlier versions tuned
_OF_TARGET = re.compile(r"model_\w+\.lgbm(\.gz)?|(cv_metrics|feature_importances)_\w+\.json")
_MOST_IDS = 20_000


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
    others = {
        SPEC_NAME,
        MANIFEST_NAME,
        MEASURED_NAME,
        TUNING_NAME,
        CALIBRATION_NAME,
        *operation(op_type).training.model_files,
    }
    return lambda name: name in others or _OF_TARGET.fullmatch(name) is not None


MODEL = FolderKind("model directory", _owns)


def _files(trained: Trained) -> Iterable[tuple[str, bytes]]:
    for target, made in trained.targets.items():
        # No time stamp in the archive: equal models give equal files.
        yield f"model_{target}.lgbm.gz", gzip.compress(made.text.encode(), mtime=0)
        yield f"cv_metrics_{target}.json", _json([asdict(fold) for fold in made.folds])
        yield f"feature_importances_{target}.json", _json(made.importances)
    if trained.calibration is not None:
        yield CALIBRATION_NAME, trained.calibration.to_json().encode()
    before = None if trained.start is None else trained.start.path
    for name, content_of in trained.dataset.op.training.model_files.items():
        if name != TIMED_NAME and _ranks_whole_pool(trained):  # no list of the kernels it knows: it knows all
            continue
        if (content := content_of(trained.dataset.frame, before)) is not None:
            yield name, content
    yield MEASURED_NAME, measured_file(trained.dataset, None if trained.start is None else trained.start.measured)
    yield SPEC_NAME, spec_text(_spec(trained), trained.params).encode()
    yield MANIFEST_NAME, _json(_manifest(trained))


def _ranks_whole_pool(trained: Trained) -> bool:
    is_new, estimate = trained.start is None, trained.targets[trained.rank_by].estimate
    return is_new and estimate is not None and ranks_alone(len(trained.dataset))


def _spec(trained: Trained) -> ModelSpec:
    spec = replace(spec_of(trained.dataset, tuple(trained.targets)), estimate=trained.targets[trained.rank_by].estimate)
    if trained.start is None:
        return spec
    devices = {*trained.start.spec.device.split(BETWEEN_DEVICES), *spec.device.split(BETWEEN_DEVICES)} - {""}
    return replace(spec, device=BETWEEN_DEVICES.join(sorted(devices)))


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
            "data_sha256": start.data_sha256,
            "prev_trees": start.trees,
            "problems_known": bool(start.problems),
            **({"differs": list(start.differs)} if start.differs else {}),
            "validation": None if made.comparison is None else made.comparison.to_dict(),
            "start": start.lineage,
        }
    if options.labels is not Labels.MEASURED:
        said["labels"] = str(options.labels)
    if made.estimate is not None and ranks_alone(len(trained.dataset)):
        said["prior"] = options.prior
    elif options.prior and has_prior(trained.dataset, np.arange(len(trained.dataset))):
        said["prior"] = options.prior
        if options.lambdarank:
            said["lambdarank"] = options.lambdarank
    return said


def _ids(problems: list[Any], before: frozenset[str] | None) -> list[str] | None:
    """Ids of problems, for later evaluation; None if there are too many, or they are unknown."""
    if len(problems) > _MOST_IDS or before is None:
        return None
    known = before | {problem_id(problem) for problem in problems}
    return sorted(known) if len(known) <= _MOST_IDS else None


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
