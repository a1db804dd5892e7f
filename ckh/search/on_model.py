"""Exhaustive search with a model: score every kernel that can be built and applies, and return the best."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.documents import Document, json_text
from ckh.errors import NoKernelError
from ckh.learn.answers.answer import is_falling
from ckh.learn.answers.answer_document import KnownDocument
from ckh.learn.answers.answer_rows import rows_of
from ckh.learn.answers.batches import known_candidates
from ckh.learn.answers.caveats import OUT_OF_ORDER, known_by
from ckh.learn.answers.ranked import Ranked, ranked_kernels
from ckh.learn.answers.ranking import facts_of, told_pool
from ckh.learn.models.artifact import wanted_for
from ckh.learn.models.calibration import FIRST
from ckh.learn.models.reach import beyond
from ckh.ops import in_words
from ckh.ranking.axes import coded, keys
from ckh.ranking.evaluator import best_first
from ckh.search.space import product_of
from ckh.text.log import MEASURED, one_line, painted
from ckh.text.prose import paragraphs, prose
from ckh.text.tabletext import table_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.kernels.table import KernelTable
    from ckh.learn.answers.answer import NotMeasured
    from ckh.learn.answers.known import Known
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import AnyOperation, Kernel, Problem
    from ckh.search.product import Product

_PREPARED = 8  # cached spaces
_PREDICTED = ("predicted TFLOPS", "predicted ms")


@dataclass(frozen=True, slots=True, eq=False)
class ModelSearch:
    """Result of a search by a model."""

    legal: int
    candidates: int
    distinct: int
    found: tuple[Ranked[Any], ...]
    in_pool: tuple[bool, ...]
    first_choice: Ranked[Any] | None
    beyond: str
    known: Known


def search_model(problem: Problem, model: Model, arch: ArchSpec, top: int) -> ModelSearch:
    """Find the fastest kernels predicted by a model among all that can be built and apply."""
    space = _scorable(product_of(problem, arch), model)
    model.require(wanted_for(problem, model.spec.arch))
    candidates = model.spec.op.kernels.candidates(problem, arch, model.candidates_of).kernels
    product = space.product
    bases, rows = product.numbers_of(candidates)
    # Measured kernels can lie outside of the space.
    candidates = tuple(kernel for kernel, base in zip(candidates, bases.tolist(), strict=True) if base >= 0)
    bases, rows = bases[bases >= 0], rows[bases >= 0]
    legal = product.legal(problem, (bases, rows))
    if not legal.any():
        raise NoKernelError(f"no buildable kernel of {arch.name} applies to {problem.canonical()}")
    count = int(space.groups.max()) + 1
    of_group = np.stack([legal[:, space.groups == group].any(axis=1) for group in range(count)], axis=1).reshape(-1)
    own = np.full(len(of_group), -1, np.intp)  # option set of a candidate
    of_pool = bases * count + space.groups[rows]
    own[of_pool[::-1]] = rows[::-1]
    # Candidates first among ties.
    numbers = np.concatenate([of_pool, np.flatnonzero(of_group)])
    _, first = np.unique(space.kind[numbers], return_index=True)
    numbers = numbers[np.sort(first)]
    score, tflops = model.score_pool([problem], space.table)
    if candidates:  # the estimate in their scores has the registers of those that were compiled here
        score[0, of_pool[::-1]] = model.score_pool([problem], candidates[::-1], tflops=False)[0][0]
    far = beyond(problem, model.reach)
    order = numbers[best_first(score[0, numbers])]
    choices = of_pool[best_first(score[0, of_pool], FIRST)] if len(of_pool) else of_pool
    if tflops is not None:
        # The first candidates determine the predicted speed of the problem, so that a kernel has the same speed as in
        # `ckh predict`.
        both = np.concatenate([choices, order])
        tflops[0, both] = model.speeds(score[0, both], tflops[0, both], [problem])
    tflops = None if far else tflops
    best = order[: max(top, 0)]
    kernels = []
    for number in best.tolist():
        base, group = divmod(number, count)
        row = int(own[number])
        if row < 0:  # the first legal option set, the bases' default if that is legal
            is_legal = legal[base] & (space.groups == group)
            row = product.own if product.own >= 0 and is_legal[product.own] else int(is_legal.argmax())
        kernels.append(product.kernel(base, row))
    first_kernels = [candidates[of_pool.tolist().index(number)] for number in choices[:1].tolist()]
    choice = _ranked(problem, first_kernels, choices[:1], score, tflops)
    # Out-of-distribution check of the problem, this device, and kernels that may be outside of the pool.
    facts, unmeasured = facts_of(model, problem)._replace(left_out=()), known_candidates(problem, model).unmeasured
    families = [kind.family for kind in told_pool(model, kernels, None).kinds]
    return ModelSearch(
        int(np.count_nonzero(legal)),
        len(candidates),
        len(numbers),
        tuple(_ranked(problem, kernels, best, score, tflops)),
        tuple((own[best] >= 0).tolist()),
        choice[0] if choice else None,
        far,
        known_by(problem, facts, lambda: model.measured, families=families, unmeasured=unmeasured),
    )


def _ranked(
    problem: Problem,
    kernels: Sequence[Kernel],
    numbers: NDArray[np.intp],
    score: NDArray[np.float64],
    tflops: NDArray[np.float64] | None,
) -> list[Ranked[Any]]:
    """Kernels with their predictions, given by index."""
    speed = None if tflops is None else tflops[0, numbers].tolist()
    return ranked_kernels(kernels, rows_of(range(len(kernels)), score[0, numbers].tolist(), speed, problem.flops))


@dataclass(frozen=True, slots=True, eq=False)
class _Scorable:
    """A product in the form that a model scores."""

    product: Product
    groups: NDArray[np.intp]
    table: KernelTable[Any]
    kind: NDArray[np.intp]


@lru_cache(maxsize=_PREPARED)
def _scorable(product: Product, model: Model) -> _Scorable:
    spec = model.spec
    names, rows = product.options.names, product.options.rows
    kernel_table = product.bases.take(np.arange(min(1, len(product.bases)))).crossed(names, rows)
    spec.op.kernels.features(kernel_table, spec.encoding)
    read = [place for place, name in enumerate(names) if name in kernel_table.read]
    numbers: dict[tuple[Any, ...], int] = {}
    groups = np.array([numbers.setdefault(tuple(row[i] for i in read), len(numbers)) for row in rows], np.intp)
    _, first = np.unique(groups, return_index=True)
    table = product.bases.crossed(names, [rows[row] for row in first.tolist()])
    columns = spec.op.kernels.features(table, spec.encoding)
    return _Scorable(product, groups, table, keys([coded(column) for column in columns.values()], len(table)).of)


@dataclass(frozen=True, slots=True)
class RankedSpace:
    """The kernels that were ranked."""

    kernels: int
    pool: int
    """Kernels that are candidates of ckh predict."""
    distinct: int
    """Kernels with distinct scores."""


@dataclass(frozen=True, slots=True)
class PredictedKernel:
    """A kernel with its predicted speed."""

    kernel: str
    """Complete name of the kernel."""
    score: float
    tflops: float | None
    """Predicted speed."""
    latency_ms: float | None
    """Predicted time."""


@dataclass(frozen=True, slots=True)
class FoundKernel(PredictedKernel):
    """One of the first kernels."""

    candidate: bool
    """Whether it is a candidate of ckh predict."""


class SearchDocument(Document):
    """ckh search --json: kernels beyond the candidates, by the model."""

    schema = "search"

    problem: str
    """Canonical text of the problem."""
    sizes: Mapping[str, str | int | float | bool]
    """The problem's sizes by name."""
    model: str
    """Folder of the model."""
    not_measured: NotMeasured | None
    """Caveat of a substitute model's answer, for a GPU and element type without measurements."""
    space: RankedSpace
    known: KnownDocument
    """Out-of-distribution check."""
    beyond_training: str | None
    """Reason why no speed is predicted for a problem far outside the training data."""
    predictions_in_order: bool
    """Whether predicted speeds decrease with rank."""
    first_choice: PredictedKernel | None
    """First choice among the candidates of ckh predict."""
    kernels: tuple[FoundKernel, ...]
    """The first kernels, best first."""


