"""`ckh evaluate`: scores a model on measured problems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, examples, import_lightgbm, print_json, print_table, say
from ckh.errors import ExitCode, UsageError
from ckh.learn.judging.judged_data import (
    LEAST_COVERAGE,
    LEAST_PROBLEMS,
    MOST_UNSTABLE,
    Among,
    judged_model,
    measure_again,
    percent,
)
from ckh.text.log import MEASURED, note, warn
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.api.evaluating import Evaluated
    from ckh.assess.report import Choice, Evaluation
    from ckh.assess.winners import Hits, WinnerReport

_HELP = """Evaluate predict's choices on a dataset: efficiency is the best measured time over the chosen kernel's.

The evaluated choice is the first kernel of `ckh predict` among all candidates. Figures are over the problems whose
choice was measured; counted beside them are refused problems, unmeasured choices, and problems whose fastest measured
kernel is not a candidate. Coverage is the share of problems whose choice was measured and whose fastest measured kernel
is a candidate. If only a sample of the kernels was measured, --among measured ranks the measured ones only.

Efficiency is reported over all problems with 95 % confidence intervals, for the first k choices, by slice, and beside
baselines: the nearest problem and the best single kernel of the training data, and a random
kernel. If pairs were measured repeatedly, kernels within the noise of the best count as equal to it, and choices
are compared with those of a repeated measurement: selected on one, scored on the other. --fail-under makes it a gate:
coverage, mean_efficiency, geomean_efficiency, p50_efficiency, p10_efficiency, p5_efficiency, min_efficiency.

Of a problem with a single kernel of a tuner, or a model of winners (`ckh train --labels winners`), only the winner is
known. Of these the report has the hit rates: how often the winner ranks first, or among the first choices, of all
candidates; a near-tie counts as a miss. The baseline is the most frequent winner at this size in the training data.
Gates: top1, top3, top5, top10, and coverage, the share of winners that are candidates. Times of different runs of a
tuner are never compared.

