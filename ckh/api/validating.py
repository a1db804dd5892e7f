"""Verdicts of `ckh validate`: models against the measured best and another model, and a matrix of kernels."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ckh.assess.compare import CompareDocument, Thresholds, compare, too_few_choices
from ckh.assess.verdict import Check, Verdict, VerdictTable
from ckh.cluster.connection import connected
from ckh.documents import Document, fields_of
from ckh.errors import DataError, UsageError
from ckh.learn.judging.judged_data import (
    MOST_UNSTABLE,
    Among,
    for_verdict,
    load_judged,
    percent,
    ranker_of,
    refuse_unstable,
)
from ckh.text.log import warn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.assess.oracle import Remeasured
    from ckh.assess.ranked_rows import Coverage
    from ckh.bench.devices.device import DeviceOptions
    from ckh.bench.supervision.limits import BenchLimits
    from ckh.bench.supervision.protocol import Reply
    from ckh.data.parts import DatasetParts
    from ckh.learn.answers.answer import NotMeasured
    from ckh.learn.models.artifact import Model
    from ckh.schema import Status

GATES = {  # name in gates -> name of the figure
    "mean_efficiency": "mean efficiency",
    "p50_efficiency": "median efficiency",
    "p10_efficiency": "P10 efficiency",
    "min_efficiency": "least efficiency",
}
MEASURED_S = 30.0  # time limit per kernel and problem that is measured again
_FIRST = 5  # choices that are evaluated
_WORST = 5
_SEED = 0


class OracleDocument(Document):
    """ckh validate oracle --json."""

    schema = "validate_oracle"

    model: str
    """Folder of the model."""
    stands_in: NotMeasured | None
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


def oracle_verdict(
    model: Model,
    data: Sequence[Path],
    gates: Mapping[str, float],
    least: int,
    among: Among,
    again: tuple[int, int | None] | None,
) -> tuple[Verdict, OracleDocument]:
    """Compare a model's choices with the best measured kernels of at least `least` problems.

    With `again` kernels are measured again on this machine, also a number of random candidates, on a number of random
    problems or on all.
    """
    parts = for_verdict(load_judged(model, data), [model], least)
    refuse_unstable(parts, MOST_UNSTABLE)
    coverage: Coverage | None = None
    if again is None:
        efficiency, further, coverage, notes = _as_measured(model, parts, among, least)
    else:
        efficiency, further, notes = _measured_again(model, parts, among, least, *again)
    figures = {
        "mean efficiency": float(efficiency.mean()),
        "median efficiency": float(np.median(efficiency)),
        "P10 efficiency": float(np.percentile(efficiency, 10)),
        "least efficiency": float(efficiency.min()),
        **further,
    }
    checks = []
    for name, low in gates.items():
        value = figures[GATES[name]]
        why = "" if value >= low else f"{GATES[name]} is {percent(value)}, under {percent(low)}"
        checks.append(Check(GATES[name], why))
    how = "as measured in the data" if again is None else "measured again on this machine"
    verdict = Verdict(
        command="ckh validate oracle",
        title=f"{model.path}: {len(efficiency)} problems, {how}",
        checks=tuple(checks),
        lines=(*notes, *(coverage.lines() if coverage else [])),
        tables=(VerdictTable("", ("", "value"), [[name, percent(value)] for name, value in figures.items()]),),
    )
    document = OracleDocument(
        model=str(model.path),
        stands_in=model.not_measured,
        among=among,
        problems=len(efficiency),
        on_device=again is not None,
        figures=figures,
        coverage=coverage,
        notes=notes,
        failures=verdict.failures,
        passes=not verdict.failures,
    )
    return verdict, document


def _as_measured(
    model: Model, parts: DatasetParts, among: Among, least: int
) -> tuple[NDArray[np.float64], dict[str, float], Coverage, tuple[str, ...]]:
    """Efficiency of the choices by the times of the data, further figures, coverage, and lines on noise."""
    from ckh.assess.noise import noise_lines
    from ckh.assess.report import evaluate

    result = evaluate(parts, ranker_of(model, among))
    efficiency = np.array([choice.efficiency for choice in result.choices if choice.efficiency is not None])
    if len(efficiency) < least:
        raise too_few_choices(len(efficiency), result.coverage.problems, least)
    first = {top.k: top for top in result.top}
    figures = {
        "first choice is a best kernel": first[1].hit,
        f"a best kernel is in the first {_FIRST}": first[_FIRST].hit,
        f"mean efficiency of the best of {_FIRST}": first[_FIRST].efficiency_mean,
        "coverage": result.coverage.coverage,
    }
    if result.ceiling is not None:
        figures["mean efficiency of a repeated measurement"] = result.ceiling.repeated.value
        figures["share of a repeated measurement"] = result.ceiling.share.value
    return efficiency, figures, result.coverage, tuple(noise_lines(result.noise, result.ceiling))


def _measured_again(
    model: Model, parts: DatasetParts, among: Among, least: int, sample: int, limit: int | None
) -> tuple[NDArray[np.float64], dict[str, float], tuple[str, ...]]:
    """Efficiency of the choices by new times, further figures, and lines on what may have been missed."""
    from ckh.assess.oracle import contests, first_measured, measured_again, with_sample
    from ckh.bench.devices.device_choice import device_of
    from ckh.bench.supervision.driver import compare_kernels
    from ckh.learn.answers.batches import known_candidates
    from ckh.learn.answers.known import other_device
    from ckh.learn.judging.judged_answers import first_kernels

    if trained_elsewhere := other_device(model.spec.arch, model.spec.device, None):
        warn(f"{model.path} was {trained_elsewhere}: evaluated on another device", "trained-on")
    judged, problems = [], 0
    for part in parts:
        if among is Among.MEASURED:
            first = first_measured(part, model.scores(part), _FIRST)
        else:
            first = first_kernels(model, part, _FIRST)
        problems += len(first)
        judged += contests(part, first)
    if len(judged) < problems:
        warn(f"left out {problems - len(judged)} of {problems} problems, for which predict has no kernel", "no-kernel")
    if len(judged) < least:
        raise DataError(f"no verdict: {len(judged)} problems have an answer, {least} required", code="few-problems")
    if limit is not None and limit < len(judged):
        judged = random.Random(_SEED).sample(judged, limit)
    device, op = device_of(model.spec.arch), model.spec.op

    def candidates(problem: str) -> list[str]:
        known = known_candidates(op.problems.parse(problem), model)
        return [op.kernels.name(kernel) for kernel in known.kernels]

    judged = with_sample(judged, candidates, sample, _SEED) if sample else judged
    by_problem = {contest.problem: contest for contest in judged}
    tasks = {contest.problem: [op.kernels.parse(name) for name in contest.kernels] for contest in judged}
    again: list[Remeasured] = []

    def take(problem: str, replies: list[Reply]) -> None:
        again.append(measured_again(by_problem[problem], [reply.samples_ns for reply in replies]))

    compare_kernels(device, tasks, MEASURED_S, "measuring again", take)
    return _of_remeasured(again)


def _of_remeasured(
    again: Sequence[Remeasured],
) -> tuple[NDArray[np.float64], dict[str, float], tuple[str, ...]]:
    efficiency = np.array([one.first_efficiency for one in again])
    figures = {
        f"mean efficiency of the best of {_FIRST}": float(np.mean([one.top_efficiency for one in again])),
        "mean efficiency of the oracle's kernel": float(np.mean([one.oracle_efficiency for one in again])),
    }
    if not any(one.contest.sample for one in again):
        return efficiency, figures, ("no random kernel was measured, so faster kernels may exist",)
    won, estimated = [one.sample_won for one in again], [one.estimated_efficiency for one in again]
    figures["problems where a random kernel was the fastest"] = float(np.mean(won))
    figures["mean efficiency, by the estimated best of all"] = float(np.mean(estimated))
    drawn = np.median([len(one.contest.sample) for one in again])
    of = np.median([one.contest.candidates for one in again])
    missed = percent(max(one.contest.missed_share for one in again))
    notes = (
        f"{drawn:.0f} random kernels of {of:.0f} were measured with the first {_FIRST} and the old best",
        f"missed: with 95 % confidence, at most {missed} of a problem's kernels are faster than the best of these",
        "the best of all is estimated from the two fastest random kernels (2 s1 - s2 of their speeds)",
    )
    return efficiency, figures, notes


def compare_verdict(
    old: Path, new: Path, data: Sequence[Path], thresholds: Thresholds, least: int, among: Among
) -> tuple[Verdict, CompareDocument]:
    """Compare a new model with an old one on at least `least` problems that neither was trained on."""
    from ckh.learn.models.artifact import load_model

    before, after = load_model(old), load_model(new)
    if before.spec.purpose != after.spec.purpose:
        raise UsageError(
            f"{old} is for {before.spec.purpose}, {new} for {after.spec.purpose}: not comparable",
            code="model-mismatch",
        )
    parts = for_verdict(load_judged(after, data), [before, after], least)
    result = compare(parts, ranker_of(before, among), ranker_of(after, among), thresholds, least)
    counts = f"{result.improved} improved, {result.same} same, {len(result.degraded)} degraded"
    lines = [f"same choice on {percent(result.agreement)} of problems; {counts}"]
    for name, coverage in (("old", result.old_coverage), ("new", result.new_coverage)):
        if of_coverage := coverage.lines():
            lines += [f"{name} model: {of_coverage[0]}", *of_coverage[1:]]
    differences = [
        [
            difference.name,
            percent(difference.old),
            percent(difference.new),
            f"{difference.new - difference.old:+.2%}",
            f"{difference.low:+.2%} to {difference.high:+.2%}",
        ]
        for difference in result.differences
    ]
    tables = [VerdictTable("", ("efficiency", "old", "new", "difference", "95 % interval"), differences)]
    if result.degraded:
        worst = [
            [degraded.problem, percent(degraded.old_efficiency), percent(degraded.new_efficiency)]
            for degraded in result.degraded[:_WORST]
        ]
        tables.append(VerdictTable("", ("degraded most", "old", "new"), worst))
    title = f"{old} -> {new}: {result.problems} problems"
    verdict = Verdict("ckh validate compare", title, result.checks, tuple(lines), tuple(tables))
    return verdict, CompareDocument(**fields_of(result), old=str(old), new=str(new), among=str(among))


@dataclass(frozen=True, slots=True)
class MatrixRequest:
    """A matrix of kernels to try; None: all, or the device's own element type."""

    matrix: str
    op: str
    variant: str | None = None
    ndim: int | None = None
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class KernelFinding:
    """A kernel of a matrix."""

    json_inline: ClassVar = "of"

    of: Mapping[str, str | int]
    """Properties of the case, e.g. its direction and pipeline."""
    case: str
    status: Status
    reason: str
    built: str
    """Name reported by the compiled library."""
    executed: int
    """Problems that it ran on."""
    class_executed: bool
    """Whether a kernel of its class was ever executed with a right result."""
    older_binary: bool
    """Whether its class was executed with compiler options or source that have changed since."""
    problem: str
    """Canonical text of the problem."""


