"""What was prepared for a kind of problems, opened: it ranks the kernels of a problem in C."""

from __future__ import annotations

import operator
from ctypes import addressof, c_double
from math import nan
from typing import TYPE_CHECKING, Any

from ckh.errors import ModelError
from ckh.learn.completed import Completion, filled, tie_broken
from ckh.quick.store import estimate_path
from ckh.ranking.library import OpenModel, RankedCandidate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ckh.ops.base import Problem

# Operations of expressions, as `ckh.export.integers` names them.
_OPERATIONS: dict[str, Callable[..., int]] = {
    "number": lambda value: value,
    "plus": operator.add,
    "less": operator.sub,
    "times": operator.mul,
    "over": operator.floordiv,
    "modulo": operator.mod,
}


class ScoredPool:
    """The kernels of a kind of problems, and the model or estimate, or both, that rank them.

    Args:
        facts: the facts that were prepared (`prepare.facts_of`).
        path: the model's file; that of an estimate which completes it is beside it.

    Attributes:
        model: the model, or the estimate where it answers alone.

    Raises:
        ModelError: a file is damaged, or there is no C part.
    """

    def __init__(self, facts: dict[str, Any], path: Path) -> None:
        self._facts = facts
        self.model = OpenModel(path)
        self._estimate = OpenModel(estimate_path(path)) if facts["completion"] else None

    def sizes(self, problem: Problem) -> list[int]:
        """The numbers of a problem, in the order in which C gets them."""
        found = [getattr(problem, name) for name in self._facts["sizes"]]
        if not self._facts["tiled"]:
            return found
        return [*found, *(value_of(part, found) for part in self._facts["tiled"]), problem.bytes]

    def reasons(self, sizes: Sequence[int]) -> list[int]:
        """Of each kernel, the number of the reason why it does not apply to a problem of these sizes; -1 if it does.

        Raises:
            ModelError: the sizes make no problem.
        """
        return self.model.reasons(self._facts["key"], sizes, self._facts["pool"])

    def rank(self, sizes: Sequence[int]) -> tuple[int, Sequence[RankedCandidate]]:
        """How many kernels apply to a problem of these sizes, and all of them, best first.

        Raises:
            ModelError: none does, or the sizes make no problem, or the model knows none of them.
        """
        if self._estimate is None:
            return self.model.rank(self._facts["key"], sizes, self._facts["pool"])
        applying = [number for number, reason in enumerate(self.reasons(sizes)) if reason < 0]
        if set(applying) <= set(self._facts["unknown"]):
            raise ModelError("no kernel that the model knows applies")
        scores = self._completed(self._scores(self.model, sizes), self._scores(self._estimate, sizes))
        applying.sort(key=lambda number: -scores[number])
        return len(applying), [RankedCandidate(number, scores[number], nan, nan) for number in applying]

    def _scores(self, model: OpenModel, sizes: Sequence[int]) -> list[float]:
        """The scores of all kernels, whether they apply or not."""
        given, found = (c_double * len(sizes))(*sizes), (c_double * self._facts["pool"])()
        model.score(1, addressof(given), 1, addressof(found))
        return list(found)

    def _completed(self, score: Sequence[float], estimated: Sequence[float]) -> list[float]:
        if self._facts["completion"] == Completion.TIE_BROKEN:
            return tie_broken(score, estimated)
        unknown = set(self._facts["unknown"])
        return filled(score, estimated, [number not in unknown for number in range(len(score))])


def value_of(part: Any, sizes: Sequence[int]) -> Any:
    """Words as they are, an expression of `ckh.export.integers` as its value."""
    if not isinstance(part, list):
        return part
    operation, *operands = part
    if operation == "size":
        return sizes[operands[0]]
    return _OPERATIONS[operation](*(value_of(operand, sizes) for operand in operands))
