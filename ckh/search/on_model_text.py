"""Result of a search by a model, as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.documents import Document, json_text
from ckh.learn.answers.answer import is_falling
from ckh.learn.answers.answer_document import KnownDocument
from ckh.learn.answers.caveats import OUT_OF_ORDER
from ckh.ops import in_words
from ckh.text.log import MEASURED, one_line, painted
from ckh.text.prose import paragraphs, prose
from ckh.text.tabletext import table_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ckh.learn.answers.answer import NotMeasured
    from ckh.learn.answers.ranked import Ranked
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import AnyOperation, Problem
    from ckh.search.on_model import ModelSearch

_PREDICTED = ("predicted TFLOPS", "predicted ms")


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
    rows = [[str(place), *_cells(op, item), yes(is_so=is_candidate)] for place, (item, is_candidate) in shown]
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
    notes += [] if is_falling(item.tflops for item in search.found) else [OUT_OF_ORDER]
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
            predictions_in_order=is_falling(item.tflops for item in search.found),
            first_choice=None if first is None else PredictedKernel(*_figures(op, first)),
            kernels=tuple(FoundKernel(*_figures(op, item), is_candidate) for item, is_candidate in kernels),
        )
    )


def head_text(problem: Problem, model: Model | None) -> str:
    """The problem, and what searches, in lines that fit the terminal."""
    about = [paragraphs("model    none")] if model is None else list(_model_lines(model))
    return "\n".join([paragraphs(f"problem  {in_words(problem)}\n         {problem.canonical()}"), *about]) + "\n"


def _model_lines(model: Model) -> Iterator[str]:
    """The model, or what stands in for one of this GPU, by what it is based on."""
    if (doubts := model.not_measured) is None:
        yield painted(paragraphs(f"model    {one_line(model.path.name)}"), MEASURED)
        return
    for line in doubts.lines():
        laid = paragraphs(line)
        yield laid if line.startswith("next ") else painted(laid, doubts.colour)


def yes(*, is_so: bool) -> str:
    """Table cell of a bool."""
    return "yes" if is_so else ""


def _figures(op: AnyOperation, ranked: Ranked) -> tuple[str, float, float | None, float | None]:
    return op.kernels.name(ranked.kernel), ranked.score, ranked.tflops, ranked.latency_ms


def _cells(op: AnyOperation, ranked: Ranked) -> list[str]:
    figures = ["-" if value is None else f"{value:.4g}" for value in (ranked.tflops, ranked.latency_ms)]
    # A short name omits many fields in which these kernels differ.
    return [*figures, op.kernels.name(ranked.kernel)]
