"""Ranking of the kernels of a problem, and reasons why kernels do not apply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ckh.archs import load_arch
from ckh.errors import NoKernelError
from ckh.kernels.table import KernelTable
from ckh.learn.answers.answer import (
    MAX_TIED,
    NO_HEADERS,
    AnswerRows,
    KernelRow,
    ModelFacts,
)
from ckh.learn.answers.batches import known_candidates, own_candidates, scored
from ckh.learn.answers.buildable import Lacking, is_built_by_ckh, lacking
from ckh.learn.answers.caveats import answer_of, known_by
from ckh.learn.answers.probes import in_front
from ckh.learn.answers.ranked import Ranked, TiedKernels, in_order, marked, row_lengths, row_starts
from ckh.learn.models.frequent import held_out
from ckh.ranking.evaluator import backend_name
from ckh.training import BANDWIDTH, LATENCY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from ckh.learn.answers.answer import Answer, HeadersNote
    from ckh.learn.answers.known import Known
    from ckh.learn.answers.probes import Probe
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Kernel, Problem

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
    def ranked(self) -> list[Ranked]:
        """All candidates, best first, including ties."""
        ties = row_lengths(self.score, self._kind) if self.probe is None else None
        given = self.problem, self.pool, self.order, self.score, self.tflops, self.padded
        return self._told(in_order(*given, ties=ties), self.order)

    def best(self, count: int) -> list[Ranked]:
        """First distinct rows; kernels with equal scores share a row (`ties`)."""
        starts = self._row_starts
        ends = np.append(starts[1:], len(self.order))[:count].tolist()
        starts = starts[:count]
        tflops = None if self.tflops is None else self.tflops[starts]
        rows = zip(starts.tolist(), ends, strict=True)
        alike = [TiedKernels(self.pool, self.order[start + 1 : end]) for start, end in rows]
        ties = [1 + len(others) for others in alike]
        given = self.problem, self.pool, self.order[starts], self.score[starts], tflops, self.padded
        return self._told(in_order(*given, ties=ties, alike=alike), self.order[starts])

    @property
    def buildable_first(self) -> Ranking:
        """The ranking with kernels that the headers cannot build last."""
        spec = self.model.spec
        result = lacking(spec.op, load_arch(spec.arch), self.pool)
        if result is None:
            return self
        places = np.argsort(result.kind(self.order), kind="stable")
        return replace(self._placed(places), lacking=result)

    def _placed(self, places: NDArray[np.intp]) -> Ranking:
        """Reorder the ranking."""
        tflops = None if self.tflops is None else self.tflops[places]
        return replace(self, order=self.order[places], score=self.score[places], tflops=tflops)

    @property
    def _kind(self) -> NDArray[np.intp] | None:
        return None if self.lacking is None else self.lacking.kind(self.order)

    @property
    def _row_starts(self) -> NDArray[np.intp]:
        """Start indices of rows; probed kernels have a row each."""
        timed = 0 if self.probe is None else len(self.probe.fastest_first())
        failed = 0 if self.probe is None else len(self.probe.kernels) - timed
        return row_starts(self.score, timed, failed, self._kind)

    def _told(self, ranked: list[Ranked], order: NDArray[np.intp]) -> list[Ranked]:
        """Add times on this machine and reasons why the headers cannot build a kernel."""
        doubts = self.model.not_measured
        ranked = marked(ranked, None if doubts is None else doubts.of_problem(self.problem, self.model.spec.arch))
        if self.lacking is not None:
            reasons = zip(ranked, self.lacking.reasons(order), strict=True)
            ranked = [replace(item, not_in_headers=reason) if reason else item for item, reason in reasons]
        if self.probe is not None:
            times = [timed.latency_ms for timed in self.probe.fastest_first()]
            ranked[: len(times)] = [
                replace(candidate, measured_latency_ms=ms) for candidate, ms in zip(ranked, times, strict=False)
            ]
        return ranked

    def by_times(self, probe: Probe) -> Ranking:
        """Reorder with measured kernels first, fastest first, and failed kernels last."""
        known, order = in_front(probe, self._names({kernel.kernel for kernel in probe.kernels}))
        return replace(self._placed(np.array(order, np.intp)), probe=known)

    def _names(self, wanted: Iterable[str]) -> list[str]:
        """Names of the candidates, best first; for a large pool only the requested names, others are empty."""
        op = self.model.spec.op
        if not isinstance(self.pool, KernelTable):
            return [op.kernels.name(self.pool[index]) for index in self.order]
        place, names = np.full(len(self.pool), -1, np.intp), [""] * len(self.order)
        place[self.order] = np.arange(len(self.order))
        kernels = {name: op.kernels.parse(name) for name in wanted}
        for name, number in zip(kernels, self.pool.numbers_of(list(kernels.values())).tolist(), strict=True):
            if number >= 0 and place[number] >= 0:
                names[place[number]] = name
        return names

    def known(self, count: int) -> Known:
        """Check the problem, this device and the kernels of the first rows for extrapolation."""
        model, families = self.model, self._families(count)
        facts = facts_of(model, self.problem)
        return known_by(self.problem, facts, lambda: model.measured, families=families, **self._unknown(families))

    def answer(self, top: int, again: str) -> Answer:
        """Build the answer with the first rows; `again` is the command without measuring options."""
        model = self.model
        return answer_of(self.problem, facts_of(model, self.problem), self.rows(top), again, lambda: model.measured)

    def rows(self, count: int) -> AnswerRows:
        """Build the first rows, and counts of all kernels."""
        families = self._families(count)
        return AnswerRows(
            run=self.run,
            kernels=self._kernel_rows(count),
            ranked_by=backend_name(),
            candidates=len(self.order),
            refused=self.refused,
            timed=known_candidates(self.run, self.model).timed_candidates,
            estimated=self.estimated,
            compiled=self._compiled,
            headers=self._headers,
            families=families,
            probe=self.probe,
            **self._unknown(families),
        )

    def _families(self, count: int) -> list[str]:
        """Families without measurements of the kernels shown, or of all kernels of a user's list."""
        shown = self.order[self._row_starts[:count] if self.model.only is None else ...]
        return unmeasured_families(self.model, [self.pool[index] for index in shown])

    def _unknown(self, families: Sequence[str]) -> dict[str, Any]:
        is_listed = self.model.only is not None
        return {
            "unknown_kernels": sum(map(bool, families)) if is_listed else 0,
            "unmeasured": known_candidates(self.problem, self.model).unmeasured,
        }

    def _kernel_rows(self, count: int) -> list[KernelRow]:
        """First rows with predicted times and bandwidths."""
        model, best, name = self.model, self.best(count), self.model.spec.op.kernels.name
        kernels = [item.kernel for item in best]
        shown = model.shown_beside if self.tflops is not None and best else ()
        beside = {target: model.predict(self.run, kernels, target).tolist() for target in shown}
        times = beside.get(LATENCY, [item.latency_ms for item in best])
        bandwidths = beside.get(BANDWIDTH, [None] * len(best))
        return [
            KernelRow(
                kernel=name(ranked.kernel),
                score=ranked.score,
                tflops=ranked.tflops,
                latency_ms=time,
                measured_latency_ms=ranked.measured_latency_ms,
                bandwidth_gb_s=bandwidth,
                ties=ranked.ties,
                tied=tuple(map(name, ranked.alike[:MAX_TIED])),
                not_in_headers=ranked.not_in_headers,
            )
            for ranked, time, bandwidth in zip(best, times, bandwidths, strict=True)
        ]

    @property
    def _headers(self) -> HeadersNote | None:
        """Candidates that the headers cannot build; None: not built with CK Tile's headers."""
        if self.lacking is not None:
            return self.lacking.note(self.order)
        spec = self.model.spec
        return NO_HEADERS if is_built_by_ckh(spec.op, load_arch(spec.arch)) else None

    @property
    def _compiled(self) -> int | None:
        """Number of candidates with a compiler report in the estimate; None: no estimate."""
        estimate = self.model.estimate_of_kernels
        if estimate is None:
            return None
        known = estimate.compiled
        return sum(name in known for name in self._names(known)) if known else 0

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
        candidates = own_candidates(self.problem, self.model)
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
    )


