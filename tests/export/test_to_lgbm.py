"""LightGBM itself reads the text export."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import lightgbm
import numpy as np

from ckh.archs import load_arch
from ckh.export.to_lgbm import lgbm_files
from ckh.learn.models.artifact import load_model
from tests.learn.conftest import kernels, problems, saved

if TYPE_CHECKING:
    from pathlib import Path


def test_lightgbm_reads_the_text(tmp_path: Path) -> None:
    """With the features in the stated order, LightGBM gives ckh's scores."""
    model = load_model(saved(tmp_path / "small"))
    files, report = lgbm_files([model])
    facts = json.loads(files["features.json"])["models"]["small"]
    names = [feature["name"] for feature in facts["features"]]
    problem, some = problems()[0], kernels()
    op = model.spec.op
    columns = {**op.problems.features([problem]), **op.kernels.features(some, model.spec.encoding)}
    matrix = model.spec.engine.matrix(columns, facts["hardware"], names)
    for target in facts["targets"]:
        text = files[f"small/model_{target}.txt"].decode()
        raw = np.asarray(lightgbm.Booster(model_str=text).predict(matrix, raw_score=True))
        told = np.expm1(raw) if target in facts["log_targets"] else raw
        np.testing.assert_allclose(told, model.predict(problem, some, target), rtol=1e-12)
    assert facts["rank_by"] in facts["targets"]
    assert report["models"] == [{"name": "small", "targets": facts["targets"], "features": len(names)}]
    assert set(facts["hardware"]) == set(load_arch("host").hardware.to_dict())
    assert all(f"small/model_{target}.txt" in files["README.md"].decode() for target in facts["targets"])
