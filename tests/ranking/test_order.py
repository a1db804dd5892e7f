"""Candidates are ordered as by a stable sort, completely or up to the first few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from ckh.ranking.evaluator import best_first

# Few distinct values, so that there are ties.
_SCORES = st.one_of(st.integers(-3, 3).map(float), st.floats(allow_nan=False))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(scores=arrays(np.float64, array_shapes(min_dims=1, max_dims=3, max_side=40), elements=_SCORES))
def test_the_order_equals_a_stable_sort(scores: np.ndarray) -> None:
    """Best first along the last axis; equal scores, including zeros of both signs, keep their order."""
    assert np.array_equal(best_first(scores), np.argsort(-scores, axis=-1, kind="stable"))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    scores=arrays(np.float64, array_shapes(min_dims=1, max_dims=2, max_side=80), elements=_SCORES),
    top=st.integers(0, 100),
)
def test_a_partial_order_is_a_prefix(scores: np.ndarray, top: int) -> None:
    """Also if many candidates tie with the last requested one."""
    whole = np.argsort(-scores, axis=-1, kind="stable")
    assert np.array_equal(best_first(scores, top), whole[..., :top])


@pytest.mark.parametrize("count", [1, 4608, 100_000])
def test_large_pools(count: int) -> None:
    """Many candidates, most of them tied."""
    scores = np.random.default_rng(count).integers(0, 300, count).astype(float)
    whole = np.argsort(-scores, kind="stable")
    assert np.array_equal(best_first(scores), whole)
    assert np.array_equal(best_first(scores, 5), whole[:5])


def test_no_candidates_and_none_requested() -> None:
    """The result is empty and has the right shape."""
    assert best_first(np.zeros((3, 0))).shape == (3, 0)
    assert best_first(np.zeros((2, 4)), 0).shape == (2, 0)
    assert best_first(np.zeros((0, 4))).shape == (0, 4)
