"""Features computed in C are those that NumPy computes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckh.archs import load_arch
from ckh.features.engine import Depends, Feature, FeatureEngine
from ckh.learn.artifact import list_models, load_model
from ckh.learn.spec import ANY
from ckh.ranking import partial_c
from ckh.ranking.pool import Pool
from ckh.ranking.program import Programs

from .conftest import EXTREMES

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS = Path(__file__).parents[2] / "models"
_TILES, _SIZES = "abu", "pqr"


def _value_of(c: Any) -> Any:
    return c["p"] * 2 if c["p"][0] > 0 else c["p"] * 3


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
    # What cannot be recorded is computed as without C.
    "sorted": lambda c: np.sort(np.broadcast_arrays(c["p"], c["a"])[0]),
    "decided": _value_of,
    "raw": lambda c: c.raw("q") + 1,
    "whole": lambda c: c["p"].astype(np.int64) // 3,
    "reshaped": lambda c: c["p"].reshape(c["p"].shape),
}
_LEFT_OUT = {"sorted", "decided", "raw", "whole", "reshaped"}


def _quietly(formula: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def quiet(columns: Any) -> Any:
        with np.errstate(all="ignore"):
            return formula(columns)

    return quiet


_ENGINE = FeatureEngine(
    "test", tuple(Feature(n, "", Depends.BOTH, _quietly(f)) for n, f in _FORMULAS.items()), (), {}, {}
)


def _assert_equal(pool: Pool, problems: dict[str, Any], count: int) -> Programs:
    programs = Programs(pool)
    with np.errstate(all="ignore"):
        reference = pool.values(problems, count)
        first, ours = programs.values(problems, count), programs.values(problems, count)  # the second one is recorded
    np.testing.assert_array_equal(first.constants, reference.constants)
    for index, place in enumerate(pool.placed):
        if place.row < pool.shape[0] and place.kind == 0:
            pair = ours.constants[:, place.row], reference.constants[:, place.row]
        elif place.is_dynamic:
            rows = slice(place.row, place.row + place.rows)
            pair = ours.rows[:, rows], reference.rows[:, rows]
        else:
            continue
        np.testing.assert_array_equal(*pair, err_msg=pool.features[index].name)
    return programs


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), tiles=st.sampled_from([1, 2, 70]), count=st.integers(1, 6))
def test_every_operation_is_numpys(library: Path, seed: int, tiles: int, count: int) -> None:
    """Also of zeros, infinity, NaN and numbers near the ends, for one problem and for several of different texts."""
    random = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_c, "LIBRARY", library)
        patch.setattr("ckh.ranking.pool.split", lambda *_: frozenset("ab"))
        values = np.array([*EXTREMES, 3.0, -2.5, 7.0, 1e15, *random.normal(size=5) * 9])
        kernels = {name: random.choice(values, tiles * 3) for name in "ab"}
        kernels |= {"u": np.repeat([0.5, 2.0, np.nan], tiles)}
        problems: dict[str, Any] = {name: random.choice(values, count) for name in _SIZES}
        problems["t"] = random.choice(["x", "y", "z"], count)
        example = {"p": [1.0], "q": [1.0], "r": [1.0], "t": ["x"]}
        with np.errstate(all="ignore"):
            pool = Pool(_ENGINE, _ENGINE.names, {}, kernels, example, np.ones(len(_FORMULAS), np.int64))
        names = [name for name in _FORMULAS if count == 1 or name != "decided"]
        if count > 1:
            pool = Pool(_ENGINE, names, {}, kernels, example, np.ones(len(names), np.int64))
        programs = _assert_equal(pool, problems, count)
    for program in programs._known.values():
        assert program is not None
        assert {pool.features[index].name for index in program.left_out} == _LEFT_OUT & set(names)


@pytest.mark.parametrize("folder", [ref.path for ref in list_models([MODELS])], ids=lambda path: path.name)
def test_every_feature_of_shipped_models_is_computed_in_c(
    library: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is left out, and all are equal to the last bit: one problem at a time, and all at once."""
    monkeypatch.setattr(partial_c, "LIBRARY", library)
    model = load_model(folder)
    spec, op = model.spec, model.spec.op
    variant = None if spec.variant is None else str(spec.variant)
    some = op.load_problems(op.set_names()[0], variant, None if spec.dtype == ANY else spec.dtype)
    kernels = op.candidates(some[0], load_arch(spec.arch), folder).kernels
    problems = [op.problem_features([problem]) for problem in some[:: len(some) // 20 + 1]]
    pool = Pool(
        spec.engine,
        spec.feature_names,
        model.hardware,
        op.kernel_features(kernels, spec.encoding),
        problems[0],
        np.ones(len(spec.feature_names), np.int64),
    )
    for problem in problems:
        programs = _assert_equal(pool, problem, 1)
        assert all(program is not None and not program.left_out for program in programs._known.values())
    together = {name: np.concatenate([problem[name] for problem in problems]) for name in problems[0]}
    _assert_equal(pool, together, len(problems))
