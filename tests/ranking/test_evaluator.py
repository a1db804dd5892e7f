"""Partial evaluation gives LightGBM's scores, in either implementation."""

from __future__ import annotations

import gzip
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckh.archs import load_arch
from ckh.errors import DataError, ModelError, UsageError
from ckh.learn.models.artifact import list_models, load_model
from ckh.ranking import library as c_part
from ckh.ranking import model_file, pool
from ckh.ranking.evaluator import Ranker, backend_name, best_first
from ckh.ranking.forest_file import open_forest
from ckh.ranking.lightgbm_text import parse_forest
from ckh.ranking.packed import pack
from tests.refusals import expect_refusal

from .conftest import ENGINE, HARDWARE, Trained, problems_of, random_columns, random_problem, train
from .fuzz import portable_scores

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """Scores agree to 1e-12 of the larger of score and leaf; the order is LightGBM's up to rounding errors."""
    largest = max(abs(booster.lower_bound()), abs(booster.upper_bound()))
    np.testing.assert_allclose(ours, reference, rtol=1e-12, atol=1e-14 * largest)
    in_order = reference[best_first(ours)]
    assert (np.diff(in_order) <= 1e-14 * largest).all()


@pytest.mark.slow
@pytest.mark.parametrize("is_product", [True, False], ids=["product", "anything"])
@pytest.mark.parametrize("options", SETTINGS, ids=str)
@hypothesis_settings
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 300), problems=st.integers(1, 3))
def test_scores_and_order_equal_lightgbm(
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


@pytest.mark.slow
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 400), problems=st.sampled_from([2, 2, 2, 64, 131]))
@hypothesis_settings
def test_both_implementations_agree_bit_for_bit(library: Path, seed: int, rows: int, problems: int) -> None:
    """Sums of leaves are exact: implementation, processor and other problems do not affect a score."""
    random = np.random.default_rng(seed)
    columns = random_problem(random, problems)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(c_part, "LIBRARY", library)
        ranker = _ranker(train((), seed % 3), random_columns(random, rows))
        ours = ranker.scores(columns)
        portable = portable_scores(ranker, columns)
        patch.setenv("CKH_RANK_BACKEND", "numpy")
        assert ours.tobytes() == portable.tobytes() == ranker.scores(columns).tobytes()


@pytest.mark.slow
def test_logarithmic_scores_are_converted(backend: str) -> None:
    """Each forest's scores are converted separately, exp(x) - 1."""
    random = np.random.default_rng(7)
    kernels, problem, forest = random_columns(random, 90), random_problem(random, 3), train().forest
    given = ([forest, forest], ENGINE, ENGINE.names, HARDWARE, kernels, {"p": [1.0], "q": [1.0]})
    raw, told = Ranker(*given).scores(problem), Ranker(*given, [False, True]).scores(problem)
    assert np.array_equal(raw, told[[0, 0]])
    some = random.integers(0, 90, (3, 11))
    assert np.array_equal(Ranker(*given, [False, True]).some(problem, some, 1), np.take_along_axis(told[1], some, 1))
    np.testing.assert_allclose(told[1], np.expm1(raw[1]), rtol=1e-15)


