"""`ckh evaluate`: scores a model on measured problems."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, examples, print_json, print_table
from ckh.commands._judging import LEAST_PROBLEMS, for_verdict, load_judged, percent
from ckh.errors import ExitCode, UsageError
from ckh.log import note, warn
from ckh.training import Labels

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.assess.metrics import Efficiency
    from ckh.assess.report import Evaluation
    from ckh.data.dataset import Dataset
    from ckh.learn.artifact import Model

_HELP = """Measure a model's choices on a dataset: efficiency is the best measured time over the chosen kernel's.

Told in the whole with 95 % intervals, for the first k choices, by slice, and beside baselines: the nearest problem and
the best single kernel of the training data, the best single kernel in hindsight, a random one. --fail-under makes it
a gate: mean_efficiency, geomean_efficiency, p50_efficiency, p10_efficiency, p5_efficiency, min_efficiency.

Of a model of winners (`ckh train --labels winners`) it is told how often the measured winner is first, or among the
first choices, of all candidates; a near-tie counts as a miss. Beside it stands the kernel that wins most at this size
in the training data, and what measured times of other sizes say of the efficiency, at least. Gates: top1, top3, top5,
top10.

A gate does not count problems that the model was trained on (for models of AMD's tools this cannot be known, and is
said), unless --with-trained says so, nor those with a single measured kernel. Where fewer than --min-problems are left,
there is no verdict, and exit code 4.
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="evaluate",
        help=_HELP,
        epilog=examples(
            "ckh evaluate --model models/mine --data holdout.parquet",
            "ckh evaluate --model models/mine --data holdout.parquet --train-data train.parquet --worst 10",
            "ckh evaluate --model models/mine --data holdout.parquet --fail-under p10_efficiency=0.85 --json",
        ),
    )(evaluate)


