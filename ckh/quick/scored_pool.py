"""Prepared files of a kind of problems: facts about the kernels of a pool, and their ranking in C."""

from __future__ import annotations

import operator
import zlib
from binascii import a2b_base64, b2a_base64
from collections import Counter
from ctypes import addressof, c_double
from functools import cached_property
from math import nan
from typing import TYPE_CHECKING, Any

from ckh.errors import ModelError
from ckh.learn.analytic.completed import JUDGED, MOST_TIE_BREAK, Completion, filled, tie_breaks, vetoed
from ckh.learn.answers.answer import ModelFacts
from ckh.learn.answers.answer_rows import HeadersHere, KernelKind, RankedPool, ToldPool
from ckh.learn.answers.caveats import answer_of
from ckh.learn.models.reach import beyond, peak_tflops
from ckh.ops import requested
from ckh.quick.store import estimate_path, names_path
from ckh.ranking.library import OpenModel, RankedCandidate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from ckh.learn.answers.answer import Answer, AnswerRows
    from ckh.learn.answers.probes import Probe
    from ckh.learn.models.measured_set import MeasuredSet
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


def packed(content: bytes) -> str:
    """Compress bytes to text."""
    return b2a_base64(zlib.compress(content)).decode()


def unpacked(text: str) -> bytes:
    """Decompress `packed` text."""
    return zlib.decompress(a2b_base64(text))


