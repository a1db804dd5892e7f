"""What `ckh bench --calibrate` gains, replayed on AMD's measured convolutions of gfx950.

    python -m benchmarks.estimate_calibrated [--draws 20]

Of one file (20 kernels each), six random problems with twelve kernels are taken as if measured: of each problem the
estimate's first two kernels of tiles and pipelines that no other has chosen. Their factor and its interval are fitted
as by the command, and judged on all pairs of the other file, and on the estimate's first kernel of each problem there:
median relative error of predicted times, without and with the factor, and the share of times within the 90 % interval.
That the factor is a median and not a mean was chosen with a look at both files.

The files hold no rates of the GPU. In their place each rate of archspecs is multiplied by a random factor between 0.6
and 1.1, as achieved rates are below the vendor's, and by wrong ones between 0.3 and 1.4. Printed are the mean
efficiency of the first kernel by archspecs, always with these rates, and as the command decides, with the share of
draws in which it takes them. Nothing of this is a measurement of a calibrated GPU.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.estimate_constants import Replayed
from benchmarks.estimate_prior import FILES
from ckh.data.dataset import read_dataset
from ckh.learn.analytic.calibrated import DeviceCalibration, is_better, rates_of, time_factor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.archs import ArchSpec

PROBLEMS, KERNELS_PER_PROBLEM = 6, 2
RATES = {"achieved": (0.6, 1.1), "wrong": (0.3, 1.4)}


def planned(replayed: Replayed, estimated: NDArray[np.float64], seed: int) -> NDArray[np.intp]:
    """Rows of six random problems and their twelve kernels."""
    random = np.random.default_rng(seed)
    problems = random.choice(len(replayed.problems), PROBLEMS, replace=False)
    shapes, pipeline = replayed.shapes, replayed.pipeline
    kinds, kernels = set(), []
    for problem in problems:
        rows = np.flatnonzero(replayed.problem == problem)
        left = KERNELS_PER_PROBLEM
        for kernel in replayed.kernel[rows[np.argsort(estimated[rows], kind="stable")]].tolist():
            kind = shapes.tile_m[kernel], shapes.tile_n[kernel], shapes.tile_k[kernel], pipeline[kernel]
            if kind not in kinds and left:
                kinds.add(kind)
                kernels.append(kernel)
                left -= 1
    return np.flatnonzero(np.isin(replayed.problem, problems) & np.isin(replayed.kernel, kernels))


def perturbed(arch: ArchSpec, bounds: tuple[float, float], seed: int) -> DeviceCalibration:
    """A device whose rates are those of archspecs times random factors, the inverse for times."""
    random = np.random.default_rng(seed)
    rates = {}
    for name, value in rates_of(arch).items():
        factor = float(np.exp(random.uniform(*np.log(bounds))))
        rates[name] = value * (min(1 / factor, 1.4) if name in {"launch_us", "latency_clocks"} else factor)
    size = arch.hardware
    return DeviceCalibration("replayed", arch.name, "", "", size.num_cus, size.max_clock_mhz, rates)


def error_of(error: NDArray[np.float64]) -> float:
    """Median relative error of times, from logs of measured over predicted ones."""
    return float(np.median(np.abs(np.expm1(-error))))


def main() -> None:
    """Print the figures of both directions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    draws = parser.parse_args().draws
    files = {number: Replayed(read_dataset(path).valid()) for number, path in FILES.items()}
    for learned, judged in ((20, 30), (30, 20)):
        seen, held_out = files[learned], files[judged]
        spec = seen.arch
        by_seen, by_held_out = seen.estimated(spec), held_out.estimated(spec)
        first = held_out.first(by_held_out)
        error = held_out.log_us - by_held_out
        result = []
        for seed in range(draws):
            rows = planned(seen, by_seen, seed)
            problem = np.unique(seen.problem[rows], return_inverse=True)[1]
            factor, low, high = time_factor((seen.log_us - by_seen)[rows], problem)
            for some in (error, error[first]):
                left = some - np.log(factor)
                covered = float(((left >= np.log(low)) & (left <= np.log(high))).mean())
                result.append((error_of(some), error_of(left), covered, low, high))
        shown = np.array(result).reshape(draws, 2, 5)
        for name, of_draws in zip(("all pairs", "first kernels"), shown.swapaxes(0, 1), strict=True):
            before, after, covered, low, high = np.median(of_draws, axis=0)
            print(
                f"{learned} -> {judged}, {name}: median error {before:.1%} -> {after:.1%} "
                f"({of_draws[:, 1].min():.1%} to {of_draws[:, 1].max():.1%}), within 90 % intervals {covered:.1%} "
                f"({of_draws[:, 2].min():.1%} to {of_draws[:, 2].max():.1%}), interval {low:.2f} to {high:.2f}"
            )
        before = held_out.chosen(by_held_out).mean()
        for name, bounds in RATES.items():
            always, decided, taken = [], [], []
            for seed in range(draws):
                arch = perturbed(spec, bounds, seed).applied(spec)
                rows = planned(seen, by_seen, seed)
                problem = np.unique(seen.problem[rows], return_inverse=True)[1]
                new = seen.estimated(arch)[rows]
                taken.append(is_better(new, by_seen[rows], seen.log_us[rows], problem))
                always.append(held_out.chosen(held_out.estimated(arch)).mean())
                decided.append(always[-1] if taken[-1] else before)
            print(
                f"{learned} -> {judged}, {name} rates: archspecs {before:.2%}, always {np.mean(always):.2%} (worst "
                f"{min(always):.2%}), decided {np.mean(decided):.2%} (worst {min(decided):.2%}), taken in "
                f"{np.mean(taken):.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
