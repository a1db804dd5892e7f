"""The answer of `ckh predict` for a problem, from which text, JSON, Python and quick answers are produced.

It is built only by `caveats.answer_of`, from facts of the model and the kernels ranked by NumPy or C. Imports little,
since quick answers use it.
"""

from __future__ import annotations

from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from ckh.records import Record
from ckh.text.log import BORROWED, ESTIMATED, one_line
from ckh.text.shown import Shown, ShownTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ckh.learn.answers.explanation import Explanation
    from ckh.learn.answers.known import Known
    from ckh.learn.answers.probes import Probe
    from ckh.learn.models.frequent import Frequent
    from ckh.ops.base import Problem

MAX_TIED = 100  # names of a row's tied kernels in JSON
ORDER_ALONE = "the model was trained to rank kernels, not to predict times"
TIMED_ALONE = "the training data have times of the fastest kernels only, which are known for the first row alone"
ABOVE_PEAK = "the model predicts a speed above the peak of the GPU, so the times that it was trained on are in doubt"
SET_COVERED = 0.95  # nominal share of problems whose first kernels, as many as `Answer.sets` states, are enough
SET_SHOWN = 0.02  # share by which the best of them may be slower than the best, in text and for --probe auto
AUTO, PROBED = "auto", 5  # kernels that --probe measures: as many as stated, or where none are
TUNE_BUDGET = "15m"  # measuring time of the commands that tune
# Places in the text: after the lines on the problem and the model, with --why, and below the table.
PROBLEM, MODEL, WHY, TABLE = "problem", "model", "why", "table"


class HeadersNote(NamedTuple):
    """Candidates that CK Tile's headers on this machine cannot build."""

    include: str
    interface: str
    reasons: Mapping[str, int]

    @classmethod
    def of(cls, include: str, interface: str, reasons: Mapping[str, int]) -> HeadersNote:
        """Sort the reasons by frequency, then by text."""
        return cls(include, interface, dict(sorted(reasons.items(), key=lambda reason: (-reason[1], reason[0]))))

    @property
    def not_built(self) -> int:
        """Number of candidates that cannot be built."""
        return sum(self.reasons.values())


# Without known headers: the kernels are those of AMD's dispatcher, which matches the headers of late 2025.
NO_HEADERS = HeadersNote("", "late2025", MappingProxyType({}))


class NotMeasured(Record):
    """Caveat of an answer without measurements of this GPU and element type."""

    basis: str
    """A model of another GPU or element type, an estimate, or a random order of the CPU's kernels."""
    source: str
    """Name of the model or estimate, and where its data come from."""
    worth: str | None
    """Efficiency on at least 30 held-out problems of the same operation, direction, pool and GPUs; None: unproven."""
    next_commands: tuple[str, ...]
    """Commands that measure, the quickest first."""

    def of_problem(self, problem: Problem, arch: str, probe: str = "") -> NotMeasured:
        """Return a model's caveat for a problem, with the command that tunes it unless the model has another."""
        text = problem.canonical()
        folder = f"tuned/{arch}-{crc32(text.encode()):08x}"
        tune = f"ckh tune {text} --arch {arch} --budget {TUNE_BUDGET} --out {folder}"
        commands = (*([probe] if probe else []), *(self.next_commands or (tune,)))
        return NotMeasured(self.basis, self.source, self.worth, commands)

    @property
    def colour(self) -> str:
        """What it is based on, as of `painted`."""
        return BORROWED if self.basis == "model" else ESTIMATED

    def lines(self) -> list[str]:
        """Text for a terminal."""
        basis = f"NOT MEASURED: by {one_line(self.source)}"
        return [f"{basis}; unproven here"] if self.worth is None else [basis, self.worth]


