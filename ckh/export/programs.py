"""Groups as stored in model files: pools, and checks and rules of their problems as calculations with sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.export.decisions import Branch
from ckh.export.groups import DIRECTIONS, DTYPES
from ckh.learn.models.reach import limits
from ckh.learn.models.spec import ANY
from ckh.ranking.layout import numbers, record
from ckh.ranking.model_file import FileFacts, FileGroup, model_file, prepare_pool
from ckh.ranking.program import APPLIES, REFUSED, Checks
from ckh.training import TFLOPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.export.decisions import Expression, Text, Tree
    from ckh.export.groups import Group, ProblemKind
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Operation
    from ckh.ranking.packed import PackedForest

_ARITHMETIC = {"size": "OF_SIZE", "number": "OF_NUMBER"}  # other names are as in the layout
_RELATIONS = {"==": "EQUAL", "<": "SMALLER", ">": "GREATER"}


@dataclass(frozen=True, slots=True, eq=False)
class RulePrograms:
    """Rules that decide which candidates of a group apply, as data."""

    conditions: tuple[Expression, ...]  # conditions on a problem's sizes
    steps: tuple[tuple[int, int, int], ...]
    """Condition, next step if true and if false: an earlier step, `APPLIES`, or `REFUSED` or below."""
    begins: tuple[int, ...]  # first step of each candidate
    reasons: tuple[Text, ...]  # why candidates do not apply: reason `i` is the end `REFUSED - i`


@dataclass(frozen=True, slots=True, eq=False)
class ModelContent:
    """A model's file."""

    content: bytes  # its bytes
    kernels: int  # number of distinct kernel names
    numbers: tuple[Sequence[int], ...]  # for each group the indices of its kernels' names
    rules: tuple[RulePrograms, ...]  # rules of each group
    trees: dict[str, int]  # number of trees of each forest, by target


def model_content(
    model: Model, name: str, kind: ProblemKind, groups: Sequence[Group], *, is_alone: bool = False
) -> ModelContent:
    """Build the file of a model with some groups of problems.

    If Python alone reads it (`is_alone`), kernels have no names, and sizes are not checked again.
    """
    spec = model.spec
    targets = [spec.rank_by, *({TFLOPS} & set(spec.targets) - {spec.rank_by})]
    forests = [model.packed_forest(target) for target in targets]
    names, numbers = _empty_names(groups) if is_alone else _names(spec.op, groups)
    rules = tuple(_rules_of(kind, group) for group in groups)
    written = [
        _file_group(model, forests, kind, group, of_group, of_names, is_checked=not is_alone)
        for group, of_group, of_names in zip(groups, rules, numbers, strict=True)
    ]
    facts = FileFacts(
        texts=[name, spec.purpose, *names],
        kind=kind.number,
        direction=_code(None if spec.variant is None else str(spec.variant), DIRECTIONS),
        dtype=_code(None if spec.dtype == ANY else spec.dtype, DTYPES),
        tflops=targets.index(TFLOPS) if TFLOPS in targets else -1,
        timed=spec.op.training.timed,
        limits=limits(model.reach, kind.sizes.values()),
        calibration=() if model.calibration is None else model.calibration.numbers,
    )
    content = model_file(facts, forests, [target in spec.log_targets for target in targets], written)
    trees = {target: len(forest.roots) for target, forest in zip(targets, forests, strict=True)}
    return ModelContent(content, len(names), numbers, rules, trees)


def _names(op: Operation[Any, Any], groups: Sequence[Group]) -> tuple[list[str], tuple[Sequence[int], ...]]:
    """Distinct names of kernels, and the index of each group's kernels among them."""
    names = [[op.kernels.name(kernel) for kernel in group.kernels] for group in groups]
    number_of = {text: number for number, text in enumerate(dict.fromkeys(chain(*names)))}
    return list(number_of), tuple([number_of[text] for text in group_names] for group_names in names)


def _empty_names(groups: Sequence[Group]) -> tuple[list[str], tuple[Sequence[int], ...]]:
    """Like `_names`, for unnamed kernels, each with its own index."""
    ends = list(accumulate(len(group.kernels) for group in groups))
    return [""] * ends[-1], tuple(map(range, [0, *ends], ends))


def _rules_of(kind: ProblemKind, group: Group) -> RulePrograms:
    trees = {reason: kind.rule(group.example, reason) for reason in dict.fromkeys(chain(*group.judgements))}
    made = make_rules([[trees[reason] for reason in judgement] for judgement in group.judgements])
    return replace(made, begins=tuple(made.begins[by] for by in group.judged_by))


