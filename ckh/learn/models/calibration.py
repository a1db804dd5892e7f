"""Calibration: predicted speeds consistent with the ranking, and prediction intervals of times.

Ranking and speeds come from separate models. The calibration, a table fitted on held-out folds, maps the distance of a
score to the best score to the ratio of the kernel's speed to the best. Predicted speeds of the first kernels, each
divided by its ratio, estimate the speed of the best. Slow problems (small, depthwise) have larger errors than fast
ones, so there is an interval for each band of the first kernel's predicted speed. Sets state how many of the first
kernels must be measured so that one of them is nearly the best.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ckh.errors import DataError
from ckh.files.jsonfields import model_fields

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from ckh.files.jsonfields import JsonFields

CALIBRATION_NAME = "calibration.json"
FIRST = 4  # kernels whose speeds are used; CALIBRATED_FIRST of csrc/ckh_core.c
COVERED = 0.9  # nominal share of measured times within the interval
_MOST_ROWS = 1024
_LEAST, _MOST = 1e-12, 1e12  # bounds of ratios and speeds, so that products are finite


@dataclass(frozen=True, slots=True)
class Calibration:
    """Calibration of a model's speeds."""

    gap: tuple[float, ...]  # of a score to the best, ascending from 0; empty: speeds are used as predicted
    share: tuple[float, ...]  # speeds at these gaps relative to the best, decreasing from 1
    scale: float
    bands: tuple[tuple[float, float, float], ...]  # as of `answer.interval_at`, on held-out folds
    problems: int
    sets: tuple[tuple[float, int], ...] = ()  # within this share of the best is one of so many first kernels

    def __post_init__(self) -> None:
        """Validate the values."""
        numbers = (*self.gap, *self.share, self.scale, *(number for band in self.bands for number in band))
        is_table = len(self.gap) == len(self.share) <= _MOST_ROWS and all(abs(number) < _MOST for number in numbers)
        is_table = is_table and (not self.gap or (self.gap[0], self.share[0]) == (0.0, 1.0))
        is_falling = all(a < b for a, b in pairwise(self.gap)) and all(a >= b for a, b in pairwise(self.share))
        starts = [start for start, _, _ in self.bands]
        is_banded = starts[:1] == [0.0] and all(a < b for a, b in pairwise(starts)) and len(starts) <= _MOST_ROWS
        is_banded = is_banded and all(_LEAST < low <= high for _, low, high in self.bands)
        is_banded = is_banded and all(0 <= within < 1 <= count for within, count in self.sets)
        if not (is_table and is_falling and is_banded and min((*self.share, self.scale)) > _LEAST):
            raise DataError(
                "a calibration needs decreasing shares, a scale, intervals of time by speed, and sets", code="bad-field"
            )

    @property
    def numbers(self) -> tuple[float, ...]:
        """Scale, distances and shares, as passed to C."""
        return (self.scale, *self.gap, *self.share)

    def shares(self, gap: NDArray[np.float64]) -> NDArray[np.float64]:
        """Linearly interpolated shares at distances, of the same shape."""
        import numpy as np

        gaps, shares = np.array(self.gap), np.array(self.share)
        above = np.minimum(np.searchsorted(gaps, gap, side="right"), len(gaps) - 1)
        below = np.maximum(above - 1, 0)
        width = np.where(above == below, 1.0, gaps[above] - gaps[below])
        share = shares[below] - (shares[below] - shares[above]) * ((gap - gaps[below]) / width)
        return np.asarray(np.where(gap >= gaps[-1], shares[-1], np.maximum(share, shares[above])))

    def speeds(self, score: NDArray[np.float64], tflops: NDArray[np.float64]) -> NDArray[np.float64]:
        """Calibrated speeds of kernels in ranking order, decreasing: identical to those computed in C."""
        import numpy as np

        count = min(FIRST, score.shape[-1])
        if not self.gap or not count:
            return tflops * self.scale
        share = self.shares(score[..., :1] - score)
        level = tflops[..., 0] / share[..., 0]
        for place in range(1, count):
            level = level + tflops[..., place] / share[..., place]
        return np.asarray((level / count * self.scale)[..., None] * share)

    def to_json(self) -> str:
        """JSON text for `read_calibration`."""
        document = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({**document, "first": FIRST, "covered": COVERED}, indent=1) + "\n"


def read_calibration(folder: Path) -> Calibration | None:
    """Read the calibration in a model's directory; None if there is none."""
    path = folder / CALIBRATION_NAME
    if not path.is_file():
        return None
    with model_fields(path) as fields:
        try:
            return _parsed(fields)
        except DataError as error:
            where = "" if str(path) in error.message else f"{path}: "
            raise DataError(f"{where}{error.message}", error.hint, code=error.code) from error


def _parsed(fields: JsonFields) -> Calibration:
    if (first := fields.scalar("first", int)) != FIRST:
        fields.fail("first", f"must be {FIRST}, not {first}")
    gap, share = fields.numbers("gap"), fields.numbers("share")
    bands = tuple((float(start), float(low), float(high)) for start, low, high in fields.rows("bands", (float,) * 3))
    sets = fields.rows("sets", (float, int)) if fields.has("sets") else ()  # without them: by earlier versions
    return Calibration(
        gap, share, fields.number("scale"), bands, fields.scalar("problems", int), tuple(map(tuple, sets))
    )
