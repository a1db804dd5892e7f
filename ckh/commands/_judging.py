"""What evaluate and validate share: reading the data that a model is judged on."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from ckh.assess.measured import judged
    from ckh.data.dataset import read_dataset
    from ckh.learn.manifest import problem_id, trained_problems
    from ckh.learn.spec import ANY

    spec = model.spec
    dataset = read_dataset(*paths)
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


def percent(share: float) -> str:
    """A share as "98.76%"."""
    return f"{share:.2%}"
