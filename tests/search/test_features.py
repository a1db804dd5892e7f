"""Features and the initial design, from their definitions."""

from __future__ import annotations

from itertools import product

import numpy as np

from ckh.search.gaussian_process import features_of
from ckh.search.space import Space
from ckh.search.surrogate import balanced_design


def test_numbers_are_ranks_and_categories_are_one_hot() -> None:
    """A number is its scaled rank; categories have a column per value at distance 1; constants are dropped."""
    space = Space(("size", "kind", "constant"), ([1, 2, 8], ["x", "y", "z"], [5, 5, 5]))
    features = features_of(space)
    assert features.matrix[:, 0].tolist() == [0.0, 0.5, 1.0]
    assert features.groups.tolist() == [0, 1, 1, 1]
    assert np.isclose(np.linalg.norm(features.matrix[0, 1:] - features.matrix[1, 1:]), 1.0)


def test_alignment_is_the_power_of_two_that_divides() -> None:
    """64 and 128 are aligned, 48 and 112 less; powers of two have no alignment feature."""
    features = features_of(Space(("block",), ([48, 64, 112, 128],)))
    assert np.allclose(features.matrix[:, 1], [0, 2 / 3, 0, 1])
    assert features_of(Space(("block",), ([16, 32, 64],))).matrix.shape == (3, 1)
    assert features_of(Space(("block",), ([0, 3, 4],))).matrix.shape == (3, 1)


def test_the_design_shows_every_value_evenly() -> None:
    """Eight of sixty-four configurations show each of the four values of each parameter twice."""
    rows = list(product(range(4), repeat=3))
    space = Space("abc", list(zip(*rows, strict=True)))
    for seed in range(5):
        chosen = balanced_design(space, 8, np.random.default_rng(seed))
        assert len(set(chosen)) == 8
        counts = [np.bincount(space.codes[chosen, i], minlength=4) for i in range(3)]
        assert all((count >= 1).all() and (count <= 3).all() for count in counts)


def test_a_design_is_never_larger_than_the_space() -> None:
    """A request for more configurations than exist gives each once."""
    space = Space(("a",), (["x", "y", "z"],))
    assert sorted(balanced_design(space, 10, np.random.default_rng(0))) == [0, 1, 2]
