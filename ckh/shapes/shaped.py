"""`Shaped`: what an operation makes of shapes, a part of its record; the parts of all operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ckh.ops import is_operation, operation, operation_names, part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ckh.shapes.layers import Shape, Stated

P = TypeVar("P")


def _nothing(_text: str, _path: Path, _number: int) -> None:
    return None


def _all(_shape: object) -> bool:
    return True


def _states_nothing(_text: str) -> Stated:
    return ()


def _none_of_them(_path: Path, _head: str) -> bool:
    return False


def _no_rows(_path: Path) -> Iterator[Any]:
    return iter(())


@dataclass(frozen=True, slots=True)
class NearKey:
    """The row of a tuned table that comes nearest to a key that was not found.

    Attributes:
        key: the row's key by column; empty: no row is near.
        differs: column -> what was looked up there instead.
        why: the reason of the miss, in words.
    """

    key: Mapping[str, str]
    differs: Mapping[str, str]
    why: str


@dataclass(frozen=True, slots=True)
class MissedLookup(Generic[P]):
    """A lookup that missed.

    Attributes:
        problem: what was looked up.
        stated: columns of the key and their values, where the source states them.
        arch: the architecture, where it does not.
        num_cus: its compute units; 0: those of the whole GPU.
    """

    problem: P
    stated: Mapping[str, str]
    arch: str
    num_cus: int


@dataclass(frozen=True, slots=True, eq=False)
class Shaped(Generic[P]):
    """What an operation makes of shapes.

    Attributes:
        kind: the class of shapes that its problems are: `Matmul`, `Convolution` or `ExpertProducts`.
        problem: the problem of a shape of that class, with an element type for one that leaves it open; raises
            `UsageError`.
        shape: the shape of a problem.
        prefers: whether a shape of that class becomes a problem of this operation where none is named.
        quantised_as: element type that models are quantised to where the operation has no kernels of 16 bits.
        marks: texts of which a line holds one, that `line` may read.
        line: the problem that a line of a log states, given its file and number; in words what else it states; or
            None. Raises `CkhError`.
        recognises: whether a CSV file of problems, by its path and first characters, is this operation's.
        rows: the rows of such a file: the line, and what gives the problem, or in words one without kernels, given an
            element type for one that states none.
        networks: name of a network -> its layers in order, with repetitions, for a number of images.
        stated: the columns of a key that a line states, which `line` reads.
        nearest: the key in `misses.KeyTables` nearest to one that missed; None: its programs have no such tables.
    """

    kind: type[Any]
    problem: Callable[[Any, str], P]
    shape: Callable[[P], Shape]
    prefers: Callable[[Any], bool] = _all
    quantised_as: str = ""
    marks: tuple[str, ...] = ()
    line: Callable[[str, Path, int], P | str | None] = _nothing
    recognises: Callable[[Path, str], bool] = _none_of_them
    rows: Callable[[Path], Iterator[tuple[int, Callable[[str], P | str]]]] = _no_rows
    networks: Mapping[str, Callable[[int], Sequence[P]]] = field(default_factory=dict)
    stated: Callable[[str], Stated] = _states_nothing
    nearest: Callable[[MissedLookup[P], Any], NearKey] | None = None


@cache
def shaped_part(name: str) -> Shaped[Any] | None:
    """What an operation makes of shapes; None: nothing."""
    if not is_operation(name):
        return None
    op = operation(name)
    return part_of(op, op.problems.shaped, Shaped)


@cache
def all_parts() -> dict[str, Shaped[Any]]:
    """What operations make of shapes, by operation."""
    return {name: part for name in operation_names() if (part := shaped_part(name)) is not None}


def networks() -> dict[str, tuple[str, Callable[[int], Sequence[Any]]]]:
    """Name of a network -> the operation of its layers, and these for a number of images."""
    return {name: (op, layers) for op, part in all_parts().items() for name, layers in part.networks.items()}
