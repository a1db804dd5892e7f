"""Groups: problems that have one pool, and Python's rules for them as decisions over their sizes."""

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

    Reason = Callable[[Any], str | None]  # why a kernel does not apply to a problem; None if it does

DIRECTIONS: tuple[str, ...] = tuple(map(str, Direction))
DTYPES: tuple[str, ...] = tuple(DTYPE_BYTES)


@dataclass(frozen=True, slots=True)
class Code:
    """A field of problems that is a number in C: problems that differ in it are in groups of their own.

    Attributes:
        name: in C.
        field: in Python.
        place: in the keys of groups: 0 of directions, 1 of element types, 2 of layouts, where 0 finds the first group
            that has the other numbers, and 3.
        values: in the order of their numbers.
        prefix: what the names of values in C begin with; empty: they have none.
        end: what is one more than the last number in C, a name or number.
        least: the first number in C.
        added: to numbers, in keys.
    """

    name: str
    field: str
    place: int
    values: tuple[str | int, ...]
    prefix: str = ""
    end: str | int = 0
    least: int = 0
    added: int = 0

    def number(self, value: str | int) -> int:
        """The number of a value in C."""
        return self.values.index(value) + self.least

    def in_c(self, value: str | int) -> str:
        """The name of a value in C."""
        return f"{self.prefix}{value}".upper()


DIRECTION = Code("direction", "variant", 0, DIRECTIONS, "CKH_", "CKH_DIRECTIONS")
DTYPE = Code("dtype", "dtype", 1, DTYPES, "CKH_", "CKH_DTYPES")


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Problems that differ in their sizes only.

    Attributes:
        key: its codes, as C has them: see `ProblemKind.key`.
        example: one of the problems.
        kernels: the kernels that are for some of them.
        judgements: the distinct ones of kernels: reasons in turn, of which the first that gives words refuses. Empty
            words are for a kernel of other problems, which nobody counts as refused.
        judged_by: the number of each kernel's judgement.
    """

    key: tuple[int, int, int, int]
    example: Problem
    kernels: Sequence[Kernel]
    judgements: Sequence[tuple[Reason, ...]]
    judged_by: Sequence[int]

    def among(self, kernels: frozenset[Kernel] | None) -> Group:
        """The group with those kernels that are some of these; None: all."""
        if kernels is None:
            return self
        inside = [(kernel, by) for kernel, by in zip(self.kernels, self.judged_by, strict=True) if kernel in kernels]
        return replace(self, kernels=tuple(kernel for kernel, _ in inside), judged_by=[by for _, by in inside])

    def refused(self, problem: Problem) -> Counter[str]:
        """How many kernels are refused for a problem of the group, by the words that refuse them."""
        words = [
            next((found for reason in one if (found := reason(problem)) is not None), "") for one in self.judgements
        ]
        return Counter(found for by in self.judged_by if (found := words[by]))


@dataclass(frozen=True, slots=True, eq=False)
class ProblemKind:
    """The facts of a kind of problems that C needs.

    Attributes:
        name: as in names in C, such as `ckh_rank_conv`.
        number: in model files; no other kind has it.
        summary: what it is, for those who read the header.
        codes: the fields that are no sizes, in the order of C.
        sizes: dataset column -> field, in the order of the sizes' numbers.
        problem: the class of problems, whose defaults are C's.
        example: sizes of the problem that the program with an export ranks.
    """

    name: str
    number: int
    summary: str
    codes: tuple[Code, ...]
    sizes: Mapping[str, str]
    problem: type
    example: Mapping[str, int]

    def defaults(self) -> dict[str, Any]:
        """Fields of problems, and their values where nothing is said; in all others the first, or 0."""
        found = {code.field: code.values[0] for code in self.codes} | dict.fromkeys(self.sizes.values(), 0)
        stated = {one.name: one.default for one in fields(self.problem) if one.default is not MISSING}
        return found | {name: stated[name] for name in found if stated.get(name, "") != ""}

    def numbers(self, problem: Problem) -> list[int]:
        """All fields of a problem as they stand in C."""
        codes = [code.number(getattr(problem, code.field)) for code in self.codes]
        return codes + [getattr(problem, name) for name in self.sizes.values()]

    def key(self, problem: Problem) -> tuple[int, int, int, int]:
        """The key of a problem's group; 0 where the kind has no code."""
        found = {code.place: code.number(getattr(problem, code.field)) + code.added for code in self.codes}
        return found.get(0, 0), found.get(1, 0), found.get(2, 0), found.get(3, 0)

    def check(self, example: Problem) -> Tree:
        """True if sizes make a problem of the example's kind: what its constructor checks."""
        return decisions(lambda size: _is_possible(self._stand_in(example, size)))

    def flops(self, example: Problem) -> Expression:
        """The operations of a problem of the example's kind."""
        return self.value(example, lambda problem: problem.flops)

    def value(self, example: Problem, number: Callable[[Any], int]) -> Expression:
        """A number of a problem of the example's kind."""
        return value_of(lambda size: number(self._stand_in(example, size)))

    def rule(self, example: Problem, reason: Reason) -> Tree:
        """Judge a kernel on a problem of the example's kind: true, or why it does not apply."""

        def judged(size: Callable[[int], Symbol]) -> bool | str:
            found = reason(self._stand_in(example, size))
            return True if found is None else found

        return decisions(judged)

    def _stand_in(self, example: Problem, size: Callable[[int], Symbol]) -> Any:
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


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """How models of an operation become C.

    Attributes:
        kind: the kind of its problems; operations whose problems have the same fields share one.
        groups: all groups that a model is for, those of a default layout first; raises `ModelError`.
    """

    kind: ProblemKind
    groups: Callable[[Model], Iterable[Group]]


