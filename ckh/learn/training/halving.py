"""Random search with successive halving: settings drawn from a given space, the worse half dropped after every fold.

All settings are scored on the first fold, the better half on the second, and so on; two are left for the last. The
default setting is included and never dropped, so that a replacement has been compared on every held-out problem.
Settings are scored by the efficiency of their choices. The winner's score is biased upwards, as the best of many on the
same problems.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.cluster.calls import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.training import TreeParams

# Values of a parameter are drawn with equal probability.
SPACE: dict[str, tuple[float, ...]] = {
    "n_estimators": (200, 400, 800, 1600),
    "learning_rate": (0.02, 0.03, 0.05, 0.08, 0.12, 0.2),
    "num_leaves": (15, 31, 63, 127, 255),
    "min_child_samples": (3, 5, 10, 20, 40),
    "colsample_bytree": (0.3, 0.4, 0.55, 0.7, 0.85, 1.0),
    "subsample": (0.55, 0.7, 0.85, 1.0),
    "reg_alpha": (0.0, 0.01, 0.05, 0.2, 1.0),
    "reg_lambda": (0.0, 0.1, 0.5, 2.0, 10.0),
}
_MOST_DRAWS = 100  # attempts to draw a new setting


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting and the mean efficiency of its choices, for each fold and over all scored problems.

    Number 0 is the default.
    """

    number: int
    params: TreeParams
    folds: tuple[float, ...]
    problems: int
    mean_efficiency: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """All tried settings, and the index of the chosen one."""

    trials: tuple[Trial, ...]
    chosen: int
    seed: int
    folds: int
    fixed: tuple[str, ...]

    @property
    def params(self) -> TreeParams:
        """The chosen parameters."""
        return self.trials[self.chosen].params

    def to_dict(self) -> dict[str, Any]:
        """Serialize for JSON."""
        return {
            "seed": self.seed,
            "folds": self.folds,
            "space": {name: list(values) for name, values in SPACE.items() if name not in self.fixed},
            "default": 0,
            "chosen": self.chosen,
            "settings": [
                {
                    "number": trial.number,
                    "params": {name: getattr(trial.params, name) for name in SPACE},
                    "fold_efficiency": list(trial.folds),
                    "problems": trial.problems,
                    "mean_efficiency": trial.mean_efficiency,
                    "dropped_after_fold": len(trial.folds) if len(trial.folds) < self.folds else None,
                }
                for trial in self.trials
            ],
        }


def draw(count: int, default: TreeParams, seed: int, fixed: Sequence[str] = ()) -> tuple[TreeParams, ...]:
    """Draw distinct settings from the space, after the default.

    Fewer than `count` if the parameters that are not `fixed` allow no more.
    """
    random = np.random.default_rng(seed)
    result = [default]
    while len(result) < count:
        for _ in range(_MOST_DRAWS):
            drawn: dict[str, Any] = {name: values[random.integers(len(values))] for name, values in SPACE.items()}
            setting = replace(default, **{name: value for name, value in drawn.items() if name not in fixed})
            if setting not in result:
                result.append(setting)
                break
        else:
            break
    return tuple(result)


def survivors(count: int, folds: int) -> Iterator[int]:
    """Yield the number of settings scored on each fold: all, then the better half of the previous, at least two."""
    for _ in range(folds):
        yield count
        count = min(count, max(2, math.ceil(count / 2)))


def halve(
    settings: Sequence[TreeParams],
    folds: int,
    score: Callable[[int, int], NDArray[np.float64]],
    done: Callable[[int, int], None] = lambda _number, _fold: None,
) -> tuple[tuple[Trial, ...], int]:
    """Score settings fold by fold and drop the worse half; return the trials, and the index of the best.

    The best is the setting with the highest mean efficiency over all problems; the default, number 0, wins ties.

    Args:
        settings: the settings, starting with the default.
        folds: number of folds.
        score: given the indices of setting and fold, returns efficiencies of its choices, shape (problems of the
            fold,).
        done: called after each score.
    """
    scores: list[list[NDArray[np.float64]]] = [[] for _ in settings]
    alive = list(range(len(settings)))
    for fold, count in enumerate(survivors(len(settings), folds)):
        # The default replaces the worst of the survivors.
        alive = [0, *sorted(alive[1:], key=lambda i: (-_mean(scores[i]), i))[: count - 1]]
        result = in_order(score, [(number, fold) for number in alive])
        for number, of_setting in zip(alive, result, strict=True):
            scores[number].append(of_setting)
            done(number, fold)
    trials = [
        Trial(
            number=number,
            params=setting,
            folds=tuple(float(part.mean()) for part in scores[number]),
            problems=sum(map(len, scores[number])),
            mean_efficiency=_mean(scores[number]),
        )
        for number, setting in enumerate(settings)
    ]
    return tuple(trials), max(sorted(alive), key=lambda i: (trials[i].mean_efficiency, -i))


def fits(count: int, folds: int) -> int:
    """Maximum number of models fitted in tuning, for a progress bar."""
    return sum(survivors(count, folds))


def _mean(parts: Sequence[NDArray[np.float64]]) -> float:
    """Mean over problems, not folds."""
    return float(np.concatenate(parts).mean()) if parts else 0.0
