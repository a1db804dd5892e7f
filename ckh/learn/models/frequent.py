"""The kernel that wins most at the problem's size, whatever its layer: what a model of winners must be better than.

Counted among the problems that the model learned from, as `ckh evaluate` does (`assess.winners.most_frequent`), for
problems of one kind and device at the nearest known size. Imports next to nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.errors import DataError, ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ckh.learn.models.measured_set import MeasuredSet
    from ckh.ops.base import AnyOperation, Problem


class Frequent(NamedTuple):
    """The kernel that wins most at a size.

    Attributes:
        size: the size's name.
        value: the nearest one that was measured.
        kernel: its name.
        wins: on how many problems it was best.
        problems: of how many that were measured there.
    """

    size: str
    value: int
    kernel: str
    wins: int
    problems: int

    @property
    def line(self) -> str:
        """In words."""
        won = f"{self.wins} of {self.problems} measured problems"
        return f"most frequent winner at {self.size} = {self.value}: {self.kernel} ({won})"


# What a problem is besides the sizes left out -> each size, the kernel, its wins and the problems.
Table = dict[str, list[tuple[int, str, int, int]]]


def frequent_table(measured: MeasuredSet, problem: Problem, op: AnyOperation, file: Path) -> Table:
    """The kernels that win most at each size, for problems that differ from this one in nothing but sizes.

    Raises:
        ModelError: a problem that was measured is none; `file` is what it stands in.
    """
    sizes, left_out = [name.lower() for name in op.problems.sizes], held_out(op)
    wanted, size = _without(problem, sizes), op.problems.grows_with.lower()
    wins: dict[str, dict[int, Counter[str]]] = {}
    for text, (kernel, _) in zip(measured.problems, measured.best, strict=True):
        try:
            known = op.problems.parse(text)
        except (DataError, UsageError) as error:
            raise ModelError(f"{file}: problems: {error.message}", error.hint, code=error.code) from error
        if _without(known, sizes) == wanted:
            at = wins.setdefault(_without(known, left_out), {}).setdefault(getattr(known, size), Counter())
            at[measured.kernels[kernel]] += 1
    return {kind: [(value, *_first(counts)) for value, counts in at.items()] for kind, at in wins.items()}


def held_out(op: AnyOperation) -> list[str]:
    """The sizes that are left out of account: those of a layer, and that by which problems of a layer differ."""
    return [name.lower() for name in (*op.problems.split_by, op.problems.grows_with)]


def frequent(
    problem: Problem, size: str, left_out: Sequence[str], table: Mapping[str, Sequence[Sequence[Any]]]
) -> Frequent | None:
    """The kernel that wins most at the nearest known size; None if nothing is known of the problem's kind.

    Args:
        problem: the problem.
        size: the size.
        left_out: sizes that do not count (`held_out`).
        table: `frequent_table`, or what JSON made of it.
    """
    known = table.get(_without(problem, left_out))
    if not known:
        return None
    here = math.log(getattr(problem, size))
    value, kernel, wins, problems = min(known, key=lambda one: abs(math.log(one[0]) - here))
    return Frequent(size, value, kernel, wins, problems)


def _without(problem: Problem, sizes: Sequence[str]) -> str:
    """The problem's text with all of these sizes 1."""
    plain: Problem = replace(problem, **dict.fromkeys(sizes, 1))  # type: ignore[type-var]
    return plain.canonical()


def _first(counts: Counter[str]) -> tuple[str, int, int]:
    """The most frequent, of several the first by name; its number, and that of all."""
    kernel = min(counts, key=lambda name: (-counts[name], name))
    return kernel, counts[kernel], counts.total()