def make_rules(judgements: Sequence[Sequence[Tree]]) -> RulePrograms:
    """Encode decision trees without duplicates; those of a sequence are evaluated in order, until one refuses."""
    conditions: dict[Expression, int] = {}
    steps: dict[tuple[int, int, int], int] = {}
    reasons: dict[Text, int] = {}
    known: dict[tuple[int, int], int] = {}  # by id of a decision, which its sequence keeps alive
    numbers_of: dict[int, int] = {}  # of conditions and reasons, likewise: their hash takes long

    def number_of(entry: Any, entries: dict[Any, int]) -> int:
        if (number := numbers_of.get(id(entry))) is None:
            number = numbers_of[id(entry)] = entries.setdefault(entry, len(entries))
        return number

    def begin(tree: Tree, then: int) -> int:
        if not isinstance(tree, Branch):
            return then if tree is True else REFUSED - number_of(tree or (), reasons)
        key = id(tree), then
        if key not in known:
            after = begin(tree.yes, then), begin(tree.no, then)
            step = (number_of(tree.condition, conditions), *after)
            known[key] = steps.setdefault(step, len(steps))
        return known[key]

    begins = tuple(
        reduce(lambda then, tree: begin(tree, then), reversed(judgement), APPLIES) for judgement in judgements
    )
    return RulePrograms(tuple(conditions), tuple(steps), begins, tuple(reasons))


def make_checks(kind: ProblemKind, group: Group, rules: RulePrograms, *, is_checked: bool) -> Checks:
    """Build the calculations with the sizes of a group's problems, which are possible unless they are to be checked."""
    calculations = _Calculations()
    for condition in rules.conditions:
        calculations.compare(condition)
    check = make_rules([[kind.check(group.example) if is_checked else True]])
    first = len(rules.conditions)
    for condition in check.conditions:
        calculations.compare(condition)
    steps = [record("STEP", condition=first + condition, yes=yes, no=no) for condition, yes, no in check.steps]
    flops = calculations.number_of(kind.flops(group.example))
    return Checks(
        calculations.integers, calculations.rows, calculations.comparisons, steps, first, check.begins[0], flops
    )


def _file_group(
    model: Model,
    forests: Sequence[PackedForest],
    kind: ProblemKind,
    group: Group,
    rules: RulePrograms,
    names: Sequence[int],
    *,
    is_checked: bool,
) -> FileGroup:
    if not len(group.kernels):
        return FileGroup(group.key, (), (), (), 0, None, Checks())
    inputs = model.inputs
    prepared = prepare_pool(
        inputs.engine,
        inputs.names,
        model.hardware,
        inputs.of_kernels(group.kernels, group.example),
        inputs.of_problem(group.example),
        forests,
        [*kind.sizes, *inputs.further_sizes],
    )
    order = [("condition", "yes", "no").index(name) for name in numbers("STEP")]
    steps = np.array(rules.steps, np.int32).reshape(-1, len(order))[:, order]
    checks = make_checks(kind, group, rules, is_checked=is_checked)
    return FileGroup(group.key, names, rules.begins, steps, len(rules.reasons), prepared, checks)


def _code(value: str | None, table: tuple[str, ...]) -> int:
    return -1 if value is None else table.index(value)


class _Calculations:
    """Calculations with sizes, without duplicates."""

    def __init__(self) -> None:
        self.integers: dict[int, int] = {}
        self.rows: list[tuple[int, ...]] = []
        self.comparisons: list[tuple[int, ...]] = []
        self._known: dict[Expression, int] = {}

    def number_of(self, expression: Expression) -> int:
        """Return the index of a calculation."""
        if expression not in self._known:
            operation = numbers("ARITHMETIC")[_ARITHMETIC.get(expression.op, expression.op.upper())]
            a, b = (*expression.operands, 0)[:2]
            if expression.op == "number":
                a = self.integers.setdefault(int(a), len(self.integers))
            elif expression.op != "size":
                a, b = self.number_of(a), self.number_of(b)
            self.rows.append(record("CALCULATION", operation=operation, a=a, b=b))
            self._known[expression] = len(self.rows) - 1
        return self._known[expression]

    def compare(self, condition: Expression) -> None:
        """Add a comparison of two calculations."""
        a, b = map(self.number_of, condition.operands)
        relation = numbers("RELATIONS")[_RELATIONS[condition.op]]
        self.comparisons.append(record("COMPARISON", relation=relation, a=a, b=b))
