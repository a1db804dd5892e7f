"""Tables and JSON as text."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ckh.log import printable
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# Of all files in ckh/jsonschemas: the second number rises with a field that is added, the first with one that changes
# or goes, which no minor version of ckh does.
JSON_VERSION = "1.0"

_LEAST_HEAD = 4  # characters that a shortened text begins with
_HEADS = (0.25, 0.4, 0.55, 0.7, 0.1)  # of the width, before the cut


def json_text(schema: str, document: Mapping[str, Any]) -> str:
    """One JSON document, which says by which schema it reads (`ckh/jsonschemas`), and who wrote it.

    Raises:
        ValueError: the document holds NaN or an infinity, which are not JSON.
    """
    return json.dumps(enveloped(schema, document), indent=2, allow_nan=False) + "\n"


def enveloped(schema: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """A document behind the three fields that all have."""
    return {"schema": f"ckh.{schema}", "schema_version": JSON_VERSION, "ckh_version": __version__, **document}


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


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Texts of at most `width` characters: longer ones are cut in the middle, where most of them stay distinct.

    Of what all long ones begin with as much goes as must; where that is not enough, the cut is at the place that
    leaves most texts apart.
    """
    texts = [printable(name) for name in names]
    long = [text for text in texts if len(text) > width]
    shared = len(os.path.commonprefix(long))  # noqa: RUF071 - of characters
    if all(shared - (len(text) - width) > _LEAST_HEAD for text in long):
        return [_cut(text, width, shared - (len(text) - width) - 1) for text in texts]
    tried = [[_cut(text, width, int(width * share)) for text in texts] for share in _HEADS]
    return max(tried, key=lambda cut: len(set(cut)))


def _cut(text: str, width: int, head: int) -> str:
    if len(text) <= width:
        return text
    return f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"
