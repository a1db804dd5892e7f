"""Options shared by evaluate, validate and report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ckh.commands import _completion
from ckh.errors import UsageError
from ckh.learn.judging.judged_data import LEAST_PROBLEMS, Among
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

AMONG = typer.Option(
    Among.CANDIDATES,
    "--among",
    help="Kernels to choose among: predict's candidates, or the measured kernels only.",
)
MODEL = typer.Option(
    None,
    "--model",
    "-m",
    autocompletion=_completion.models,
    help="Model directory.  [the model that predict selects]",
)
MIN_PROBLEMS = typer.Option(LEAST_PROBLEMS, "--min-problems", min=1, help="Minimum number of problems for a verdict.")
LEARNED_FROM = "Training data of the baselines. [the model's, if found]"


def figure_values(option: str, texts: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield the figures and values of an option FIGURE=VALUE, shares from 0 to 1."""
    for text in texts:
        name, _, value = text.partition("=")
        if name not in known:
            raise UsageError(f"{option} {text!r}: unknown figure {name!r}", one_of(name, known), code="unknown-name")
        try:
            share = float(value)
        except ValueError:
            share = float("nan")
        if not 0 <= share <= 1:
            raise UsageError(
                f"{option} {text!r}: {value!r} is not a number from 0 to 1", f"write {name}=0.85", code="out-of-range"
            )
        yield name, share
