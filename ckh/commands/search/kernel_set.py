"""`ckh search set`: the smallest set of measured kernels that keeps most of the oracle's mean over a workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.covering import Workload, choose_set
from ckh.assess.times import judged, needed_columns, times_of
from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.bench.planning.registry import REGISTRY, write_registry
from ckh.commands._common import print_json, print_table, say
from ckh.data.dataset import read_dataset
from ckh.documents import Document
from ckh.errors import UsageError
from ckh.files.outputs import check_output
from ckh.shapes.problems import problems_of
from ckh.text.durations import format_duration
from ckh.text.log import note
from ckh.text.prose import shell_word

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.assess.covering import KernelSet
    from ckh.bench.compilation.kernel_cache import KernelCost
    from ckh.data.dataset import Dataset

_SHOWN = 40  # printed steps of the curve


@dataclass(frozen=True, slots=True)
class SetRequest:
    """Options of a set of kernels."""

    most: int
    keep: float
    data: tuple[Path, ...]
    problems: str | None
    registry: Path | None


def search_set(request: SetRequest, *, force: bool, as_json: bool) -> None:
    """Select the set, write its registry, and print it with the curve of efficiency over set size."""
    if request.registry is not None:
        check_output(request.registry, REGISTRY, force=force, inputs=request.data)
    dataset = _of_workload(judged(read_dataset(*request.data, columns=needed_columns)), request.problems)
    arch = dataset.arch
    times = times_of(dataset)
    efficiency = times.efficiency()
    names, kernel = np.unique(dataset.frame["kernel"].astype(str).to_numpy(), return_inverse=True)
    works = efficiency > 0
    weight = np.full(times.count, 1.0 / times.count)
    workload = Workload(times.problem[works], kernel[works], efficiency[works], weight, len(names))
    kernel_set = choose_set(workload, request.keep, request.most)
    kernels = [str(names[number]) for number in kernel_set.kernels]
    if request.registry is not None:
        write_registry(request.registry, [dataset.op.kernels.parse(name) for name in kernels], arch=arch)
    cost = KernelCache().cost_each(arch, dataset.op.name)
    unmeasured = 1.0 - len(dataset) / (times.count * len(names))
    report = _Report(request, dataset, kernel_set, [str(name) for name in names], times.count, unmeasured, cost)
    (report.print_json if as_json else report.print_text)()


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


@dataclass(frozen=True, slots=True)
class _Report:
    """Report on a selected set of kernels."""

    request: SetRequest
    dataset: Dataset
    found: KernelSet
    names: list[str]
    problems: int
    unmeasured: float
    cost: KernelCost | None

    def print_json(self) -> None:
        """One document."""
        kernel_set = self.found
        seconds, size = self._costs(len(kernel_set.kernels))
        print_json(
            SearchSetDocument(
                op=self.dataset.op.name,
                arch=self.dataset.arch,
                problems=self.problems,
                measured_kernels=len(self.names),
                pairs_not_measured=self.unmeasured,
                keep=self.request.keep,
                kernels=tuple(self.names[number] for number in kernel_set.kernels),
                efficiency_mean=kernel_set.mean,
                efficiency_min=kernel_set.least,
                keeps=kernel_set.keeps,
                fewest_possible=kernel_set.fewest,
                is_fewest=kernel_set.is_fewest,
                build_s=seconds,
                library_bytes=size,
                registry=None if self.request.registry is None else str(self.request.registry),
                curve=tuple(self._step(count) for count in range(1, len(kernel_set.curve) + 1)),
            )
        )

    def _step(self, count: int) -> SetStep:
        step, (seconds, size) = self.found.curve[count - 1], self._costs(count)
        return SetStep(
            kernels=count,
            efficiency_mean=step.mean,
            efficiency_min=step.least,
            at_most=step.bound if step.bound >= step.mean else None,
            build_s=seconds,
            library_bytes=size,
            added=self.names[step.kernel],
        )

    def print_text(self) -> None:
        """Tables: the curve, then the set."""
        result, op = self.found, self.dataset.op
        where = f"{op.name} on {self.dataset.arch}"
        say(f"{self.problems} problems of {where}, {len(self.names)} kernels measured\n")
        rows = [
            [
                str(count),
                f"{step.mean:.2%}",
                f"{step.least:.2%}",
                f"{step.bound:.2%}" if step.bound >= step.mean else "-",
                *self._cost_cells(count),
            ]
            for count, step in enumerate(result.curve[:_SHOWN], 1)
        ]
        columns = ("kernels", "mean", "worst problem", "no set above", "build", "size")
        print_table("efficiency of the first kernels in greedy order:", columns, rows)
        say()
        print_table(f"{self._verdict()}:", ("kernel",), [[self.names[number]] for number in result.kernels])
        if self.unmeasured > 0:
            note(f"{self.unmeasured:.1%} of the pairs were not measured and count as failures")
        if self.request.registry is not None:
            registry = self.request.registry
            say(f"\nwrote {registry}; next: ckh bench --registry {shell_word(registry)}")

    def _verdict(self) -> str:
        kernel_set, keep = self.found, self.request.keep
        count = f"{len(kernel_set.kernels)} kernel{'s' * (len(kernel_set.kernels) > 1)}"
        kept = f"{count} keep {kernel_set.mean:.2%} of the oracle's mean, {kernel_set.least:.2%} on the worst problem"
        if not kernel_set.keeps:
            need = (
                f"at least {kernel_set.fewest} are needed"
                if kernel_set.fewest > len(kernel_set.kernels)
                else "more are needed"
            )
            return f"{kept}; for {keep:.4g} of it, with one for every problem, {need}"
        return f"{kept}; " + (
            "no set of fewer does" if kernel_set.is_fewest else f"at least {kernel_set.fewest} are needed"
        )

    def _costs(self, count: int) -> tuple[float | None, float | None]:
        """Seconds on one core and library bytes of building `count` kernels, from earlier builds on this machine."""
        if self.cost is None:
            return None, None
        return self.cost.seconds * count, self.cost.bytes * count

    def _cost_cells(self, count: int) -> list[str]:
        seconds, size = self._costs(count)
        return ["" if seconds is None else format_duration(seconds), "" if size is None else f"{size / 1e6:.1f} MB"]
