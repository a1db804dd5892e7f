"""Rank the kernels of a problem, and explain why kernels do not apply."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ckh.archs import default_arch, load_arch
from ckh.errors import NoKernelError
from ckh.kernels.table import KernelTable
from ckh.learn.analytic.filled import FilledModel
from ckh.learn.analytic.transfer import EstimateModel, estimate_of
from ckh.learn.answers.answering import AnsweringModels
from ckh.learn.answers.arguments import require_count, require_problems
from ckh.learn.answers.batches import known_candidates, neighbours, own_candidates, scored
from ckh.learn.answers.buildable import Lacking, is_built_by_ckh, lacking
from ckh.learn.answers.known import Known, find_known, not_measured
from ckh.learn.answers.listed import RankedAlone
from ckh.learn.answers.probes import in_front
from ckh.learn.answers.ranked import Ranked, in_order
from ckh.learn.answers.ranking_text import NO_HEADERS
from ckh.learn.answers.ties import TiedKernels, row_lengths, row_starts
from ckh.learn.models.artifact import Model, Wanted, load_model, wanted_for
from ckh.learn.models.frequent import frequent, held_out
from ckh.learn.models.reach import beyond
from ckh.paths import files_of_models

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.learn.answers.batches import Scored
    from ckh.learn.answers.probes import Probe
    from ckh.learn.answers.ranking_text import HeadersNote
    from ckh.learn.models.frequent import Frequent
    from ckh.ops.base import Kernel, Problem

_AT_ONCE = 1024  # problems that are scored together
_MOST_REMEMBERED = 20_000  # candidates of an answer that is remembered
_KEPT = 4  # of how many architectures models are kept that nobody named


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Ranking of a model for a problem.

    Attributes:
        problem: the problem.
        model: the model.
        pool: kernels to choose from.
        order: indices of applicable kernels in the pool, best first; shape (candidates,).
        score: ranking scores, descending; shape (candidates,).
        tflops: predicted speeds, NaN if not predicted; shape (candidates,). None also if the problem is far outside the
            training data (`reach.beyond`).
        probe: measurements on this machine, if they determine the order: measured kernels by time, then the others by
            score, then failed kernels.
        padded: the padded problem that kernels run, if no kernel applies to the unpadded problem.
        lacking: pool kernels that the installed headers cannot build; None: not considered.
    """

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
    def unpadded(self) -> Answer:
        """The answer without padding: no kernels if the problem must be padded."""
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
    def buildable_first(self) -> Answer:
        """The answer with kernels that the headers cannot build last."""
        spec = self.model.spec
        found = lacking(spec.op, load_arch(spec.arch), self.pool)
        if found is None:
            return self
        places = np.argsort(found.kind(self.order), kind="stable")
        return replace(self._placed(places), lacking=found)

    def _placed(self, places: NDArray[np.intp]) -> Answer:
        """The answer in another order."""
        tflops = None if self.tflops is None else self.tflops[places]
        return replace(self, order=self.order[places], score=self.score[places], tflops=tflops)

    @property
    def _kind(self) -> NDArray[np.intp] | None:
        return None if self.lacking is None else self.lacking.kind(self.order)

    @property
    def headers(self) -> HeadersNote | None:
        """Candidates that the headers cannot build; None: not built with CK Tile's headers."""
        if self.lacking is not None:
            return self.lacking.note(self.order)
        spec = self.model.spec
        return NO_HEADERS if is_built_by_ckh(spec.op, load_arch(spec.arch)) else None

    @property
    def _row_starts(self) -> NDArray[np.intp]:
        """Start indices of rows; probed kernels have a row each."""
        timed = 0 if self.probe is None else len(self.probe.fastest_first())
        failed = 0 if self.probe is None else len(self.probe.kernels) - timed
        return row_starts(self.score, timed, failed, self._kind)

    def _told(self, ranked: list[Ranked], order: NDArray[np.intp]) -> list[Ranked]:
        """Ranked kernels with times on this machine and reasons why the headers cannot build them."""
        if self.lacking is not None:
            reasons = zip(ranked, self.lacking.reasons(order), strict=True)
            ranked = [replace(one, not_in_headers=reason) if reason else one for one, reason in reasons]
        if self.probe is not None:
            times = [one.latency_ms for one in self.probe.fastest_first()]
            ranked[: len(times)] = [replace(one, measured_ms=ms) for one, ms in zip(ranked, times, strict=False)]
        return ranked

    def by_times(self, probe: Probe) -> Answer:
        """The answer with measured kernels first, fastest first, and failed kernels last."""
        known, order = in_front(probe, self._names({one.kernel for one in probe.kernels}))
        return replace(self._placed(np.array(order, np.intp)), probe=known)

    def _names(self, wanted: Iterable[str]) -> list[str]:
        """Names of the candidates, best first; of a large pool only the requested names, others are empty."""
        op = self.model.spec.op
        if not isinstance(self.pool, KernelTable):
            return [op.kernel_name(self.pool[index]) for index in self.order]
        place, names = np.full(len(self.pool), -1, np.intp), [""] * len(self.order)
        place[self.order] = np.arange(len(self.order))
        kernels = {name: op.parse_kernel(name) for name in wanted}
        for name, number in zip(kernels, self.pool.numbers_of(list(kernels.values())).tolist(), strict=True):
            if number >= 0 and place[number] >= 0:
                names[place[number]] = name
        return names

    def known(self, count: int) -> Known:
        """Out-of-distribution check of the problem, this device and the first kernels of the first rows."""
        is_listed = self.model.only is not None
        kernels = [self.pool[index] for index in self.order[... if is_listed else self._row_starts[:count]]]
        found = known_of(self.problem, self.model, kernels, known_candidates(self.problem, self.model).left_out)
        unknown = sum(map(bool, unmeasured_families(self.model, kernels))) if is_listed and found.families else 0
        return found._replace(unknown_kernels=unknown)

    @property
    def frequent(self) -> Frequent | None:
        """Most frequent winner at the problem's size, for models of winners."""
        op, table = self.model.spec.op, self.model.frequent_table(self.problem)
        if table is None or self.model.not_measured is not None:
            return None
        return frequent(self.problem, op.grows_with.lower(), held_out(op), table)

    @property
    def compiled(self) -> int | None:
        """Number of candidates with a compiler report in the estimate; None: no estimate."""
        estimate = estimate_of(self.model)
        if estimate is None:
            return None
        known = estimate.compiled
        return sum(name in known for name in self._names(known)) if known else 0

    @property
    def estimated(self) -> int:
        """Number of candidates scored by the estimate: those unknown to the model, or all."""
        if isinstance(self.model, FilledModel):
            return int((~self.model.is_known(self.pool)[self.order]).sum())
        return len(self.order) if isinstance(self.model, EstimateModel) else 0

    @property
    def beyond(self) -> str:
        """Reason why no speed is predicted far outside the training data, or an empty string."""
        return beyond(self.run, self.model.reach)

    @property
    def timed(self) -> int | None:
        """Number of candidates with times in the training data; None if unknown."""
        return known_candidates(self.run, self.model).timed_candidates

    @property
    def refused(self) -> dict[str, int]:
        """Number of refused kernels, by the first violated rule."""
        return own_candidates(self.run, self.model).refused

    @property
    def failure(self) -> NoKernelError | None:
        """The error where no kernel applies; its message has the reason that refused the most kernels of this problem.

        What the architecture does not build is a reason where it builds no kernel of the kind at all.
        """
        if len(self.order):
            return None
        found = own_candidates(self.problem, self.model)
        refused = found.by_problem or found.refused
        reason, count = next(iter(refused.items()), ("", 0))
        why = f"{count} of {sum(refused.values())} because {reason}" if reason else "there is none of this kind"
        return NoKernelError(f"no kernel of {self.model.spec.arch} applies to {self.problem.canonical()}: {why}")


