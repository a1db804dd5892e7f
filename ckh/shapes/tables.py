"""Lists of shapes as CSV: count, layers and operation of each problem, and the columns that identify it."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError, UsageError
from ckh.files.outputs import FileKind, head_of
from ckh.files.untrusted import csv_rows, integer, read_text
from ckh.ops import is_operation, operation, operation_names
from ckh.shapes.layers import MAX_SIZE, Layer
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ckh.shapes.layers import WeightedProblem

_FIRST = ("op", "count", "layers")
_BETWEEN = " "  # between names of layers


def is_table(head: str) -> bool:
    """True if a file begins like a list of shapes."""
    return head.split("\n", 1)[0].strip().split(",")[:3] == [*_FIRST]


SHAPES = FileKind("list of shapes", lambda path: is_table(head_of(path).decode("utf-8", "replace")))


def table_text(problems: Sequence[WeightedProblem]) -> str:
    """The list as CSV."""
    names: dict[str, None] = {}
    rows = []
    for problem in problems:
        op = operation(problem.op)
        columns = op.problems.columns([problem.problem])
        own = {name: columns[name][0] for name in op.problems.identity}
        names |= dict.fromkeys(own)
        rows.append({"op": problem.op, "count": problem.count, "layers": _BETWEEN.join(problem.layers), **own})
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [*_FIRST, *names], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def table_layers(path: Path, name: str, refuse: Callable[[CkhError, str], None]) -> Iterator[Layer]:
    """The problems of a list."""
    rows = ((line, cells) for line, cells in csv_rows(path, read_text(path)) if any(cells))
    header = next(rows)[1]
    for line, cells in rows:
        where = f"{name}:{line}"
        try:
            if len(cells) != len(header):
                raise UsageError(f"{len(cells)} cells under {len(header)} columns", code="bad-row")
            yield _layer(dict(zip(header, cells, strict=True)), where)
        except CkhError as error:
            refuse(error, where)


def _layer(cells: Mapping[str, str], where: str) -> Layer:
    if not is_operation(cells["op"]):
        hint = one_of(cells["op"], operation_names())
        raise UsageError(f"unknown operation {cells['op'][:40]!r}", hint, code="unknown-op")
    op = operation(cells["op"])
    count = _integer("count", cells["count"])
    if not 1 <= count <= MAX_SIZE:
        raise UsageError(f"count must be 1 or more (and below 2^31), not {count}", code="out-of-range")
    columns = {column.name: column for column in op.training.columns}
    row: dict[str, Any] = {}
    for name in op.problems.identity:
        if cell := cells.get(name, ""):
            row[name] = _integer(name, cell) if columns[name].type.startswith("int") else cell
        elif not columns[name].nullable:
            raise UsageError(f"{name} is missing", code="missing-field")
    return Layer(cells["layers"], op.problems.of_row(row), count, where, op.name)


def _integer(name: str, cell: str) -> int:
    try:
        return integer(cell)
    except ValueError:
        raise UsageError(f"{name} is {cell[:40]!r}, not an integer", code="bad-number") from None
