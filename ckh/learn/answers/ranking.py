"""Ranking of the kernels of a problem, and what answers tell of their pool: those that the headers cannot build."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import load_arch
from ckh.errors import NoKernelError
from ckh.kernels.judging import judge_table
from ckh.kernels.table import KernelTable, distinct
from ckh.learn.answers.answer import NO_HEADERS, ModelFacts
from ckh.learn.answers.answer_rows import HeadersHere, KernelKind, RankedPool, ToldPool
from ckh.learn.answers.batches import known_candidates, own_candidates, scored
from ckh.learn.answers.caveats import answer_of, known_by
from ckh.learn.answers.probes import in_front
from ckh.learn.answers.ranked import ranked_kernels
from ckh.learn.models.frequent import held_out
from ckh.learn.models.manifest import warnings_of
from ckh.learn.models.scoring import Remembered
from ckh.ranking.evaluator import backend_name
from ckh.training import BANDWIDTH, LATENCY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.learn.answers.answer import Answer, AnswerRows
    from ckh.learn.answers.answer_rows import Row
    from ckh.learn.answers.known import Known
    from ckh.learn.answers.probes import Probe
    from ckh.learn.answers.ranked import Ranked
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import AnyOperation, Kernel, Problem

_AT_ONCE = 1024  # problems scored together
_MOST_REMEMBERED = 4096  # maximum number of candidates of a cached answer


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Ranking of a model for a problem."""

    problem: Problem
    model: Model
    pool: Sequence[Kernel]
    order: NDArray[np.intp]
    score: NDArray[np.float64]
    tflops: NDArray[np.float64] | None
    probe: Probe | None = None
    padded: Problem | None = None
    lacking: Lacking | None = None

    @property
    def run(self) -> Problem:
        """The problem that kernels run: the padded one, if any."""
        return self.padded or self.problem

    @property
    def unpadded(self) -> Ranking:
        """The ranking without padding: no kernels if the problem must be padded."""
        if self.padded is None:
            return self
        return replace(self, order=self.order[:0], score=self.score[:0], tflops=None, padded=None)

    @property
    def ranked(self) -> list[Ranked[Any]]:
        """All candidates, best first, including ties."""
        return self._shown(self._pool.made(None, is_each=True))

    def best(self, count: int) -> list[Ranked[Any]]:
        """First distinct rows; kernels with equal scores share a row (`ties`)."""
        return self._shown(self._pool.made(count))

    def _shown(self, rows: list[Row]) -> list[Ranked[Any]]:
        doubts = self.model.not_measured
        not_measured = None if doubts is None else doubts.of_problem(self.problem, self.model.spec.arch)
        return ranked_kernels(self.pool, rows, self.padded, not_measured)

    @property
    def _pool(self) -> RankedPool:
        told = told_pool(self.model, self.pool, self.lacking, known_candidates(self.run, self.model).timed or 0)
        counts = np.bincount(np.asarray(told.kind_of)[self.order], minlength=len(told.kinds)).tolist()
        return RankedPool(
            run=self.run,
            ranked_by=backend_name(),
            pool=told,
            kernels=self.order,
            scores=self.score.data,
            tflops=None if self.tflops is None else self.tflops.data,
            applying={kind: number for kind, number in zip(told.kinds, counts, strict=True) if number},
            has_estimate=self.model.estimate_of_kernels is not None,
            probe=self.probe,
        )

    @property
    def buildable_first(self) -> Ranking:
        """The ranking with kernels that the headers cannot build last."""
        spec = self.model.spec
        lacks = lacking(spec.op, load_arch(spec.arch), self.pool)
        if lacks is None:
            return self
        places = np.argsort(lacks.number[self.order] >= 0, kind="stable")
        return replace(self._placed(places), lacking=lacks)

    def _placed(self, places: NDArray[np.intp]) -> Ranking:
        """Reorder the ranking."""
        tflops = None if self.tflops is None else self.tflops[places]
        return replace(self, order=self.order[places], score=self.score[places], tflops=tflops)

    def by_times(self, probe: Probe) -> Ranking:
        """Reorder with measured kernels first, fastest first, and failed kernels last."""
        known, order = in_front(probe, self.order.tolist(), self._pool.pool.numbers_of)
        return replace(self._placed(np.array(order, np.intp)), probe=known)

    def known(self, count: int) -> Known:
        """Check the problem, this device and the kernels of the first rows for extrapolation."""
        pool, facts = self._pool, facts_of(self.model, self.problem)
        unknown = self._unknown(pool.pool, [pool.pool.kind(row.kernel).family for row in pool.made(count)])
        return known_by(self.problem, facts, lambda: self.model.measured, **unknown)

    def answer(self, top: int, again: str) -> Answer:
        """Build the answer with the first rows; `again` is the command without measuring options."""
        model = self.model
        return answer_of(self.problem, facts_of(model, self.problem), self.rows(top), again, lambda: model.measured)

    def rows(self, count: int) -> AnswerRows:
        """Build the first rows, and counts of all kernels."""
        model, pool = self.model, self._pool
        rows = pool.rows(count, self.refused, known_candidates(self.run, model).timed_candidates)
        rows = rows._replace(**self._unknown(pool.pool, rows.families))
        if self.tflops is None or not model.shown_beside or not rows.kernels:
            return rows
        kernels = [self.pool[row.kernel] for row in pool.made(count)]
        beside = {target: model.predict(self.run, kernels, target).tolist() for target in model.shown_beside}
        times = beside.get(LATENCY, [row.latency_ms for row in rows.kernels])
        bandwidths = beside.get(BANDWIDTH, [None] * len(kernels))
        shown = zip(rows.kernels, times, bandwidths, strict=True)
        return rows._replace(kernels=[row._replace(latency_ms=ms, bandwidth_gb_s=gb_s) for row, ms, gb_s in shown])

    def _unknown(self, told: ToldPool, families: Sequence[str]) -> dict[str, Any]:
        """Families without measurements of the kernels shown, or of all kernels of a user's list."""
        is_listed = self.model.only is not None
        families = [told.kind(kernel).family for kernel in self.order] if is_listed else families
        return {
            "families": families,
            "unknown_kernels": sum(map(bool, families)) if is_listed else 0,
            "unmeasured": known_candidates(self.run, self.model).unmeasured,
        }

    @property
    def refused(self) -> dict[str, int]:
        """Number of refused kernels, by the first violated rule."""
        return own_candidates(self.run, self.model).refused

    @property
    def estimated(self) -> int:
        """Number of candidates scored by the estimate: those unknown to the model, or all."""
        return int(self.model.estimated(self.pool)[self.order].sum())

    @property
    def failure(self) -> NoKernelError | None:
        """Error if no kernel applies, with the reason that refused the most kernels.

        Kernels that the architecture does not build count only if it builds no kernel of the kind at all.
        """
        if len(self.order):
            return None
        of_padded = own_candidates(self.model.spec.op.padded(self.problem), self.model)
        candidates = own_candidates(self.problem, self.model) if len(of_padded.chosen) else of_padded
        refused = candidates.by_problem or candidates.refused
        reason, count = next(iter(refused.items()), ("", 0))
        why = f"{count} of {sum(refused.values())} because {reason}" if reason else "there are no kernels of this kind"
        return NoKernelError(f"no kernel of {self.model.spec.arch} applies to {self.problem.canonical()}: {why}")