def known_of(problem: Problem, model: Model, kernels: Sequence[Kernel], left_out: Iterable[str] = ()) -> Known:
    """Out-of-distribution check of a problem, this device and kernels; `left_out` as of `Known`."""
    if model.not_measured is not None:
        return not_measured(model.not_measured.source)
    if unmeasured := known_candidates(problem, model).unmeasured:
        return Known(source=f"no kernel of {unmeasured} was measured on {model.spec.arch}")
    found = model.measured
    return find_known(
        problem,
        model.spec.arch,
        model.spec.device,
        model.num_cus,
        lambda: found,
        {} if found is None else found.limits_by_size,
        list(dict.fromkeys(filter(None, unmeasured_families(model, kernels)))),
        left_out,
    )


def unmeasured_families(model: Model, kernels: Sequence[Kernel]) -> list[str]:
    """Family of each kernel, e.g. its pipeline, if it has no measurements in the training data; empty otherwise."""
    found, op = model.measured, model.spec.op
    if found is None or not len(kernels):
        return [""] * len(kernels)
    kinds = map(str, op.kernel_columns(kernels, model.spec.encoding)[op.kernel_slice])
    return ["" if kind in found.families else kind for kind in kinds]


def rank(
    problem: Problem,
    top: int | None = None,
    model: Model | Path | str | None = None,
    *,
    arch: str | None = None,
    require_measured: bool = False,
    kernels: Iterable[str | Kernel] | None = None,
    rule_set: str | None = None,
) -> list[Ranked]:
    """The kernels for a problem, best first.

    Args:
        problem: what is to be computed.
        top: how many; all by default.
        model: which model, or its folder, which is then read in each call; by default the first that fits the problem
            and the architecture, or where none does what stands in for it, which `Ranked.not_measured` says
            (`answering.AnsweringModels`).
        arch: the architecture where no model is named; this machine's GPU, else the host.
        require_measured: refuse what stands in for a model.
        kernels: complete names, ours or AMD's, or kernels, which alone are ranked, in the architecture's pool or not;
            by default that pool, and what the model's training data have times of.
        rule_set: a rule set of convolutions, whose kernels alone are ranked.

    Raises:
        NoKernelError: none applies.
        DataError: `kernels` is empty, or has what is not a complete kernel of the operation, or what the architecture
            cannot build, or several element types.
        TypeError: an argument is of another type.
        ModelError: there is no such model, or it is damaged.
        UsageError: the model is for something else, `top` is below 0, or there is no such architecture or rule set.
    """
    require_count(top)
    require_problems((problem,))
    alone, chosen = RankedAlone.of(kernels, rule_set), _loaded(model)
    if chosen is None:
        models = _models(arch)
        chosen = models.fitting(problem) if require_measured else models.answering(problem)
    chosen = alone.limit(chosen, problem)
    found = answer(problem, chosen).buildable_first
    return _marked(found.ranked if top is None else found.best(top), chosen)