Training problems of the model are excluded (unknown for models of AMD's tools) unless --with-trained is given; data
without other problems are refused, and data with too many unstable times. Layers trained on at another batch size are a
slice. Gates ignore problems with a single measured kernel, and fail if coverage is below 0.8, unless one names another.
With fewer than --min-problems problems, or fewer measured choices for a gate of efficiency, there is no verdict, and
exit code 4.
"""
# Options of validate and report, too.
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
_NOT_LEARNED = (
    "baselines from training data (nearest problem, best fixed kernel) are missing: name the data with --train-data"
)
_BEST_RANKED = "best-ranked measured kernel"
_LEAST_HEADLINE = 0.5  # coverage below which figures of the measured choices are not the first row


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
    worst: int = typer.Option(0, "--worst", min=0, help="Number of worst choices to list."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Evaluate, print the report, and apply the gate."""
    from ckh.api.evaluating import EvaluateOptions, document_of, evaluated
    from ckh.assess.report import Evaluation

    if among is Among.MEASURED:  # whose rows LightGBM scores
        import_lightgbm()
    loaded = judged_model(model, data)
    gates = _gates(fail_under, among)
    if not gates and min_problems is not None:
        raise UsageError("--min-problems needs a gate", "add --fail-under FIGURE=VALUE", code="inapplicable-option")
    least = min_problems or LEAST_PROBLEMS
    options = EvaluateOptions(tuple(train_data), among, with_trained, max_unstable, least if gates else None)
    judged = evaluated(loaded, data, options)
    report, figures = judged.result, judged.figures
    _check_gates(judged, {name for name, _ in gates}, least)
    failures = tuple(f"{name} is {figures[name]:.4f}, under {low:g}" for name, low in gates if not figures[name] >= low)
    if as_json:
        print_json(document_of(judged, worst, failures))
    elif isinstance(report, Evaluation):
        _print_report(judged, report, worst)
        if judged.winners is not None:
            say()
            _print_hits(judged.winners, str(loaded.path), worst)
    else:
        _print_hits(report, str(loaded.path), worst)
    for failure in failures:
        warn(failure, "gate")
    if failures:
        raise typer.Exit(int(ExitCode.GATE_FAILED))
    if gates:
        note("all gates passed")


def _gates(texts: Sequence[str], among: Among) -> list[tuple[str, float]]:
    """The gates, with one of coverage where they are of efficiencies of predict's choices."""
    from ckh.api.evaluating import COVERAGE
    from ckh.assess.metrics import FIGURES
    from ckh.assess.winners import FIRST

    gates = list(figure_values("--fail-under", texts, (COVERAGE, *FIGURES, *(f"top{k}" for k in FIRST))))
    is_covered = not {*dict(gates)} & {*FIGURES} or among is Among.MEASURED or COVERAGE in dict(gates)
    return gates if is_covered else [*gates, (COVERAGE, LEAST_COVERAGE)]


def _check_gates(judged: Evaluated, names: set[str], least: int) -> None:
    """Refuse gates of figures that the data do not have, and of efficiencies of too few choices."""
    from ckh.assess.compare import too_few_choices
    from ckh.assess.metrics import FIGURES
    from ckh.assess.report import Evaluation

    if isinstance(judged.result, Evaluation) and names & {*FIGURES}:
        coverage = judged.result.coverage
        if coverage.judged < least:
            raise too_few_choices(coverage.judged, coverage.problems, least)
    if unknown := sorted(names - {*judged.figures}):
        known = ", ".join(judged.figures)
        raise UsageError(f"--fail-under: {unknown[0]} is unknown of these data", f"known: {known}", code="unknown-name")


def figure_values(option: str, texts: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield the figures and values of an option FIGURE=VALUE, shares from 0 to 1."""
    for text in texts:
        name, _, stated = text.partition("=")
        if name not in known:
            raise UsageError(f"{option} {text!r}: unknown figure {name!r}", one_of(name, known), code="unknown-name")
        try:
            share = float(stated)
        except ValueError:
            share = float("nan")
        if not 0 <= share <= 1:
            raise UsageError(
                f"{option} {text!r}: {stated!r} is not a number from 0 to 1", f"write {name}=0.85", code="out-of-range"
            )
        yield name, share


def _print_report(evaluated: Evaluated, report: Evaluation, worst: int) -> None:
    from ckh.api.evaluating import worst_first

    coverage, choosers = report.coverage, [("model", report.efficiency)]
    is_complete = coverage.judged == coverage.problems
    if not is_complete:
        is_headline = coverage.coverage < _LEAST_HEADLINE
        choosers.insert(0 if is_headline else 1, (_BEST_RANKED, report.best_ranked_measured))
    rows = []
    for name, chosen in (*choosers, *report.baselines.items()):
        if chosen is not None:
            middle = [percent(figure.value) for figure in (chosen.geomean, chosen.p50, chosen.p10, chosen.p5)]
            count = [] if is_complete else [f"{chosen.problems} of {coverage.problems}"]
            rows.append([name, *count, percent(chosen.mean.value), chosen.mean.interval, *middle, percent(chosen.min)])
    counted = () if is_complete else ("problems",)
    columns = ("efficiency", *counted, "mean", "95 % interval", "geomean", "P50", "P10", "P5", "min")
    judged = "" if is_complete else f", {coverage.judged} with a measured choice"
    title = f"{evaluated.model.path}: {report.rows} rows, {coverage.problems} problems{judged}"
    print_table(title, columns, rows, {"mean": MEASURED})
    if not is_complete and report.best_ranked_measured is not None:
        say(f"{_BEST_RANKED}: of the kernels that were measured, the one that the model ranks first")
    for line in (*_lines(report), ""):
        say(line)
    _print_first(report)
    say()
    slices = []
    for part in report.slices:
        interval = f"{percent(part.low)} - {percent(part.high)}"
        figures = [str(part.problems), percent(part.mean), interval, percent(part.p10), percent(part.min)]
        slices.append([f"{part.kind}: {part.name}", *figures])
    print_table("", ("slice", "problems", "mean", "95 % interval", "P10", "min"), slices)
    if worst:
        _print_worst(evaluated, worst_first(report.choices)[:worst])
    if evaluated.times is not None:
        say("\n" + "\n".join(evaluated.times.lines()))


def _lines(report: Evaluation) -> list[str]:
    """Sentences on coverage, baselines and noise."""
    from ckh.assess.noise import noise_lines
    from ckh.assess.report import FIXED

    lines = report.coverage.lines()
    if FIXED not in report.baselines:
        lines.append(_NOT_LEARNED)
    lines += noise_lines(report.noise, report.ceiling)
    if report.unstable:
        lines.append(f"{percent(report.unstable)} of the times are unstable: their samples spread by more than 5 %")
    return lines


def _print_first(report: Evaluation) -> None:
    """Print the efficiency of the first k choices, with the number of problems with unmeasured choices."""
    columns = ["first k choices", "with a best kernel", "mean of the best", "P10 of the best"]
    rows = [[str(k.k), percent(k.hit), percent(k.efficiency_mean), percent(k.efficiency_p10)] for k in report.top]
    if any(k.problems < report.coverage.problems for k in report.top):
        columns.insert(1, "problems")
        for row, k in zip(rows, report.top, strict=True):
            row.insert(1, str(k.problems))
    print_table("", columns, rows)


def _print_worst(evaluated: Evaluated, ranked: Sequence[Choice]) -> None:
    say()
    rows = [
        [
            choice.problem,
            "never measured" if choice.efficiency is None else percent(choice.efficiency),
            choice.kernel or "refused",
            choice.best_kernel,
        ]
        for choice in ranked
    ]
    print_table("", ("worst choices", "efficiency", "chosen", "best"), rows)
    if command := measure_again([choice.problem for choice in ranked], evaluated.model.spec):
        say(f"\nmeasure them again: {command}")


def _print_hits(report: WinnerReport, title: str, worst: int) -> None:
    """Print the hit rates of winners as tables."""
    from ckh.api.evaluating import missed_first
    from ckh.assess.winners import FIRST

    columns = ("problems", *(f"first {k}" if k > 1 else "first" for k in FIRST))

    def row(hits: Hits) -> list[str]:
        return [hits.name, str(hits.problems), *(percent(share) for share in hits.first.values())]

    rows = [row(hits) for hits in (report.model, report.baseline) if hits is not None]
    print_table(f"{title}: hit rate of the measured winner among the first choices", ("", *columns), rows)
    if report.coverage < 1:
        counts = f"refused: {report.refused}; the winner is not a candidate: {report.winner_no_candidate}"
        say(f"coverage {percent(report.coverage)}: problems whose winner is a candidate of predict\n  {counts}")
    say("near-ties count as misses: times of the other kernels are unknown")
    say()
    print_table("", ("slice", *columns), [row(hits) for hits in report.slices])
    if worst:
        say()
        lines = [
            [choice.problem, "-" if choice.place is None else str(choice.place + 1), choice.kernel, choice.winner]
            for choice in missed_first(report)[:worst]
        ]
        print_table("", ("worst choices", "rank of the winner", "chosen", "winner"), lines)
