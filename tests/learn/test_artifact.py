"""Model directories of ckh and of AMD predict like LightGBM, and damage is reported."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
import pytest

from ckh.data.dataset import Dataset
from ckh.errors import ModelError, UsageError
from ckh.files.paths import model_folders
from ckh.learn.models.artifact import find_model, list_models, load_model, unusable_models
from ckh.learn.models.spec import Wanted
from ckh.ops.grouped_conv.features import CORE_NAMES, GROUPED_CONV, NAMES_83, NAMES_91
from ckh.ops.grouped_conv.operation import kernel_columns, problem_columns
from ckh.problems import Direction
from ckh.training import RankObjective
from tests.learn.conftest import (
    AMD_KERNELS,
    AMD_PROBLEMS,
    GFX950,
    HARDWARE,
    amd_matrix,
    amd_model,
    kernels,
    measured,
    problems,
    saved,
)
from tests.refusals import expect_refusal, expect_warning

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = {83: NAMES_83, 91: NAMES_91, 97: CORE_NAMES}
# A key that AMD's older specs lack.
OLD = {"feature_encoding_version": None, "hardware": None, "feature_engine": None}
PROBLEM = problems()[3]


def booster(folder: Path, target: str) -> lightgbm.Booster:
    """Read a model file with LightGBM."""
    packed = folder / f"model_{target}.lgbm.gz"
    return lightgbm.Booster(model_str=gzip.decompress(packed.read_bytes()).decode())


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Names, times and sizes of all files, and of the folder itself."""
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in (folder, *folder.iterdir())}


def edit_spec(folder: Path, **changes: Any) -> None:
    """Change keys of a spec; None removes one."""
    path = folder / "feature_spec.json"
    values = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}), encoding="utf-8")


@pytest.mark.parametrize(("target", "least"), [("tflops", 2), ("latency", 1), ("bandwidth", 2), ("rank", 2)])
def test_predictions_equal_lightgbm(model_dir: Path, target: str, least: int) -> None:
    """The NumPy forest with the profile of the training data gives LightGBM's values to 1e-12.

    The number of distinct values depends on the folds, which differ between versions of scikit-learn; several values
    show that the trees were evaluated.
    """
    columns = {**problem_columns([PROBLEM]), **kernel_columns(kernels())}
    raw = np.asarray(booster(model_dir, target).predict(GROUPED_CONV.matrix(columns, HARDWARE)))
    expected = np.expm1(raw) if target in ("tflops", "bandwidth") else raw
    np.testing.assert_allclose(load_model(model_dir).predict(PROBLEM, kernels(), target), expected, rtol=1e-12)
    assert len(np.unique(expected)) >= least


def test_dataset_predictions_equal_single_predictions(model_dir: Path) -> None:
    """Scores of a dataset equal those of the problem and kernel of each row."""
    model, data = load_model(model_dir), measured()
    scores = model.scores(data)
    for number, problem in enumerate(data.problems()):
        rows = np.flatnonzero(data.problem_ids == number)
        expected = model.predict(problem, kernels(ndim=problem.ndim), "rank")
        np.testing.assert_allclose(scores[rows], expected, rtol=1e-12)


def test_ranking_sorts_by_score_and_predicts_time(model_dir: Path) -> None:
    """Kernels are sorted by descending score, ties in the given order; the time follows from flops and TFLOPS."""
    model, of = load_model(model_dir), [*kernels(), *kernels()]
    ranked = model.rank(PROBLEM, of)
    scores, tflops = (model.predict(PROBLEM, of, target) for target in ("rank", "tflops"))
    order = sorted(range(len(of)), key=lambda i: (-scores[i], i))
    assert [candidate.kernel for candidate in ranked] == [of[i] for i in order]
    # `rank` adds the trees' leaves exactly, `predict` in LightGBM's order.
    np.testing.assert_allclose([candidate.score for candidate in ranked], scores[order], rtol=1e-12)
    np.testing.assert_allclose([candidate.tflops or 0.0 for candidate in ranked], tflops[order], rtol=1e-12)
    assert [candidate.latency_ms for candidate in ranked] == pytest.approx(
        [PROBLEM.flops / tflops[i] / 1e9 for i in order]
    )


def test_a_model_of_tflops_ranks_by_tflops(tmp_path: Path) -> None:
    """Without a ranking target, the score is the TFLOPS."""
    ranked = load_model(saved(tmp_path / "model", RankObjective.TFLOPS)).rank(PROBLEM, kernels())
    assert all(candidate.score == candidate.tflops for candidate in ranked)
    assert [candidate.tflops for candidate in ranked] == sorted((candidate.score for candidate in ranked), reverse=True)


