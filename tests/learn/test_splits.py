"""Splits keep each problem in one part."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ckh.learn.models.manifest import problem_id
from ckh.learn.training.prepared import grouped_splits, too_few_to_validate
from ckh.learn.training.train import seen
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.learn.conftest import build, kernels

PROBLEM = ConvProblem(Direction.FORWARD, 1, 64, 64, 1, 28, 28, 3, 3, pad_h=1, pad_w=1)


@pytest.mark.parametrize(("groups", "folds"), [(14, 4), (5, 5), (7, 3), (4, 50), (3, 5)])
def test_parts_are_disjoint_and_complete(groups: int, folds: int) -> None:
    """No problem is in two parts of a split, the parts cover all rows, and each row is scored exactly once."""
    ids = np.random.default_rng(groups).integers(0, groups, 300)
    ids[:groups] = np.arange(groups)
    splits = list(grouped_splits(ids, folds))
    assert len(splits) == min(groups, folds)
    for split in splits:
        problems = [set(ids[part]) for part in (split.train, split.stop, split.score)]
        assert all(problems)
        assert sum(map(len, problems)) == len(set.union(*problems)) == groups
        assert sorted(np.concatenate([split.train, split.stop, split.score])) == list(range(300))
        assert split.train.tolist() == sorted(split.train)
    assert sorted(np.concatenate([split.score for split in splits])) == list(range(300))


def test_every_fold_stops_one_round_and_scores_another() -> None:
    """The fold for early stopping is never the scored fold; over all rounds each fold has each role once."""
    splits = list(grouped_splits(np.repeat(np.arange(8), 5), 4))
    stops, scores = [tuple(split.stop) for split in splits], [tuple(split.score) for split in splits]
    assert sorted(stops) == sorted(scores)
    assert all(stop != score for stop, score in zip(stops, scores, strict=True))


@pytest.mark.parametrize("groups", [1, 2])
def test_fewer_than_three_groups_are_not_split(groups: int) -> None:
    """With too few problems to train, stop and score there are no splits."""
    assert list(grouped_splits(np.arange(20) % groups, 5)) == []


def test_a_stride_makes_another_problem() -> None:
    """Problems that differ only in a stride, padding or dilation are split as different problems."""
    changes: tuple[dict[str, Any], ...] = ({}, {"stride_w": 2}, {"pad_h": 0}, {"dilation_h": 2})
    variations = [replace(PROBLEM, **change) for change in changes]
    data = build([(problem, kernel, 1.0) for problem in variations for kernel in kernels()[:5]])
    assert data.problem_ids.tolist() == np.repeat(np.arange(4), 5).tolist()
    assert len(list(grouped_splits(data.problem_ids, 5))) == 4
    assert not too_few_to_validate(data)
    assert too_few_to_validate(data.select(data.problem_ids < 2))


def test_a_problem_of_a_known_group_is_seen() -> None:
    """A model that knows one problem of a group of cross-validation has seen the others."""
    three = [PROBLEM, replace(PROBLEM, pad_h=0), replace(PROBLEM, dilation_h=2)]
    data: Any = SimpleNamespace(
        problems=lambda: three, split_ids=np.array([0, 0, 0, 1]), first_rows=np.array([0, 2, 3])
    )
    assert seen(data, frozenset({problem_id(PROBLEM)})).tolist() == [True, True, False]
