"""Shared fixtures of the ranking tests: the C part, compiled for them, and an engine with interdependent features."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest

from ckh.data.dataset import read_dataset
from ckh.features.engine import Feature, FeatureEngine
from ckh.learn.models.spec import ANY, ModelSpec
from ckh.ranking import library as c_part
from ckh.ranking.layout import CSRC
from ckh.ranking.lightgbm_text import parse_forest
from ckh.ranking.packed import PackedForest, pack

FEATURES = Path(__file__).with_name("features.c")
SOURCES = [*sorted(str(path) for path in CSRC.glob("*.c") if path.name != "ckh.c"), str(FEATURES)]
COMPILERS = [name for name in ("gcc", "clang", "clang-19") if shutil.which(name)]

DATA = Path(__file__).parents[2] / "data"


def problems_of(spec: ModelSpec) -> list[Any]:
    """Problems of one pool that a shipped model can rank: of its operation's first set, or else of the shipped data."""
    op = spec.op
    if op.problems.set_names():
        variant = None if spec.variant is None else str(spec.variant)
        return list(op.problems.load(op.problems.set_names()[0], variant, None if spec.dtype == ANY else spec.dtype))
    known = read_dataset(DATA / f"{spec.op_type.replace('_', '-')}-{spec.arch}.parquet").problems()
    return [problem for problem in known if op.kernels.key_of(problem) == op.kernels.key_of(known[0])]


def compile_library(target: Path, *flags: str, compiler: str | None = None) -> Path:
    """Compile the C part."""
    language = ["-std=c11", "-ffp-contract=off", "-fPIC", "-shared", "-DCKH_SIZES_ONLY", f"-I{CSRC}"]
    command = [compiler or COMPILERS[0], *language, *flags, *SOURCES, "-o", str(target), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return target


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C part compiled from the current sources, whatever is installed."""
    if not COMPILERS:
        pytest.skip("no C compiler")
    return compile_library(tmp_path_factory.mktemp("library") / "ckh_rank.so", "-O2")


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache per session, so that each forest is built once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(params=["c", "numpy"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each implementation in turn."""
    if request.param == "c":
        monkeypatch.setattr(c_part, "LIBRARY", request.getfixturevalue("library"))
    monkeypatch.setenv("CKH_RANK_BACKEND", request.param)
    return str(request.param)


def _quietly(formula: Any) -> Any:
    def quiet(columns: Any) -> Any:
        with np.errstate(all="ignore"):
            return formula(columns)

    return quiet


_FORMULAS = {
    "p": lambda c: c["p"],
    "q": lambda c: c["q"],
    "a": lambda c: c["a"],
    "b": lambda c: c["b"],
    "u": lambda c: c["u"],
    "v": lambda c: c.codes("v", {"x": 0.0, "y": 1.0, "z": 40.0}, -1.0),
    "p_over_a": lambda c: c["p_over_a"],
    "fill": lambda c: np.mod(c["p_over_a"], 3) * c["hw_units"],
    "q_less_u": lambda c: c["q"] < c["u"],
    "a_if_x": lambda c: np.where(c.raw("v") == "x", c["a"], c["b"]),
    "mixed": lambda c: np.where(c["u"] > 1, c["p_over_a"], c["q"]) + c["b"],
    "units": lambda c: c["hw_units"],
    "kind": lambda c: np.mod(np.rint(c["q"] * 3), 5),
}
ENGINE = FeatureEngine(
    op_type="test",
    features=tuple(Feature(name, "", _quietly(f)) for name, f in _FORMULAS.items()),
    categorical=("v", "b", "kind"),
    derived={"p_over_a": _quietly(lambda c: c["p"] / c["a"])},
    defaults={},
)
HARDWARE = {"units": 4.0}


@dataclass(frozen=True)
class Trained:
    """A LightGBM model and its packed forest."""

    booster: lightgbm.Booster
    forest: PackedForest

    def reference(self, kernels: dict[str, Any], problem: dict[str, Any]) -> np.ndarray:
        """LightGBM's scores of the candidates."""
        return np.asarray(self.booster.predict(ENGINE.matrix({**problem, **kernels}, HARDWARE), raw_score=True))


def random_columns(random: np.random.Generator, rows: int, *, is_product: bool = True) -> dict[str, Any]:
    """Kernel columns: a product of few tiles and variants with gaps, or random rows."""
    if is_product:
        return {
            "a": random.choice([1.0, 2.0, 3.0, 0.0, np.nan, np.inf, 1e300, 5e-324], rows),
            "b": random.integers(-1, 6, rows).astype(float),
            "u": random.choice([0.0, 1.5, 2.5, -1.0], rows),
            "v": random.choice(["x", "y", "z", "w"], rows),
        }
    return {
        "a": random.normal(size=rows),
        "b": random.choice([*range(60), *range(100, 5000, 333)], rows).astype(float),
        "u": random.normal(size=rows),
        "v": random.choice(["x", "y", "z", "w"], rows),
    }


EXTREMES = (0.0, -0.0, 1e-36, -1e-36, 1e-34, 5e-324, -1e-310, 1e300, -1e300, np.inf, -np.inf, np.nan, 1.0, 2.0)


def random_problem(random: np.random.Generator, count: int = 1) -> dict[str, Any]:
    """Problem columns, occasionally extreme."""
    extreme = random.choice(EXTREMES, (2, count))
    plain = random.normal(size=(2, count)) * 3
    p, q = np.where(random.random((2, count)) < 0.2, extreme, plain)
    return {"p": p, "q": q}


@cache
def train(settings: tuple[tuple[str, Any], ...] = (), seed: int = 0, rounds: int = 30) -> Trained:
    """Train a model on random rows."""
    random = np.random.default_rng(seed)
    halves = [random_columns(random, 500), random_columns(random, 500, is_product=False)]
    kernels = {name: np.concatenate([half[name] for half in halves]) for name in halves[0]}
    x = ENGINE.matrix({**random_problem(random, 1000), **kernels}, HARDWARE)
    x[np.isinf(x)] = 7.0
    x[random.random(x.shape) < 0.05] = np.nan
    y = np.nan_to_num(x[:, 0]).clip(-9, 9) * np.sin(np.nan_to_num(x[:, 2])) + x[:, 3] % 3 + (x[:, 5] == 1)
    y = np.nan_to_num(y) + np.nan_to_num(x[:, 10]).clip(-3, 3) + np.nan_to_num(x[:, 9]).clip(-1, 1)
    y += np.isin(x[:, 12], (1, 4)) * np.nan_to_num(x[:, 2]).clip(-1, 1)
    options = {"objective": "regression", "num_leaves": 31, "min_data_in_leaf": 3, "verbose": -1, "seed": seed}
    options |= {"min_data_per_group": 3, "cat_smooth": 1, "num_threads": 1, **dict(settings)}
    data = lightgbm.Dataset(x, y, categorical_feature=[3, 5, 12], params={"verbose": -1, **dict(settings)})
    booster = lightgbm.train(options, data, num_boost_round=rounds)
    return Trained(booster, pack(parse_forest(booster.model_to_string())))
