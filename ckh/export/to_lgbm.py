"""Export of models as plain text for LightGBM's own C interface, with the information needed to use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.export.folder import model_names
from ckh.features.reads import describe
from ckh.learn.models.published import read_forest
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.learn.models.artifact import Model

_README = Path(__file__).with_name("lgbm") / "README.md.in"


def lgbm_files(models: Sequence[Model]) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Build the files of an export, and a description of them for JSON."""
    names = model_names(models)
    files, rows = {}, []
    for name, model in zip(names, models, strict=True):
        if model.spec.estimate is not None:
            raise UsageError(
                f"{model.path} adds the analytic estimate to its trees, which LightGBM's text cannot state",
                "export it with --to c, or train it with --rank relative",
                code="unsupported",
            )
        for target in model.spec.targets:
            path = f"{name}/model_{target}.txt"
            model.packed_forest(target)  # refuses damaged files and other inputs
            files[path] = read_forest(model.path, target).encode()
            rows.append(f"| `{path}` | {target} | {model.spec.purpose} |")
    features = {"models": {name: _describe(model) for name, model in zip(names, models, strict=True)}}
    files["features.json"] = (json.dumps(features, indent=1) + "\n").encode()
    readme = _README.read_text(encoding="utf-8")
    files["README.md"] = readme.replace("@VERSION@", __version__).replace("@ROWS@", "\n".join(rows)).encode()
    report = {
        "ckh": __version__,
        "to": "lgbm",
        "models": [
            {"name": name, "targets": list(model.spec.targets), "features": len(model.spec.feature_names)}
            for name, model in zip(names, models, strict=True)
        ],
    }
    return files, report


def _describe(model: Model) -> dict[str, Any]:
    spec = model.spec
    return {
        "op_type": spec.op_type,
        "variant": None if spec.variant is None else str(spec.variant),
        "dtype": spec.dtype,
        "arch": spec.arch,
        "rank_by": spec.rank_by,
        "targets": list(spec.targets),
        "log_targets": list(spec.log_targets),
        "categorical_features": list(spec.categorical_features),
        "hardware": model.hardware,
        "features": describe(spec.engine, spec.feature_names),
    }
