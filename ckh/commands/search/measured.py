"""Output of `ckh search measure`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.bench.supervision.runner import shared_line
from ckh.commands._common import print_json, print_table, say
from ckh.documents import Document
from ckh.ops import operation_of_problem
from ckh.search.on_model import head_text, yes
from ckh.text.durations import format_duration
from ckh.text.log import MEASURED, emit, warn
from ckh.text.prose import shell_word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.data.journal import ResultRow
    from ckh.ops.base import Problem
    from ckh.schema import Status
    from ckh.search.measuring import MeasuredSearch
    from ckh.search.settings import SearchSettings

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


def print_measured(search: MeasuredSearch, settings: SearchSettings, *, as_json: bool) -> None:
    """Print the fastest kernels and the next command."""
    problem, space, first = search.problem, search.space, search.first_choice
    name = operation_of_problem(problem).kernels.name
    pool = {name(kernel) for kernel in space.kernels[: space.pool_size]}
    after = f"ckh convert {shell_word(search.folder)} --out {shell_word(f'{search.folder.name}.parquet')}"
    if line := shared_line(sum(bool(row.card.get("other_processes")) for row in search.rows)):
        warn(line, "shared-gpu")
    if as_json:
        print_json(
            SearchMeasuredDocument(
                problem=problem.canonical(),
                sizes=problem.to_dict(),
                model=None if search.model is None else str(search.model.path),
                space=MeasuredSpace(len(space), space.pool_size, space.left_out),
                strategy="surrogate",
                max_evaluations=settings.evaluations,
                seed=settings.seed,
                out=str(search.folder),
                ended=str(search.reason),
                evaluations=len(search.rows),
                statuses=search.statuses,
                wall_s=search.wall_s,
                first_choice=None if first is None else MeasuredKernel(**_figures(problem, first)),
                ratio=search.ratio,
                kernels=tuple(
                    FastestKernel(**_figures(problem, row), candidate=row.kernel in pool) for row in search.best
                ),
                next=after,
            )
        )
        return
    emit(head_text(problem, search.model))
    rest = f"; {space.left_out} more combinations were left out" if space.left_out else ""
    say(f"space    {len(space)} kernels, {space.pool_size} of them candidates of ckh predict{rest}")
    statuses = ", ".join(f"{count} {status}" for status, count in search.statuses.items()) or "nothing"
    say(f"search   surrogate, seed {settings.seed}: {len(search.rows)} measured ({statuses}),")
    say(f"         {search.reason}, in {format_duration(search.wall_s)}")
    say()
    rows = []
    for place, row in enumerate(search.best, 1):
        cells = (f"{_tflops(problem, row):.4g}", f"{row.latency_ms:.4g}", f"{row.spread or 0.0:.1%}", row.kernel)
        rows.append((str(place), *cells, yes(is_so=row.kernel in pool)))
    how = "timed in turns:" if all(row.remeasured for row in search.best) else "as first measured:"
    columns = ("", "TFLOPS", "ms", "spread", "kernel", "candidate")
    print_table(f"the fastest, {how}", columns, rows, {"TFLOPS": MEASURED, "ms": MEASURED})
    if first is not None and search.ratio is not None:
        say(f"\nthe model's first choice of the candidates: {first.latency_ms:.4g} ms, {first.kernel}")
        say(f"its time / the best's: {search.ratio:.3f}")
    say(f"next: {after}")


def _figures(problem: Problem, row: ResultRow) -> dict[str, Any]:
    return {
        "kernel": row.kernel,
        "status": row.status,
        "tflops": _tflops(problem, row),
        "latency_ms": row.latency_ms,
        "spread": row.spread,
        "remeasured": row.remeasured,
    }


def _tflops(problem: Problem, row: ResultRow) -> float:
    assert row.latency_ms is not None
    return problem.flops / (row.latency_ms * _FLOPS_PER_TFLOPS_MS)
