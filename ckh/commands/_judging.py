"""Options shared by evaluate, validate and report."""

from __future__ import annotations

import typer

from ckh.commands import _completion
from ckh.learn.judging.judged_data import LEAST_PROBLEMS, Among

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
