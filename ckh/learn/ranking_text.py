"""A ranking as text and as JSON. Imports next to nothing: quick answers are printed with it too."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.learn.known import ALL_KNOWN, Known
from ckh.log import one_line
from ckh.ops import in_words
from ckh.prose import paragraphs, prose
from ckh.tabletext import json_text, table_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ckh.learn.explanation import Explanation
    from ckh.learn.frequent import Frequent
    from ckh.learn.probes import Probe
    from ckh.ops.base import Problem

MOST_TIED = 100  # names of a row's kernels that JSON has
_COLUMNS = ("predicted TFLOPS", "predicted ms")
NOT_IN_HEADERS = "not in these headers"
_ALIKE = "alike to the model: the first in the pool is shown, measured ones before others"
_WHY = " (--why lists the reasons)"
_HOST = "host"
OUT_OF_ORDER = (
    "the order is the ranking model's; TFLOPS are predicted by a model of their own, and need not fall with it"
)

ORDER_ALONE = "this model learned the order of kernels, not their times"
TIMED_ALONE = "the data hold times of the fastest kernels alone; behind the first it is unknown which are among them"


class HeadersNote(NamedTuple):
    """What CK Tile's headers on this machine lack for the candidates of an answer.

    Attributes:
        include: the headers' folder; empty: none are known.
        interface: which one they have or, of none, which one the candidates are for.
        reasons: how many candidates they cannot build, by the reason.
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
        """How many candidates they cannot build."""
        return sum(self.reasons.values())

    @property
    def line(self) -> str:
        """For people."""
        if not self.include:
            return f"none known here; candidates are for the interface {self.interface}, and yours may lack some"
        where = f"{self.interface}, in {self.include}"
        return f"{where}: {self.not_built} candidates cannot be built with them and stand last"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "include": self.include or None,
            "interface": self.interface,
            "not_built": self.not_built,
            "reasons": dict(self.reasons),
        }


# Where no headers are known: the kernels are those of AMD's dispatcher, which goes with the headers of late 2025.
NO_HEADERS = HeadersNote("", "late2025", MappingProxyType({}))