@pytest.mark.parametrize("changes", [{}, OLD], ids=["new", "old"])
@pytest.mark.parametrize("count", [83, 91, 97])
def test_models_of_amd_predict_with_their_labels(tmp_path: Path, count: int, changes: dict[str, Any]) -> None:
    """With tiles labelled as by AMD, predictions equal LightGBM's; true labels would give others."""
    names = NAMES[count]
    assert len(names) == count
    folder = tmp_path / "grouped_conv_forward_bf16_gfx950"
    made = amd_model(folder, names, **changes)
    model = load_model(folder)
    assert model.spec.legacy_tiles
    for problem in AMD_PROBLEMS:
        result = model.predict(problem, AMD_KERNELS)
        legacy, true = (
            np.expm1(np.asarray(made.predict(amd_matrix(problem, AMD_KERNELS, names, is_legacy=is_legacy))))
            for is_legacy in (True, False)
        )
        np.testing.assert_allclose(result, legacy, rtol=1e-12)
        assert np.abs(true / legacy - 1).max() > 0.05
    ranked = model.rank(AMD_PROBLEMS[0], AMD_KERNELS)
    best = model.predict(AMD_PROBLEMS[0], AMD_KERNELS).max()
    assert ranked[0].score == ranked[0].tflops == pytest.approx(best, rel=1e-12)


def test_models_of_amd_score_datasets_with_their_labels(tmp_path: Path) -> None:
    """A dataset has true tiles; its scores are nevertheless those of AMD's labels."""
    folder = tmp_path / "forward"
    made = amd_model(folder, CORE_NAMES)
    frame = measured().frame[measured().frame["N"] == 1].reset_index(drop=True)
    data = Dataset(frame)
    scores = load_model(folder).scores(data)
    for number, problem in enumerate(data.problems()):
        matrix = amd_matrix(problem, kernels(ndim=problem.ndim), CORE_NAMES)
        np.testing.assert_allclose(scores[data.problem_ids == number], np.expm1(made.predict(matrix)), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("grouped_conv_forward_bf16_gfx950", Direction.FORWARD),
        ("grouped_conv_bwd_data_bf16_gfx950", Direction.BWD_DATA),
        ("gfx950-bwd_weight", Direction.BWD_WEIGHT),
        ("grouped_conv_bf16_gfx950", None),
    ],
)
def test_the_folder_names_the_direction(tmp_path: Path, name: str, variant: Direction | None) -> None:
    """AMD's specs do not state the direction, their folders do; a folder without one fits every direction."""
    amd_model(tmp_path / name, NAMES_83)
    model = load_model(tmp_path / name)
    assert model.spec.variant is variant
    for direction in Direction:
        wanted = Wanted("grouped_conv", direction, "bf16", "gfx950")
        if variant in (None, direction):
            model.require(wanted)
        else:
            with expect_refusal(UsageError, "model-mismatch", "grouped_conv", variant, "bf16", "gfx950", wanted):
                model.require(wanted)


@pytest.mark.parametrize("is_packed_newer", [True, False])
def test_the_newer_file_is_used(tmp_path: Path, is_packed_newer: bool) -> None:
    """If both a plain and a packed text exist, the newer is the model."""
    amd_model(tmp_path / "forward", CORE_NAMES)
    plain = tmp_path / "forward" / "model_tflops.lgbm"
    packed = plain.with_suffix(".lgbm.gz")
    text = plain.read_text(encoding="utf-8")
    other = lightgbm.Booster(model_str=text).model_to_string(num_iteration=3)
    packed.write_bytes(gzip.compress(other.encode()))
    os.utime(plain, (1000, 2000))
    os.utime(packed, (1000, 2001 if is_packed_newer else 1999))
    matrix = amd_matrix(AMD_PROBLEMS[1], AMD_KERNELS, CORE_NAMES)
    expected = np.expm1(np.asarray(lightgbm.Booster(model_str=other if is_packed_newer else text).predict(matrix)))
    result = load_model(plain.parent).predict(AMD_PROBLEMS[1], AMD_KERNELS)
    np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_using_a_model_writes_nothing(model_dir: Path) -> None:
    """Loading and predicting leave a read-only folder unchanged."""
    for path in model_dir.iterdir():
        path.chmod(0o444)
    model_dir.chmod(0o555)
    before = state(model_dir)
    model = load_model(model_dir)
    model.rank(PROBLEM, kernels())
    model.scores(measured())
    assert state(model_dir) == before
    model_dir.chmod(0o755)