class KernelsDocument(Document):
    """ckh validate kernels --json: status of each kernel."""

    schema = "validate_kernels"

    matrix: str
    arch: str
    ok: bool
    statuses: Mapping[str, int]
    findings: tuple[KernelFinding, ...]
    caution: str


def tried_kernels(
    request: MatrixRequest,
    kind: str | None,
    options: DeviceOptions,
    limits: BenchLimits,
    cluster: str | None,
    *,
    run: bool,
) -> KernelsDocument | None:
    """Compile, load and, with `run`, execute every kernel of a matrix; None if it was interrupted."""
    from ckh.bench.computation import MatrixSettings, measured_of
    from ckh.bench.devices.device_choice import caution_of, default_device_kind, open_device
    from ckh.bench.supervision.cluster_driver import driver_for
    from ckh.bench.supervision.harness import executed_of, try_cases
    from ckh.bench.supervision.limits import Stop
    from ckh.bench.supervision.remote import DeviceRequest
    from ckh.ops import operation

    kind = kind or default_device_kind(options)
    device = open_device(kind, options)
    if caution := caution_of(device):
        warn(caution, "headers")
    cases_of = measured_of(operation(request.op)).matrix
    if cases_of is None:
        raise UsageError(f"{request.op} has no matrices of kernels", code="unsupported")
    arch = device.arch
    settings = MatrixSettings(arch, request.dtype or arch.default_dtype, request.variant, request.ndim)
    cases = cases_of(request.matrix, settings)
    with ExitStack() as stack:
        nodes = None if cluster is None else stack.enter_context(connected(cluster))
        stop = stack.enter_context(Stop())
        driver = stack.enter_context(
            driver_for(nodes, DeviceRequest(kind, options), device, limits, stop, measures=run)
        )
        driver.configs = (replace(driver.configs[0], load_only=not run),)
        findings = list(try_cases(driver, cases, run=run))
        if stop():
            return None
    entries = [executed_of(finding.case.kernel, arch.name) for finding in findings]
    return KernelsDocument(
        matrix=request.matrix,
        arch=arch.name,
        ok=all(finding.is_accepted for finding in findings),
        statuses=Counter(str(finding.status) for finding in findings),
        findings=tuple(
            KernelFinding(
                of=finding.case.of,
                case=finding.case.label,
                status=finding.status,
                reason=finding.reason,
                built=finding.built,
                executed=finding.executed,
                class_executed=finding.executed > 0 or entry is not None,
                older_binary=not finding.executed and entry is not None and entry.is_older(device),
                problem=finding.case.problem.canonical(),
            )
            for finding, entry in zip(findings, entries, strict=True)
        ),
        caution=caution,
    )
