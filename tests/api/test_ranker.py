"""The ranking model as an estimator of scikit-learn."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.utils import estimator_checks

import ckh
from ckh.learn.training.prepared import grouped_splits
from tests.learn.conftest import TREES, measured
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

PARAMETERS: dict[str, Any] = {
    "n_estimators": TREES.n_estimators,
    "learning_rate": TREES.learning_rate,
    "num_leaves": TREES.num_leaves,
    "folds": 3,
    "prior": 0.0,  # which takes most of the time
    "jobs": 1,
}
RANKER = ckh.KernelRanker(**PARAMETERS)
DATA = measured()
X, Y = DATA.frame.drop(columns=["latency_ms", "tflops", "bandwidth_gb_s"]), DATA.frame["latency_ms"]


def efficiency(scores: NDArray[np.float64], rows: NDArray[Any]) -> float:
    """Mean of the best time / the chosen kernel's, problem by problem; a failed choice counts 0."""
    result = []
    for problem in np.unique(DATA.problem_ids[rows]):
        times, own = Y.to_numpy()[rows], DATA.problem_ids[rows] == problem
        chosen = times[own][np.argmax(scores[own])]
        result.append(0.0 if np.isnan(chosen) else np.nanmin(times[own]) / chosen)
    return float(np.mean(result))


@pytest.mark.slow
def test_model_equals_that_of_train(tmp_path: Path) -> None:
    """The same trees and scores as those of `ckh.train`, with the operation's defaults and with other parameters."""
    with_prior = {name: value for name, value in PARAMETERS.items() if name != "prior"}
    for parameters in (with_prior, {**PARAMETERS, "rank": "lambdarank", "seed": 7}, {**PARAMETERS, "rank": "tflops"}):
        fitted = ckh.KernelRanker(**parameters).fit(X, Y)
        model = ckh.train(DATA, tmp_path / "model", force=True, **parameters)
        scores = model.scores(DATA)
        own = fitted.predict(X)
        np.testing.assert_allclose(np.expm1(own) if model.spec.rank_by == "tflops" else own, scores, rtol=1e-12)
        assert fitted.score(X, Y) == pytest.approx(efficiency(scores, np.arange(len(X))))


@pytest.mark.slow
def test_cross_validation_by_problem() -> None:
    """`cross_val_score` gives what fits on the other problems choose."""
    rows, ranker = np.arange(len(X)), clone(RANKER).set_params(folds=0)
    folds = GroupKFold(4)
    scores = cross_val_score(ranker, X, Y, groups=DATA.problem_ids, cv=folds)
    for score, (train, test) in zip(scores, folds.split(rows, groups=DATA.problem_ids), strict=True):
        own = clone(ranker).fit(X.iloc[train], Y.iloc[train])
        assert score == pytest.approx(efficiency(own.predict(X.iloc[test]), test))
    search = GridSearchCV(ranker, {"num_leaves": [3, 7]}, cv=folds).fit(X, Y, groups=DATA.problem_ids)
    assert search.best_params_["num_leaves"] in (3, 7)


def test_groups_of_the_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folds of the validation inside `fit` are made of the given groups, by default of problems."""
    seen: list[NDArray[np.int64]] = []

    def noted(groups: NDArray[np.int64], folds: int) -> Any:
        seen.append(groups)
        return grouped_splits(groups, folds)

    monkeypatch.setattr("ckh.learn.training.prepared.grouped_splits", noted)
    is_valid = DATA.frame["is_valid"].to_numpy()
    groups = np.array(["abc"[number % 3] for number in DATA.problem_ids])
    RANKER.fit(X, Y, groups)
    RANKER.fit(X, Y)
    np.testing.assert_array_equal(seen[0], (DATA.problem_ids % 3)[is_valid])
    np.testing.assert_array_equal(seen[-1], DATA.problem_ids[is_valid])


def test_copies_of_a_fitted_estimator() -> None:
    """Copies have the same predictions; parallel cross-validation makes some."""
    fitted = clone(RANKER).fit(X, Y)
    np.testing.assert_array_equal(deepcopy(fitted).predict(X), fitted.predict(X))


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_set_params,
    ],
    ids=lambda check: check.__name__,
)
def test_conventions_of_scikit_learn(check: Any) -> None:
    """Checks of scikit-learn that need no numeric matrix."""
    check("KernelRanker", ckh.KernelRanker(folds=3))


def test_refusals() -> None:
    """Unusable parameters, rows and groups."""
    with pytest.raises(NotFittedError):
        ckh.KernelRanker().predict(X)
    with expect_refusal(ckh.UsageError, "bad-field"):
        RANKER.fit(X.to_numpy(), Y)
    with expect_refusal(ckh.DataError, "missing-column"):
        RANKER.fit(X.drop(columns=["tile_m"]), Y)
    with expect_refusal(ckh.UsageError, "out-of-range"):
        clone(RANKER).set_params(folds=2).fit(X, Y)
    with expect_refusal(ckh.UsageError, "conflicting-options"):
        RANKER.fit(X, Y, groups=np.arange(len(X)))
    with expect_refusal(ckh.DataError, "not-measured"):
        RANKER.fit(X, np.full(len(X), np.nan))
