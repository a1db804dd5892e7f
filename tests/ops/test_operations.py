"""Every operation's record: complete, consistent, and sufficient for the whole loop."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import ExitCode, UsageError
from ckh.learn.models.artifact import load_model
from ckh.ops import operation, operation_names, operation_of, operation_of_kernel, part_of, requested
from ckh.ops.aiter_gemm.problem import AiterGemm
from ckh.ops.aiter_moe.problem import AiterMoe
from ckh.ops.base import Encoding
from ckh.ops.gemm_batched.problem import GemmBatchedProblem
from ckh.ops.gemm_grouped.problem import GemmGroupedProblem
from ckh.ops.gemm_multi_d.problem import GemmMultiDProblem
from ckh.ops.gemm_preshuffle.problem import GemmPreshuffleProblem
from ckh.ops.gemm_streamk.problem import GemmStreamKProblem
from ckh.ops.gemm_universal.features import NAMES_55, NAMES_72
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.requested import Requested
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

CONV = ConvProblem(Direction.BWD_DATA, n=2, c=16, k=32, g=4, hi=9, wi=7, y=3, x=1, stride_h=2, pad_h=1)
PROBLEMS: dict[str, Any] = {
    "grouped_conv": CONV,
    "gemm_universal": GemmProblem(16, 48, 33, "fp16", "crr", 2),
    "aiter_gemm": AiterGemm(16, 7168, 2048, "a8w8_bpreshuffle", num_cus=304),
    "aiter_moe": AiterMoe(64, 7168, 256, 256, 8, "stage2", num_cus=256),
    "gemm_batched": GemmBatchedProblem(16, 48, 33, "fp16", "crr", 2, batch=3, lda=24, batch_stride_c=800),
    "gemm_grouped": GemmGroupedProblem(ms="9+16x3+0", n=48, k=33, dtype="fp16", layout="crr", split_k=2),
    "gemm_multi_d": GemmMultiDProblem(16, 48, 33, "fp16", "crr", function="add_gelu", ds="vr"),
    "gemm_preshuffle": GemmPreshuffleProblem(16, 64, 64, "fp16", b_order="16x16p2x2"),
    "gemm_streamk": GemmStreamKProblem(16, 48, 96, "fp16", "crr"),
}


def test_every_operation_has_a_problem_here() -> None:
    """Every operation is covered by these tests."""
    assert set(PROBLEMS) == set(operation_names())


@pytest.mark.parametrize("name", PROBLEMS)
def test_records_are_consistent(name: str) -> None:
    """Columns are distinct and include identity, sizes and inputs of features; problems survive the round trip."""
    op, problem = operation(name), PROBLEMS[name]
    names = op.column_names()
    assert len(set(names)) == len(names)
    assert op.unknown_columns() == []
    assert operation_of(problem.canonical()) is op
    assert op.problems.parse(problem.canonical()) == problem
    row = {column: values[0] for column, values in op.problems.columns([problem]).items()}
    assert op.problems.of_row(row) == problem
    assert set(op.problems.identity) <= set(row)
    assert all(np.isfinite(op.problems.place(problem)))
    part = part_of(op, op.problems.requested, Requested)
    assert part is not None
    assert part is requested(name)
    assert part.has_directions == op.has_directions
    for tests in op.problems.slices.values():
        assert sum(bool(test(problem)) for test in tests.values()) == 1


@pytest.mark.parametrize("name", [name for name in PROBLEMS if operation(name).measured is not None])
def test_features_are_numbers(name: str, tmp_path: Path) -> None:
    """All features of a problem and its pool's kernels are finite, whatever columns are texts."""
    op, problem, arch = operation(name), PROBLEMS[name], load_arch("gfx942")
    kernels = op.kernels.candidates(problem, arch, tmp_path).pool[:2]
    columns = op.problems.features([problem]) | op.kernels.features(kernels, Encoding(is_gpu=True))
    result = op.training.engine.matrix(columns, arch.hardware.to_dict())
    assert result.shape == (2, len(op.training.engine.names))
    assert np.isfinite(result).all()


