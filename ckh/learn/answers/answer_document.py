"""The documents of `ckh predict --json`, kept apart from text and comparison to import quickly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ckh.documents import Document, fields_of, json_text, plain
from ckh.learn.answers.answer import SET_COVERED, NotMeasured
from ckh.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ckh.learn.answers.answer import Answer, KernelRow
    from ckh.learn.answers.explanation import Explanation
    from ckh.learn.answers.probes import Probe
    from ckh.learn.models.frequent import Frequent
    from ckh.learn.models.measured_set import NearestProblem


class StandInDocument(NotMeasured):
    """Caveat of an answer without measurements of this GPU and element type."""

    estimated: int
    """Candidates scored by the analytic estimate: those unknown to the model, or all."""
    compiled: int | None
    """Candidates with registers and LDS from the compiler; null: no estimate."""


class HeadersDocument(Record):
    """CK Tile's headers on this machine."""

    include: str | None
    """Folder of the headers; null: none were found."""
    interface: str
    """Version of their interface; without headers, the version that the candidates are for."""
    not_built: int
    """Candidates that they cannot build, ranked last."""
    reasons: Mapping[str, int]
    """Number of these candidates by reason."""


class OutsideSize(Record):
    """A size outside the measured range."""

    size: str
    value: int
    least: int
    """Smallest measured value."""
    most: int
    """Largest measured value."""
    factor: float
    """Ratio to the largest measured value, or of the smallest measured value to this one."""


class KnownDocument(Record):
    """Out-of-distribution check."""

    is_known: bool
    """Whether this device, similar sizes and similar kernels were measured."""
    device: str | None
    """Device mismatch; null if measured on this device, or unknown."""
    outside: tuple[OutsideSize, ...]
    """Sizes outside the measured range."""
    nearest: NearestProblem | None
    """The nearest measured problem, if a size is outside."""
    families: tuple[str, ...]
    """Kernel families of the first rows without measurements."""
    unknown_kernels: int
    """Applicable kernels of --kernels in families without measurements."""
    left_out: tuple[str, ...]
    """Kernel families that are not ranked, for lack of measurements."""


class SetDocument(Record):
    """A number of kernels to measure."""

    within: float
    """Largest share by which the best of them is slower than the best candidate."""
    kernels: int
    """Number of first kernels."""
    covered: float = SET_COVERED
    """Share of problems for which that holds."""


class CaveatDocument(Record):
    """A caveat of an answer."""

    kind: str
    """Kind of caveat, which does not change when the message is reworded."""
    message: str
    """Text, as ckh predict prints it."""
    data: Mapping[str, Any]
    """Values of the message by name."""


class RankedKernel(Record):
    """A row of the ranking."""

    kernel: str
    """Complete name of the kernel."""
    score: float
    """Key of the order."""
    tflops: float | None
    """Predicted speed."""
    latency_ms: float | None
    """Predicted time."""
    bandwidth_gb_s: float | None
    """Predicted bandwidth."""
    measured_latency_ms: float | None
    """Time measured on this machine."""
    ties: int
    """Candidates with this score, including this kernel."""
    tied: tuple[str, ...]
    """Names of the other tied kernels, at most 100."""
    not_in_headers: str | None
    """Reason why the headers cannot build the kernel; null if they can, or were not found."""
    measured: bool | None
    """Whether the model's data have times of the kernel; null if unknown."""