def test_other_features_are_computed_by_numpy(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole pool is then ranked by NumPy, with the same scores."""
    monkeypatch.setattr(c_part, "LIBRARY", library)
    odd = replace(ENGINE.features[0], formula=lambda c: np.sort(c["p"]))
    engine = replace(ENGINE, features=(odd, *ENGINE.features[1:]))
    random = np.random.default_rng(8)
    kernels, problem = random_columns(random, 50), random_problem(random, 2)
    given = (ENGINE.names, HARDWARE, kernels, {"p": [1.0], "q": [1.0]})
    ranker = Ranker([train().forest], engine, *given)
    assert ranker.shape is None
    assert np.array_equal(ranker.scores(problem), Ranker([train().forest], ENGINE, *given).scores(problem))


def test_problems_of_several_texts_are_scored_together(backend: str) -> None:
    """Each has the same scores as alone."""
    features = (*ENGINE.features[1:], replace(ENGINE.features[0], formula=lambda c: c.codes("t", {"x": 1.0}, 5.0)))
    engine, random = replace(ENGINE, features=features), np.random.default_rng(9)
    kernels, problems = random_columns(random, 40), random_problem(random, 9)
    problems["t"] = random.choice(["x", "y"], 9)
    ranker = Ranker([train().forest], engine, ENGINE.names, HARDWARE, kernels, {"p": [1.0], "q": [1.0], "t": ["x"]})
    together = ranker.scores(problems)[0]
    for index, row in enumerate(together):
        assert np.array_equal(row, ranker.scores({name: c[[index]] for name, c in problems.items()})[0, 0])
    assert len(np.unique(together, axis=0)) > 5
    some = random.integers(0, 40, (9, 5))
    assert np.array_equal(ranker.some(problems, some, 0), np.take_along_axis(together, some, 1))


def _huge() -> Trained:
    """A model whose leaves need two integers."""
    booster = lightgbm.Booster(model_str=train().booster.model_to_string())
    for tree, value in ((0, 1e9), (7, -3e11), (20, 1e4)):
        booster.set_leaf_output(tree, 2, value)
    return Trained(booster, pack(parse_forest(booster.model_to_string())))


@pytest.mark.parametrize("rows", [1, 40, 700])
@pytest.mark.parametrize("is_product", [True, False], ids=["product", "anything"])
@pytest.mark.parametrize("model", [train, _huge], ids=["one integer", "two"])
def test_many_problems_together_score_as_each_alone(
    library: Path, model: Callable[[], Trained], monkeypatch: pytest.MonkeyPatch, rows: int, *, is_product: bool
) -> None:
    """Up to 64 problems walk the trees together, and what is left over one by one: to the last bit the same.

    The same where each of some candidates walks by itself.
    """
    monkeypatch.setattr(c_part, "LIBRARY", library)
    random = np.random.default_rng(rows)
    ranker = _ranker(model(), random_columns(random, rows, is_product=is_product))
    problems = random_problem(random, 150)
    together = ranker.scores(problems)[0]
    for index, row in enumerate(together):
        alone = ranker.scores({name: column[index : index + 1] for name, column in problems.items()})[0, 0]
        assert alone.tobytes() == row.tobytes()
    some = random.integers(0, rows, (150, 9))
    assert ranker.some(problems, some, 0).tobytes() == np.take_along_axis(together, some, 1).tobytes()
    assert len(np.unique(together, axis=0)) > 30


def test_equal_candidates_tie_in_order(backend: str) -> None:
    """The first of equal candidates comes first, however the pool is factored."""
    random = np.random.default_rng(5)
    once = random_columns(random, 60)
    kernels = {name: np.concatenate([column, column]) for name, column in once.items()}
    ranker = _ranker(train(), kernels)
    scores = ranker.scores(random_problem(random))[0, 0]
    assert np.array_equal(scores[:60], scores[60:])
    place = np.argsort(best_first(scores))
    assert (place[:60] < place[60:]).all()


def test_a_product_is_factored(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that no problem-dependent feature reads become variants: fewer keys than candidates."""
    grid = np.meshgrid([1.0, 2.0, 3.0, 4.0], np.arange(12.0), [0.0, 2.0], [0, 1, 2], indexing="ij")
    a, b, u, v = (axis.ravel() for axis in grid)
    kernels = {"a": a, "b": b, "u": u, "v": np.array(["x", "y", "z"])[v.astype(int)]}
    monkeypatch.setattr(c_part, "LIBRARY", library)
    shape = _ranker(train(), kernels).shape
    assert shape is not None
    tiles, variants = shape
    assert tiles * variants == len(a)
    assert min(tiles, variants) > 1


def test_more_than_a_word_of_tiles_and_of_variants(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit sets of both halves have several words, and not every tile has every variant."""
    monkeypatch.setattr(pool, "split", lambda *_: frozenset("au"))
    random = np.random.default_rng(2)
    grid = np.meshgrid(np.arange(1.0, 13.0), np.arange(30.0), np.linspace(-2, 3, 9), np.arange(4), indexing="ij")
    chosen = random.random(grid[0].size) < 0.3
    a, b, u, v = (axis.ravel()[chosen] for axis in grid)
    kernels = {"a": a, "b": b, "u": u, "v": np.array(["x", "y", "z", "w"])[v.astype(int)]}
    for seed in range(3):
        model = train((), seed)
        ranker = _ranker(model, kernels)
        assert ranker.shape == ((12 * 9, 30 * 4) if backend == "c" else None)
        assert ranker.candidates < 12 * 9 * 30 * 4
        problem = random_problem(random)
        _assert_same(ranker.scores(problem)[0, 0], model.reference(kernels, problem), model.booster)


def test_one_candidate(backend: str) -> None:
    """A pool may have a single kernel."""
    random = np.random.default_rng(4)
    kernels, problem, model = random_columns(random, 1), random_problem(random), train()
    scores = _ranker(model, kernels).scores(problem)
    assert scores.shape == (1, 1, 1)
    _assert_same(scores[0, 0], model.reference(kernels, problem), model.booster)


def test_huge_leaves_cost_no_precision(backend: str) -> None:
    """A leaf is stored as two integers where one is not enough."""
    assert not train().forest.leaves[:, 1].any()
    model = _huge()
    assert model.forest.leaves[:, 1].any()
    random = np.random.default_rng(6)
    kernels = random_columns(random, 300)
    ordinary = 0
    for _ in range(5):
        problem = random_problem(random)
        reference = model.reference(kernels, problem)
        some = np.abs(reference) < 1e3
        ordinary += int(some.sum())
        ours = _ranker(model, kernels).scores(problem)[0, 0]
        np.testing.assert_allclose(ours[some], reference[some], rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(ours, reference, rtol=1e-12, atol=1e-13)
    assert 0 < ordinary < 5 * 300


def test_pools_larger_than_a_block(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of many tiles is ranked block by block."""
    monkeypatch.setattr(model_file, "BLOCK", 100)
    random = np.random.default_rng(1)
    kernels, problem = random_columns(random, 350, is_product=False), random_problem(random)
    model = train()
    ranker = _ranker(model, kernels)
    assert ranker.shape is None or ranker.shape[0] > 100
    _assert_same(ranker.scores(problem)[0, 0], model.reference(kernels, problem), model.booster)


def test_trees_of_one_leaf(backend: str) -> None:
    """A model without splits gives every candidate its constant."""
    data = lightgbm.Dataset(np.zeros((50, len(ENGINE.names))), np.full(50, 3.5), params={"verbose": -1})
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, data, num_boost_round=3)
    model = Trained(booster, pack(parse_forest(booster.model_to_string())))
    kernels = random_columns(np.random.default_rng(0), 7)
    scores = _ranker(model, kernels).scores({"p": np.ones(2), "q": np.ones(2)})
    np.testing.assert_allclose(scores, 3.5, rtol=1e-12)
    assert scores.shape == (1, 2, 7)


@pytest.mark.slow
@pytest.mark.parametrize("folder", [ref.path for ref in list_models([MODELS])], ids=lambda path: path.name)
def test_shipped_models_rank_as_lightgbm(
    backend: str, folder: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every shipped model over its whole pool orders candidates exactly as LightGBM does."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(shared_cache))
    model = load_model(folder)
    spec, op = model.spec, model.spec.op
    some = problems_of(spec)
    kernels = op.kernels.candidates(some[0], load_arch(spec.arch), folder).kernels
    columns = op.kernels.features(kernels, spec.encoding)
    problems = [op.problems.features([problem]) for problem in some[:: len(some) // 4 + 1]]
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


@pytest.mark.slow
def test_many_threads_at_once(backend: str) -> None:
    """Rankers are shared between threads that rank different problems."""
    random = np.random.default_rng(3)
    ranker = _ranker(train(), random_columns(random, 200))
    problems = [random_problem(random, 3) for _ in range(6)]
    expected = [ranker.scores(some) for some in problems]
    result: list[list[NDArray[np.float64]]] = [[] for _ in problems]
    start = threading.Barrier(len(problems))

    def work(index: int) -> None:
        start.wait()
        result[index] += [ranker.scores(problems[index]) for _ in range(10)]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(problems))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ours, scores in zip(result, expected, strict=True):
        assert len(ours) == 10
        assert all(np.array_equal(scores, other) for other in ours)


def test_wrong_inputs_are_refused() -> None:
    """A missing column, an empty pool and a model of other inputs are errors."""
    kernels = random_columns(np.random.default_rng(0), 5)
    ranker = _ranker(train(), kernels)
    with pytest.raises(DataError, match="'q'"):
        ranker.scores({"p": [1.0]})
    with pytest.raises(DataError, match="candidates"):
        _ranker(train(), {name: column[:0] for name, column in kernels.items()})
    with expect_refusal(ModelError, "model-inputs", "13", "3"):
        Ranker([train().forest], ENGINE, ENGINE.names[:3], HARDWARE, kernels, {"p": [1.0], "q": [1.0]})


def test_the_environment_variable_selects_the_backend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: Path
) -> None:
    """$CKH_RANK_BACKEND selects an implementation; requesting C where it is missing is an error."""
    monkeypatch.delenv("CKH_RANK_BACKEND", raising=False)
    monkeypatch.setattr(c_part, "LIBRARY", library)
    assert backend_name() == "c"
    monkeypatch.setattr(c_part, "LIBRARY", tmp_path / "missing.so")
    assert backend_name() == "numpy"
    monkeypatch.setenv("CKH_RANK_BACKEND", "c")
    with expect_refusal(UsageError, "no-c-backend"):
        backend_name()
    monkeypatch.setenv("CKH_RANK_BACKEND", "fortran")
    with pytest.raises(UsageError, match="fortran"):
        backend_name()
