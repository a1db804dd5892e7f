"""`ckh validate compare`: compare a new model with an old one, with the verdict as exit code."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, examples
from ckh.commands._judging import AMONG, MIN_PROBLEMS, figure_values
from ckh.commands.validate.verdicts import FORCE, JUNIT, SUMMARY, VerdictFiles, conclude, show
from ckh.documents import fields_of
from ckh.errors import UsageError
from ckh.learn.judging.judged_data import Among, for_verdict, load_judged, percent, ranker_of

if TYPE_CHECKING:
    from ckh.assess.compare import Comparison
    from ckh.assess.ranked_rows import Coverage
    from ckh.assess.verdict import Verdict, VerdictTable

_HELP = """Compare a new model with an old one on the same problems. Exit code 1: it must not replace the old one.

Each model's answer is evaluated, as `ckh predict --model` would give it, on the problems where both choices were
measured; the others are counted. If only a sample of the kernels was measured, --among measured ranks the measured ones
only.

The new model may replace the old one if mean and median efficiency drop by at most 0.5 points, P10 by at most 2, no
problem loses more than 10 %, and no problem is refused that the old model answers.
Training problems of either model, and problems with a single measured kernel, do not count.

Each difference has a 95 % confidence interval, from a paired bootstrap over problems: an interval that contains 0 may
be chance. The gate applies to the difference itself.
"""
_WORST = 5


def register(group: typer.Typer) -> None:
    """Add the command to `ckh validate`."""
    group.command(
        name="compare",
        help=_HELP,
        epilog=examples(
            "ckh validate compare models/old models/new --data holdout.parquet",
            "ckh validate compare models/old models/new --data holdout.parquet --max-loss p10=0.01 --json",
            "ckh validate compare models/old models/new --data holdout.parquet --junit junit.xml --summary summary.md",
        ),
    )(compare)


def compare(
    old: Path = typer.Argument(
        ..., metavar="OLD", autocompletion=_completion.models, help="Directory of the current model."
    ),
    new: Path = typer.Argument(
        ..., metavar="NEW", autocompletion=_completion.models, help="Directory of the new model."
    ),
    data: list[Path] = typer.Option(..., "--data", help="Measured hold-out; may be repeated."),
    max_loss: list[str] = typer.Option(
        [],
        "--max-loss",
        metavar="FIGURE=VALUE",
        help="Allowed loss of mean, median or p10 efficiency, or of a single problem, relative; may be repeated.  "
        "[mean=0.005, median=0.005, p10=0.02, problem=0.1]",
    ),
    min_problems: int = MIN_PROBLEMS,
    among: Among = AMONG,
    junit: Path | None = JUNIT,
    summary: Path | None = SUMMARY,
    force: bool = FORCE,
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Compare, print and give the verdict."""
    from ckh.assess import compare as comparing
    from ckh.learn.models.artifact import load_model

    known = [field.name for field in fields(comparing.Thresholds)]
    thresholds = comparing.Thresholds(**dict(figure_values("--max-loss", max_loss, known)))
    files = VerdictFiles(junit, summary)
    files.check(force=force, inputs=[old, new, *data])
    before, after = load_model(old), load_model(new)
    if before.spec.purpose != after.spec.purpose:
        raise UsageError(
            f"{old} is for {before.spec.purpose}, {new} for {after.spec.purpose}: not comparable",
            code="model-mismatch",
        )
    parts = for_verdict(load_judged(after, data), [before, after], min_problems)
    rankers = ranker_of(before, among), ranker_of(after, among)
    result = comparing.compare(parts, *rankers, thresholds, min_problems)
    verdict = _verdict(result, f"{old} -> {new}")
    document = comparing.CompareDocument(**fields_of(result), old=str(old), new=str(new), among=str(among))
    show(verdict, document, files, as_json=as_json)
    conclude(verdict)


def _verdict(result: Comparison, title: str) -> Verdict:
    from ckh.assess.verdict import Verdict

    counts = f"{result.improved} improved, {result.same} same, {len(result.degraded)} degraded"
    tables = [_differences(result)] + ([_degraded(result)] if result.degraded else [])
    return Verdict(
        command="ckh validate compare",
        title=f"{title}: {result.problems} problems",
        checks=result.checks,
        lines=(
            f"same choice on {percent(result.agreement)} of problems; {counts}",
            *_coverage_lines("old", result.old_coverage),
            *_coverage_lines("new", result.new_coverage),
        ),
        tables=tuple(tables),
    )


def _coverage_lines(name: str, coverage: Coverage) -> list[str]:
    """Lines on incomplete coverage of a model."""
    lines = coverage.lines()
    return [f"{name} model: {lines[0]}", *lines[1:]] if lines else []


def _differences(result: Comparison) -> VerdictTable:
    from ckh.assess.verdict import VerdictTable

    rows = [
        [
            difference.name,
            percent(difference.old),
            percent(difference.new),
            f"{difference.new - difference.old:+.2%}",
            f"{difference.low:+.2%} to {difference.high:+.2%}",
        ]
        for difference in result.differences
    ]
    return VerdictTable("", ("efficiency", "old", "new", "difference", "95 % interval"), rows)


def _degraded(result: Comparison) -> VerdictTable:
    from ckh.assess.verdict import VerdictTable

    worst = result.degraded[:_WORST]
    rows = [
        [degraded.problem, percent(degraded.old_efficiency), percent(degraded.new_efficiency)] for degraded in worst
    ]
    return VerdictTable("", ("degraded most", "old", "new"), rows)
