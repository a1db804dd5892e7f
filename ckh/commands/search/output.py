"""Output of `ckh search measure`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.commands._common import print_json, print_table, say
from ckh.documents import Document
from ckh.search.on_model_text import head_text, yes
from ckh.text.durations import format_duration
from ckh.text.log import MEASURED, emit
from ckh.text.prose import shell_word

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ckh.commands.search.options import Effort
    from ckh.data.journal import ResultRow
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import AnyOperation, Problem
    from ckh.schema import Status
    from ckh.search.kernels import KernelSpace
    from ckh.search.measuring import Measurement

_FLOPS_PER_TFLOPS_MS = 1e9


@dataclass(frozen=True, slots=True)
class MeasuredSpace:
    """The search space."""

    kernels: int
    pool: int
    """Kernels that are candidates of ckh predict."""
    left_out: int
    """Number of combinations excluded from the search."""


@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """A measured kernel."""

    kernel: str
    """Complete name of the kernel."""
    status: Status
    tflops: float | None
    latency_ms: float | None
    spread: float | None
    remeasured: bool


@dataclass(frozen=True, slots=True)
class FastestKernel(MeasuredKernel):
    """One of the fastest measured kernels."""

    candidate: bool
    """Whether it is a candidate of ckh predict."""


class SearchMeasuredDocument(Document):
    """ckh search measure --json."""

    schema = "search_measured"

    problem: str
    """Canonical text of the problem."""
    sizes: Mapping[str, str | int | float | bool]
    """The problem's sizes by name."""
    model: str | None
    space: MeasuredSpace
    strategy: str
    max_evaluations: int
    seed: int
    out: str
    ended: str
    evaluations: int
    statuses: Mapping[str, int]
    wall_s: float
    first_choice: MeasuredKernel | None
    """The model's first choice among the candidates."""
    ratio: float | None
    """Time of the first choice divided by the fastest time."""
    kernels: tuple[FastestKernel, ...]
    next: str
    """The next command to run."""


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """Space and method of a search."""

    problem: Problem
    model: Model | None
    space: KernelSpace
    effort: Effort

    @property
    def op(self) -> AnyOperation:
        """The problem's operation."""
        from ckh.ops import operation_of

        return operation_of(self.problem.canonical())

    def print_head(self) -> None:
        """The first lines of a report."""
        space = self.space
        emit(head_text(self.problem, self.model))
        rest = f"; {space.left_out} more combinations were left out" if space.left_out else ""
        say(f"space    {len(space)} kernels, {space.pool_size} of them candidates of ckh predict{rest}")

    def in_pool(self) -> frozenset[Any]:
        """The candidates of the pool."""
        return frozenset(self.space.kernels[: self.space.pool_size])


def print_measured(summary: Summary, outcome: Measurement, out: Path, *, as_json: bool) -> None:
    """Print the fastest kernels and the next command."""
    pool = frozenset(map(summary.op.kernels.name, summary.in_pool()))
    after = f"ckh convert {shell_word(out)} --out {shell_word(f'{out.name}.parquet')}"
    if as_json:
        first = outcome.first_choice
        space = summary.space
        print_json(
            SearchMeasuredDocument(
                problem=summary.problem.canonical(),
                sizes=summary.problem.to_dict(),
                model=None if summary.model is None else str(summary.model.path),
                space=MeasuredSpace(len(space), space.pool_size, space.left_out),
                strategy=summary.effort.strategy,
                max_evaluations=summary.effort.evaluations,
                seed=summary.effort.seed,
                out=str(out),
                ended=str(outcome.reason),
                evaluations=len(outcome.rows),
                statuses=outcome.statuses,
                wall_s=outcome.wall_s,
                first_choice=None if first is None else MeasuredKernel(**_measured(summary, first)),
                ratio=outcome.ratio,
                kernels=tuple(
                    FastestKernel(**_measured(summary, row), candidate=row.kernel in pool) for row in outcome.best
                ),
                next=after,
            )
        )
        return
    summary.print_head()
    statuses = ", ".join(f"{count} {status}" for status, count in outcome.statuses.items()) or "nothing"
    say(f"search   {summary.effort.strategy}, seed {summary.effort.seed}: {len(outcome.rows)} measured ({statuses}),")
    say(f"         {outcome.reason}, in {format_duration(outcome.wall_s)}")
    say()
    rows = [
        [str(place), *_figures(summary.problem, row), row.kernel, yes(is_so=row.kernel in pool)]
        for place, row in enumerate(outcome.best, 1)
    ]
    how = "timed in turns:" if all(row.remeasured for row in outcome.best) else "as first measured:"
    print_table(
        f"the fastest, {how}",
        ("", "TFLOPS", "ms", "spread", "kernel", "candidate"),
        rows,
        {"TFLOPS": MEASURED, "ms": MEASURED},
    )
    if outcome.first_choice is not None and outcome.ratio is not None:
        figures = f"{outcome.first_choice.latency_ms:.4g} ms"
        say(f"\nthe model's first choice of the candidates: {figures}, {outcome.first_choice.kernel}")
        say(f"its time / the best's: {outcome.ratio:.3f}")
    say(f"next: {after}")


def _measured(summary: Summary, row: ResultRow) -> dict[str, Any]:
    return {
        "kernel": row.kernel,
        "status": row.status,
        "tflops": _tflops(summary.problem, row),
        "latency_ms": row.latency_ms,
        "spread": row.spread,
        "remeasured": row.remeasured,
    }


def _figures(problem: Problem, row: ResultRow) -> list[str]:
    return [f"{_tflops(problem, row):.4g}", f"{row.latency_ms:.4g}", f"{row.spread or 0.0:.1%}"]


def _tflops(problem: Problem, row: ResultRow) -> float:
    assert row.latency_ms is not None
    return problem.flops / (row.latency_ms * _FLOPS_PER_TFLOPS_MS)
