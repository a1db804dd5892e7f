"""What evaluate and validate share: reading the data that a model is judged on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ckh.errors import DataError
from ckh.log import warn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.data.dataset import Dataset
    from ckh.learn.artifact import Model


def load_judged(model: Model, paths: Sequence[Path], *, is_held_out: bool = True) -> Dataset:
    """The rows of datasets that a model is for, of problems that have an oracle.

    Warns of rows that are left out and, if they should be held out, of problems that the model was trained on.

    Raises:
        DataError: there is no such row, or a file is unusable.
    """
    from ckh.assess.measured import judged, needed_columns
    from ckh.data.dataset import read_dataset
    from ckh.learn.manifest import problem_id, trained_problems
    from ckh.learn.spec import ANY

    spec = model.spec
    dataset = read_dataset(*paths, columns=needed_columns)
    frame = dataset.frame
    mask = ((frame["arch"] == spec.arch) & (frame["op_type"] == spec.op_type)).to_numpy(dtype=bool)
    if spec.dtype != ANY:
        mask = mask & (frame["dtype"] == spec.dtype).to_numpy(dtype=bool)
    if spec.variant is not None and dataset.op.has_directions:
        mask = mask & (frame["variant"] == str(spec.variant)).to_numpy(dtype=bool)
    if not mask.any():
        have = " ".join(filter(None, (dataset.op.name, ", ".join(dataset.variants), "on", ", ".join(dataset.archs))))
        raise DataError(f"no row is for {model.path} ({spec.purpose}): the data are {have}")
    if not mask.all():
        warn(f"left out {int((~mask).sum())} rows that are not {spec.purpose}")
    part = judged(dataset if mask.all() else dataset.select(mask))
    known = trained_problems(model.path) or frozenset()
    problems = part.problems()
    seen = sum(problem_id(problem) in known for problem in problems)
    if is_held_out and seen:
        warn(f"{seen} of {len(problems)} problems were trained on: this says little about new ones")
    return part


LEAST_PROBLEMS = 10  # problems: fewer have no 10th percentile to speak of
MIN_PROBLEMS = typer.Option(LEAST_PROBLEMS, "--min-problems", min=1, help="Least problems that a verdict rests on.")


def for_verdict(
    dataset: Dataset, models: Sequence[Model], least: int, *, with_trained: bool = False, of_winners: bool = False
) -> Dataset:
    """The rows that a verdict may rest on: of problems that no model was trained on and that leave a choice.

    Warns of problems that are left out, and of models whose manifest does not say what they were trained on.

    Args:
        dataset: rows of problems that have an oracle.
        models: what is judged.
        least: how many problems a verdict takes.
        with_trained: whether problems that a model was trained on count all the same; that is said.
        of_winners: whether the rows are winners among all candidates, which leave a choice one by one.

    Raises:
        DataError: there are fewer.
    """
    import numpy as np

    from ckh.learn.manifest import problem_id, trained_problems

    problems = dataset.problems()
    is_left = (np.bincount(dataset.problem_ids, minlength=len(problems)) > 1) | of_winners
    if not is_left.all():
        warn(f"left out {int((~is_left).sum())} problems with one measured kernel: there is nothing to choose")
    for model in models:
        known = trained_problems(model.path)
        if known is None:
            warn(f"whether {model.path} was trained on these problems cannot be known: its manifest does not say")
            continue
        is_seen = np.array([problem_id(problem) in known for problem in problems])
        if is_seen.any():
            what = "judged also on" if with_trained else "left out"
            warn(f"{what} {int(is_seen.sum())} of {len(problems)} problems, which {model.path} was trained on")
        is_left &= ~is_seen | with_trained
    if int(is_left.sum()) < least:
        raise DataError(
            f"no verdict: {int(is_left.sum())} problems are left to judge on, and it takes {least}",
            "judge on more problems that are held out, or set --min-problems",
        )
    return dataset if is_left.all() else dataset.select(is_left[dataset.problem_ids])


def percent(share: float) -> str:
    """A share as "98.76%"."""
    return f"{share:.2%}"