class KernelRow(NamedTuple):
    """A row of a ranking: a kernel by its complete name, and what is known of it.

    Attributes:
        kernel: the name.
        score: what is ordered by.
        tflops: expected, if they are.
        latency_ms: the time that goes with them.
        measured_ms: measured here, if it was.
        ties: how many candidates have this score, this kernel, the first of them in the pool, among them.
        tied: the names of the others, the first `MOST_TIED` of them.
        not_in_headers: why the headers here cannot build it; empty if they can, or none are known.
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
    """A caution about an order that no measurement of this GPU and element type stands behind.

    Attributes:
        basis: "model" of another GPU or element type, or "estimate".
        source: what it is.
        worth: how good such answers were, where they were judged on the same operation, direction, pool and GPUs; None
            where they were not.
        next_commands: what would measure, the quicker first.
    """

    basis: str
    source: str
    worth: str | None
    next_commands: tuple[str, ...]

    def with_probe(self, again: str) -> NotMeasured:
        """The same, where the command that was typed measures its first choices if it is typed so again."""
        return replace(self, next_commands=(f"{again} --probe 5", *self.next_commands))

    def lines(self) -> list[str]:
        """For people."""
        following = [f"next     {command}" for command in self.next_commands]
        return [
            "NOT MEASURED on this architecture and element type",
            f"source   {one_line(self.source)}",
            f"worth    {self.worth or 'not judged'}",
            *following,
        ]


class Ranking(NamedTuple):
    """The answer of `ckh predict` for a problem.

    Attributes:
        problem: the problem.
        path: the folder of the model.
        model: its name.
        other_models: folders of models that fit as well.
        arch: the architecture that it is for.
        device: what it was measured on.
        ranked_by: the implementation.
        candidates: how many kernels apply.
        refused: how many do not, by reason.
        beyond: why the model expects no speed of this problem; empty if it does, or never does.
        probe: what was measured here, if it decides the order.
        kernels: the first of those that apply.
        not_measured: what to know where nothing was measured; None: the model is of this architecture and dtype.
        estimated: how many candidates have their score from an estimate: those that the model does not know, or all.
        compiled: of how many candidates an estimate knows what the compiler reported; None: no estimate answers.
        bands: measured over predicted times that nine in ten held-out ones lay between, by the speed that is predicted
            (`interval_at`); empty where nothing says.
        known: what the model does not know of the problem, this device and the kernels.
        frequent: the kernel that wins most at the problem's size, where the model learned from winners.
        timed: how many candidates the model's training data have times of; None if the model does not say.
        explanation: why the first is above the second, if that is requested and there are two.
        padded: the sizes that the problem is padded to, by name, where no kernel applies to it as it is; empty: none.
        headers: what CK Tile's headers lack; None: the kernels are not built with them.
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
        """Measured over predicted time that nine in ten held-out times at such speeds lay between; None: unknown.

        It holds for what `known` does not doubt.
        """
        speeds = [one.tflops for one in self.kernels if one.tflops is not None]
        return interval_at(self.bands, max(speeds)) if self.bands and speeds else None

    @property
    def no_interval(self) -> str:
        """The interval and what it holds for, if that is not this; empty if it holds, or there is none."""
        return interval_words(self.interval, self.known.apart) if self.known.apart else ""

    @property
    def in_order(self) -> bool:
        """True if the predicted speeds fall with the place, among kernels that were not measured."""
        return is_falling(one.tflops for one in self.kernels if one.measured_ms is None)

    @property
    def has_bandwidth(self) -> bool:
        """True if the model predicts the bandwidth of a kernel."""
        return any(one.bandwidth_gb_s is not None for one in self.kernels)

    @property
    def no_speed(self) -> str:
        """Why the cells of predicted speeds are empty; empty if they are not, or all of the answer stands in doubt."""
        has_speed = [one.tflops is not None for one in self.kernels]
        if self.beyond or self.not_measured is not None or all(has_speed):
            return self.beyond
        return TIMED_ALONE if any(has_speed) else ORDER_ALONE

    def text(self, *, why: bool) -> str:
        """For people; `why` has the reasons for which kernels were refused."""
        warning = " (host numbers: they say nothing about a GPU)" if self.arch == _HOST else ""
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
            *([f"         chosen before {', '.join(self.other_models)}"] if self.other_models else []),
            f"kernels  {self.candidates} candidates{measured}, {refused} refused{_WHY if refused and not why else ''}",
        ]
        if 0 < self.estimated < self.candidates:
            lines.append(f"         {self.estimated} of kinds unknown to the model, put in by the analytic estimate")
        if self.compiled is not None:
            lines.append(f"         registers and LDS of {self.compiled} by the compiler, of the others by tile")
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
            + interval_text(self.interval, self.known.apart)
            + notes
        )
        return said if self.explanation is None else "\n".join([said, *self.explanation.lines(), ""])

    def json(self) -> str:
        """For programs."""
        return json_text("predict", self.document())

    def document(self) -> dict[str, Any]:
        """The answer, for JSON."""
        return {
            "problem": self.problem.canonical(),
            "sizes": self.problem.to_dict(),
            "padded": dict(self.padded) or None,
            "model": self.path,
            "other_models": self.other_models,
            "arch": self.arch,
            "device": self.device,
            "ranked_by": self.ranked_by,
            "candidates": self.candidates,
            "candidates_measured": self.timed,
            "measured": None if self.probe is None else asdict(self.probe),
            "refused": self.refused,
            "not_measured": None
            if self.not_measured is None
            else {**asdict(self.not_measured), "estimated": self.estimated, "compiled": self.compiled},
            "headers": None if self.headers is None else self.headers.document(),
            "known": self.known.document(),
            "most_frequent": None if self.frequent is None else self.frequent._asdict(),
            **({} if self.explanation is None else {"explanation": self.explanation.document()}),
            "beyond_training": self.beyond or None,
            "no_speed": self.no_speed or None,
            "predictions_in_order": self.in_order,
            "predicted_interval": None if self.interval is None or self.no_interval else list(self.interval),
            "no_interval": self.no_interval or None,
            "kernels": [
                {
                    "kernel": one.kernel,
                    "score": one.score,
                    "predicted_tflops": one.tflops,
                    "predicted_latency_ms": one.latency_ms,
                    "predicted_bandwidth_gb_s": one.bandwidth_gb_s,
                    "measured_latency_ms": one.measured_ms,
                    "ties": one.ties,
                    "tied": list(one.tied),
                    "not_in_headers": one.not_in_headers or None,
                }
                for one in self.kernels
            ],
        }