def facts_of(model: Model, problem: Problem) -> ModelFacts:
    """Facts of a model from which the answer for a problem is built."""
    spec, measured = model.spec, model.measured
    table = model.frequent_table(problem)
    return ModelFacts(
        op=spec.op_type,
        path=str(model.path),
        model=model.path.name,
        other_models=tuple(map(str, model.others)),
        arch=spec.arch,
        device=spec.device,
        num_cus=model.num_cus,
        asked_cus=model.asked_cus,
        has_speeds=model.predicts_speeds,
        peak=model.spec.peak_of(problem.dtype),
        reach=model.reach,
        bands=model.bands,
        limits={} if measured is None else measured.limits_by_size,
        frequent=None
        if table is None
        else {"size": spec.op.problems.grows_with.lower(), "left_out": held_out(spec.op), "table": table},
        left_out=tuple(known_candidates(problem, model).left_out),
        not_measured=model.not_measured,
        can_probe=spec.op.measured is not None,
        has_estimate=model.estimate_of_kernels is not None,
        part_cus=0 if model.gpu.is_whole else model.gpu.hardware.num_cus,
        warnings=warnings_of(model.path),
        sets=() if model.calibration is None or model.only is not None else model.calibration.sets,
    )


def ranking_of(problem: Problem, model: Model) -> Ranking:
    """Rank the kernels of the model's architecture for a problem."""
    (ranking,) = rankings_of([problem], model)
    if failure := ranking.failure:
        raise failure
    return ranking


def rankings_of(problems: Iterable[Problem], model: Model) -> list[Ranking]:
    """Rank the kernels for many problems; `Ranking.failure` is set for those without a kernel. Results are cached."""
    requested = list(problems)
    rankings = {problem: known for problem in requested if (known := model.remembered.get(problem)) is not None}
    left = [problem for problem in dict.fromkeys(requested) if problem not in rankings]
    for start in range(0, len(left), _AT_ONCE):
        rankings |= _answer_all(left[start : start + _AT_ONCE], model)
    for problem in left:
        if len(rankings[problem].order) <= _MOST_REMEMBERED:
            model.remembered.put(problem, rankings[problem])
    return [rankings[problem] for problem in requested]


def _answer_all(problems: Sequence[Problem], model: Model) -> dict[Problem, Ranking]:
    rankings: dict[Problem, Ranking] = {}
    for part in scored(problems, model):
        for row, problem in enumerate(part.problems):
            given = part.pool, part.order[row], part.score[row], part.expected(row)
            rankings[problem] = Ranking(problem, model, *given, padded=part.padded[row])
    return rankings


