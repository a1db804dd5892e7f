"""`ckh evaluate`: scores a model on measured problems."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.cluster.connection import CLUSTER_HELP, connected
from ckh.commands._common import JSON_HELP, examples, print_json, say
from ckh.commands._judging import (
    AMONG,
    LEARNED_FROM,
    LEAST_PROBLEMS,
    MODEL,
    MOST_UNSTABLE,
    Among,
    files_learned_from,
    for_verdict,
    held_out,
    is_copy,
    judged_model,
    load_judged,
    refuse_unstable,
)
from ckh.errors import ExitCode, UsageError
from ckh.text.log import note, warn
from ckh.text.prose import one_of
from ckh.training import Labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.assess.ranked_rows import Coverage, RankedRows
    from ckh.assess.times import Scorer
    from ckh.commands.evaluate.hits import EvaluateWinnersDocument
    from ckh.commands.evaluate.output import EvaluateDocument
    from ckh.data.dataset import Dataset
    from ckh.data.parts import DatasetParts
    from ckh.learn.judging.predicted_times import TimeRatios
    from ckh.learn.models.artifact import Model

    # A part's rows in the model's order, and its measured over predicted times.
    Judging = Callable[[Dataset], tuple[RankedRows, TimeRatios]]

COVERAGE = "coverage"  # the gate
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
    labels: Labels | None = typer.Option(
        None, "--labels", help="Labels of the data: times or winners.  [those of the model]"
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
    from ckh.learn.models.manifest import labels_of

    loaded = judged_model(model, data)
    is_winners = (labels or labels_of(loaded.path)) is Labels.WINNERS
    gates = [_parse_gate(text, is_winners=is_winners) for text in fail_under]
    if not gates and min_problems is not None:
        raise UsageError("--min-problems needs a gate", "add --fail-under FIGURE=VALUE", code="inapplicable-option")
    if is_winners and cluster is not None:
        raise UsageError("--cluster is not used for winners", "leave out --cluster", code="conflicting-options")
    if is_winners and among is Among.MEASURED:
        raise UsageError(
            "--among measured needs times, not winners alone",
            "leave out --among",
            code="conflicting-options",
        )
    parts = load_judged(loaded, data)
    if gates:
        least = min_problems or LEAST_PROBLEMS
        parts = for_verdict(parts, [loaded], least, with_trained=with_trained, of_winners=is_winners)
    else:
        parts = held_out(parts, [loaded], with_trained=with_trained)
    refuse_unstable(parts, max_unstable)
    train_data = files_learned_from(loaded, train_data, data)
    learned_from = load_judged(loaded, train_data) if train_data else None
    document: EvaluateDocument | EvaluateWinnersDocument
    if is_winners:
        document, show = _judge_winners(loaded, parts, learned_from, among, worst)
    else:
        others = _amd_recipe(loaded, learned_from) if amd_recipe else {}
        with _judging(loaded, parts, cluster, among) as judging:
            of_times, show = _judge_times(loaded, parts, learned_from, others, judging, among, worst)
        _require_judged(gates, of_times.coverage, min_problems or LEAST_PROBLEMS)
        document = of_times
    values = document.figures
    failures = [f"{name} is {values[name]:.4f}, under {least:g}" for name, least in gates if not values[name] >= least]
    if as_json:
        print_json(replace(document, failures=tuple(failures)))
    else:
        show(str(loaded.path))
    for failure in failures:
        warn(failure, "gate")
    if gates and not failures:
        note("all gates passed")
    if failures:
        raise typer.Exit(int(ExitCode.GATE_FAILED))


def _amd_recipe(model: Model, learned_from: DatasetParts | None) -> dict[str, Scorer]:
    """Baseline trained with AMD's recipe: its name in the report -> scorer."""
    import os

    from ckh.learn.judging.amd_recipe import amd_scorer

    if learned_from is None:
        raise UsageError(
            "--amd-recipe needs training data",
            "name them with --train-data",
            code="missing-option",
        )
    if not model.spec.op.training.amd_features:
        raise UsageError(f"AMD has no recipe for {model.spec.op_type}", "leave out --amd-recipe", code="unsupported")
    jobs = len(os.sched_getaffinity(0))
    return {"AMD's recipe, same data": amd_scorer(learned_from.whole(), model.hardware, jobs)}