def _loaded(model: object) -> Model | None:
    """Load the named model; None if none was named."""
    if model is None or isinstance(model, Model):
        return model
    if isinstance(model, (str, Path)):
        return load_model(model)
    raise TypeError(f"model must be a ckh.Model or the path of its folder, not {type(model).__name__}")


def _models(arch: str | None) -> AnsweringModels:
    """Models of an architecture, cached until a relevant file changes."""
    found = files_of_models()
    state = tuple((path, one.st_ino, one.st_ctime_ns, one.st_mtime_ns, one.st_size) for path, one in found)
    return _kept_models(default_arch() if arch is None else load_arch(arch).name, state)


@lru_cache(maxsize=_KEPT)
def _kept_models(arch: str, state: tuple[tuple[str | int, ...], ...]) -> AnsweringModels:  # noqa: ARG001 - of the cache
    return AnsweringModels(arch)


def _marked(ranked: list[Ranked], model: Model) -> list[Ranked]:
    """Ranked kernels, marked if not measured."""
    doubts = model.not_measured
    return ranked if doubts is None else [replace(one, not_measured=doubts) for one in ranked]


def known(
    problem: Problem,
    top: int = 5,
    model: Model | Path | str | None = None,
    *,
    arch: str | None = None,
    kernels: Iterable[str | Kernel] | None = None,
    rule_set: str | None = None,
) -> Known:
    """Out-of-distribution check of an answer of `rank`: the line `out of distribution: …` of `ckh predict`.

    Args:
        problem: what is to be computed.
        top: how many of the first kernels are meant.
        model: as of `rank`.
        arch: as of `rank`.
        kernels: as of `rank`.
        rule_set: as of `rank`.

    Raises:
        CkhError: as `rank`.
        TypeError: as `rank`.
    """
    require_count(top)
    require_problems((problem,))
    alone, chosen = RankedAlone.of(kernels, rule_set), _loaded(model) or _models(arch).answering(problem)
    return answer(problem, alone.limit(chosen, problem)).known(top)


def rank_many(
    problems: Sequence[Problem],
    top: int | None = None,
    model: Model | Path | str | None = None,
    *,
    tflops: bool = True,
    arch: str | None = None,
    require_measured: bool = False,
    kernels: Iterable[str | Kernel] | None = None,
    rule_set: str | None = None,
) -> list[list[Ranked]]:
    """Rank kernels for many problems, best first; an empty list for problems without applicable kernels.

    Args:
        problems: what is to be computed.
        top: how many kernels of each; all by default. Few are faster.
        model: which model; by default, for each problem, as `rank` does.
        tflops: whether to predict speed and time; the order alone takes half as long.
        arch: as of `rank`.
        require_measured: as of `rank`.
        kernels: as of `rank`.
        rule_set: as of `rank`.

    Raises:
        DataError: as `rank`.
        TypeError: as `rank`.
        ModelError: there is no such model, or it is damaged.
        UsageError: the model is for something else, `top` is below 0, or there is no such architecture.
    """
    require_count(top)
    if hasattr(problems, "canonical") or not isinstance(problems, Iterable):
        raise TypeError(f"problems must be a list of problems, not {problems!r:.80}")
    problems = tuple(problems)
    require_problems(problems)
    alone, loaded = RankedAlone.of(kernels, rule_set), _loaded(model)
    models = _models(arch)
    groups: dict[Wanted, dict[Problem, list[int]]] = defaultdict(dict)
    for index, problem in enumerate(problems):
        groups[wanted_for(problem, models.arch)].setdefault(problem, []).append(index)
    ranked: list[list[Ranked]] = [[] for _ in problems]
    for wanted, places in groups.items():
        for problem, best in _best_of(list(places), wanted, loaded, models, top, (tflops, require_measured), alone):
            for index in places[problem]:
                ranked[index] = best.copy()
    return ranked


