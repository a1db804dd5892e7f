"""`ckh validate`: choices against the oracle, a new model against an old one, kernels. The exit code is the verdict."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands import _completion, _validate_kernels
from ckh.commands._common import JSON_HELP, examples, print_json, print_table
from ckh.commands._duration import parse_duration
from ckh.commands._judging import LEAST_PROBLEMS, for_verdict, load_judged, percent
from ckh.errors import ExitCode, UsageError
from ckh.log import note, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.assess.compare import Comparison
    from ckh.assess.oracle import Contest, Remeasured
    from ckh.bench.protocol import Reply
    from ckh.learn.artifact import Model

_ORACLE_HELP = """Compare a model's choices with the measured best of a hold-out. Exit code 1: they are too far from it.

With --on-device, the model's first choices and the oracle's best are compiled and measured again on this machine, in
turns, so that the verdict does not rest on times of another day.

There is no verdict, and exit code 4, where fewer than --min-problems are left: those that the model was trained on do
not count (for models of AMD's tools this cannot be known, and is said), nor those with a single measured kernel.
"""
_COMPARE_HELP = """Compare a new model with an old one on the same problems. Exit code 1: it may not replace it.

It may if mean and median efficiency stay within 0.5 points, P10 within 2, and no problem loses more than 10 %.
Problems that either was trained on, and those with a single measured kernel, do not count.
"""
_WORST = 5
_FEWER = "set --min-problems"
_MIN_PROBLEMS = typer.Option(LEAST_PROBLEMS, "--min-problems", min=1, help="Least problems that a verdict rests on.")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    group = typer.Typer(
        name="validate",
        help="Compare choices with an oracle, a new model with an old one; try kernels. The exit code is the verdict.",
        epilog=examples(
            "ckh validate oracle --model models/mine --data holdout.parquet",
            "ckh validate compare models/old models/new --data holdout.parquet",
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
    group.command(
        name="compare",
        help=_COMPARE_HELP,
        epilog=examples(
            "ckh validate compare models/old models/new --data holdout.parquet",
            "ckh validate compare models/old models/new --data holdout.parquet --max-p10-loss 0.01 --json",
        ),
    )(compare)
    _validate_kernels.register(group)
    app.add_typer(group)


def oracle(
    model: Path = typer.Option(..., "--model", "-m", autocompletion=_completion.models, help="Model directory."),
    data: list[Path] = typer.Option(..., "--data", help="Measured hold-out; may be repeated."),
    min_mean: float = typer.Option(0.90, "--min-mean", min=0, max=1, help="Least mean efficiency."),
    min_p10: float = typer.Option(0.75, "--min-p10", min=0, max=1, help="Least P10 efficiency."),
    min_problems: int = _MIN_PROBLEMS,
    top_k: int = typer.Option(5, "--top-k", min=1, max=50, help="How many choices to look at."),
    on_device: bool = typer.Option(False, "--on-device", help="Measure choices and oracle again."),
    limit: int | None = typer.Option(None, "--limit", min=1, help="Measure again on this many random problems."),
    seed: int = typer.Option(0, "--seed", help="Which random problems."),
    timeout: str = typer.Option("30s", "--timeout", metavar="TIME", help="Longest for one kernel on one problem."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Judge, print and give the verdict."""
    import numpy as np

    from ckh.assess.measured import times_of
    from ckh.assess.metrics import choices
    from ckh.assess.metrics import top_k as first_k
    from ckh.learn.artifact import load_model

    loaded = load_model(model)
    if limit is not None and limit < min_problems:
        raise UsageError(f"--limit {limit} leaves fewer than the {min_problems} problems that a verdict takes", _FEWER)
    dataset = for_verdict(load_judged(loaded, data, is_held_out=False), [loaded], min_problems)
    scores = loaded.scores(dataset)
    times = times_of(dataset)
    if on_device:
        from ckh.assess.oracle import contests

        again = _measure_again(loaded, _some(contests(dataset, scores, top_k), limit, seed), parse_duration(timeout))
        efficiency = np.array([one.first_efficiency for one in again])
        figures = _figures_again(again, top_k)
    else:
        efficiency = times.efficiency()[choices(scores, times.problem, times.count)]
        (of_k,) = first_k(times, scores, [top_k])
        (of_1,) = first_k(times, scores, [1])
        figures = {
            "first choice is a best kernel": of_1.hit,
            f"a best kernel is in the first {top_k}": of_k.hit,
            f"mean efficiency of the best of {top_k}": of_k.efficiency_mean,
        }
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
        print_json({**document, "failures": failures, "passes": not failures})
    else:
        how = "measured again on this machine" if on_device else "as measured in the data"
        print_table(
            f"{model}: {len(efficiency)} problems, {how}", ("", "value"), [[k, percent(v)] for k, v in figures.items()]
        )
    _verdict(failures)


def compare(
    old: Path = typer.Argument(
        ..., metavar="OLD", autocompletion=_completion.models, help="Model directory that is in use."
    ),
    new: Path = typer.Argument(
        ..., metavar="NEW", autocompletion=_completion.models, help="Model directory that would replace it."
    ),
    data: list[Path] = typer.Option(..., "--data", help="Measured hold-out; may be repeated."),
    max_mean_loss: float = typer.Option(0.005, "--max-mean-loss", min=0, max=1, help="Of mean efficiency."),
    max_median_loss: float = typer.Option(0.005, "--max-median-loss", min=0, max=1, help="Of median efficiency."),
    max_p10_loss: float = typer.Option(0.02, "--max-p10-loss", min=0, max=1, help="Of P10 efficiency."),
    max_problem_loss: float = typer.Option(0.10, "--max-problem-loss", min=0, max=1, help="Of one problem, relative."),
    min_problems: int = _MIN_PROBLEMS,
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Compare, print and give the verdict."""
    from ckh.assess import compare as comparing
    from ckh.learn.artifact import load_model

    before, after = load_model(old), load_model(new)
    if before.spec.purpose != after.spec.purpose:
        raise UsageError(f"{old} is for {before.spec.purpose}, {new} for {after.spec.purpose}: they cannot be compared")
    dataset = for_verdict(load_judged(after, data, is_held_out=False), [before, after], min_problems)
    thresholds = comparing.Thresholds(max_mean_loss, max_median_loss, max_p10_loss, max_problem_loss)
    result = comparing.compare(dataset, before.scores(dataset), after.scores(dataset), thresholds)
    if as_json:
        document: dict[str, Any] = asdict(result)
        print_json({"old": str(old), "new": str(new), **document, "passes": result.passes})
    else:
        _print_comparison(result, f"{old} -> {new}")
    _verdict(result.failures)


def _verdict(failures: Sequence[str]) -> None:
    for failure in failures:
        warn(failure)
    note("FAIL" if failures else "PASS")
    if failures:
        raise typer.Exit(int(ExitCode.GATE_FAILED))


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


def _print_comparison(result: Comparison, title: str) -> None:
    rows = [[one.name, percent(one.old), percent(one.new), f"{one.new - one.old:+.2%}"] for one in result.differences]
    print_table(f"{title}: {result.problems} problems", ("efficiency", "old", "new", "difference"), rows)
    counts = f"{result.improved} improved, {result.same} same, {len(result.degraded)} degraded"
    typer.echo(f"\nsame choice on {percent(result.agreement)} of problems; {counts}")
    if result.degraded:
        typer.echo("")
        worst = [
            [one.problem, percent(one.old_efficiency), percent(one.new_efficiency)] for one in result.degraded[:_WORST]
        ]
        print_table("", ("degraded most", "old", "new"), worst)
