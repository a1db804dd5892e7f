"""Arguments of `ckh.rank` and similar functions: problems, counts, and lists of kernels of one operation and dtype."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.errors import CkhError, DataError, UsageError, WrongTypeError
from ckh.kernels.lists import RuleSets
from ckh.kernels.pools import KernelList
from ckh.ops import part_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.learn.models.artifact import Model
    from ckh.ops.base import AnyOperation, Kernel, Problem


def kernel_list(listed: Iterable[str | Kernel], op: AnyOperation, source: str = "kernels") -> KernelList[Kernel]:
    """Parse a list of kernels, without duplicates, in its order."""
    kernels = tuple(dict.fromkeys(_kernel(given, op, source) for given in listed))
    if not kernels:
        raise DataError(f"{source} has no kernels", "give complete names, one per line", code="empty")
    dtypes = sorted({str(dtype) for kernel in kernels if (dtype := getattr(kernel, "dtype", None)) is not None})
    if len(dtypes) > 1:
        raise DataError(
            f"{source} has kernels of {' and '.join(dtypes)}", "make one list per element type", code="mixed-data"
        )
    return KernelList(source, kernels)


@dataclass(frozen=True, slots=True)
class RankedAlone:
    """The kernels to rank instead of the architecture's pool: a list, a rule set, or neither."""

    kernels: tuple[str | Kernel, ...] | None
    rule_set: str | None

    @classmethod
    def of(cls, kernels: object, rule_set: object) -> RankedAlone:
        """Validate two arguments of `rank`."""
        if rule_set is not None and not isinstance(rule_set, str):
            raise WrongTypeError("rule_set", "the name of a rule set", rule_set)
        if kernels is None:
            return cls(None, rule_set)
        if rule_set is not None:
            raise UsageError("kernels and rule_set exclude each other", "omit one of them", code="conflicting-options")
        if isinstance(kernels, (str, bytes, Path)) or not isinstance(kernels, Iterable):
            raise WrongTypeError("kernels", "a list of complete names or kernels", kernels)
        return cls(tuple(kernels), None)

    def limit(self, model: Model, problem: Problem) -> Model:
        """Restrict a model to these kernels for problems of a kind; returns the model itself without a restriction."""
        if self.rule_set is not None:
            return limited_to_rule_set(model, self.rule_set, problem)
        return model if self.kernels is None else model.limited_to(kernel_list(self.kernels, model.spec.op))

    def by_model(self, model: Model, problems: Sequence[Problem]) -> Iterator[tuple[Model, list[Problem]]]:
        """Yield restricted models as in `limit`, each with its problems; at least one problem is given."""
        if self.rule_set is None:
            yield self.limit(model, problems[0]), list(problems)
            return
        groups: dict[int, tuple[Model, list[Problem]]] = {}
        for problem in problems:
            limited = self.limit(model, problem)
            groups.setdefault(id(limited), (limited, []))[1].append(problem)
        yield from groups.values()


def limited_to_rule_set(model: Model, name: str, problem: Problem) -> Model:
    """Restrict a model to the rule set's kernels of the problem's kind, possibly none."""
    op = model.spec.op
    sets = part_of(op, op.kernels.rule_sets, RuleSets)
    if sets is None:
        raise UsageError(
            f"{op.name} has no rule sets",
            "omit --rule-set; --kernels FILE ranks a list of kernels",
            code="inapplicable-option",
        )
    return model.limited_to(KernelList(f"rule set {name}", sets.of(name, problem, load_arch(model.spec.arch))))


def _kernel(given: str | Kernel, op: AnyOperation, source: str) -> Kernel:
    try:
        kernel = op.kernels.parse(given) if isinstance(given, str) else given
        if not isinstance(kernel, op.kernels.type):
            raise DataError(f"{kernel} is not a kernel of {op.name}", code="bad-kernel")
        op.kernels.name(kernel)
    except (CkhError, ValueError) as error:
        what = error.message if isinstance(error, CkhError) else str(error)
        raise DataError(
            f"{source}: {what}", f"it must have complete names of kernels of {op.name}", code="bad-field"
        ) from error
    return kernel


def require_count(top: int | None) -> None:
    """Refuse what is not a number of kernels, or below 0; raises `UsageError`."""
    if top is not None and not isinstance(top, Integral):
        raise WrongTypeError("top", "an integer", top)
    if top is not None and top < 0:
        raise UsageError(f"top must be 0 or more, not {top}", "omit it for all kernels", code="out-of-range")