class ModelFacts(NamedTuple):
    """Facts of a model for problems of a kind, from which answers are built; stored as JSON for quick answers."""

    op: str
    path: str
    model: str
    other_models: Sequence[str]  # folders of other models that fit
    arch: str
    device: str  # of the training data
    num_cus: int | None  # of that device, if known and not part of the problem
    asked_cus: int  # of the product that is asked about; 0: none was named
    has_speeds: bool
    peak: Sequence[float]  # TFLOPS of a compute unit, and units (`reach.peak_tflops`)
    reach: Mapping[str, float]  # limits of extrapolation by size (`reach.beyond`)
    bands: Sequence[Sequence[float]]  # 90 % intervals of measured over predicted time, by speed (`interval_at`)
    limits: Mapping[str, Sequence[int]]  # smallest and largest measured value of each size; empty if unknown
    frequent: Mapping[str, Any] | None  # arguments of `frequent.frequent` besides the problem, for models of winners
    left_out: Sequence[str]  # kernel families that are not ranked, for lack of measurements
    not_measured: NotMeasured | None  # None: the model is for this GPU and dtype
    can_probe: bool  # ckh measures kernels of the operation
    has_estimate: bool  # the estimate scores kernels or breaks ties
    part_cus: int = 0  # compute units of a mask or partition that is asked about; 0: a whole GPU
    warnings: Sequence[str] = ()  # reasons to doubt the model that its training found
    sets: Sequence[tuple[float, int]] = ()  # `Calibration.sets`

    def as_json(self) -> dict[str, Any]:
        """Serialize the facts for JSON; `of_json` reads them."""
        doubts = self.not_measured
        plain = None if doubts is None else [doubts.basis, doubts.source, doubts.worth, doubts.next_commands]
        return {**self._asdict(), "not_measured": plain}

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> ModelFacts:
        """Read the facts from JSON."""
        if (plain := values["not_measured"]) is not None:
            basis, source, worth, commands = plain
            values = {**values, "not_measured": NotMeasured(basis, source, worth, tuple(commands))}
        return cls(**values)


class KernelRow(NamedTuple):
    """A row of an answer."""

    kernel: str  # complete name
    score: float
    tflops: float | None  # predicted
    latency_ms: float | None  # predicted
    measured_latency_ms: float | None  # on this machine
    bandwidth_gb_s: float | None = None
    ties: int = 1  # candidates with this score, including this kernel
    tied: tuple[str, ...] = ()  # names of the others, at most `MAX_TIED`
    not_in_headers: str = ""  # why the headers cannot build the kernel; empty if they can, or were not found
    is_timed: bool | None = None  # whether the training data have times of the kernel; None if unknown


class AnswerRows(NamedTuple):
    """The first rows of a ranking, and counts of all kernels."""

    run: Problem  # the problem that kernels run: padded, where no kernel applies to the unpadded problem
    kernels: Sequence[KernelRow]
    ranked_by: str  # "c" or "numpy"
    candidates: int  # number of applicable kernels
    refused: Mapping[str, int]  # number of kernels that do not apply, by reason
    timed: int | None  # candidates with times in the training data; None if unknown
    estimated: int  # candidates that the estimate scored: those unknown to the model, or all
    compiled: int | None  # candidates whose compiler report the estimate uses; None: no estimate
    headers: HeadersNote | None  # None: not built with CK Tile's headers
    families: Sequence[str]  # families of the kernels shown that have no measurements
    unknown_kernels: int = 0  # applicable kernels of a user's list in such families
    unmeasured: str = ""  # kind of all kernels, if none of it was measured on the GPU
    probe: Probe | None = None  # measurements on this machine, if they determine the order


class Caveat(NamedTuple):
    """A caveat of an answer.

    Attributes:
        kind: kind of caveat, which does not change when the message is reworded.
        message: text.
        data: values of the message by name.
        place: place in the text.
        label: word in front of the message, except below the table.
        summary: text for many problems, which names an example, or is the same for all; empty: none.
        weight: the summary's example is the problem with the largest weight.
        order: summaries are printed in this order.
    """

    kind: str
    message: str
    data: Mapping[str, Any]
    place: str = TABLE
    label: str = ""
    summary: str = "{count} of {total} problems, e.g. {problem}:\n{message}"
    weight: int = 0
    order: int = 0