def _require_judged(gates: Sequence[tuple[str, float]], coverage: Coverage, least: int) -> None:
    """Refuse a gate of efficiency with too few measured choices.

    Raises:
        DataError: fewer than the least were measured.
    """
    from ckh.assess.compare import too_few_choices

    if coverage.judged < least and any(name != COVERAGE for name, _ in gates):
        raise too_few_choices(coverage.judged, coverage.problems, least)


@contextmanager
def _judging(model: Model, parts: DatasetParts, cluster: str | None, among: Among) -> Iterator[Judging]:
    """Function that ranks the rows of each part in turn, with the ratios of measured to predicted time."""
    from ckh.learn.judging.judged_answers import judged_rows

    measured_alone = among is Among.MEASURED
    if cluster is not None:
        from ckh.learn.analytic.transfer import EstimateModel
        from ckh.learn.judging.judged_answers import FarAnswers

        if isinstance(model, EstimateModel):
            raise UsageError(
                "--cluster needs a model, not an estimate", "leave out --cluster", code="conflicting-options"
            )
        with connected(cluster) as nodes:  # noqa: SIM117 - in one it is too long
            with closing(FarAnswers(nodes, model, parts, measured_alone=measured_alone)) as far:
                yield lambda _part: far.next()
        return
    yield lambda part: judged_rows(model, part, measured_alone=measured_alone)


def _judge_times(
    model: Model,
    parts: DatasetParts,
    learned_from: DatasetParts | None,
    others: dict[str, Scorer],
    judging: Judging,
    among: Among,
    worst: int,
) -> tuple[EvaluateDocument, Callable[[str], None]]:
    """The document, and what prints the result under a title."""
    from ckh.assess import report
    from ckh.assess.baselines import Learned
    from ckh.assess.metrics import figures
    from ckh.commands.evaluate.output import document, print_report
    from ckh.learn.judging.predicted_times import time_errors

    ratios = []

    def rank(part: Dataset) -> RankedRows:
        ranked, of_part = judging(part)
        ratios.append(of_part)
        return ranked

    learned = None if learned_from is None else Learned(learned_from)
    result = report.evaluate(parts, rank, learned, others, is_copy=is_copy(parts, model, learned_from))
    values = {COVERAGE: result.coverage.coverage}
    values |= {} if result.efficiency is None else figures(result.efficiency)
    times = time_errors(ratios)

    def show(title: str) -> None:
        print_report(result, model.spec, title, worst)
        if times is not None:
            say("\n" + "\n".join(times.lines()))

    return document(result, model, among, times, values, worst), show


def _judge_winners(
    model: Model, parts: DatasetParts, learned_from: DatasetParts | None, among: Among, worst: int
) -> tuple[EvaluateWinnersDocument, Callable[[str], None]]:
    """Evaluation by winners, of one or two rows per problem, in memory."""
    from ckh.assess import winners
    from ckh.commands.evaluate.hits import document, print_report
    from ckh.learn.training.rivals import ranked_winners

    dataset, known = parts.whole(), None if learned_from is None else learned_from.whole()
    result = winners.report(dataset, ranked_winners(dataset, model), known)
    figures = {f"top{k}": share for k, share in result.model.first.items()} | {COVERAGE: result.coverage}
    return document(result, model, among, figures, worst), lambda title: print_report(result, title, worst)


def _parse_gate(text: str, *, is_winners: bool) -> tuple[str, float]:
    from ckh.assess.metrics import FIGURES
    from ckh.assess.winners import FIRST

    known = (COVERAGE, *(tuple(f"top{k}" for k in FIRST) if is_winners else FIGURES))
    name, _, value = text.partition("=")
    if name not in known:
        raise UsageError(f"--fail-under {text!r}: unknown figure {name!r}", one_of(name, known), code="unknown-name")
    try:
        least = float(value)
    except ValueError:
        least = float("nan")
    if not 0 <= least <= 1:
        raise UsageError(
            f"--fail-under {text!r}: {value!r} is not a number from 0 to 1", f"write {name}=0.85", code="out-of-range"
        )
    return name, least
