"""Models with AMD's published specs, byte for byte: each loads, and its speeds equal its forest's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import lightgbm
import numpy as np
import pytest

from ckh.cli import run
from ckh.errors import ExitCode, ModelError
from ckh.learn.models.artifact import load_model
from ckh.learn.models.manifest import problem_count
from ckh.learn.models.spec import read_spec
from tests.learn.conftest import AMD_KERNELS, AMD_PROBLEMS
from tests.refusals import expect_refusal

AMD_FILES = Path(__file__).parents[1] / "amd_files"
THREE = ("tflops", "latency", "bandwidth")
BWD_DATA, FP8 = "grouped_conv_bwd_data_bf16_gfx950", "gemm_universal_fp8_gfx950"
# Number of inputs; targets and those on logarithms, if a model of TFLOPS is present.
SPECS = {
    BWD_DATA: (83, ("tflops",), ("tflops",)),
    FP8: (55, THREE, ()),
    "gemm_universal_fp8_gfx950_p0fix": (62, THREE, ("bandwidth", "tflops")),
    "gemm_universal_fp16_gfx950": (72, THREE, ("bandwidth", "tflops")),
    "grouped_conv_forward_2d3d_suffix_bf16_gfx950": (97, ("tflops",), ("tflops",)),
}


def published(folder: Path, name: str, *, mean: float, target: str = "tflops") -> lightgbm.Booster:
    """A folder with AMD's files of a model, and a forest of its inputs with about this mean of its target."""
    made = folder / name
    shutil.copytree(AMD_FILES / name, made, dirs_exist_ok=True)
    names = json.loads((made / "feature_spec.json").read_text(encoding="utf-8"))["feature_names"]
    random = np.random.default_rng(7)
    inputs = random.integers(1, 512, (400, len(names))).astype(np.float64)
    values = mean * (0.5 + inputs[:, 0] / 512)
    params = {"objective": "regression", "verbose": -1, "num_leaves": 7, "num_threads": 1}
    booster = lightgbm.train(params, lightgbm.Dataset(inputs, values, feature_name=names), num_boost_round=5)
    (made / f"model_{target}.lgbm").write_text(booster.model_to_string(), encoding="utf-8")
    return booster


@pytest.mark.parametrize("name", SPECS)
def test_a_published_spec_loads(name: str, tmp_path: Path) -> None:
    """Missing fields have the defaults of AMD's tools: targets with a model, logarithms as in the forest."""
    inputs, targets, logs = SPECS[name]
    published(tmp_path, name, mean=250.0 if name == FP8 else 4.5)
    spec = load_model(tmp_path / name).spec
    assert (len(spec.feature_names), spec.targets, spec.log_targets) == (inputs, targets, logs)
    assert (spec.arch, spec.rank_by, spec.legacy_tiles) == ("gfx950", "tflops", True)
    assert spec.categorical_features == (
        ("pipeline",) if spec.op_type == "grouped_conv" else ("layout", "pipeline", "scheduler", "epilogue")
    )


@pytest.mark.parametrize(("mean", "is_log"), [(4.5, True), (8.5, True), (10.0, False), (250.0, False)])
def test_missing_log_targets_are_detected_from_the_forest(mean: float, *, is_log: bool, tmp_path: Path) -> None:
    """Speeds are expm1 of the forest if trained on log1p, else the forest's own; LightGBM is the reference."""
    booster = published(tmp_path, BWD_DATA, mean=mean)
    model = load_model(tmp_path / BWD_DATA)
    matrix = model.matrix(AMD_PROBLEMS[0], AMD_KERNELS)
    raw = np.asarray(booster.predict(matrix))
    expected = np.expm1(raw) if is_log else raw
    np.testing.assert_allclose(model.predict(AMD_PROBLEMS[0], AMD_KERNELS), expected, rtol=1e-12)


def test_missing_targets_are_the_existing_models(tmp_path: Path) -> None:
    """In AMD's order; a spec without targets and without models is refused with the reason."""
    published(tmp_path, BWD_DATA, mean=0.2, target="latency")
    published(tmp_path, BWD_DATA, mean=4.5)
    assert read_spec(tmp_path / BWD_DATA).targets == ("tflops", "latency")
    for path in (tmp_path / BWD_DATA).glob("*.lgbm"):
        path.unlink()
    with expect_refusal(ModelError, "bad-field", "model_") as error:
        read_spec(tmp_path / BWD_DATA)
    assert error.value.exit_code == ExitCode.BAD_DATA


def test_a_forest_without_leaf_counts_is_refused(tmp_path: Path) -> None:
    """Leaves without their numbers of rows do not determine a mean."""
    published(tmp_path, BWD_DATA, mean=4.5)
    path = tmp_path / BWD_DATA / "model_tflops.lgbm"
    text = path.read_text(encoding="utf-8")
    path.write_text("\n".join(line for line in text.split("\n") if not line.startswith("leaf_count")), encoding="utf-8")
    with expect_refusal(ModelError, "damaged-model"):
        read_spec(tmp_path / BWD_DATA)


def test_published_manifests_have_the_number_of_problems(tmp_path: Path) -> None:
    """AMD's manifest has the number of problems, but not their ids."""
    for name, problems in ((BWD_DATA, 891), (FP8, 168), ("grouped_conv_forward_2d3d_suffix_bf16_gfx950", 170)):
        assert problem_count(AMD_FILES / name) == problems


def test_predict_answers_from_a_published_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of AMD's models in $CKH_MODELS answers like any other."""
    published(tmp_path, BWD_DATA, mean=4.5)
    monkeypatch.setenv("CKH_MODELS", str(tmp_path))
    words = "predict --n 16 --c 64 --k 64 --hi 56 --wi 56 --y 3 --x 3 --pad 1"
    words += " --variant bwd_data --dtype bf16 --arch gfx950 --json"
    assert run(words.split()) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["model"] == str(tmp_path / BWD_DATA)