class PredictDocument(Document, kw_only=True):
    """ckh predict --json: the kernels for one problem."""

    schema = "predict"

    problem: str
    """Canonical text of the problem."""
    sizes: Mapping[str, str | int | float | bool]
    """The problem's sizes by name."""
    padded: Mapping[str, int] | None
    """Sizes that the problem is padded to, if no kernel applies to it; speeds and times are of the padded problem."""
    model: str
    """Folder of the model."""
    other_models: tuple[str, ...]
    """Folders of other models that fit."""
    arch: str
    """Architecture."""
    device: str | None
    """Device that the training data were measured on."""
    ranked_by: str
    """Implementation that ranked the kernels, c or numpy."""
    candidates: int
    """Applicable kernels."""
    candidates_measured: int | None
    """Applicable kernels with times in the training data; null if unknown."""
    measured: Probe | None
    """Measurements on this machine, if they determine the order."""
    refused: Mapping[str, int]
    """Kernels that do not apply, by reason."""
    not_measured: StandInDocument | None
    """Caveat of an answer without a model of this GPU and element type."""
    headers: HeadersDocument | None
    """CK Tile's headers on this machine; null where kernels are not built with them."""
    known: KnownDocument
    """Out-of-distribution check."""
    most_frequent: Frequent | None
    """The most frequent winner at the problem's size, for models of winners."""
    explanation: Explanation | None = None
    """With --explain: why the first kernel ranks above the second."""
    beyond_training: str | None
    """Reason why no speed is predicted for a problem far outside the training data."""
    no_speed: str | None
    """Reason why predicted speeds are missing."""
    predictions_in_order: bool
    """Whether predicted speeds decrease with rank."""
    predicted_interval: tuple[float, float] | None
    """90 % prediction interval of measured over predicted time; null if unknown."""
    no_interval: str | None
    """The interval and what it is not calibrated for; predicted_interval is then null."""
    measure: tuple[SetDocument, ...]
    """How many of the first kernels to measure, calibrated on held-out layers; empty: unknown for this answer."""
    caveats: tuple[CaveatDocument, ...]
    """Caveats in the order of the text."""
    next_command: str | None
    """Command that measures the first kernels, or more of them; null if there is none."""
    kernels: tuple[RankedKernel, ...]
    """The first kernels, best first."""


class FailedProblem(Record):
    """A problem without an applicable kernel."""

    problem: str
    """Canonical text of the problem."""
    reason: str


class PredictManyDocument(Document):
    """ckh predict --problems --json: the kernels for many problems."""

    schema = "predict_many"

    results: tuple[PredictDocument, ...]
    failures: tuple[FailedProblem, ...]
    """Problems without an applicable kernel."""


def many_json(answers: Sequence[Answer], failures: Mapping[str, str]) -> Iterator[str]:
    """Yield the parts of a `PredictManyDocument` as JSON; `failures` maps problems without a kernel to reasons."""
    failed = tuple(FailedProblem(problem, reason) for problem, reason in failures.items())
    before, empty, after = json_text(PredictManyDocument((), failed)).partition("[]")
    yield before + empty[0]
    for number, answer in enumerate(answers):
        text = json.dumps(plain(answer_document(answer)), indent=2, allow_nan=False)
        yield (",\n    " if number else "\n    ") + text.replace("\n", "\n    ")
    yield ("\n  " if answers else "") + empty[1] + after


def answer_json(answer: Answer) -> str:
    """Format an answer as JSON."""
    return json_text(answer_document(answer))


def answer_document(answer: Answer) -> PredictDocument:
    """Build the document of an answer."""
    facts, rows, doubts = answer.facts, answer.rows, answer.not_measured
    apart = [caveat.message for caveat in answer.caveats if caveat.kind == "not-calibrated"]
    return PredictDocument(
        problem=answer.problem.canonical(),
        sizes=answer.problem.to_dict(),
        padded=answer.padded or None,
        model=facts.path,
        other_models=tuple(facts.other_models),
        arch=facts.arch,
        device=facts.device,
        ranked_by=rows.ranked_by,
        candidates=rows.candidates,
        candidates_measured=rows.timed,
        measured=rows.probe,
        refused=rows.refused,
        not_measured=None
        if doubts is None
        else StandInDocument(**fields_of(doubts), estimated=rows.estimated, compiled=rows.compiled),
        headers=None
        if (note := rows.headers) is None
        else HeadersDocument(note.include or None, note.interface, note.not_built, note.reasons),
        known=KnownDocument(**answer.known.document()),
        most_frequent=answer.frequent,
        explanation=answer.explanation,
        beyond_training=answer.beyond or None,
        no_speed=answer.no_speed or None,
        predictions_in_order=answer.in_order,
        predicted_interval=None if apart else answer.interval,
        no_interval=apart[0] if apart else None,
        measure=tuple(SetDocument(within, count) for within, count in answer.sets.items()),
        caveats=tuple(CaveatDocument(caveat.kind, caveat.message, caveat.data) for caveat in answer.caveats),
        next_command=answer.next_command or None,
        kernels=tuple(map(_kernel, answer.kernels)),
    )


def _kernel(row: KernelRow) -> RankedKernel:
    values = {**row._asdict(), "not_in_headers": row.not_in_headers or None}
    return RankedKernel(measured=values.pop("is_timed"), **values)
