"""Groups: problems that have one pool, and Python's rules for them as decisions over their sizes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import UsageError
from ckh.export.integers import Expression, Tree, decisions, value_of
from ckh.learn.spec import ANY
from ckh.ops import GEMM_UNIVERSAL, GROUPED_CONV, MIOPEN_CONV
from ckh.ops.grouped_conv.problem import CONV_COLUMNS, CONV_LAYOUTS, ConvProblem
from ckh.problems import DTYPE_BYTES, Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ckh.export.integers import Size
    from ckh.learn.artifact import Model
    from ckh.ops.base import Kernel, Problem

    Reason = Callable[[Any], str | None]  # why a kernel does not apply to a problem; None if it does

CONV, GEMM = "conv", "gemm"
_DEFAULT_LAYOUT = "default"
DIRECTIONS: tuple[str, ...] = tuple(map(str, Direction))
DTYPES: tuple[str, ...] = tuple(DTYPE_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A kernel of a group, and why it does not apply to a problem of the group.

    An empty reason is that of a kernel for other problems, which nobody counts as refused.
    """

    kernel: Kernel
    reason: Reason


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Problems that differ in their sizes only.

    Attributes:
        key: codes of direction, dtype, layout and number of dimensions, as C has them.
        example: one of the problems.
        candidates: the kernels that are for some of them.
    """

    key: tuple[int, int, int, int]
    example: Problem
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ProblemKind:
    """What C must know of a kind of problems.

    Attributes:
        name: as in names in C.
        sizes: dataset column -> field, in the order of the sizes' numbers.
        layouts: names of layouts, in the order of their codes.
    """

    name: str
    sizes: Mapping[str, str]
    layouts: tuple[str, ...]

    def check(self, example: Problem) -> Tree:
        """Whether sizes make a problem of the example's kind: what its constructor checks."""
        return decisions(lambda size: _is_possible(self._stand_in(example, size)))

    def flops(self, example: Problem) -> Expression:
        """The operations of a problem of the example's kind."""
        return value_of(lambda size: self._stand_in(example, size).flops)

    def rule(self, example: Problem, reason: Reason) -> Tree:
        """Whether a kernel applies to a problem of the example's kind, and if not, why."""

        def ask(size: Callable[[int], Size]) -> bool | str:
            found = reason(self._stand_in(example, size))
            return True if found is None else found

        return decisions(ask)

    def _stand_in(self, example: Problem, size: Callable[[int], Size]) -> Any:
        """The example with sizes of which only expressions are known."""
        made = object.__new__(type(example))
        for field in fields(example):  # type: ignore[arg-type] # every problem is a dataclass
            object.__setattr__(made, field.name, getattr(example, field.name))
        for index, name in enumerate(self.sizes.values()):
            object.__setattr__(made, name, size(index))
        return made


def _is_possible(problem: Any) -> bool:
    try:
        problem.__post_init__()
    except UsageError:
        return False
    return True


def conv_kind() -> ProblemKind:
    """Convolutions; those of MIOpen have layouts of their own."""
    from ckh.ops.miopen_conv.problem import LAYOUTS

    layouts = [_DEFAULT_LAYOUT, *CONV_LAYOUTS.values(), *(layout for some in LAYOUTS.values() for layout in some)]
    return ProblemKind(CONV, CONV_COLUMNS, tuple(dict.fromkeys(layouts)))


def gemm_kind() -> ProblemKind:
    """Matrix products."""
    from ckh.ops.gemm_universal.problem import GEMM_COLUMNS, GEMM_LAYOUTS

    return ProblemKind(GEMM, GEMM_COLUMNS, (_DEFAULT_LAYOUT, *GEMM_LAYOUTS))


def kind_of(op_type: str) -> ProblemKind:
    """The kind of problems of an operation.

    Raises:
        UsageError: problems of the operation cannot be exported.
    """
    if op_type not in _GROUPS:
        raise UsageError(f"models of {op_type} cannot be exported to C", "those of " + ", ".join(_GROUPS) + " can")
    return gemm_kind() if op_type == GEMM_UNIVERSAL else conv_kind()


def groups_of(model: Model) -> list[Group]:
    """All groups that a model is for. Those of an operation's default layout come first.

    Raises:
        UsageError: problems of its operation cannot be exported.
        ModelError: a file of the model is damaged.
    """
    kind_of(model.spec.op_type)
    return list(_GROUPS[model.spec.op_type](model))


