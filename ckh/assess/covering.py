"""Smallest set of kernels that keeps a given share of the oracle's performance on a workload.

A set of kernels is as good on a problem as its best kernel there. Its efficiency on a workload is the weighted mean of
oracle time / best time in the set. Finding the smallest set that reaches a given mean and has a working kernel for
every problem is a covering problem ("facility location"): an integer program, which HiGHS (`scipy.optimize.milp`)
solves for small pools. Larger pools use the greedy choice: the efficiency of a set is submodular, so any set of k
kernels reaches at most the efficiency of the chosen kernels plus the k largest single gains over them (Nemhauser,
Wolsey and Fisher 1978), which gives a lower bound of the set size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_EXACT_PAIRS = 20_000  # maximum number of usable pairs for the integer program
SOLVER_SECONDS = 60.0
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Working pairs of problems and kernels, with their efficiencies."""

    problem: NDArray[np.int64]  # index of each pair's problem, shape (pairs,)
    kernel: NDArray[np.int64]  # index of each pair's kernel, shape (pairs,)
    efficiency: NDArray[np.float64]  # the problem's oracle time / the pair's time, shape (pairs,)
    weight: NDArray[np.float64]  # weights of problems with sum 1, shape (problems,)
    kernels: int  # number of kernels

    def reached(self, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """Efficiency of a set on each problem, 0 without a working kernel; shape (problems,)."""
        inside = np.isin(self.kernel, chosen)
        best = np.zeros(len(self.weight))
        np.maximum.at(best, self.problem[inside], self.efficiency[inside])
        return best


@dataclass(frozen=True, slots=True)
class CoverStep:
    """A prefix of the greedy order."""

    kernel: int  # index of the last added kernel
    mean: float  # mean efficiency on the workload
    least: float  # efficiency on the worst problem, 0 if one has no working kernel
    bound: float  # upper bound of the mean of any set of this size that covers all problems


@dataclass(frozen=True, slots=True)
class KernelSet:
    """A set of kernels."""

    kernels: tuple[int, ...]  # indices in greedy order
    mean: float  # mean efficiency on the workload
    least: float  # efficiency on the worst problem
    keeps: bool  # whether the requested mean is reached, and every problem has a working kernel
    fewest: int  # lower bound of the set size
    curve: tuple[CoverStep, ...]  # the greedy order, as far as computed

    @property
    def is_fewest(self) -> bool:
        """True if the set is proved to be minimal."""
        return self.keeps and len(self.kernels) == self.fewest


def choose_set(workload: Workload, keep: float, most: int) -> KernelSet:
    """Choose the smallest set, at most `most` kernels, that keeps a share of the mean and serves every problem.

    If `most` kernels are not enough, the first ones in greedy order are chosen.
    """
    if not len(workload.weight) or np.bincount(workload.problem, minlength=len(workload.weight)).min() == 0:
        raise DataError("every problem of a workload needs a working kernel", code="no-working-kernel")
    curve, enough, fewest = _greedy(workload, keep, most)
    chosen = [step.kernel for step in curve[: enough or most]]
    if enough is not None and enough > fewest and len(workload.problem) <= MOST_EXACT_PAIRS:
        better, proved = _exact(workload, keep)
        fewest = max(fewest, proved)
        if better is not None and len(better) < len(chosen):
            inside = np.isin(workload.kernel, better)
            pairs = workload.problem[inside], workload.kernel[inside], workload.efficiency[inside]
            steps, *_ = _greedy(Workload(*pairs, workload.weight, workload.kernels), math.inf, len(better))
            chosen = [step.kernel for step in steps]
    reached = workload.reached(np.array(chosen))
    return KernelSet(
        tuple(chosen),
        float(reached @ workload.weight),
        float(reached.min()),
        enough is not None,
        fewest,
        tuple(curve),
    )


def _greedy(workload: Workload, keep: float, most: int) -> tuple[list[CoverStep], int | None, int]:
    """Add the kernel with the largest gain until the share is kept, or there are `most` kernels.

    The objective is the mean efficiency plus the share of problems with a working kernel, so that serving every problem
    comes first.
    """
    values = 1.0 + workload.efficiency
    served = np.zeros(len(workload.weight))  # 1 + efficiency of each problem, 0 without a kernel
    ceiling = np.full(workload.kernels, 2.0)  # upper bound for sets of 1, 2, … kernels
    chosen: list[int] = []
    reached: list[tuple[float, float]] = []
    while True:
        gains = _gains(workload, values, served)
        np.minimum(ceiling, served @ workload.weight + np.cumsum(np.sort(gains)[::-1]), out=ceiling)
        enough = bool(served.min() >= 1.0) and float((served - 1.0) @ workload.weight) >= keep - _ROUNDING
        if enough or len(chosen) == min(most, workload.kernels) or not gains.any():
            break
        chosen.append(int(gains.argmax()))
        rows = workload.kernel == chosen[-1]
        np.maximum.at(served, workload.problem[rows], values[rows])
        efficiency = np.maximum(served - 1.0, 0.0)
        reached.append((float(efficiency @ workload.weight), float(efficiency.min())))
    bounds = np.clip(ceiling[: len(chosen)] - 1.0, 0.0, 1.0).tolist()
    steps = [CoverStep(kernel, *both, bound) for kernel, both, bound in zip(chosen, reached, bounds, strict=True)]
    possible = np.flatnonzero(ceiling >= 1.0 + keep - _ROUNDING)
    fewest = int(possible[0]) + 1 if len(possible) else workload.kernels + 1
    return steps, len(chosen) if enough else None, fewest


def _gains(workload: Workload, values: NDArray[np.float64], reached: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gain of adding each kernel, shape (kernels,)."""
    more = np.maximum(values - reached[workload.problem], 0.0) * workload.weight[workload.problem]
    return np.bincount(workload.kernel, weights=more, minlength=workload.kernels).astype(np.float64)


def _exact(workload: Workload, keep: float) -> tuple[NDArray[np.int64] | None, int]:
    """Solve for the smallest set that keeps the share by an integer program; also return a lower bound of its size.

    Variables are whether a kernel is chosen (integer) and the share of a problem served by a pair. Each problem is
    served once, by chosen kernels only, and the mean is kept. None if no set was found within the time limit.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array, hstack

    pairs, kernels, problems = len(workload.problem), workload.kernels, len(workload.weight)
    pair, ones = np.arange(pairs), np.ones(pairs)
    serves = coo_array((ones, (workload.problem, pair)), shape=(problems, pairs))
    needs_kernel = coo_array((-ones, (pair, workload.kernel)), shape=(pairs, kernels))
    needs = hstack([needs_kernel, coo_array((ones, (pair, pair)))])
    gains = workload.efficiency * workload.weight[workload.problem]
    solution = milp(
        np.concatenate([np.ones(kernels), np.zeros(pairs)]),
        integrality=np.concatenate([np.ones(kernels), np.zeros(pairs)]),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(hstack([coo_array((problems, kernels)), serves]).tocsr(), 1, 1),
            LinearConstraint(needs.tocsr(), -np.inf, 0),
            LinearConstraint(np.concatenate([np.zeros(kernels), gains])[None, :], keep - _ROUNDING, np.inf),
        ],
        options={"time_limit": SOLVER_SECONDS},
    )
    bound = solution.mip_dual_bound
    proved = 1 if bound is None or not math.isfinite(bound) else math.ceil(bound - 1e-6)
    return (None if solution.x is None else np.flatnonzero(np.round(solution.x[:kernels]))), proved
