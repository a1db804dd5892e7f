"""The space compared with brute force over its configurations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ckh.search.space import Space

ROWS = [row for row in product((1, 2, 4, 8), ("a", "b", "c"), (0.5, 1.5, 3.0)) if row[0] * row[2] < 13]


@pytest.fixture
def space() -> Space:
    """A small space with an ordered, a categorical and a fractional parameter, in shuffled order."""
    order = np.random.default_rng(1).permutation(len(ROWS))
    columns = [np.array([row[i] for row in ROWS])[order] for i in range(3)]
    return Space(("tile", "layout", "share"), columns)


def test_parameters_know_values_and_order(space: Space) -> None:
    """Numbers are ordered, text is not, values are ascending."""
    assert [p.is_ordered for p in space.parameters] == [True, False, True]
    assert [p.values for p in space.parameters] == [(1, 2, 4, 8), ("a", "b", "c"), (0.5, 1.5, 3.0)]


def test_codes_are_the_values_of_the_given_rows(space: Space) -> None:
    """Configurations keep their order."""
    order = np.random.default_rng(1).permutation(len(ROWS))
    values = [[p.values[code] for p, code in zip(space.parameters, row, strict=True)] for row in space.codes]
    assert [tuple(row) for row in values] == [ROWS[place] for place in order]
    assert len(space) == len(ROWS)


def test_neighbours_equal_brute_force(space: Space) -> None:
    """Neighbours differ in one parameter."""
    for index in range(len(space)):
        here = space.codes[index]
        changed = [sum(mine != its for mine, its in zip(here, row, strict=True)) for row in space.codes]
        expected = [other for other, count in enumerate(changed) if count == 1]
        assert space.neighbours(index).tolist() == expected
