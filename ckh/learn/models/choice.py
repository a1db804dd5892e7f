"""Selection of a model: operation, architecture, element type and folder, from a command's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.archs import default_arch, load_arch
from ckh.errors import UsageError
from ckh.learn.answers.answering import AnsweringModels
from ckh.learn.models.artifact import load_model, wanted_for
from ckh.learn.models.spec import ANY
from ckh.ops import DEFAULT_OPERATION, operation, requested
from ckh.problems import dtype_name
from ckh.requested import requested_problem
from ckh.shapes.problems import problems_of
from ckh.text.log import warn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Problem


class Chooser:
    """Selects a model for each problem, given operation, architecture and element type.

    It is the named model, or the first that fits (`artifact.fitting_models`).
    """

    def __init__(self, path: Path | str | None, arch: str | None, dtype: str | None, op: str | None) -> None:
        self._named = None if path is None else load_model(path)
        if self._named is not None:
            spec = self._named.spec
            self.op = operation(op or spec.op_type)
            name = spec.arch if arch is None else arch
            own_dtype = None if spec.dtype == ANY else spec.dtype
        else:
            self.op = operation(op or DEFAULT_OPERATION)
            name = default_arch() if arch is None else arch
            own_dtype = None
        spec_of_arch = load_arch(name)
        if spec_of_arch.unverified:
            warn(f"{spec_of_arch.name}: {spec_of_arch.unverified}", "unverified-arch")
        self.arch, self._gpu = spec_of_arch.name, name
        self._requested = requested(self.op.name)
        of_op = self._requested.default_dtype if self._requested else ""
        self.dtype = dtype_name(dtype or "") or own_dtype or of_op or spec_of_arch.default_dtype
        self._models = AnsweringModels(name)
        self._models.sized(self._named)

    def model(self, problem: Problem, *, stands_in: bool = False) -> Model:
        """Return the model for a problem; with `stands_in` a substitute if there is none (`transfer.stand_in`)."""
        if self._named is not None:
            self._named.require(wanted_for(problem, self.arch))
            return self._named
        return self._models.answering(problem) if stands_in else self._models.fitting(problem)

    def problem(self, given: Mapping[str, Any], variant: str, command: str) -> Problem:
        """Return the requested problem."""
        if self._requested is None:
            raise UsageError(
                f"no options for problems of {self.op.name}",
                "name a set or file with --problems",
                code="missing-option",
            )
        result = requested_problem(self.op.name, self._requested, given, variant, self.dtype, command)
        problem: Problem = self._requested.completed(result, self._gpu)
        return problem

    def load_problems(self, source: str, variant: str | None, dtype: str | None) -> tuple[Problem, ...]:
        """Load the problems of a set or file (`LoadProblems`), for the architecture."""
        self._models.source = source
        problems = problems_of(self.op, source, variant, dtype, self.dtype)
        if self._requested is None:
            return problems
        return tuple(dict.fromkeys(self._requested.completed(problem, self._gpu) for problem in problems))
