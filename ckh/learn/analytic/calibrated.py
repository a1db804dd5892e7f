"""Calibration of the analytic estimate to this machine's GPU (`ckh bench --calibrate`).

Micro-kernels measure the GPU's rates, which replace those of `archspecs` if they are plausible. A dozen kernels, each
on a few problems, measure a factor from estimated to real times and its spread, per kind of problems: so estimated
kernels have a time with an interval. Rates may change the order of kernels: they are used for a kind only if its
measured kernels are ordered better than by those of `archspecs`, beyond chance and whichever problem is left out.

Each architecture and device has a JSON file in the user's data folder, replaced after each measurement.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from math import exp, log, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import HOST, load_arch
from ckh.errors import DataError, OutputError
from ckh.files.jsonfields import read_json
from ckh.files.paths import CALIBRATIONS, user_data_dir, write_atomic
from ckh.kernels.compiled import compiled
from ckh.learn.analytic.estimate import KernelShapes, kernel_inputs, minus_us
from ckh.learn.answers.probes import this_device
from ckh.ops import operation_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.learn.models.spec import Wanted

_LEAST, _MOST = 0.2, 1.5  # plausible rates, relative to those of archspecs
_COVERED = 0.95  # one-sided, of the 90 % prediction interval
FEWEST_PROBLEMS = 3  # for a factor with an interval
_ROUNDING = 1e-12  # of gains
_NAME_LENGTH = 16
_US_PER_MS = 1e3
SAME_WIDTH = {"bf8": "fp8"}  # element types with the rate of another one


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """A measured kernel of the calibration: canonical problem, complete name, and time or status."""

    problem: str
    kernel: str
    latency_ms: float | None
    status: str


@dataclass(frozen=True, slots=True)
class TimeFactor:
    """Measured over estimated times of a kind of problems."""

    factor: float
    """Median ratio."""
    low: float
    """Lower end of the 90 % prediction interval, relative to the factor; likewise `high`."""
    high: float
    problems: int
    """Problems that it was fitted to; likewise `pairs`."""
    pairs: int
    uses_rates: bool
    """True if the estimate uses the measured rates, not those of archspecs."""


@dataclass(frozen=True, slots=True)
class DeviceCalibration:
    """Measured rates and time factors of a device; kinds of problems are texts of `Wanted`."""

    device: str
    """Device, as returned by `this_device`."""
    arch: str
    when: str
    """Date and time of the last measurement, ISO 8601, UTC."""
    compiler: str
    num_cus: int
    max_clock_mhz: int
    rates: dict[str, float] = field(default_factory=dict)
    """Rates by the names of `rates_of`."""
    pairs: dict[str, list[MeasuredPair]] = field(default_factory=dict)
    """Measured kernels of each kind."""
    factors: dict[str, TimeFactor] = field(default_factory=dict)
    """Factor of each kind whose measurement was completed."""

    @property
    def refused(self) -> dict[str, str]:
        """Reasons why rates are not used, by name."""
        known, result = rates_of(load_arch(self.arch)), {}
        for name, value in self.rates.items():
            if not _LEAST <= value / known[name] <= _MOST:
                result[name] = (
                    f"{value:.4g} is {value / known[name]:.3g} times the architecture's {known[name]:.4g}, outside of "
                    f"{_LEAST:g} to {_MOST:g}"
                )
        return result

    def applied(self, arch: ArchSpec) -> ArchSpec:
        """The architecture with this device's size, clock and plausible rates."""
        peaks = arch.peaks
        assert peaks is not None
        used = {name: value for name, value in self.rates.items() if name not in self.refused}
        flops, matrix = dict(peaks.flops_per_cu_clock), dict(peaks.matrix_flops_per_cu_clock)
        for dtype, rate in peaks.flops_per_cu_clock.items():
            share = used.get(SAME_WIDTH.get(dtype, dtype), rate) / rate
            flops[dtype] = rate * share
            matrix[dtype] = {tile: item * share for tile, item in matrix.get(dtype, {}).items()}
        own: dict[str, Any] = {name: value for name, value in used.items() if name not in peaks.flops_per_cu_clock}
        measured = replace(peaks, flops_per_cu_clock=flops, matrix_flops_per_cu_clock=matrix, **own)
        hardware = replace(arch.hardware, num_cus=self.num_cus, max_clock_mhz=self.max_clock_mhz)
        return replace(arch, peaks=measured, hardware=hardware)

    def fitted(self, kind: str) -> TimeFactor | None:
        """Fit the factor of a kind to its pairs; None if too few have a time."""
        pairs = [measured_pair for measured_pair in self.pairs.get(kind, ()) if measured_pair.latency_ms is not None]
        if len({pair.problem for pair in pairs}) < FEWEST_PROBLEMS:
            return None
        arch = load_arch(self.arch).sized(self.num_cus)
        problem = np.unique([pair.problem for pair in pairs], return_inverse=True)[1]
        log_us = np.log([(pair.latency_ms or 0.0) * _US_PER_MS for pair in pairs])
        by_archspec, by_rates = (np.log(_estimated_us(pairs, used)) for used in (arch, self.applied(arch)))
        uses_rates = is_better(by_rates, by_archspec, log_us, problem)
        factor, low, high = time_factor(log_us - (by_rates if uses_rates else by_archspec), problem)
        return TimeFactor(factor, low, high, int(problem.max()) + 1, len(pairs), uses_rates)


