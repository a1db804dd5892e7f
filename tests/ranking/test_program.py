"""Programs compute the same values as formulas, and refuse what they cannot compute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckh.archs import load_arch
from ckh.features.engine import Feature, FeatureEngine
from ckh.learn.models.artifact import list_models, load_model
from ckh.ranking.program import Graph
from ckh.ranking.symbolic import FormulaError, SymbolicColumns

from .computing import by_formulas, computed
from .conftest import EXTREMES, problems_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.features.engine import Columns

MODELS = Path(__file__).parents[2] / "models"
_SIZES = "pqr"
# The C library rounds these in the last bit as it likes.
_ROUNDED = ("logarithm", "logarithm_of_logarithm", "exponentials")


def _whole(c: Any) -> Any:
    return np.maximum(c["p"], 1).astype(np.int64)


# p, q and r are a problem's numbers, t its text; a and b are the tile's, u and v the variant's.
_FORMULAS: dict[str, Callable[[Any], Any]] = {
    "add": lambda c: c["p"] + c["q"] + 1,
    "subtract": lambda c: 2 - c["p"] - c["a"],
    "multiply": lambda c: c["a"] * c["p"] * c["q"],
    "divide": lambda c: c["p"] / c["q"] / c["a"],
    "floor_divide": lambda c: c["p"] // c["q"],
    "floor_divide_tile": lambda c: c["p"] // c["a"],
    "remainder": lambda c: np.mod(c["p"], c["q"]),
    "remainder_tile": lambda c: c["p"] % c["a"],
    "extremes": lambda c: np.maximum(c["p"], c["q"]) + np.minimum(c["p"], c["a"]),
    "comparisons": lambda c: ((c["p"] < c["q"]) & (c["p"] <= c["a"])) | ((c["q"] > c["a"]) & ~(c["q"] >= c["b"])),
    "equal": lambda c: np.logical_or(c["p"] == c["q"], np.logical_and(c["p"] != c["a"], np.logical_not(c["p"] > 1))),
    "parts": lambda c: np.ceil(c["p"] / 3) + np.floor(c["q"] * c["a"]) - np.abs(-c["p"]),
    "where": lambda c: np.where(c["p"] > c["a"], c["q"], np.where(np.isnan(c["p"]), c["b"], 7)),
    "where_static": lambda c: np.where(c["a"] > 1, c["p"], c["q"] * c["b"]),
    "logarithm": lambda c: np.log2(np.maximum(c["p"], 1)) + np.sqrt(np.abs(c["q"] * c["a"])),
    "logarithm_of_logarithm": lambda c: np.log1p(np.log2(np.maximum(c["p"] * c["a"], 1)) * 3) < c["b"],
    "class": lambda c: c["p"] * c["u"],
    "class_and_tile": lambda c: np.where(c["u"] > 1, c["p"] / c["a"], c["q"]) + c["b"] * c["u"],
    "truth_by_class": lambda c: c["q"] < c["u"],
    "text": lambda c: np.where(c.raw("t") == "x", c["p"], c["q"]) + c.codes("t", {"x": 1.0}, 5.0),
    "select": lambda c: np.select([c.raw("t") == "x", c["p"] > 1], [c["q"], c["a"]], 3.0),
    "several": lambda c: np.prod(np.broadcast_arrays(c["p"], c["q"], c["a"]), axis=0),
    "all_of_several": lambda c: np.logical_and.reduce(np.broadcast_arrays(c["p"] == 1, c["q"] > 0)),
    "aligned": lambda c: np.minimum(_whole(c) & -_whole(c), 64.0),
    "clipped": lambda c: np.clip(c["p"], -2, c["a"]),
    "truth_and_whole": lambda c: (c["p"] > c["a"]) & 2,
    "itself": lambda c: c["p"],
    "again": lambda c: c["p"],
    "rounded": lambda c: np.ceil(c["p"]) + 10 * np.floor(c["q"]) + 100 * np.rint(c["p"]) + np.trunc(c["q"]),
    "no_numbers": lambda c: (
        np.minimum(c["p"], np.inf) + np.maximum(c["q"], -np.inf) + np.where(c["p"] > 1, np.inf, 1.0)
    ),
    "not_one": lambda c: np.where(c["p"] > c["q"], np.nan, c["q"]),
    "negative": lambda c: -c["p"],
    "zeros": lambda c: np.where(c["p"] > 1, -0.0, 0.0) / c["a"],
    "exclusive": lambda c: (c["p"] != c["q"]) ^ (c["q"] >= 1),
    "sum_of_truths": lambda c: sum((np.mod(c["p"], 2.0**power) == 0).astype(float) for power in range(1, 4)),
    "truths_as_numbers": lambda c: (c["p"] > 0).astype(float) * c["q"],
    "truths_by_truths": lambda c: np.where(c["p"] > 1, c["q"] > 1, c["a"] > 1) + np.where(c["q"] > 1, 2, _whole(c)),
    "chosen_here": lambda c: np.where(np.array([True]), c["p"], c["q"]),
    "integers": lambda c: (_whole(c) & -_whole(c)) * 3 + (_whole(c) | 1) - (-_whole(c)),
    "integers_compared": lambda c: (_whole(c) < 3) + (_whole(c) >= 2) + (_whole(c) == 1) * 2.0,
    "finite": lambda c: np.isfinite(c["p"]) & ~np.isnan(c["q"]),
    "with_an_array": lambda c: c["p"] * np.array([2.5]) + np.array([True]),
    "a_constant": lambda _: np.array([7.5]),
    "exponentials": lambda c: np.exp(np.minimum(c["p"], 3)) + np.exp2(np.minimum(c["q"], 3)) + np.expm1(c["a"] % 2),
}


def _quietly(formula: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def quiet(columns: Any) -> Any:
        with np.errstate(all="ignore"):
            return formula(columns)

    return quiet


_ENGINE = FeatureEngine("test", tuple(Feature(n, "", _quietly(f)) for n, f in _FORMULAS.items()), (), {}, {})


def _assert_equal(ours: Any, reference: Any, names: tuple[str, ...]) -> None:
    for index, name in enumerate(names):
        pair = ours[..., index], reference[..., index]
        if name in _ROUNDED:
            np.testing.assert_allclose(*pair, rtol=4e-16, err_msg=name)
        else:
            np.testing.assert_array_equal(*pair, err_msg=name)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    tiles=st.sampled_from([1, 2, 70]),
    count=st.integers(1, 6),
    block=st.sampled_from([7, 99]),
)
def test_every_operation_equals_numpy(library: Path, seed: int, tiles: int, count: int, block: int) -> None:
    """To the last bit, including zeros, infinity, NaN and extreme numbers, however the pool is split."""
    random = np.random.default_rng(seed)
    tile = frozenset(name for name in "abu" if random.random() < 0.7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ckh.ranking.pool.split", lambda *_: tile)
        patch.setattr("ckh.ranking.model_file.BLOCK", block)
        values = np.array([*EXTREMES, 3.0, -2.5, 7.0, 64.0, 5.9604e-8, 2147483647.0, 1e15, *random.normal(size=5) * 9])
        kernels = {name: random.choice(values + 0.0, tiles * 3) for name in "ab"}  # a pool takes -0 for 0
        kernels |= {"u": np.repeat([0.5, 2.0, np.nan], tiles)}
        problems: dict[str, Any] = {name: random.choice(values, count) for name in _SIZES}
        problems["t"] = np.array([random.choice(["x", "y", "z"])])
        with np.errstate(all="ignore"):
            ours = computed(library, _ENGINE, {}, kernels, problems)
            reference = by_formulas(_ENGINE, {}, kernels, problems)
    _assert_equal(ours, reference, _ENGINE.names)


@pytest.mark.slow
def test_logarithms_equal_numpy_within_one_ulp(library: Path) -> None:
    """Math libraries differ by at most one unit in the last place; powers of two are exact."""
    engine = replace(_ENGINE, features=(Feature("log2", "", lambda c: np.log2(np.maximum(c["p"], 1))),))
    random = np.random.default_rng(0)
    values = np.concatenate([np.floor(np.exp(random.uniform(0, 40, 2000))), 2.0 ** np.arange(60)])
    ours = computed(library, engine, {}, {"a": np.ones(1)}, {"p": values})[:, 0, 0]
    np.testing.assert_array_max_ulp(ours, np.log2(values), maxulp=1)
    assert ours[2000:].tolist() == list(range(60))


@pytest.mark.slow
@pytest.mark.parametrize("folder", [ref.path for ref in list_models([MODELS])], ids=lambda path: path.name)
def test_every_feature_of_shipped_models_is_computed_in_c(library: Path, folder: Path) -> None:
    """All 97, 72 and other features, used by a tree or not, to 1e-12 of the formulas."""
    model = load_model(folder)
    spec, op = model.spec, model.spec.op
    some = problems_of(spec)
    pool = op.kernels.candidates(some[0], load_arch(spec.arch), folder).pool
    kernels = op.kernels.features(pool[:: len(pool) // 2000 + 1], spec.encoding)
    for problem in some[:: len(some) // 20 + 1]:
        given = spec.engine, model.hardware, kernels, op.problems.features([problem]), spec.feature_names
        np.testing.assert_allclose(computed(library, *given), by_formulas(*given), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (lambda c: np.sort(c["a"]), "NumPy's sort"),
        (lambda c: np.sin(c["a"]), "NumPy's sin"),
        (lambda c: np.add.reduce(c["a"]), "add.reduce"),
        (lambda c: c["a"] if c["a"] > 1 else c["b"], "decides"),
        (lambda c: np.asarray(c["a"], np.float64) + 1, "needs the values"),
        (lambda c: int(c["a"]), "needs the values"),
        (lambda c: c["a"].reshape(-1), "reshape"),
        (lambda c: c.raw("a"), "the raw column a"),
        (lambda c: c["a"].astype(np.int64) // 3, "floor_divide"),
        (lambda c: c["a"] == "text", "text"),
        (lambda c: c["a"] + np.zeros((2, 2)), "shape"),
    ],
)
def test_uncomputable_features_are_refused(formula: Callable[[Columns], Any], words: str) -> None:
    """Nothing is silently computed wrongly."""
    graph = Graph(1)
    columns = SymbolicColumns({"a": graph.size(0), "b": graph.size(1)}, {}, {}, {})
    with pytest.raises(FormulaError, match=words):
        formula(columns)
