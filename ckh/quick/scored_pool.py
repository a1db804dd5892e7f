"""Prepared files of a kind of problems: facts about the kernels of a pool, and their ranking in C."""

from __future__ import annotations

import operator
import zlib
from binascii import a2b_base64, b2a_base64
from collections import Counter
from ctypes import addressof, c_double
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.errors import ModelError
from ckh.learn.analytic.completed import MOST_TIE_BREAK, Completion, filled, tie_breaks
from ckh.learn.answers.answer import NO_HEADERS, HeadersNote
from ckh.quick.store import estimate_path, names_path
from ckh.ranking.library import OpenModel, RankedCandidate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ckh.ops.base import Problem

# Operations of expressions, named as in `ckh.export.decisions`.
_OPERATIONS: dict[str, Callable[..., int]] = {
    "number": lambda value: value,
    "plus": operator.add,
    "less": operator.sub,
    "times": operator.mul,
    "over": operator.floordiv,
    "modulo": operator.mod,
}
_FEW, _TIMES_MORE = 128, 8  # number of kernels ranked first, and growth factor if these are not enough


class KernelKind(NamedTuple):
    """Properties shared by kernels of a pool, as far as an answer prints them."""

    lack: int  # index of the reason why the headers cannot build them; -1 if they can
    family: str  # if the model has no measurements of it; else empty
    is_estimated: bool
    is_compiled: bool
    is_timed: bool


def packed(content: bytes) -> str:
    """Compress bytes to text."""
    return b2a_base64(zlib.compress(content)).decode()


def unpacked(text: str) -> bytes:
    """Decompress `packed` text."""
    return zlib.decompress(a2b_base64(text))


class PreparedHeaders(NamedTuple):
    """The headers on this machine, and the reasons why they cannot build kernels of a prepared pool."""

    include: str
    interface: str
    sentences: Sequence[str]

    def lack(self, number: int) -> str:
        """Return a reason by its index; empty for -1."""
        return "" if number < 0 else self.sentences[number]

    def note(self, candidates: Mapping[KernelKind, int]) -> HeadersNote:
        """Summarize the reasons for the candidates of an answer, given the number of each kind."""
        reasons: Counter[str] = Counter()
        for kind, count in candidates.items():
            if kind.lack >= 0:
                reasons[self.lack(kind.lack)] += count
        return HeadersNote.of(self.include, self.interface, reasons)


NO_PREPARED_HEADERS = PreparedHeaders(NO_HEADERS.include, NO_HEADERS.interface, ())


def read_headers(facts: dict[str, Any]) -> PreparedHeaders | None:
    """Return the headers from prepared facts."""
    return None if facts["headers"] is None else PreparedHeaders(*facts["headers"])


