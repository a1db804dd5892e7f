"""The answer to "which kernel for this problem?": all candidates in order, and why the others are none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.archs import default_arch, load_arch
from ckh.errors import NoKernelError
from ckh.learn.artifact import Wanted, find_model
from ckh.ops import operation_of

if TYPE_CHECKING:
    from ckh.learn.artifact import Model, Ranked
    from ckh.ops.base import Problem


@dataclass(frozen=True, slots=True)
class Answer:
    """Candidates, best first, and how many kernels were refused, by the first rule that each breaks."""

    problem: Problem
    ranked: list[Ranked]
    refused: dict[str, int]


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
    chosen = model or find_model(wanted_for(problem, default_arch()))
    return answer(problem, chosen).ranked[:top]


def answer(problem: Problem, model: Model) -> Answer:
    """Rank the kernels of the model's architecture for a problem.

    Raises:
        NoKernelError: none applies; the message has the most frequent reason.
        UsageError: the model is for something else.
        ModelError: a file of the model is damaged.
    """
    model.require(wanted_for(problem, model.spec.arch))
    arch = load_arch(model.spec.arch)
    found = model.spec.op.candidates(problem, arch, model.path)
    if not found.kernels:
        reason, count = next(iter(found.refused.items()))
        raise NoKernelError(
            f"no kernel of {arch.name} applies to {problem.canonical()}: {count} of {sum(found.refused.values())} "
            f"because {reason}"
        )
    return Answer(problem, model.rank(problem, found.kernels), found.refused)
