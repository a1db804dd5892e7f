"""Selection of few measurements: representative problems, and kernels that may be the best."""

from __future__ import annotations

from itertools import islice

import numpy as np

from ckh.bench.planning.planner import MOST_PROBLEMS, Shots, few_kernels, representative, useful_kernels


def cost(places: np.ndarray, chosen: list[int]) -> float:
    """Sum of distances of all problems to the nearest selected one."""
    return float(np.linalg.norm(places[:, None] - places[chosen][None], axis=2).min(axis=1).sum())


def test_each_problem_has_the_largest_gain() -> None:
    """Each selection minimizes the sum of distances to the nearest selected one, by trying all."""
    places = np.random.default_rng(0).normal(size=(40, 3))
    result = list(islice(representative(places), 6))
    for count in range(1, 7):
        before = result[: count - 1]
        best = min(cost(places, [*before, item]) for item in range(40) if item not in before)
        assert cost(places, result[:count]) - best < 1e-4
    assert sorted(representative(places)) == list(range(40))


def test_lazy_greedy_equals_greedy() -> None:
    """For 300 problems, many at the same point, and 200 kernels the result equals that of computing all gains."""
    random = np.random.default_rng(4)
    places = np.concatenate([random.normal(size=(200, 3)), random.integers(0, 3, (100, 3))])
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    nearest = np.full(300, 2 * apart.max() + 1)
    for chosen in islice(representative(places), 100):
        gain = np.maximum(nearest - apart, 0.0).sum(axis=1)
        assert gain[chosen] > gain.max() - 1e-3
        nearest = np.minimum(nearest, apart[chosen])
    orders = [random.permutation(200)[: int(random.integers(20, 200))] for _ in range(60)]
    worth = np.zeros((60, 200))
    for row, order in zip(worth, orders, strict=True):
        row[order] = 5.0 / (5.0 + np.arange(len(order)))
    reached, left = np.zeros(60), np.ones(200, dtype=bool)
    for kernel in useful_kernels(orders, 150):
        gain = np.maximum(worth - reached[:, None], 0.0).sum(axis=0) + 1e-3 * worth.mean(axis=0)
        assert gain[kernel] > gain[left].max() - 1e-12
        left[kernel] = False
        reached = np.maximum(reached, worth[:, kernel])


def test_clusters_come_before_their_members() -> None:
    """Three distant groups are represented by the first three problems; a lone outlier is not the first."""
    centres = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    places = np.concatenate([centre + np.random.default_rng(1).normal(size=(20, 2)) for centre in centres])
    result = list(islice(representative(np.concatenate([places, [[300.0, 300.0]]])), 4))
    assert result[0] != 60
    assert {number // 20 for number in result} == {0, 1, 2, 3}


def test_many_problems_are_sampled() -> None:
    """With more problems than the maximum a random sample is used, which depends on the seed."""
    places = np.random.default_rng(2).normal(size=(MOST_PROBLEMS + 500, 2))
    first, again, other = (list(islice(representative(places, seed), 30)) for seed in (0, 0, 1))
    assert first == again != other
    assert max(first) < len(places)


def test_useful_kernels_first_cover_every_problem() -> None:
    """Two problems with different best kernels get both before any second-best kernel; there are no duplicates."""
    orders = [np.array([4, 1, 2, 0]), np.array([3, 1, 2, 0]), np.array([4, 2, 1, 0])]
    result = useful_kernels(orders, 3).tolist()
    assert result[:2] == [4, 3] or set(result[:2]) == {4, 1}
    assert 3 in result
    assert sorted(useful_kernels(orders, 99).tolist()) == [0, 1, 2, 3, 4]


def test_few_kernels_are_first_and_other_kernels() -> None:
    """Of 100 kernels 20 first ones and 10 others, of 6 or 3 all; only useful ones, without duplicates."""
    orders = [np.random.default_rng(number).permutation(100) for number in range(8)]
    chosen = few_kernels(orders, Shots(60, 20, 10), seed=3)
    useful = useful_kernels(orders, 60)
    for order, few in zip(orders, chosen, strict=True):
        kept = order[np.isin(order, useful)]
        assert few[:20].tolist() == kept[:20].tolist()
        assert len(set(few.tolist())) == 30
        assert set(few.tolist()) <= set(useful.tolist())
    assert len(set(np.concatenate(chosen).tolist())) <= 60
    assert [len(few) for few in few_kernels([np.arange(14), np.arange(6), np.arange(0)], Shots())] == [12, 6, 0]
    again = few_kernels(orders, Shots(60, 20, 10), 3)
    assert [few.tolist() for few in again] == [few.tolist() for few in chosen]


def test_other_kernels_are_measured_about_equally_often() -> None:
    """If all problems have the same order, kernels after the first ones are spread evenly over the problems."""
    chosen = few_kernels([np.arange(24)] * 30, Shots(None, best=4, others=4))
    counts = np.bincount(np.concatenate(chosen), minlength=24)
    assert counts[:4].tolist() == [30] * 4
    assert set(counts[4:].tolist()) == {6}


def test_a_problem_without_useful_kernels_gets_its_own() -> None:
    """If too few of a problem's kernels are useful, its own first four are measured."""
    orders = [np.arange(30), np.arange(30), np.arange(30), np.arange(40, 60)]
    chosen = few_kernels(orders, Shots(kernels=3))
    assert chosen[3].tolist()[:3] == [40, 41, 42]


def test_stated_first_kernels_come_before_others() -> None:
    """Of few kernels all are first ones up to the stated number; of many half are, as without it."""
    for best, others, stated, expected in ((1, 1, 2, (2, 0)), (2, 2, 3, (3, 1)), (6, 6, 3, (6, 6)), (2, 2, 9, (4, 0))):
        assert Shots(best=best, others=others, stated=stated).of_problem(100) == expected
    assert Shots(stated=3).of_problem(4) == (3, 1)
    assert Shots().of_problem(4) == (2, 2)
