"""The space compared with brute force over its configurations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ckh.errors import DataError
from ckh.search.strategy_space import Space

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


def test_find_is_the_inverse_of_config(space: Space) -> None:
    """Every configuration is found under its own index."""
    assert len(space) == len(ROWS)
    assert [space.find(space.config(index)) for index in range(len(space))] == list(range(len(space)))


def test_illegal_configurations_are_not_found(space: Space) -> None:
    """An omitted combination and an unknown value are both None."""
    assert space.find({"tile": 8, "layout": "a", "share": 3.0}) is None
    assert space.find({"tile": 3, "layout": "a", "share": 0.5}) is None


def test_a_configuration_of_other_parameters_is_an_error(space: Space) -> None:
    """A missing parameter is refused instead of guessed."""
    with pytest.raises(DataError, match="tile, layout, share"):
        space.find({"tile": 8, "layout": "a"})


def test_neighbours_equal_brute_force(space: Space) -> None:
    """Neighbours differ in one parameter."""
    for index in range(len(space)):
        here = space.config(index).values()
        expected = [
            other
            for other in range(len(space))
            if sum(mine != its for mine, its in zip(here, space.config(other).values(), strict=True)) == 1
        ]
        assert space.neighbours(index).tolist() == expected


def test_distance_orders_by_changed_parameters_first(space: Space) -> None:
    """Any one change is nearer than any two, and a small step is nearer than a large one."""
    origin = space.find({"tile": 1, "layout": "a", "share": 0.5})
    assert origin is not None
    distances = space.distances(space.codes[origin])
    changed = np.count_nonzero(space.codes != space.codes[origin], axis=1)
    for count in range(3):
        assert distances[changed == count].max() < distances[changed == count + 1].min()
    small = space.find({"tile": 2, "layout": "a", "share": 0.5})
    large = space.find({"tile": 8, "layout": "a", "share": 0.5})
    assert distances[small] < distances[large]


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        ([], []),
        (["a"], [[]]),
        (["a", "b"], [[1, 2], [1]]),
        (["a", "a"], [[1, 2], [1, 2]]),
        (["a"], [[1, 1]]),
        (["a"], [[1.0, float("nan")]]),
        (["a"], [np.array(["x", None], dtype=object)]),
    ],
)
def test_unusable_spaces_are_refused(names: list[str], columns: list[list[float]]) -> None:
    """Nothing, ragged columns, repeated names or configurations, and missing values are errors."""
    with pytest.raises(DataError):
        Space(names, columns)


def test_a_hundred_thousand_configurations_are_held() -> None:
    """A space of 100,000 configurations of 17 parameters answers like a small one."""
    codes = np.arange(100_000)
    columns = [codes >> bit & 1 for bit in range(17)]
    space = Space([f"p{bit}" for bit in range(17)], columns)
    assert space.find(space.config(77_777)) == 77_777
    expected = sorted(77_777 ^ 1 << bit for bit in range(17) if 77_777 ^ 1 << bit < 100_000)
    assert space.neighbours(77_777).tolist() == expected
