"""Whether constants of the analytic estimate, fitted to a dozen measured kernels, choose better: AMD's gfx950 data.

    python -m benchmarks.estimate_constants [--pairs 12 48] [--draws 10]

The constants that are not in `archspecs` (launch, latency of an iteration, L2, LDS writes and issue) are fitted to
random pairs of one file, by least squares of log times with a factor of two as the prior deviation of each constant
from its default and of all times from the estimate. The estimate with these constants then ranks the measured kernels
of the other file. Prints mean / P10 efficiency over all draws, and the mean gain over the default constants by draw.
"""

from __future__ import annotations

import argparse
from dataclasses import MISSING, fields, replace
from math import log
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

from benchmarks.estimate_prior import FILES, random_pairs, shown
from ckh.archs import load_arch
from ckh.assess.times import times_of
from ckh.data.dataset import Dataset, read_dataset
from ckh.hardware.archspec import Peaks
from ckh.kernels.compiled import compiled_here
from ckh.kernels.table import column_of
from ckh.learn.analytic import estimate
from ckh.learn.analytic.corrected import complete_kernels
from ckh.learn.analytic.estimate import KernelShapes, kernel_inputs, minus_us

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.archs import ArchSpec

OF_PEAKS = {field.name: field.default for field in fields(Peaks) if field.default is not MISSING}
OF_ESTIMATE = {name: getattr(estimate, name) for name in ("LDS_WRITE_BYTES_PER_CLOCK", "_ISSUE_CLOCKS")}
CONSTANTS = (*OF_PEAKS, *OF_ESTIMATE)
DEFAULTS = np.log([*OF_PEAKS.values(), *OF_ESTIMATE.values()])
DEVIATION = log(2.0)
NOISE = 0.3  # of log times, the estimate's own error


class Replayed:
    """Estimated times of a dataset's rows, by the constants."""

    def __init__(self, data: Dataset) -> None:
        names, self.kernel = np.unique(data.frame["kernel"].to_numpy(str), return_inverse=True)
        kernels = complete_kernels(data, names.tolist())
        assert kernels is not None
        assert data.op.problems.tiled is not None
        known, name_of = compiled_here(data.arch, data.op.name), data.op.kernels.name
        self.reports = [known.get(name_of(kernel)) for kernel in kernels]
        self.pipeline = column_of(kernels, "pipeline").astype(str)
        self.shapes, self.arch = KernelShapes.of(kernels), load_arch(data.arch)
        self.problems = data.problems()
        self.sizes = [data.op.problems.tiled(problem) for problem in self.problems]
        self.problem, self.data = data.problem_ids, data
        self.log_us = np.log(data.frame["latency_ms"].to_numpy(np.float64) * 1e3)

    def estimated(self, arch: ArchSpec) -> NDArray[np.float64]:
        """Logs of estimated times of all rows on an architecture."""
        columns = kernel_inputs(self.shapes, self.problems[0].dtype, arch, self.reports)
        times = -minus_us(self.problems, self.sizes, columns, arch)
        return np.asarray(np.log(times[self.problem, self.kernel]))

    def by_constants(self, constants: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logs of estimated times of all rows by constants."""
        values = dict(zip(CONSTANTS, np.exp(constants).tolist(), strict=True))
        for name in OF_ESTIMATE:
            setattr(estimate, name, values.pop(name))
        assert self.arch.peaks is not None
        return self.estimated(replace(self.arch, peaks=replace(self.arch.peaks, **values)))

    def first(self, estimated: NDArray[np.float64]) -> NDArray[np.intp]:
        """Row of the first kernel of each problem, by logs of estimated times."""
        order = np.lexsort((estimated, self.problem))
        return order[np.unique(self.problem[order], return_index=True)[1]]

    def chosen(self, estimated: NDArray[np.float64]) -> NDArray[np.float64]:
        """Efficiency of the first kernel of each problem."""
        return np.asarray(times_of(self.data).efficiency()[self.first(estimated)])


def fitted(measured: Replayed) -> NDArray[np.float64]:
    """Logs of the constants, fitted to all rows."""

    def residuals(values: NDArray[np.float64]) -> NDArray[np.float64]:
        *constants, factor = values
        error = measured.by_constants(np.asarray(constants)) + factor - measured.log_us
        return np.concatenate([error / NOISE, (constants - DEFAULTS) / DEVIATION, [factor / DEVIATION]])

    return np.asarray(least_squares(residuals, [*DEFAULTS, 0.0], loss="soft_l1").x[:-1])


def main() -> None:
    """Print a line for each direction and number of pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[12, 48])
    parser.add_argument("--draws", type=int, default=10)
    arguments = parser.parse_args()
    data = {number: read_dataset(path).valid() for number, path in FILES.items()}
    for learned, judged in ((20, 30), (30, 20)):
        held_out = Replayed(data[judged])
        before = held_out.chosen(held_out.by_constants(DEFAULTS))
        print(f"{judged}-kernel file, default constants: {shown([before])}", flush=True)
        for pairs in arguments.pairs:
            draws = 1 if pairs >= len(data[learned]) else arguments.draws
            result = [fitted(Replayed(random_pairs(data[learned], pairs, seed))) for seed in range(draws)]
            after = [held_out.chosen(held_out.by_constants(item)) for item in result]
            gains = np.array([(item - before).mean() for item in after])
            values = np.exp(np.median(result, axis=0))
            print(f"{pairs:5d} pairs of the {learned}-kernel file: {shown(after)}", end="; ")
            print(f"gain {gains.mean():+.2%}, from {gains.min():+.2%} to {gains.max():+.2%}", end="; medians: ")
            print(*(f"{name} {value:.3g}" for name, value in zip(CONSTANTS, values, strict=True)), flush=True)


if __name__ == "__main__":
    main()