def rates_of(arch: ArchSpec) -> dict[str, float]:
    """An architecture's rates that micro-kernels measure: those of `Peaks`, and FLOPs per CU and clock by dtype."""
    peaks = arch.peaks
    assert peaks is not None
    names = ("launch_us", "latency_clocks", "bandwidth_gb_s", "l2_bytes_per_clock", "lds_bytes_per_clock")
    return {**{name: getattr(peaks, name) for name in names}, **peaks.flops_per_cu_clock}


def time_factor(errors: NDArray[np.float64], problem: NDArray[np.intp]) -> tuple[float, float, float]:
    """Factor of measured over estimated times, and the ends of its 90 % prediction interval relative to it.

    The factor is the median over problems of the median of their pairs, since some kernels are far slower than
    estimated. Its interval is Student's for a pair of a new problem, with a deviation of each problem and one of each
    pair, and a degree of freedom less than there are problems.

    Args:
        errors: logs of measured over estimated times, shape (pairs,).
        problem: the problem of each pair, from 0; at least two, shape (pairs,).
    """
    from scipy.stats import t

    counts = np.bincount(problem)
    means = np.bincount(problem, errors) / counts
    within = np.square(errors - means[problem]).sum() / max(1, len(errors) - len(means))
    spread = sqrt(means.var(ddof=1) * (1 + 1 / len(means)) + within * (1 - (1 / counts).mean()))
    half = float(t.ppf(_COVERED, len(means) - 1)) * spread
    middle = np.median([np.median(errors[problem == item]) for item in range(len(means))])
    return exp(middle), exp(-half), exp(half)


def is_better(
    new: NDArray[np.float64], old: NDArray[np.float64], log_us: NDArray[np.float64], problem: NDArray[np.intp]
) -> bool:
    """Return true if new estimates order kernels significantly better than old ones, also without any one problem.

    The mean gain of the rank correlation with the measured times must be significant (Student's one-sided test, 5 %),
    and neither it nor the mean efficiency of the first kernel may fall, also over all problems but one.

    Args:
        new: logs of estimated times, shape (pairs,).
        old: likewise.
        log_us: logs of measured times, shape (pairs,).
        problem: the problem of each pair, from 0; at least two, shape (pairs,).
    """
    from scipy.stats import t

    parts = [np.flatnonzero(problem == item) for item in range(int(problem.max()) + 1)]
    gains = np.array([_order(new[part], log_us[part]) for part in parts])
    gains -= [_order(old[part], log_us[part]) for part in parts]
    least = float(t.ppf(_COVERED, len(parts) - 1)) * gains[:, 1].std(ddof=1)
    is_sure = gains[:, 1].mean() * sqrt(len(parts)) > least
    return bool(is_sure and (gains.sum(axis=0) - gains >= -_ROUNDING).all())


