"""`ckh validate oracle`: compare a model's choices with the best measured kernel, in the data or measured again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.assess.verdict import Check, Verdict, VerdictTable
from ckh.commands._common import JSON_HELP, examples
from ckh.commands._judging import AMONG, MIN_PROBLEMS, MODEL, figure_values
from ckh.commands.panels import MEASURING
from ckh.commands.validate.verdicts import VerdictFiles, conclude, show
from ckh.documents import Document
from ckh.errors import DataError, UsageError
from ckh.learn.judging.judged_data import (
    MOST_UNSTABLE,
    Among,
    for_verdict,
    judged_model,
    load_judged,
    percent,
    ranker_of,
    refuse_unstable,
    stands_in,
)
from ckh.text.durations import parse_duration
from ckh.text.log import warn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ckh.assess.oracle import Contest, Remeasured
    from ckh.assess.ranked_rows import Coverage
    from ckh.bench.supervision.protocol import Reply
    from ckh.data.parts import DatasetParts
    from ckh.learn.judging.judged_data import StandIn
    from ckh.learn.models.artifact import Model

_HELP = """Compare predict's choices with the measured best of a hold-out. Exit code 1: efficiency is too low.

The evaluated answer is that of `ckh predict`, on the problems where its choice was measured; refused problems,
unmeasured choices and best kernels that are not candidates are counted. If only a sample of the kernels was measured,
--among measured ranks the measured ones only.

If the data have repeated measurements, kernels within the noise of the best count as equal to it.

With --on-device the model's first choices, the oracle's best and --sample random candidates are compiled and measured
again on this machine, interleaved, so that the verdict depends neither on earlier times nor only on kernels with good
predictions. The report states what the sample may have missed: 59 random kernels contain one of the fastest 5 %
with a probability of 95 %.

