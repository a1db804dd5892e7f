"""Tables and JSON as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ckh.log import printable

if TYPE_CHECKING:
    from collections.abc import Sequence


def json_text(document: Any) -> str:
    """One JSON document. NaN and infinity are not JSON: they must not be in it.

    Raises:
        ValueError: the document holds NaN or an infinity.
    """
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def table_text(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, the first column left-aligned, the others right-aligned, never cut or wrapped."""
    shown = [[printable(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(columns))]
    lines = [_line(row, widths) for row in (shown[0], ["-" * width for width in widths], *shown[1:])]
    return "\n".join(([printable(title)] if title else []) + lines) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()
