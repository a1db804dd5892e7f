"""The answer to "which kernel for this problem?": all candidates in order, and why the others are none."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ckh.archs import default_arch, load_arch
from ckh.errors import NoKernelError
from ckh.learn.artifact import Ranked, Wanted, find_model
from ckh.ops import operation_of
from ckh.rank.evaluator import best_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ckh.learn.artifact import Model
    from ckh.learn.probes import Probe
    from ckh.ops.base import Candidates, Kernel, Problem

_AT_ONCE = 1024  # problems that are scored together
_FLOPS_PER_TFLOPS_MS = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a model says of the kernels for a problem.

    Attributes:
        problem: what is to be computed.
        model: what was asked.
        pool: kernels among which the problem decides.
        order: those that apply, as numbers in the pool, best first; shape (candidates,).
        score: what they are ordered by, highest first; shape (candidates,).
        tflops: what the model expects of them, if it does; shape (candidates,).
        probe: what was measured, if that comes first: the kernels that were measured by their time, then the others
            by their score, then those that failed.
    """

    problem: Problem
    model: Model
    pool: tuple[Kernel, ...]
    order: NDArray[np.intp]
    score: NDArray[np.float64]
    tflops: NDArray[np.float64] | None
    probe: Probe | None = None

    @property
    def ranked(self) -> list[Ranked]:
        """The candidates, best first."""
        return self.best(len(self.order))

    def best(self, count: int) -> list[Ranked]:
        """The first candidates, as many as asked for or there are."""
        kernels = [self.pool[index] for index in self.order[:count].tolist()]
        score = self.score[:count].tolist()
        measured: list[float | None] = [None] * len(kernels)
        if self.probe is not None:
            times = [one.latency_ms for one in self.probe.fastest_first()][:count]
            measured[: len(times)] = times
        if self.tflops is None:
            return [Ranked(k, s, None, None, ms) for k, s, ms in zip(kernels, score, measured, strict=True)]
        with np.errstate(divide="ignore"):
            latency_ms = self.problem.flops / (self.tflops[:count] * _FLOPS_PER_TFLOPS_MS)
        figures = zip(kernels, score, self.tflops[:count].tolist(), latency_ms.tolist(), measured, strict=True)
        return [Ranked(*one) for one in figures]

    def by_times(self, probe: Probe) -> Answer:
        """The answer with the kernels in front that were measured, fastest first, and at the end those that failed.

        Kernels that are no candidates any more are left out of both.
        """
        names = {self.model.spec.op.kernel_name(self.pool[index]): place for place, index in enumerate(self.order)}
        known = replace(probe, kernels=tuple(one for one in probe.kernels if one.kernel in names))
        first = [names[one.kernel] for one in known.fastest_first()]
        last = [names[one.kernel] for one in known.kernels if one.latency_ms is None]
        rest = sorted(set(range(len(self.order))).difference(first, last))
        places = np.array([*first, *rest, *last], np.intp)
        tflops = None if self.tflops is None else self.tflops[places]
        return replace(self, order=self.order[places], score=self.score[places], tflops=tflops, probe=known)

    @property
    def refused(self) -> dict[str, int]:
        """How many kernels were refused, by the first rule that each breaks."""
        return _candidates(self.problem, self.model).refused

    @property
    def failure(self) -> NoKernelError | None:
        """What to raise where no kernel applies; its message has the most frequent reason."""
        if len(self.order):
            return None
        refused = self.refused
        reason, count = next(iter(refused.items()))
        return NoKernelError(
            f"no kernel of {self.model.spec.arch} applies to {self.problem.canonical()}: {count} of "
            f"{sum(refused.values())} because {reason}"
        )


def wanted_for(problem: Problem, arch: str) -> Wanted:
    """What a model for a problem must be for."""
    op = operation_of(problem.canonical())
    return Wanted(op.name, str(problem.variant) if op.has_directions else None, problem.dtype, arch)  # type: ignore[attr-defined]


def rank(problem: Problem, top: int | None = None, model: Model | None = None) -> list[Ranked]:
    """The kernels for a problem, best first.

    Args:
        problem: what is to be computed.
        top: how many; all by default.
        model: which model; by default the first that fits the problem and this machine's GPU, or else the host.

    Raises:
        NoKernelError: none applies.
        ModelError: there is no such model, or it is damaged.
        UsageError: the model is for something else.
    """
    found = answer(problem, model or find_model(wanted_for(problem, default_arch())))
    return found.ranked if top is None else found.best(top)


def rank_many(problems: Sequence[Problem], top: int | None = None, model: Model | None = None) -> list[list[Ranked]]:
    """The kernels for each of many problems, best first; of a problem that no kernel applies to, an empty list.

    Args:
        problems: what is to be computed.
        top: how many kernels of each; all by default. Few are faster.
        model: which model; by default, for each problem, the first that fits it and this machine's GPU, or else host.

    Raises:
        ModelError: there is no such model, or it is damaged.
        UsageError: the model is for something else.
    """
    arch = default_arch()
    models: dict[Wanted, Model] = {}
    groups: dict[Wanted, list[int]] = defaultdict(list)
    for index, problem in enumerate(problems):
        groups[wanted_for(problem, arch)].append(index)
    ranked: list[list[Ranked]] = [[] for _ in problems]
    for wanted, members in groups.items():
        models[wanted] = model or find_model(wanted)
        for index, found in zip(members, answers([problems[i] for i in members], models[wanted]), strict=True):
            ranked[index] = found.ranked if top is None else found.best(top)
    return ranked


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
    """As `answer`, for many problems; `Answer.failure` tells which have no kernel. Those asked before are remembered.

    Raises:
        UsageError: the model is for something else.
        ModelError: a file of the model is damaged.
    """
    asked = list(problems)
    found = {problem: known for problem in asked if (known := model.remembered.get(problem)) is not None}
    left = [problem for problem in dict.fromkeys(asked) if problem not in found]
    for start in range(0, len(left), _AT_ONCE):
        found |= _answer_all(left[start : start + _AT_ONCE], model)
    for problem in left:
        model.remembered.put(problem, found[problem])
    return [found[problem] for problem in asked]


def _answer_all(problems: Sequence[Problem], model: Model) -> dict[Problem, Answer]:
    pools: dict[int, list[tuple[Problem, Candidates]]] = defaultdict(list)
    kinds: set[Wanted] = set()
    for problem in problems:
        if (wanted := wanted_for(problem, model.spec.arch)) not in kinds:
            model.require(wanted)
            kinds.add(wanted)
        key = model.spec.op.candidates_key(problem)
        known = model.candidates.get(key)
        if known is None:
            known = _candidates(problem, model)
            model.candidates.put(key, known)
        pools[id(known.pool)].append((problem, known))
    found: dict[Problem, Answer] = {}
    for members in pools.values():
        pool = members[0][1].pool
        if not pool:
            nothing = np.zeros(0)
            found |= {p: Answer(p, model, pool, np.zeros(0, np.intp), nothing, nothing) for p, _ in members}
            continue
        score, tflops = model.score_pool([problem for problem, _ in members], pool)
        chosen = {id(some): np.array(some.chosen, np.intp) for _, some in members}
        for row, (problem, some) in enumerate(members):
            applies = chosen[id(some)]
            order = applies[best_first(score[row, applies])]
            expected = None if tflops is None else tflops[row, order]
            found[problem] = Answer(problem, model, pool, order, score[row, order], expected)
    return found


def _candidates(problem: Problem, model: Model) -> Candidates:
    return model.spec.op.candidates(problem, load_arch(model.spec.arch), model.path)
