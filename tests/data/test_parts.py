"""A dataset in parts that hold whole problems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from ckh.assess.times import needed_columns
from ckh.data import parts
from ckh.data.dataset import read_dataset
from ckh.data.parts import read_parts
from ckh.errors import DataError, OutputError
from tests.learn.conftest import measured
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from ckh.data.dataset import Dataset


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts hold a few problems."""
    monkeypatch.setattr(parts, "PART_ROWS", 50)


def sorted_rows(dataset: Dataset) -> pd.DataFrame:
    """The rows with plain strings, sorted."""
    frame = dataset.frame.astype({name: "object" for name in dataset.frame if dataset.frame[name].dtype == "category"})
    result: pd.DataFrame = frame.sort_values([*dataset.op.problems.identity, "kernel"]).reset_index(drop=True)
    return result


@pytest.mark.slow
def test_parts_hold_whole_problems_in_the_order_of_the_rows(files: list[Path]) -> None:
    """Parts together have the rows of the files; each problem is in one part, in order of appearance."""
    whole = read_dataset(*files, columns=needed_columns, narrow=True)
    dataset_parts = read_parts(*files, columns=needed_columns)
    assert len(list(dataset_parts)) > 5
    assert [problem for part in dataset_parts for problem in part.problems()] == whole.problems()
    assert all(len(part) >= 24 for part in dataset_parts)
    pd.testing.assert_frame_equal(sorted_rows(dataset_parts.whole()), sorted_rows(whole))
    assert dataset_parts.whole().metadata == whole.metadata
    assert dataset_parts.op is whole.op


def test_few_rows_are_one_part(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in memory, in their order."""
    monkeypatch.setattr(parts, "PART_ROWS", len(measured()))
    (dataset,) = read_parts(*files, columns=needed_columns)
    pd.testing.assert_frame_equal(dataset.frame, read_dataset(*files, columns=needed_columns, narrow=True).frame)


def test_rows_are_selected_part_by_part(files: list[Path]) -> None:
    """Masks are applied part by part; empty parts are removed."""
    dataset_parts = read_parts(*files, columns=needed_columns)
    masks = [np.full(len(part), number % 2 == 0) for number, part in enumerate(dataset_parts)]
    masks[0][0] = False
    left = dataset_parts.select(masks)
    assert [len(part) for part in left] == [int(mask.sum()) for mask in masks if mask.any()]
    first = next(iter(left))
    pd.testing.assert_frame_equal(first.frame, next(iter(dataset_parts)).frame.iloc[1:].reset_index(drop=True))


def test_a_pair_that_occurs_twice_is_refused(files: list[Path]) -> None:
    """Also if its rows are far apart, in two files."""
    dataset_parts = read_parts(files[0], files[0], columns=needed_columns)
    with expect_refusal(DataError, "duplicate-rows", "conv_forward"):
        list(dataset_parts)


def test_a_full_temporary_folder_is_one_error_line(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the folder and how to choose another."""
    full = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115 # closed by the part
    monkeypatch.setattr(parts, "TemporaryFile", lambda: full)
    with expect_refusal(OutputError, "unwritable") as refused:
        read_parts(*files, columns=needed_columns)
    assert "set TMPDIR" in str(refused.value.hint)
