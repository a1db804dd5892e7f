"""AMD's GEMM features with vector widths, of encoding version 1, compared with a transcription of their formulas."""

from __future__ import annotations

import json
import random
from itertools import product
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.errors import ModelError
from ckh.learn.models.artifact import load_model
from ckh.ops.base import Encoding
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL, NAMES_72, NAMES_78, kernel_columns, problem_columns
from ckh.ops.gemm_universal.kernel import GemmKernel, parse_kernel_name
from ckh.ops.gemm_universal.operation import OPERATION
from ckh.ops.gemm_universal.problem import GemmProblem
from tests.refusals import expect_refusal
from tests.shared import REFERENCE_HARDWARE

if TYPE_CHECKING:
    from pathlib import Path

BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8, "fp8": 1, "bf8": 1, "int8": 1}
RESULTS = {"fp8": 2, "bf8": 2, "int8": 4}
LAYOUTS = ("rcr", "rrr", "crr", "ccr")


def native_load(element: int, extent: int, per_thread: int) -> int:
    """The first of 16, 8, 4 and 2 bytes whose elements divide the tile's extent and a thread's elements."""
    for size in (16, 8, 4, 2):
        if size < 8 and element < size:
            continue
        width = size // element
        if width >= 1 and extent % width == 0 and per_thread % width == 0:
            return width
    return 1


def expected(problem: GemmProblem, kernel: GemmKernel) -> list[float]:
    """The six features by their description, with integers alone."""
    wave, warp_tile = kernel.wave, kernel.warp_tile
    a_row, b_row = (letter == "r" for letter in problem.layout[:2])
    element = BYTES[problem.dtype]
    result = RESULTS.get(problem.dtype, element)
    threads = prod(wave) * 64
    m, n, k = kernel.tile
    native = (
        native_load(element, k if a_row else m, m * k // threads),
        native_load(element, n if b_row else k, n * k // threads),
        min(warp_tile[1] * wave[1], 16 // result) if kernel.epilogue == "cshuffle" else 1,
    )
    extents = (problem.k if a_row else problem.m, problem.n if b_row else problem.k, problem.n)
    legal = [gcd(extent, 16 // size) for extent, size in zip(extents, (element, element, result), strict=True)]
    used = [own or other for own, other in zip(kernel.vectors, native, strict=True)]
    return [*map(float, kernel.vectors), *(width / most for width, most in zip(used, legal, strict=True))]


def kernels(dtype: str, layout: str) -> list[GemmKernel]:
    """Kernels with native and stated widths on tiles with few and many elements per thread."""
    names = (
        f"gemm_universal_{dtype}_{layout}_compv3_{epilogue}_intrawave_True_True_True_False_{tile}{widths}"
        for epilogue, tile, widths in product(
            ("cshuffle", "default"),
            (
                "128x128x64_2x2x1_32x32x16",
                "16x96x24_1x4x1_16x16x16",
                "256x48x8_4x1x1_32x32x8",
                "64x64x1_2x3x1_16x4x4",
                "66x64x6_1x1x1_32x32x16",
            ),
            ("", "_vec4_4_8", "_vec1_2_1", "_vec0_8_0"),
        )
    )
    return [parse_kernel_name(name) for name in names]


@pytest.mark.parametrize(("dtype", "layout"), [*product(BYTES, LAYOUTS)])
def test_widths_equal_the_transcription(dtype: str, layout: str) -> None:
    """All values are equal, for sizes with every power of two."""
    draw, own = random.Random(f"{dtype}{layout}"), kernels(dtype, layout)
    assert own[1].vectors == (4, 4, 8)
    for _ in range(12):
        sizes = [draw.choice((1, 3, 5)) * 2 ** draw.randrange(8) for _ in "mnk"]
        problem = GemmProblem(sizes[0], sizes[1], sizes[2], dtype, layout, 1)
        columns = {**problem_columns([problem]), **kernel_columns(own)}
        result = GEMM_UNIVERSAL.matrix(columns, REFERENCE_HARDWARE, NAMES_78[len(NAMES_72) :])
        np.testing.assert_array_equal(result, [expected(problem, kernel) for kernel in own])


def saved(folder: Path, matrix: Any, **changes: Any) -> Any:
    """Save a model of AMD's with 78 features, trained on rows of them; returns its booster."""
    lightgbm = pytest.importorskip("lightgbm")
    labels = np.sin(np.log1p(np.abs(matrix)) @ np.random.default_rng(3).normal(size=(78, 4))).sum(axis=1) + 3
    params = {"objective": "regression", "verbose": -1, "num_leaves": 15, "min_data_in_leaf": 1, "num_threads": 1}
    booster = lightgbm.train(params, lightgbm.Dataset(matrix, labels, feature_name=[*NAMES_78]), num_boost_round=30)
    folder.mkdir()
    booster.save_model(folder / "model_tflops.lgbm")
    spec = {
        "op_type": "gemm_universal_vec",
        "feature_engine": "gemm_universal_vec",
        "feature_encoding_version": 1,
        "hardware": dict(REFERENCE_HARDWARE),
        "dtype": "fp16",
        "arch": "gfx950",
        "feature_names": [*NAMES_78],
        "categorical_features": ["layout", "pipeline", "scheduler", "epilogue"],
        "targets": ["tflops"],
        "log_targets": [],
        "params": {},
    }
    (folder / "feature_spec.json").write_text(json.dumps(spec | changes), encoding="utf-8")
    return booster


def test_models_with_widths_rank_as_lightgbm_does(tmp_path: Path) -> None:
    """By the transcribed features; kernels that differ in their widths alone get different scores."""
    own = kernels("fp16", "rcr")
    problems = [GemmProblem(m, 96, k, "fp16", "rcr", 1) for m, k in ((100, 72), (256, 512), (7, 36), (64, 40))]
    rows = []
    for problem in problems:
        columns = {**problem_columns([problem]), **OPERATION.kernels.features(own, Encoding(legacy=True))}
        base = GEMM_UNIVERSAL.matrix(columns, REFERENCE_HARDWARE, NAMES_72)
        rows.append(np.hstack([base, [expected(problem, kernel) for kernel in own]]))
    booster = saved(tmp_path / "model", np.vstack(rows))
    model = load_model(tmp_path / "model")
    assert (model.spec.op_type, len(model.spec.feature_names)) == ("gemm_universal", 78)
    for problem, row in zip(problems, rows, strict=True):
        np.testing.assert_allclose(model.predict(problem, own), booster.predict(row), rtol=1e-12)
    assert len(np.unique(model.predict(problems[0], own[:4]))) > 1
    saved(tmp_path / "later", np.vstack(rows), feature_encoding_version=2)
    with expect_refusal(ModelError, "other-version", 2, 0, 1):
        load_model(tmp_path / "later")
