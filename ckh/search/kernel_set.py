"""`ckh search set`: the smallest set of measured kernels that keeps most of the oracle's mean over a workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.covering import Workload, choose_set
from ckh.assess.times import judged, needed_columns, times_of
from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.bench.planning.registry import REGISTRY, write_registry
from ckh.data.dataset import read_dataset
from ckh.documents import Document
from ckh.errors import UsageError
from ckh.files.outputs import check_output
from ckh.shapes.problems import problems_of
from ckh.text.prose import shell_word

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.data.dataset import Dataset


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
