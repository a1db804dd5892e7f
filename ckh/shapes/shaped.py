"""`Shaped`: an operation's interface to shapes, and the interfaces of all operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ckh.ops import is_operation, operation, operation_names, part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ckh.shapes.layers import Shape, Stated

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class NearKey:
    """The row of a tuned table nearest to a key without a row."""

    key: Mapping[str, str]  # the row's key by column; empty: no row is near
    differs: Mapping[str, str]  # column -> looked-up value that differs
    why: str  # reason of the miss


@dataclass(frozen=True, slots=True)
class MissedLookup(Generic[P]):
    """A lookup without a row."""

    problem: P
    stated: Mapping[str, str]  # columns and values of the key, if stated by the source
    arch: str  # the architecture, if the source does not state it
    num_cus: int  # number of compute units; 0: those of the architecture (`archs.load_arch`)


@dataclass(frozen=True, slots=True, eq=False)
class Shaped(Generic[P]):
    """An operation's interface to shapes.

    Attributes:
        kind: class of its shapes: `Matmul`, `BatchedMatmul`, `GroupedMatmul`, `Convolution` or `ExpertProducts`.
        problem: converts a shape to a problem, given a default element type; raises `UsageError`.
        shape: converts a problem to a shape.
        prefers: whether it is the default operation for this class of shapes.
        marks: marker texts of lines that `line` may parse.
        line: parses a log line: returns its problem; or a description of other content; or None. Raises `CkhError`.
        recognises: whether a CSV file of problems, by its path and first characters, is this operation's.
        networks: name of a network -> its layers in order, with repetitions, for a number of images.
        stated: key columns of a line that `line` parses.
        nearest: the key in `misses.KeyTables` nearest to a missed one; None: its programs have no such tables.
    """

    kind: type[Any]
    problem: Callable[[Any, str], P]
    shape: Callable[[P], Shape]
    prefers: Callable[[Any], bool] = lambda _shape: True
    marks: tuple[str, ...] = ()
    line: Callable[[str], P | str | None] = lambda _text: None
    recognises: Callable[[Path, str], bool] = lambda _path, _head: False
    networks: Mapping[str, Callable[[int], Sequence[P]]] = field(default_factory=dict)
    stated: Callable[[str], Stated] = lambda _text: ()
    nearest: Callable[[MissedLookup[P], Any], NearKey] | None = None


def own_shapes(kind: type[P]) -> Shaped[P]:
    """Interface of an operation whose shapes are its problems, since other sources do not state them completely."""
    return Shaped(kind, lambda shape, _dtype: shape, lambda problem: cast("Any", problem))


@cache
def shaped_part(name: str) -> Shaped[Any] | None:
    """An operation's interface to shapes; None: it has none."""
    if not is_operation(name):
        return None
    op = operation(name)
    return part_of(op, op.problems.shaped, Shaped)


@cache
def all_parts() -> dict[str, Shaped[Any]]:
    """Interfaces to shapes by operation."""
    return {name: part for name in operation_names() if (part := shaped_part(name)) is not None}


def networks() -> dict[str, tuple[str, Callable[[int], Sequence[Any]]]]:
    """Name of a network -> operation of its layers, and the layers for a number of images."""
    return {name: (op, layers) for op, part in all_parts().items() for name, layers in part.networks.items()}