def exported(op_type: str) -> Exported:
    """How models of an operation become C.

    Raises:
        UsageError: they do not.
    """
    op = operation(op_type)
    found = part_of(op, op.exported, Exported)
    if found is None:
        raise UsageError(
            f"models of {op_type} cannot be exported to C",
            "those of " + ", ".join(_exportable()) + " can",
            code="unsupported",
        )
    return found


def _exportable() -> list[str]:
    return [name for name in built_in_names() if operation(name).exported is not None]


def kinds(models: Iterable[Model]) -> list[ProblemKind]:
    """The kinds of ckh's own operations, and further ones of models, each once."""
    names = [*_exportable(), *(model.spec.op_type for model in models)]
    return list({kind.name: kind for kind in (exported(name).kind for name in names)}.values())


def group_of(model: Model, problem: Problem) -> Group:
    """The group that a problem is in.

    Raises:
        UsageError: problems of its operation cannot be exported.
        ModelError: a file of the model is damaged.
    """
    part = exported(model.spec.op_type)
    for group in part.groups(model):
        if group.key == part.kind.key(problem):
            return group
    raise AssertionError(f"{model.path} answered {problem.canonical()} without a group for it")


def element_types(model: Model) -> tuple[str, ...]:
    """Those that a model is for."""
    dtype = model.spec.dtype
    return load_arch(model.spec.arch).dtypes if dtype == ANY else (dtype,)


def ruled_group(
    kind: ProblemKind, example: Problem, pool: Sequence[Kernel], rules: tuple[Rule, ...], arch: ArchSpec
) -> Group:
    """A group whose kernels are a pool.

    Args:
        kind: the kind of problems.
        example: one of the group.
        pool: the kernels.
        rules: the rules of problems. Kernels in which one reads the same share a reason, which becomes a decision once.
        arch: what the kernels run on.
    """

    def made(rule: Rule, values: Sequence[Any]) -> Reason:
        return lambda problem: next(rule.of(values, arch, problem), None)

    key = kind.key(example)
    if not rules or not len(pool):
        return Group(key, example, pool, ((),), [0] * len(pool))
    table = pool if isinstance(pool, KernelTable) else KernelTable.of(type(pool[0]), pool)
    found = [combinations(rule, table, arch) for rule in rules]
    reasons = [[made(rule, one) for one in values] for rule, (values, _) in zip(rules, found, strict=True)]
    parts, judged_by = distinct([(code, len(values)) for values, code in found], len(table))
    judgements = [tuple(of[at] for of, at in zip(reasons, one, strict=True)) for one in zip(*parts, strict=True)]
    return Group(key, example, pool, judgements, judged_by.tolist())
