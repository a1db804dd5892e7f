"""What the commands share: printing JSON and tables, and help with examples."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from ckh.log import printable
from ckh.ops import operation_names

if TYPE_CHECKING:
    from collections.abc import Sequence

OP_HELP = f"Operation: {', '.join(operation_names())}."
JSON_HELP = "Print one JSON document instead of tables."

_SIZE = re.compile(r" = \d+")


def print_json(document: Any) -> None:
    """Print one JSON document on stdout. NaN and infinity are not JSON: they must not be in it.

    Raises:
        ValueError: the document holds NaN or an infinity.
    """
    sys.stdout.write(json_text(document))


def json_text(document: Any) -> str:
    """What `print_json` prints."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout, the first column left-aligned, the others right-aligned, never cut or wrapped."""
    sys.stdout.write(table_text(title, columns, rows))


def table_text(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """What `print_table` prints."""
    shown = [[printable(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(columns))]
    lines = [_line(row, widths) for row in (shown[0], ["-" * width for width in widths], *shown[1:])]
    return "\n".join(([printable(title)] if title else []) + lines) + "\n"


def reasons_by_kind(counts: dict[str, int]) -> dict[str, int]:
    """Counts of reasons that differ in a size only ("M = 31 is …", "M = 7 is …") as one, most frequent first."""
    added: Counter[str] = Counter()
    for reason, count in counts.items():
        added[_SIZE.sub(" = …", reason)] += count
    return dict(added.most_common())


def examples(*lines: str) -> str:
    r"""Help's epilogue with examples, one a line (\b keeps Typer from joining them)."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()
