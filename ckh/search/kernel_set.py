"""`ckh search set`: the smallest set of measured kernels that keeps most of the oracle's mean over a workload.

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

from ckh.assess.times import judged, needed_columns, times_of
from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.bench.planning.registry import REGISTRY, write_registry
from ckh.data.dataset import read_dataset
from ckh.documents import Document
from ckh.errors import DataError, UsageError
from ckh.files.outputs import check_output
from ckh.shapes.problems import problems_of
from ckh.text.prose import shell_word

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset


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


@dataclass(frozen=True, slots=True)
class SetStep:
    """The first kernels in greedy order."""

    kernels: int
    efficiency_mean: float
    efficiency_min: float
    at_most: float | None
    """Upper bound on the efficiency of any set of this size."""
    build_s: float | None
    """Estimated seconds to compile them."""
    library_bytes: float | None
    """Estimated size."""
    added: str
    """The kernel added in this step."""


class SearchSetDocument(Document):
    """ckh search set --json: the smallest set that keeps most of the oracle's mean."""

    schema = "search_set"

    op: str
    arch: str
    problems: int
    measured_kernels: int
    pairs_not_measured: float
    """Share of pairs that were not measured."""
    keep: float | None
    """Required efficiency of the set."""
    kernels: tuple[str, ...]
    """Complete names."""
    efficiency_mean: float
    efficiency_min: float
    keeps: bool | float
    fewest_possible: int | None
    is_fewest: bool | None
    build_s: float | None
    """Estimated seconds to compile them."""
    library_bytes: float | None
    """Estimated size."""
    registry: str | None
    """Registry file."""
    curve: tuple[SetStep, ...]
    """Steps in greedy order."""


def search_set(
    most: int,
    keep: float,
    data: Sequence[Path],
    problems: str | None,
    registry: Path | None,
    *,
    force: bool,
) -> SearchSetDocument:
    """Select the set, and write its registry."""
    if registry is not None:
        check_output(registry, REGISTRY, force=force, inputs=data)
    dataset = _of_workload(judged(read_dataset(*data, columns=needed_columns)), problems)
    times = times_of(dataset)
    efficiency = times.efficiency()
    names, kernel = np.unique(dataset.frame["kernel"].astype(str).to_numpy(), return_inverse=True)
    works = efficiency > 0
    weight = np.full(times.count, 1.0 / times.count)
    workload = Workload(times.problem[works], kernel[works], efficiency[works], weight, len(names))
    kernel_set = choose_set(workload, keep, most)
    kernels = tuple(str(names[number]) for number in kernel_set.kernels)
    if registry is not None:
        write_registry(registry, [dataset.op.kernels.parse(name) for name in kernels], arch=dataset.arch)
    cost = KernelCache().cost_each(dataset.arch, dataset.op.name)  # of earlier builds on this machine
    curve = tuple(
        SetStep(
            kernels=count,
            efficiency_mean=step.mean,
            efficiency_min=step.least,
            at_most=step.bound if step.bound >= step.mean else None,
            build_s=None if cost is None else cost.seconds * count,
            library_bytes=None if cost is None else cost.bytes * count,
            added=str(names[step.kernel]),
        )
        for count, step in enumerate(kernel_set.curve, 1)
    )
    return SearchSetDocument(
        op=dataset.op.name,
        arch=dataset.arch,
        problems=times.count,
        measured_kernels=len(names),
        pairs_not_measured=1.0 - len(dataset) / (times.count * len(names)),
        keep=keep,
        kernels=kernels,
        efficiency_mean=kernel_set.mean,
        efficiency_min=kernel_set.least,
        keeps=kernel_set.keeps,
        fewest_possible=kernel_set.fewest,
        is_fewest=kernel_set.is_fewest,
        build_s=None if cost is None else cost.seconds * len(kernels),
        library_bytes=None if cost is None else cost.bytes * len(kernels),
        registry=None if registry is None else str(registry),
        curve=curve,
    )


def _of_workload(dataset: Dataset, source: str | None) -> Dataset:
    """Rows of the problems of a set or file."""
    if source is None:
        return dataset
    wanted = problems_of(dataset.op, source, None, None, str(dataset.frame["dtype"].iloc[0]))
    numbers = {problem.canonical(): number for number, problem in enumerate(dataset.problems())}
    missing = [problem.canonical() for problem in wanted if problem.canonical() not in numbers]
    if missing:
        raise UsageError(
            f"{len(missing)} of {len(wanted)} problems of {source} have no valid time in the data, e.g. {missing[0]}",
            f"measure them first: ckh bench --problems {shell_word(source)}",
            code="not-measured",
        )
    chosen = np.array([numbers[problem.canonical()] for problem in wanted])
    return dataset.select(np.isin(dataset.problem_ids, chosen))
