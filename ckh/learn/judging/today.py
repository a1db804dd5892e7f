"""Comparison of a newly trained model, by its held-out choices, with the model that answered for such data before.

A model in the user's folder takes precedence over a shipped model, however few rows it was trained on. So `ckh train`
prints which of the two chooses better on the measured problems, and installs only the better one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.metrics import choices
from ckh.assess.times import times_of
from ckh.errors import CkhError
from ckh.learn.answers.answering import AnsweringModels
from ckh.learn.models.artifact import fitting_models, wanted_for
from ckh.learn.models.manifest import trained_problems
from ckh.learn.models.spec import BETWEEN_DEVICES, SPEC_NAME, spec_of
from ckh.learn.training.train import seen
from ckh.learn.training.trained import Today, compare
from ckh.training import Labels

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.learn.models.artifact import Model
    from ckh.learn.models.spec import ModelSpec
    from ckh.learn.training.trained import Trained

_MOST_PROBLEMS = 1000  # enough for a mean to half a percentage point, and compared in seconds


def against_today(trained: Trained) -> Today | None:
    """Compare a model with the one that now answers for its data, before it is saved.

    If there are very many problems, an evenly spaced subset is compared.
    """
    held_out = trained.targets[trained.rank_by].oof_efficiency
    if held_out is None or trained.options.labels is Labels.WINNERS:
        return None
    count = len(held_out)
    used = np.unique(np.linspace(0, count - 1, min(count, _MOST_PROBLEMS)).round().astype(np.intp))
    dataset = trained.dataset.select(np.isin(trained.dataset.problem_ids, used))
    try:
        model = AnsweringModels(dataset.arch, dataset.num_cus).answering(dataset.problems()[0])
        before = _efficiency(model, dataset)
    except CkhError:  # no model, or one that cannot score these rows: not a reason to lose the new model
        return None
    known = trained_problems(model.path)
    is_seen = None if known is None else seen(dataset, known)
    if is_seen is not None and is_seen.all() and _devices(spec_of(dataset, ())) <= _devices(model.spec):
        return None
    return Today(str(model.path), compare(before, np.array(held_out)[used], is_seen))


def why_not_used(trained: Trained, out: Path) -> str:
    """Why a model must not replace the one in use; empty if it may.

    It may if its mean efficiency is higher on the problems of the comparison, or if it is the first of its kind: no
    model fits these problems, and none is in `out`.
    """
    if trained.today is not None:
        comparison = trained.today.comparison
        is_better = comparison.mean_efficiency > comparison.start_mean_efficiency
        return "" if is_better else f"its mean efficiency is not above that of {trained.today.source}"
    dataset = trained.dataset
    in_use = [ref.path for ref in fitting_models(wanted_for(dataset.problems()[0], dataset.arch))]
    others = [out, *in_use] if (out / SPEC_NAME).exists() else in_use
    return f"it cannot be compared with {others[0]} on the same problems" if others else ""


def _devices(spec: ModelSpec) -> set[str]:
    return set(spec.device.split(BETWEEN_DEVICES))


def _efficiency(model: Model, dataset: Dataset) -> NDArray[np.float64]:
    """Efficiency of a model's choices among the measured kernels, shape (problems,)."""
    times = times_of(dataset)
    return np.asarray(times.efficiency()[choices(model.scores(dataset), times.problem, times.count)])