@pytest.mark.parametrize("name", ["grouped_conv", "gemm_universal"])
def test_kernels_round_trip_through_names(name: str, tmp_path: Path) -> None:
    """A candidate's complete name parses, identifies the operation, and has the dataset's columns."""
    op = operation(name)
    problem = op.problems.load("host-train" if name == "grouped_conv" else "host-llm", None, "fp32")[0]
    result = op.kernels.candidates(problem, load_arch("host"), tmp_path)
    for kernel in result.kernels[:40]:
        assert op.kernels.parse(op.kernels.name(kernel)) == kernel
        assert operation_of_kernel(kernel) is op
        assert op.kernels.mismatch(kernel, problem) == ""
    columns = op.kernels.columns(result.kernels[:3], Encoding())
    assert set(columns) < set(op.column_names())
    assert {len(values) for values in columns.values()} == {3}


@pytest.mark.parametrize("arch", ["host", "gfx942"])
@pytest.mark.parametrize("name", ["grouped_conv", "gemm_universal"])
def test_models_and_datasets_describe_kernels_alike(name: str, arch: str, tmp_path: Path) -> None:
    """Datasets and predictions encode kernels in the same columns; on a GPU `mem` is padded whatever its name."""
    op, spec = operation(name), load_arch(arch)
    encoding = Encoding(is_gpu=arch != "host")
    problem: Any = GemmProblem(768, 768, 768, spec.default_dtype)
    if name == "grouped_conv":
        problem = op.problems.load("host-train", None, spec.default_dtype)[0]
    kernels = op.kernels.candidates(problem, spec, tmp_path).kernels[::11]
    kernels += tuple(replace(kernel, pad_m=False) for kernel in kernels if name == "gemm_universal")
    learned, asked = op.kernels.columns(kernels, encoding), op.kernels.features(kernels, encoding)
    for column in asked.keys() & set(op.training.input_columns):
        assert [str(value) for value in learned[column]] == [
            str(value).removesuffix(".0") for value in asked[column].tolist()
        ]
    if name == "gemm_universal":
        pads = {
            (kernel["pipeline"] == "mem", kernel["pad_m"], pad)
            for kernel, pad in zip(map(asdict, kernels), learned["pad_m"], strict=True)
        }
        assert pads >= {(True, True, 1), (False, True, 1), (True, False, 1 if encoding.is_gpu else 0)}


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


@pytest.mark.slow
def test_a_gemm_goes_through_the_whole_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Measured on the host, converted, trained, evaluated and predicted; only correct results have times."""
    problems = tmp_path / "problems.csv"
    sizes = [(17, 40, 33), (64, 64, 64), (1, 96, 50), (30, 30, 80)]
    lines = [f"{m},{n},{k},{layout}" for m, n, k in sizes for layout in ("rcr", "ccr")]
    problems.write_text("\n".join(["m,n,k,layout", *lines]), encoding="utf-8")
    out, data, model = tmp_path / "run", tmp_path / "data.parquet", tmp_path / "model"
    bench = ["bench", "--op", "gemm_universal", "--device", "host", "--problems", str(problems), "--samples", "1"]
    kernels = "pipeline == 'compv3' and tile_m == 64 and tile_n == 64 and pad_m and pad_n and pad_k"
    assert run([*bench, "--filter", kernels, "--out", str(out), "--json"]) == ExitCode.OK
    statuses = json.loads(capsys.readouterr().out)["statuses"]
    assert set(statuses) <= {"ok", "unstable"}
    assert run(["convert", str(out), "--out", str(data)]) == ExitCode.OK
    dataset = read_dataset(data)
    assert dataset.op.name == "gemm_universal"
    assert len(dataset) == sum(statuses.values())
    assert set(dataset.problems()) == {
        GemmProblem(m, n, k, layout=layout) for m, n, k in sizes for layout in ("rcr", "ccr")
    }
    train = ["train", "--data", str(data), "--out", str(model), "--trees", "5", "--leaves", "4", "--folds", "3"]
    assert run(train) == ExitCode.OK
    assert run(["evaluate", "--model", str(model), "--data", str(data), "--with-trained"]) == ExitCode.OK
    capsys.readouterr()
    predict = ["predict", "--m", "100", "--n", "50", "--k", "70", "--layout", "ccr", "--model", str(model), "--json"]
    assert run(predict) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["problem"] == "gemm_fp32_ccr_m100_n50_k70_splitk1"
    assert sum(item["ties"] for item in document["kernels"]) >= 5
    assert all(kernel["kernel"].startswith("gemm_universal_fp32_ccr_") for kernel in document["kernels"])


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
