"""The answer to "which kernel for this problem?": all candidates in order, and why the others are none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.archs import default_arch, load_arch
from ckh.errors import NoKernelError
from ckh.kernels.pool import conv_pool, refused_pool
from ckh.kernels.validity import problem_reasons
from ckh.learn.artifact import Wanted, find_model

if TYPE_CHECKING:
    from ckh.learn.artifact import Model, Ranked
    from ckh.problems import ConvProblem

OPERATION = "grouped_conv"


@dataclass(frozen=True, slots=True)
class Answer:
    """Candidates, best first, and how many kernels were refused, by the first rule that each breaks."""

    problem: ConvProblem
    ranked: list[Ranked]
    refused: dict[str, int]


def wanted_for(problem: ConvProblem, arch: str) -> Wanted:
    """What a model for a problem must be for."""
    return Wanted(OPERATION, problem.variant, problem.dtype, arch)


def rank(problem: ConvProblem, top: int | None = None, model: Model | None = None) -> list[Ranked]:
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
    chosen = model or find_model(wanted_for(problem, default_arch()))
    return answer(problem, chosen).ranked[:top]


def answer(problem: ConvProblem, model: Model) -> Answer:
    """Rank the kernels of the model's architecture for a problem.

    Raises:
        NoKernelError: none applies; the message has the most frequent reason.
        UsageError: the model is for something else.
        ModelError: a file of the model is damaged.
    """
    model.require(wanted_for(problem, model.spec.arch))
    arch = load_arch(model.spec.arch)
    group = (problem.variant, arch, problem.ndim, problem.dtype)
    refused = Counter(kernel.reasons[0] for kernel in refused_pool(*group))
    candidates = []
    for kernel in conv_pool(*group):
        if reasons := problem_reasons(kernel, arch, problem):
            refused[reasons[0]] += 1
        else:
            candidates.append(kernel)
    counted = dict(refused.most_common())
    if not candidates:
        reason, count = next(iter(counted.items()))
        raise NoKernelError(
            f"no kernel of {arch.name} applies to {problem.canonical()}: {count} of {sum(counted.values())} because "
            f"{reason}"
        )
    return Answer(problem, model.rank(problem, candidates), counted)
