"""Sampling problems of a dataset with too many rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ckh.data.dataset import read_dataset
from ckh.data.parts import read_sample
from tests.learn.conftest import measured

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.data.dataset import Dataset
    from ckh.ops.base import AnyOperation


def every(op: AnyOperation) -> tuple[str, ...]:
    """All columns."""
    return op.column_names()


def plain(dataset: Dataset) -> pd.DataFrame:
    """The rows without categorical columns."""
    names = [name for name, kind in dataset.frame.dtypes.items() if kind == "category"]
    symbol: pd.DataFrame = dataset.frame.astype(dict.fromkeys(names, "object"))
    return symbol


def test_whole_problems_are_drawn(files: list[Path]) -> None:
    """As many problems as fit are drawn, in the order of the files."""
    dataset, drawn = read_sample(files, 130, 7, every, {})
    assert drawn is not None
    assert (drawn.rows, drawn.problems, drawn.of_rows, drawn.of_problems) == (120, 5, 336, 14)
    whole = read_dataset(*files, columns=every)
    names = {problem.canonical() for problem in dataset.problems()}
    inside = np.array([problem.canonical() in names for problem in whole.problems()])
    pd.testing.assert_frame_equal(plain(dataset), plain(whole.select(inside[whole.problem_ids])))
    assert dataset.metadata == whole.metadata


def test_the_seed_determines_the_sample(files: list[Path]) -> None:
    """Equal seeds draw equal problems, other seeds do not."""
    first, again, other = (read_sample(files, 130, seed, every, {})[0].problems() for seed in (7, 7, 8))
    assert first == again != other


def test_few_rows_are_all_read(files: list[Path]) -> None:
    """A dataset that is small enough is read completely."""
    dataset, drawn = read_sample(files, 336, 7, every, {})
    assert drawn is None
    pd.testing.assert_frame_equal(dataset.frame, read_dataset(*files, columns=every).frame)


def test_only_problems_with_a_value_are_drawn(files: list[Path]) -> None:
    """Other problems are ignored, unless no problem has the value: then the caller reports what exists."""
    images = [problem.n for problem in measured().problems()]
    _, drawn = read_sample(files, 100, 7, every, {"N": images[0]})
    assert drawn is not None
    assert drawn.of_problems == images.count(images[0]) < 14
    _, of_all = read_sample(files, 100, 7, every, {"variant": "bwd_data"})
    assert of_all is not None
    assert of_all.of_problems == 14


def test_at_least_one_problem_is_drawn(files: list[Path]) -> None:
    """Also if it has more rows than the maximum."""
    dataset, _drawn = read_sample(files, 1, 7, every, {})
    assert (len(dataset), len(dataset.problems())) == (24, 1)
