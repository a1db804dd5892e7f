"""Rankings as text and JSON. Imports little, since quick answers use it too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ckh.learn.answers.known import ALL_KNOWN, Known
from ckh.log import one_line
from ckh.ops import in_words
from ckh.prose import paragraphs, prose
from ckh.tabletext import table_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ckh.learn.answers.answer_document import PredictDocument
    from ckh.learn.answers.explanation import Explanation
    from ckh.learn.answers.probes import Probe
    from ckh.learn.models.frequent import Frequent
    from ckh.ops.base import Problem

MOST_TIED = 100  # names of a row's kernels that JSON has
_COLUMNS = ("predicted TFLOPS", "predicted ms")
NOT_IN_HEADERS = "not in these headers"
_ALIKE = "with equal scores; measured kernels are shown first, then the first in the pool"
_WHY = " (reasons: --why)"
_HOST = "host"
OUT_OF_ORDER = (
    "the ranking model determines the order; TFLOPS are predicted by a separate model and need not decrease with rank"
)

ORDER_ALONE = "the model was trained to rank kernels, not to predict times"
TIMED_ALONE = "the training data have times of the fastest kernels only, which are known for the first row alone"


class HeadersNote(NamedTuple):
    """Candidates that CK Tile's headers on this machine cannot build.

    Attributes:
        include: the headers' folder; empty: no headers were found.
        interface: version of their interface; without headers, the version that the candidates are for.
        reasons: number of candidates that cannot be built, by reason.
    """

    include: str
    interface: str
    reasons: Mapping[str, int]

    @classmethod
    def of(cls, include: str, interface: str, reasons: Mapping[str, int]) -> HeadersNote:
        """One that has the most frequent reasons first, and equally frequent ones by their words."""
        return cls(include, interface, dict(sorted(reasons.items(), key=lambda one: (-one[1], one[0]))))

    @property
    def not_built(self) -> int:
        """Number of candidates that cannot be built."""
        return sum(self.reasons.values())

    @property
    def line(self) -> str:
        """Text for a terminal."""
        if not self.include:
            return f"not found; candidates are for the {self.interface} interface, some may not build with yours"
        where = f"{self.interface}, in {self.include}"
        return f"{where}: {self.not_built} candidates cannot be built, ranked last"


# Where no headers are known: the kernels are those of AMD's dispatcher, which goes with the headers of late 2025.
NO_HEADERS = HeadersNote("", "late2025", MappingProxyType({}))


class KernelRow(NamedTuple):
    """A row of a ranking.

    Attributes:
        kernel: complete name of the kernel.
        score: key of the order.
        tflops: predicted speed, or None.
        latency_ms: predicted time, or None.
        measured_ms: time measured on this machine, or None.
        ties: number of candidates with this score, including this kernel.
        tied: names of the other tied kernels, at most `MOST_TIED`.
        not_in_headers: reason why the headers cannot build the kernel; empty if they can, or were not found.
    """

    kernel: str
    score: float
    tflops: float | None
    latency_ms: float | None
    measured_ms: float | None
    bandwidth_gb_s: float | None = None
    ties: int = 1
    tied: tuple[str, ...] = ()
    not_in_headers: str = ""


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """Caveat of an order that is based on no measurement of this GPU and element type."""

    basis: str
    """"model" of another GPU or element type, or "estimate"."""
    source: str
    """Name of the model or estimate, and where its data come from."""
    worth: str | None
    """Expected efficiency, where it was evaluated on the same operation, direction, pool and GPUs, or None."""
    next_commands: tuple[str, ...]
    """Commands that measure, the quickest first."""

    def with_probe(self, again: str) -> NotMeasured:
        """The same, with the command that measures the first choices in front."""
        return replace(self, next_commands=(f"{again} --probe 5", *self.next_commands))

    def lines(self) -> list[str]:
        """Text for a terminal."""
        following = [f"next     {command}" for command in self.next_commands]
        return [
            "NOT MEASURED on this architecture and element type",
            f"source   {one_line(self.source)}",
            f"quality  {self.worth or 'not evaluated'}",
            *following,
        ]


class Ranking(NamedTuple):
    """The answer of `ckh predict` for a problem.

    Attributes:
        problem: the problem.
        path: folder of the model.
        model: name of the model.
        other_models: folders of other models that fit.
        arch: architecture of the model.
        device: device that the training data were measured on.
        ranked_by: backend that ranked, "c" or "numpy".
        candidates: number of applicable kernels.
        refused: number of kernels that do not apply, by reason.
        beyond: reason why the problem is too far outside the training data for a predicted speed; empty otherwise.
        probe: measurements on this machine, if they determine the order.
        kernels: the first rows of the ranking.
        not_measured: caveat of a model of another GPU or an estimate; None: the model is for this GPU and dtype.
        estimated: number of candidates that the estimate scored: those unknown to the model, or all.
        compiled: number of candidates whose compiler report the estimate uses; None: no estimate.
        bands: 90 % prediction intervals of measured over predicted time, by predicted speed (`interval_at`).
        known: sizes, device and kernels outside the training distribution.
        frequent: most frequent winner at the problem's size, for models of winners.
        timed: number of candidates with times in the training data; None if unknown.
        explanation: why the first kernel ranks above the second, if requested.
        padded: padded sizes by name, where no kernel applies to the unpadded problem.
        headers: candidates that CK Tile's headers cannot build; None: not built with them.
    """

    problem: Problem
    path: str
    model: str
    other_models: tuple[str, ...]
    arch: str
    device: str
    ranked_by: str
    candidates: int
    refused: dict[str, int]
    beyond: str
    probe: Probe | None
    kernels: Sequence[KernelRow]
    not_measured: NotMeasured | None = None
    estimated: int = 0
    compiled: int | None = None
    known: Known = ALL_KNOWN
    frequent: Frequent | None = None
    timed: int | None = None
    explanation: Explanation | None = None
    bands: Sequence[Sequence[float]] = ()
    padded: Mapping[str, int] = MappingProxyType({})
    headers: HeadersNote | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """90 % prediction interval of measured over predicted time, valid inside the training distribution, or None."""
        speeds = [one.tflops for one in self.kernels if one.tflops is not None]
        return interval_at(self.bands, max(speeds)) if self.bands and speeds else None

    @property
    def no_interval(self) -> str:
        """The interval with what it is not calibrated for; empty if it is valid, or there is none."""
        return self._interval_line if self.known.apart else ""

    @property
    def _interval_line(self) -> str:
        times = [one.latency_ms for one in self.kernels if one.latency_ms is not None]
        return interval_line(self.interval, min(times, default=None), self.known.apart)

    @property
    def in_order(self) -> bool:
        """True if predicted speeds decrease with rank, among kernels that were not measured."""
        return is_falling(one.tflops for one in self.kernels if one.measured_ms is None)

    @property
    def has_bandwidth(self) -> bool:
        """True if the model predicts the bandwidth of a kernel."""
        return any(one.bandwidth_gb_s is not None for one in self.kernels)

    @property
    def no_speed(self) -> str:
        """Reason why cells of predicted speeds are empty; empty if they are not, or nothing was measured."""
        has_speed = [one.tflops is not None for one in self.kernels]
        if self.beyond or self.not_measured is not None or all(has_speed):
            return self.beyond
        return TIMED_ALONE if any(has_speed) else ORDER_ALONE

    def text(self, *, why: bool) -> str:
        """Text for a terminal; `why` lists the reasons why kernels do not apply."""
        warning = " (host timings, not valid for GPUs)" if self.arch == _HOST else ""
        refused = sum(self.refused.values())
        measured = "" if self.timed is None else f" ({self.timed} measured)"
        lines = [
            f"problem  {in_words(self.problem)}",
            f"         {self.problem.canonical()}",
            *([f"padded   {padding_text(self)}"] if self.padded else []),
            *(
                [f"model    {self.model}, measured on {self.device or self.arch}{warning}"]
                if self.not_measured is None
                else self.not_measured.lines()
            ),
            *([f"         preferred over {', '.join(self.other_models)}"] if self.other_models else []),
            f"kernels  {self.candidates} candidates{measured}, {refused} refused{_WHY if refused and not why else ''}",
        ]
        if 0 < self.estimated < self.candidates:
            lines.append(f"         {self.estimated} of kinds without training data, ranked by the analytic estimate")
        if self.compiled is not None:
            lines.append(f"         registers and LDS: {self.compiled} from the compiler, others from the tile")
        if self.headers is not None:
            lines.append(f"headers  {self.headers.line}")
        if why:
            lines += [f"         {count} x {reason}" for reason, count in self.refused.items()]
            lacks = {} if self.headers is None else self.headers.reasons
            lines += [f"         {count} x {NOT_IN_HEADERS}: {reason}" for reason, count in lacks.items()]
            lines += [f"         {self.known.not_ranked}"] if self.known.not_ranked else []
        if self.probe is not None:
            lines.append(
                f"measured the first {len(self.probe.fastest_first())} on {self.probe.device}, {self.probe.when}"
            )
            failed = [one for one in self.probe.kernels if one.latency_ms is None]
            lines += [f"         {one.kernel} failed: {one.status} {one.message}" for one in failed]
        shown = {"is_measured": self.probe is not None, "has_bandwidth": self.has_bandwidth}
        rows = [[str(place), *cells(one, **shown)] for place, one in enumerate(self.kernels, 1)]
        table = table_text("", ("", *columns(**shown)), rows)
        doubts = f"\n{prose(self.known.line)}\n" if self.known.line and self.not_measured is None else ""
        beside = f"\n{prose(self.frequent.line)}\n" if self.frequent is not None else ""
        tied = _ties_text(self.kernels)
        notes = tied + beside + doubts + notes_text(self.no_speed, is_in_order=self.in_order)
        said = (
            "\n".join([*(paragraphs(one_line(line)) for line in lines), "", table])
            + (f"\n{prose(self._interval_line)}\n" if self.interval is not None else "")
            + notes
        )
        return said if self.explanation is None else "\n".join([said, *self.explanation.lines(), ""])

    def json(self) -> str:
        """The answer as JSON text."""
        from ckh.documents import json_text

        return json_text(self.document())

    def document(self) -> PredictDocument:
        """The answer as a JSON document."""
        from ckh.documents import fields_of
        from ckh.learn.answers import answer_document as parts

        doubts, headers, frequent = self.not_measured, self.headers, self.frequent
        return parts.PredictDocument(
            problem=self.problem.canonical(),
            sizes=self.problem.to_dict(),
            padded=dict(self.padded) or None,
            model=self.path,
            other_models=self.other_models,
            arch=self.arch,
            device=self.device,
            ranked_by=self.ranked_by,
            candidates=self.candidates,
            candidates_measured=self.timed,
            measured=self.probe,
            refused=self.refused,
            not_measured=None
            if doubts is None
            else parts.StandInDocument(**fields_of(doubts), estimated=self.estimated, compiled=self.compiled),
            headers=None
            if headers is None
            else parts.HeadersDocument(headers.include or None, headers.interface, headers.not_built, headers.reasons),
            known=self.known.part(),
            most_frequent=None if frequent is None else parts.FrequentDocument(*frequent),
            explanation=self.explanation,
            beyond_training=self.beyond or None,
            no_speed=self.no_speed or None,
            predictions_in_order=self.in_order,
            predicted_interval=None if self.no_interval else self.interval,
            no_interval=self.no_interval or None,
            kernels=tuple(
                parts.RankedKernel(
                    kernel=one.kernel,
                    score=one.score,
                    predicted_tflops=one.tflops,
                    predicted_latency_ms=one.latency_ms,
                    predicted_bandwidth_gb_s=one.bandwidth_gb_s,
                    measured_latency_ms=one.measured_ms,
                    ties=one.ties,
                    tied=one.tied,
                    not_in_headers=one.not_in_headers or None,
                )
                for one in self.kernels
            ),
        )


def _ties_text(rows: Sequence[KernelRow]) -> str:
    """Note below a table on tied rows; empty if there are none."""
    tied = [f"row {place} is {row.ties} kernels" for place, row in enumerate(rows, 1) if row.ties > 1]
    words = f"ties: {', '.join(tied)} {_ALIKE}"
    return f"\n{prose(words)}\n" if tied else ""


def tied_rows_text(rankings: Iterable[Sequence[KernelRow]]) -> str:
    """Note below a table of many problems on tied rows; empty if there are none."""
    rows = [row for kernels in rankings for row in kernels]
    tied = [row.ties for row in rows if row.ties > 1]
    words = f"ties: {len(tied)} of {len(rows)} rows are up to {max(tied, default=1)} kernels {_ALIKE}"
    return f"\n{prose(words)}\n" if tied else ""


def padding_text(ranking: Ranking) -> str:
    """Text on the sizes that a problem is padded to."""
    sizes = ranking.problem.to_dict()
    changes = ", ".join(f"{name.upper()} {sizes[name]} to {size}" for name, size in ranking.padded.items())
    return f"{changes} (no kernel applies unpadded); times and TFLOPS are of the padded problem"


def notes_text(beyond: str, *, is_in_order: bool) -> str:
    """Notes below a table: why no speed is predicted, and that speeds do not decrease with rank."""
    notes = [prose(f"no speed predicted: {beyond}")] if beyond else []
    return "".join(f"\n{note}\n" for note in (notes if is_in_order else [*notes, prose(OUT_OF_ORDER)]))


def interval_at(bands: Sequence[Sequence[float]], tflops: float) -> tuple[float, float]:
    """90 % prediction interval of measured over predicted time at a predicted speed.

    Args:
        bands: lowest TFLOPS of each band, ascending from 0, with the low and the high end of its interval.
        tflops: the predicted speed.
    """
    held = [band for band in bands if band[0] <= tflops] or bands[:1]
    _, low, high = held[-1]
    return low, high


def interval_line(interval: Sequence[float] | None, latency_ms: float | None, apart: str) -> str:
    """Line with the prediction interval of a predicted time; empty without an interval.

    Args:
        interval: of measured over predicted time.
        latency_ms: the shortest predicted time.
        apart: as of `Known`.
    """
    if interval is None:
        return ""
    low, high = interval
    times = "" if latency_ms is None else f"{_digits(low * latency_ms)}–{_digits(high * latency_ms)} ms, "
    text = f"90 % prediction interval: {times}{low:.2f}–{high:.2f} times the predicted time"
    return f"{text} (not calibrated for {apart})" if apart else text


def _digits(value: float) -> str:
    """A number with three significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"  # noqa: PLR2004


def is_falling(tflops: Iterable[float | None]) -> bool:
    """True if predicted speeds decrease with rank."""
    return all(first >= second for first, second in pairwise(one for one in tflops if one is not None))


def columns(*, is_measured: bool, has_bandwidth: bool) -> tuple[str, ...]:
    """Column headings of a table of kernels."""
    more = [*(["predicted GB/s"] if has_bandwidth else []), *(["measured ms"] if is_measured else [])]
    return (*_COLUMNS, *more, "kernel")


def cells(row: KernelRow, *, is_measured: bool, has_bandwidth: bool) -> list[str]:
    """Cells of a kernel in such a table."""
    more = [*([row.bandwidth_gb_s] if has_bandwidth else []), *([row.measured_ms] if is_measured else [])]
    values = (row.tflops, row.latency_ms, *more)
    return [*map(_figure, values), f"{row.kernel}, {NOT_IN_HEADERS}" if row.not_in_headers else row.kernel]


def _figure(value: float | None) -> str:
    """A number of a table, or a dash for a missing value."""
    return "-" if value is None or value != value else f"{value:.4g}"  # noqa: PLR0124 - NaN
