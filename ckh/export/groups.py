"""Groups: problems with a common pool, and Python's rules for them as decisions over their sizes."""

from __future__ import annotations

from collections import Counter
from dataclasses import MISSING, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import UsageError
from ckh.export.decisions import Expression, Tree, decisions, value_of
from ckh.kernels.judging import combinations
from ckh.kernels.table import KernelTable, distinct
from ckh.learn.models.spec import ANY
from ckh.ops import built_in_names, operation, part_of
from ckh.problems import DTYPE_BYTES, Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Rule
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Kernel, Problem
    from ckh.ranking.symbolic import Symbol

    Reason = Callable[[Any], str | None]  # reason why a kernel does not apply to a problem; None if it does

DIRECTIONS: tuple[str, ...] = tuple(map(str, Direction))
DTYPES: tuple[str, ...] = tuple(DTYPE_BYTES)


@dataclass(frozen=True, slots=True)
class Code:
    """A field of problems that is a number in C: problems that differ in it are in different groups."""

    name: str  # name in C
    field: str  # name in Python
    place: int
    """Position in the keys of groups: 0 for directions, 1 for element types, 2 for layouts, where 0 selects the first
    group with the other numbers, and 3."""
    values: tuple[str | int, ...]  # values in the order of their numbers
    prefix: str = ""  # prefix of the names of values in C; empty: they have none
    end: str | int = 0  # exclusive upper bound of the numbers in C, a name or number
    least: int = 0  # the first number in C
    added: int = 0  # offset of the numbers in keys

    def number(self, value: str | int) -> int:
        """Return the number of a value in C."""
        if value not in self.values:
            raise UsageError(f"{self.field}={value} has no number in C", code="unsupported")
        return self.values.index(value) + self.least

    def in_c(self, value: str | int) -> str:
        """Return the name of a value in C."""
        return f"{self.prefix}{value}".upper()


DIRECTION = Code("direction", "variant", 0, DIRECTIONS, "CKH_", "CKH_DIRECTIONS")
DTYPE = Code("dtype", "dtype", 1, DTYPES, "CKH_", "CKH_DTYPES")


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Problems that differ only in their sizes."""

    key: tuple[int, int, int, int]  # its codes, as in C: see `ProblemKind.key`
    example: Problem  # one of the problems
    kernels: Sequence[Kernel]  # the kernels that apply to some of them
    judgements: Sequence[tuple[Reason, ...]]
    """Distinct sequences of reasons; the first that returns words refuses a kernel. Empty words mean a kernel for other
    problems, which is not counted as refused."""
    judged_by: Sequence[int]  # index of each kernel's sequence

    def among(self, kernels: frozenset[Kernel] | None) -> Group:
        """Restrict the group to these kernels; None: all."""
        if kernels is None:
            return self
        inside = [(kernel, by) for kernel, by in zip(self.kernels, self.judged_by, strict=True) if kernel in kernels]
        return replace(self, kernels=tuple(kernel for kernel, _ in inside), judged_by=[by for _, by in inside])

    def refused(self, problem: Problem) -> Counter[str]:
        """Number of kernels refused for a problem of the group, by reason."""
        words = [
            next((word for reason in judgement if (word := reason(problem)) is not None), "")
            for judgement in self.judgements
        ]
        return Counter(word for by in self.judged_by if (word := words[by]))


@dataclass(frozen=True, slots=True, eq=False)
class ProblemKind:
    """Facts about a kind of problems, as needed in C."""

    name: str  # as in names in C, such as `ckh_rank_conv`
    number: int  # unique number in model files
    summary: str  # description for readers of the header
    codes: tuple[Code, ...]  # the fields other than sizes, in C's order
    sizes: Mapping[str, str]  # dataset column -> field, in the order of the sizes
    problem: type  # the class of problems, whose defaults are used in C
    example: Mapping[str, int]  # sizes of the problem ranked by an export's example program

    def defaults(self) -> dict[str, Any]:
        """Default values of the fields of problems; the first code, or 0, without a default."""
        defaults = {code.field: code.values[0] for code in self.codes} | dict.fromkeys(self.sizes.values(), 0)
        stated = {field.name: field.default for field in fields(self.problem) if field.default is not MISSING}
        return defaults | {name: stated[name] for name in defaults if stated.get(name, "") != ""}

    def has(self, problem: Problem) -> bool:
        """True if C can state the problem."""
        return all(getattr(problem, code.field) in code.values for code in self.codes)

    def numbers(self, problem: Problem) -> list[int]:
        """Return all fields of a problem as in C."""
        codes = [code.number(getattr(problem, code.field)) for code in self.codes]
        return codes + [getattr(problem, name) for name in self.sizes.values()]

    def key(self, problem: Problem) -> tuple[int, int, int, int]:
        """Return the key of a problem's group; 0 where the kind has no code."""
        parts = {code.place: code.number(getattr(problem, code.field)) + code.added for code in self.codes}
        return parts.get(0, 0), parts.get(1, 0), parts.get(2, 0), parts.get(3, 0)

    def check(self, example: Problem) -> Tree:
        """Trace whether sizes are valid for the example's kind: what the problem's constructor checks."""
        return decisions(lambda size: _is_possible(self._stand_in(example, size)))

    def flops(self, example: Problem) -> Expression:
        """Trace the number of operations of a problem of the example's kind."""
        return self.value(example, lambda problem: problem.flops)

    def value(self, example: Problem, number: Callable[[Any], int]) -> Expression:
        """Trace a number of a problem of the example's kind."""
        return value_of(lambda size: number(self._stand_in(example, size)))

    def rule(self, example: Problem, reason: Reason) -> Tree:
        """Trace a rule on a problem of the example's kind: true, or why a kernel does not apply."""

        def judged(size: Callable[[int], Symbol]) -> bool | str:
            refusal = reason(self._stand_in(example, size))
            return True if refusal is None else refusal

        return decisions(judged)

    def _stand_in(self, example: Problem, size: Callable[[int], Symbol]) -> Any:
        """Return the example with symbolic sizes."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """Export of an operation's models to C."""

    kind: ProblemKind  # the kind of its problems; operations whose problems have the same fields share a kind
    groups: Callable[[Model], Iterable[Group]]
    """All groups that a model is for, those of a default layout first; raises `ModelError`."""