def _ties_text(rows: Sequence[KernelRow]) -> str:
    """The note below a table on rows that stand for several kernels; empty if there are none."""
    tied = [f"{place} = {row.ties} kernels" for place, row in enumerate(rows, 1) if row.ties > 1]
    words = f"{', '.join(tied)}, {_ALIKE}"
    return f"\n{prose(words)}\n" if tied else ""


def tied_rows_text(rankings: Iterable[Sequence[KernelRow]]) -> str:
    """The same note below the rows of many problems."""
    rows = [row for kernels in rankings for row in kernels]
    tied = [row.ties for row in rows if row.ties > 1]
    words = f"{len(tied)} of {len(rows)} rows are several kernels, at most {max(tied, default=1)}, {_ALIKE}"
    return f"\n{prose(words)}\n" if tied else ""


def padding_text(ranking: Ranking) -> str:
    """The sizes that a problem is padded to, and what its figures are of."""
    sizes = ranking.problem.to_dict()
    changes = ", ".join(f"{name.upper()} {sizes[name]} to {size}" for name, size in ranking.padded.items())
    return f"{changes}, as no kernel takes it as it is; times and TFLOPS are of the padded problem"


def notes_text(beyond: str, *, is_in_order: bool) -> str:
    """The notes below a table: why no speed is predicted, and that speeds are not in the order of the ranking."""
    notes = [prose(f"no speed is predicted: {beyond}")] if beyond else []
    return "".join(f"\n{note}\n" for note in (notes if is_in_order else [*notes, prose(OUT_OF_ORDER)]))


def interval_at(bands: Sequence[Sequence[float]], tflops: float) -> tuple[float, float]:
    """The interval of measured over predicted time at the speed that is predicted for the first kernel.

    Args:
        bands: the TFLOPS from which each holds, 0 in the first and ascending, its low and its high end.
        tflops: the speed.
    """
    held = [band for band in bands if band[0] <= tflops] or bands[:1]
    _, low, high = held[-1]
    return low, high


def interval_text(interval: Sequence[float] | None, apart: str) -> str:
    """The note below a table on how far predicted times held; `apart` as of `Known`."""
    words = interval_words(interval, apart)
    return f"\n{prose(words)}\n" if words else ""


def interval_words(interval: Sequence[float] | None, apart: str) -> str:
    """The sentence of such a note; empty where there is no interval."""
    if interval is None:
        return ""
    low, high = interval
    text = f"at such speeds 9 in 10 held-out times lay between {low:.2f} and {high:.2f} times the predicted ones"
    return f"{text}; that holds {apart}" if apart else text


def is_falling(tflops: Iterable[float | None]) -> bool:
    """True if predicted speeds fall with the place, as far as there are any."""
    return all(first >= second for first, second in pairwise(one for one in tflops if one is not None))


def columns(*, is_measured: bool, has_bandwidth: bool) -> tuple[str, ...]:
    """The columns of a table of kernels."""
    more = [*(["predicted GB/s"] if has_bandwidth else []), *(["measured ms"] if is_measured else [])]
    return (*_COLUMNS, *more, "kernel")


def cells(row: KernelRow, *, is_measured: bool, has_bandwidth: bool) -> list[str]:
    """A kernel in such a table."""
    more = [*([row.bandwidth_gb_s] if has_bandwidth else []), *([row.measured_ms] if is_measured else [])]
    values = (row.tflops, row.latency_ms, *more)
    return [*map(_figure, values), f"{row.kernel}, {NOT_IN_HEADERS}" if row.not_in_headers else row.kernel]


def _figure(value: float | None) -> str:
    """A number of a table, or a dash where there is none."""
    return "-" if value is None or value != value else f"{value:.4g}"  # noqa: PLR0124 - NaN
