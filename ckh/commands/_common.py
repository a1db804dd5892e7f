"""Shared helpers of the commands: printing JSON and tables, help with examples."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands import _completion
from ckh.documents import json_text
from ckh.ops import operation_names
from ckh.text.log import emit
from ckh.text.prose import paragraphs, prose
from ckh.text.tabletext import table_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.documents import Document

OP_HELP = f"Operation: {', '.join(operation_names())}."
JSON_HELP = "Print one JSON document instead of tables."
NO_PEAK_CHECK_HELP = "Use times above the peak rates of their GPU as they are."

_COMPLETIONS = {
    "op": _completion.operations,
    "arch": _completion.architectures,
    "dtype": _completion.dtypes,
    "model": _completion.models,
    "problems": _completion.problem_sets,
}
_SIZE = re.compile(r" = \d+")


def import_lightgbm() -> None:
    """Import LightGBM without its classes for scikit-learn, whose import takes 1.5 CPU-seconds."""
    if "lightgbm" in sys.modules or "sklearn" in sys.modules:
        return
    sys.modules["sklearn"] = None  # type: ignore[assignment] # an import raises ImportError
    try:
        import lightgbm  # noqa: F401
    finally:
        del sys.modules["sklearn"]


def completed(
    name: str, text: str, *, default: Any = None, metavar: str | None = None, panel: str | None = None
) -> Any:
    """Typer option whose values the shell completes by the option's name; `text` is its help."""
    metavar = metavar or ("SET|FILE" if name == "problems" else None)
    complete = _COMPLETIONS[name]
    return typer.Option(
        default, f"--{name}", autocompletion=complete, metavar=metavar, help=text, rich_help_panel=panel
    )


def print_json(document: Document) -> None:
    """Print one JSON document on stdout, as `documents.json_text`."""
    emit(json_text(document))


def say(text: str = "") -> None:
    """Print lines on stdout that fit the terminal, as `prose.paragraphs`."""
    emit(paragraphs(text) + "\n")


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], bases: Mapping[str, str] | None = None
) -> None:
    """Print a table on stdout, the first column left-aligned, the others right-aligned, as `table_text`."""
    emit(table_text(title, columns, rows, bases=bases))


def reasons_by_kind(counts: dict[str, int]) -> dict[str, int]:
    """Merge the counts of reasons that differ only in a size ("M = 31 is …", "M = 7 is …"), most frequent first."""
    added: Counter[str] = Counter()
    for reason, count in counts.items():
        added[_SIZE.sub(" = …", reason)] += count
    return dict(added.most_common())


def examples(*lines: str) -> str:
    r"""Help epilogue with examples to paste, each on its own lines (\b keeps Typer from joining them)."""
    # Typer puts two spaces before each line. Continuation lines of a command are indented by two more.
    fitted = [prose(f"{'':6}{line}", 6).replace("\n  ", "\n").removeprefix("    ") for line in lines]
    return "\n".join(["\b", "Examples:", *fitted])
