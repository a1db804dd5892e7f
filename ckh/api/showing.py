"""How the Python API shows what it does: `ckh.progress`."""

from __future__ import annotations

from ckh.errors import UsageError
from ckh.text.progress import ProgressStyle, show_progress
from ckh.text.prose import one_of


def progress(style: str) -> None:
    """Choose how long work shows its progress, on stderr or in a notebook.

    Args:
        style: "auto" (bars on a terminal and in a notebook, else lines), "bars", "lines" or "none".

    Raises:
        UsageError: it is another text.
    """
    if style not in list(ProgressStyle):
        raise UsageError(f"unknown style {style!r}", one_of(style, ProgressStyle), code="unknown-name")
    show_progress(ProgressStyle(style))