def exported(op_type: str) -> Exported:
    """Return how models of an operation are exported to C."""
    op = operation(op_type)
    part = part_of(op, op.exported, Exported)
    if part is None:
        raise UsageError(
            f"models of {op_type} cannot be exported to C",
            "those of " + ", ".join(_exportable()) + " can",
            code="unsupported",
        )
    return part


def _exportable() -> list[str]:
    return [name for name in built_in_names() if operation(name).exported is not None]


def kinds(models: Iterable[Model]) -> list[ProblemKind]:
    """Kinds of ckh's own operations, and further ones of models, without duplicates."""
    names = [*_exportable(), *(model.spec.op_type for model in models)]
    return list({kind.name: kind for kind in (exported(name).kind for name in names)}.values())


def group_of(model: Model, problem: Problem) -> Group:
    """Return the group of a problem."""
    part = exported(model.spec.op_type)
    for group in part.groups(model):
        if group.key == part.kind.key(problem):
            return group
    raise AssertionError(f"{model.path} answered {problem.canonical()} without a group for it")


def element_types(model: Model) -> tuple[str, ...]:
    """Element types that a model is for."""
    dtype = model.spec.dtype
    return load_arch(model.spec.arch).dtypes if dtype == ANY else (dtype,)


def ruled_group(
    kind: ProblemKind, example: Problem, pool: Sequence[Kernel], rules: tuple[Rule, ...], arch: ArchSpec
) -> Group:
    """Build a group whose kernels are a pool."""

    def made(rule: Rule, values: Sequence[Any]) -> Reason:
        return lambda problem: next(rule.of(values, arch, problem), None)

    key = kind.key(example)
    if not rules or not len(pool):
        return Group(key, example, pool, ((),), [0] * len(pool))
    table = pool if isinstance(pool, KernelTable) else KernelTable.of(type(pool[0]), pool)
    combined = [combinations(rule, table, arch) for rule in rules]
    reasons = [[made(rule, value) for value in values] for rule, (values, _) in zip(rules, combined, strict=True)]
    parts, judged_by = distinct([(code, len(values)) for values, code in combined], len(table))
    judgements = [tuple(own[at] for own, at in zip(reasons, row, strict=True)) for row in zip(*parts, strict=True)]
    return Group(key, example, pool, judgements, judged_by.tolist())
