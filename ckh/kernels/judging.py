"""Rules over the columns of kernels: which kernels are refused, and why.

A rule is a function that yields a sentence for each violation. Its parameter names declare what it reads: `arch`,
`problem`, fields of kernels, triples of them (`tile` is tile_m, tile_n and tile_k), and derived quantities. Other
inputs, such as the headers used for compilation, are passed by keyword (`given`). So one declaration checks a single
kernel, also for a problem with symbolic sizes that an export records, and a whole table of kernels, where it is called
once for each combination of values that it reads.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ckh.kernels.declaration import by
from ckh.kernels.table import TRIPLES, distinct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.kernels.table import KernelTable

    Codes = NDArray[np.intp]

    from ckh.archs import Triple


K = TypeVar("K")

_CONTEXT = ("arch", "problem")  # the same for all kernels


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, or a quantity of a kernel that rules read."""

    function: Callable[..., Any]  # yields the sentences; for a quantity, returns its value
    context: tuple[str, ...]  # which of `arch` and `problem` it takes, as its first parameters
    reads: tuple[str, ...]  # what it reads of a kernel, in the order of its further parameters
    derived: Mapping[str, Rule]  # the quantities by name

    def __call__(self, kernel: Any, arch: ArchSpec, problem: Any = None) -> Any:
        """Evaluate the rule on a kernel: yields sentences; for a quantity, returns its value."""
        return self.of(self.values(kernel, arch), arch, problem)

    def values(self, kernel: Any, arch: ArchSpec) -> tuple[Any, ...]:
        """Read the values that it needs from a kernel."""
        return tuple([self._value(kernel, name, arch) for name in self.reads])

    def of(self, values: Sequence[Any], arch: ArchSpec, problem: Any = None) -> Any:
        """Evaluate the rule on such values."""
        return self.function(*(arch if name == "arch" else problem for name in self.context), *values)

    @property
    def fields(self) -> frozenset[str]:
        """Fields of a kernel that it depends on."""
        parts = (self.derived[n].fields if n in self.derived else TRIPLES.get(n, (n,)) for n in self.reads)
        return frozenset(name for part in parts for name in part)

    def _value(self, kernel: Any, name: str, arch: ArchSpec) -> Any:
        if name in self.derived:
            return self.derived[name](kernel, arch)
        if name in TRIPLES:
            return tuple([getattr(kernel, part) for part in TRIPLES[name]])
        return getattr(kernel, name)


class RuleBook:
    """Registry of rules, which are tried in the order of declaration, and of quantities that they read."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.derived: dict[str, Rule] = {}

    def rule(self, function: Callable[..., Iterator[str]]) -> Rule:
        """Declare a rule."""
        self.rules.append(self._made(function))
        return self.rules[-1]

    def quantity(self, function: Callable[..., Any]) -> Rule:
        """Declare a quantity that rules can read, under the function's name."""
        self.derived[function.__name__] = made = self._made(function)
        return made

    def _made(self, function: Callable[..., Any]) -> Rule:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        context, reads = ([name for name in names if (name in _CONTEXT) is wanted] for wanted in (True, False))
        return Rule(function, tuple(context), tuple(reads), self.derived)


def given(rules: Sequence[Rule], **values: Any) -> tuple[Rule, ...]:
    """Bind values of keyword parameters that are neither of kernels nor of their context."""
    return tuple(replace(rule, function=partial(rule.function, **values)) for rule in rules)