def test_missing_hardware_comes_from_the_architecture(tmp_path: Path) -> None:
    """A profile in the spec takes precedence over the architecture's, value by value."""
    amd_model(tmp_path / "forward", CORE_NAMES, hardware={"num_cus": 7, "unknown": "value"})
    model = load_model(tmp_path / "forward")
    assert model.hardware == GFX950.hardware.to_dict() | {"num_cus": 7}


def cut(path: Path, share: float = 0.5) -> None:
    """Truncate a file."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def cut_text(path: Path) -> None:
    """Truncate the packed text to its first half."""
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text[: len(text) // 2]))


def repack(path: Path, old: str, new: str) -> None:
    """Replace a string in the packed text."""
    text = gzip.decompress(path.read_bytes()).decode()
    assert old in text
    path.write_bytes(gzip.compress(text.replace(old, new, 1).encode()))


@pytest.mark.parametrize("is_dataset", [False, True])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "has no model of rank"),
        (cut, "model_rank.lgbm.gz is damaged: "),
        (lambda path: path.write_bytes(b"hello"), "model of rank: not a complete LightGBM model text"),
        (lambda path: path.write_bytes(gzip.compress(b"\xff\xfe")), "model_rank.lgbm.gz is damaged: "),
        (lambda path: path.write_bytes(b""), "model of rank: not a complete LightGBM model text"),
        (cut_text, "model of rank: not a complete LightGBM model text"),
        (lambda path: repack(path, "leaf_value=", "leaf_value=x "), "model of rank: damaged LightGBM model text"),
        (lambda path: repack(path, "left_child=", "left_child=99 "), "model of rank: damaged LightGBM model text"),
    ],
    ids=["missing", "truncated", "no gzip", "no text", "empty", "cut", "no number", "one too many"],
)
def test_a_damaged_forest_is_named(
    model_dir: Path, damage: Callable[[Path], None], message: str, is_dataset: bool
) -> None:
    """For any damage of a model file the error names it; LightGBM never reads it."""
    damage(model_dir / "model_rank.lgbm.gz")
    model = load_model(model_dir)
    with pytest.raises(ModelError) as error:
        model.scores(measured()) if is_dataset else model.rank(PROBLEM, kernels())
    assert message in error.value.message
    assert str(model_dir) in error.value.message


def test_the_number_of_inputs_must_match_the_spec(model_dir: Path) -> None:
    """A spec with one feature less than the model is refused."""
    edit_spec(model_dir, feature_names=list(GROUPED_CONV.names[:-1]))
    with expect_refusal(ModelError, "model-inputs", len(GROUPED_CONV.names), "feature_spec.json"):
        load_model(model_dir).rank(PROBLEM, kernels())


def test_a_missing_or_invalid_folder_is_refused(tmp_path: Path) -> None:
    """A missing folder, a file, and a folder without a spec give different errors."""
    (tmp_path / "file").touch()
    for name, said in (("none", "no such model: .*none"), ("file", "file is a file, not a model directory")):
        with pytest.raises(ModelError, match=said):
            load_model(tmp_path / name)
    with expect_refusal(ModelError, "not-a-model", "feature_spec.json"):
        load_model(tmp_path)


def test_unknown_targets_are_refused(tmp_path: Path) -> None:
    """A model of only TFLOPS has no bandwidth."""
    amd_model(tmp_path / "forward", NAMES_83)
    with expect_refusal(ModelError, "missing-target", "bandwidth"):
        load_model(tmp_path / "forward").predict(AMD_PROBLEMS[0], AMD_KERNELS, "bandwidth")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ...]:
    """Two empty folders in $CKH_MODELS, and the missing folders of the user and of shipped models."""
    places = (tmp_path / "one", tmp_path / "two", tmp_path / "user" / "models", tmp_path / "shipped" / "models")
    for folder in places[:2]:
        folder.mkdir()
    monkeypatch.setenv("CKH_MODELS", f"{places[0]}{os.pathsep}{places[1]}")
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setattr("ckh.files.paths.data_dir", lambda name: tmp_path / "shipped" / name)
    return places


FORWARD = Wanted("grouped_conv", Direction.FORWARD, "fp32", "host")


def test_models_are_found_in_order(folders: tuple[Path, ...]) -> None:
    """Folders of the variable come first, then the user's, then the shipped models."""
    assert tuple(model_folders()) == folders
    for folder in reversed(folders):
        assert find_model_or_none() == saved_after(folder)
    shutil.rmtree(folders[0] / "model")
    assert find_model(FORWARD).path == folders[1] / "model"
    assert find_model(FORWARD).others == (folders[2] / "model", folders[3] / "model")


