"""Kernels with times in a model's training data are candidates, whether or not in the architecture's pool."""

from __future__ import annotations

import gzip
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import ExitCode, ModelError
from ckh.export.groups import group_of
from ckh.kernels.pools import TIMED_NAME
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import load_model
from ckh.ops.gemm_universal.kernel import parse_kernel_name
from ckh.ops.gemm_universal.kernels.pool import POOLS, gemm_pool
from ckh.ops.gemm_universal.operation import OPERATION
from ckh.ops.gemm_universal.problem import GemmProblem
from tests.ops.gemm_universal import tile_engine

if TYPE_CHECKING:
    from pathlib import Path

GFX942 = load_arch("gfx942")
DIVIDED = GemmProblem(1792, 512, 1024, "fp16", "rcr")  # divisible by all tiles, including 224
REST = GemmProblem(1792, 512, 1000, "fp16", "rcr")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of the 84 kernels on gfx942."""
    folder = tmp_path_factory.mktemp("tile_engine")
    source = tile_engine.write(folder / "benchmark.json", tile_engine.names())
    assert run(["convert", str(source), "--arch", "gfx942", "--out", str(folder / "data.parquet")]) == 0
    small = ["--folds", "0", "--trees", "40", "--leaves", "15", "-j", "1"]
    assert run(["train", "--data", str(folder / "data.parquet"), "--out", str(folder / "model"), *small]) == 0
    return folder / "model"


@pytest.mark.slow
def test_all_measured_kernels_are_candidates(model: Path) -> None:
    """The 84 are first in the pool, including the 12 of a tile that is in no space; the rest of the pool follows."""
    names = tile_engine.names()
    candidates = OPERATION.kernels.candidates(DIVIDED, GFX942, model)
    pool = [OPERATION.kernels.name(kernel) for kernel in candidates.pool]
    assert len(names) == candidates.timed == candidates.timed_candidates == 84
    assert set(pool[:84]) == set(names)
    assert len(pool) == len(set(pool))
    default = {OPERATION.kernels.name(kernel) for kernel in gemm_pool(GFX942, "fp16", "rcr")}
    assert set(pool) == default | set(names)
    assert sum("224x256x64" in name for name in set(names) - default) == 12


@pytest.mark.slow
def test_problem_rules_apply_to_measured_kernels(model: Path) -> None:
    """K = 1000 is not a multiple of an unpadded tile of 64, of mem's kernels neither: padded ones are left."""
    candidates = OPERATION.kernels.candidates(REST, GFX942, model)
    assert candidates.timed_candidates == 0
    assert {kernel.pad_k for kernel in candidates.kernels} == {True}


@pytest.mark.slow
def test_predict_says_how_many_candidates_were_measured(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The number is printed in text and in JSON."""
    args = ["predict", "--model", str(model), "--m", "1792", "--n", "512", "--k", "1024", "--dtype", "fp16"]
    assert run([*args, "--why"]) == 0
    assert "candidates (84 measured)" in capsys.readouterr().out
    assert run([*args, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["candidates_measured"] == 84


@pytest.mark.slow
def test_an_export_has_the_same_pool_as_an_answer(model: Path) -> None:
    """The group of a problem has the pool's kernels in the pool's order."""
    loaded = load_model(model)
    group = group_of(loaded, DIVIDED)
    pool = OPERATION.kernels.candidates(DIVIDED, GFX942, model).pool
    assert list(group.kernels) == list(pool)


def test_models_without_the_file_rank_the_architectures_pool(model: Path, tmp_path: Path) -> None:
    """Models without the file, trained by earlier versions, rank the pool."""
    shutil.copytree(model, tmp_path / "old", ignore=shutil.ignore_patterns(TIMED_NAME))
    candidates = OPERATION.kernels.candidates(DIVIDED, GFX942, tmp_path / "old")
    assert tuple(candidates.pool) == gemm_pool(GFX942, "fp16", "rcr")
    assert candidates.timed is candidates.timed_candidates is None


@pytest.mark.parametrize("document", [{}, {"version": 1, "arch": "gfx942", "kernels": ["no kernel"]}, []])
def test_a_damaged_file_is_named(document: Any, model: Path, tmp_path: Path) -> None:
    """The error names its path, with exit code 4."""
    shutil.copytree(model, tmp_path / "damaged")
    (tmp_path / "damaged" / TIMED_NAME).write_bytes(gzip.compress(json.dumps(document).encode()))
    with pytest.raises(ModelError, match=TIMED_NAME) as failed:
        ranking_of(DIVIDED, load_model(tmp_path / "damaged"))
    assert failed.value.exit_code is ExitCode.BAD_DATA


def test_only_complete_kernels_with_times_are_recorded(model: Path) -> None:
    """Short names and failures are excluded, and the kernels of the continued model are included."""
    frame = read_dataset(model.parent / "data.parquet").frame.copy()
    names = sorted(set(frame["kernel"]))
    frame.loc[frame["kernel"] == names[0], "is_valid"] = False
    frame.loc[frame["kernel"] == names[1], "kernel"] = "gemm_universal_fp16_rcr_64x64x64_compv3_intrawave"
    frame = frame[frame["kernel"] != names[2]]
    assert _names(POOLS.timed_file(frame, None)) == names[3:]
    assert _names(POOLS.timed_file(frame, model)) == names
    short = frame[frame["kernel"].str.len() < 60]
    assert len(short)
    assert POOLS.timed_file(short, None) is None


def _names(content: bytes | None) -> list[str]:
    assert content is not None
    document = json.loads(gzip.decompress(content))
    assert document["arch"] == "gfx942"
    assert all(parse_kernel_name(name).is_complete for name in document["kernels"])
    return list(document["kernels"])
