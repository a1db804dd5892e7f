"""Tables as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.text.log import painted, printable
from ckh.text.prose import filled, prose, room

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_LEAST_WIDTH = 10  # minimum width of a shortened column
_GAP = 2
HOW_WHOLE = "(--wide shows names whole)"
_LEAST_HEAD = 4  # minimum characters at the beginning of a shortened text
_HEADS = (0.0, 0.25, 0.4, 0.55, 0.7)  # shares of the width before the cut; names differ most at their ends

_BARS = "▁▂▃▄▅▆▇█"


def table_text(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    groups: Sequence[str] = (),
    bases: Mapping[str, str] | None = None,
    *,
    is_ruled: bool = True,
) -> str:
    """A table that fits the terminal, or else 80 columns; the first column left-aligned, the others right-aligned.

    If it is too wide, sentences are wrapped, and names without a space are shortened in the middle; not within
    `whole_names`.
    """
    table = [[printable(cell) for cell in row] for row in (columns, *rows)]
    by_column = [[row[i] for row in table] for i in range(len(columns))]
    widths, gap = [max(map(len, cells)) for cells in by_column], _GAP
    space = room()
    if space is None or _total(widths, gap) <= space:
        lines = [[[cell] for cell in cells] for cells in by_column]
    else:
        widths, gap = _fitting(by_column, space)
        lines = [_fitted(cells, width) for cells, width in zip(by_column, widths, strict=True)]
        widths = [max(len(text) for cell in cells for text in cell) for cells in lines]
    based = [bases.get(name, "") for name in columns] if bases else []
    height = max(len(cells[0]) for cells in lines)
    for cells in lines:
        cells[0] = [""] * (height - len(cells[0])) + cells[0]  # heads stand right above the rule
    head, *shown = [_row_lines([cells[i] for cells in lines], widths, gap, based) for i in range(len(table))]
    rule = [_line(["-" * width for width in widths], widths, gap)] if is_ruled else []
    is_cut = any("…" in line for row in shown for line in row)
    for number in range(len(groups) - 1, -1, -1):
        if number == 0 or groups[number] != groups[number - 1]:
            shown[number].insert(0, printable(groups[number]))
    text = [*head, *rule, *(line for row in shown for line in row), *([HOW_WHOLE] if is_cut else [])]
    return "\n".join(([prose(printable(title))] if title else []) + text) + "\n"


def sparkline(values: Sequence[float], low: float | None = None, high: float | None = None) -> str:
    """A bar for each value, from minimum to maximum, or from `low` to `high`: ▁▂▃▄▅▆▇█."""
    if not values:
        return ""
    least = min(values) if low is None else low
    width = (max(values) if high is None else high) - least
    places = [(value - least) / width if width > 0 else 0.0 for value in values]
    return "".join(_BARS[max(0, min(int(place * len(_BARS)), len(_BARS) - 1))] for place in places)


def _fitting(by_column: Sequence[Sequence[str]], space: int) -> tuple[list[int], int]:
    """Column widths that fit, and the gap between columns, which is reduced before sentences are wrapped.

    Headings are wrapped first.
    """
    least = [min(max(map(_longest_word, cells)), _LEAST_WIDTH) for cells in by_column]
    wide = [max(_longest_word(cells[0]), *map(len, cells[1:]), 0) for cells in by_column]
    widths = _narrowed(wide, least, space, _GAP)
    columns = list(zip(by_column, widths, strict=True))
    is_wrapped = any(" " in cell and len(cell) > width for cells, width in columns for cell in cells[1:])
    is_narrow = is_wrapped or _total(widths, _GAP) > space
    return (_narrowed(wide, least, space, 1), 1) if is_narrow else (widths, _GAP)


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _fitted(cells: Sequence[str], width: int) -> list[list[str]]:
    """Lines of each cell of a column, given its width."""
    whole = [cell for cell in cells if " " not in cell]
    cut = shortened(whole, width)
    if len(set(cut)) < len(set(whole)):  # no two rows may look the same
        pieces = [[cell[start : start + width] for start in range(0, max(len(cell), 1), width)] for cell in cells]
        return [filled(cell.split(), width) if " " in cell else own for cell, own in zip(cells, pieces, strict=True)]
    names = iter(cut)
    return [filled(shortened(cell.split(), width), width) if " " in cell else [next(names)] for cell in cells]


def _row_lines(cells: Sequence[Sequence[str]], widths: Sequence[int], gap: int, bases: Sequence[str]) -> list[str]:
    height = max(map(len, cells), default=1)
    padded = [[*lines, *[""] * (height - len(lines))] for lines in cells]
    return [_line(texts, widths, gap, bases) for texts in zip(*padded, strict=True)]


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _narrowed(widths: Sequence[int], least: Sequence[int], space: int, gap: int) -> list[int]:
    """Reduce the largest widths until all fit, none below its minimum."""
    narrow = list(widths)
    while _total(narrow, gap) > space:
        spare = [i for i, width in enumerate(narrow) if width > least[i]]
        if not spare:
            break
        narrow[max(spare, key=narrow.__getitem__)] -= 1
    return narrow


def _line(cells: Sequence[str], widths: Sequence[int], gap: int, bases: Sequence[str] = ()) -> str:
    padded = [
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    if bases:
        padded = [
            painted(cell, basis) if basis and cell.strip() else cell for cell, basis in zip(padded, bases, strict=True)
        ]
    return (" " * gap).join(padded).rstrip()


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Shorten texts to at most `width` characters.

    They are cut in the middle, at the position that keeps most of them distinct.
    """
    texts = [printable(name) for name in names]
    tried = [[_cut(text, width, max(_LEAST_HEAD, int(width * share))) for text in texts] for share in _HEADS]
    return max(tried, key=lambda cut: len(set(cut)))


def _cut(text: str, width: int, head: int) -> str:
    if len(text) <= width:
        return text
    return f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"