def test_models_with_more_features_take_precedence(folders: tuple[Path, ...]) -> None:
    """More features precede more problems, these precede the name; the other models are listed in this order."""
    wanted = Wanted("grouped_conv", Direction.FORWARD, "bf16", "gfx950")
    trained = {"a_forward": (NAMES_83, 900), "b_forward": (NAMES_91, 5), "c_forward": (NAMES_91, 20)}
    for name, (features, count) in trained.items():
        amd_model(folders[2] / name, features)
        manifest = folders[2] / name / "train_manifest.json"
        manifest.write_text(json.dumps({"unique_shapes": count}), encoding="utf-8")
    model = find_model(wanted)
    assert [path.name for path in (model.path, *model.others)] == ["c_forward", "b_forward", "a_forward"]
    manifest.unlink()
    model = find_model(wanted)
    assert [path.name for path in (model.path, *model.others)] == ["b_forward", "c_forward", "a_forward"]
    (folders[2] / "b_forward" / "train_manifest.json").write_text("[]", encoding="utf-8")
    assert find_model(wanted).path.name == "b_forward"


def test_a_model_in_two_folders_is_listed_once(folders: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in $CKH_MODELS next to its own parent adds no model."""
    saved(folders[0] / "model")
    monkeypatch.setenv("CKH_MODELS", f"{folders[0]}{os.pathsep}{folders[0] / 'model'}")
    assert (find_model(FORWARD).path, find_model(FORWARD).others) == (folders[0] / "model", ())


def test_a_variable_that_names_no_folder_is_refused(folders: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistyped $CKH_MODELS would silently select other models."""
    monkeypatch.setenv("CKH_MODELS", str(folders[0] / "mistyped"))
    with expect_refusal(UsageError, "no-file", "CKH_MODELS", "mistyped"):
        find_model(FORWARD)


def find_model_or_none() -> Path | None:
    """Return the folder of the model that is now selected."""
    return find_model(FORWARD).path if list_models() else None


def saved_after(folder: Path) -> Path | None:
    """Save a model in a folder, and return the one selected before that."""
    path = find_model_or_none()
    saved(folder / "model")
    return path


def test_the_variable_may_name_a_model_itself(folders: tuple[Path, ...]) -> None:
    """A folder may be a model itself, or contain models."""
    saved(folders[1])
    assert find_model(FORWARD).path == folders[1]


def test_unsuitable_and_unusable_models_are_skipped(folders: tuple[Path, ...]) -> None:
    """Models for something else and unusable models do not hide the one that fits."""
    amd_model(folders[0] / "a_forward", NAMES_83)
    saved(folders[0] / "b_damaged")
    (folders[0] / "b_damaged" / "feature_spec.json").write_text("{", encoding="utf-8")
    (folders[0] / "c_empty").mkdir()
    saved(folders[3] / "d")
    assert find_model(FORWARD).path == folders[3] / "d"
    assert [ref.path.name for ref in list_models()] == ["a_forward", "d"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{", "feature_spec.json:1: "),
        ('{"op_type": "pooling"}', "'pooling'"),
        ('{"op_type": "grouped_conv", "arch": "gfx000"}', "'gfx000'"),
        ('{"op_type": "grouped_conv", "arch": "host"}', "feature_names"),
    ],
)
def test_an_unusable_model_is_one_warning(
    text: str, value: str, folders: tuple[Path, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """One line per process names the model and the reason, whatever it was for; completion is silent."""
    folder = folders[0] / "damaged"
    folder.mkdir()
    (folder / "feature_spec.json").write_text(text, encoding="utf-8")
    saved(folders[3] / "d")
    list_models(quiet=True)
    assert capsys.readouterr().err == ""
    for _ in range(2):
        assert find_model(FORWARD).path == folders[3] / "d"
    (line,) = capsys.readouterr().err.splitlines()
    expect_warning(line, "unusable-model", folder, value)
    assert any(value in unusable_model for unusable_model in unusable_models())


def test_a_missing_model_lists_the_available_models(folders: tuple[Path, ...]) -> None:
    """The error lists the existing models without duplicates, or none."""
    with expect_refusal(ModelError, "no-model", "grouped_conv forward fp32 on host"):
        find_model(FORWARD)
    amd_model(folders[0] / "bwd_data", NAMES_83)
    amd_model(folders[1] / "bwd_data", NAMES_83)
    saved(folders[2] / "model")
    there = ["grouped_conv bwd_data bf16 on gfx950", "grouped_conv forward fp32 on host"]
    with expect_refusal(ModelError, "no-model", "grouped_conv forward fp16", *there):
        find_model(replace(FORWARD, dtype="fp16"))
