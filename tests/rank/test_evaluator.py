"""Partial evaluation gives what LightGBM gives, in either implementation."""

from __future__ import annotations

import gzip
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckh.archs import load_arch
from ckh.errors import DataError, ModelError, UsageError
from ckh.learn.artifact import list_models, load_model
from ckh.learn.spec import ANY
from ckh.rank import partial_c, partial_numpy, plan
from ckh.rank.evaluator import Ranker, backend_name, best_first
from ckh.rank.forest_file import open_forest

from .conftest import ENGINE, HARDWARE, Trained, random_columns, random_problem, train

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODELS = Path(__file__).parents[2] / "models"
SETTINGS: list[tuple[tuple[str, Any], ...]] = [
    (),
    (("zero_as_missing", True),),
    (("use_missing", False),),
    (("max_cat_to_onehot", 1),),
    (("objective", "quantile"), ("num_leaves", 63)),
]
hypothesis_settings = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def _ranker(model: Trained, kernels: dict[str, Any]) -> Ranker:
    return Ranker([model.forest], ENGINE, ENGINE.names, HARDWARE, kernels, {"p": [1.0], "q": [1.0]})


def _assert_same(ours: NDArray[np.float64], reference: NDArray[np.float64], booster: lightgbm.Booster) -> None:
    """Scores equal to 1e-12 of the larger of score and leaf; the order is LightGBM's but for its rounding errors."""
    largest = max(abs(booster.lower_bound()), abs(booster.upper_bound()))
    np.testing.assert_allclose(ours, reference, rtol=1e-12, atol=1e-14 * largest)
    in_order = reference[best_first(ours)]
    assert (np.diff(in_order) <= 1e-14 * largest).all()


@pytest.mark.parametrize("is_product", [True, False], ids=["product", "anything"])
@pytest.mark.parametrize("options", SETTINGS, ids=str)
@hypothesis_settings
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 300), problems=st.integers(1, 3))
def test_scores_and_order_are_those_of_lightgbm(
    backend: str, options: tuple[tuple[str, Any], ...], is_product: bool, seed: int, rows: int, problems: int
) -> None:
    """Random pools and problems, with NaN, infinity, zeros of both signs and unknown categories."""
    random = np.random.default_rng(seed)
    model = train(options, seed % 3)
    kernels = random_columns(random, rows, is_product=is_product)
    columns = random_problem(random, problems)
    scores = _ranker(model, kernels).scores(columns)[0]
    for index, row in enumerate(scores):
        problem = {name: column[index : index + 1] for name, column in columns.items()}
        _assert_same(row, model.reference(kernels, problem), model.booster)


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 400))
@hypothesis_settings
def test_both_implementations_agree_bit_for_bit(library: Path, seed: int, rows: int) -> None:
    """Sums of leaves are exact, so that neither implementation nor processor changes a score."""
    random = np.random.default_rng(seed)
    ranker = _ranker(train((), seed % 3), random_columns(random, rows))
    values = ranker._pool.values(random_problem(random, 2), 2)
    results = np.empty((3, 2, ranker.candidates))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_c, "LIBRARY", library)
        partial_c.scores(ranker._plans[0], values, results[0])
        partial_c.scores(ranker._plans[0], values, results[1], is_portable=True)
    partial_numpy.scores(ranker._plans[0], values, results[2])
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


def test_candidates_that_differ_in_nothing_tie_in_their_order(backend: str) -> None:
    """Of equal candidates the first comes first, however the pool is taken apart."""
    random = np.random.default_rng(5)
    once = random_columns(random, 60)
    kernels = {name: np.concatenate([column, column]) for name, column in once.items()}
    ranker = _ranker(train(), kernels)
    scores = ranker.scores(random_problem(random))[0, 0]
    assert np.array_equal(scores[:60], scores[60:])
    place = np.argsort(best_first(scores))
    assert (place[:60] < place[60:]).all()


def test_a_product_is_taken_apart() -> None:
    """Columns that no problem-dependent feature reads become variants: fewer keys than candidates."""
    grid = np.meshgrid([1.0, 2.0, 3.0, 4.0], np.arange(12.0), [0.0, 2.0], [0, 1, 2], indexing="ij")
    a, b, u, v = (axis.ravel() for axis in grid)
    kernels = {"a": a, "b": b, "u": u, "v": np.array(["x", "y", "z"])[v.astype(int)]}
    tiles, variants = _ranker(train(), kernels).shape
    assert tiles * variants == len(a)
    assert min(tiles, variants) > 1


