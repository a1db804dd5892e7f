"""Repeat noise: difference between two measurements of the same kernel on the same problem, and its consequences.

Where pairs were measured more than once, a dataset has two independent times of them (`earlier_ms`, `later_ms`). A
change that affects all times of a problem equally does not change the ranking and is not noise: noise is the deviation
of the ratio of the two times from the problem's median ratio. The tolerance is its robust standard deviation, 1.4826
times the median absolute deviation: two thirds of repeated measurements are within it. Only kernels that may be the
best are used, with at most 1.5 times the oracle's time: slower kernels have fewer samples.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ckh.assess.intervals import Estimate, difference, estimates, mean_of, ratio
from ckh.assess.metrics import Times, choices
from ckh.assess.times import times_of
from ckh.schema import REPEATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset

_NORMAL = 1.4826  # standard deviation / median absolute deviation of a normal distribution
_NEAR = 1.5  # times the oracle: kernels whose noise matters
_CONTENDER = 1.05  # times the oracle: kernels that may be the best in another measurement
_LEAST_PAIRS = 8  # minimum to estimate a problem's own noise; below it the device's noise is used
NOT_REPEATED = (
    "repeatability unknown, without repeated measurements; the tolerance is the spread of a run's samples, at least 1 %"
)
_LEAST_OF_PROBLEM = 3  # minimum to estimate a problem's median ratio


@dataclass(frozen=True, slots=True)
class DeviceNoise:
    """Repeat noise of a device."""

    device: str
    """Name of the device, or the architecture if unknown."""
    pairs: int
    """Repeated pairs close to the best, on problems with at least three such pairs."""
    problems: int
    """Problems of these pairs."""
    median: float
    """Median relative difference between two times of a pair, after removing the problem's median ratio."""
    p90: float
    """90th percentile of the difference."""
    tolerance: float
    """Robust standard deviation of the difference: kernels within it of the best are ties."""


@dataclass(frozen=True, slots=True, eq=False)
class RepeatNoise:
    """Repeat noise of a dataset."""

    devices: tuple[DeviceNoise, ...]  # noise of each device with repeated pairs
    tolerance: NDArray[np.float64]
    """Relative difference between repeated measurements of a kernel, NaN where its device has none; (problems,)."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Comparison with the choices of a repeated measurement: chosen by one measurement, scored in the other."""

    problems: int
    """Problems with kernels measured more than once."""
    repeated: Estimate
    """Mean efficiency of choosing by a measurement."""
    model: Estimate
    """Mean efficiency of the model's choices, scored the same way."""
    share: Estimate
    """The model's efficiency over that of a repeated measurement."""
    baseline: str
    """Baseline of the gap."""
    gap: Estimate | None
    """Share of the gap between the baseline and a repeated measurement that the model closes; null: no gap."""


def has_repeats(dataset: Dataset) -> bool:
    """Return True if any pair has two measurements."""
    return set(REPEATED) <= set(dataset.frame.columns) and bool(_twice(*_both(dataset)).any())


def repeat_noise(dataset: Dataset) -> RepeatNoise | None:
    """Compute the repeat noise of a dataset; None without repeated pairs."""
    repeat_noise_of_parts = RepeatNoiseOfParts()
    repeat_noise_of_parts.add(dataset, times_of(dataset))
    return repeat_noise_of_parts.result()


class RepeatNoiseOfParts:
    """Accumulates the repeat noise of a dataset in parts of whole problems.

    Median and percentile need all values: one number is kept for each repeated pair close to the best.
    """

    def __init__(self) -> None:
        self._apart: dict[str, list[NDArray[np.float64]]] = {}
        self._problems: Counter[str] = Counter()
        self._devices: list[str] = []
        self._own: list[NDArray[np.float64]] = []

    def add(self, dataset: Dataset, times: Times) -> None:
        """Add a part and its times."""
        devices = _devices(dataset)
        own = np.full(len(devices), np.nan)
        for name in devices:
            self._apart.setdefault(name, [])
        self._devices += devices
        self._own.append(own)
        if not has_repeats(dataset):
            return
        earlier, later = _both(dataset)
        rows = np.flatnonzero(_twice(earlier, later) & (times.efficiency() >= 1 / _NEAR))
        problem = dataset.problem_ids[rows]
        apart = _apart(np.log(earlier[rows] / later[rows]), problem)
        apart, problem = apart.dropna(), problem[apart.notna()]
        for number, (_, of_problem) in zip(np.unique(problem).tolist(), apart.groupby(problem), strict=True):
            values, device = of_problem.to_numpy(), devices[number]
            self._apart[device].append(values)
            self._problems[device] += 1
            if len(values) >= _LEAST_PAIRS:
                own[number] = _NORMAL * float(np.median(values))

    def result(self) -> RepeatNoise | None:
        """Return the noise; None without repeated pairs."""
        differences = {name: np.concatenate([np.zeros(0), *parts]) for name, parts in self._apart.items()}
        devices = tuple(
            DeviceNoise(
                name,
                len(apart),
                self._problems[name],
                float(np.median(apart)),
                float(np.percentile(apart, 90)),
                _NORMAL * float(np.median(apart)),
            )
            for name, apart in differences.items()
            if len(apart) >= _LEAST_PAIRS
        )
        if not devices:
            return None
        of_device = {device.device: device.tolerance for device in devices}
        own = np.concatenate(self._own)
        general = np.array([of_device.get(name, np.nan) for name in self._devices])
        return RepeatNoise(devices, np.where(np.isfinite(own), own, general))