def search_text(problem: Problem, model: Model, search: ModelSearch) -> str:
    """Text of the kernels predicted to be the fastest."""
    op, first = model.spec.op, search.first_choice
    shown = enumerate(zip(search.found, search.in_pool, strict=True), 1)
    rows = [[str(place), *_cells(op, ranked), yes(is_so=is_candidate)] for place, (ranked, is_candidate) in shown]
    head = [
        f"space    {search.legal} kernels, {search.candidates} of them candidates of ckh predict",
        f"         all {search.distinct} without ties scored",
        "\n",
    ]
    tail = []
    if first is not None:
        best = search.found[0].score
        better = f"the best scores {best - first.score:.4g} more ({best:.4g})"
        tail.append(f"\nfirst choice of the candidates: {', '.join(_cells(op, first))}")
        tail.append("the best scores the same\n" if best <= first.score else better + "\n")
    bases = {} if model.not_measured is None else dict.fromkeys(_PREDICTED, model.not_measured.colour)
    table = table_text("", ("", *_PREDICTED, "kernel", "candidate"), rows, bases=bases)
    notes = [f"no speed predicted: {search.beyond}"] if search.beyond else []
    notes += [] if is_falling(ranked.tflops for ranked in search.found) else [OUT_OF_ORDER]
    doubts = f"\n{prose(search.known.line)}\n" if search.known.line and model.not_measured is None else ""
    return (
        head_text(problem, model)
        + paragraphs("\n".join(head))
        + table
        + paragraphs("\n".join(tail))
        + doubts
        + "".join(f"\n{prose(note)}\n" for note in notes)
    )