def test_pools_larger_than_a_block(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of many tiles is ranked block by block."""
    monkeypatch.setattr(plan, "BLOCK", 100)
    random = np.random.default_rng(1)
    kernels, problem = random_columns(random, 350, is_product=False), random_problem(random)
    model = train()
    ranker = _ranker(model, kernels)
    assert len(ranker._plans[0].blocks) > 1
    _assert_same(ranker.scores(problem)[0, 0], model.reference(kernels, problem), model.booster)


def test_trees_of_one_leaf(backend: str) -> None:
    """A model that found nothing to split gives every candidate its constant."""
    data = lightgbm.Dataset(np.zeros((50, len(ENGINE.names))), np.full(50, 3.5), params={"verbose": -1})
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, data, num_boost_round=3)
    from ckh.rank.lightgbm_text import parse_forest
    from ckh.rank.packed import pack

    model = Trained(booster, pack(parse_forest(booster.model_to_string())))
    kernels = random_columns(np.random.default_rng(0), 7)
    scores = _ranker(model, kernels).scores({"p": np.ones(2), "q": np.ones(2)})
    np.testing.assert_allclose(scores, 3.5, rtol=1e-12)
    assert scores.shape == (1, 2, 7)


@pytest.mark.parametrize("folder", [ref.path for ref in list_models([MODELS])], ids=lambda path: path.name)
def test_shipped_models_rank_as_lightgbm(
    backend: str, folder: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every shipped model over its whole pool orders candidates exactly as LightGBM does."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(shared_cache))
    model = load_model(folder)
    spec, op = model.spec, model.spec.op
    variant = None if spec.variant is None else str(spec.variant)
    some = op.load_problems(op.set_names()[0], variant, None if spec.dtype == ANY else spec.dtype)
    kernels = op.candidates(some[0], load_arch(spec.arch), folder).kernels
    columns = op.kernel_features(kernels, spec.legacy_tiles)
    problems = [op.problem_features(problem) for problem in some[:: len(some) // 4 + 1]]
    targets = sorted(path.name.split("_")[1].split(".")[0] for path in folder.glob("*.lgbm.gz"))
    forests = [open_forest(folder / f"model_{target}.lgbm.gz") for target in targets]
    ranker = Ranker(forests, spec.engine, spec.feature_names, model.hardware, columns, problems[0])
    together = {name: np.concatenate([problem[name] for problem in problems]) for name in problems[0]}
    scores = ranker.scores(together)
    for target, of_target in zip(targets, scores, strict=True):
        booster = lightgbm.Booster(
            model_str=gzip.decompress((folder / f"model_{target}.lgbm.gz").read_bytes()).decode()
        )
        for problem, ours in zip(problems, of_target, strict=True):
            matrix = spec.engine.matrix({**problem, **columns}, model.hardware, spec.feature_names)
            reference = np.asarray(booster.predict(matrix, raw_score=True, num_threads=1))
            np.testing.assert_allclose(ours, reference, rtol=1e-12, atol=1e-13)
            assert np.array_equal(best_first(ours), best_first(reference))


def test_many_threads_at_once(backend: str) -> None:
    """Rankers are shared between threads."""
    random = np.random.default_rng(3)
    ranker = _ranker(train(), random_columns(random, 200))
    problems = random_problem(random, 8)
    expected = ranker.scores(problems)
    found: list[NDArray[np.float64]] = []
    threads = [threading.Thread(target=lambda: found.append(ranker.scores(problems))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert all(np.array_equal(expected, other) for other in found)


def test_wrong_inputs_are_refused() -> None:
    """A missing column, an empty pool and a model of other inputs are errors that say so."""
    kernels = random_columns(np.random.default_rng(0), 5)
    ranker = _ranker(train(), kernels)
    with pytest.raises(DataError, match="'q'"):
        ranker.scores({"p": [1.0]})
    with pytest.raises(DataError, match="candidates"):
        _ranker(train(), {name: column[:0] for name, column in kernels.items()})
    with pytest.raises(ModelError, match="12 inputs got 3"):
        Ranker([train().forest], ENGINE, ENGINE.names[:3], HARDWARE, kernels, {"p": [1.0], "q": [1.0]})


def test_the_variable_chooses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: Path) -> None:
    """$CKH_RANK_BACKEND forces an implementation, and asking for C where there is none is an error."""
    monkeypatch.delenv("CKH_RANK_BACKEND", raising=False)
    monkeypatch.setattr(partial_c, "LIBRARY", library)
    assert backend_name() == "c"
    monkeypatch.setattr(partial_c, "LIBRARY", tmp_path / "missing.so")
    assert backend_name() == "numpy"
    monkeypatch.setenv("CKH_RANK_BACKEND", "c")
    with pytest.raises(UsageError, match="without a C compiler"):
        backend_name()
    monkeypatch.setenv("CKH_RANK_BACKEND", "fortran")
    with pytest.raises(UsageError, match="fortran"):
        backend_name()
