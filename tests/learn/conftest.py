"""A synthetic dataset of the host's kernels, and small models of it, built once for all tests."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.data.dataset import Dataset
from ckh.data.rows import Origin, Pairs, Results, build_table, status_of
from ckh.data.tables import to_pandas
from ckh.learn.models.artifact import load_model
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.ops.grouped_conv.features import GROUPED_CONV
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.schema import Status
from ckh.training import TARGETS, RankObjective, TrainOptions, TreeParams

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import lightgbm
    from numpy.typing import NDArray

    from ckh.learn.training.trained import Trained
    from ckh.ops.grouped_conv.kernel import ConvKernel

HOST = load_arch("host")
# The profile of a fictitious machine: training must not depend on the machine that runs the tests.
HARDWARE = HOST.hardware.to_dict() | {"num_cus": 3, "l2_cache_kb": 768}
TREES = TreeParams(n_estimators=12, learning_rate=0.3, num_leaves=7, min_child_samples=3, colsample_bytree=0.5)

GFX950 = load_arch("gfx950")
AMD_KERNELS = conv_pool(Direction.FORWARD, GFX950, 2, "bf16")
AMD_PROBLEMS = [
    ConvProblem(Direction.FORWARD, 4, c, k, g, 28, 28, 3, 3, pad_h=1, pad_w=1, dtype="bf16")
    for c, k, g in ((64, 64, 1), (256, 64, 1), (32, 128, 2), (512, 512, 1))
]

_SIZES = [(1, 64, 64, 1, 28), (1, 64, 128, 1, 14), (2, 32, 32, 32, 28), (4, 128, 32, 1, 7), (16, 16, 16, 4, 14)]
_SIZES += [(1, 8, 96, 1, 56), (9, 256, 64, 1, 7)]


def problems(variant: Direction = Direction.FORWARD) -> list[ConvProblem]:
    """Fourteen problems: seven sizes, each with stride 1 and 2; the last size in 3D."""
    made = []
    for n, c, k, g, hi in _SIZES:
        for stride in (1, 2):
            steps: dict[str, Any] = {"stride_h": stride, "stride_w": stride, "pad_h": 1, "pad_w": 1}
            depth: dict[str, Any] = {"ndim": 3, "di": 4, "z": 3, "pad_d": 1} if c == 256 else {}
            made.append(ConvProblem(variant, n, c, k, g, hi, hi, 3, 3, **steps, **depth))
    return made


def kernels(variant: Direction = Direction.FORWARD, ndim: int = 2) -> tuple[ConvKernel, ...]:
    """Every thirteenth kernel of the host's pool: 24 of them, of all ten tiles and all pipelines."""
    return conv_pool(variant, HOST, ndim)[::13]