def evaluate(
    model: Path = typer.Option(..., "--model", "-m", autocompletion=_completion.models, help="Model directory."),
    data: list[Path] = typer.Option(..., "--data", help="Measured dataset to judge on; may be repeated."),
    train_data: list[Path] = typer.Option([], "--train-data", help="What the baselines learn from."),
    fail_under: list[str] = typer.Option(
        [], "--fail-under", metavar="FIGURE=VALUE", help="Exit with 1 if a figure is lower; may be repeated."
    ),
    labels: Labels | None = typer.Option(
        None, "--labels", help="What the data know: times, or winners alone.  [what the model was trained on]"
    ),
    min_problems: int | None = typer.Option(
        None, "--min-problems", min=1, help=f"Least problems that a gate rests on.  [{LEAST_PROBLEMS}]"
    ),
    with_trained: bool = typer.Option(False, "--with-trained", help="A gate counts problems of the training data too."),
    worst: int = typer.Option(0, "--worst", min=0, help="List this many of the worst choices."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Evaluate, print, and be the gate."""
    from ckh.learn.artifact import load_model
    from ckh.learn.manifest import labels_of

    loaded = load_model(model)
    is_winners = (labels or labels_of(loaded.path)) is Labels.WINNERS
    gates = [_parse_gate(text, is_winners=is_winners) for text in fail_under]
    if not gates and (min_problems is not None or with_trained):
        raise UsageError("--min-problems and --with-trained are for gates", "add --fail-under FIGURE=VALUE")
    dataset = load_judged(loaded, data, is_held_out=not gates)
    if gates:
        least = min_problems or LEAST_PROBLEMS
        dataset = for_verdict(dataset, [loaded], least, with_trained=with_trained, of_winners=is_winners)
    learned_from = load_judged(loaded, train_data, is_held_out=False) if train_data else None
    judged = _judge_winners if is_winners else _judge_times
    document, values, show = judged(loaded, dataset, learned_from, worst)
    failures = [f"{name} is {values[name]:.4f}, under {least:g}" for name, least in gates if not values[name] >= least]
    if as_json:
        schema = "evaluate_winners" if is_winners else "evaluate"
        print_json(schema, {"model": str(model), **document, "figures": values, "failures": failures})
    else:
        show(str(model))
    for failure in failures:
        warn(failure)
    if gates and not failures:
        note("all gates passed")
    if failures:
        raise typer.Exit(int(ExitCode.GATE_FAILED))


def _judge_times(
    model: Model, dataset: Dataset, learned_from: Dataset | None, worst: int
) -> tuple[dict[str, Any], dict[str, float], Callable[[str], None]]:
    """The document, the figures that gates use, and what prints the result under a title."""
    from ckh.assess import report
    from ckh.assess.metrics import figures

    result = report.evaluate(dataset, model.scores(dataset), learned_from)
    return _document(result, worst), figures(result.efficiency), lambda title: _print(result, title, worst)


def _judge_winners(
    model: Model, dataset: Dataset, learned_from: Dataset | None, worst: int
) -> tuple[dict[str, Any], dict[str, float], Callable[[str], None]]:
    """The same where only winners are known."""
    from ckh.assess import winners
    from ckh.commands._winners_output import document, print_report
    from ckh.learn.winners import ranked_winners

    result = winners.report(dataset, ranked_winners(dataset, model), learned_from)
    figures = {f"top{k}": share for k, share in result.model.first.items()}
    return document(result, worst), figures, lambda title: print_report(result, title, worst)


def _parse_gate(text: str, *, is_winners: bool) -> tuple[str, float]:
    from ckh.assess.metrics import FIGURES
    from ckh.assess.winners import FIRST

    known = tuple(f"top{k}" for k in FIRST) if is_winners else FIGURES
    name, _, value = text.partition("=")
    if name not in known:
        raise UsageError(f"--fail-under {text!r}: unknown figure {name!r}", "one of " + ", ".join(known))
    try:
        least = float(value)
    except ValueError:
        least = float("nan")
    if not 0 <= least <= 1:
        raise UsageError(f"--fail-under {text!r}: {value!r} is no number from 0 to 1", f"write {name}=0.85")
    return name, least


def _document(result: Evaluation, worst: int) -> dict[str, Any]:
    from ckh.assess.report import HINDSIGHT

    document = asdict(result)
    document["baselines"].setdefault(HINDSIGHT, None)  # unknown
    document["choices"] = sorted(document["choices"], key=lambda choice: choice["efficiency"])
    if worst:
        document["choices"] = document["choices"][:worst]
    return document


def _print(result: Evaluation, title: str, worst: int) -> None:
    from ckh.assess.report import HINDSIGHT

    columns = ("efficiency", "problems", "mean", "95 % interval", "geomean", "P50", "P10", "P5", "min")
    rows = [_row("model", result.efficiency), *(_row(name, one) for name, one in result.baselines.items())]
    print_table(f"{title}: {result.rows} rows", columns, rows)
    if HINDSIGHT not in result.baselines:
        typer.echo(f"{HINDSIGHT}: unknown, as no kernel was measured on every problem")
    typer.echo("")
    top = [[str(k.k), percent(k.hit), percent(k.efficiency_mean), percent(k.efficiency_p10)] for k in result.top]
    print_table("", ("first k choices", "hold a best kernel", "mean of the best", "P10 of the best"), top)
    typer.echo("")
    slices = [
        [f"{one.kind}: {one.name}", str(one.problems), percent(one.mean), percent(one.p10), percent(one.min)]
        for one in result.slices
    ]
    print_table("", ("slice", "problems", "mean", "P10", "min"), slices)
    if worst:
        typer.echo("")
        ranked = sorted(result.choices, key=lambda choice: choice.efficiency)[:worst]
        lines = [[one.problem, percent(one.efficiency), one.kernel, one.best_kernel] for one in ranked]
        print_table("", ("worst choices", "efficiency", "chosen", "best"), lines)


def _row(name: str, one: Efficiency) -> list[str]:
    interval = f"{percent(one.mean.low)} - {percent(one.mean.high)}"
    middle = [percent(part.value) for part in (one.geomean, one.p50, one.p10, one.p5)]
    return [name, str(one.problems), percent(one.mean.value), interval, *middle, percent(one.min)]
