"""Labels, weights, groups and LightGBM objective for the models of each target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.assess.times import efficiency_of
from ckh.errors import DataError
from ckh.training import LOG_TARGETS, RANK, TARGET_COLUMNS, RankObjective

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset

# Kernels slower than exp(-2.5) = 8 % of the best are all treated as equally bad.
_RELATIVE_FLOOR = -2.5
# LambdaRank needs few integer grades: efficiency in thirtieths, each with a gain exp(1/5) times the one below.
_GRADES = 30
_GRADE_SCALE = 5.0
_TRUNCATION = 20


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """The training arrays of a model, all of shape (rows,)."""

    target: str
    label: NDArray[np.float64]
    weight: NDArray[np.float64] | None
    parameters: dict[str, Any]
    is_grouped: bool


def grades(efficiency: NDArray[np.float64]) -> NDArray[np.float64]:
    """LambdaRank's labels for efficiencies from 0 to 1, shape (rows,)."""
    return np.asarray(np.floor(efficiency * _GRADES))


def lambdarank_parameters() -> dict[str, Any]:
    """LightGBM's parameters that match `grades`."""
    gains = [float(np.expm1(grade / _GRADE_SCALE)) for grade in range(_GRADES + 1)]
    return {"objective": "lambdarank", "lambdarank_truncation_level": _TRUNCATION, "label_gain": gains}


def relative(efficiency: NDArray[np.float64]) -> NDArray[np.float64]:
    """The regression's labels for efficiencies from 0 to 1, shape (rows,)."""
    return np.maximum(np.log(efficiency), _RELATIVE_FLOOR)


def make_fit(target: str, dataset: Dataset, rank: RankObjective) -> Fit:
    """Build the labels of a target for the valid rows of a dataset; a ranking regression weighs them by efficiency."""
    if target != RANK:
        value = dataset.frame[TARGET_COLUMNS[target]].to_numpy(dtype=np.float64)
        if missing := int(np.count_nonzero(~np.isfinite(value))):
            rows = f"{missing} of {len(value)} usable rows"
            hint = "omit the target in --targets, or make the dataset again with ckh convert"
            raise DataError(f"column {TARGET_COLUMNS[target]} has missing values in {rows}", hint, code="bad-column")
        label = np.log1p(value) if target in LOG_TARGETS else value
        return Fit(target, label, None, {"objective": "regression"}, is_grouped=False)
    efficiency = efficiency_of(dataset)
    if rank is RankObjective.LAMBDARANK:
        return Fit(target, grades(efficiency), None, lambdarank_parameters(), is_grouped=True)
    label = efficiency if rank is RankObjective.EFFICIENCY else relative(efficiency)
    # Only the order near the top matters.
    return Fit(target, label, efficiency, {"objective": "regression"}, is_grouped=False)