def time_ms(problem: ConvProblem, kernel: ConvKernel) -> float:
    """A formula that favours tiles as large as the problem, and some pipelines."""
    m, n, k = problem.gemm_sizes
    tile = (kernel.tile_m, kernel.tile_n, kernel.tile_k)
    padded = np.prod([-(-size // step) * step for size, step in zip((m, n, k), tile, strict=True)])
    reuse = 1 / kernel.tile_m + 1 / kernel.tile_n
    penalty = {"compv3": 1.0, "mem": 1.2, "basic_v1": 1.4}.get(kernel.pipeline, 1.1)
    return float(problem.g * padded * (0.02 + reuse) * penalty * 1e-8 + 1e-3)


def build(rows: Sequence[tuple[ConvProblem, ConvKernel, float]], failed: Sequence[int] = ()) -> Dataset:
    """A dataset of (problem, kernel, ms) rows; rows with an index in `failed` have a wrong result."""
    where = list(dict.fromkeys(problem for problem, _, _ in rows))
    what = list(dict.fromkeys(kernel for _, kernel, _ in rows))
    pairs = Pairs(
        problems=where,
        problem_of_row=np.array([where.index(problem) for problem, _, _ in rows]),
        kernels=what,
        kernel_names=[kernel_name(kernel) for kernel in what],
        kernel_of_row=np.array([what.index(kernel) for _, kernel, _ in rows]),
        op_type="grouped_conv",
    )
    ok = ~np.isin(np.arange(len(rows)), failed)
    latency_ms = np.where(ok, [ms for _, _, ms in rows], np.nan)
    spread = np.where(ok, 0.02, np.nan)
    results = Results(status_of(ok, Status.WRONG_RESULT), latency_ms, {"spread": spread})
    table = build_table(pairs, results, Origin("host", "a test", HARDWARE, "run1"))
    return Dataset(to_pandas(table))


@cache
def measured(variant: Direction = Direction.FORWARD) -> Dataset:
    """All problems with 24 kernels each, with 3 % noise, every 29th row a failure."""
    random = np.random.default_rng(7)
    rows = [
        (problem, kernel, time_ms(problem, kernel) * float(np.exp(random.normal(scale=0.03))))
        for problem in problems(variant)
        for kernel in kernels(variant, problem.ndim)
    ]
    return build(rows, range(5, len(rows), 29))


@cache
def trained(rank: RankObjective = RankObjective.RELATIVE, seed: int = 42, jobs: int = 1) -> Trained:
    """Small models of the measured dataset, the same whichever test needs them first."""
    options = TrainOptions(TARGETS, rank, folds=4, early_stopping=5, seed=seed, jobs=jobs, params=TREES)
    return train(measured(), options, lambda _steps, _text: None)


def saved(folder: Path, rank: RankObjective = RankObjective.RELATIVE, seed: int = 42, jobs: int = 1) -> Path:
    """Save those models in a folder."""
    save(trained(rank, seed, jobs), folder)
    return folder


def efficiencies(folder: Path) -> NDArray[np.float64]:
    """Efficiency of a model's choice on each measured problem, by a loop over the rows."""
    data = measured()
    scores = load_model(folder).scores(data)
    ms = np.where(data.frame["is_valid"], data.frame["latency_ms"], np.inf)
    rows = [np.flatnonzero(data.problem_ids == number) for number in range(len(problems()))]
    return np.array([ms[of].min() / ms[of[np.argmax(scores[of])]] for of in rows])


def amd_matrix(
    problem: ConvProblem, of: Sequence[ConvKernel], names: Sequence[str], *, is_legacy: bool = True
) -> NDArray[np.float64]:
    """Features as computed by AMD's tools, or with the tiles' true names; written out, without `kernel_columns`."""
    tiles = [
        (kernel.tile_m, kernel.tile_n, kernel.tile_k) if is_legacy else (kernel.tile_k, kernel.tile_m, kernel.tile_n)
        for kernel in of
    ]
    columns: dict[str, Any] = {name: [float(size)] for name, size in problem.columns().items()}
    columns |= {"variant": [str(problem.variant)], "dtype": [problem.dtype]}
    columns |= dict(zip(("block_size", "gemm_m_per_block", "gemm_n_per_block"), zip(*tiles, strict=True), strict=True))
    columns |= {"pipeline": [kernel.pipeline for kernel in of], "wave_mode": [str(kernel.scheduler) for kernel in of]}
    columns |= {
        "has_dsb": [kernel.double_smem_buffer for kernel in of],
        "has_si": [kernel.split_image for kernel in of],
    }
    return GROUPED_CONV.matrix(columns, GFX950.hardware.to_dict(), names)


def amd_model(folder: Path, names: Sequence[str], **changes: Any) -> lightgbm.Booster:
    """Write a model directory with AMD's files and keys; keys given as None are left out."""
    import lightgbm

    matrices = [amd_matrix(problem, AMD_KERNELS, names) for problem in AMD_PROBLEMS]
    speeds = [problem.flops / time_ms(problem, item) * 1e-9 for problem in AMD_PROBLEMS for item in AMD_KERNELS]
    data = lightgbm.Dataset(np.concatenate(matrices), np.log1p(speeds), feature_name=list(names))
    params = {"objective": "regression", "verbose": -1, "num_leaves": 15, "min_data_in_leaf": 3, "num_threads": 1}
    booster = lightgbm.train(params, data, num_boost_round=12)
    folder.mkdir(parents=True)
    (folder / "model_tflops.lgbm").write_text(booster.model_to_string(), encoding="utf-8")
    spec = {
        "op_type": "grouped_conv",
        "feature_encoding_version": 0,
        "feature_engine": "grouped_conv",
        "hardware": GFX950.hardware.to_dict(),
        "dtype": "bf16",
        "arch": "gfx950",
        "feature_names": list(names),
        "categorical_features": ["pipeline"],
        "targets": ["tflops"],
        "log_targets": ["tflops"],
        "params": {"num_leaves": 15},
    }
    kept = {name: value for name, value in (spec | changes).items() if value is not None}
    (folder / "feature_spec.json").write_text(json.dumps(kept), encoding="utf-8")
    return booster


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    """The measured dataset."""
    return measured()


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """A separate model for each test, ranked by the relative objective."""
    return saved(tmp_path / "host_forward")


def silent(model: Path) -> Path:
    """The model without the ids of its training problems, like AMD's."""
    path = model / "train_manifest.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["ckh"]["problems"] = None
    path.write_text(json.dumps(document), encoding="utf-8")
    return model