_POOLS = 32  # cached pools


@dataclass(frozen=True, slots=True, eq=False)
class Lacking:
    """Kernels of a pool that the headers cannot build."""

    headers: HeadersHere
    pool: Sequence[Kernel]
    number: NDArray[np.intp]  # index of the reason why the headers cannot build each kernel, -1 if they can

    def reason(self, kernel: int) -> str:
        """Reason why a kernel cannot be built; empty if it can."""
        return "" if self.number[kernel] < 0 else self.headers.sentences[self.number[kernel]]


_known: Remembered[Lacking] = Remembered(_POOLS)


def is_built_by_ckh(op: AnyOperation, arch: ArchSpec) -> bool:
    """True if kernels of an operation for an architecture are built with CK Tile's headers."""
    return arch.is_gpu and op.measured is not None and _emission(op) is not None


def lacking(op: AnyOperation, arch: ArchSpec, pool: Sequence[Kernel]) -> Lacking | None:
    """Check a pool against the headers found on this machine; None if there are none, or they do not matter."""
    if not len(pool) or not is_built_by_ckh(op, arch):
        return None
    emission = _emission(op)
    headers = emission.known_headers()
    if headers is None:
        return None
    key = (id(pool), arch.name, headers.include)
    lacks = _known.get(key)
    if lacks is None:
        table = pool if isinstance(pool, KernelTable) else KernelTable.of(op.kernels.type, pool)
        verdicts = judge_table(headers.rules, table, arch)
        here = HeadersHere(headers.include, headers.interface, verdicts.sentences)
        lacks = Lacking(here, pool, verdicts.number)
        _known.put(key, lacks)
    return lacks


def told_pool(model: Model, pool: Sequence[Kernel], lacks: Lacking | None, timed: int = 0) -> ToldPool:
    """What answers of a model tell of a pool, of whose kernels the first have times; cached."""
    key = id(model), id(pool), lacks is None, timed
    if (known := _told.get(key)) is None:
        known = model, pool, _told_pool(model, pool, lacks, timed)  # with what the key identifies
        _told.put(key, known)
    return known[2]


def _told_pool(model: Model, pool: Sequence[Kernel], lacks: Lacking | None, timed: int) -> ToldPool:
    op, measured = model.spec.op, model.measured
    headers = None if lacks is None else lacks.headers
    if lacks is None and is_built_by_ckh(op, load_arch(model.spec.arch)):
        headers = HeadersHere(NO_HEADERS.include, NO_HEADERS.interface, ())

    def numbers_of(names: Collection[str]) -> dict[str, int]:
        if isinstance(pool, KernelTable):
            kernels = {name: op.kernels.parse(name) for name in names}
            numbers = pool.numbers_of(list(kernels.values())).tolist()
            return {name: number for name, number in zip(kernels, numbers, strict=True) if number >= 0}
        every = ((op.kernels.name(kernel), number) for number, kernel in enumerate(pool))
        return {name: number for name, number in every if name in names}

    families, column = [""] * len(pool), op.kernels.slice_column
    if (
        measured is not None
        and isinstance(pool, KernelTable)
        and column in {field.name for field in fields(op.kernels.type)}
    ):
        families = pool.column(column).tolist()  # without the other columns
    elif measured is not None and len(pool):
        families = op.kernels.columns(pool, model.spec.encoding)[column]
    shown = {family: "" if measured and str(family) in measured.families else str(family) for family in families}
    names = {family: code for code, family in enumerate(dict.fromkeys(shown.values()))}
    code_of = {family: names[text] for family, text in shown.items()}
    is_compiled = np.zeros(len(pool), np.intp)
    if (estimate := model.estimate_of_kernels) is not None and estimate.compiled:
        is_compiled[list(numbers_of(estimate.compiled).values())] = 1
    lack = np.zeros(len(pool), np.intp) if lacks is None else lacks.number + 1
    columns = [
        (lack, int(lack.max(initial=0)) + 1),
        (np.fromiter(map(code_of.__getitem__, families), np.intp, len(pool)), max(1, len(names))),
        (model.estimated(pool).astype(np.intp), 2),
        (is_compiled, 2),
        ((np.arange(len(pool)) < timed).astype(np.intp), 2),
    ]
    distinct_kinds, kind_of = distinct(columns, len(pool))
    texts, marks = list(names), zip(*distinct_kinds, strict=True)
    kinds = [KernelKind(int(at) - 1, texts[family], *map(bool, flags)) for at, family, *flags in marks]
    return ToldPool(kinds, kind_of, headers, lambda number: op.kernels.name(pool[number]), numbers_of)


_told: Remembered[tuple[Model, Sequence[Any], ToldPool]] = Remembered(_POOLS)


def _emission(op: AnyOperation) -> Any:
    return None if op.measured is None else getattr(op.measured(), "hip", None)