There is no verdict, and exit code 4, with fewer than --min-problems measured choices: training problems of the model do
not count (unknown for models of AMD's tools, as the report states), nor problems with a single measured kernel.
"""
_SAMPLE = 59
_SEED = 0
_GATES = {  # name in gates -> name of the figure
    "mean_efficiency": "mean efficiency",
    "p50_efficiency": "median efficiency",
    "p10_efficiency": "P10 efficiency",
    "min_efficiency": "least efficiency",
}
_LEAST = {"mean_efficiency": 0.90, "p10_efficiency": 0.75}


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """Efficiency of the first choice on each problem, shape (problems,), with further figures and notes.

    `coverage` is None if kernels were measured again.
    """

    efficiency: NDArray[np.float64]
    figures: dict[str, float]
    coverage: Coverage | None = None
    notes: tuple[str, ...] = ()


class OracleDocument(Document):
    """ckh validate oracle --json."""

    schema = "validate_oracle"

    model: str
    """Folder of the model."""
    stands_in: StandIn | None
    """Substitute model, if there is no model of these problems; otherwise null."""
    among: Among
    """Kernels to choose among: predict's candidates, or the measured kernels alone."""
    problems: int
    """Problems with a measured choice, the basis of the figures."""
    on_device: bool
    """Whether kernels were measured again."""
    figures: Mapping[str, float]
    coverage: Coverage | None
    """Coverage; null if kernels were measured again."""
    notes: tuple[str, ...]
    """Lines on measurement noise, or on kernels that may be faster."""
    failures: tuple[str, ...]
    """Reasons why the gate fails."""
    passes: bool


def register(group: typer.Typer) -> None:
    """Add the command to those of `ckh validate`."""
    group.command(
        name="oracle",
        help=_HELP,
        epilog=examples(
            "ckh validate oracle --model models/mine --data holdout.parquet",
            "ckh validate oracle --model models/mine --data holdout.parquet --fail-under mean_efficiency=0.95",
            "ckh validate oracle --model models/mine --data holdout.parquet --on-device --limit 30",
        ),
    )(oracle)


def oracle(
    model: Path | None = MODEL,
    data: list[Path] = typer.Option(..., "--data", help="Measured hold-out; may be repeated."),
    fail_under: list[str] = typer.Option(
        [],
        "--fail-under",
        metavar="FIGURE=VALUE",
        help="Minimum efficiency; may be repeated.  [mean_efficiency=0.9, p10_efficiency=0.75]",
    ),
    min_problems: int = MIN_PROBLEMS,
    among: Among = AMONG,
    top_k: int = typer.Option(5, "--top-k", min=1, max=50, help="Number of choices to evaluate."),
    on_device: bool = typer.Option(False, "--on-device", help="Measure choices and oracle again on this machine."),
    sample: int = typer.Option(
        _SAMPLE,
        "--sample",
        min=0,
        rich_help_panel=MEASURING,
        help="--on-device: number of random candidates to measure too.",
    ),
    limit: int | None = typer.Option(None, "--limit", min=1, help="Number of random problems to measure again."),
    timeout: str = typer.Option("30s", "--timeout", metavar="TIME", help="Time limit per kernel and problem."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Evaluate, print and give the verdict."""
    import numpy as np

    gates = _LEAST | dict(figure_values("--fail-under", fail_under, list(_GATES)))
    loaded, timeout_s = judged_model(model, data), parse_duration(timeout)
    if limit is not None and limit < min_problems:
        raise UsageError(
            f"--limit {limit} leaves fewer than the {min_problems} problems required for a verdict",
            "set --min-problems",
            code="few-problems",
        )
    parts = for_verdict(load_judged(loaded, data), [loaded], min_problems)
    refuse_unstable(parts, MOST_UNSTABLE)
    if on_device:
        from ckh.learn.answers.known import other_device

        if other := other_device(loaded.spec.arch, loaded.spec.device, None):
            warn(f"{loaded.path} was {other}: evaluated on another device", "trained-on")
        result = _some(_contests(loaded, parts, among, top_k, min_problems), limit)
        judged = _judged_again(_measure_again(loaded, result, sample, timeout_s), top_k)
    else:
        judged = _judged_as_measured(loaded, parts, among, top_k, min_problems)
    figures = {
        "mean efficiency": float(judged.efficiency.mean()),
        "median efficiency": float(np.median(judged.efficiency)),
        "P10 efficiency": float(np.percentile(judged.efficiency, 10)),
        "least efficiency": float(judged.efficiency.min()),
        **judged.figures,
    }
    checks = [
        Check(
            _GATES[name],
            ""
            if (value := figures[_GATES[name]]) >= least
            else f"{_GATES[name]} is {percent(value)}, under {percent(least)}",
        )
        for name, least in gates.items()
    ]
    how = "measured again on this machine" if on_device else "as measured in the data"
    verdict = Verdict(
        command="ckh validate oracle",
        title=f"{loaded.path}: {len(judged.efficiency)} problems, {how}",
        checks=tuple(checks),
        lines=(*judged.notes, *(judged.coverage.lines() if judged.coverage else [])),
        tables=(VerdictTable("", ("", "value"), [[name, percent(value)] for name, value in figures.items()]),),
    )
    document = OracleDocument(
        model=str(loaded.path),
        stands_in=stands_in(loaded),
        among=among,
        problems=len(judged.efficiency),
        on_device=on_device,
        figures=figures,
        coverage=judged.coverage,
        notes=judged.notes,
        failures=verdict.failures,
        passes=not verdict.failures,
    )
    show(verdict, document, VerdictFiles(None, None), as_json=as_json)
    conclude(verdict)


def _judged_as_measured(model: Model, parts: DatasetParts, among: Among, top_k: int, least: int) -> _Judged:
    """Evaluation of the choices by the times of the data."""
    import numpy as np

    from ckh.assess.compare import too_few_choices
    from ckh.assess.metrics import best_of_first, known_or
    from ckh.assess.metrics import top_k as first_k
    from ckh.assess.noise import RepeatNoiseOfParts, ceiling, scored_again
    from ckh.assess.ranked_rows import coverage, coverage_of
    from ckh.assess.report import RANDOM
    from ckh.assess.times import times_of
    from ckh.commands.evaluate.output import noise_lines

    repeats, ks, rank = RepeatNoiseOfParts(), (1, top_k), ranker_of(model, among)
    tolerances, bests, again, covered = [], [], [], []
    for part in parts:
        times, ranked = times_of(part), rank(part)
        repeats.add(part, times)
        covered.append(coverage_of(ranked, times))
        tolerances.append(times.own_tolerance())
        bests.append(best_of_first(times, ranked.place, ks))
        scored = scored_again(part, ranked.best_ranked(times.problem), None)
        again.append(replace(scored, is_known=scored.is_known & covered[-1].is_measured))
    noise, best, efficiency = repeats.result(), ceiling(again, RANDOM), np.concatenate(bests, axis=1)
    of_all, chosen = coverage(covered), efficiency[0][np.isfinite(efficiency[0])]
    if len(chosen) < least:
        raise too_few_choices(len(chosen), of_all.problems, least)
    tolerance = known_or(None if noise is None else noise.tolerance, np.concatenate(tolerances))
    of_1, of_k = first_k(efficiency, tolerance, ks)
    figures = {
        "first choice is a best kernel": of_1.hit,
        f"a best kernel is in the first {top_k}": of_k.hit,
        f"mean efficiency of the best of {top_k}": of_k.efficiency_mean,
        "coverage": of_all.coverage,
    }
    if best is not None:
        figures["mean efficiency of a repeated measurement"] = best.repeated.value
        figures["share of a repeated measurement"] = best.share.value
    lines = noise_lines(() if noise is None else noise.devices, best)
    return _Judged(chosen, figures, of_all, tuple(lines))


def _contests(model: Model, parts: DatasetParts, among: Among, top_k: int, least: int) -> list[Contest]:
    """Kernels to measure again, for the problems that the model answers."""
    from ckh.assess.oracle import contests, first_measured
    from ckh.learn.judging.judged_answers import first_kernels

    result, problems = [], 0
    for part in parts:
        if among is Among.MEASURED:
            first = first_measured(part, model.scores(part), top_k)
        else:
            first = first_kernels(model, part, top_k)
        problems += len(first)
        result += contests(part, first)
    if len(result) < problems:
        warn(f"left out {problems - len(result)} of {problems} problems, for which predict has no kernel", "no-kernel")
    if len(result) < least:
        raise DataError(f"no verdict: {len(result)} problems have an answer, {least} required", code="few-problems")
    return result


def _some(contests: list[Contest], limit: int | None) -> list[Contest]:
    import random

    return contests if limit is None or limit >= len(contests) else random.Random(_SEED).sample(contests, limit)


def _measure_again(model: Model, contests: list[Contest], sample: int, timeout_s: float) -> list[Remeasured]:
    from ckh.assess.oracle import measured_again, with_sample
    from ckh.bench.devices.device_choice import device_of
    from ckh.bench.supervision.driver import compare_kernels
    from ckh.learn.answers.batches import known_candidates

    device, op = device_of(model.spec.arch), model.spec.op

    def candidates(problem: str) -> list[str]:
        known = known_candidates(op.problems.parse(problem), model)
        return [op.kernels.name(kernel) for kernel in known.kernels]

    contests = with_sample(contests, candidates, sample, _SEED) if sample else contests
    by_problem = {contest.problem: contest for contest in contests}
    tasks = {contest.problem: [op.kernels.parse(name) for name in contest.kernels] for contest in contests}
    again: list[Remeasured] = []

    def take(problem: str, replies: list[Reply]) -> None:
        again.append(measured_again(by_problem[problem], [reply.samples_ns for reply in replies]))

    compare_kernels(device, tasks, timeout_s, "measuring again", take)
    return again


def _judged_again(again: Sequence[Remeasured], top_k: int) -> _Judged:
    import numpy as np

    figures = {
        f"mean efficiency of the best of {top_k}": float(np.mean([remeasured.top_efficiency for remeasured in again])),
        "mean efficiency of the oracle's kernel": float(
            np.mean([remeasured.oracle_efficiency for remeasured in again])
        ),
    }
    first = np.array([remeasured.first_efficiency for remeasured in again])
    if not any(remeasured.contest.sample for remeasured in again):
        return _Judged(first, figures, notes=("no random kernel was measured, so faster kernels may exist",))
    figures["problems where a random kernel was the fastest"] = float(
        np.mean([remeasured.sample_won for remeasured in again])
    )
    estimated = [remeasured.estimated_efficiency for remeasured in again]
    figures["mean efficiency, by the estimated best of all"] = float(np.mean(estimated))
    drawn = np.median([len(remeasured.contest.sample) for remeasured in again])
    of = np.median([remeasured.contest.candidates for remeasured in again])
    missed = percent(max(remeasured.contest.missed_share for remeasured in again))
    notes = (
        f"{drawn:.0f} random kernels of {of:.0f} were measured with the first {top_k} and the old best",
        f"missed: with 95 % confidence, at most {missed} of a problem's kernels are faster than the best of these",
        "the best of all is estimated from the two fastest random kernels (2 s1 - s2 of their speeds)",
    )
    return _Judged(first, figures, notes=notes)
