"""`ckh validate`: choices against the oracle, and the group of the other gates. The exit code is the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.commands import _completion, _validate_compare, _validate_kernels, _validate_selection
from ckh.commands._common import JSON_HELP, examples, print_json, print_table
from ckh.commands._duration import parse_duration
from ckh.commands._judging import MIN_PROBLEMS, for_verdict, load_judged, percent
from ckh.commands._verdicts import give_verdict
from ckh.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.assess.oracle import Contest, Remeasured
    from ckh.bench.protocol import Reply
    from ckh.learn.artifact import Model

_ORACLE_HELP = """Compare a model's choices with the measured best of a hold-out. Exit code 1: they are too far from it.

With --on-device, the model's first choices and the oracle's best are compiled and measured again on this machine, in
turns, so that the verdict does not rest on times of another day.

There is no verdict, and exit code 4, where fewer than --min-problems are left: those that the model was trained on do
not count (for models of AMD's tools this cannot be known, and is said), nor those with a single measured kernel.
"""
_FEWER = "set --min-problems"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    group = typer.Typer(
        name="validate",
        help="Gates: choices against an oracle or golden ones, a new model against an old one, kernels that work here.",
        epilog=examples(
            "ckh validate oracle --model models/mine --data holdout.parquet",
            "ckh validate compare models/old models/new --data holdout.parquet",
            "ckh validate selection golden.json",
            "ckh validate kernels --matrix pipelines",
        ),
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command(
        name="oracle",
        help=_ORACLE_HELP,
        epilog=examples(
            "ckh validate oracle --model models/mine --data holdout.parquet",
            "ckh validate oracle --model models/mine --data holdout.parquet --min-mean 0.95 --min-p10 0.85",
            "ckh validate oracle --model models/mine --data holdout.parquet --on-device --limit 30",
        ),
    )(oracle)
    _validate_compare.register(group)
    _validate_selection.register(group)
    _validate_kernels.register(group)
    app.add_typer(group)


def oracle(
    model: Path = typer.Option(..., "--model", "-m", autocompletion=_completion.models, help="Model directory."),
    data: list[Path] = typer.Option(..., "--data", help="Measured hold-out; may be repeated."),
    min_mean: float = typer.Option(0.90, "--min-mean", min=0, max=1, help="Least mean efficiency."),
    min_p10: float = typer.Option(0.75, "--min-p10", min=0, max=1, help="Least P10 efficiency."),
    min_problems: int = MIN_PROBLEMS,
    top_k: int = typer.Option(5, "--top-k", min=1, max=50, help="How many choices to look at."),
    on_device: bool = typer.Option(False, "--on-device", help="Measure choices and oracle again."),
    limit: int | None = typer.Option(None, "--limit", min=1, help="Measure again on this many random problems."),
    seed: int = typer.Option(0, "--seed", help="Which random problems."),
    timeout: str = typer.Option("30s", "--timeout", metavar="TIME", help="Longest for one kernel on one problem."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Judge, print and give the verdict."""
    import numpy as np

    from ckh.assess.metrics import choices
    from ckh.assess.metrics import top_k as first_k
    from ckh.assess.noise import ceiling, noise_times
    from ckh.assess.report import RANDOM
    from ckh.learn.artifact import load_model

    loaded = load_model(model)
    if limit is not None and limit < min_problems:
        raise UsageError(f"--limit {limit} leaves fewer than the {min_problems} problems that a verdict takes", _FEWER)
    dataset = for_verdict(load_judged(loaded, data), [loaded], min_problems)
    scores = loaded.scores(dataset)
    times, _noise = noise_times(dataset)
    if on_device:
        from ckh.assess.oracle import contests

        again = _measure_again(loaded, _some(contests(dataset, scores, top_k), limit, seed), parse_duration(timeout))
        efficiency = np.array([one.first_efficiency for one in again])
        figures = _figures_again(again, top_k)
    else:
        chosen = choices(scores, times.problem, times.count)
        efficiency, best = times.efficiency()[chosen], ceiling(dataset, chosen, RANDOM, None)
        (of_k,) = first_k(times, scores, [top_k])
        (of_1,) = first_k(times, scores, [1])
        figures = {
            "first choice is a best kernel": of_1.hit,
            f"a best kernel is in the first {top_k}": of_k.hit,
            f"mean efficiency of the best of {top_k}": of_k.efficiency_mean,
        }
        if best is not None:
            figures["mean efficiency of a repeated measurement"] = best.repeated.value
            figures["share of a repeated measurement"] = best.share.value
    figures = {
        "mean efficiency": float(efficiency.mean()),
        "median efficiency": float(np.median(efficiency)),
        "P10 efficiency": float(np.percentile(efficiency, 10)),
        "least efficiency": float(efficiency.min()),
        **figures,
    }
    failures = [
        f"{name} is {percent(figures[name])}, under {percent(least)}"
        for name, least in (("mean efficiency", min_mean), ("P10 efficiency", min_p10))
        if figures[name] < least
    ]
    document = {"model": str(model), "problems": len(efficiency), "on_device": on_device, "figures": figures}
    if as_json:
        print_json("validate_oracle", {**document, "failures": failures, "passes": not failures})
    else:
        how = "measured again on this machine" if on_device else "as measured in the data"
        print_table(
            f"{model}: {len(efficiency)} problems, {how}", ("", "value"), [[k, percent(v)] for k, v in figures.items()]
        )
    give_verdict(failures)


def _some(found: list[Contest], limit: int | None, seed: int) -> list[Contest]:
    import random

    return found if limit is None or limit >= len(found) else random.Random(seed).sample(found, limit)


def _measure_again(model: Model, found: list[Contest], timeout_s: float) -> list[Remeasured]:
    from ckh.assess.oracle import measured_again
    from ckh.bench.device_choice import device_of
    from ckh.bench.rounds import compare_kernels

    device = device_of(model.spec.arch)
    by_problem = {one.problem: one for one in found}
    tasks = {one.problem: [model.spec.op.parse_kernel(name) for name in one.kernels] for one in found}
    again: list[Remeasured] = []

    def take(problem: str, replies: list[Reply]) -> None:
        again.append(measured_again(by_problem[problem], [one.samples_ns for one in replies]))

    compare_kernels(device, tasks, timeout_s, "measuring again", take)
    return again


def _figures_again(again: Sequence[Remeasured], top_k: int) -> dict[str, float]:
    import numpy as np

    return {
        f"mean efficiency of the best of {top_k}": float(np.mean([one.top_efficiency for one in again])),
        "mean efficiency of the oracle's kernel": float(np.mean([one.oracle_efficiency for one in again])),
    }