@dataclass(frozen=True, slots=True, eq=False)
class ScoredAgain:
    """Choices scored in measurements that did not select them, shape (problems,) each."""

    is_known: NDArray[np.bool_]
    """True where all of the problem's best kernels were measured twice; elsewhere the other values are undefined."""
    repeated: NDArray[np.float64]  # efficiency of choosing by a measurement
    model: NDArray[np.float64]  # efficiency of the model's choice
    base: NDArray[np.float64]  # efficiency of the choice at which the closable gap begins


def scored_again(dataset: Dataset, chosen: NDArray[np.int64], without: NDArray[np.int64] | None) -> ScoredAgain:
    """Score choices in measurements that did not select them.

    Scores use the later measurement; where all kernels of a problem were measured twice, both, with a repeated
    measurement's choice scored in the other one. Problems whose best kernels were not all measured twice are unknown;
    other kernels count with their single time.
    """
    frame, problem = dataset.frame, dataset.problem_ids
    count = int(problem.max()) + 1
    nothing = np.zeros(count)
    if not has_repeats(dataset):
        return ScoredAgain(np.zeros(count, dtype=bool), nothing, nothing, nothing)
    latency = np.where(frame["is_valid"], frame["latency_ms"], np.inf).astype(np.float64)
    both = _both(dataset)
    is_twice = _twice(*both) & np.isfinite(latency)
    earlier, later = (np.where(is_twice, measured, latency) for measured in both)
    twice = np.bincount(problem[is_twice], minlength=count)
    contends = Times(problem, latency, latency).efficiency() >= 1 / _CONTENDER
    is_known = twice >= 2  # noqa: PLR2004 - of one there is no choice
    is_known[problem[contends & ~is_twice]] = False
    is_full = is_known & (twice == np.bincount(problem[np.isfinite(latency)], minlength=count))
    scored = [Times(problem, measured, np.full(len(measured), np.nan)).efficiency() for measured in (later, earlier)]
    again = [choices(-measured, problem, count) for measured in (earlier, later)]

    def averaged(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(is_full, (first + second) / 2, first)

    rows = np.bincount(problem, minlength=count)
    random = [np.bincount(problem, weights=of, minlength=count) / rows for of in scored]
    return ScoredAgain(
        is_known,
        averaged(*(of[made] for of, made in zip(scored, again, strict=True))),
        averaged(*(of[chosen] for of in scored)),
        averaged(*(random if without is None else [of[without] for of in scored])),
    )


def ceiling(parts: Sequence[ScoredAgain], baseline: str) -> Ceiling | None:
    """Compare the model's choices with those of a repeated measurement; None without repeated measurements."""
    is_known = np.concatenate([part.is_known for part in parts])
    if not is_known.any():
        return None
    repeated, model, base = (
        mean_of(np.concatenate([getattr(part, name) for part in parts]), is_known)
        for name in ("repeated", "model", "base")
    )
    compared = estimates(
        {
            "repeated": repeated,
            "model": model,
            "share": ratio(model, repeated),
            "gap": ratio(difference(model, base), difference(repeated, base)),
        },
        len(is_known),
    )
    gap = compared.pop("gap")
    return Ceiling(int(is_known.sum()), baseline=baseline, gap=gap if np.isfinite(gap.value) else None, **compared)


def noise_lines(noise: Sequence[DeviceNoise], ceiling: Ceiling | None) -> list[str]:
    """Lines on repeat noise, and on the model compared with a repeated measurement."""
    lines = [
        f"repeatability on {own.device}: two times of a kernel differ by {own.median:.1%} (median), "
        f"{own.p90:.1%} (P90) in {own.pairs} pairs of {own.problems} problems; ties within "
        f"{own.tolerance:.1%} of the best"
        for own in noise
    ] or [NOT_REPEATED]
    if ceiling is not None:
        how = f"selected on one measurement, scored on another ({ceiling.problems} problems)"
        lines.append(f"ceiling    {ceiling.repeated}: {how}")
        lines.append(f"the model  {ceiling.model}, scored alike; {ceiling.share} of the ceiling")
        if ceiling.gap is not None:
            lines.append(f"           {ceiling.gap} of the gap from the {ceiling.baseline} to it")
    return lines


def _both(dataset: Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    first, second = (dataset.frame[name].to_numpy(dtype=np.float64) for name in REPEATED)
    return first, second


def _twice(earlier: NDArray[np.float64], later: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray((earlier > 0) & (later > 0) & np.isfinite(earlier) & np.isfinite(later))


def _apart(ratios: NDArray[np.float64], problem: NDArray[np.int64]) -> pd.Series[float]:
    """Deviation of each pair's log ratio from its problem's median; NaN with too few pairs."""
    known = pd.Series(ratios)
    of_problem = known.groupby(problem)
    apart: pd.Series[float] = (known - of_problem.transform("median")).abs()
    apart[of_problem.transform("size") < _LEAST_OF_PROBLEM] = np.nan
    return apart


def _devices(dataset: Dataset) -> list[str]:
    """The device of each problem."""
    first = dataset.frame.iloc[dataset.first_rows]
    names = first["device"] if "device" in first.columns else first["arch"]
    return [str(name) if isinstance(name, str) else str(arch) for name, arch in zip(names, first["arch"], strict=True)]