def _best_of(
    problems: list[Problem],
    wanted: Wanted,
    model: Model | None,
    models: AnsweringModels,
    top: int | None,
    flags: tuple[bool, bool],
    alone: RankedAlone,
) -> Iterator[tuple[Problem, list[Ranked]]]:
    """Best kernels of problems for one model; some are duplicates if a stand-in answers."""
    tflops, require_measured = flags
    left = []
    first = model or (models.fitting(problems[0]) if require_measured else models.first(wanted))
    for found, limited in () if first is None else _in_parts(problems, first, alone, top, tflops=tflops):
        if model is None and (found.unmeasured or not found.candidates):
            left += found.problems
        else:
            yield from zip(found.problems, _rows_of(found, limited, top, tflops=tflops), strict=True)
    others: dict[Model, list[Problem]] = defaultdict(list)
    for problem in problems if first is None else left:
        others[models.fitting(problem) if require_measured else models.answering(problem)].append(problem)
    for chosen, some in others.items():
        for found, limited in _in_parts(some, chosen, alone, top, tflops=tflops):
            rows = (_marked(best, chosen) for best in _rows_of(found, limited, top, tflops=tflops))
            yield from zip(found.problems, rows, strict=True)


def _rows_of(found: Scored, model: Model, top: int | None, *, tflops: bool) -> Iterator[list[Ranked]]:
    """First rows of problems scored together; kernels that the headers cannot build come last."""
    lacks = lacking(model.spec.op, load_arch(model.spec.arch), found.pool) if found.candidates else None
    if lacks is None or len(lacks.verdicts.passed) == len(found.pool):
        yield from found.best(top)
        return
    for one in answers(found.problems, model):
        first = (one if tflops else replace(one, tflops=None)).buildable_first
        yield first.ranked if top is None else first.best(top)


def _in_parts(
    problems: Sequence[Problem], model: Model, alone: RankedAlone, top: int | None, *, tflops: bool
) -> Iterator[tuple[Scored, Model]]:
    for limited, some in alone.by_model(model, problems):
        near = neighbours(some, model.spec.op.place)
        for start in range(0, len(near), _AT_ONCE):
            for found in scored(near[start : start + _AT_ONCE], limited, top=top, tflops=tflops):
                yield found, limited


def answer(problem: Problem, model: Model) -> Answer:
    """Rank the kernels of the model's architecture for a problem.

    Raises:
        NoKernelError: none applies; the message has the most frequent reason.
        UsageError: the model is for something else.
        ModelError: a file of the model is damaged.
    """
    (found,) = answers([problem], model)
    if failure := found.failure:
        raise failure
    return found


def answers(problems: Iterable[Problem], model: Model) -> list[Answer]:
    """As `answer`, for many problems; `Answer.failure` says which have no kernel. Those ranked before are remembered.

    Raises:
        UsageError: the model is for something else.
        ModelError: a file of the model is damaged.
    """
    requested = list(problems)
    found = {problem: known for problem in requested if (known := model.remembered.get(problem)) is not None}
    left = [problem for problem in dict.fromkeys(requested) if problem not in found]
    for start in range(0, len(left), _AT_ONCE):
        found |= _answer_all(left[start : start + _AT_ONCE], model)
    for problem in left:
        if len(found[problem].order) <= _MOST_REMEMBERED:
            model.remembered.put(problem, found[problem])
    return [found[problem] for problem in requested]


def _answer_all(problems: Sequence[Problem], model: Model) -> dict[Problem, Answer]:
    found: dict[Problem, Answer] = {}
    for some in scored(problems, model):
        for row, problem in enumerate(some.problems):
            given = some.pool, some.order[row], some.score[row], some.expected(row)
            found[problem] = Answer(problem, model, *given, padded=some.padded[row])
    return found