@dataclass(frozen=True, slots=True)
class RefusedKernel(Generic[K]):
    """A kernel that an architecture does not build, and all rules that it violates."""

    kernel: K
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Rules(Generic[K]):
    """All rules of an operation's kernels."""

    named: tuple[Rule, ...]  # rules of the architecture that even the shortest name of a kernel determines
    complete: tuple[Rule, ...]  # rules of the architecture that require a complete kernel
    problem: tuple[Rule, ...]  # rules of a problem
    missing: Callable[[K], tuple[str, ...]]  # names of the fields that a kernel lacks

    def of_arch(self, kernel: K, arch: ArchSpec) -> tuple[str, ...]:
        """Sentences for all violated rules of the architecture."""
        missing = self.missing(kernel)
        first = ("the kernel is incomplete, it has no " + ", ".join(missing),) if missing else ()
        rules = self.named if missing else self.named + self.complete
        return first + tuple(reason for rule in rules for reason in rule(kernel, arch))

    def of_problem(self, kernel: K, arch: ArchSpec, problem: Any) -> list[str]:
        """Sentences for all violated rules of the problem, without those of the architecture."""
        return [reason for rule in self.problem for reason in rule(kernel, arch, problem)]

    def check(self, kernel: K, arch: ArchSpec, problem: Any = None) -> list[str]:
        """Sentences for all violated rules of the architecture and, if given, of the problem."""
        return [*self.of_arch(kernel, arch), *(() if problem is None else self.of_problem(kernel, arch, problem))]

    def judge(self, table: KernelTable[K], arch: ArchSpec) -> Verdicts:
        """Check which kernels of a table the architecture builds, and why not the others."""
        return judge_table(self.named + self.complete, table, arch)

    def refused(self, table: KernelTable[K], arch: ArchSpec) -> Iterator[RefusedKernel[K]]:
        """Yield the kernels of a table that the architecture does not build."""
        for number in np.flatnonzero(self.judge(table, arch).number >= 0).tolist():
            yield RefusedKernel(table[number], self.of_arch(table[number], arch))


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """The first sentence that refuses each kernel."""

    number: Codes  # index of the sentence, -1 if the kernel is not refused; shape (kernels,)
    sentences: tuple[str, ...]  # the sentences

    @property
    def passed(self) -> NDArray[np.intp]:
        """Indices of the kernels that are not refused, ascending."""
        return np.flatnonzero(self.number < 0)

    def joined(self, passed: int) -> Verdicts:
        """Append `passed` kernels that are not refused."""
        return replace(self, number=np.concatenate([self.number, np.full(passed, -1, np.intp)]))

    def counts(self) -> Counter[str]:
        """Number of kernels refused by each sentence, in the order of their first kernel."""
        numbers, first, count = np.unique(self.number, return_index=True, return_counts=True)
        order = np.argsort(first)
        counted = zip(numbers[order].tolist(), count[order].tolist(), strict=True)
        return Counter({self.sentences[n]: size for n, size in counted if n >= 0})


def judge_table(rules: Sequence[Rule], table: KernelTable[Any], arch: ArchSpec, problem: Any = None) -> Verdicts:
    """Check complete kernels against rules; each kernel stops at the first rule that refuses it."""
    number = np.full(len(table), -1, np.intp)
    sentences: dict[str, int] = {}
    left = np.arange(len(table))
    for rule in rules:
        values, kind_of = combinations(rule, table, arch, left)
        first = [next(rule.of(value, arch, problem), None) for value in values]
        if not any(first):
            continue
        numbers = np.array(
            [-1 if sentence is None else sentences.setdefault(sentence, len(sentences)) for sentence in first], np.intp
        )
        of_left = numbers[kind_of]
        number[left] = of_left
        left = left[of_left < 0]
    return Verdicts(number, tuple(sentences))


def combinations(
    rule: Rule, table: KernelTable[Any], arch: ArchSpec, chosen: Codes | None = None
) -> tuple[list[tuple[Any, ...]], Codes]:
    """Distinct inputs of a rule among kernels (all by default), and the index of each kernel's input."""
    columns = [_coded(rule, name, table, arch) for name in rule.reads]
    combined, code = distinct([(codes, len(values)) for values, codes in columns], len(table), chosen)
    rows = zip(*([values[i] for i in part] for (values, _), part in zip(columns, combined, strict=True)), strict=True)
    return list(rows) if columns else [()], code


def _coded(rule: Rule, name: str, table: KernelTable[Any], arch: ArchSpec) -> tuple[tuple[Any, ...], Codes | None]:
    """Values of a column, and the index of each kernel's value; None if there is only one value."""
    if name not in rule.derived:
        return table.coded(name)
    key = name, id(arch)
    if key not in table.quantities:
        values, kind_of = combinations(rule.derived[name], table, arch)
        numbers: dict[Any, int] = {}
        made = [numbers.setdefault(rule.derived[name].of(value, arch), len(numbers)) for value in values]
        # The architecture is stored with the values derived for it, so that its id is not reused.
        table.quantities[key] = arch, tuple(numbers), np.array(made, np.intp)[kind_of] if len(numbers) > 1 else None
    _, known, codes = table.quantities[key]
    return known, codes


