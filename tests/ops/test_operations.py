"""Every operation's record: complete, consistent, and sufficient for the whole loop."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.cli import run
from ckh.errors import ExitCode, UsageError
from ckh.learn.models.artifact import load_model
from ckh.ops import operation, operation_of, operation_of_kernel
from ckh.ops.base import Encoding
from ckh.ops.gemm_universal.features import NAMES_55, NAMES_72
from ckh.ops.gemm_universal.problem import GemmProblem
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path


def test_an_unknown_operation_is_refused() -> None:
    """Unknown names, problem texts and kernels are refused."""
    with expect_refusal(UsageError, "unknown-op", "pooling"):
        operation("pooling")
    with expect_refusal(UsageError, "unknown-op"):
        operation_of("pool_max_3x3")
    with expect_refusal(UsageError, "wrong-type"):
        operation_of_kernel("compv3")


def test_a_kernel_loads_no_other_operation() -> None:
    """A prediction imports only its own operation."""
    program = (
        "import sys\n"
        "from ckh.ops import operation, operation_of_kernel\n"
        "op = operation('gemm_universal')\n"
        "from ckh.ops.gemm_universal.kernels.pool import gemm_pool\n"
        "from ckh.archs import load_arch\n"
        "assert operation_of_kernel(gemm_pool(load_arch('host'), 'fp32', 'rcr')[0]) is op\n"
        "others = ('ckh.ops.grouped', 'ckh.ops.aiter', 'ckh.bench')\n"
        "print(*(name for name in sys.modules if name.startswith(others)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


@pytest.mark.parametrize("names", [NAMES_72, NAMES_55], ids=["72", "55"])
def test_gemm_models_of_amd_predict_their_data(names: tuple[str, ...], tmp_path: Path) -> None:
    """A spec without ckh's key is AMD's: kernels of `mem` are encoded as padded, and values equal LightGBM's."""
    folder = tmp_path / "gemm_universal_fp16_gfx942"
    folder.mkdir()
    op, problem = operation("gemm_universal"), GemmProblem(128, 256, 512, "fp16")
    built = op.kernels.candidates(problem, load_arch("gfx942"), folder).kernels
    kernels = tuple(item for item in built if item.pad_m)[::40]  # type: ignore[attr-defined]
    kernels = (*kernels, *(replace(k, pad_m=False, pipeline="mem") for k in kernels[:2]))
    columns = {**op.problems.features([problem]), **op.kernels.features(kernels, Encoding(legacy=True))}
    assert columns["pad_m"].tolist() == [1.0] * len(kernels)
    matrix = op.training.engine.matrix(columns, load_arch("gfx942").hardware.to_dict(), names)
    random = np.random.default_rng(1)
    data = matrix[random.integers(len(matrix), size=400)] * random.uniform(0.5, 2, (400, len(names)))
    label = np.log1p(data[:, names.index("tile_m")] + data[:, names.index("tile_k")])
    booster = lightgbm.train(
        {"verbose": -1, "num_leaves": 8}, lightgbm.Dataset(data, label, feature_name=list(names)), 10
    )
    (folder / "model_tflops.lgbm").write_text(booster.model_to_string(), encoding="utf-8")
    spec: dict[str, Any] = {
        "op_type": "gemm_universal",
        "dtype": "fp16",
        "arch": "gfx942",
        "feature_names": list(names),
    }
    spec |= {"categorical_features": [], "targets": ["tflops"], "log_targets": ["tflops"], "params": {}}
    (folder / "feature_spec.json").write_text(json.dumps(spec), encoding="utf-8")
    expected = np.expm1(np.asarray(booster.predict(matrix)))
    np.testing.assert_allclose(load_model(folder).predict(problem, kernels), expected, rtol=1e-12)
    assert len(np.unique(expected)) > 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--m", "4"], "a GEMM needs --m, --n and --k: --n is missing"),
        (["--m", "4", "--n", "4", "--k", "4", "--hi", "3"], "gemm_universal has no --hi"),
        (["--m", "4", "--n", "4", "--k", "4", "--variant", "forward"], "gemm_universal has no --variant"),
        (["--c", "4", "--layout", "rcr"], "grouped_conv has no --layout"),
        (["--m", "4", "--n", "0", "--k", "4"], "n must be 1 or more"),
        (["--m", "4", "--n", "4", "--k", "4", "--layout", "abc"], "unknown layout 'abc'"),
        (["--op", "pooling"], "unknown operation 'pooling'"),
    ],
)
def test_options_must_go_with_the_operation(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An inapplicable option is refused in one line, with exit code 2."""
    assert run(["predict", *args]) == ExitCode.USAGE
    assert message in capsys.readouterr().err
