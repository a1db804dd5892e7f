"""Lists of shapes as CSV: count, layers and operation of each problem, and the columns that identify it."""

from __future__ import annotations

import csv
import io
from math import inf
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError, UsageError
from ckh.files.outputs import FileKind, head_of
from ckh.files.untrusted import by_column, csv_rows, integer, read_text
from ckh.ops import is_operation, operation, operation_names
from ckh.problems import dtype_name
from ckh.shapes.layers import MAX_SIZE, BatchedMatmul, Layer, Matmul, Scaling, StatedTime
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ckh.shapes.layers import WeightedProblem

_FIRST = ("op", "count", "layers")
_TIME = ("stated_ms", "stated_of")  # the least time that a source states, and of which kernel, solver or library
_BETWEEN = " "  # between names of layers
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
# Further columns of AITER's lists of products: element types of operands and result, and flags.
_STATED = ("dtype", "outdtype", "bias", "scaleAB", "bpreshuffle")
_TRUE = ("true", "1")
_BF16 = "bf16"  # element type of AITER's lists of batches, by their names


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
        times = () if problem.time is None else (problem.time.ms, _cell([problem.time.name]))
        first = (problem.op, problem.count, _cell(problem.layers))
        rows.append(dict(zip((*_FIRST, *own, *_TIME), (*first, *own.values(), *times), strict=False)))
    timed = _TIME if any(problem.time for problem in problems) else ()
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [*_FIRST, *names, *timed], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _cell(layers: Sequence[str]) -> str:
    """Names of layers; a spreadsheet shows those of a stranger's model as text, and evaluates none as a formula."""
    text = _BETWEEN.join(layers)
    return f"'{text}" if text.startswith(_FORMULA) else text


def is_unquantised(path: Path, head: str) -> bool:
    """True if a file begins like AITER's lists and tables of products without scales, single or batched."""
    names = {name.strip() for name in head.split("\n", 1)[0].split(",")}
    return {"M", "N", "K", *_STATED} <= names or ({"B", "M", "N", "K"} <= names and path.name.startswith(_BF16))


def table_layers(path: Path, name: str, refuse: Callable[[CkhError, str], None]) -> Iterator[Layer]:
    """The problems of a list, or the shapes of one of AITER's."""
    rows = csv_rows(path, read_text(path))
    header = next(rows)[1]
    of_row = _layer if header[0] == _FIRST[0] else _product
    for line, cells in rows:
        where = f"{name}:{line}"
        try:
            yield of_row(by_column(header, cells), where)
        except CkhError as error:
            refuse(error, where)


def _layer(cells: Mapping[str, str], where: str) -> Layer:
    if not is_operation(cells["op"]):
        hint = one_of(cells["op"], operation_names())
        raise UsageError(f"unknown operation {cells['op'][:40]!r}", hint, code="unknown-op")
    op = operation(cells["op"])
    count = _number("count", cells["count"])
    if not 1 <= count <= MAX_SIZE:
        raise UsageError(f"count must be 1 or more (and below 2^31), not {count}", code="out-of-range")
    columns = {column.name: column for column in op.training.columns}
    row: dict[str, Any] = {}
    for name in op.problems.identity:
        if cell := cells.get(name, ""):
            row[name] = _number(name, cell) if columns[name].type.startswith("int") else cell
        elif not columns[name].nullable:
            raise UsageError(f"{name} is missing", code="missing-field")
    texts = (cells.get(name, "") for name in ("layers", _TIME[1], _TIME[0]))
    names, of, ms = (text[1:] if text[:1] == "'" and text[1:].startswith(_FORMULA) else text for text in texts)
    time = StatedTime(_number(_TIME[0], ms, _positive), of) if ms else None
    return Layer(names, op.problems.of_row(row), count, where, op.name, time=time)


def _product(cells: Mapping[str, str], where: str) -> Layer:
    m, n, k = (_number(name, cells[name].strip()) for name in "MNK")
    if "B" in cells:
        return Layer("", BatchedMatmul(_number("B", cells["B"].strip()), m, n, k, _BF16), 1, where)
    dtype, result = (dtype_name(cells[name].strip().removeprefix("torch.")) for name in _STATED[:2])
    has_bias, is_scaled, is_shuffled = (cells.get(name, "").strip().lower() in _TRUE for name in _STATED[2:])
    scaling = Scaling.ROW if is_scaled else Scaling.NONE
    shape = Matmul(m, n, k, dtype, scaling=scaling, is_shuffled=is_shuffled, has_bias=has_bias, result=result)
    return Layer("", shape, 1, where)


def _positive(cell: str) -> float:
    number = float(cell)
    if not 0 < number < inf:
        raise ValueError(cell)
    return number


def _number(name: str, cell: str, convert: Callable[[str], Any] = integer) -> Any:
    try:
        return convert(cell)
    except ValueError:
        raise UsageError(
            f"{name} is {cell[:40]!r}, not {'an integer' if convert is integer else 'a time'}", code="bad-number"
        ) from None