def group_of(model: Model, problem: Problem) -> Group:
    """The group that a problem is in.

    Raises:
        UsageError: problems of its operation cannot be exported.
        ModelError: a file of the model is damaged.
    """
    sizes = set(kind_of(model.spec.op_type).sizes.values())
    others = [field.name for field in fields(problem) if field.name not in sizes]  # type: ignore[arg-type]
    for group in _GROUPS[model.spec.op_type](model):
        if all(getattr(group.example, name) == getattr(problem, name) for name in others):
            return group
    raise AssertionError(f"{model.path} answered {problem.canonical()} without a group for it")


def _dtypes(model: Model) -> tuple[str, ...]:
    dtype = model.spec.dtype
    return load_arch(model.spec.arch).dtypes if dtype == ANY else (dtype,)


def _conv_example(kind: type[ConvProblem], direction: str, dtype: str, ndim: int, layout: str) -> ConvProblem:
    sizes: dict[str, Any] = dict.fromkeys(("n", "c", "k", "g", "hi", "wi", "y", "x"), 1)
    return kind(variant=Direction(direction), dtype=dtype, ndim=ndim, layout=layout, **sizes)


def _conv_key(problem: ConvProblem) -> tuple[int, int, int, int]:
    layout = conv_kind().layouts.index(problem.layout)
    return DIRECTIONS.index(str(problem.variant)), DTYPES.index(problem.dtype), layout, problem.ndim


def _conv_groups(model: Model) -> Iterator[Group]:
    from ckh.ops.grouped_conv.pool import conv_pool
    from ckh.ops.grouped_conv.problem_rules import PROBLEM_RULES

    arch = load_arch(model.spec.arch)
    for direction in Direction if model.spec.variant is None else (model.spec.variant,):
        for dtype in _dtypes(model):
            for ndim, layout in CONV_LAYOUTS.items():
                example = _conv_example(ConvProblem, direction, dtype, ndim, layout)
                kernels = conv_pool(direction, arch, ndim, dtype)
                reasons = (_broken(PROBLEM_RULES, kernel, arch) for kernel in kernels)
                yield Group(_conv_key(example), example, tuple(map(Candidate, kernels, reasons)))


def _gemm_groups(model: Model) -> Iterator[Group]:
    from ckh.ops.gemm_universal.pool import gemm_pool
    from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, GemmProblem
    from ckh.ops.gemm_universal.problem_rules import PROBLEM_RULES

    arch = load_arch(model.spec.arch)
    for dtype in _dtypes(model):
        for code, layout in enumerate(GEMM_LAYOUTS):
            kernels = gemm_pool(arch, dtype, layout)
            reasons = (_broken(PROBLEM_RULES, kernel, arch) for kernel in kernels)
            key = (0, DTYPES.index(dtype), code + 1, 0)
            yield Group(key, GemmProblem(1, 1, 1, dtype, layout), tuple(map(Candidate, kernels, reasons)))


def _broken(rules: tuple[Any, ...], kernel: Kernel, arch: Any) -> Reason:
    """The first rule that is broken, in words."""
    return lambda problem: next((words for rule in rules for words in rule(kernel, arch, problem)), None)


def _miopen_groups(model: Model) -> Iterator[Group]:
    """As the candidates of dense and of grouped problems come in orders of their own, a group has both, in turn."""
    from ckh.ops.miopen_conv.candidates import CandidateTable, candidates, group_name, read_candidates
    from ckh.ops.miopen_conv.problem import DTYPES as MIOPEN_DTYPES
    from ckh.ops.miopen_conv.problem import LAYOUTS, MiopenProblem
    from ckh.ops.miopen_conv.solvers import parse_solver

    table = read_candidates(model.path)

    def reason(name: str, one: Any) -> Reason:
        alone = CandidateTable({name: (one,)})

        def found(problem: Any) -> str | None:
            return next(iter(candidates(problem, alone).refused), None) if group_name(problem) == name else ""

        return found

    kinds = [(d, t, n, layout) for d in Direction for t in MIOPEN_DTYPES for n in LAYOUTS for layout in LAYOUTS[n]]
    for direction, dtype, ndim, layout in kinds:
        example = _conv_example(MiopenProblem, direction, dtype, ndim, layout)
        grouped = MiopenProblem(**{**example.to_dict(), "c": 2, "k": 2, "g": 2})
        found = [
            Candidate(parse_solver(one.solver), reason(name, one))
            for name in (group_name(example), group_name(grouped))  # type: ignore[arg-type]
            for one in table.groups.get(name, ())
        ]
        yield Group(_conv_key(example), example, tuple(found))


_GROUPS: dict[str, Callable[[Model], Iterator[Group]]] = {
    GROUPED_CONV: _conv_groups,
    GEMM_UNIVERSAL: _gemm_groups,
    MIOPEN_CONV: _miopen_groups,
}