class Answer(Record, Shown):
    """The kernels for a problem, best first, with caveats.

    Attributes:
        problem: the problem.
        facts: facts of the model.
        rows: the kernels.
        known: sizes, device and kernels outside the training distribution.
        not_measured: caveat of a model of another GPU or an estimate, with the commands that measure the problem.
        frequent: most frequent winner at the problem's size, for models of winners.
        padded: padded sizes by name, where no kernel applies to the unpadded problem.
        beyond: reason why the problem is too far outside the training data for a predicted speed; empty otherwise.
        caveats: caveats in the order of the text.
        explanation: why the first kernel ranks above the second, if requested.
        next_command: command that measures the first kernels, or more of them; empty if there is none.
    """

    problem: Problem
    facts: ModelFacts
    rows: AnswerRows
    known: Known
    not_measured: NotMeasured | None
    frequent: Frequent | None
    padded: Mapping[str, int]
    beyond: str
    caveats: tuple[Caveat, ...] = ()
    explanation: Explanation | None = None
    next_command: str = ""

    @property
    def kernels(self) -> Sequence[KernelRow]:
        """The first rows."""
        return self.rows.kernels

    def __repr__(self) -> str:
        best = f": {self.kernels[0].kernel}" if self.kernels else ""
        return f"<ckh.Answer {self.problem.canonical()} by {self.facts.model}{best}>"

    def table(self) -> ShownTable:
        """The first rows, and the caveats below them."""
        columns = ("kernel", "tflops", "latency_ms", "measured_latency_ms", "score", "ties", "not_in_headers")
        rows = [tuple(getattr(row, name) for name in columns) for row in self.kernels]
        title = f"{self.problem.canonical()}, by {self.facts.model} for {self.facts.arch}"
        return ShownTable(title, columns, rows, tuple(caveat.message for caveat in self.caveats))

    @property
    def interval(self) -> tuple[float, float] | None:
        """90 % prediction interval of measured over predicted time, valid inside the training distribution, or None."""
        speeds = [kernel.tflops for kernel in self.kernels if kernel.tflops is not None]
        return interval_at(self.facts.bands, max(speeds)) if self.facts.bands and speeds else None

    @property
    def sets(self) -> dict[float, int]:
        """Numbers of first kernels to measure, of which one is within a share of the best; only where calibrated."""
        is_partial = self.rows.headers is not None and self.rows.headers.not_built
        if self.not_measured is not None or self.known.doubts or is_partial:
            return {}
        return {within: count for within, count in self.facts.sets if count < self.rows.candidates}

    @property
    def in_order(self) -> bool:
        """True if predicted speeds decrease with rank, among kernels that were not measured."""
        return is_falling(kernel.tflops for kernel in self.kernels if kernel.measured_latency_ms is None)

    @property
    def no_speed(self) -> str:
        """Reason why predicted speeds are missing; empty if none are, or if nothing was measured."""
        has_speed = [kernel.tflops is not None for kernel in self.kernels]
        if self.beyond or self.not_measured is not None or all(has_speed):
            return self.beyond
        if self.facts.has_speeds and not has_speed[0]:
            return ABOVE_PEAK
        return TIMED_ALONE if any(has_speed) else ORDER_ALONE


def interval_at(bands: Sequence[Sequence[float]], tflops: float) -> tuple[float, float]:
    """90 % prediction interval of measured over predicted time at a predicted speed."""
    held = [band for band in bands if band[0] <= tflops] or bands[:1]
    _, low, high = held[-1]
    return low, high


def is_falling(tflops: Iterable[float | None]) -> bool:
    """True if predicted speeds decrease with rank."""
    return all(first >= second for first, second in pairwise(speed for speed in tflops if speed is not None))
