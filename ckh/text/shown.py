"""Values displayed as tables in notebooks and by rich. Quick answers use this module, so it imports little."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

MAX_ROWS = 20  # that are shown


class ShownTable(NamedTuple):
    """A table."""

    title: str
    columns: tuple[str, ...]  # names of its columns, those of datasets and of JSON
    rows: Sequence[tuple[Any, ...]]  # values; None where there is none
    notes: tuple[str, ...] = ()  # below the rows

    def shown(self) -> tuple[list[list[str]], tuple[str, ...]]:
        """The first rows as text, and the notes."""
        left = len(self.rows) - MAX_ROWS
        more = (f"and {left} more rows",) if left > 0 else ()
        return [list(map(_text, row)) for row in self.rows[:MAX_ROWS]], (*more, *self.notes)


class Shown:
    """Base of values that are displayed as a table."""

    __slots__ = ()

    @abstractmethod
    def table(self) -> ShownTable:
        """Return the value as a table."""

    def to_frame(self) -> pd.DataFrame:
        """The table as a data frame, with all of its rows."""
        import pandas as pd

        table = self.table()
        made: pd.DataFrame = pd.DataFrame(list(table.rows), columns=list(table.columns))
        return made

    def _repr_html_(self) -> str:
        """The table for a notebook."""
        from html import escape

        table = self.table()
        rows, notes = table.shown()
        head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        below = "".join(f"<p>{escape(note)}</p>" for note in notes)
        table_html = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div><p>{escape(table.title)}</p>{table_html}{below}</div>"

    def __rich__(self) -> Any:
        """The table for rich's console."""
        from rich.table import Table
        from rich.text import Text

        table = self.table()
        rows, notes = table.shown()
        made = Table(title=Text(table.title), caption=Text("\n".join(notes)) if notes else None)
        for name in table.columns:
            made.add_column(Text(name), overflow="fold")
        for row in rows:
            made.add_row(*map(Text, row))
        return made


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_text, value)) if isinstance(value, (tuple, list)) else str(value)