def _order(estimated: NDArray[np.float64], log_us: NDArray[np.float64]) -> tuple[float, float]:
    """Efficiency of the first kernel, and the rank correlation; 1 for a single kernel."""
    from scipy.stats import spearmanr

    efficiency = exp(log_us.min() - log_us[estimated == estimated.min()].mean())
    is_flat = np.ptp(estimated) == 0 or np.ptp(log_us) == 0
    return efficiency, 1.0 if is_flat else float(spearmanr(estimated, log_us)[0])


def _estimated_us(pairs: Sequence[MeasuredPair], arch: ArchSpec) -> NDArray[np.float64]:
    """Estimated times of pairs of an operation in microseconds, shape (pairs,)."""
    op = operation_of(pairs[0].problem)
    assert op.problems.tiled is not None
    names = sorted({pair.kernel for pair in pairs})
    texts = sorted({pair.problem for pair in pairs})
    problems = [op.problems.parse(text) for text in texts]
    known = compiled(arch.name, op.name)
    shapes = KernelShapes.of([op.kernels.parse(name) for name in names])
    columns = kernel_inputs(shapes, problems[0].dtype, arch, [known.get(name) for name in names])
    times = -minus_us(problems, [op.problems.tiled(problem) for problem in problems], columns, arch)
    return np.array([times[texts.index(pair.problem), names.index(pair.kernel)] for pair in pairs])


def calibration_path(arch: str, device: str) -> Path:
    """Path of a device's file."""
    name = hashlib.sha256(device.encode()).hexdigest()[:_NAME_LENGTH]
    return user_data_dir() / CALIBRATIONS / f"{arch}-{name}.json"


def calibration_of(arch: str) -> DeviceCalibration | None:
    """The calibration of this machine's device of an architecture; None without one.

    Raises:
        DataError: its file cannot be read, or is damaged.
    """
    if arch == HOST or not (user_data_dir() / CALIBRATIONS).is_dir() or (device := this_device(arch)) is None:
        return None
    path = calibration_path(arch, device)
    return _parsed(path) if path.is_file() else None


def calibrated_factor(wanted: Wanted) -> tuple[DeviceCalibration, TimeFactor] | None:
    """The calibration of this machine's device and its factor for a kind of problems; None without one."""
    device_calibration = calibration_of(wanted.arch)
    if device_calibration is None or device_calibration.num_cus != wanted.gpu.hardware.num_cus:
        return None
    factor = device_calibration.factors.get(str(wanted))
    return None if factor is None else (device_calibration, factor)


def save_calibration(device_calibration: DeviceCalibration) -> None:
    """Replace a device's file.

    Raises:
        OutputError: it cannot be written.
    """
    path = calibration_path(device_calibration.arch, device_calibration.device)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, json.dumps(asdict(device_calibration), indent=1).encode())
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}", "set CKH_DATA_DIR", code="unwritable") from error


def _parsed(path: Path) -> DeviceCalibration:
    """Read a file.

    Raises:
        DataError: it cannot be read, or is damaged.
    """
    values: dict[str, Any] = read_json(path)
    try:
        return _of_values(values)
    except (AttributeError, KeyError, TypeError, ValueError, AssertionError) as error:
        text = f"{path} is not a calibration of a device: {error}"
        raise DataError(text, "remove it, and call ckh bench --calibrate", code="damaged-calibration") from error


def _of_values(values: dict[str, Any]) -> DeviceCalibration:
    """Convert the content of a file, which any of several errors may refuse."""
    pairs = {kind: [MeasuredPair(**item) for item in some] for kind, some in values.pop("pairs").items()}
    factors = {kind: TimeFactor(**item) for kind, item in values.pop("factors").items()}
    device_calibration = DeviceCalibration(**values, pairs=pairs, factors=factors)
    known = rates_of(load_arch(device_calibration.arch))
    positive = [
        *device_calibration.rates.values(),
        *(x for factor in factors.values() for x in (factor.factor, factor.low, factor.high)),
    ]
    if not device_calibration.rates.keys() <= known.keys() or not all(
        value > 0 and log(value) < np.inf for value in positive
    ):
        raise ValueError("a rate or factor is not positive, or of an unknown name")
    return device_calibration