def search_json(problem: Problem, model: Model, search: ModelSearch) -> str:
    """The search as a JSON document."""
    op, first = model.spec.op, search.first_choice
    kernels = zip(search.found, search.in_pool, strict=True)
    return json_text(
        SearchDocument(
            problem=problem.canonical(),
            sizes=problem.to_dict(),
            model=str(model.path),
            not_measured=model.not_measured,
            space=RankedSpace(search.legal, search.candidates, search.distinct),
            known=KnownDocument(**search.known.document()),
            beyond_training=search.beyond or None,
            predictions_in_order=is_falling(ranked.tflops for ranked in search.found),
            first_choice=None if first is None else PredictedKernel(*_figures(op, first)),
            kernels=tuple(FoundKernel(*_figures(op, ranked), is_candidate) for ranked, is_candidate in kernels),
        )
    )


def head_text(problem: Problem, model: Model | None) -> str:
    """The problem, and the model or what stands in for one of this GPU, in lines that fit the terminal."""
    lines = [paragraphs(f"problem  {in_words(problem)}\n         {problem.canonical()}")]
    if model is None:
        lines.append(paragraphs("model    none"))
    elif (doubts := model.not_measured) is None:
        lines.append(painted(paragraphs(f"model    {one_line(model.path.name)}"), MEASURED))
    else:
        lines += [painted(paragraphs(line), doubts.colour) for line in doubts.lines()]
        lines += [paragraphs(f"next     {command}") for command in doubts.next_commands[:1]]
    return "\n".join(lines) + "\n"


def yes(*, is_so: bool) -> str:
    """Table cell of a bool."""
    return "yes" if is_so else ""


def _figures(op: AnyOperation, ranked: Ranked[Any]) -> tuple[str, float, float | None, float | None]:
    return op.kernels.name(ranked.kernel), ranked.score, ranked.tflops, ranked.latency_ms


def _cells(op: AnyOperation, ranked: Ranked[Any]) -> list[str]:
    figures = ["-" if number is None else f"{number:.4g}" for number in (ranked.tflops, ranked.latency_ms)]
    # A short name omits many fields in which these kernels differ.
    return [*figures, op.kernels.name(ranked.kernel)]