class ScoredPool:
    """The kernels of a kind of problems, ranked in C by a model, an estimate, or both."""

    def __init__(self, facts: dict[str, Any], names: bytes, model: Path | bytes, estimate: Path | bytes = b"") -> None:
        self.facts = facts
        self.model_facts = ModelFacts.of_json(facts["answer"])
        self._model = OpenModel(model)
        self._completion = facts["completion"]
        self._estimate = OpenModel(estimate) if self._completion else None
        self._names = names
        self._kind_of = unpacked(facts["kind_of"])
        self._told = ToldPool(
            kinds=[KernelKind(*kind) for kind in facts["kinds"]],
            kind_of=self._kind_of,
            headers=None if facts["headers"] is None else HeadersHere(*facts["headers"]),
            name=self._name,
            numbers_of=self._numbers_of,
        )

    @classmethod
    def read(cls, facts: dict[str, Any], path: Path) -> ScoredPool:
        """Open the files of a prepared pool, given the model's."""
        names = names_path(path).read_bytes()
        if zlib.crc32(names) != facts["names_checksum"]:
            raise ModelError(f"{names_path(path)} is damaged", code="damaged-model")
        return cls(facts, names, path, estimate_path(path))

    def _name(self, kernel: int) -> str:
        """Return the complete name of a kernel, given its index in the pool."""
        begin, words = 0, []
        for size, texts in self.facts["names"]:
            at = begin + kernel * size
            words.append(texts[int.from_bytes(self._names[at : at + size], "little")])
            begin += size * self.facts["pool"]
        return "".join(words)

    def _numbers_of(self, names: Collection[str]) -> dict[str, int]:
        every = ((self._name(kernel), kernel) for kernel in range(self.facts["pool"]))
        return {name: kernel for name, kernel in every if name in names}

    @cached_property
    def _shape_of(self) -> Sequence[int]:
        """Index of each kernel's shape: the estimate scores shapes."""
        shapes: Sequence[int] = memoryview(unpacked(self.facts["shape_of"])).cast("i")
        return shapes

    def answer(
        self,
        problem: Problem,
        top: int,
        again: str,
        measured: Callable[[], MeasuredSet | None],
        *,
        uses_probes: bool,
    ) -> Answer:
        """Answer for a problem of the kind, as of `caveats.answer_of`; raises `ModelError` if no kernel applies."""
        facts, probe = self.model_facts, None
        if uses_probes:
            from ckh.learn.answers.probes import recall

            probe = recall(problem.canonical(), facts.arch)
        part, most = requested(facts.op), top if probe is None else 0
        try:
            rows = self._rows(problem, most, top, probe)
        except ModelError:
            padded = problem if part is None else part.padded(problem)
            if part is None or padded == problem or part.pool(padded.to_dict()) != part.pool(problem.to_dict()):
                raise
            rows = self._rows(padded, most, top, probe)
        return answer_of(problem, facts, rows, again, measured)

    def _rows(self, run: Problem, most: int, top: int, probe: Probe | None) -> AnswerRows:
        """Rank the kernels of a problem, and make the first rows of an answer."""
        facts, kinds, sizes = self.model_facts, self._told.kinds, self._sizes(run)
        first = self._first(sizes, most)
        reasons = self.facts["reasons"]
        begins, counts = self._model.count_reasons(self.facts["key"], sizes, self._kind_of, len(kinds), len(reasons))
        applying = {kinds[kind]: count[0] for kind, count in enumerate(counts) if count[0]}
        refused = Counter(self.facts["refused"])  # by architecture and problem, counted as in `choose` of operations
        by_reason = list(map(sum, zip(*counts, strict=True)))
        for place in sorted(range(1, len(by_reason)), key=begins.__getitem__):  # in the order of the kernels
            if by_reason[place]:
                text = "".join(str(value_of(part, sizes)) for part in reasons[place - 1])
                if text:
                    refused[text] += by_reason[place]
        has_speeds = facts.has_speeds and not beyond(run, facts.reach)
        peak = peak_tflops(facts.peak, run)
        rows = RankedPool(
            run=run,
            ranked_by="c",
            pool=self._told,
            kernels=[ranked.kernel for ranked in first],
            scores=[ranked.score for ranked in first],
            tflops=[ranked.tflops if ranked.tflops <= peak else nan for ranked in first] if has_speeds else None,
            applying=applying,
            has_estimate=facts.has_estimate,
        )
        timed = sum(number for kind, number in applying.items() if kind.is_timed)
        return (rows if probe is None else rows.by_times(probe)).rows(
            top, dict(refused.most_common()), timed if self.facts["is_timed_known"] else None
        )

    def _sizes(self, problem: Problem) -> list[int]:
        """Return the numbers of a problem, in C's order."""
        sizes = [getattr(problem, name) for name in self.facts["sizes"]]
        if not self.facts["tiled"]:
            return sizes
        return [*sizes, *(value_of(part, sizes) for part in self.facts["tiled"]), problem.bytes]

    def _first(self, sizes: Sequence[int], rows: int) -> list[RankedCandidate]:
        """Rank the kernels of the first rows of a problem; those that the headers here cannot build come last."""
        most = _FEW if rows else self.facts["pool"]
        estimated = None if self._estimate is None else self._scores(self._estimate, sizes, self.facts["shapes"])
        breaks = tie_breaks(estimated) if estimated and self._completion == Completion.TIE_BROKEN else None
        while True:
            if estimated and self._completion == Completion.FILLED:
                count, first = self._filled(sizes, estimated)
            else:
                count, first = self._model.rank(self.facts["key"], sizes, min(most, self.facts["pool"]))
            most_left = first[-1].score + (MOST_TIE_BREAK if breaks else 0)  # bound of the other kernels' scores
            is_judged = not estimated or self._veto(first, estimated, breaks) > most_left
            first.sort(key=lambda kernel: (self._is_lacking(kernel), -kernel.score, kernel.kernel))
            if len(first) == count or (is_judged and self._are_whole(first, rows, most_left)):
                return first
            most *= _TIMES_MORE

    def _veto(
        self, ranked: list[RankedCandidate], estimated: Sequence[float], breaks: Callable[[float], float] | None
    ) -> float:
        """Break ties by the estimate, then let it judge the first kernels; returns the last one's score before."""
        minus_us = {candidate.kernel: estimated[self._shape_of[candidate.kernel]] for candidate in ranked}
        if breaks is not None:
            for candidate in ranked:
                candidate.score += breaks(minus_us[candidate.kernel])
        first = sorted(ranked, key=lambda candidate: (-candidate.score, candidate.kernel))[:JUDGED]
        scores: list[float] = [candidate.score for candidate in first]
        for candidate, score in zip(first, vetoed(scores, [minus_us[one.kernel] for one in first]), strict=True):
            candidate.score = score
        return scores[-1]

    def _are_whole(self, first: Sequence[RankedCandidate], rows: int, most_left: float) -> bool:
        """True if the first rows include all of their ties, given the highest score of the kernels left out."""
        scores = {ranked.score for ranked in first if ranked.score > most_left and not self._is_lacking(ranked)}
        return len(scores) >= rows

    def _is_lacking(self, ranked_candidate: RankedCandidate) -> bool:
        return self._told.kind(ranked_candidate.kernel).lack >= 0

    def _filled(self, sizes: Sequence[int], estimated: Sequence[float]) -> tuple[int, list[RankedCandidate]]:
        """Rank all applicable kernels, with the estimate's scores for kernels that the model does not know."""
        count, ranked = self._model.rank(self.facts["key"], sizes, self.facts["pool"])
        is_known = [not self._told.kind(number).is_estimated for number in range(self.facts["pool"])]
        if not any(is_known[candidate.kernel] for candidate in ranked):
            raise ModelError("no kernel that the model knows applies", code="no-kernel")
        of_kernels = [estimated[shape] for shape in self._shape_of]
        scores = filled(self._scores(self._model, sizes, self.facts["pool"]), of_kernels, is_known)
        for candidate in ranked:
            candidate.score, candidate.tflops = scores[candidate.kernel], nan
        return count, ranked

    def _scores(self, model: OpenModel, sizes: Sequence[int], count: int) -> Sequence[float]:
        """Scores of all kernels or shapes, applicable or not."""
        given, out = (c_double * len(sizes))(*sizes), (c_double * count)()
        model.score(1, addressof(given), 1, addressof(out))
        scores: Sequence[float] = memoryview(out).cast("B").cast("d")
        return scores


def value_of(part: Any, sizes: Sequence[int]) -> Any:
    """Evaluate an expression of `ckh.export.decisions`; text is unchanged."""
    if not isinstance(part, list):
        return part
    operation, *operands = part
    if operation == "size":
        return sizes[operands[0]]
    return _OPERATIONS[operation](*(value_of(operand, sizes) for operand in operands))