_MOST_KNOWN = 1 << 22  # kernels in the cached results of a pool


class ProblemRules:
    """Rules of problems over kernels that an architecture builds, prepared for many problems.

    Kernels with the same values for the rules form a kind and are refused together. The last results are cached.
    """

    def __init__(self, rules: Sequence[Rule], table: KernelTable[Any], arch: ArchSpec) -> None:
        self._arch = arch
        self._known: dict[Any, tuple[NDArray[np.intp], Counter[str]]] = {}
        self._most_known = max(1, _MOST_KNOWN // max(1, len(table)))
        inputs = [combinations(rule, table, arch) for rule in rules]
        parts, kind = distinct([(code, len(values)) for values, code in inputs], len(table))
        _, first, self._kind_of, count = np.unique(kind, return_index=True, return_inverse=True, return_counts=True)
        # Ordered by each kind's first kernel.
        order = np.argsort(first)
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        self._kind_of = place[self._kind_of.reshape(-1)]
        self._count = count[order].tolist()
        self._rules = [
            (rule, values, [part[kind] for kind in order.tolist()])
            for rule, (values, _), part in zip(rules, inputs, parts, strict=True)
        ]

    def judge(self, problem: Any) -> tuple[NDArray[np.intp], Counter[str]]:
        """Return indices of applicable kernels, ascending, and the number of others refused by each sentence."""
        if problem not in self._known:
            if len(self._known) >= self._most_known:
                self._known.clear()
            self._known[problem] = self._judge(problem)
        return self._known[problem]

    def _judge(self, problem: Any) -> tuple[NDArray[np.intp], Counter[str]]:
        reasons: list[str | None] = [None] * len(self._count)
        for rule, values, value_of in self._rules:
            first = [next(rule.of(value, self._arch, problem), None) for value in values]
            if any(first):
                reasons = [known or first[value] for known, value in zip(reasons, value_of, strict=True)]
        counts: Counter[str] = Counter()
        for reason, count in zip(reasons, self._count, strict=True):
            if reason:
                counts[reason] += count
        applies = np.array([not reason for reason in reasons], np.bool_)
        return np.flatnonzero(applies[self._kind_of]), counts


rule = RuleBook().rule


@rule
def runs_dtype(arch: ArchSpec, dtype: str) -> Iterator[str]:
    """Reject other element types than the architecture's."""
    if dtype not in arch.dtypes:
        yield f"{arch.name} does not run {dtype} (it runs {', '.join(arch.dtypes)})"


@rule
def has_pipeline(arch: ArchSpec, pipeline: str) -> Iterator[str]:
    """Reject pipelines that the architecture does not list."""
    if pipeline not in arch.pipelines:
        yield f"{arch.name} does not have the pipeline {pipeline}"


@rule
def has_waves(arch: ArchSpec, wave: Triple) -> Iterator[str]:
    """Reject arrangements of waves that the architecture does not list."""
    if not arch.supports_wave(wave):
        yield f"{arch.name} does not have the waves {by(wave)} (it has {', '.join(map(by, arch.wave_configs))})"


def operator_tile(arch: ArchSpec, operator: str, tile: Triple) -> Iterator[str]:
    """Yield what a tile violates of the limits of an operator, if the architecture has limits for it."""
    limits = arch.common.operators.get(operator)
    if limits is None:
        return
    whose = operator.removesuffix("_2d").removesuffix("_3d")
    for axis, size, least, step in zip("mnk", tile, limits.minimum, limits.alignment, strict=True):
        if size < least:
            yield f"tile_{axis} {size} is less than the {least} that {whose} needs"
        elif size % step:
            yield f"tile_{axis} {size} is not a multiple of the {step} that {whose} needs"


def divides(axis: str) -> Rule:
    """Return the rule that a tile is whole along an axis: a multiple of waves x tile of an instruction."""

    def check(size: int, waves: int, width: int) -> Iterator[str]:
        step = waves * width
        if min(size, waves, width) < 1:
            yield f"tile, waves and warp tile must be positive along {axis}, not {size}, {waves}, {width}"
        elif size % step:
            yield f"tile_{axis} {size} is not a multiple of {waves} waves x warp tile {width} = {step}"

    return Rule(check, (), (f"tile_{axis}", f"wave_{axis}", f"warp_tile_{axis}"), {})