def unmeasured_families(model: Model, kernels: Sequence[Kernel]) -> list[str]:
    """Family of each kernel, e.g. its pipeline, if it has no measurements in the training data; empty otherwise."""
    result, op = model.measured, model.spec.op
    if result is None or not len(kernels):
        return [""] * len(kernels)
    kinds = map(str, op.kernels.columns(kernels, model.spec.encoding)[op.kernels.slice_column])
    return ["" if kind in result.families else kind for kind in kinds]


def ranking_of(problem: Problem, model: Model) -> Ranking:
    """Rank the kernels of the model's architecture for a problem."""
    (ranking,) = rankings_of([problem], model)
    if failure := ranking.failure:
        raise failure
    return ranking


def rankings_of(problems: Iterable[Problem], model: Model) -> list[Ranking]:
    """Rank the kernels for many problems; `Ranking.failure` is set for those without a kernel. Results are cached."""
    requested = list(problems)
    result = {problem: known for problem in requested if (known := model.remembered.get(problem)) is not None}
    left = [problem for problem in dict.fromkeys(requested) if problem not in result]
    for start in range(0, len(left), _AT_ONCE):
        result |= _answer_all(left[start : start + _AT_ONCE], model)
    for problem in left:
        if len(result[problem].order) <= _MOST_REMEMBERED:
            model.remembered.put(problem, result[problem])
    return [result[problem] for problem in requested]


def _answer_all(problems: Sequence[Problem], model: Model) -> dict[Problem, Ranking]:
    result: dict[Problem, Ranking] = {}
    for some in scored(problems, model):
        for row, problem in enumerate(some.problems):
            given = some.pool, some.order[row], some.score[row], some.expected(row)
            result[problem] = Ranking(problem, model, *given, padded=some.padded[row])
    return result
