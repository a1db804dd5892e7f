"""A ranking as text. Imports next to nothing: quick answers are printed with it too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.commands._common import table_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.ops.base import Problem

COLUMNS = ("predicted TFLOPS", "predicted ms")
WHY = " (--why tells the reasons)"
_HOST = "host"


def in_words(problem: Problem) -> str:
    """All sizes of a problem, as people write them."""
    from ckh.problems import ConvProblem

    if isinstance(problem, ConvProblem):
        from ckh.commands import _conv_sizes

        return _conv_sizes.in_words(problem)
    return ", ".join(f"{name} {value}" for name, value in problem.to_dict().items())


def model_words(name: str, device: str, arch: str) -> str:
    """What a model is called, and where it was measured."""
    warning = " (host numbers: they say nothing about a GPU)" if arch == _HOST else ""
    return f"{name}, measured on {device or arch}{warning}"


def head(problem: Problem, model: str, candidates: int, refused: int) -> str:
    """What stands above the table: problem, model as in `model_words`, numbers of kernels."""
    why = WHY if refused else ""
    return (
        f"problem  {in_words(problem)}\n         {problem.canonical()}\nmodel    {model}\n"
        f"kernels  {candidates} candidates, {refused} refused{why}\n"
    )


def figure(value: float | None) -> str:
    """A number of a table, or a dash where there is none."""
    return "-" if value is None or value != value else f"{value:.4g}"  # noqa: PLR0124 - NaN


def table(rows: Sequence[tuple[str, float | None, float | None]]) -> str:
    """The kernels, best first: name, TFLOPS and time in ms."""
    cells = [[str(place), figure(tflops), figure(ms), name] for place, (name, tflops, ms) in enumerate(rows, 1)]
    return "\n" + table_text("", ("", *COLUMNS, "kernel"), cells)
