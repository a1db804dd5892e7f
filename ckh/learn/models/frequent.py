"""Most frequent winner at the problem's size, over all layers: a baseline for models of winners.

Counted over the training problems of the model, as in `ckh evaluate` (`assess.winners.most_frequent`), for problems of
one kind and device at the nearest known size. Has almost no imports.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, ModelError, UsageError
from ckh.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ckh.learn.models.measured_set import MeasuredSet
    from ckh.ops.base import AnyOperation, Problem


class Frequent(Record):
    """The most frequent winner at a size."""

    size: str
    """Name of the size."""
    value: int
    """The nearest measured value."""
    kernel: str
    """Complete name of the kernel."""
    wins: int
    """Problems where it was the fastest kernel."""
    problems: int
    """Measured problems of this size."""

    @property
    def line(self) -> str:
        """Return a sentence for the answer."""
        won = f"{self.wins} of {self.problems} measured problems"
        return f"most frequent winner at {self.size} = {self.value}: {self.kernel} ({won})"


# Text of a problem without the sizes left out -> rows of size, kernel, wins and problems.
Table = dict[str, list[tuple[int, str, int, int]]]


def frequent_table(measured: MeasuredSet, problem: Problem, op: AnyOperation, file: Path) -> Table:
    """Most frequent winner at each size, for problems that differ from this one only in sizes."""
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
    """Sizes to ignore: those of a layer, and the size by which problems of a layer differ."""
    return [name.lower() for name in (*op.problems.split_by, op.problems.grows_with)]


def frequent(
    problem: Problem, size: str, left_out: Sequence[str], table: Mapping[str, Sequence[Sequence[Any]]]
) -> Frequent | None:
    """Most frequent winner at the nearest known size; None if the problem's kind is unknown."""
    known = table.get(_without(problem, left_out))
    if not known:
        return None
    here = math.log(getattr(problem, size))
    value, kernel, wins, problems = min(known, key=lambda row: abs(math.log(row[0]) - here))
    return Frequent(size, value, kernel, wins, problems)


def _without(problem: Problem, sizes: Sequence[str]) -> str:
    """Canonical text of the problem with all of these sizes set to 1."""
    plain: Problem = replace(problem, **dict.fromkeys(sizes, 1))  # type: ignore[type-var]
    return plain.canonical()


def _first(counts: Counter[str]) -> tuple[str, int, int]:
    """Return the most frequent kernel, ties by name; its count, and the total."""
    kernel = min(counts, key=lambda name: (-counts[name], name))
    return kernel, counts[kernel], counts.total()