class ScoredPool:
    """The kernels of a kind of problems, ranked by a model, an estimate, or both."""

    def __init__(self, facts: dict[str, Any], path: Path) -> None:
        self._facts = facts
        self._model = OpenModel(path)
        self._estimate = OpenModel(estimate_path(path)) if facts["completion"] else None
        self._completion = facts["completion"]
        self._kinds = [KernelKind(*kind) for kind in facts["kinds"]]
        self._kind_of = unpacked(facts["kind_of"])
        self._names = names_path(path).read_bytes()
        if zlib.crc32(self._names) != facts["names_checksum"]:
            raise ModelError(f"{names_path(path)} is damaged", code="damaged-model")

    def name(self, kernel: int) -> str:
        """Return the complete name of a kernel, given its index in the pool."""
        begin, words = 0, []
        for size, texts in self._facts["names"]:
            at = begin + kernel * size
            words.append(texts[int.from_bytes(self._names[at : at + size], "little")])
            begin += size * self._facts["pool"]
        return "".join(words)

    def kind(self, kernel: int) -> KernelKind:
        """Return the kind of a kernel, given its index in the pool."""
        return self._kinds[self._kind_of[kernel]]

    def count(self, reasons: Sequence[int]) -> tuple[Counter[KernelKind], Counter[int]]:
        """Number of applicable kernels by kind, and of refused ones by reason, given each kernel's reason."""
        applying: Counter[KernelKind] = Counter()
        refused: Counter[int] = Counter()
        for first, kind, count in zip(
            *(memoryview(unpacked(fact)).cast("i") for fact in self._facts["alike"]), strict=True
        ):
            if reasons[first] < 0:
                applying[self._kinds[kind]] += count
            else:
                refused[reasons[first]] += count
        return applying, refused

    def sizes(self, problem: Problem) -> list[int]:
        """Return the numbers of a problem, in C's order."""
        result = [getattr(problem, name) for name in self._facts["sizes"]]
        if not self._facts["tiled"]:
            return result
        return [*result, *(value_of(part, result) for part in self._facts["tiled"]), problem.bytes]

    def reasons(self, sizes: Sequence[int]) -> Sequence[int]:
        """For each kernel, index of the reason why it does not apply to a problem of these sizes; -1 if it does."""
        return self._model.reasons(self._facts["key"], sizes, self._facts["pool"])

    def rank(self, sizes: Sequence[int], rows: int) -> tuple[int, list[RankedCandidate]]:
        """Return the number of kernels that apply to a problem of these sizes, and the first ones by pool index.

        Kernels that the headers here cannot build come last.
        """
        most = _FEW if rows else self._facts["pool"]
        tie_break = self._tie_breaks(sizes)
        while True:
            if self._completion == Completion.FILLED:
                count, first = self._filled(sizes)
            else:
                count, first = self._model.rank(self._facts["key"], sizes, min(most, self._facts["pool"]))
            others = first[-1].score + (MOST_TIE_BREAK if tie_break else 0)  # upper bound of the other kernels' scores
            if tie_break:
                for item in first:
                    item.score += tie_break(item.kernel)
            first.sort(key=lambda item: (self._is_lacking(item), -item.score, item.kernel))
            if len(first) == count or self._are_whole(first, rows, others):
                return count, first
            most *= _TIMES_MORE

    def _are_whole(self, first: Sequence[RankedCandidate], rows: int, others: float) -> bool:
        """True if the first rows include all of their ties, given the highest score of the kernels left out."""
        scores = {item.score for item in first if item.score > others and not self._is_lacking(item)}
        return len(scores) >= rows

    def _is_lacking(self, ranked_candidate: RankedCandidate) -> bool:
        return self.kind(ranked_candidate.kernel).lack >= 0

    def _tie_breaks(self, sizes: Sequence[int]) -> Callable[[int], float] | None:
        """Return a function from a kernel to the estimate's tie breaker; None if the estimate breaks no ties."""
        if self._estimate is None or self._completion != Completion.TIE_BROKEN:
            return None
        estimated = self._scores(self._estimate, sizes)
        breaks = tie_breaks(estimated)
        return lambda kernel: breaks[estimated[kernel]]

    def _filled(self, sizes: Sequence[int]) -> tuple[int, list[RankedCandidate]]:
        """Rank all applicable kernels, with the estimate's scores for kernels that the model does not know."""
        assert self._estimate is not None
        applying = [number for number, reason in enumerate(self.reasons(sizes)) if reason < 0]
        if all(self.kind(number).is_estimated for number in applying):
            raise ModelError("no kernel that the model knows applies", code="no-kernel")
        is_known = [not self.kind(number).is_estimated for number in range(self._facts["pool"])]
        scores = filled(self._scores(self._model, sizes), self._scores(self._estimate, sizes), is_known)
        return len(applying), [RankedCandidate(number, scores[number], nan, nan) for number in applying]

    def _scores(self, model: OpenModel, sizes: Sequence[int]) -> Sequence[float]:
        """Scores of all kernels, applicable or not."""
        given, result = (c_double * len(sizes))(*sizes), (c_double * self._facts["pool"])()
        model.score(1, addressof(given), 1, addressof(result))
        scores: Sequence[float] = memoryview(result).cast("B").cast("d")
        return scores


def value_of(part: Any, sizes: Sequence[int]) -> Any:
    """Evaluate an expression of `ckh.export.decisions`; text is unchanged."""
    if not isinstance(part, list):
        return part
    operation, *operands = part
    if operation == "size":
        return sizes[operands[0]]
    return _OPERATIONS[operation](*(value_of(operand, sizes) for operand in operands))
