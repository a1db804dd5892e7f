"""The model that answers for a problem: the named or a fitting model, or a substitute without measurements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ckh.archs import assumed_gpu, default_arch, load_arch, meant_gpu
from ckh.errors import ModelError, UsageError
from ckh.learn.analytic.transfer import has_kernels, next_commands, others_nearest_first, stand_in
from ckh.learn.answers.batches import runnable
from ckh.learn.models.artifact import find_model, first_model, load_model, wanted_for
from ckh.learn.models.scoring import Remembered
from ckh.learn.models.spec import ANY
from ckh.ops import DEFAULT_OPERATION, operation, operation_of_problem, requested
from ckh.problems import dtype_name
from ckh.requested import requested_problem
from ckh.text.log import note_once, warn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ckh.learn.analytic.transfer import Others
    from ckh.learn.answers.answer import NotMeasured
    from ckh.learn.models.artifact import Model
    from ckh.learn.models.spec import Wanted
    from ckh.ops.base import Problem

_MOST_PADDED = 4.0  # times the work
_ANSWERING = 8192  # kinds of problems with a cached model


class AnsweringModels:
    """Models that answer for problems on an architecture, looked up once per kind of problem.

    It is the first model that fits (`artifact.fitting_models`), or a substitute (`transfer.stand_in`) if none fits or
    that model knows no kernel for the problem.
    """

    def __init__(self, arch: str, num_cus: int = 0) -> None:
        self.arch, meant = meant_gpu(arch)  # of an architecture or a product
        self.num_cus = num_cus or meant  # 0: of no product or GPU of this machine
        self._asked = num_cus or (0 if arch == self.arch else meant)
        self.source = ""  # set or file of the problems, for the commands that measure them
        self._first: dict[Wanted, Model | None] = {}
        self._nearest: dict[Wanted, Others] = {}
        self._answering: Remembered[Model] = Remembered(_ANSWERING)
        self._substitutes: dict[tuple[Wanted, Path, NotMeasured | None], Model] = {}

    def first(self, wanted: Wanted) -> Model | None:
        """Return the first model that fits, or None."""
        if wanted not in self._first:
            self._first[wanted] = self.sized(first_model(wanted))
        return self._first[wanted]

    def fitting(self, problem: Problem) -> Model:
        """Return the first model that fits."""
        wanted = self.wanted(problem)
        model = self.first(wanted) or find_model(wanted)
        if unmeasured := runnable(problem, model)[1].unmeasured:
            raise ModelError(
                f"no model for {wanted} of {unmeasured}: no such kernel was measured for {model.path.name}",
                code="no-model",
            )
        return model

    def answering(self, problem: Problem) -> Model:
        """Return the model that fits, or a substitute model."""
        wanted = self.wanted(problem)
        # The applicable kernels may differ between problems.
        key = (wanted, operation_of_problem(problem).kernels.key_of(problem))
        model = self._answering.get(key)
        if model is None:
            model = self._chosen(wanted, problem)
            self._answering.put(key, model)
        return model

    def wanted(self, problem: Problem) -> Wanted:
        """Requirements on a model for a problem."""
        return wanted_for(problem, self.arch, self.num_cus)

    def sized(self, model: Model | None) -> Model | None:
        """Set the GPU that a model is asked about."""
        if model is not None:
            model.gpu, model.asked_cus = model.gpu.sized(self.num_cus), self._asked
        return model

    def _chosen(self, wanted: Wanted, problem: Problem) -> Model:
        model = self.first(wanted)
        if model is not None and _knows_kernels(problem, model):
            return model
        if wanted not in self._nearest:
            self._nearest[wanted] = others_nearest_first(wanted)
        substitute = stand_in(wanted, problem, self._nearest[wanted])
        if model is not None and not has_kernels(problem, substitute):
            return model
        if self.source and substitute.not_measured is not None:
            commands = next_commands(wanted, self.source)
            substitute.not_measured = replace(substitute.not_measured, next_commands=commands)
        key = wanted, substitute.path, substitute.not_measured
        return self._substitutes.setdefault(key, substitute)  # reuse an already loaded model


def _knows_kernels(problem: Problem, model: Model) -> bool:
    """True if measured kernels that a model ranks apply to a problem, padded only if that adds little work."""
    run, candidates = runnable(problem, model)
    is_close = run is problem or run.flops <= _MOST_PADDED * problem.flops
    return bool(len(candidates.chosen)) and not candidates.unmeasured and is_close


class Chooser:
    """Selects a model for each problem, given operation, architecture and element type.

    It is the named model, or the first that fits (`artifact.fitting_models`).
    """

    def __init__(
        self, path: Path | str | None, arch: str | None, dtype: str | None, op: str | None, num_cus: int = 0
    ) -> None:
        self._named = None if path is None else load_model(path)
        if self._named is not None:
            spec = self._named.spec
            self.op = operation(op or spec.op_type)
            name = spec.arch if arch is None else arch
            own_dtype = None if spec.dtype == ANY else spec.dtype
        else:
            self.op = operation(op or DEFAULT_OPERATION)
            if arch is None:
                note_once(assumed_gpu())
            name = default_arch() if arch is None else arch
            own_dtype = None
        spec_of_arch = load_arch(name)
        if spec_of_arch.unverified:
            warn(f"{spec_of_arch.name}: {spec_of_arch.unverified}", "unverified-arch")
        if num_cus > spec_of_arch.largest_gpu:
            raise UsageError(
                f"{spec_of_arch.name} has at most {spec_of_arch.largest_gpu} compute units, not {num_cus}",
                "name fewer with --cus, or another --arch",
                code="out-of-range",
            )
        self.arch, self._gpu, self._num_cus = spec_of_arch.name, name, num_cus
        self._requested = requested(self.op.name)
        of_op = self._requested.default_dtype if self._requested else ""
        self.dtype = dtype_name(dtype or "") or own_dtype or of_op or spec_of_arch.default_dtype
        self._models = AnsweringModels(name, num_cus)
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
        problem = requested_problem(self.op.name, self._requested, given, variant, self.dtype, command)
        completed: Problem = self._completed(problem)
        return completed

    def load_problems(self, source: str, variant: str | None, dtype: str | None) -> tuple[Problem, ...]:
        """Load the problems of a set or file (`LoadProblems`), for the architecture."""
        from ckh.shapes.problems import problems_of

        self._models.source = source
        problems = problems_of(self.op, source, variant, dtype, self.dtype)
        if self._requested is None:
            return problems
        return tuple(dict.fromkeys(map(self._completed, problems)))

    def _completed(self, problem: Any) -> Any:
        """Complete a problem that depends on the GPU; its own compute units take precedence."""
        if self._num_cus and getattr(problem, "num_cus", None) == 0:
            return replace(problem, num_cus=self._num_cus)
        assert self._requested is not None
        return self._requested.completed(problem, self._gpu)
