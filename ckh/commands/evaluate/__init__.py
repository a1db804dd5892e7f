"""`ckh evaluate`: scores a model on measured problems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.cluster.connection import CLUSTER_HELP
from ckh.commands._common import JSON_HELP, examples, print_json, say
from ckh.commands._judging import AMONG, LEARNED_FROM, MODEL, figure_values
from ckh.errors import ExitCode, UsageError
from ckh.learn.judging.judged_data import LEAST_PROBLEMS, MOST_UNSTABLE, Among, judged_model
from ckh.text.log import note, warn

if TYPE_CHECKING:
    from ckh.api.evaluating import Evaluated
    from ckh.commands.evaluate.hits import EvaluateWinnersDocument
    from ckh.commands.evaluate.output import EvaluateDocument

_HELP = """Evaluate predict's choices on a dataset: efficiency is the best measured time over the chosen kernel's.

The evaluated choice is the first kernel of `ckh predict` among all candidates. Figures are over the problems whose
choice was measured; counted beside them are refused problems, unmeasured choices, and problems whose fastest measured
kernel is not a candidate. Coverage is the share of problems whose choice was measured and whose fastest measured kernel
is a candidate. If only a sample of the kernels was measured, --among measured ranks the measured ones only.

Efficiency is reported over all problems with 95 % confidence intervals, for the first k choices, by slice, and beside
baselines: the nearest problem and the best single kernel of the training data, the best single kernel in hindsight, a
random kernel. If pairs were measured repeatedly, kernels within the noise of the best count as equal to it, and choices
are compared with those of a repeated measurement: selected on one, scored on the other. --fail-under makes it a gate:
coverage, mean_efficiency, geomean_efficiency, p50_efficiency, p10_efficiency, p5_efficiency, min_efficiency.

For a model of winners (`ckh train --labels winners`) the report has the hit rates: how often the measured winner ranks
first, or among the first choices, of all candidates; a near-tie counts as a miss. The baseline is the most frequent
winner at this size in the training data, with a lower bound of the efficiency from measured times of other sizes.
Gates: top1, top3, top5, top10, and coverage, the share of winners that are candidates.

Training problems of the model are excluded (unknown for models of AMD's tools) unless --with-trained is given; data
without other problems are refused, and data with too many unstable times. Layers trained on at another batch size are a
slice. Gates ignore problems with a single measured kernel. With fewer than --min-problems problems, or fewer measured
choices for a gate of efficiency, there is no verdict, and exit code 4.
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="evaluate",
        help=_HELP,
        epilog=examples(
            "ckh evaluate --model models/mine --data holdout.parquet",
            "ckh evaluate --model models/mine --data holdout.parquet --train-data train.parquet --worst 10",
            "ckh evaluate --model models/mine --data holdout.parquet --train-data train.parquet --amd-recipe",
            "ckh evaluate --model models/mine --data holdout.parquet --fail-under p10_efficiency=0.85 --json",
        ),
    )(evaluate)


def evaluate(
    model: Path | None = MODEL,
    data: list[Path] = typer.Option(..., "--data", help="Measured dataset to evaluate on; may be repeated."),
    train_data: list[Path] = typer.Option([], "--train-data", help=LEARNED_FROM),
    fail_under: list[str] = typer.Option(
        [], "--fail-under", metavar="FIGURE=VALUE", help="Exit code 1 if a figure is lower; may be repeated."
    ),
    min_problems: int | None = typer.Option(
        None, "--min-problems", min=1, help=f"Minimum number of problems for a gate.  [{LEAST_PROBLEMS}]"
    ),
    among: Among = AMONG,
    with_trained: bool = typer.Option(False, "--with-trained", help="Include problems of the training data."),
    max_unstable: float = typer.Option(
        MOST_UNSTABLE, "--max-unstable", min=0, max=1, help="Maximum share of unstable times in the data."
    ),
    amd_recipe: bool = typer.Option(
        False, "--amd-recipe", help="Add a baseline trained with AMD's recipe on --train-data (minutes)."
    ),
    worst: int = typer.Option(0, "--worst", min=0, help="Number of worst choices to list."),
    cluster: str | None = typer.Option(None, "--cluster", metavar="ADDRESS", help=CLUSTER_HELP),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Evaluate, print the report, and apply the gate."""
    from ckh.api.evaluating import COVERAGE, EvaluateOptions, evaluated, is_of_winners
    from ckh.assess.metrics import FIGURES
    from ckh.assess.winners import FIRST

    loaded = judged_model(model, data)
    is_winners = is_of_winners(loaded, None)
    known = (COVERAGE, *(tuple(f"top{k}" for k in FIRST) if is_winners else FIGURES))
    gates = list(figure_values("--fail-under", fail_under, known))
    if not gates and min_problems is not None:
        raise UsageError("--min-problems needs a gate", "add --fail-under FIGURE=VALUE", code="inapplicable-option")
    least = min_problems or LEAST_PROBLEMS
    options = EvaluateOptions(
        tuple(train_data), among, with_trained, max_unstable, amd_recipe, cluster, least if gates else None
    )
    result = evaluated(loaded, data, options, of_winners=is_winners)
    if any(name != COVERAGE for name, _ in gates):
        _require_judged(result, least)
    values = result.figures
    failures = [f"{name} is {values[name]:.4f}, under {low:g}" for name, low in gates if not values[name] >= low]
    if as_json:
        print_json(replace(_document(result, worst), failures=tuple(failures)))
    else:
        _print(result, worst)
    for failure in failures:
        warn(failure, "gate")
    if gates and not failures:
        note("all gates passed")
    if failures:
        raise typer.Exit(int(ExitCode.GATE_FAILED))


def _require_judged(evaluated: Evaluated, least: int) -> None:
    """Refuse an efficiency gate with too few measured choices."""
    from ckh.assess.compare import too_few_choices
    from ckh.assess.report import Evaluation

    if isinstance(evaluated.result, Evaluation) and evaluated.result.coverage.judged < least:
        raise too_few_choices(evaluated.result.coverage.judged, evaluated.result.coverage.problems, least)


def _document(evaluated: Evaluated, worst: int) -> EvaluateDocument | EvaluateWinnersDocument:
    from ckh.assess.report import Evaluation
    from ckh.commands.evaluate import hits, output

    if isinstance(evaluated.result, Evaluation):
        return output.document(
            evaluated.result, evaluated.model, evaluated.among, evaluated.times, evaluated.figures, worst
        )
    return hits.document(evaluated.result, evaluated.model, evaluated.among, evaluated.figures, worst)


def _print(evaluated: Evaluated, worst: int) -> None:
    from ckh.assess.report import Evaluation
    from ckh.commands.evaluate import hits, output

    title = str(evaluated.model.path)
    if not isinstance(evaluated.result, Evaluation):
        hits.print_report(evaluated.result, title, worst)
        return
    output.print_report(evaluated.result, evaluated.model.spec, title, worst)
    if evaluated.times is not None:
        say("\n" + "\n".join(evaluated.times.lines()))
