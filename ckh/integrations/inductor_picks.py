"""Check that Inductor, with ckh's order installed, picks the kernel that ckh ranks first among Inductor's instances."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError, UsageError
from ckh.export.consumers import named
from ckh.export.parity import Pick
from ckh.integrations.inductor import PROGRAM, install, setting_of, unpadded
from ckh.learn.answers.listed import kernel_list
from ckh.learn.answers.ranking import ranking_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.export.consumers import Instances
    from ckh.learn.models.artifact import Model
    from ckh.learn.models.choice import Chooser
    from ckh.ops.base import AnyOperation, Problem


def inductor_picks(
    chooser: Chooser, model: Path | None, problems: Sequence[Problem]
) -> tuple[list[Pick], Counter[str]]:
    """First instance that Inductor would time for each problem, and number of problems without one, by reason.

    Instances that differ only in padding are the same kernel; so are instances with equal scores.

    Args:
        chooser: selects the model for a problem.
        model: folder of the model to use; None: the first that fits.
        problems: problems of one operation.

    Raises:
        CkhError: as for `inductor.install`.
    """
    part: Instances = named("instances", PROGRAM)[chooser.op.name]
    undo = install(top=1, arch=chooser.arch, model=model)
    undo()
    picks: list[Pick] = []
    reasons: Counter[str] = Counter()
    for problem in problems:
        try:
            template = part.template(problem)
            ours = _ours(chooser.op, part, template, chooser.model(problem, stands_in=True), problem)
        except (CkhError, ImportError) as error:
            reasons[error.message if isinstance(error, CkhError) else f"{type(error).__name__}: {error}"] += 1
            continue
        undo = install(top=1, arch=chooser.arch, model=model)
        try:
            first = next(iter(template.gen_ops()), None)
        finally:
            undo()
        kernel = None if first is None else part.kernel(template, first)
        theirs = "no instance" if kernel is None else chooser.op.kernels.name(unpadded(kernel))
        picks.append(Pick(problem.canonical(), theirs if theirs in ours else ours[0], theirs))
    return picks, reasons


def _ours(op: AnyOperation, part: Instances, template: Any, model: Model, problem: Problem) -> list[str]:
    """Names of the kernels that ckh ranks first among a template's instances.

    Raises:
        UsageError: there is no instance.
        NoKernelError: no kernel applies.
    """
    config: Any = import_module("torch._inductor.config")
    with config.patch({f"rocm.{setting_of(template)}": None}):
        instances = template.gen_ops()
    kernels = dict.fromkeys(kernel for instance in instances if (kernel := part.kernel(template, instance)) is not None)
    if not kernels:
        raise UsageError("Inductor has no instance for it", code="unsupported")
    listed = kernel_list(list(kernels), op, f"{PROGRAM}'s instances")
    first = ranking_of(problem, model.limited_to(listed)).best(1)[0]
    return [op.kernels.name(unpadded(kernel)) for kernel in (first.kernel, *first.alike)]
